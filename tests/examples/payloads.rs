//! The cost of large payloads, counted and not timed. `scripts/payloads` runs it for each row of its table.
//!
//! ```text
//! cargo run --release -p tests --example payloads -- result-read 65536 9
//! ```
//!
//! This makes four calls that are not counted and then nine others, and prints the mean number of page faults of one of the nine. With the
//! feature `count`, it prints the mean number of bytes that a call allocates.

use std::env;
use std::process::ExitCode;

use programs::adapter::Adapter as _;
use programs::tokio::Tokio;
use tests::speed::payload::{Payload, Payloads};

/// The number of calls that are made before counting starts. After them a connection has allocated all the memory that it keeps.
const BEFORE: u32 = 4;

fn main() -> ExitCode {
    let given: Vec<String> = env::args().skip(1).collect();
    let [name, size, turns] = given.as_slice() else { return usage() };
    let payload = Payload::ALL.iter().find(|(_, known)| known == name);
    let (Some((payload, _)), Ok(size), Ok(turns)) = (payload, size.parse(), turns.parse()) else { return usage() };
    match each(*payload, size, turns) {
        Ok(each) => println!("{each:.0}"),
        Err(error) => println!("fails: {error}"),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let names: Vec<_> = Payload::ALL.iter().map(|(_, name)| *name).collect();
    eprintln!("payloads: give a payload, its bytes and a number of calls. There are these: {}", names.join(", "));
    ExitCode::FAILURE
}

/// Makes `turns` calls on a connection of their own, after [`BEFORE`] others, and returns the number of their page faults.
fn run(payload: Payload, size: usize, turns: u32) -> Result<f64, String> {
    Tokio::run(Some(1), |adapter| async move {
        let payloads = Payloads::connect(&adapter).await;
        for _ in 0..BEFORE {
            payloads.pass(payload, size).await?;
        }
        let before = faults();
        for _ in 0..turns {
            payloads.pass(payload, size).await?;
        }
        Ok(faults() - before)
    })
}

/// The number of minor page faults of this process so far.
fn faults() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields are counted after the name of the program, which may contain spaces.
    stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(7)?.parse().ok()).unwrap_or_default()
}

/// The mean number of page faults of `turns` calls.
#[cfg(not(feature = "count"))]
fn each(payload: Payload, size: usize, turns: u32) -> Result<f64, String> {
    Ok(run(payload, size, turns)? / f64::from(turns))
}

/// The mean number of bytes that each of `turns` calls allocates.
#[cfg(feature = "count")]
fn each(payload: Payload, size: usize, turns: u32) -> Result<f64, String> {
    let allocated = |turns| {
        let mut ended = Ok(0.0);
        let counted = allocation_counter::measure(|| ended = run(payload, size, turns));
        ended.map(|_| counted.bytes_total as f64)
    };
    // The first run makes the allocations that happen only once in a process.
    run(payload, size, 0)?;
    Ok((allocated(turns)? - allocated(0)?) / f64::from(turns))
}
