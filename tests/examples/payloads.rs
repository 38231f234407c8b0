//! The cost of large payloads, counted and not timed. `scripts/payloads` runs this program for each row of its table.
//!
//! ```text
//! cargo run --release -p tests --example payloads -- result-read 65536 9
//! ```
//!
//! This command makes four calls that are not counted and then nine that are, and prints the mean number of page faults of a counted call.
//! With the feature `count`, it prints the mean number of bytes that a counted call allocates.

use std::env;
use std::process::ExitCode;

use programs::adapter::Adapter as _;
use programs::tokio::Tokio;
use tests::speed::payload::{Payload, Payloads};

/// The number of calls that are made before counting starts. After them a connection has allocated all the memory that it keeps.
const BEFORE: u32 = 4;

fn main() -> ExitCode {
    let given: Vec<String> = env::args().skip(1).collect();
    let [name, size, calls] = given.as_slice() else { return usage() };
    let payload = Payload::ALL.iter().find(|(_, known)| known == name);
    let (Some((payload, _)), Ok(size), Ok(calls)) = (payload, size.parse(), calls.parse()) else { return usage() };
    match mean(*payload, size, calls) {
        Ok(mean) => println!("{mean:.0}"),
        Err(error) => println!("fails: {error}"),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let names: Vec<_> = Payload::ALL.iter().map(|(_, name)| *name).collect();
    eprintln!("payloads: give a payload, its bytes and a number of calls. There are these: {}", names.join(", "));
    ExitCode::FAILURE
}

/// Makes `calls` calls on a connection of their own, after [`BEFORE`] others, and returns the number of their page faults.
fn run(payload: Payload, size: usize, calls: u32) -> Result<f64, String> {
    Tokio::run(Some(1), |adapter| async move {
        let payloads = Payloads::connect(&adapter).await;
        for _ in 0..BEFORE {
            payloads.pass(payload, size).await?;
        }
        let before = faults();
        for _ in 0..calls {
            payloads.pass(payload, size).await?;
        }
        Ok(faults() - before)
    })
}

/// The number of minor page faults of this process so far.
fn faults() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The number is the eighth field after the name of the program, which stands in parentheses and may contain spaces.
    stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(7)?.parse().ok()).unwrap_or_default()
}

/// The mean number of page faults of a call, over `calls` calls.
#[cfg(not(feature = "count"))]
fn mean(payload: Payload, size: usize, calls: u32) -> Result<f64, String> {
    Ok(run(payload, size, calls)? / f64::from(calls))
}

/// The mean number of bytes that a call allocates, over `calls` calls.
#[cfg(feature = "count")]
fn mean(payload: Payload, size: usize, calls: u32) -> Result<f64, String> {
    let allocated = |calls| {
        let mut ended = Ok(0.0);
        let counted = allocation_counter::measure(|| ended = run(payload, size, calls));
        ended.map(|_| counted.bytes_total as f64)
    };
    // The first run makes the allocations that happen only once in a process.
    run(payload, size, 0)?;
    Ok((allocated(calls)? - allocated(0)?) / f64::from(calls))
}
