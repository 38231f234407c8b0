//! Transports that cannot be opened, that break and that belong to a child: `tests::scenarios::transports`.
#![cfg(unix)]

#[path = "../examples/glue/mod.rs"]
mod glue;

tests::the_far_end!(glue::Tokio);
tests::each_transport_fault!(tests::transport_tests, glue::Tokio);
