//! Serves one HTTP request many times, without a socket, for `scripts/instructions --http`, which counts the instructions for each.
//!
//!     requests stateless TIMES    a call of a tool without a handshake (MCP 2026-07-28), whose handler is a task
//!     requests inline TIMES       the same call, whose handler runs within the request
//!     requests refused TIMES      a request whose header contradicts its body

use std::error::Error;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use endpoint::testing::Executor;
use endpoint::{Context, Service, Tool, ToolError};
use http::Request;
use http_service::HttpService;

/// Arguments of `echo`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, times] = arguments.as_slice() else { return Err("usage: requests stateless|inline|refused TIMES".into()) };
    let (tool, mcp_name, status) = match kind.as_str() {
        "stateless" => ("echo", "echo", 200),
        "inline" => ("echo_inline", "echo_inline", 200),
        "refused" => ("echo", "another", 400),
        _ => return Err(format!("{kind} is not stateless, inline or refused").into()),
    };
    let echo = |name| Tool::new(name, async |_: Context, Echo { text }: Echo| Ok::<_, ToolError>(text));
    let service = Service::new("s", "1").tool(echo("echo")).tool(echo("echo_inline").inline());
    let executor = Executor::new();
    let service = HttpService::new(Arc::new(service), Arc::new(executor.clone()));
    let body = Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"hello"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}}}}}}}}"#
    ));
    for _ in 0..times.parse::<usize>()? {
        let request = Request::post("/mcp")
            .header("host", "127.0.0.1:8000")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", mcp_name)
            .body(body.clone())?;
        let mut response = Box::pin(service.respond(request));
        let mut cx = TaskContext::from_waker(Waker::noop());
        let mut response = loop {
            if let Poll::Ready(response) = response.as_mut().poll(&mut cx) {
                break response;
            }
            executor.run_until_stalled();
        };
        if response.status() != status {
            return Err(format!("the response has the status {}", response.status()).into());
        }
        let mut chunk = Box::pin(response.body_mut().next_chunk());
        while chunk.as_mut().poll(&mut cx).is_pending() {
            executor.run_until_stalled();
        }
    }
    Ok(())
}
