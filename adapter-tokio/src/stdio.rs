use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf, Stdout};
use tokio::sync::mpsc;

use crate::LineIo;

/// Bytes of one read.
const READ: usize = 64 * 1024;

/// Standard input and output as a transport: what a server does that a client starts. Nothing else may use either of them: log to stderr.
///
/// Input is read by a plain thread, since nothing can interrupt a read of a terminal or a pipe. Unlike tokio's own standard input, which
/// keeps a runtime from shutting down until the next line comes, that thread ends with the process: when the session is over, `main`
/// just returns, though the peer still holds our input open. It takes one read of input more than was asked for, so a process
/// opens this transport once.
///
/// Only a peer that neither reads our output nor closes it can still hold a runtime that is dropped; leave it by
/// `Runtime::shutdown_background` or [`std::process::exit`] if that matters.
#[must_use]
pub fn stdio() -> LineIo<Stdin, Stdout> {
    LineIo::new(Stdin::start(), tokio::io::stdout())
}

/// Standard input, read by a thread of its own.
#[derive(Debug)]
pub struct Stdin {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl Stdin {
    fn start() -> Self {
        let (sender, chunks) = mpsc::channel(1);
        let reader = sender.clone();
        let spawned = thread::Builder::new().name("stdin".into()).spawn(move || {
            let mut buffer = vec![0; READ];
            loop {
                let read = match io::stdin().lock().read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if reader.blocking_send(read).is_err() || failed {
                    return;
                }
            }
        });
        if let Err(error) = spawned {
            // There is room for one: nothing was sent yet.
            let _ = sender.try_send(Err(error));
        }
        Self { chunks, chunk: Bytes::new() }
    }
}

impl AsyncRead for Stdin {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.chunk.is_empty() {
            self.chunk = ready!(self.chunks.poll_recv(cx)).transpose()?.unwrap_or_default();
        }
        let count = self.chunk.len().min(into.remaining());
        into.put_slice(&self.chunk[..count]);
        self.chunk.advance(count);
        Poll::Ready(Ok(()))
    }
}
