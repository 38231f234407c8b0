//! The server of the conformance suite, on smol: `smol-conformance-server [HOST:PORT]` prints the address that it serves.

use std::error::Error;
use std::sync::Arc;

use adapter_smol::{Clock, http_listen};
use conformance::server;

fn main() -> Result<(), Box<dyn Error>> {
    smol::block_on(async {
        let clock = Arc::new(Clock::start());
        server::run(clock, async |address, service| {
            let listener = http_listen(&address, service).await?;
            Ok((listener.local_addr(), async move { listener.closed().await }))
        })
        .await
    })
}
