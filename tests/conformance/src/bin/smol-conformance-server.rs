//! The server of the conformance suite, on smol: `smol-conformance-server [HOST:PORT]` prints the address that it serves,
//! `smol-conformance-server --stdio` serves on standard input and output.

use std::error::Error;
use std::sync::Arc;

use adapter_smol::{SmolRuntime, http_listen, serve, stdio};
use conformance::server;

fn main() -> Result<(), Box<dyn Error>> {
    smol::block_on(async {
        let clock = Arc::new(SmolRuntime::start());
        let listen = async |address: String, service| {
            let listener = http_listen(&address, service).await?;
            Ok((listener.local_addr(), async move { listener.closed().await }))
        };
        let pipes = async |service| {
            serve(service, stdio()).await?;
            Ok(())
        };
        server::run(clock, listen, pipes).await
    })
}
