//! A call that is cancelled by its caller, who keeps the part that was done. Server and client are connected in memory.

use std::sync::Arc;
use std::time::Duration;

use sansmcp::prelude::*;
use sansmcp::{PartialResult, RateWindow};

/// Copies files
#[tool]
async fn copy(
    context: Context,
    /// The files to copy.
    files: Vec<String>,
) -> Result<()> {
    let total = files.len() as u64;
    let mut partial = PartialResult::new(total);
    for file in files {
        context.sleep(Duration::from_millis(10)).await?; // the work
        partial.succeed(file);
        context.checkpoint(&partial);
        context.step(partial.done(), total);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::new("files", "1.0")
        .tool(copy().rate_window(RateWindow::UNLIMITED))
        // Nothing may follow a cancel, so the checkpoint goes with the progress before it.
        .configure(|config| config.progress.partial_on_progress = true);
    let (one, other) = sansmcp::tokio::duplex(64 * 1024);
    let _server = sansmcp::tokio::start(service, one);
    let client = sansmcp::tokio::connect(Arc::new(()), Config::mcp_client(Identity::new("client", "1.0")), other);

    let files: Vec<_> = (1..=1000).map(|file| format!("{file}.txt")).collect();
    let mut call = client.peer().call_tool_with("copy", &serde_json::json!({ "files": files }))?;
    // Usually from another task. Dropping `call` would cancel it as well, without its partial result.
    let canceller = call.canceller();
    while let Some(progress) = call.next_progress().await {
        if progress.value >= Some(3.0) {
            canceller.cancel(Some("that is enough"));
        }
    }
    let ended = call.await;
    let partial: PartialResult = ended.partial.ok_or("the server sent no checkpoint")?.decode()?;
    println!("{:?}, {} of {} files", ended.outcome, partial.processed, partial.total);
    Ok(())
}
