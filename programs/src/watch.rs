//! Watches the transport of a client, to detect that the client has disconnected, and to choose the exit status of the program.

use std::future::{pending, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use protocol_core::drive::FrameIo;
use protocol_core::lines::LineEncoder;
use protocol_core::{Bytes, CloseReason, Limits, Timeouts, Transmit};

use crate::adapter::{Adapter, Transport, first};

/// The time at the end for cancelled handlers to clean up, and for the last output to be written.
pub(super) const HANDLER_GRACE: Duration = Duration::from_millis(300);

/// The time to wait for the end of our input after our output was closed, since a client that exits closes both.
const INPUT_END_WAIT: Duration = Duration::from_millis(200);

/// Watches the client at the other end of a transport.
pub(super) struct Watch<A> {
    adapter: A,
    shared: Arc<Shared>,
    /// The time for which calls of the client may continue after the end of standard input; `None` on other transports, where the time
    /// limits of the session apply.
    linger: Option<Duration>,
}

impl<A: Adapter> Watch<A> {
    /// Watches the client on standard input and output. Returns the transport to serve it on.
    pub(super) fn stdio(adapter: &A, linger: Duration) -> (Self, Transport) {
        Self::new(adapter, adapter.stdio(), Some(linger))
    }

    /// Watches a client on another transport.
    pub(super) fn transport(adapter: &A, io: Transport) -> (Self, Transport) {
        Self::new(adapter, io, None)
    }

    fn new(adapter: &A, io: Transport, linger: Option<Duration>) -> (Self, Transport) {
        let shared = Arc::new(Shared::default());
        let watched = Watched { io, shared: Arc::clone(&shared) };
        (Self { adapter: adapter.clone(), shared, linger }, Box::new(watched))
    }

    /// Waits until the client no longer needs to be served: until `linger` has passed since the end of our input, or until our output is no
    /// longer read. Never resolves without a `linger`.
    pub(super) async fn left(&self) {
        let Some(linger) = self.linger else { return pending().await };
        let lingered = async {
            self.shared.until(|noted| noted.has_input_ended).await;
            self.adapter.sleep(linger).await;
        };
        let unread = async {
            self.adapter.stdout_unread().await;
            // A client that exits may close one of the two pipes before the other.
            first(self.shared.until(|noted| noted.has_input_ended), self.adapter.sleep(INPUT_END_WAIT)).await;
            self.shared.is_unread.store(true, Ordering::Relaxed);
            self.shared.note_failure(io::ErrorKind::BrokenPipe, || "standard output is no longer read".to_owned());
        };
        first(lingered, unread).await;
        self.shared.note(|noted| noted.has_left = true);
    }

    /// Waits after the end of the session for handlers to clean up. If standard output is not fully written by then, and the input has
    /// ended, waits until the client has left.
    pub(super) async fn cleaned_up(&self) {
        self.adapter.sleep(HANDLER_GRACE).await;
        let is_writing = self.shared.is_writing.load(Ordering::Relaxed);
        if is_writing && self.linger.is_some() {
            self.shared.until(|noted| noted.has_left || !noted.has_input_ended).await;
        }
    }

    /// Returns an error if the end was not a normal one: the transport broke, the client did not read all answers, or `reason` is a
    /// failure.
    pub(super) fn verdict(&self, reason: CloseReason) -> Result<(), String> {
        let noted = self.shared.lock();
        if let Some((kind, why)) = &noted.broken {
            // If the client has closed both pipes, only answers were lost that it no longer waited for.
            let has_gone = noted.has_input_ended && *kind == io::ErrorKind::BrokenPipe;
            return if has_gone { Ok(()) } else { Err(format!("the connection to the client broke: {why}")) };
        }
        match reason {
            CloseReason::Local | CloseReason::Eof => {
                if noted.has_input_ended && self.shared.is_writing.load(Ordering::Relaxed) {
                    return Err("the client did not read all the answers to its requests".to_owned());
                }
                Ok(())
            }
            CloseReason::HandshakeTimeout => {
                let span = Timeouts::default().handshake.unwrap_or_default();
                Err(format!("the client sent no initialize within {span:?}"))
            }
            CloseReason::FrameTooLarge => {
                Err(format!("the client sent a line of more than {} bytes", Limits::default().frame_bytes))
            }
            CloseReason::Overload => Err("the client does not read the responses that it causes".to_owned()),
            reason => Err(format!("the session with the client failed: {reason}")),
        }
    }
}

/// The observed state of the transport.
#[derive(Default)]
struct Shared {
    noted: Mutex<Noted>,
    /// `true` if output was passed to the transport and is not flushed yet.
    is_writing: AtomicBool,
    /// `true` if nothing reads our output any longer, so that nothing more is written.
    is_unread: AtomicBool,
}

#[derive(Default)]
struct Noted {
    /// `true` once our input has ended.
    has_input_ended: bool,
    /// `true` once the client need not be served any longer.
    has_left: bool,
    /// The first error.
    broken: Option<(io::ErrorKind, String)>,
    waiting: Vec<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: impl FnOnce(&mut Noted)) {
        let mut noted = self.lock();
        change(&mut noted);
        let waiting = std::mem::take(&mut noted.waiting);
        drop(noted);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn note_failure(&self, kind: io::ErrorKind, why: impl FnOnce() -> String) {
        self.note(|noted| {
            noted.broken.get_or_insert_with(|| (kind, why()));
        });
    }

    async fn until(&self, holds: impl Fn(&Noted) -> bool) {
        poll_fn(|task| {
            let mut noted = self.lock();
            if holds(&noted) {
                return Poll::Ready(());
            }
            if !noted.waiting.iter().any(|waker| waker.will_wake(task.waker())) {
                noted.waiting.push(task.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// A transport that records how it ends.
struct Watched {
    io: Transport,
    shared: Arc<Shared>,
}

impl Watched {
    /// Records an error of the transport.
    fn record_error<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.shared.note_failure(error.kind(), || error.to_string()))
    }

    fn record_poll_error<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        result.map(|result| self.record_error(result))
    }

    /// Returns an error if nothing reads the output any longer.
    fn may_write(&self) -> io::Result<()> {
        if self.shared.is_unread.load(Ordering::Relaxed) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

impl FrameIo for Watched {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let received = self.io.poll_recv(cx);
        if let Poll::Ready(Ok(None)) = received {
            self.shared.note(|noted| noted.has_input_ended = true);
        }
        self.record_poll_error(received)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.may_write()?;
        let ready = self.io.poll_ready(cx);
        self.record_poll_error(ready)
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        self.may_write()?;
        self.shared.is_writing.store(true, Ordering::Relaxed);
        let started = self.io.start_send(transmit);
        self.record_error(started)
    }

    fn start_sends(&mut self, frames: &mut LineEncoder) -> io::Result<()> {
        self.may_write()?;
        self.shared.is_writing.store(true, Ordering::Relaxed);
        let started = self.io.start_sends(frames);
        self.record_error(started)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.may_write()?;
        let flushed = self.io.poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.shared.is_writing.store(false, Ordering::Relaxed);
        }
        self.record_poll_error(flushed)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.io.poll_close(cx);
        self.record_poll_error(closed)
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.io.set_frame_limit(bytes);
    }

    fn release_memory(&mut self) {
        self.io.release_memory();
    }

    fn sends_anywhere(&self) -> bool {
        self.io.sends_anywhere()
    }
}
