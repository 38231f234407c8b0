//! What both programs share.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tests::speed::Updates;

/// A call that has been made and is not waited for.
pub(crate) type Begun = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a call, and does not wait for it.
pub(crate) async fn begun(call: impl Future<Output = ()> + Send + 'static) -> Begun {
    // Without the budget of its task: a call that has used it up would not be made before it is polled again.
    let mut call: Begun = Box::pin(tokio::task::unconstrained(call));
    poll_fn(|cx| {
        let _ = call.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
    call
}

/// Waits for updates that come behind the answer, as long as some come.
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
