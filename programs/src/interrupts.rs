//! Waits for signals, such as Ctrl-C, one after the other.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// The numbers of the signals that end a program as SIGTERM does: SIGTERM, SIGHUP (the terminal was closed) and SIGQUIT. Without those that
/// this process was started to ignore, as by `nohup`, or in the background of a script.
#[cfg(all(unix, any(feature = "tokio", feature = "smol")))]
pub(super) fn terminations() -> impl Iterator<Item = i32> {
    use rustix::process::Signal;
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
    let is_ignored = move |signal: i32| signal != Signal::TERM.as_raw() && ignored >> (signal - 1) & 1 == 1;
    [Signal::TERM, Signal::HUP, Signal::QUIT].map(Signal::as_raw).into_iter().filter(move |signal| !is_ignored(*signal))
}

/// The set of ignored signals in the text of `/proc/self/status`, one bit for each. On systems without this file none counts as ignored.
#[cfg(all(unix, any(feature = "tokio", feature = "smol")))]
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Waits for one signal after the other. `make` returns a future of the next signal.
pub(super) struct Interrupts<F, C> {
    make: F,
    next: Pin<Box<C>>,
}

impl<F: FnMut() -> C, C: Future<Output = ()>> Interrupts<F, C> {
    pub(super) fn new(mut make: F) -> Self {
        let next = Box::pin(make());
        Self { make, next }
    }

    pub(super) fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let signalled = self.next.as_mut().poll(task);
        if signalled.is_ready() {
            // The next future is polled here, since it waits for a signal only from its first poll on. If it is ready as well, the two
            // signals count as one.
            self.next.set((self.make)());
            if self.next.as_mut().poll(task).is_ready() {
                self.next.set((self.make)());
            }
        }
        signalled
    }

    /// Waits for `work`. Returns `None` if a signal comes before `work` is done, or has come since the signals were last polled.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|task| match self.poll_next(task) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(task).map(Some),
        })
        .await
    }
}
