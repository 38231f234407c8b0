//! What other SDKs get wrong, row by row: `tests::scenarios::faults`.
#![cfg(unix)]

#[path = "../examples/glue/mod.rs"]
mod glue;

tests::the_far_end!(glue::Smol);
tests::each_fault!(tests::fault_tests, glue::Smol);
