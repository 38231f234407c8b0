//! A client that starts a server, lists its tools, and calls one: `client SERVER`, where `SERVER` is the example `stdio_server`.

use std::sync::Arc;
use std::time::Duration;

use sansmcp::prelude::*;
use tokio::process::Command;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Words {
    words: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args_os().nth(1).ok_or("usage: client SERVER")?;
    let config = Config::mcp_client(Identity::new("client", "1.0"));
    // `()` answers no questions of the server: see the example `questions`.
    let connection = sansmcp::tokio::connect(Arc::new(()), config, sansmcp::tokio::child(Command::new(server))?);
    let peer = connection.peer();

    for tool in peer.list_tools().await? {
        println!("{}: {}", tool.name, tool.description.unwrap_or_default());
    }
    let Words { words } = peer.call_tool_as("count_words", &serde_json::json!({ "text": "one two\nthree" })).await?;
    println!("{words} words");

    // The input of the server ends, and the server with it.
    peer.close(Close::Graceful { grace: Duration::from_secs(5) });
    connection.await?;
    Ok(())
}
