//! Runs of a handler, each interrupted at a different await.

use super::harness::{Harness, Interruption, Run};

/// Runs a handler once for each of its awaits, and cancels its call while the handler is suspended there. Returns the
/// interrupted runs, in the order of the awaits.
///
/// `harness` makes the harness of one run, and `call` makes the call. A first run, which is not interrupted or returned, counts the awaits;
/// an await that is ready at once does not count. Each later run must do the same as the first up to the await at which it is interrupted,
/// so the handler must be deterministic.
///
/// # Panics
/// If one of these happens. The message names the await, where there is one:
/// * in the first run, the call is refused, or the call or the handler does not end within [`Harness::limit`];
/// * the handler has no await at which it could be interrupted;
/// * a later run does not reach the await at which it should be interrupted;
/// * the handler wakes itself without end;
/// * the handler panics, or does not end after the cancel.
///
/// ```
/// use std::time::Duration;
/// use endpoint::testing::{Harness, every_cancel_point};
/// use endpoint::{Context, Service, Tool, ToolError};
/// use protocol_core::{Json, Outcome};
///
/// let nap = || Service::new("bed", "1").tool(Tool::new("nap", async |context: Context, ()| {
///     context.sleep(Duration::from_secs(60)).await?;
///     context.sleep(Duration::from_secs(60)).await?;
///     Ok::<_, ToolError>("rested")
/// }));
/// let runs = every_cancel_point(|| Harness::new(nap()), |harness| harness.call_tool("nap", Json::empty_object()));
/// assert_eq!(runs.len(), 2);
/// assert!(runs.iter().all(|run| run.outcome() == Some(&Outcome::Cancelled)));
/// ```
#[track_caller]
pub fn every_cancel_point(harness: impl FnMut() -> Harness, call: impl FnMut(Harness) -> Run) -> Vec<Run> {
    every(Interruption::Cancel, harness, call)
}

/// Runs a handler once for each of its awaits, and drops it while it is suspended there, as a runtime does when it shuts down. Returns the
/// runs, in order; their calls have no outcome.
///
/// # Panics
/// In the same cases as [`every_cancel_point`].
#[track_caller]
pub fn every_drop_point(harness: impl FnMut() -> Harness, call: impl FnMut(Harness) -> Run) -> Vec<Run> {
    every(Interruption::Drop, harness, call)
}

#[track_caller]
fn every(how: Interruption, mut harness: impl FnMut() -> Harness, mut call: impl FnMut(Harness) -> Run) -> Vec<Run> {
    let first = call(harness());
    assert!(first.refused.is_none(), "the call was refused: {:?}", first.refused);
    assert!(first.ended.is_some() && first.done.is_some(), "the handler never ends: it is suspended at await {}", first.awaits);
    assert!(first.awaits > 0, "the handler is never suspended, so it cannot be interrupted");
    let interrupt = |at| {
        let run = call(harness().interrupt(at, how));
        assert!(run.awaits >= at, "await {at} of {} was not reached: the handler is not the same in every run", first.awaits);
        assert_eq!(run.counters.panics, 0, "the handler panicked when it was interrupted at await {at}");
        assert!(run.ended.is_some(), "the handler never ended after it was interrupted at await {at}");
        run
    };
    (1..=first.awaits).map(interrupt).collect()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use protocol_core::{InputResponse, Json, Outcome};

    use super::*;
    use crate::{Context, Service, Tool, ToolError};

    fn service(tool: Tool) -> Service {
        Service::new("server", "1").tool(tool)
    }

    fn call(harness: Harness) -> Run {
        harness.call_tool("t", Json::empty_object())
    }

    /// A harness of a handler that sleeps, makes an input request, and sleeps again. `dropped` counts the futures of the handler that were
    /// dropped.
    fn asking(dropped: &Arc<AtomicUsize>) -> Harness {
        struct CountsDrop(Arc<AtomicUsize>);
        impl Drop for CountsDrop {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = Arc::clone(dropped);
        let tool = Tool::new("t", move |context: Context, ()| {
            let counts_drop = CountsDrop(Arc::clone(&dropped));
            async move {
                let _counts_drop = counts_drop;
                context.sleep(Duration::from_secs(1)).await?;
                let is_sure = context.confirm("sure?").await;
                context.sleep(Duration::from_secs(1)).await?;
                Ok::<_, ToolError>(is_sure)
            }
        });
        Harness::new(service(tool)).answer(InputResponse::Confirm(true))
    }

    #[test]
    fn a_cancel_at_each_await_ends_the_call_there() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let runs = every_cancel_point(|| asking(&dropped), call);
        assert_eq!((runs.len(), dropped.load(Ordering::Relaxed)), (3, 4), "a run for each await, and the first run");
        assert!(runs.iter().all(|run| run.outcome() == Some(&Outcome::Cancelled)), "{runs:?}");
        let at: Vec<_> = runs.iter().filter_map(|run| Some(run.done.as_ref()?.0.as_secs())).collect();
        assert_eq!(at, [0, 1, 1]);
    }

    #[test]
    fn a_handler_that_is_dropped_at_each_await_drops_its_values() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let runs = every_drop_point(|| asking(&dropped), call);
        assert_eq!((runs.len(), dropped.load(Ordering::Relaxed)), (3, 4));
        assert!(runs.iter().all(|run| run.done.is_none()));
    }

    #[test]
    #[should_panic(expected = "the handler never ends: it is suspended at await 1")]
    fn a_handler_that_never_ends_is_a_failure() {
        let tool = || Tool::new("t", async |_: Context, ()| core::future::pending::<Result<&str, ToolError>>().await);
        every_cancel_point(|| Harness::new(service(tool())), call);
    }

    #[test]
    #[should_panic(expected = "the handler wakes itself without end")]
    fn a_handler_that_spins_is_a_failure() {
        let spin = || {
            core::future::poll_fn::<Result<&str, ToolError>, _>(|cx| {
                cx.waker().wake_by_ref();
                core::task::Poll::Pending
            })
        };
        every_cancel_point(|| Harness::new(service(Tool::new("t", move |_: Context, ()| spin()))), call);
    }

    #[test]
    #[should_panic(expected = "never suspended")]
    fn a_handler_without_an_await_is_a_failure() {
        let tool = || Tool::new("t", async |_: Context, ()| Ok::<_, ToolError>("at once"));
        every_cancel_point(|| Harness::new(service(tool())), call);
    }

    #[test]
    #[should_panic(expected = "panicked when it was interrupted at await 1")]
    fn a_handler_that_panics_when_it_is_cancelled_is_a_failure() {
        let tool = || {
            Tool::new("t", async |context: Context, ()| {
                context.sleep(Duration::from_secs(1)).await.expect("never cancelled");
                Ok::<_, ToolError>("ok")
            })
        };
        every_cancel_point(|| Harness::new(service(tool())), call);
    }
}
