use std::io;

use http_service::{Acceptor, ConnectionLimits, HttpListener, HttpService};
use smol::net::TcpListener;

use crate::Error;
use crate::socket::Socket;

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
