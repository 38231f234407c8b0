use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use adapter_io::{HTTP_CONNECT_TIMEOUT, HTTP_DEAD_TIMEOUT, HttpServerAddress, http_client};
use endpoint::Client;
use hyper::Uri;
use hyper::http::uri::Scheme;
use hyper::rt::{self, Sleep};
use hyper_util::client::legacy::connect::{Connected, Connection as Connectable};
use protocol_core::Config;
use smol::net::{TcpStream, resolve};
use smol::{Executor, Timer, future};
use socket2::{SockRef, TcpKeepalive};
use tower_service::Service;

use crate::socket::Socket;
use crate::{Connection, Error, SmolRuntime};

/// Connects to an MCP server over Streamable HTTP as a caller, in a new task. `client` answers the input requests of the server.
///
/// The era is that of [`Config::era`]; with [`Auto`](protocol_core::mcp::Era::Auto) the server is asked which era it speaks. This function
/// only starts the task: if the server cannot be reached, or does not speak MCP, the connection ends later with [`Error::Broken`]. A call
/// that the server refuses with an HTTP status ends with an error that names the status.
///
/// Over TLS, if the server speaks HTTP/2, up to 100 requests share a connection. Otherwise each request has a connection of its own while
/// it runs.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use adapter_smol::{HttpServerAddress, http_connect};
/// use protocol_core::{Config, Identity, Json, mcp::Era};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = Config::mcp_client(Identity::new("client", "1.0"));
/// config.era = Era::Auto;
/// let server = HttpServerAddress::new("http://localhost:8080/mcp").header("Authorization", "Bearer TOKEN")?;
/// let connection = http_connect(Arc::new(()), config, server)?;
/// let result = connection.peer().call_tool("greet", Json::empty_object())?.await.tool()?;
/// println!("{}", result.text());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Connect`] if the address is malformed; or if it begins with `https://`, and there are no root certificates, or the feature
/// `http-client-tls` is off.
pub fn http_connect(client: Arc<dyn Client>, config: Config, server: HttpServerAddress) -> Result<Connection, Error> {
    let (peer, driven) = http_client(client, config, server, Arc::new(SmolRuntime::start()), Connector, HyperTimer)?;
    Ok(Connection::of(None, peer, driven))
}

/// Connects to a server as [`http_connect`] does, with tasks on `executor`.
///
/// # Errors
/// As [`http_connect`].
pub fn http_connect_on(
    executor: &Arc<Executor<'static>>,
    client: Arc<dyn Client>,
    config: Config,
    server: HttpServerAddress,
) -> Result<Connection, Error> {
    let (peer, driven) = http_client(client, config, server, Arc::new(SmolRuntime::start_on(executor)), Connector, HyperTimer)?;
    Ok(Connection::of(Some(executor), peer, driven))
}

/// Opens connections for hyper.
#[derive(Clone, Copy, Debug)]
struct Connector;

impl Service<Uri> for Connector {
    type Response = Socket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        Box::pin(open(address))
    }
}

impl Connectable for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Connects to the host and the port of an address. The IP addresses of the host are tried one after another, each for an equal part of
/// [`HTTP_CONNECT_TIMEOUT`].
async fn open(address: Uri) -> io::Result<Socket> {
    let host = address.host().ok_or(io::ErrorKind::InvalidInput)?;
    // A URL has an IPv6 address in brackets.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let default_port = if address.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let port = address.port_u16().unwrap_or(default_port);
    within(HTTP_CONNECT_TIMEOUT, async {
        let addresses = resolve((host, port)).await?;
        connect_to_any(&addresses).await
    })
    .await
}

async fn connect_to_any(addresses: &[SocketAddr]) -> io::Result<Socket> {
    let share = HTTP_CONNECT_TIMEOUT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match within(share, TcpStream::connect(address)).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                end_when_dead(&stream)?;
                return Ok(Socket(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Lets a connection to a server that is gone end within [`HTTP_DEAD_TIMEOUT`].
fn end_when_dead(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let alive = TcpKeepalive::new().with_time(HTTP_DEAD_TIMEOUT / 2).with_interval(HTTP_DEAD_TIMEOUT / 6);
    #[cfg(any(target_os = "linux", target_vendor = "apple", windows))]
    let alive = alive.with_retries(3);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(HTTP_DEAD_TIMEOUT))?;
    socket.set_tcp_keepalive(&alive)
}

/// Awaits a future for at most `time`, and then fails with `TimedOut`.
async fn within<T>(time: Duration, wait: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timed_out = async {
        Timer::after(time).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    future::or(wait, timed_out).await
}

/// Makes timers for hyper.
#[derive(Clone, Copy, Debug)]
struct HyperTimer;

impl rt::Timer for HyperTimer {
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Sleeping(Timer::after(span)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Sleeping(Timer::at(deadline)))
    }
}

struct Sleeping(Timer);

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

impl Sleep for Sleeping {}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_addresses_of_a_host_are_tried_one_after_another() {
        let [closing, staying] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [closed, open] = [&closing, &staying].map(|listener| listener.local_addr().unwrap());
        drop(closing);
        smol::block_on(async {
            let socket = connect_to_any(&[closed, open]).await.unwrap();
            assert_eq!(socket.0.peer_addr().unwrap(), open);
            assert!(socket.0.nodelay().unwrap());
            assert!(SockRef::from(&socket.0).keepalive().unwrap());
            #[cfg(target_os = "linux")]
            assert_eq!(SockRef::from(&socket.0).tcp_user_timeout().unwrap(), Some(HTTP_DEAD_TIMEOUT));
            assert_eq!(connect_to_any(&[closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(connect_to_any(&[]).await.unwrap_err().to_string(), "the host has no address");
        });
    }

    #[test]
    fn an_ipv6_address_in_brackets_is_connected_to() {
        let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
        let address = listener.local_addr().unwrap();
        let socket = smol::block_on(open(format!("http://{address}/mcp").parse().unwrap())).unwrap();
        assert_eq!(socket.0.peer_addr().unwrap(), address);
    }
}
