//! Tesseron over real sockets of both kinds, Unix sockets and WebSockets, and the manifests of its apps. The tests are in
//! `tests::scenarios::tesseron`.

use crate::adapter;

tests::each_tesseron_row!(tests::tesseron_tests, adapter::Smol);
