//! Clients over HTTP, with and without TLS. The tests are in `tests::scenarios::http_client`.

use crate::adapter;

tests::each_http_client_row!(tests::http_client_tests, adapter::Smol);
