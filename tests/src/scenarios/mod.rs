//! Tests of every transport of every adapter. They are written once; each adapter runs them from its `tests/connections`.
//!
//! Each public module is a list of scenarios, or *rows*. A row is a function that runs on a [`Stage`]: it takes the steps of the near end,
//! and checks what both ends have observed. The name of a row is also the name of its test.

pub mod faults;
pub mod http;
pub mod http_client;
pub mod list;
pub mod tesseron;
pub mod transports;

mod front;
mod tools;

use std::sync::Arc;

use endpoint::BoxFuture;

use crate::harness::{self, Book, Far, Over, Stage};
use programs::adapter::Adapter;

/// Makes the far end of the row of this name, which can be in any of the lists.
pub(crate) fn far(row: &str, book: &Book) -> Far {
    match list::script(row).or_else(|| faults::script(row)) {
        Some(script) => Far::Wire(script),
        None if transports::has(row) => Far::ClosingService(Arc::new(tools::service(book))),
        None => Far::Service(Arc::new(faults::service(row, book).unwrap_or_else(|| tools::service(book)))),
    }
}

/// Runs a row on this number of threads.
///
/// # Panics
/// If the row panics, or does not end in time.
pub fn play_on<A: Adapter>(threads: usize, over: Over, row: &'static str, play: fn(&str, Stage<A>) -> BoxFuture<'static, ()>) {
    harness::play_on(threads, over, row, play, far);
}

/// Runs the far end in a process of its own: the body of the test `the_far_end` of an adapter.
pub fn far_end<A: Adapter>() {
    harness::far_end::<A>(far);
}

/// Declares the far end of rows over a child process. It is declared as a test, since the child process is the test program itself.
#[macro_export]
macro_rules! the_far_end {
    ($adapter:ty) => {
        /// The far end of rows over a child process. Not a test by itself.
        #[test]
        #[ignore = "started by the other tests"]
        fn the_far_end() {
            $crate::scenarios::far_end::<$adapter>();
        }
    };
}

/// Declares a test for each row of `list` over each transport.
#[macro_export]
macro_rules! scenario_tests {
    ([$adapter:ty] $($row:ident)*) => {
        $crate::scenario_tests!(@over over_duplex Duplex $adapter: $($row)*);
        $crate::scenario_tests!(@over over_tcp Tcp $adapter: $($row)*);
        $crate::scenario_tests!(@over over_a_unix_socket Unix $adapter: $($row)*);
        $crate::scenario_tests!(@over over_child_stdio Child $adapter: $($row)*);
    };
    (@over $name:ident $over:ident $adapter:ty: $($row:ident)*) => {
        mod $name {
            use super::*;
            use $crate::harness::Over;
            use $crate::scenarios::{list, play_on};
            $(#[test] fn $row() { play_on::<$adapter>(1, Over::$over, stringify!($row), list::play); })*
        }
    };
}

/// Declares tests for each row of `faults`: on one thread and on two, and both in memory and with a child process.
#[macro_export]
macro_rules! fault_tests {
    ([$adapter:ty] $($row:ident)*) => {
        $crate::fault_tests!(@on on_one_thread_over_duplex 1 Duplex $adapter: $($row)*);
        $crate::fault_tests!(@on on_one_thread_over_child_stdio 1 Child $adapter: $($row)*);
        $crate::fault_tests!(@on on_two_threads_over_duplex 2 Duplex $adapter: $($row)*);
        $crate::fault_tests!(@on on_two_threads_over_child_stdio 2 Child $adapter: $($row)*);
    };
    (@on $name:ident $threads:literal $over:ident $adapter:ty: $($row:ident)*) => {
        mod $name {
            use super::*;
            use $crate::harness::Over;
            use $crate::scenarios::{faults, play_on};
            $(#[test] fn $row() { play_on::<$adapter>($threads, Over::$over, stringify!($row), faults::play); })*
        }
    };
}

/// Declares a test for each row of `transports`.
#[macro_export]
macro_rules! transport_tests {
    ([$adapter:ty] $($row:ident)*) => {$(
        #[test]
        fn $row() {
            use $crate::harness::Over;
            use $crate::scenarios::{play_on, transports};
            play_on::<$adapter>(1, Over::Child, stringify!($row), transports::play);
        }
    )*};
}

/// Declares a test for each row about clients over HTTP.
#[macro_export]
macro_rules! http_client_tests {
    ([$adapter:ty] $($row:ident)*) => {$(
        #[test]
        fn $row() {
            use $crate::harness::Over;
            use $crate::scenarios::{http_client, play_on};
            play_on::<$adapter>(2, Over::Tcp, stringify!($row), http_client::play);
        }
    )*};
}

/// Declares a test for each row about servers over HTTP.
#[macro_export]
macro_rules! http_tests {
    ([$adapter:ty] $($row:ident)*) => {$(
        #[test]
        fn $row() {
            use $crate::harness::Over;
            use $crate::scenarios::{http, play_on};
            play_on::<$adapter>(2, Over::Tcp, stringify!($row), http::play);
        }
    )*};
}
