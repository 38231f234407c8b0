//! The process of a server, which serves on its standard input and output.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{Fault, MAX_LINE_BYTES, MAX_READ_BYTES};

/// The time to wait for the exit of a process that has closed a pipe, or that was killed.
const EXIT: Duration = Duration::from_secs(1);

/// A process. Dropping this value kills the process and all processes that it has started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The process group of the process, which has the id of the process; `None` after [`Self::kill`].
    group: Option<Pid>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    buffer: BytesMut,
    /// The number of bytes at the beginning of the buffer that were searched and contain no line end.
    scanned: usize,
    /// The number of bytes that were read so far.
    read: usize,
}

impl Process {
    pub(super) fn start(command: &[OsString]) -> Result<Self, Fault> {
        let [program, arguments @ ..] = command else { return Err(Fault::Died("the command is empty".to_owned())) };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .process_group(0);
        let mut child =
            command.spawn().map_err(|error| Fault::Died(format!("{} cannot be started: {error}", program.to_string_lossy())))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Ok(Self { child, group, stdin, stdout, buffer: BytesMut::new(), scanned: 0, read: 0 })
    }

    /// Writes `bytes`, and reads meanwhile, so that the two ends do not wait for each other. The whole write has no time limit, but the
    /// server must not pause its reading for as long as `patience`.
    pub(super) async fn send(&mut self, bytes: &[u8], patience: Duration) -> Result<(), Fault> {
        self.write(bytes, patience, true).await
    }

    /// Writes `bytes` without reading.
    pub(super) async fn send_unread(&mut self, bytes: &[u8], patience: Duration) -> Result<(), Fault> {
        self.write(bytes, patience, false).await
    }

    async fn write(&mut self, mut rest: &[u8], patience: Duration, mut reads: bool) -> Result<(), Fault> {
        let Some(mut stdin) = self.stdin.take() else { return Err(Fault::Wrong("standard input is closed".to_owned())) };
        let mut until = Instant::now() + patience;
        while !rest.is_empty() {
            tokio::select! {
                biased;
                () = sleep_until(until) => return Err(Fault::Deaf("it did not read what was written to it".to_owned())),
                written = stdin.write(rest) => match written {
                    Ok(count) => {
                        rest = &rest[count..];
                        until = Instant::now() + patience;
                    }
                    Err(_) => return Err(self.death().await),
                },
                // The end of the output is reported by the next read.
                more = self.fill(), if reads => reads = more?,
            }
        }
        self.stdin = Some(stdin);
        Ok(())
    }

    /// Reads a line. Returns `None` if none comes before `until`.
    pub(super) async fn next(&mut self, until: Instant) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(line) = self.line() {
                return Ok(Some(line));
            }
            match timeout_at(until, self.fill()).await {
                Err(_) => return Ok(None),
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Err(self.death().await),
                Ok(Err(fault)) => return Err(fault),
            }
        }
    }

    /// Takes the next complete line from the buffer, without its line feed.
    fn line(&mut self) -> Option<Bytes> {
        let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.buffer.len();
            return None;
        };
        let mut line = self.buffer.split_to(self.scanned + at + 1);
        self.scanned = 0;
        line.truncate(line.len() - 1);
        Some(line.freeze())
    }

    /// The bytes that were read, and not yet returned as a line.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads more bytes into the buffer. Returns `false` at the end of the output.
    async fn fill(&mut self) -> Result<bool, Fault> {
        let Some(stdout) = &mut self.stdout else { return Ok(false) };
        self.buffer.reserve(1 << 16);
        let count = stdout.read_buf(&mut self.buffer).await.unwrap_or(0);
        self.read += count;
        let unbroken = self.buffer.len() - self.scanned;
        if unbroken > MAX_LINE_BYTES && !self.buffer[self.scanned..].contains(&b'\n') {
            return Err(Fault::Flooded(format!("it wrote a line of more than {} MiB", MAX_LINE_BYTES >> 20)));
        }
        if self.read > MAX_READ_BYTES {
            return Err(Fault::Flooded(format!("it wrote more than {} MiB", MAX_READ_BYTES >> 20)));
        }
        Ok(count > 0)
    }

    /// The fault of a process that has closed a pipe.
    async fn death(&mut self) -> Fault {
        match timeout(EXIT, self.child.wait()).await {
            Ok(Ok(status)) => Fault::Died(format!("it has ended ({status})")),
            _ => Fault::Died("it has closed its pipes".to_owned()),
        }
    }

    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(super) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Returns `true` unless this end has closed the output of the process.
    pub(super) const fn has_output(&self) -> bool {
        self.stdout.is_some()
    }

    pub(super) fn terminate(&self) {
        if let Some(pid) = self.group {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for the end of the process. Returns `None` if it still runs at `until`.
    pub(super) async fn exit(&mut self, until: Instant) -> Option<ExitStatus> {
        timeout_at(until, self.child.wait()).await.ok().and_then(Result::ok)
    }

    pub(super) async fn finish(mut self) {
        self.kill();
        let _ = timeout(EXIT, self.child.wait()).await;
    }

    fn kill(&mut self) {
        // The process group may outlive its first process. As long as the group exists, the system gives its id to no other process.
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
