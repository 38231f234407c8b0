//! Connections with this adapter at both ends, over each of its transports. The tests are rows of the lists in `tests::scenarios`, which
//! both adapters share. Each file here runs one list.
#![cfg(unix)]

use programs::tokio as adapter;

#[cfg(feature = "http")]
mod http;
#[cfg(all(feature = "http", feature = "http-client-tls"))]
mod http_client;
mod peer_faults;
mod scenarios;
#[cfg(feature = "websocket")]
mod tesseron;
mod transports;

tests::the_far_end!(adapter::Tokio);
