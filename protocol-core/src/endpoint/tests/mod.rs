//! How the endpoint behaves, in virtual time: one file a subject.

mod calls;
mod cancel;
mod early;
mod ends;
mod inputs;
mod lists;
mod locks;
mod progress;
mod threads;
mod tools;
mod turns;

use core::time::Duration;
use std::string::String;
use std::vec::Vec;

use serde_json::Value;

use crate::dialect::Identity;
use crate::endpoint::testing::{Harness, Run};
use crate::endpoint::{Service, Tool};
use crate::json::Json;

fn service() -> Service {
    Service::new(Identity::new("tested", "1"))
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

/// Calls `tool` with `{}`.
fn run(tool: Tool) -> Run {
    let name = String::from(tool.name.as_str());
    harness(tool).call_tool(&name, Json::empty_object())
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn names(list: &[Json], key: &str) -> Vec<String> {
    list.iter().map(|entry| value(entry)[key].as_str().unwrap().into()).collect()
}
