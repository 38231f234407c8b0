//! Servers over HTTP, and clients that speak it by hand: `tests::scenarios::http`.

use crate::glue;

tests::each_http_row!(tests::http_tests, glue::Smol);
