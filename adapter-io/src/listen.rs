use core::fmt;
use core::marker::PhantomData;
use std::io;
use std::net::SocketAddr;

use crate::Error;

/// Accepts connections on a listener `L`, on one runtime.
pub trait Accept<L> {
    /// The transport of an accepted connection.
    type Transport;

    /// Waits for the next connection.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if the future is dropped, no connection is lost.
    fn accept(listener: &L) -> impl Future<Output = io::Result<Self::Transport>> + Send;
}

/// Listens on TCP, on one runtime.
pub trait ListenTcp<L>: Accept<L> {
    /// Listens on `address`, a host and a port. Returns the listener and the address that it listens on.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if the future is dropped, no listener remains.
    fn bind(address: &str) -> impl Future<Output = io::Result<(L, SocketAddr)>> + Send;

    /// Waits for the next connection, as [`Accept::accept`] does. Also returns the addresses of its ends, first ours.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if the future is dropped, no connection is lost.
    fn accept_with_ends(listener: &L) -> impl Future<Output = io::Result<(Self::Transport, [SocketAddr; 2])>> + Send;
}

/// A TCP listener. `L` is the listening socket of a runtime, and `B` implements listening and accepting for that runtime.
pub struct TcpListener<B, L> {
    listener: L,
    address: SocketAddr,
    by: PhantomData<fn() -> B>,
}

impl<B: ListenTcp<L>, L> TcpListener<B, L> {
    /// Listens on `address`, a host and a port. Port 0 stands for any free port; see [`local_addr`](Self::local_addr).
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, no listener remains.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub async fn bind(address: &str) -> Result<Self, Error> {
        let (listener, bound) = B::bind(address).await.map_err(Error::listening_on(address))?;
        Ok(Self { listener, address: bound, by: PhantomData })
    }

    /// The address of the listener.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next connection.
    ///
    /// # Cancel safety
    /// Cancel safe: no connection is lost.
    ///
    /// # Errors
    /// [`Error::Accept`]. The listener can still be used.
    pub async fn accept(&self) -> Result<B::Transport, Error> {
        B::accept(&self.listener).await.map_err(Error::accepting_on(self.address))
    }

    /// Waits for the next connection, and returns it with the addresses of its ends, first ours.
    ///
    /// # Cancel safety
    /// Cancel safe: no connection is lost.
    ///
    /// # Errors
    /// [`Error::Accept`]. The listener can still be used.
    pub async fn accept_with_ends(&self) -> Result<(B::Transport, [SocketAddr; 2]), Error> {
        B::accept_with_ends(&self.listener).await.map_err(Error::accepting_on(self.address))
    }
}

impl<B, L> fmt::Debug for TcpListener<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpListener").field(&self.address).finish()
    }
}

#[cfg(unix)]
pub use self::unix::{ListenUnix, UnixListener};

#[cfg(unix)]
mod unix {
    use core::fmt;
    use core::marker::PhantomData;
    use std::io;
    use std::path::Path;

    use crate::{Accept, Error, SocketFile};

    /// Listens on Unix sockets, on one runtime.
    pub trait ListenUnix<L>: Accept<L> {
        /// Makes a socket at `path` and listens on it.
        ///
        /// # Errors
        /// The error of the system.
        fn bind(path: &Path) -> io::Result<L>;
    }

    /// A listener on a Unix socket. `L` is the listening socket of a runtime, and `B` implements listening and accepting for that runtime.
    /// Dropping the listener removes the socket file.
    pub struct UnixListener<B, L> {
        listener: L,
        file: SocketFile,
        by: PhantomData<fn() -> B>,
    }

    impl<B: ListenUnix<L>, L> UnixListener<B, L> {
        /// Makes a socket at `path` and listens on it.
        ///
        /// # Errors
        /// [`Error::PathExists`] if the path exists, even if it is a socket on which no process listens any more; [`Error::Listen`].
        pub fn bind(path: impl AsRef<Path>) -> Result<Self, Error> {
            let (listener, file) = SocketFile::make(path.as_ref(), B::bind)?;
            Ok(Self { listener, file, by: PhantomData })
        }

        /// The path of the socket.
        #[must_use]
        pub fn path(&self) -> &Path {
            self.file.path()
        }

        /// Waits for the next connection.
        ///
        /// # Cancel safety
        /// Cancel safe: no connection is lost.
        ///
        /// # Errors
        /// [`Error::Accept`]. The listener can still be used.
        pub async fn accept(&self) -> Result<B::Transport, Error> {
            B::accept(&self.listener).await.map_err(Error::accepting_on(self.path().display()))
        }
    }

    impl<B, L> fmt::Debug for UnixListener<B, L> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("UnixListener").field(&self.file.path()).finish()
        }
    }
}
