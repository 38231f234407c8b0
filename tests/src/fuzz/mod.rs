//! The functions of the fuzz targets in `fuzz/`. Each takes any bytes, and panics if a check fails.
//!
//! They are in this crate so that `cargo test` can replay the stored inputs in `tests/corpus` with a stable compiler
//! (`tests/tests/proofs/corpus.rs`). The meaning of a byte must not change, since stored inputs depend on it. Only byte values that have no
//! meaning yet may get one.

mod bridge;
mod endpoint;
mod envelope;
mod headers;
mod http_client;
mod http_server;
mod judge;
mod lines;
mod login;
mod pair;
mod session;
mod sse;

pub use bridge::bridge;
pub use endpoint::endpoint;
pub use envelope::envelope;
pub use headers::headers;
pub use http_client::http_client;
pub use http_server::http_server;
pub use lines::lines;
pub use login::login;
pub use pair::pair;
pub use session::session;
pub use sse::sse;

/// The function of a fuzz target.
pub type Target = fn(&[u8]);

/// Every target, under the name of its corpus.
pub const TARGETS: [(&str, Target); 11] = [
    ("bridge", bridge),
    ("endpoint", endpoint),
    ("envelope", envelope),
    ("headers", headers),
    ("http_client", http_client),
    ("http_server", http_server),
    ("lines", lines),
    ("login", login),
    ("pair", pair),
    ("session", session),
    ("sse", sse),
];

/// Splits off the first `COUNT` bytes. Missing bytes are zero.
fn head<const COUNT: usize>(data: &[u8]) -> ([u8; COUNT], &[u8]) {
    let mut head = [0; COUNT];
    let (chosen, rest) = data.split_at(COUNT.min(data.len()));
    head[..chosen.len()].copy_from_slice(chosen);
    (head, rest)
}
