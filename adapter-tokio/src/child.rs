use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use protocol_core::Transmit;
use protocol_core::drive::FrameIo;
use tokio::process::{self, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Sleep;

use crate::{Error, LineIo};

/// How long a child may take to exit once its input is closed.
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// Starts a program and talks to it over its standard input and output. Its standard error is ours unless `command` says otherwise.
///
/// # Errors
/// [`Error::Start`], for one that is not there or may not be run.
pub fn child(command: impl Into<Command>) -> Result<Child, Error> {
    let mut command = command.into();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let started = command.spawn().and_then(|mut process| {
        let pipes = process.stdout.take().zip(process.stdin.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((process, pipes))
    });
    let (process, (stdout, stdin)) = started.map_err(|source| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Error::Start { program, source }
    })?;
    Ok(Child { process, io: LineIo::new(stdout, stdin), exit: Exit::default(), grace: EXIT_GRACE, kill_at: None, killed: false })
}

/// A child process as a transport.
///
/// At the end its input is closed, which tells a server to exit; after a grace (5 s) it is killed; then its exit status is collected,
/// so that no zombie is left. If this is dropped instead it is killed at once, and tokio collects the rest.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    io: LineIo<ChildStdout, ChildStdin>,
    exit: Exit,
    grace: Duration,
    /// Set once its input is closed.
    kill_at: Option<Pin<Box<Sleep>>>,
    killed: bool,
}

impl Child {
    /// Changes how long it may take to exit by itself at the end.
    #[must_use]
    pub fn with_exit_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Where its exit status will be found.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// Its standard error, if `command` asked for a pipe; once. It must be read, or the child stops when the pipe is full.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.process.stderr.take()
    }
}

/// The exit status of a child, once its connection has ended.
#[derive(Clone, Debug, Default)]
pub struct Exit(Arc<OnceLock<ExitStatus>>);

impl Exit {
    /// `None` before the end of the connection, and for ever if the transport was dropped before that.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        self.0.get().copied()
    }
}

impl FrameIo for Child {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.io.poll_recv(cx)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx)
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        self.io.start_send(transmit)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.io.poll_close(cx);
        if let Poll::Ready(status) = pin!(self.process.wait()).poll(cx) {
            let _ = self.exit.0.set(status?);
            return closed;
        }
        let kill_at = self.kill_at.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.grace)));
        if !self.killed && kill_at.as_mut().poll(cx).is_ready() {
            self.killed = true;
            self.process.start_kill()?;
        }
        // What it still says is thrown away: a full pipe would keep it from exiting.
        while let Poll::Ready(Ok(Some(_))) = self.io.poll_recv(cx) {}
        Poll::Pending
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.io.set_frame_limit(bytes);
    }
}
