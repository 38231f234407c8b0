use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::task::{Context, Poll};

use tokio::process::{self, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::{Error, Halves, LineIo, TokioRuntime, TokioTimer};

/// A child process as a transport.
pub type Child = adapter_io::Child<Process, LineIo<Halves<ChildStdout, ChildStdin>>, TokioTimer>;

/// Starts a program, and returns a transport over its standard input and output. Its standard error is inherited, unless `command` sets it.
///
/// On Unix the program is started in a process group of its own, which ends with the transport ([`Child`]). So a Ctrl-C on the terminal
/// does not reach it. If this process ends without dropping the transport, only the input of the program ends.
///
/// # Errors
/// [`Error::Start`] if the program does not exist or cannot be run.
///
/// # Panics
/// Outside of a tokio runtime.
#[track_caller]
pub fn child(command: impl Into<Command>) -> Result<Child, Error> {
    let mut command = command.into();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let started = command.spawn().and_then(|mut process| {
        let pipes = process.stdout.take().zip(process.stdin.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((process, pipes))
    });
    let (process, (stdout, stdin)) = started.map_err(|source| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Error::Start { program, source }
    })?;
    let io = LineIo::new(stdout, stdin);
    // On systems other than Unix each write starts a blocking task, which needs the context of the runtime.
    let io = if cfg!(unix) { io.sending_anywhere() } else { io };
    Ok(Child::new(Process(process), io, TokioRuntime::start().timer()))
}

/// A process of tokio.
#[derive(Debug)]
pub struct Process(process::Child);

impl adapter_io::Process for Process {
    type Stderr = ChildStderr;

    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        pin!(self.0.wait()).poll(cx)
    }

    fn id(&self) -> Option<u32> {
        self.0.id()
    }

    fn kill(&mut self) -> io::Result<()> {
        self.0.start_kill()
    }

    fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.0.stderr.take()
    }
}
