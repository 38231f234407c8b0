//! Code that the programs for rmcp and pmcp share.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tests::speed::Updates;

/// A call that was made and is not yet awaited.
pub(crate) type Begun = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a call without waiting for it.
pub(crate) async fn begun(call: impl Future<Output = ()> + Send + 'static) -> Begun {
    // Polled outside of tokio's cooperative budget, since a task with an exhausted budget would make the call only at its next poll.
    let mut call: Begun = Box::pin(tokio::task::unconstrained(call));
    poll_fn(|cx| {
        let _ = call.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
    call
}

/// Waits for updates that come after the response, until none is missing or none has come for 20 ms. Returns the counts of updates.
pub(crate) async fn stragglers(updates: impl Fn() -> Updates) -> Updates {
    let (mut seen, mut since) = (updates(), Instant::now());
    while seen.lost() > 0 && since.elapsed() < Duration::from_millis(20) {
        tokio::task::yield_now().await;
        let now = updates();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    seen
}
