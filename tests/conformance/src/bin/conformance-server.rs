//! The server of the conformance suite, on tokio: `conformance-server [HOST:PORT]` serves over HTTP and prints its address;
//! `conformance-server --stdio` serves on standard input and output.

use std::error::Error;
use std::sync::Arc;

use adapter_tokio::{TokioRuntime, http_listen, serve, stdio};
use conformance::server;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let clock = Arc::new(TokioRuntime::start());
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
