//! The programs `gateway` and `tools --tesseron`: `tests::scenarios::gateway`.
#![cfg(all(unix, feature = "websocket"))]

tests::each_gateway_row!(tests::gateway_tests);
