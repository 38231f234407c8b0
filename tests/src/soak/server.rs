//! The server: a service over HTTP, with a tool that returns the numbers of its sessions and exchanges.

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use endpoint::{Context, Service, Tool};
use http_service::{ConnectionLimits, HttpServerConfig, HttpService};
use programs::adapter::Adapter;
use protocol_core::{Identity, Progress};
use serde_json::json;

pub(super) async fn run<A: Adapter>(adapter: A) -> ExitCode {
    let own = Arc::new(OnceLock::<HttpService>::new());
    let counted = Arc::clone(&own);
    let count = Tool::new("count", move |_: Context, (): ()| {
        let counts = counted.get().map(|service| json!({"sessions": service.sessions(), "exchanges": service.exchanges()}));
        async move { Ok(counts.unwrap_or_default()) }
    });
    let mut service = Service::new(Identity::new("soak", "1"))
        .tool(Tool::new("quick", async |_: Context, (): ()| Ok("done")))
        .tool(count)
        .tool(Tool::new("steps", async |context: Context, (): ()| {
            for step in 1..=5 {
                context.progress(Progress::count(step, 5));
                context.sleep(Duration::from_millis(20)).await?;
            }
            Ok("done")
        }))
        .tool(Tool::new("ask", async |context: Context, (): ()| Ok(context.confirm("Go on?").key("go").await)))
        .tool(Tool::new("stuck", async |context: Context, (): ()| {
            context.progress(Progress::count(1, 2));
            context.cancelled().await;
            Ok("cancelled")
        }));
    // With a catalog the service declares that its lists may change, so that clients can subscribe.
    let _catalog = service.catalog();
    let mut config = HttpServerConfig::default();
    config.limits.subscriptions = 20_000;
    config.limits.sessions = 20_000;
    config.limits.exchanges = 40_000;
    let mut limits = ConnectionLimits::default();
    limits.connections = 19_000;
    let service = HttpService::with_config(Arc::new(service), adapter.timed_runtime(), config);
    let _ = own.set(service.clone());
    match adapter.http_listen("127.0.0.1:0".to_owned(), service, limits).await {
        Ok(listener) => {
            println!("{}", listener.local_addr());
            listener.closed().await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
