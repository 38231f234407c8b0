//! A client that shows a bar while a tool works: `bar SERVER`, where `SERVER` is the example `stdio_server`.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use sansmcp::prelude::*;
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args_os().nth(1).ok_or("usage: bar SERVER")?;
    let config = Config::mcp_client(Identity::new("bar", "1.0"));
    let connection = sansmcp::tokio::connect(Arc::new(()), config, sansmcp::tokio::child(Command::new(server))?);

    let bar = ProgressBar::no_length().with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left")?);
    let text = "A line of a long text.\n".repeat(100);
    let mut call = connection.peer().call_tool_with("count_words", &serde_json::json!({ "text": text }))?;
    let mut updates = 0;
    while let Some(progress) = call.next_progress().await {
        updates += 1;
        if let (Some(value), Some(total)) = (progress.value, progress.total) {
            bar.set_length(total as u64);
            bar.set_position(value as u64);
        }
        if let Some(message) = progress.message {
            bar.set_message(message.to_string());
        }
    }
    bar.finish_and_clear();
    println!("{} after {updates} updates", call.await.tool()?.text());
    Ok(())
}
