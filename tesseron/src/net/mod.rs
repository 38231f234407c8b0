//! Tesseron between processes on one machine: an app listens and writes its address into a manifest; a gateway reads the manifest and
//! connects.
//!
//! An app calls [`listen`] and accepts one channel after another from its [`TesseronListener`]. A gateway reads the manifests in a [`Home`]
//! and calls [`dial`]; [`Gateway`] does both for all apps. [`crate::claims`] decides which connections are accepted; this module adds
//! sockets, files, clocks and random bytes. An adapter implements [`Sockets`].

mod acceptor;
#[cfg(feature = "websocket")]
mod blocking;
mod breadcrumb;
mod channel;
mod dial;
mod error;
mod gateway;
mod home;
mod host;
mod instance;
mod listen;
#[cfg(feature = "websocket")]
pub mod peer;
#[cfg(feature = "websocket")]
mod upgrade;
mod url;

use core::future::poll_fn;
use core::net::SocketAddr;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::io;

#[cfg(unix)]
use adapter_io::ListenUnix;
use adapter_io::{ListenTcp, StreamIo};
use engine::Runtime;
#[cfg(unix)]
use protocol_core::drive::FrameIo;
use protocol_core::drive::Timer;
use protocol_core::time::Instant;

pub use channel::TesseronTransport;
pub use dial::dial;
pub use error::{FolderRefused, TesseronError};
pub use gateway::{Gateway, Scan};
pub use home::Home;
pub use instance::{Address, Instance, ManifestRefused, RefusedFor};
pub use listen::{Binding, ClaimCodeSource, TesseronListener, TesseronOptions, listen};
pub use url::{LoopbackUrl, NotLoopback};

/// The maximum time of each of these steps. At the app: looking up the user of a connection, and writing the answer to an upgrade or a
/// bind. At the gateway: connecting, which includes the upgrade on a WebSocket.
const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum length in bytes of a line on a Unix socket whose channel is not yet bound by a claim code.
#[cfg(unix)]
const MAX_BIND_LINE: usize = 4096;

/// A runtime for Tesseron. In addition to tasks and a clock it has timers, the wall clock, and TCP and Unix sockets.
pub trait Sockets: Runtime + Clone {
    /// A timer.
    type Timer: Timer + Send + 'static;

    /// Creates a timer on the clock of this runtime.
    fn timer(&self) -> Self::Timer;

    /// The time of the wall clock, in milliseconds since 1970, for manifests, breadcrumbs and the times of claims.
    fn epoch_ms(&self) -> u64;

    /// A TCP connection.
    type Tcp: Send + 'static;

    /// A listener for TCP connections.
    type TcpListener: Send + Sync + 'static;

    /// Implements I/O for [`Self::Tcp`] and listening for [`Self::TcpListener`].
    type Io: StreamIo<Self::Tcp> + ListenTcp<Self::TcpListener> + 'static;

    /// Accepts the next connection, and returns it with the address of its peer.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if its future is dropped, no connection may be lost.
    fn accept_tcp(listener: &Self::TcpListener) -> impl Future<Output = io::Result<(Self::Tcp, SocketAddr)>> + Send;

    /// Connects to `address`.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if its future is dropped, the connection is closed.
    fn connect_tcp(address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send;

    /// A connection over a Unix socket.
    #[cfg(unix)]
    type Unix: FrameIo<Error = io::Error> + Send + 'static;

    /// A listener for connections on a Unix socket.
    #[cfg(unix)]
    type UnixListener: Send + Sync + 'static;

    /// Implements listening for [`Self::UnixListener`].
    #[cfg(unix)]
    type UnixIo: ListenUnix<Self::UnixListener, Transport = Self::Unix> + 'static;

    /// Connects to the socket at `path`.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if its future is dropped, the connection is closed.
    #[cfg(unix)]
    fn connect_unix(path: &std::path::Path) -> impl Future<Output = io::Result<Self::Unix>> + Send;
}

/// Waits for `future`, at most until `at`; `None` if that time is reached first.
async fn until<F: Future>(timer: &mut impl Timer, at: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // The clock is read as well: the timer is not polled if `future` is ready, and may fire late if `future` keeps waking itself.
        if timer.now() >= at {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => timer.poll_until(cx, at).map(|()| None),
        }
    })
    .await
}

/// Waits for `future`, at most for `IO_TIMEOUT`; `None` if it takes longer.
async fn in_time<F: Future>(timer: &mut impl Timer, future: F) -> Option<F::Output> {
    let at = timer.now().saturating_add(IO_TIMEOUT);
    until(timer, at, future).await
}
