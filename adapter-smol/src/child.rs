use std::io;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::task::{Context, Poll};

use smol::process::{self, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::{Error, Halves, LineIo, SmolRuntime, SmolTimer};

/// A child process as a transport.
pub type Child = adapter_io::Child<Process, LineIo<Halves<ChildStdout, ChildStdin>>, SmolTimer>;

/// A command that [`child`] can start.
pub trait ChildCommand {
    /// The command as one of smol, in a process group of its own if possible.
    fn into_command(self) -> Command;
}

/// The program is started in a process group of its own. Its standard error is inherited.
impl ChildCommand for std::process::Command {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "only Unix has process groups"))]
    fn into_command(mut self) -> Command {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut self, 0);
        self.into()
    }
}

/// smol has no setting for the process group: the command must be made of a [`std::process::Command`] that sets it. Otherwise processes
/// that the program starts do not end with it.
impl ChildCommand for Command {
    fn into_command(self) -> Command {
        self
    }
}

/// Starts a program, and returns a transport over its standard input and output. Its standard error is inherited, unless a command of smol
/// sets it.
///
/// On Unix a [`std::process::Command`] is started in a process group of its own, which ends with the transport ([`Child`]). So a Ctrl-C on
/// the terminal does not reach it. If this process ends without dropping the transport, only the input of the program ends.
///
/// # Errors
/// [`Error::Start`] if the program does not exist or cannot be run.
pub fn child(command: impl ChildCommand) -> Result<Child, Error> {
    let mut command = command.into_command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let started = command.spawn().and_then(|mut process| {
        let pipes = process.stdout.take().zip(process.stdin.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((process, pipes))
    });
    let (process, (stdout, stdin)) = started.map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        Error::Start { program, source }
    })?;
    Ok(Child::new(Process { process, exit: None }, LineIo::new(stdout, stdin).sending_anywhere(), SmolRuntime::start().timer()))
}

/// A process of smol.
///
/// This type and [`Child`] are `Send`, but not `Sync`, since they contain smol's future of the exit of the process.
pub struct Process {
    process: process::Child,
    /// The future of the exit, once the exit has been polled for.
    exit: Option<Pin<Box<dyn Future<Output = io::Result<ExitStatus>> + Send>>>,
}

impl adapter_io::Process for Process {
    type Stderr = ChildStderr;

    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        self.exit.get_or_insert_with(|| Box::pin(self.process.status())).as_mut().poll(cx)
    }

    fn id(&self) -> Option<u32> {
        Some(self.process.id())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.process.stderr.take()
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.process.fmt(f)
    }
}
