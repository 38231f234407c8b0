//! A client of the example `notebook_server`: it answers what the server asks, shows a bar while a tool works, limits its time, cancels a
//! call, and connects again when the connection is lost. `notebook_client PROGRAM` starts the server, and `notebook_client URL` calls the
//! one at a URL. `tests/against/src/notebook_client.rs` is the same client by rmcp.

use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use sansmcp::http::HttpServerAddress;
use sansmcp::prelude::*;
use sansmcp::tokio::Connection;
use sansmcp::{BoxFuture, Capabilities, CompletionOf, Elicit, InputContext, Sample, SampleResult};
use serde_json::{Value, json};

/// The user and the model of this client, who have one answer each.
struct Canned;

impl Client for Canned {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.elicitation, capabilities.sampling) = (true, true);
        capabilities
    }

    fn elicit(&self, _: InputContext, form: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        println!("{}", form.message);
        Box::pin(async { Ok(ElicitResult::Accept(json!({ "words": 2 }).into())) })
    }

    fn sample(&self, _: InputContext, sample: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        println!("{}", sample.prompt);
        Box::pin(async { Ok(SampleResult::new("buy bread", "canned")) })
    }
}

/// A server that is connected again when its connection is lost.
struct Notebook {
    server: String,
    connection: Connection,
}

impl Notebook {
    async fn connect(server: String) -> Result<Self> {
        let mut pause = Duration::from_millis(100);
        loop {
            match open(&server).await {
                Ok(connection) => return Ok(Self { server, connection }),
                Err(error) if pause > Duration::from_secs(1) => return Err(error),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
    }

    /// Calls a tool, as often as its connection is lost.
    async fn call(&mut self, tool: &str, arguments: Value, cancels: bool) -> Result<String> {
        loop {
            match self.call_once(tool, arguments.clone(), cancels).await {
                Err(CallError::NotSent(_) | CallError::Lost(_) | CallError::Ended(Outcome::Lost)) => {
                    *self = Self::connect(self.server.clone()).await?;
                }
                ended => return Ok(ended?.text().to_string()),
            }
        }
    }

    /// Calls a tool, with a bar. Cancels the call at its first progress if `cancels` is `true`.
    async fn call_once(&self, tool: &str, arguments: Value, cancels: bool) -> Result<ToolResult, CallError> {
        let limits = CallTimeouts::default().with_idle(Some(Duration::from_secs(5))); // since the last progress
        let mut call = self.connection.peer().call(Invoke::call_tool(tool, arguments.into()).with_timeouts(limits))?;
        let bar = ProgressBar::no_length();
        while let Some(progress) = call.next_progress().await {
            let (done, total) = (progress.value.unwrap_or_default(), progress.total.unwrap_or_default());
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            if cancels {
                call.cancel(Some("that is enough"));
            }
        }
        bar.finish_and_clear();
        call.await.tool()
    }
}

async fn open(server: &str) -> Result<Connection> {
    let config = Config::mcp_client(Identity::new("notebook_client", "1.0"));
    let connection = if server.starts_with("http") {
        let address = HttpServerAddress::new(server).header("Authorization", "Bearer a-secret")?;
        sansmcp::tokio::http_connect(Arc::new(Canned), config, address)?
    } else {
        let child = sansmcp::tokio::child(tokio::process::Command::new(server))?;
        sansmcp::tokio::connect(Arc::new(Canned), config, child)
    };
    connection.peer().ready().await?;
    Ok(connection)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut notebook = Notebook::connect(std::env::args().nth(1).ok_or("usage: notebook_client PROGRAM|URL")?).await?;
    for (title, text) in [("shop", "buy two loaves of bread"), ("sport", "run"), ("tea", "drink tea")] {
        println!("{}", notebook.call("write", json!({ "title": title, "text": text }), false).await?);
    }
    println!("{}", notebook.call("count_words", json!({}), false).await?);
    if let Err(error) = notebook.call("count_words", json!({}), true).await {
        println!("{error}");
    }
    println!("{}", notebook.call("shorten", json!({ "title": "shop" }), false).await?);

    let peer = notebook.connection.peer();
    let titles = sansmcp::CompletionRequest::new(CompletionOf::Prompt("review".into()), "title", "s");
    let titles = peer.call(Invoke::complete(titles))?.await.result()?;
    println!("{}", titles.member("completion").and_then(|completion| completion.member("values")).unwrap_or_default());
    let prompt = peer.get_prompt("review", &[("title".into(), "shop".into())].into())?.await.result()?;
    println!("{}", prompt.decode::<Value>()?["messages"][0]["content"]["text"]);
    let note = peer.read_resource("note://shop")?.await.result()?;
    println!("{}", note.decode::<Value>()?["contents"][0]["text"]);

    peer.close(Close::Now); // as if the server had died
    println!("{}", notebook.call("write", json!({ "title": "late", "text": "again" }), false).await?);
    Ok(())
}
