//! Peers that make the mistakes of other SDKs. The rows are in `tests::scenarios::faults`.

use crate::adapter;

tests::each_fault!(tests::fault_tests, adapter::Smol);
