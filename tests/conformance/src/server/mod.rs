//! The server that the conformance suite tests: tools, prompts and resources with the names and results that the suite expects.

mod asking;
mod catalog;
mod content;
mod prompts;
mod reporting;
mod resources;

use std::env;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use endpoint::{CompletionRequest, Context, Service, TimedRuntime};
use http_service::HttpService;
use protocol_core::Completion;

/// The service with everything that the suite uses.
#[must_use]
pub fn service() -> Service {
    let mut service = Service::new("conformance-server", env!("CARGO_PKG_VERSION"))
        .configure(|config| config.capabilities.logging = true)
        .completion(async |_: Context, _: CompletionRequest| Ok(Completion::all(["testValue1"])));
    let catalog = service.catalog();
    for tool in content::tools().into_iter().chain(reporting::tools()).chain(asking::tools()).chain(catalog::tools(&catalog)) {
        service = service.tool(tool);
    }
    for prompt in prompts::prompts() {
        service = service.prompt(prompt);
    }
    for resource in resources::resources() {
        service = service.resource(resource);
    }
    service.resource_template(resources::template())
}

/// Serves on the address in the command line, or on any free port, until the process is ended; with `--stdio`, on standard input and
/// output, until the client disconnects. `listen` opens the listener, and returns its address and a future that is pending as long as the
/// listener is open. `pipes` serves on standard input and output.
///
/// # Cancel safety
/// Cancel safe: dropping the future closes the listener, or the pipes.
///
/// # Errors
/// Those of `listen` and `pipes`.
pub async fn run<L, F, S, P, G>(runtime: Arc<dyn TimedRuntime>, listen: L, pipes: P) -> Result<(), Box<dyn Error>>
where
    L: FnOnce(String, HttpService) -> F,
    F: Future<Output = Result<(SocketAddr, S), Box<dyn Error>>>,
    S: Future<Output = ()>,
    P: FnOnce(Arc<Service>) -> G,
    G: Future<Output = Result<(), Box<dyn Error>>>,
{
    let service = Arc::new(service());
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    if address == "--stdio" {
        return pipes(service).await;
    }
    let (address, serving) = listen(address, HttpService::new(service, runtime)).await?;
    println!("http://{address}/mcp");
    serving.await;
    Ok(())
}
