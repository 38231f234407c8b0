//! The client of the conformance suite, on smol: `smol-conformance-client URL`. The suite names the scenario in the environment.

use std::error::Error;

use adapter_smol::{HttpServerAddress, http_connect};
use conformance::client;

fn main() -> Result<(), Box<dyn Error>> {
    smol::block_on(client::run(|client, config, url| {
        let connection = http_connect(client, config, HttpServerAddress::new(url))?;
        Ok((connection.peer(), async { drop(connection.await) }))
    }))
}
