//! Sockets, pipes and clocks of tokio for [`protocol_core`].
//!
//! A transport is opened by one of [`stdio`], [`child`], [`tcp_connect`], [`TcpListener`], `unix_connect`, `UnixListener` or
//! [`duplex`], for Tesseron by [`tesseron_listen`] and [`tesseron_dial`]; [`LineIo`] makes one of any other reader and writer, or of a
//! stream that is both. Then
//! * [`serve`] or [`connect`] runs an endpoint over it, in a task of its own, and gives a [`Connection`], or
//! * a [`protocol_core::drive::Driver`] joins it with a bare session and an [`Alarm`] of a [`Clock`].
//!
//! No rule of a protocol is in this crate. The runtime needs its IO and its time driver (`enable_all`).

#[cfg(feature = "child")]
mod child;
mod clock;
mod connection;
mod line_io;
#[cfg(feature = "net")]
mod net;
#[cfg(feature = "stdio")]
mod stdio;
#[cfg(feature = "tesseron")]
mod tesseron;

#[cfg(feature = "tesseron")]
pub use ::tesseron::TesseronError;
#[cfg(feature = "tesseron")]
pub use ::tesseron::net::{Binding, ClaimMode, Home, Instance, TesseronListener, TesseronOptions, TesseronTransport};
pub use adapter_io::{Error, Exit, Halves, Whole};
#[cfg(feature = "child")]
pub use child::{Child, Process, child};
pub use clock::{Alarm, Clock};
pub use connection::{Connection, connect, serve, serve_as};
pub use line_io::{Duplex, LineIo, TokioIo, duplex};
#[cfg(feature = "net")]
pub use net::{Tcp, TcpListener, tcp_connect};
#[cfg(all(feature = "net", unix))]
pub use net::{Unix, UnixListener, unix_connect};
#[cfg(feature = "stdio")]
pub use stdio::{Stdin, Stdout, stdio, stdout_unread};
#[cfg(feature = "tesseron")]
pub use tesseron::{tesseron_dial, tesseron_listen};
