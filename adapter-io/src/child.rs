use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

use protocol_core::drive::{FrameIo, Timer};
use protocol_core::lines::LineEncoder;
use protocol_core::session::Transmit;
use protocol_core::time::Instant;

use crate::group::Group;

/// The default of [`Child::with_exit_grace`].
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// The time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_millis(500);

/// The time for which the transport waits after SIGKILL for processes other than the child. It ends early unless they have a parent that
/// does not reap them, or are in a system call that cannot be interrupted.
const KILL_GRACE: Duration = Duration::from_millis(500);

/// The interval between two tests if the process group has a member. No event reports the exit of a process that is not our child.
const GROUP_POLL: Duration = Duration::from_millis(10);

/// The time for which the transport waits for more output after it has noticed the exit of a child. The last output of the child itself
/// should arrive within this time. The end of the pipe may never arrive, since processes that the child has started may keep it open.
const LAST_OUTPUT_GRACE: Duration = Duration::from_millis(100);

/// The maximum number of frames that a closing transport discards before the task yields.
const MAX_FRAMES_IN_A_ROW: usize = 64;

/// A child process of one runtime. Dropping it kills the process.
pub trait Process {
    /// The pipe of the standard error.
    type Stderr;

    /// Polls for the exit status. Once this has returned a status, the process has been reaped. An error means that the status cannot be
    /// known, for example since the system reaps processes itself (SIGCHLD is ignored). The method is not called again after either.
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
/// default, see [`with_exit_grace`](Self::with_exit_grace)), it gets SIGTERM, and SIGKILL 0.5 s later; on systems other than Unix it is
/// killed. Then its exit status is read, so that no zombie remains. If the transport is dropped instead, the child is killed at once, and
/// the runtime reaps it.
///
/// On Unix, if the child leads a process group, its whole group ends with it: signals go to the group, and the transport is closed only when
/// the group is empty. Processes that the child has left in its group get SIGTERM as soon as the transport closes and the child has exited,
/// and SIGKILL 0.5 s later.
///
/// The exit of the child also ends the input of the transport, after the bytes that the child has written. If processes that the child has
/// started hold the pipe, the input ends nevertheless, unless they write without a pause.
#[derive(Debug)]
pub struct Child<P, I, T> {
    /// Before `process`, since the processes must be killed while the child is not reaped.
    exit: KillOnDrop,
    process: P,
    io: I,
    timer: T,
    grace: Duration,
    /// The time after which the transport no longer waits for output. Set once the transport has noticed the exit of the child.
    read_by: Option<Instant>,
    /// `true` once the child was reaped, or its exit can no longer be noticed.
    is_reaped: bool,
    /// The last step towards the end of the child and its group, and the time of the next. `None` until the transport begins to close.
    step: Option<(Step, Instant)>,
}

/// A step towards the end of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The input of the child was closed.
    Asked,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
}

impl<P: Process, I: FrameIo<Error = io::Error>, T: Timer> Child<P, I, T> {
    /// A transport of a process, its input and output, and a timer for the grace.
    pub fn new(process: P, io: I, timer: T) -> Self {
        let exit = KillOnDrop(Exit::of(process.id()));
        Self { exit, process, io, timer, grace: EXIT_GRACE, read_by: None, is_reaped: false, step: None }
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
        self.exit.0.clone()
    }

    /// Takes the pipe of the child's standard error. `None` if the standard error is no pipe, or the pipe was taken before. The pipe must
    /// be read: the child blocks when the pipe is full.
    pub fn take_stderr(&mut self) -> Option<P::Stderr> {
        self.process.take_stderr()
    }

    /// Polls for the exit of the process, and stores its status.
    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_reaped {
            // Locked, so that no signal is sent between the reaping and the test if the group has other members.
            let mut group = self.exit.0.group();
            let status = ready!(self.process.poll_exit(cx));
            group.note_reaped();
            self.is_reaped = true;
            let _ = status.map(|status| self.exit.0.shared.status.set(status));
        }
        Poll::Ready(())
    }

    /// Polls for the end of the child and of all processes of its group, and takes the steps towards it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_reaped = self.poll_exit(cx).is_ready();
            if is_reaped && self.exit.0.group().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let now = self.timer.now();
            let (step, at) = *self.step.get_or_insert_with(|| (Step::Asked, now.saturating_add(self.grace)));
            // Processes that the child has left behind are not asked by the end of its input.
            if now < at && !(is_reaped && step == Step::Asked) {
                let until = if is_reaped { at.min(now.saturating_add(GROUP_POLL)) } else { at };
                ready!(self.timer.poll_until(cx, until));
                continue;
            }
            self.step = match step {
                Step::Asked if self.exit.0.group().terminate() => Some((Step::Terminated, now.saturating_add(TERMINATION_GRACE))),
                Step::Asked | Step::Terminated => {
                    self.exit.0.group().kill();
                    if !is_reaped {
                        self.process.kill()?;
                    }
                    Some((Step::Killed, now.saturating_add(KILL_GRACE)))
                }
                Step::Killed if is_reaped => return Poll::Ready(Ok(())),
                Step::Killed => return Poll::Pending,
            };
        }
    }
}

/// Kills the child and its group when the transport is dropped, unless they have ended.
#[derive(Debug)]
struct KillOnDrop(Exit);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let mut group = self.0.group();
        group.kill();
        // The runtime reaps the child from now on.
        group.forget();
    }
}

/// A handle on the exit status of a child, and on the processes that end with it.
#[derive(Clone, Debug, Default)]
pub struct Exit {
    shared: Arc<Shared>,
    process: Option<u32>,
}

#[derive(Debug, Default)]
struct Shared {
    status: OnceLock<ExitStatus>,
    group: Mutex<Group>,
}

impl Exit {
    fn of(process: Option<u32>) -> Self {
        let shared = Shared { status: OnceLock::new(), group: Mutex::new(Group::led_by(process)) };
        Self { shared: Arc::new(shared), process }
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        self.shared.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the exit status, or `None` if the transport has not noticed the exit. It notices the exit only while it is polled. If it is
    /// dropped before, the status stays `None`.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        self.shared.status.get().copied()
    }

    /// The process id of the child. After its exit, another process may have the same id.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process
    }

    /// Sends SIGTERM to the child, or to its process group if it leads one, without waiting for the grace of the transport. Has no effect
    /// if the transport or this method has sent it before, if the processes have ended, and on systems other than Unix.
    pub fn terminate(&self) {
        self.group().terminate();
    }

    /// Sends SIGKILL as [`terminate`](Self::terminate) sends SIGTERM.
    pub fn kill(&self) {
        self.group().kill();
    }
}

impl<P: Process, I: FrameIo<Error = io::Error>, T: Timer> FrameIo for Child<P, I, T> {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let received = self.io.poll_recv(cx);
        if received.is_ready() {
            return received;
        }
        ready!(self.poll_exit(cx));
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
        if self.poll_end(cx)?.is_ready() {
            return closed;
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

    /// An id that no process has, so that no signal is sent.
    const NO_PROCESS: u32 = u32::MAX;

    /// A process, the transport over its pipes, and a timer. The process exits only when it is killed. The transport receives frames
    /// without end or, if `is_silent`, none.
    #[derive(Clone, Default)]
    struct FakeChild {
        is_silent: Rc<Cell<bool>>,
        /// `true` if the exit status cannot be known.
        is_unknown: Rc<Cell<bool>>,
        /// The number of times that the exit was returned.
        exits: Rc<Cell<usize>>,
        killed: Rc<Cell<bool>>,
        now: Rc<Cell<u64>>,
        frames: Rc<Cell<usize>>,
    }

    impl Process for FakeChild {
        type Stderr = ();

        fn poll_exit(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
            if !self.killed.get() {
                return Poll::Pending;
            }
            self.exits.set(self.exits.get() + 1);
            Poll::Ready(if self.is_unknown.get() { Err(io::ErrorKind::NotFound.into()) } else { Ok(ExitStatus::from_raw(9)) })
        }

        fn id(&self) -> Option<u32> {
            Some(NO_PROCESS)
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
        assert_eq!(child.exit().status(), None);
        fake.now.set(300);
        assert!(matches!(child.poll_close(&mut cx), Poll::Ready(Ok(()))));
        assert!(fake.killed.get());
        assert_eq!(child.exit().status().and_then(|status| status.signal()), Some(9));
    }

    /// A regression: after an error of the runtime, the exit was polled for once more, and on smol a future that was done was polled.
    #[test]
    fn a_child_whose_status_cannot_be_known_has_exited() {
        let fake = FakeChild { is_unknown: Rc::new(Cell::new(true)), ..FakeChild::default() };
        let mut child = Child::new(fake.clone(), fake.clone(), fake.clone());
        let mut cx = Context::from_waker(Waker::noop());
        fake.is_silent.set(true);
        fake.killed.set(true);
        assert!(child.poll_recv(&mut cx).is_pending());
        fake.now.set(100);
        assert!(matches!(child.poll_recv(&mut cx), Poll::Ready(Ok(None))));
        assert!(matches!(child.poll_close(&mut cx), Poll::Ready(Ok(()))));
        assert_eq!((child.exit().status(), fake.exits.get()), (None, 1));
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
        assert_eq!(child.exit().process_id(), Some(NO_PROCESS));
        assert!(matches!(child.poll_close(&mut cx), Poll::Ready(Ok(()))));
    }
}
