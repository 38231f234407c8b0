use std::io;
use std::net::SocketAddr;

use adapter_io::{Accept, ListenTcp};
use tokio::net::{self, TcpStream};

use crate::{Error, LineIo, TokioIo, Whole};

/// A TCP connection.
pub type Tcp = LineIo<Whole<TcpStream>>;

/// A listener for TCP connections.
pub type TcpListener = adapter_io::TcpListener<TokioIo, net::TcpListener>;

/// Makes a transport of a stream. Nagle's algorithm is switched off, since a driver already collects the frames of a turn and writes them
/// together.
/// Any thread may write to the socket, so early sends are allowed.
fn tcp(stream: TcpStream) -> io::Result<Tcp> {
    stream.set_nodelay(true)?;
    Ok(LineIo::whole(stream).sending_anywhere())
}

/// Connects to `address`, a host and a port.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, no connection remains.
///
/// # Errors
/// [`Error::Connect`].
pub async fn tcp_connect(address: &str) -> Result<Tcp, Error> {
    TcpStream::connect(address).await.and_then(tcp).map_err(Error::connecting_to(address))
}

impl Accept<net::TcpListener> for TokioIo {
    type Transport = Tcp;

    async fn accept(listener: &net::TcpListener) -> io::Result<Tcp> {
        Ok(Self::accept_with_ends(listener).await?.0)
    }
}

impl ListenTcp<net::TcpListener> for TokioIo {
    async fn bind(address: &str) -> io::Result<(net::TcpListener, SocketAddr)> {
        let listener = net::TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    async fn accept_with_ends(listener: &net::TcpListener) -> io::Result<(Tcp, [SocketAddr; 2])> {
        let (stream, remote) = listener.accept().await?;
        let local = stream.local_addr()?;
        Ok((tcp(stream)?, [local, remote]))
    }
}

#[cfg(unix)]
#[cfg(feature = "tesseron")]
pub(crate) use self::unix::connect;
#[cfg(unix)]
pub use self::unix::{Unix, UnixListener, unix_connect};

#[cfg(unix)]
mod unix {
    use std::io;
    use std::path::Path;

    use adapter_io::{Accept, ListenUnix};
    use tokio::net::{self, UnixStream};

    use crate::{Error, LineIo, TokioIo, Whole};

    /// A connection over a Unix socket.
    pub type Unix = LineIo<Whole<UnixStream>>;

    /// A listener on a Unix socket. Dropping it removes the socket file.
    pub type UnixListener = adapter_io::UnixListener<TokioIo, net::UnixListener>;

    /// Makes the transport. Any thread may write to the socket, so early sends are allowed.
    fn unix(stream: UnixStream) -> Unix {
        LineIo::whole(stream).sending_anywhere()
    }

    pub(crate) async fn connect(path: &Path) -> io::Result<Unix> {
        UnixStream::connect(path).await.map(unix)
    }

    /// Connects to the socket at `path`.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, no connection remains.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn unix_connect(path: impl AsRef<Path>) -> Result<Unix, Error> {
        let path = path.as_ref();
        connect(path).await.map_err(Error::connecting_to(path.display()))
    }

    impl Accept<net::UnixListener> for TokioIo {
        type Transport = Unix;

        async fn accept(listener: &net::UnixListener) -> io::Result<Unix> {
            listener.accept().await.map(|(stream, _)| unix(stream))
        }
    }

    impl ListenUnix<net::UnixListener> for TokioIo {
        fn bind(path: &Path) -> io::Result<net::UnixListener> {
            net::UnixListener::bind(path)
        }
    }
}
