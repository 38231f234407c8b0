use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_service::{Acceptor, ConnectionLimits, HttpListener, HttpService};
use hyper::rt::{Read, ReadBufCursor, Write};
use smol::io::{AsyncRead, AsyncWrite};
use smol::net::{TcpListener, TcpStream};

use crate::Error;

/// Serves `service` to all clients that connect to `address`, a host and a port, over HTTP/1.1 and HTTP/2. Port 0 stands for any free port;
/// see [`HttpListener::local_addr`]. Every path is answered by the service. Connections are tasks of the runtime of the service.
///
/// Clients on other machines need an address of this one, and a service that accepts it as a host: by default only loopback addresses are.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, nothing listens.
///
/// # Errors
/// [`Error::Listen`].
pub async fn http_listen(address: &str, service: HttpService) -> Result<HttpListener, Error> {
    http_listen_with(address, service, ConnectionLimits::default()).await
}

/// Serves `service` as [`http_listen`] does, with `limits` for its connections.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, nothing listens.
///
/// # Errors
/// [`Error::Listen`].
pub async fn http_listen_with(address: &str, service: HttpService, limits: ConnectionLimits) -> Result<HttpListener, Error> {
    let listen = async {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    let (listener, bound) = listen.await.map_err(Error::listening_on(address))?;
    Ok(HttpListener::start(Sockets(listener), bound, service, limits))
}

struct Sockets(TcpListener);

impl Acceptor for Sockets {
    type Io = Socket;

    async fn accept(&self) -> io::Result<Socket> {
        let (stream, _) = self.0.accept().await?;
        // Responses are collected before they are written. That it fails tells of a client that has left already.
        let _ = stream.set_nodelay(true);
        Ok(Socket(stream))
    }
}

/// A connection, with the traits of hyper.
struct Socket(TcpStream);

/// The number of bytes that are read at once. They are copied, since memory that is not initialized cannot be passed on without `unsafe`.
const READ: usize = 8 << 10;

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ];
        let most = into.remaining().min(READ);
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
