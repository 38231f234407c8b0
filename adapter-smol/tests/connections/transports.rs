//! Transports that cannot be opened, transports that break, and transports of child processes. The tests are in
//! `tests::scenarios::transports`.

use crate::adapter;

tests::each_transport_fault!(tests::transport_tests, adapter::Smol);
