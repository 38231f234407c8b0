//! Both bindings of Tesseron over real sockets, and its manifests: `tests::scenarios::tesseron`.
#![cfg(all(unix, feature = "websocket"))]

#[path = "../examples/glue/mod.rs"]
mod glue;

tests::each_tesseron_row!(tests::tesseron_tests, glue::Smol);
