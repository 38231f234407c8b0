use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use ::tesseron::claims::ClaimCode;
use ::tesseron::net::{Instance, Sockets, TesseronListener, TesseronOptions, TesseronTransport};
use adapter_io::StreamIo;
use smol::Executor;
use smol::io::{AsyncRead, AsyncWrite};
use smol::net::{TcpListener, TcpStream};

use crate::{SmolIo, SmolRuntime, SmolTimer};

/// Listens for Tesseron gateways as an app, and writes a manifest by which gateways find the app.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, no listener and no manifest remain.
///
/// # Errors
/// As [`::tesseron::net::listen`].
pub async fn tesseron_listen(options: TesseronOptions) -> Result<TesseronListener, ::tesseron::TesseronError> {
    ::tesseron::net::listen(SmolRuntime::start(), options).await
}

/// Listens for gateways as [`tesseron_listen`] does, with tasks on `executor`.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, no listener and no manifest remain.
///
/// # Errors
/// As [`::tesseron::net::listen`].
pub async fn tesseron_listen_on(
    executor: &Arc<Executor<'static>>,
    options: TesseronOptions,
) -> Result<TesseronListener, ::tesseron::TesseronError> {
    ::tesseron::net::listen(SmolRuntime::start_on(executor), options).await
}

/// Connects to an app as a Tesseron gateway. `code` is the claim code that the app has made, if the app makes its claim codes itself.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped, the connection is closed, and if the app has already accepted `code`, the code is used up.
///
/// # Errors
/// As [`::tesseron::net::dial`].
pub async fn tesseron_dial(instance: &Instance, code: Option<&ClaimCode>) -> Result<TesseronTransport, ::tesseron::TesseronError> {
    ::tesseron::net::dial(&SmolRuntime::start(), instance, code).await
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamIo<S> for SmolIo {
    fn poll_read(stream: &mut S, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(stream).poll_read(cx, into)
    }

    fn poll_write(stream: &mut S, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(stream).poll_write(cx, from)
    }

    fn poll_flush(stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(stream).poll_flush(cx)
    }

    fn poll_close(stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(stream).poll_close(cx)
    }
}

/// Switches Nagle's algorithm off, since a driver already collects the frames of a turn and writes them together.
fn tcp(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Sockets for SmolRuntime {
    type Timer = SmolTimer;
    type Tcp = TcpStream;
    type TcpListener = TcpListener;
    type Io = SmolIo;
    #[cfg(unix)]
    type Unix = crate::Unix;
    #[cfg(unix)]
    type UnixListener = smol::net::unix::UnixListener;
    #[cfg(unix)]
    type UnixIo = SmolIo;

    fn timer(&self) -> SmolTimer {
        Self::timer(self)
    }

    fn epoch_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    async fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        listener.accept().await.and_then(|(stream, from)| Ok((tcp(stream)?, from)))
    }

    async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await.and_then(tcp)
    }

    #[cfg(unix)]
    async fn connect_unix(path: &std::path::Path) -> io::Result<crate::Unix> {
        crate::net::connect(path).await
    }
}
