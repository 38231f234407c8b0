//! Peers that make the mistakes of other SDKs. The tests are listed in `tests::scenarios::faults`.

use crate::adapter;

tests::each_fault!(tests::fault_tests, adapter::Tokio);
