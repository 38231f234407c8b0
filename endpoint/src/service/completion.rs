//! Completion: what an argument of a prompt or a variable of a resource template may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ToolError;
use crate::context::Context;
use engine::BoxFuture;
use protocol_core::dialect::Reply;
use protocol_core::error::RpcError;
use protocol_core::json::Json;

pub(crate) type Completer =
    Arc<dyn Fn(Context, CompletionRequest) -> BoxFuture<'static, Result<Completion, ToolError>> + Send + Sync>;

/// What shall be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// What the argument belongs to. It is registered with the service.
    pub of: CompletionOf,
    /// The argument's name.
    pub argument: String,
    /// What was typed so far.
    pub value: String,
    /// The arguments that are filled in already (2025-06-18 and later).
    pub context: BTreeMap<String, String>,
}

/// What a completed argument belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionOf {
    /// The prompt of this name.
    Prompt(String),
    /// The resource or resource template of this uri.
    Resource(String),
}

/// What an argument may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The best ones first. Of more than 100 the first 100 are sent, and the peer is told that there are more.
    pub values: Vec<String>,
    /// How many there are in all, if that is known.
    pub total: Option<u64>,
    /// Whether there are more than these.
    pub has_more: bool,
}

impl Completion {
    /// All there are.
    pub fn all<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), total: None, has_more: false }
    }
}

/// Values in one answer (MCP completion page).
const MOST: usize = 100;

/// Reads the parameters of a request for completion.
pub(crate) fn read(params: &Json) -> Result<CompletionRequest, RpcError> {
    #[derive(Deserialize)]
    struct Params {
        r#ref: Ref,
        argument: Argument,
        #[serde(default)]
        context: Option<Given>,
    }
    #[derive(Deserialize)]
    #[serde(tag = "type")]
    enum Ref {
        #[serde(rename = "ref/prompt")]
        Prompt { name: String },
        #[serde(rename = "ref/resource")]
        Resource { uri: String },
    }
    #[derive(Deserialize)]
    struct Argument {
        name: String,
        value: String,
    }
    #[derive(Default, Deserialize)]
    struct Given {
        #[serde(default)]
        arguments: Option<BTreeMap<String, String>>,
    }
    let params: Params =
        params.decode().map_err(|error| RpcError::invalid_params(format!("invalid completion request: {error}")))?;
    Ok(CompletionRequest {
        of: match params.r#ref {
            Ref::Prompt { name } => CompletionOf::Prompt(name),
            Ref::Resource { uri } => CompletionOf::Resource(uri),
        },
        argument: params.argument.name,
        value: params.argument.value,
        context: params.context.unwrap_or_default().arguments.unwrap_or_default(),
    })
}

pub(crate) async fn start(completer: Completer, context: Context, request: CompletionRequest) -> Reply {
    let completed = completer(context, request).await;
    completed.map_or_else(|error| error.into_reply(), |completion| Reply::Raw(encode(completion)))
}

fn encode(completion: Completion) -> Json {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown<'a> {
        values: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
        has_more: bool,
    }
    #[derive(Serialize)]
    struct Answer<'a> {
        completion: Shown<'a>,
    }
    let Completion { values, total, has_more } = completion;
    let cut = values.len() > MOST;
    let shown = Shown {
        values: values.get(..MOST).unwrap_or(&values),
        // What is cut off is known to be there, unless more is.
        total: total.or_else(|| (cut && !has_more).then_some(values.len() as u64)),
        has_more: has_more || cut,
    };
    Json::encode(&Answer { completion: shown }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_hundred_values_are_cut_and_said_to_be_more() {
        let many = Completion::all((0..150).map(|number| format!("v{number}")));
        let text = encode(many);
        let answer: serde_json::Value = text.decode().unwrap();
        assert_eq!(answer["completion"]["values"].as_array().map(Vec::len), Some(100));
        assert_eq!(answer["completion"]["total"], 150);
        assert_eq!(answer["completion"]["hasMore"], true);
        let few = encode(Completion::all(["a"]));
        assert_eq!(few.as_str(), r#"{"completion":{"values":["a"],"hasMore":false}}"#);
    }

    #[test]
    fn a_request_is_read_in_both_forms() {
        let prompt =
            Json::parse(r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"},"_meta":{}}"#).unwrap();
        assert_eq!(read(&prompt).unwrap().of, CompletionOf::Prompt("p".into()));
        let resource = r#"{"ref":{"type":"ref/resource","uri":"u://{a}"},"argument":{"name":"a","value":""},"context":{"arguments":{"b":"c"}}}"#;
        let request = read(&Json::parse(resource).unwrap()).unwrap();
        assert_eq!(request.of, CompletionOf::Resource("u://{a}".into()));
        assert_eq!(request.context.get("b").map(String::as_str), Some("c"));
        assert_eq!(read(&Json::empty_object()).unwrap_err().code, RpcError::INVALID_PARAMS);
    }
}
