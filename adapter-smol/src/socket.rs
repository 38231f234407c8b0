use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use smol::io::{AsyncRead, AsyncWrite};
use smol::net::TcpStream;

/// A TCP connection that implements the traits of hyper.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) TcpStream);

/// The maximum number of bytes of one read. They are read into a buffer and copied, since writing into uninitialized memory needs `unsafe`.
const MAX_READ: usize = 8 << 10;

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; MAX_READ];
        let most = into.remaining().min(MAX_READ);
        let read = ready!(Pin::new(&mut self.0).poll_read(cx, &mut bytes[..most]))?;
        into.put_slice(&bytes[..read]);
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}
