use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpStream, tcp};

use crate::{Error, LineIo};

/// A TCP connection.
pub type Tcp = LineIo<tcp::OwnedReadHalf, tcp::OwnedWriteHalf>;

/// Frames are gathered before they are written, so the system need not wait for more.
fn tcp(stream: TcpStream) -> io::Result<Tcp> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    Ok(LineIo::new(reader, writer))
}

/// Connects to `address`, a host and a port.
///
/// # Errors
/// [`Error::Connect`].
pub async fn tcp_connect(address: &str) -> Result<Tcp, Error> {
    let stream = TcpStream::connect(address).await;
    stream.and_then(tcp).map_err(|source| Error::Connect { address: address.into(), source })
}

/// Accepts TCP connections.
#[derive(Debug)]
pub struct TcpListener {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
}

impl TcpListener {
    /// Listens on `address`, a host and a port; port 0 is any that is free.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub async fn bind(address: &str) -> Result<Self, Error> {
        let listener = tokio::net::TcpListener::bind(address).await;
        let bound = listener.and_then(|listener| Ok(Self { address: listener.local_addr()?, listener }));
        bound.map_err(|source| Error::Listen { address: address.into(), source })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection. Can be dropped and called again.
    ///
    /// # Errors
    /// [`Error::Accept`].
    pub async fn accept(&self) -> Result<Tcp, Error> {
        let accepted = self.listener.accept().await.and_then(|(stream, _)| tcp(stream));
        accepted.map_err(|source| Error::Accept { address: self.address.to_string(), source })
    }
}

#[cfg(unix)]
pub use self::unix::{Unix, UnixListener, unix_connect};

#[cfg(unix)]
mod unix {
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    use tokio::net::{UnixStream, unix};

    use crate::{Error, LineIo};

    /// A connection over a Unix socket.
    pub type Unix = LineIo<unix::OwnedReadHalf, unix::OwnedWriteHalf>;

    fn unix(stream: UnixStream) -> Unix {
        let (reader, writer) = stream.into_split();
        LineIo::new(reader, writer)
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn unix_connect(path: impl AsRef<Path>) -> Result<Unix, Error> {
        let path = path.as_ref();
        let stream = UnixStream::connect(path).await;
        stream.map(unix).map_err(|source| Error::Connect { address: path.display().to_string(), source })
    }

    /// Accepts connections on a Unix socket. Dropping it removes the socket file.
    #[derive(Debug)]
    pub struct UnixListener {
        listener: tokio::net::UnixListener,
        path: PathBuf,
        /// Device and number of the file that we made, so that we remove no other.
        made: (u64, u64),
    }

    fn file_at(path: &Path) -> io::Result<(u64, u64)> {
        std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
    }

    impl UnixListener {
        /// Makes a socket at `path` and listens on it.
        ///
        /// # Errors
        /// [`Error::PathExists`] if there is something already, also a socket that nobody listens on any longer; [`Error::Listen`].
        pub fn bind(path: impl AsRef<Path>) -> Result<Self, Error> {
            let path = path.as_ref().to_path_buf();
            let bound = tokio::net::UnixListener::bind(&path).and_then(|listener| Ok((listener, file_at(&path)?)));
            match bound {
                Ok((listener, made)) => Ok(Self { listener, path, made }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Error::PathExists { path }),
                Err(source) => Err(Error::Listen { address: path.display().to_string(), source }),
            }
        }

        /// Where it listens.
        #[must_use]
        pub fn path(&self) -> &Path {
            &self.path
        }

        /// The next connection. Can be dropped and called again.
        ///
        /// # Errors
        /// [`Error::Accept`].
        pub async fn accept(&self) -> Result<Unix, Error> {
            let accepted = self.listener.accept().await.map(|(stream, _)| unix(stream));
            accepted.map_err(|source| Error::Accept { address: self.path.display().to_string(), source })
        }
    }

    impl Drop for UnixListener {
        fn drop(&mut self) {
            if file_at(&self.path).is_ok_and(|file| file == self.made) {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}
