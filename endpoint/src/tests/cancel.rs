//! Cancellation, deadlines and time limits of a handler.

use core::task::Poll;
use core::time::Duration;
use std::sync::{Arc, Mutex};
use std::{format, vec};

use serde_json::json;

use super::{harness, hello, ms, run, service};
use crate::testing::{Executor, Harness};
use crate::{Cancelled, Context, Endpoint, TimeoutError, Tool};
use protocol_core::dialect::Level;
use protocol_core::drive::Machine;
use protocol_core::json::Json;
use protocol_core::session::{CancelReason, CheckpointError, Outcome, ProgressError};
use protocol_core::time::Instant;

/// The observations of a handler, for the test to check afterwards.
type Seen<T> = Arc<Mutex<Vec<T>>>;

/// An empty list of observations, once for the handler and once for the test.
fn seen<T>() -> (Seen<T>, Seen<T>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    (Arc::clone(&seen), seen)
}

fn peer_said(reason: &str) -> CancelReason {
    CancelReason::Peer(Some(reason.into()))
}

/// The reason of a cancel by [`Harness::cancel_after`].
const TOLD: &str = "the harness was told to";

#[test]
fn a_cancelled_handler_gets_the_reason_and_its_cleanup_is_awaited() {
    let (saw, look) = seen();
    let tool = Tool::new("cleans", move |context: Context, (): ()| {
        let saw = Arc::clone(&saw);
        async move {
            assert!(!context.is_cancelled());
            let handle = context.cancellation();
            let why = context.cancelled().await;
            assert!(context.is_cancelled() && handle.is_cancelled());
            assert_eq!(handle.reason().as_ref(), Some(&why));
            assert_eq!(handle.cancelled().await, why);
            assert_eq!(context.try_progress(protocol_core::Progress::step(1, 2)), Err(ProgressError::NotLive));
            saw.lock().unwrap().push(why);
            // The cleanup is pending twice.
            let mut polls_left = 3;
            core::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                polls_left -= 1;
                if polls_left == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            // Marks the end of the cleanup.
            saw.lock().unwrap().push(CancelReason::Closing);
            Ok(())
        }
    });
    let run = harness(tool).cancel_after(ms(300)).call_tool("cleans", Json::empty_object());
    assert_eq!(run.outcome(), Some(&Outcome::Cancelled));
    assert_eq!(*look.lock().unwrap(), [peer_said(TOLD), CancelReason::Closing]);
    assert_eq!(run.ended, Some(ms(300)));
    assert_eq!(run.counters.abandoned, 0);
}

#[test]
fn a_handler_that_ignores_its_cancel_is_dropped_when_its_grace_is_over() {
    struct Dropped(Seen<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped");
        }
    }
    let (saw, look) = seen();
    let tool = Tool::new("stuck", move |_: Context, (): ()| {
        let guard = Dropped(Arc::clone(&saw));
        async move {
            core::future::pending::<()>().await;
            drop(guard);
            Ok(())
        }
    });
    let run = harness(tool).cancel_after(ms(1000)).call_tool("stuck", Json::empty_object());
    assert_eq!(run.outcome(), Some(&Outcome::Cancelled));
    assert_eq!(run.done.as_ref().map(|(at, _)| *at), Some(ms(1000)));
    assert_eq!(run.ended, Some(ms(6000)), "five seconds of grace");
    assert_eq!(*look.lock().unwrap(), ["dropped"]);
    assert_eq!(run.counters.abandoned, 1);
}

#[test]
fn the_grace_can_be_set_and_a_deadline_ends_the_call_before_the_grace_is_over() {
    let tool = Tool::new("stuck", async |_: Context, (): ()| {
        core::future::pending::<()>().await;
        Ok(())
    })
    .deadline(ms(1000));
    let service = service().tool(tool).configure(|config| config.timeouts.handler_grace = ms(200));
    let run = Harness::new(service).call_tool("stuck", Json::empty_object());
    assert!(run.is_tool_error(), "the result of a tool call whose deadline has passed is a tool error: {run:?}");
    assert_eq!(run.done.as_ref().map(|(at, _)| *at), Some(ms(1000)));
    assert_eq!(run.ended, Some(ms(1200)));
}

#[test]
fn sleep_ends_early_when_the_call_is_cancelled() {
    let (saw, look) = seen();
    let tool = Tool::new("sleeps", move |context: Context, (): ()| {
        let saw = Arc::clone(&saw);
        async move {
            let first = context.sleep(ms(100)).await;
            let second = context.sleep(ms(100_000)).await;
            let third = context.sleep(ms(100)).await;
            saw.lock().unwrap().extend([first, second, third]);
            Ok(())
        }
    });
    let run = harness(tool).cancel_after(ms(250)).call_tool("sleeps", Json::empty_object());
    let stopped = Err(Cancelled(peer_said(TOLD)));
    assert_eq!(*look.lock().unwrap(), [Ok(()), stopped.clone(), stopped]);
    assert_eq!(run.ended, Some(ms(250)));
}

#[test]
fn a_cancel_after_some_updates_reaches_the_handler() {
    let tool = Tool::new("counts", async |context: Context, (): ()| {
        for step in 1..=100 {
            context.step(step, 100);
            context.sleep(ms(500)).await?;
        }
        Ok(())
    });
    let run = harness(tool).cancel_after_updates(4).call_tool("counts", Json::empty_object());
    assert_eq!(run.values(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(run.ended, Some(ms(1500)));
}

/// Calls a handler that awaits a future by `with_timeout` for at most one second. All times are in milliseconds: the future is ready after
/// `ready`; the call has a deadline after `deadline`, and is cancelled after `cancel`, if these are given. Returns the result of
/// `with_timeout`, and the time at which the handler ended.
fn limited(ready: u64, deadline: Option<u64>, cancel: Option<u64>) -> (Vec<Result<&'static str, TimeoutError>>, Option<Duration>) {
    let (saw, look) = seen();
    let mut tool = Tool::new("limits", move |context: Context, (): ()| {
        let saw = Arc::clone(&saw);
        async move {
            let inner = async {
                // Not `context.sleep`, which would end early by itself when the call is cancelled.
                let _ = context.served().alarm(ms(ready)).await;
                "value"
            };
            let result = context.with_timeout(inner, ms(1000)).await;
            saw.lock().unwrap().push(result);
            Ok(())
        }
    });
    if let Some(deadline) = deadline {
        tool = tool.deadline(ms(deadline));
    }
    let mut harness = harness(tool);
    if let Some(cancel) = cancel {
        harness = harness.cancel_after(ms(cancel));
    }
    let run = harness.call_tool("limits", Json::empty_object());
    let saw = look.lock().unwrap().clone();
    (saw, run.ended)
}

#[test]
fn with_timeout_returns_a_value_that_is_ready_before_its_limit() {
    assert_eq!(limited(999, None, None), (vec![Ok("value")], Some(ms(999))));
}

#[test]
fn with_timeout_returns_a_value_that_is_ready_at_its_limit_and_at_the_deadline() {
    assert_eq!(limited(1000, Some(1000), None), (vec![Ok("value")], Some(ms(1000))));
}

#[test]
fn with_timeout_ends_at_its_limit() {
    assert_eq!(limited(1001, None, None), (vec![Err(TimeoutError::Elapsed)], Some(ms(1000))));
}

#[test]
fn with_timeout_ends_with_the_cancel() {
    assert_eq!(limited(5000, None, Some(400)), (vec![Err(TimeoutError::Cancelled(peer_said(TOLD)))], Some(ms(400))));
}

#[test]
fn with_timeout_ends_with_the_deadline_of_the_call() {
    assert_eq!(limited(5000, Some(700), None), (vec![Err(TimeoutError::TimedOut)], Some(ms(700))));
    assert_eq!(limited(5000, Some(1000), None), (vec![Err(TimeoutError::TimedOut)], Some(ms(1000))), "not the limit");
}

#[test]
fn with_timeout_drops_a_stuck_future_and_the_handler_goes_on() {
    let run = run(Tool::new("goes on", async |context: Context, (): ()| {
        let witness = Arc::new(());
        let inside = Arc::clone(&witness);
        let stuck = async move {
            let _inside = inside;
            core::future::pending::<()>().await;
        };
        let result = context.with_timeout(stuck, ms(10)).await;
        assert_eq!(Arc::strong_count(&witness), 1, "dropped");
        context.sleep(ms(5)).await?;
        Ok(result == Err(TimeoutError::Elapsed))
    }));
    assert_eq!(run.text(), r#"{"result":true}"#);
    assert_eq!(run.ended, Some(ms(15)));
}

#[test]
fn a_limit_of_zero_still_polls_the_future_once() {
    let run = run(Tool::new("looks", async |context: Context, (): ()| {
        let ready = context.with_timeout(async { 1 }, Duration::ZERO).await;
        let never = context.with_timeout(core::future::pending::<u8>(), Duration::ZERO).await;
        context.sleep(Duration::ZERO).await?;
        Ok((ready == Ok(1), never == Err(TimeoutError::Elapsed)))
    }));
    assert_eq!(run.text(), r#"{"result":[true,true]}"#);
    assert_eq!(run.ended, Some(Duration::ZERO));
}

#[test]
fn a_context_that_outlives_its_handler_has_no_effect() {
    let (saw, look) = seen();
    let tool = Tool::new("leaks", move |context: Context, (): ()| {
        context.step(1, 3);
        context.log(Level::Error, "heard");
        context.checkpoint(&json!({"done": 1}));
        saw.lock().unwrap().push(context);
        core::future::ready(Ok(()))
    });
    let executor = Executor::new();
    let mut server = Endpoint::server(Arc::new(service().tool(tool.inline())), executor.runtime());
    let peer = server.peer();
    peer.record_checkpoints();
    assert_eq!(turn(&mut server, &hello("2025-06-18")), 1);
    let call = request(1, "leaks", r#"{"progressToken":1}"#);
    assert_eq!(turn(&mut server, &[call]), 3, "the progress, the log record and the reply");
    assert_eq!(peer.checkpoints().len(), 1);
    let context = look.lock().unwrap().pop().unwrap();
    assert!(!context.is_cancelled());
    assert_eq!(context.try_progress(protocol_core::Progress::step(2, 3)), Err(ProgressError::NotLive));
    context.log(Level::Error, "nobody hears it");
    assert_eq!(context.try_checkpoint(&json!({"done": 2})), Err(CheckpointError::NotLive));
    assert_eq!((turn(&mut server, &[]), peer.checkpoints().len()), (0, 1));
}

/// Handles all `frames`, and then polls all frames to send. Returns the number of frames that were polled.
fn turn(server: &mut Endpoint, frames: &[String]) -> usize {
    for frame in frames {
        server.handle_frame(frame.clone().into(), Instant::ZERO).unwrap();
    }
    core::iter::from_fn(|| server.poll_transmit()).count()
}

fn request(id: usize, tool: &str, meta: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}},"_meta":{meta}}}}}"#)
}

fn cancel(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// Of the earlier calls, some have ended in their first poll, one was cancelled, and one has left a context that is still alive.
#[test]
fn a_call_keeps_no_state_of_earlier_calls() {
    let (saw, look) = seen();
    // Records whether the call is cancelled, whether it has a progress token, and its sampling depth.
    let record = move |context: &Context| {
        let mut saw = saw.lock().unwrap();
        let handle = context.clone();
        saw.push((handle.is_cancelled(), handle.is_observed(), handle.depth()));
        handle
    };
    let (kept, leaked) = seen();
    let record_quick = record.clone();
    let quick = Tool::new("quick", move |context: Context, (): ()| {
        drop(record_quick(&context));
        core::future::ready(Ok(()))
    });
    let leaks = Tool::new("leaks", move |context: Context, (): ()| {
        kept.lock().unwrap().push(record(&context));
        core::future::ready(Ok(()))
    });
    let waits = Tool::new("waits", async |_: Context, (): ()| {
        core::future::pending::<()>().await;
        Ok(())
    });
    let service = service().tool(quick.inline()).tool(leaks.inline()).tool(waits.inline());
    let executor = Executor::new();
    let mut server = Endpoint::server(Arc::new(service), executor.runtime());
    assert_eq!(turn(&mut server, &hello("2025-06-18")), 1);
    let calls = [
        ("quick", true, false),
        ("quick", false, false),
        ("quick", false, true),
        ("leaks", true, false),
        ("quick", false, false),
        ("waits", true, false),
    ];
    for (id, (tool, is_observed, is_cancelled)) in (1..).zip(calls) {
        let meta = format!(r#"{{"progressToken":{id},"protocol-core/samplingDepth":2}}"#);
        let frames = [request(id, tool, if is_observed { &meta } else { "{}" }), cancel(id)];
        let answers = turn(&mut server, if is_cancelled { &frames } else { &frames[..1] });
        assert_eq!(answers, usize::from(!is_cancelled && tool != "waits"), "{id}");
    }
    assert_eq!(*look.lock().unwrap(), [(false, true, 2), (false, false, 0), (true, false, 0), (false, true, 2), (false, false, 0)]);
    let leaked = leaked.lock().unwrap().pop().unwrap();
    assert!(leaked.is_observed());
    assert_eq!(
        leaked.try_progress(protocol_core::Progress::step(1, 2)),
        Err(ProgressError::NotLive),
        "the call of the leaked context is over, and the context does not act on the call that waits"
    );
}
