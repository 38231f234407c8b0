//! What other SDKs get wrong, row by row: `tests::scenarios::faults`.

use crate::glue;

tests::each_fault!(tests::fault_tests, glue::Tokio);
