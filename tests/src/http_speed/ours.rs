//! The server of this project, with handlers as users write them.

use std::process::ExitCode;
use std::sync::Arc;

use endpoint::{Context, Service, Tool};
use http_service::{ConnectionLimits, HttpService};
use programs::adapter::Adapter;
use protocol_core::RateWindow;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Report {
    count: u64,
}

pub(super) async fn run<A: Adapter>(adapter: A) -> ExitCode {
    let service = Service::new("bench", "1").tool(Tool::new("echo", async |_: Context, Echo { text }: Echo| Ok(text))).tool(
        Tool::new("report", async |context: Context, Report { count }: Report| {
            for step in 1..=count {
                context.step(step, count);
            }
            Ok("done")
        })
        .rate_window(RateWindow::UNLIMITED),
    );
    let service = HttpService::new(Arc::new(service), adapter.timed_runtime());
    let listener = adapter.http_listen("127.0.0.1:0".to_owned(), service, ConnectionLimits::default()).await.expect("a port");
    println!("{}", listener.local_addr());
    listener.closed().await;
    ExitCode::SUCCESS
}
