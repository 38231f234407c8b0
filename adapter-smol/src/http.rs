use std::io;
use std::net::SocketAddr;

use http_service::{Acceptor, ConnectionLimits, HttpListener, HttpService};
use smol::net::TcpListener;

use crate::Error;
use crate::socket::Socket;

/// Serves `service` to all clients that connect to `address`, a host and a port, over HTTP/1.1 and HTTP/2. Port 0 stands for any free port;
/// see [`HttpListener::local_addr`]. The service answers requests for every path. Each connection is a task on the runtime of `service`.
///
/// To serve clients on other machines, listen on an address that they can reach, and let the service accept its host name: by default it
/// accepts only `localhost`, `127.0.0.1` and `[::1]` as hosts.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, no listener remains.
///
/// # Errors
/// [`Error::Listen`].
pub async fn http_listen(address: &str, service: HttpService) -> Result<HttpListener, Error> {
    http_listen_with(address, service, ConnectionLimits::default()).await
}

/// Serves `service` as [`http_listen`] does, with `limits` for its connections.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, no listener remains.
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
        // Switches Nagle's algorithm off, since responses are collected before they are written. Fails if the client has already
        // disconnected.
        let _ = stream.set_nodelay(true);
        Ok(Socket(stream))
    }

    fn ends(io: &Socket) -> Option<(SocketAddr, SocketAddr)> {
        Some((io.0.local_addr().ok()?, io.0.peer_addr().ok()?))
    }
}
