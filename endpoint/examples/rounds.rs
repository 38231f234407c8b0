//! Serves one request, or one whole call, of MCP 2026-07-28 many times, for `scripts/instructions --rounds`, which counts the instructions
//! for each.
//!
//!     rounds plain TIMES       a tool that asks for nothing
//!     rounds first TIMES       the first request of a tool that asks three times
//!     rounds last TIMES        the last retry of that tool, with two answers in its state and a third beside it; its handler runs again
//!     rounds whole TIMES       the whole call of that tool: four requests; its handler runs again for each retry
//!     rounds state             prints the length, in bytes, of the state in the last retry

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use endpoint::testing::Executor;
use endpoint::{Context, Endpoint, SealKeys, Service, Tool, ToolError};
use protocol_core::drive::Machine as _;
use protocol_core::{Json, Sample};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let times = |text: &str| text.parse::<usize>();
    let mut server = Server::new();
    match arguments.as_slice() {
        ["plain", text] => server.repeat(&request("plain", &json!({})), times(text)?),
        ["first", text] => server.repeat(&request("asks", &json!({})), times(text)?),
        ["last", text] => {
            let last = server.last_retry()?;
            server.repeat(&last, times(text)?)
        }
        ["whole", text] => {
            for _ in 0..times(text)? {
                let last = server.last_retry()?;
                server.serve(&last)?;
            }
            Ok(())
        }
        ["state"] => {
            let last = Json::parse(server.last_retry()?)?;
            let state = last.member("params").and_then(|params| params.member("requestState")).ok_or("no state")?;
            let quotes = 2;
            println!("{}", state.as_str().len().saturating_sub(quotes));
            Ok(())
        }
        _ => Err("usage: rounds plain|first|last|whole TIMES, or rounds state".into()),
    }
}

struct Server {
    endpoint: Endpoint,
    executor: Executor,
}

impl Server {
    fn new() -> Self {
        let plain = Tool::new("plain", async |_: Context, ()| Ok::<_, ToolError>("done"));
        let asks = Tool::new("asks", async |context: Context, ()| {
            let mut answers = String::new();
            for number in 1..=3 {
                answers.push_str(&context.sample(Sample::new(format!("question {number}"))).await?.text);
            }
            Ok::<_, ToolError>(answers)
        });
        let service = Service::new("s", "1").tool(plain).tool(asks).seal_keys(SealKeys::new([7; 32]));
        let executor = Executor::new();
        Self { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor }
    }

    /// The response to a request.
    fn serve(&mut self, request: &Bytes) -> Result<Bytes, Box<dyn Error>> {
        let now = self.executor.now();
        self.endpoint.handle_frame(request.clone(), now)?;
        while self.endpoint.poll_event().is_some() {}
        self.executor.run_until_stalled();
        self.endpoint.poll_transmit().map(|out| out.frame).ok_or_else(|| "no response".into())
    }

    fn repeat(&mut self, request: &Bytes, times: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..times {
            self.serve(request)?;
        }
        Ok(())
    }

    /// Serves a call of `asks` up to its last request, and returns that request: the retry with the third answer.
    fn last_retry(&mut self) -> Result<Bytes, Box<dyn Error>> {
        let mut next = request("asks", &json!({}));
        for _ in 0..3 {
            let response: Value = serde_json::from_slice(&self.serve(&next)?)?;
            let answer = json!({"role": "assistant", "content": {"type": "text", "text": "an answer"}, "model": "m"});
            let names = response["result"]["inputRequests"].as_object().ok_or("no input request")?.keys();
            let answers: serde_json::Map<String, Value> = names.map(|name| (name.clone(), answer.clone())).collect();
            next = request("asks", &json!({"inputResponses": answers, "requestState": response["result"]["requestState"]}));
        }
        Ok(next)
    }
}

/// A call of `tool`, with the members of `more` among its parameters.
fn request(tool: &str, more: &Value) -> Bytes {
    let mut params = json!({
        "name": tool,
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        },
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string().into()
}
