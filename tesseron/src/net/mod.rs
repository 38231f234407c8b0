//! Tesseron between processes of one user: an app listens and says so in a manifest, a gateway reads the manifest and dials.
//!
//! An app calls [`listen`] and takes one channel after another from its [`TesseronListener`]; a gateway reads the manifests of a
//! [`Home`] and calls [`dial`]. Who may bind is decided in [`crate::claims`]; here are sockets, files, clocks and random bytes. An
//! adapter lends its [`Sockets`].

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
mod peer;
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
pub use error::TesseronError;
pub use gateway::{Gateway, Scan};
pub use home::{FolderRefused, Home};
pub use instance::{Address, Instance, ManifestRefused, RefusedFor};
pub use listen::{Binding, ClaimMode, TesseronListener, TesseronOptions, listen};
pub use url::{LoopbackUrl, NotLoopback};

/// The longest time that the answer to an upgrade may take to be written at the app, and a dial with its upgrade at the gateway.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the longest line before a Unix socket is bound.
#[cfg(unix)]
const BIND_LINE: usize = 4096;

/// A runtime as Tesseron needs it: besides tasks and a clock its alarms, the wall clock, and its sockets before
/// they are transports.
pub trait Sockets: Runtime + Clone {
    /// An alarm.
    type Alarm: Timer + Send + 'static;

    /// One on the clock of this runtime.
    fn alarm(&self) -> Self::Alarm;

    /// The time of the wall clock, in milliseconds since 1970: manifests hold it.
    fn epoch_ms(&self) -> u64;

    /// A TCP connection.
    type Tcp: Send + 'static;

    /// Accepts TCP connections.
    type TcpListener: Send + Sync + 'static;

    /// The input and output of both.
    type Io: StreamIo<Self::Tcp> + ListenTcp<Self::TcpListener> + 'static;

    /// The next connection, and where it comes from.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: where its future is dropped, no connection may be lost.
    fn accept_tcp(listener: &Self::TcpListener) -> impl Future<Output = io::Result<(Self::Tcp, SocketAddr)>> + Send;

    /// Connects to `address`.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: where its future is dropped, no connection may stay.
    fn connect_tcp(address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send;

    /// A connection over a Unix socket.
    #[cfg(unix)]
    type Unix: FrameIo<Error = io::Error> + Send + 'static;

    /// Accepts connections on a Unix socket.
    #[cfg(unix)]
    type UnixListener: Send + Sync + 'static;

    /// The input and output of both.
    #[cfg(unix)]
    type UnixIo: ListenUnix<Self::UnixListener, Transport = Self::Unix> + 'static;

    /// Connects to the socket at `path`.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: where its future is dropped, no connection may stay.
    #[cfg(unix)]
    fn connect_unix(path: &std::path::Path) -> impl Future<Output = io::Result<Self::Unix>> + Send;
}

/// Waits for `future`, at the longest until `at`.
async fn until<F: Future>(alarm: &mut impl Timer, at: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // The clock, not the alarm: one that is always ready would never let it ring.
        if alarm.now() >= at {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => alarm.poll_until(cx, at).map(|()| None),
        }
    })
    .await
}

/// Waits for `future`, at the longest as long as for any peer.
async fn in_time<F: Future>(alarm: &mut impl Timer, future: F) -> Option<F::Output> {
    let at = alarm.now().saturating_add(PATIENCE);
    until(alarm, at, future).await
}
