//! The future of an input request of a handler.

use core::fmt;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::sync::Arc;

use crate::ask_failed::AskFailed;
use crate::rounds::{Asking, is_in_effect};
use crate::state::{AlarmWait, AnswerWait, RoundStep, RoundWait, ServedCall};
use protocol_core::dialect::{Answer, Ask};
use protocol_core::json::Text;

/// An input request to the caller: a future that resolves to the answer. The input request is sent when the future is first polled.
///
/// If the caller made a handshake, the input request is sent as a JSON-RPC request while the call runs. In MCP 2026-07-28 it ends the request
/// of the call instead, and the handler is dropped. When the caller sends its request again with the answer, the handler runs again from its
/// first line, and every input request that was answered before resolves at once. Everything else that the handler does is repeated, except
/// for effects in [`Context::once`](super::Context::once). A handler may also be kept and go on with the answer
/// ([`Limits::frozen_handlers`](protocol_core::Limits::frozen_handlers)).
///
/// # Cancel safety
/// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
#[must_use = "an input request is sent when it is awaited"]
pub struct AskFuture<T> {
    stage: Stage,
    read: Option<Read<T>>,
}

type Read<T> = Box<dyn FnOnce(Result<Answer, AskFailed>) -> T + Send>;

enum Stage {
    New {
        served: Arc<ServedCall>,
        ask: Ask,
        key: Option<Text>,
        within: Option<Duration>,
    },
    /// The input request cannot be sent.
    Failed(AskFailed),
    /// It was sent. The alarm ends the time for its answer, if there is a limit.
    Sent(AnswerWait, Option<AlarmWait>),
    /// It will be sent in the round that ends the request of the call.
    InRound(RoundWait),
    Done,
}

impl<T> AskFuture<T> {
    pub(super) fn new(
        served: &Arc<ServedCall>,
        ask: Result<Ask, AskFailed>,
        read: impl FnOnce(Result<Answer, AskFailed>) -> T + Send + 'static,
    ) -> Self {
        let stage = match ask {
            Ok(ask) => Stage::New { served: Arc::clone(served), ask, key: None, within: None },
            Err(failed) => Stage::Failed(failed),
        };
        Self { stage, read: Some(Box::new(read)) }
    }

    /// Sets the name of the answer on the wire in MCP 2026-07-28, for people who read the frames. Input requests that are open at the same time
    /// need different names. Default: `input-1`, `input-2` and so on.
    pub fn key(mut self, name: impl Into<Text>) -> Self {
        if let Stage::New { key, .. } = &mut self.stage {
            *key = Some(name.into());
        }
        self
    }

    /// Fails with [`AskFailed::TimedOut`] if the answer takes longer than `limit`. In MCP 2026-07-28 the limit is checked when the retry
    /// arrives, in whole seconds.
    pub fn within(mut self, limit: Duration) -> Self {
        if let Stage::New { within, .. } = &mut self.stage {
            *within = Some(limit);
        }
        self
    }

    /// Sends the input request, or looks its answer up in the log.
    fn begin(served: &Arc<ServedCall>, ask: Ask, key: Option<Text>, within: Option<Duration>) -> Result<Begun, AskFailed> {
        if is_in_effect(&**served) {
            return Err(AskFailed::Invalid(String::from("it was made within an effect of `once`")));
        }
        if served.asks_in_rounds() {
            return Ok(match served.ask_in_round(Asking::new(ask, key, within))? {
                RoundStep::Answer(answer) => Begun::Answered(answer),
                RoundStep::Wait(wait) => Begun::Waits(Stage::InRound(wait)),
            });
        }
        let alarm = within.map(|within| served.alarm(within));
        served.ask(ask).map(|wait| Begun::Waits(Stage::Sent(wait, alarm)))
    }
}

enum Begun {
    Answered(Box<Answer>),
    Waits(Stage),
}

impl<T> Future for AskFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        let this = self.get_mut();
        let answer = loop {
            match &mut this.stage {
                Stage::New { .. } => {
                    let Stage::New { served, ask, key, within } = core::mem::replace(&mut this.stage, Stage::Done) else {
                        continue;
                    };
                    match Self::begin(served.current(), ask, key, within) {
                        Ok(Begun::Waits(stage)) => this.stage = stage,
                        Ok(Begun::Answered(answer)) => break Ok(*answer),
                        Err(failed) => break Err(failed),
                    }
                }
                Stage::Failed(failed) => break Err(failed.clone()),
                Stage::Sent(wait, alarm) => {
                    if let Poll::Ready(answer) = Pin::new(wait).poll(cx) {
                        break answer;
                    }
                    match alarm.as_mut().map(|alarm| Pin::new(alarm).poll(cx)) {
                        Some(Poll::Ready(_)) => break Err(AskFailed::TimedOut),
                        Some(Poll::Pending) | None => return Poll::Pending,
                    }
                }
                Stage::InRound(wait) => match Pin::new(wait).poll(cx) {
                    Poll::Ready(answer) => break answer,
                    Poll::Pending => return Poll::Pending,
                },
                // A future must not be polled after its end. This one stays pending then, instead of panicking.
                Stage::Done => return Poll::Pending,
            }
        };
        this.stage = Stage::Done;
        match this.read.take() {
            Some(read) => Poll::Ready(read(answer)),
            None => Poll::Pending,
        }
    }
}

// The parts that are pinned are `Unpin`, and `T` is only returned.
impl<T> Unpin for AskFuture<T> {}

impl<T> fmt::Debug for AskFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::New { .. } => "new",
            Stage::Failed(_) => "failed",
            Stage::Sent(..) => "sent",
            Stage::InRound(_) => "in a round",
            Stage::Done => "done",
        };
        f.debug_struct("AskFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
