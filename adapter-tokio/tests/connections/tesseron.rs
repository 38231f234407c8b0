//! Both bindings of Tesseron over real sockets, and the manifests of its apps: `tests::scenarios::tesseron`.

use crate::glue;

tests::each_tesseron_row!(tests::tesseron_tests, glue::Tokio);
