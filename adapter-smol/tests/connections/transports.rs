//! Transports that cannot be opened, that break, and that are child processes. The rows are in
//! `tests::scenarios::transports`.

use crate::glue;

tests::each_transport_fault!(tests::transport_tests, glue::Smol);
