//! The memory that a connection allocates for a long result or long arguments.

use allocation_counter::measure;
use programs::adapter::Adapter as _;
use programs::tokio::Tokio;
use tests::speed::payload::{Payload, Payloads};

/// The number of calls before counting starts, after which a connection has allocated all the memory that it keeps.
const BEFORE: u64 = 4;
/// The number of calls whose allocations are counted.
const COUNTED: u64 = 4;

/// The bytes that a number of calls allocate, at both ends.
fn allocated(payload: Payload, size: usize, calls: u64) -> u64 {
    let run = || {
        Tokio::run(Some(1), |adapter| async move {
            let payloads = Payloads::connect(&adapter).await;
            for _ in 0..calls {
                payloads.pass(payload, size).await.unwrap();
            }
        });
    };
    measure(run).bytes_total
}

#[test]
fn a_long_payload_allocates_little_more_than_the_values_made_from_it() {
    const SIZE: usize = 256 * 1024;
    for (payload, name) in Payload::ALL {
        // The first call makes the text, which is kept for the later ones.
        allocated(payload, SIZE, 1);
        let before = allocated(payload, SIZE, BEFORE);
        let each = (allocated(payload, SIZE, BEFORE + COUNTED) - before) as f64 / (COUNTED * SIZE as u64) as f64;
        // A string with escapes is decoded by serde_json into a buffer that is copied as it grows.
        let most = if payload == Payload::LinesTaken { 4.5 } else { 2.2 };
        assert!(each <= most, "{name}: {each} for each byte of text");
    }
}
