//! Connections of this adapter, both ends over every transport it has. The tests are rows of lists that both adapters share, so both
//! show the same.
#![cfg(unix)]

use programs::tokio as glue;

mod peer_faults;
mod scenarios;
#[cfg(feature = "websocket")]
mod tesseron;
mod transports;

tests::the_far_end!(glue::Tokio);
