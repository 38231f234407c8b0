use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use protocol_core::drive::{FrameIo, Timer};
use protocol_core::lines::LineEncoder;
use protocol_core::session::Transmit;
use protocol_core::time::Instant;

/// The default of [`Child::with_exit_grace`].
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// The time for which the transport waits for more output after it has noticed the exit of a child. The last output of the child itself
/// should arrive within this time. The end of the pipe may never arrive, since processes that the child has started may keep it open.
const LAST_OUTPUT_GRACE: Duration = Duration::from_millis(100);

/// The maximum number of frames that a closing transport discards before the task yields.
const MAX_FRAMES_IN_A_ROW: usize = 64;

/// A child process of one runtime. Dropping it kills the process.
pub trait Process {
    /// The pipe of the standard error.
    type Stderr;

    /// Polls for the exit status. Once this has returned a status, the process has been reaped, and the method is not called again. After
    /// an error it may be called again.
    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>>;

    /// The process id; `None` if it is no longer known.
    fn id(&self) -> Option<u32>;

    /// Kills the process, without waiting for its exit.
    fn kill(&mut self) -> io::Result<()>;

    /// Takes the pipe of the standard error, if there is one and it was not taken before.
    fn take_stderr(&mut self) -> Option<Self::Stderr>;
}

/// A child process as a transport, over its standard input and output.
///
/// Closing the transport closes the input of the child, at which a server should exit. If the child does not exit within a grace (5 s by
/// default, see [`with_exit_grace`](Self::with_exit_grace)), it is killed. Then its exit status is read, so that no zombie remains. If the
/// transport is dropped instead, the child is killed at once, and the runtime reaps it.
///
/// The exit of the child also ends the input of the transport, after the bytes that the child has written. If processes that the child has
/// started hold the pipe, the input ends nevertheless, unless they write without a pause.
#[derive(Debug)]
pub struct Child<P, I, T> {
    process: P,
    io: I,
    timer: T,
    exit: Exit,
    grace: Duration,
    /// The time after which the transport no longer waits for output. Set once the transport has noticed the exit of the child.
    read_by: Option<Instant>,
    /// The time at which the child is killed, unless it has exited before. Set when the transport begins to close.
    kill_at: Option<Instant>,
    killed: bool,
}

impl<P: Process, I: FrameIo<Error = io::Error>, T: Timer> Child<P, I, T> {
    /// A transport of a process, its input and output, and a timer for the grace.
    pub fn new(process: P, io: I, timer: T) -> Self {
        let exit = Exit { status: Arc::default(), process: process.id() };
        Self { process, io, timer, exit, grace: EXIT_GRACE, read_by: None, kill_at: None, killed: false }
    }

    /// Sets the time that the child has to exit after the transport has begun to close the child's input. Default: 5 s.
    #[must_use]
    pub fn with_exit_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Returns a handle on the exit status of the child, which may outlive the transport.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// Takes the pipe of the child's standard error. `None` if the standard error is no pipe, or the pipe was taken before. The pipe must
    /// be read: the child blocks when the pipe is full.
    pub fn take_stderr(&mut self) -> Option<P::Stderr> {
        self.process.take_stderr()
    }

    /// Polls for the exit of the process, and stores its status.
    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.exit.status().is_none() {
            let status = ready!(self.process.poll_exit(cx))?;
            let _ = self.exit.status.set(status);
        }
        Poll::Ready(Ok(()))
    }
}

/// A handle on the exit status of a child.
#[derive(Clone, Debug, Default)]
pub struct Exit {
    status: Arc<OnceLock<ExitStatus>>,
    process: Option<u32>,
}

impl Exit {
    /// Returns the exit status, or `None` if the transport has not noticed the exit. It notices the exit only while it is polled. If it is
    /// dropped before, the status stays `None`.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        self.status.get().copied()
    }

    /// The process id of the child. After its exit, another process may have the same id.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process
    }
}

impl<P: Process, I: FrameIo<Error = io::Error>, T: Timer> FrameIo for Child<P, I, T> {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let received = self.io.poll_recv(cx);
        if received.is_ready() {
            return received;
        }
        ready!(self.poll_exit(cx))?;
        let read_by = *self.read_by.get_or_insert_with(|| self.timer.now().saturating_add(LAST_OUTPUT_GRACE));
        ready!(self.timer.poll_until(cx, read_by));
        match self.io.poll_recv(cx) {
            Poll::Pending => Poll::Ready(Ok(None)),
            received => received,
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx)
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        self.io.start_send(transmit)
    }

    fn start_sends(&mut self, frames: &mut LineEncoder) -> io::Result<()> {
        self.io.start_sends(frames)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.io.poll_close(cx);
        if self.poll_exit(cx)?.is_ready() {
            return closed;
        }
        let kill_at = *self.kill_at.get_or_insert_with(|| self.timer.now().saturating_add(self.grace));
        if !self.killed && self.timer.poll_until(cx, kill_at).is_ready() {
            self.killed = true;
            self.process.kill()?;
        }
        // Further output is discarded, since a full pipe would keep the child from exiting. The loop is limited, so that the timer is
        // polled even if the child writes without end.
        for _ in 0..MAX_FRAMES_IN_A_ROW {
            if !matches!(self.io.poll_recv(cx), Poll::Ready(Ok(Some(_)))) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use core::task::Waker;
    use std::os::unix::process::ExitStatusExt;
    use std::rc::Rc;

    /// A process, the transport over its pipes, and a timer. The process exits only when it is killed. The transport receives frames
    /// without end or, if `is_silent`, none.
    #[derive(Clone, Default)]
    struct FakeChild {
        is_silent: Rc<Cell<bool>>,
        killed: Rc<Cell<bool>>,
        now: Rc<Cell<u64>>,
        frames: Rc<Cell<usize>>,
    }

    impl Process for FakeChild {
        type Stderr = ();

        fn poll_exit(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
            if self.killed.get() { Poll::Ready(Ok(ExitStatus::from_raw(9))) } else { Poll::Pending }
        }

        fn id(&self) -> Option<u32> {
            Some(7)
        }

        fn kill(&mut self) -> io::Result<()> {
            self.killed.set(true);
            Ok(())
        }

        fn take_stderr(&mut self) -> Option<()> {
            None
        }
    }

    impl FrameIo for FakeChild {
        type Error = io::Error;

        fn poll_recv(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
            if self.is_silent.get() {
                return Poll::Pending;
            }
            self.frames.set(self.frames.get() + 1);
            Poll::Ready(Ok(Some(Bytes::from_static(b"{}"))))
        }

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn start_send(&mut self, _transmit: Transmit) -> io::Result<()> {
            Ok(())
        }

        fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Timer for FakeChild {
        fn now(&self) -> Instant {
            Instant::from_millis(self.now.get())
        }

        fn poll_until(&mut self, _cx: &mut Context<'_>, at: Instant) -> Poll<()> {
            if at <= Timer::now(self) { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[test]
    fn a_child_that_writes_without_end_is_killed_after_its_grace_and_its_status_is_known() {
        let fake = FakeChild::default();
        let mut child = Child::new(fake.clone(), fake.clone(), fake.clone()).with_exit_grace(Duration::from_millis(300));
        let mut cx = Context::from_waker(Waker::noop());
        for now in [0, 100, 299] {
            fake.now.set(now);
            fake.frames.set(0);
            assert!(child.poll_close(&mut cx).is_pending());
            assert_eq!((fake.killed.get(), fake.frames.get()), (false, MAX_FRAMES_IN_A_ROW));
        }
        fake.now.set(300);
        assert!(child.poll_close(&mut cx).is_pending());
        assert!(fake.killed.get());
        assert_eq!(child.exit().status(), None);
        assert!(matches!(child.poll_close(&mut cx), Poll::Ready(Ok(()))));
        assert_eq!(child.exit().status().and_then(|status| status.signal()), Some(9));
    }

    #[test]
    fn the_output_of_a_child_ends_with_its_exit_although_another_process_holds_the_pipe() {
        let fake = FakeChild::default();
        let mut child = Child::new(fake.clone(), fake.clone(), fake.clone());
        let mut cx = Context::from_waker(Waker::noop());
        fake.is_silent.set(true);
        assert!(child.poll_recv(&mut cx).is_pending(), "it has not exited");
        fake.killed.set(true);
        assert!(child.poll_recv(&mut cx).is_pending(), "its last output may still arrive");
        assert_eq!(child.exit().status().and_then(|status| status.signal()), Some(9));
        fake.is_silent.set(false);
        assert!(matches!(child.poll_recv(&mut cx), Poll::Ready(Ok(Some(_)))));
        fake.is_silent.set(true);
        fake.now.set(99);
        assert!(child.poll_recv(&mut cx).is_pending());
        fake.now.set(100);
        assert!(matches!(child.poll_recv(&mut cx), Poll::Ready(Ok(None))));
        assert_eq!(child.exit().process_id(), Some(7));
        assert!(matches!(child.poll_close(&mut cx), Poll::Ready(Ok(()))));
    }
}
