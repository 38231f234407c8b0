//! Transports that cannot be opened, that break and that belong to a child: `tests::scenarios::transports`.

use crate::glue;

tests::each_transport_fault!(tests::transport_tests, glue::Tokio);
