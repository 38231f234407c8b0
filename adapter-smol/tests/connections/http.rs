//! Servers over HTTP, and clients whose HTTP messages the tests write by hand. The tests are in
//! `tests::scenarios::http`.

use crate::adapter;

tests::each_http_row!(tests::http_tests, adapter::Smol);
