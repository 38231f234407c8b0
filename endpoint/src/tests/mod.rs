//! Tests of the endpoint in virtual time, one file for each subject.

mod addresses;
mod calls;
mod cancel;
mod catalog;
mod early;
mod ends;
mod gate;
mod hooks;
mod inputs;
mod lanes;
mod lists;
mod local;
mod locks;
mod merge;
mod progress;
#[cfg(feature = "seal")]
mod rounds;
mod schemas;
mod stateless;
mod states;
mod subscriptions;
mod threads;
mod tools;
mod turns;
mod updates;

use core::time::Duration;

use serde_json::Value;

use crate::testing::{Harness, Run};
use crate::{Service, Tool};
use protocol_core::json::Json;

fn service() -> Service {
    Service::new("tested", "1")
}

fn harness(tool: Tool) -> Harness {
    Harness::new(service().tool(tool))
}

fn json(value: Value) -> Json {
    Json::encode(&value).unwrap()
}

fn value(json: &Json) -> Value {
    json.decode().unwrap()
}

/// Calls `tool` with the arguments `{}`, in a new [`Harness`].
fn run(tool: Tool) -> Run {
    let name = String::from(tool.name.as_str());
    harness(tool).call_tool(&name, Json::empty_object())
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The frames that a client of `revision` sends in the handshake.
fn hello(revision: &str) -> [String; 2] {
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"REVISION","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    [hello.replace("REVISION", revision), r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into()]
}

/// The answer of a server in the handshake.
const WELCOME: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
