//! Translates requests and replies between the two protocols.

use alloc::string::String;
use alloc::vec::Vec;

use protocol_core::dialect::depth_data;
use protocol_core::dialect::tesseron::code;
use protocol_core::dialect::{Blocks, Content, InputRequest, InputResponse, Progress, Reply, SampleResult, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::read::{Kind, for_each_member, member, string};
use protocol_core::json::write::{Object, pretty, push_json, write_integer};
use protocol_core::json::{Json, Text};
use protocol_core::session::{AskError, InboundId, InputFailed, Outcome, SendError};

/// The purpose of a call to an app.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A call of a tool by the agent.
    Tool(InboundId),
    /// A request of the agent to read a resource.
    Resource { invocation: InboundId, uri: Text },
    /// A call of the bridge's tool that reads a resource.
    ResourceText(InboundId),
    /// A subscription of the agent, under this name at the app. Another subscription may have replaced it under the same URI meanwhile.
    Subscribe { uri: Text, name: Text },
    /// The renewal, or the end, of a subscription that the agent had when the app disconnected.
    Renew { uri: Text, name: Text },
    /// The end of a subscription, for which no request of the agent waits.
    Unsubscribe,
}

impl Purpose {
    /// The agent's call that this call serves, if it serves exactly one.
    pub(super) fn invocation(&self) -> Option<InboundId> {
        match self {
            Self::Tool(id) | Self::Resource { invocation: id, .. } | Self::ResourceText(id) => Some(*id),
            Self::Subscribe { .. } | Self::Renew { .. } | Self::Unsubscribe => None,
        }
    }

    pub(super) fn is_renewal(&self) -> bool {
        matches!(self, Self::Renew { .. })
    }
}

/// The outcome of an action, as the result of a tool. `partial` and `last` are the partial result and the last progress.
pub(super) fn tool(outcome: Outcome, partial: Option<Json>, last: Option<&Progress>) -> Reply {
    match value(outcome, "output") {
        Ok(output) => Reply::Tool(shown(&output)),
        Err(error) => Reply::Tool(failed(&error, partial, last)),
    }
}

/// Translates the output of an action. Blocks of content stay blocks, a string becomes text, and anything else becomes JSON as text.
fn shown(output: &Json) -> ToolOutput {
    if let Some(text) = output.as_text_lossy() {
        return ToolOutput::text(text);
    }
    if let Some(blocks) = blocks(output) {
        let mut shown = ToolOutput::default();
        shown.content = blocks;
        return shown;
    }
    ToolOutput::text(pretty(output.as_str()))
}

/// The blocks of an output that consists only of blocks: `{"content":[{"type":..}, ..]}`.
fn blocks(output: &Json) -> Option<Blocks> {
    let mut content = None;
    let mut only = true;
    for_each_member(output.as_bytes(), |name, value| match name {
        "content" => content = Some(Kind::of(value)),
        _ => only = false,
    });
    content.filter(|kind| only && *kind == Kind::Array)?;
    let all: Vec<Json> = output.member("content")?.elements().collect();
    let is_block = |block: &Json| {
        let kind = member(block.as_bytes(), "type").and_then(string);
        kind.is_some_and(|kind| matches!(&*kind, "text" | "image" | "audio" | "resource" | "resource_link"))
    };
    all.iter().all(is_block).then(|| all.into_iter().map(Content::Raw).collect())
}

/// The result of a tool that failed, with the code and the data of its error. If the error has no data, the data is the partial result. If
/// the call was lost, the last progress is included.
fn failed(error: &RpcError, partial: Option<Json>, last: Option<&Progress>) -> ToolOutput {
    let mut details = Vec::new();
    Object::write(&mut details, |object| {
        write_integer(object.member("code"), error.code);
        if let Some(data) = &error.data {
            object.json("data", data);
        } else if let Some(partial) = &partial {
            object.object("data", |object| object.json("partial", partial));
        }
        if let (code::TRANSPORT_CLOSED, Some(percent)) = (error.code, last.and_then(|last| last.value)) {
            object.number("progress", percent);
        }
    });
    let details = Json::written(details);
    let mut text = String::from(error.message.as_str());
    text.push('\n');
    text.push_str(&pretty(details.as_str()));
    let mut output = ToolOutput::error(text);
    output.structured = Some(details);
    output
}

/// The member `name` of a result, or the error of the call.
fn value(outcome: Outcome, name: &str) -> Result<Json, RpcError> {
    match outcome {
        // The output may be missing (Tesseron specification, page "Actions").
        Outcome::Result(result) => Ok(result.member(name).unwrap_or_else(Json::null)),
        Outcome::Error(error) => Err(error),
        Outcome::TimedOut(_) => Err(RpcError::fixed(code::TIMEOUT, "Action timed out.")),
        Outcome::Lost | Outcome::Cancelled => Err(RpcError::fixed(code::TRANSPORT_CLOSED, "Transport closed: the app is gone")),
        _ => Err(RpcError::fixed(RpcError::INTERNAL, "the response of the app is not a valid result")),
    }
}

/// The error for a call that could not be made at an app.
pub(super) fn not_started(error: SendError) -> RpcError {
    let code = match error {
        SendError::Full => RpcError::BUSY,
        SendError::Closing => code::TRANSPORT_CLOSED,
        SendError::NotReady => code::UNAUTHORIZED,
        SendError::Unsupported => RpcError::METHOD_NOT_FOUND,
        _ => RpcError::INTERNAL,
    };
    RpcError::new(code, alloc::format!("the app cannot be asked: {error}"))
}

/// The reply to the agent's request to read a resource: the value of the resource, as MCP contents.
pub(super) fn resource(outcome: Outcome, uri: &str) -> Reply {
    match value(outcome, "value") {
        Ok(value) => {
            let (text, mime) = as_text(&value);
            let mut out = Vec::new();
            out.push(b'[');
            Object::write(&mut out, |object| {
                object.string("uri", uri);
                object.string("mimeType", mime);
                object.string("text", &text);
            });
            out.push(b']');
            Reply::Contents(Json::written(out))
        }
        Err(error) => error_reply(error),
    }
}

/// An error of an app, as the reply to a request of the agent other than a tool call.
///
/// An MCP error that lists URLs to open is replaced, since Tesseron has no such error and the URLs would appear to come from the gateway.
pub(super) fn error_reply(error: RpcError) -> Reply {
    Reply::Error(match error.code {
        RpcError::URL_ELICITATION_REQUIRED => RpcError::internal(error.message),
        _ => error,
    })
}

/// The value of a resource as the result of a tool.
pub(super) fn resource_text(outcome: Outcome) -> Reply {
    Reply::Tool(match value(outcome, "value") {
        Ok(value) => ToolOutput::text(as_text(&value).0),
        Err(error) => failed(&error, None, None),
    })
}

fn as_text(value: &Json) -> (Text, &'static str) {
    value.as_text_lossy().map_or_else(|| (value.as_str().into(), "application/json"), |text| (text, "text/plain"))
}

/// Translates an input request of an app for the agent. Drops the exact parameters of a sampling request (`Sample::params`), since they
/// have the form of Tesseron.
pub(super) fn ask(ask: InputRequest) -> InputRequest {
    match ask {
        InputRequest::Sample(mut sample) => {
            sample.params = None;
            InputRequest::Sample(sample)
        }
        ask => ask,
    }
}

/// The code of the error that is sent to an app if the agent does not support its input request.
pub(super) fn unavailable(ask: &InputRequest) -> i64 {
    if matches!(ask, InputRequest::Sample(_)) { code::SAMPLING_NOT_AVAILABLE } else { code::ELICITATION_NOT_AVAILABLE }
}

fn not_offered(unavailable: i64, client: &str) -> RpcError {
    let mut data = Vec::new();
    Object::write(&mut data, |object| object.string("clientName", client));
    RpcError::fixed(unavailable, "the agent does not support this input request").with_data(Json::written(data))
}

/// The error for an input request of an app that could not be sent to the agent.
pub(super) fn not_asked(error: &AskError, unavailable: i64, client: &str) -> RpcError {
    match error {
        AskError::TooDeep { depth, max } => {
            RpcError::fixed(code::SAMPLING_TOO_DEEP, "sampling is nested too deep").with_data(depth_data(*depth, *max))
        }
        AskError::Unsupported => not_offered(unavailable, client),
        AskError::Invalid(why) => RpcError::new(RpcError::INVALID_PARAMS, why.clone()),
        other => RpcError::internal(alloc::string::ToString::to_string(other)),
    }
}

/// Translates the agent's answer into the app's protocol.
pub(super) fn answer(answer: Result<InputResponse, InputFailed>, unavailable: i64, client: &str) -> InputResponse {
    let internal_error = |why: &'static str| InputResponse::Refused(RpcError::fixed(RpcError::INTERNAL, why));
    match answer {
        Ok(InputResponse::Sample(sampled)) => InputResponse::Sample(SampleResult::new(sampled.text, sampled.model)),
        Ok(answer) => answer,
        // The codes of MCP have other meanings on Tesseron, so they are not passed on.
        Err(InputFailed::Refused(error)) => InputResponse::Refused(if error.code == RpcError::METHOD_NOT_FOUND {
            not_offered(unavailable, client)
        } else {
            let message = alloc::format!("MCP error {}: {}", error.code, error.message);
            let mut translated = RpcError::internal(message);
            translated.data = error.data;
            translated
        }),
        Err(InputFailed::Invalid(why)) => {
            InputResponse::Refused(RpcError::new(RpcError::INTERNAL, alloc::format!("the agent's answer does not fit: {why}")))
        }
        Err(InputFailed::TimedOut) => internal_error("the agent did not answer in time"),
        Err(_) => internal_error("the agent is gone"),
    }
}

/// An object with an array whose elements `each` writes.
pub(super) fn list<T>(name: &'static str, items: impl IntoIterator<Item = T>, each: impl Fn(&mut Vec<u8>, T)) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| object.array(name, items, each));
    Json::written(out)
}

/// Adds a member whose value is the JSON text `value`.
pub(super) fn copy(object: &mut Object<'_>, name: &'static str, value: &[u8]) {
    push_json(object.member(name), value);
}
