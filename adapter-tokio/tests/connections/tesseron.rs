//! Both bindings of Tesseron over real sockets, and its manifests: `tests::scenarios::tesseron`.

use crate::glue;

tests::each_tesseron_row!(tests::tesseron_tests, glue::Tokio);
