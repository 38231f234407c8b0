//! A tool that asks its user for a form to be filled in, and a client that asks on the terminal. Both are connected in memory.

use std::io::Write;
use std::sync::Arc;

use sansmcp::prelude::*;
use sansmcp::{BoxFuture, Capabilities, Elicit, InputContext};

#[args]
struct NewName {
    /// The name without its ending.
    name: String,
}

/// Renames a file
#[tool]
async fn rename(
    context: Context,
    /// The file to rename.
    file: String,
) -> Result<String> {
    Ok(match context.elicit_typed(format!("The new name of {file}? ")).await? {
        Some(NewName { name }) => format!("renamed to {name}"),
        None => format!("{file} keeps its name"),
    })
}

/// The person at the terminal.
struct Person;

impl Client for Person {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.elicitation = true;
        capabilities
    }

    fn elicit(&self, _: InputContext, form: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        let ask = move || {
            print!("{}", form.message);
            std::io::stdout().flush()?;
            std::io::stdin().lines().next().transpose()
        };
        Box::pin(async move {
            let line = tokio::task::spawn_blocking(ask).await.ok().and_then(Result::ok).flatten();
            Ok(match line.as_deref() {
                None => ElicitResult::Cancel,
                Some("") => ElicitResult::Decline,
                Some(name) => ElicitResult::Accept(serde_json::json!({ "name": name }).into()),
            })
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::new("files", "1.0").tool(rename());
    let (one, other) = sansmcp::tokio::duplex(4096);
    let _server = sansmcp::tokio::start(service, one);
    let client = sansmcp::tokio::connect(Arc::new(Person), Config::mcp_client(Identity::new("client", "1.0")), other);
    let result = client.peer().call_tool_with("rename", &serde_json::json!({ "file": "a.txt" }))?.await.tool()?;
    println!("{}", result.text());
    Ok(())
}
