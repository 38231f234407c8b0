//! Transports that cannot be opened, that break, and that are child processes. The tests are in
//! `tests::scenarios::transports`.

use crate::adapter;

tests::each_transport_fault!(tests::transport_tests, adapter::Tokio);
