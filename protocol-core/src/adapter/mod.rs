//! What every adapter needs and no runtime forces. An adapter for one more runtime says how bytes are read and written there
//! ([`ByteIo`], [`StreamIo`]), how connections are accepted ([`Accept`]), how an alarm rings ([`Timer`]), how tasks start ([`Runtime`](crate::endpoint::Runtime)) and how the exit of a
//! process is awaited ([`Process`]); framing, ends, errors and the care for children and socket files are here.

mod child;
mod error;
#[cfg(unix)]
mod fifo;
mod line_io;
mod listen;
mod shared_bridge;
#[cfg(unix)]
mod socket_file;
mod stdin;
mod stream_io;
pub mod tesseron;
#[cfg(feature = "websocket")]
mod web_socket;

use std::io;

use crate::drive::{FrameIo, Timer};
use crate::endpoint::{self, Endpoint};
use crate::session::CloseReason;

pub use child::{Child, Exit, Process};
pub use error::Error;
#[cfg(unix)]
pub use fifo::{fifo_stdin, fifo_stdout};
pub use line_io::{ByteIo, Ends, Halves, LineIo, Whole};
pub use listen::{Accept, ListenTcp, TcpListener};
#[cfg(unix)]
pub use listen::{ListenUnix, UnixListener};
pub use shared_bridge::{BridgeLeg, SharedBridge};
#[cfg(unix)]
pub use socket_file::SocketFile;
pub use stdin::Stdin;
pub use stream_io::StreamIo;
#[cfg(feature = "websocket")]
pub use web_socket::WebSocket;

/// [`endpoint::drive`] for the transports of adapters.
///
/// # Errors
/// [`Error::Broken`].
pub fn drive<I, T>(endpoint: Endpoint, transport: I, alarm: T) -> impl Future<Output = Result<CloseReason, Error>>
where
    I: FrameIo<Error = io::Error> + Send + 'static,
    T: Timer + Send + 'static,
{
    let driven = endpoint::drive(endpoint, transport, alarm);
    async move { driven.await.map_err(Error::Broken) }
}
