//! Peers that behave as other SDKs do by mistake: `tests::scenarios::faults`.

use crate::glue;

tests::each_fault!(tests::fault_tests, glue::Tokio);
