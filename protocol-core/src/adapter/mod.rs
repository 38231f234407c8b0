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

use crate::drive::{Driver, FrameIo, Timer};
use crate::endpoint::Endpoint;
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

/// Drives an endpoint to its end: all is written, its handlers have ended and the transport is closed. Gives the reason for which the
/// session closed.
///
/// # Errors
/// [`Error::Broken`].
pub fn drive<I, T>(endpoint: Endpoint, transport: I, alarm: T) -> impl Future<Output = Result<CloseReason, Error>>
where
    I: FrameIo<Error = io::Error>,
    T: Timer,
{
    let peer = endpoint.peer();
    // Joined here: the future would keep room for the parts beside the whole.
    let mut driver = Driver::new(endpoint, transport, alarm);
    async move {
        while driver.next_event().await.map_err(Error::Broken)?.is_some() {}
        Ok(peer.closed().await)
    }
}
