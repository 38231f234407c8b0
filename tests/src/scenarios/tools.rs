//! The service that is called in scenarios. Its handlers note in a [`Book`] what they cannot return to their caller.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use endpoint::{Context, Service, Tool, ToolError};
use protocol_core::{CancelReason, Content, Progress, RateWindow, Text, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::harness::{Book, identity};
use programs::tools::{Options, service as example_tools};

#[derive(Deserialize, JsonSchema)]
struct Steps {
    steps: u64,
    step_ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Number {
    number: usize,
}

/// The number of calls of `reverse` that wait for each other.
pub(super) const TOGETHER: usize = 256;

/// A time within which a task that is ready has run, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn service(book: &Book) -> Service {
    let holding = book.clone();
    let noting = book.clone();
    // The gate is open once it has a line, which the tool `release` adds.
    let gate = Book::default();
    let (blocking, opening) = (gate.clone(), gate);
    let countdown = Countdown::new();
    example_tools(&Options::default())
        .configure(|config| {
            config.identity = identity();
            config.timeouts.handler_grace = PATIENCE;
        })
        .tool(Tool::new("greet", async |_: Context, ()| Ok("hello")))
        .tool(Tool::new("length", async |_: Context, given: BTreeMap<String, String>| Ok(given["text"].len())))
        .tool(Tool::new("steps", steps).rate_window(RateWindow::UNLIMITED))
        .tool(Tool::new("hold", move |context: Context, ()| hold(context, holding.clone())))
        .tool(
            Tool::new("deaf", async |_: Context, ()| pending::<Result<(), ToolError>>().await).deadline(Duration::from_millis(40)),
        )
        .tool(Tool::with_content("empty", async |_: Context, ()| {
            Ok(ToolOutput::blocks((0..3).map(|_| Content::Text(Text::from_static("")))))
        }))
        .tool(Tool::new("note", move |_: Context, ()| {
            noting.note("noted");
            async { Ok("noted") }
        }))
        .tool(Tool::blocking("block", move |_: Context, ()| {
            blocking.wait(1);
            Ok("blocked")
        }))
        .tool(Tool::new("release", move |_: Context, ()| {
            opening.note("released");
            async { Ok("released") }
        }))
        .tool(Tool::new("reverse", move |_: Context, Number { number }: Number| {
            let countdown = countdown.clone();
            async move {
                countdown.wait(number).await;
                Ok::<_, ToolError>(number)
            }
        }))
}

async fn steps(context: Context, job: Steps) -> Result<&'static str, ToolError> {
    for step in 1..=job.steps {
        context.progress(Progress::step(step, job.steps).with_message(format!("step {step}")));
        // Sleeps in real time, since the timeouts of the caller are in real time.
        context.sleep(Duration::from_millis(job.step_ms)).await?;
    }
    Ok("done")
}

async fn hold(context: Context, book: Book) -> Result<(), ToolError> {
    context.step(1, 2);
    let why = match context.cancelled().await {
        CancelReason::Peer(Some(reason)) => format!("cancelled by the peer: {reason}"),
        CancelReason::Peer(None) => "cancelled by the peer".into(),
        why => format!("cancelled: {why:?}"),
    };
    book.note(why);
    Err(ToolError::Cancelled)
}

/// Ends waiting calls one by one, the highest number first. It has the number of the call that has ended last, and the wakers of the others
/// by number.
#[derive(Clone)]
struct Countdown(Arc<Mutex<(usize, Vec<Option<Waker>>)>>);

impl Countdown {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((TOGETHER, (0..=TOGETHER).map(|_| None).collect()))))
    }

    /// Waits until the call `number + 1` has ended, and then wakes the call `number - 1`.
    async fn wait(&self, number: usize) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.0 != number + 1 {
                state.1[number] = Some(cx.waker().clone());
                return Poll::Pending;
            }
            state.0 = number;
            let next = number.checked_sub(1).and_then(|next| state.1[next].take());
            drop(state);
            next.into_iter().for_each(Waker::wake);
            Poll::Ready(())
        })
        .await;
    }
}
