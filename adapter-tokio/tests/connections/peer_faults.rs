//! Faults of other SDKs, which our ends must not have. The tests are in `tests::scenarios::faults`.

use crate::adapter;

tests::each_fault!(tests::fault_tests, adapter::Tokio);
