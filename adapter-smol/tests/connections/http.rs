//! Servers over HTTP, and clients whose HTTP messages the tests write by hand: `tests::scenarios::http`.

use crate::glue;

tests::each_http_row!(tests::http_tests, glue::Smol);
