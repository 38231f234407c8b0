//! How fast both adapters are, side by side. `cargo bench -p tests`.

use std::time::Duration;

use tests::adapter::Adapter;
use tests::speed::{self, Speed};

#[path = "../../adapter-smol/examples/glue/mod.rs"]
mod smol_glue;
#[path = "../../adapter-tokio/examples/glue/mod.rs"]
mod tokio_glue;

use smol_glue::Smol;
use tokio_glue::Tokio;

/// How long each number is measured.
const SPAN: Duration = Duration::from_secs(2);

/// Bytes alive at the same time, at most. One thread counts, and it is the one that everything runs on.
fn most_bytes(work: impl FnOnce()) -> f64 {
    allocation_counter::measure(work).bytes_max as f64
}

/// Of what an idle connection holds, and one more call in flight: both ends, in bytes.
fn memory<A: Adapter>() -> [f64; 2] {
    speed::hold::<A>(1, 1);
    let held = |connections, calls| most_bytes(|| speed::hold::<A>(connections, calls));
    [(held(300, 0) - held(100, 0)) / 200.0, (held(1, 900) - held(1, 300)) / 600.0]
}

fn rows(over: &str, tokio: Speed, smol: Speed) {
    let row = |what: &str, tokio: f64, smol: f64| println!("{over:<12} {what:<40} {tokio:>12.0} {smol:>12.0}");
    row("round trips/s, one at a time", tokio.one_at_a_time, smol.one_at_a_time);
    row("round trips/s, 256 at once", tokio.together, smol.together);
    row("progress notifications/s", tokio.progress, smol.progress);
}

fn main() {
    if speed::serve_if_child::<Tokio>() || speed::serve_if_child::<Smol>() {
        return;
    }
    println!("{:<12} {:<40} {:>12} {:>12}", "", "", "tokio", "smol");
    rows("duplex", speed::over_duplex::<Tokio>(SPAN), speed::over_duplex::<Smol>(SPAN));
    rows("child stdio", speed::over_child_stdio::<Tokio>(SPAN), speed::over_child_stdio::<Smol>(SPAN));
    let (tokio, smol) = (memory::<Tokio>(), memory::<Smol>());
    for (at, what) in ["bytes of an idle connection, both ends", "bytes of one more call, both ends"].into_iter().enumerate() {
        println!("{:<12} {what:<40} {:>12.0} {:>12.0}", "duplex", tokio[at], smol[at]);
    }
}
