//! Connections of this adapter, with both ends over each of its transports. The tests are rows of lists that both adapters share.
#![cfg(unix)]

use programs::tokio as glue;

#[cfg(feature = "http")]
mod http;
mod peer_faults;
mod scenarios;
#[cfg(feature = "websocket")]
mod tesseron;
mod transports;

tests::the_far_end!(glue::Tokio);
