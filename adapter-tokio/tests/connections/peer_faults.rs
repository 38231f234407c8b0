//! Peers that make the mistakes of other SDKs. The rows are in `tests::scenarios::faults`.

use crate::glue;

tests::each_fault!(tests::fault_tests, glue::Tokio);
