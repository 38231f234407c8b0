//! Between the words of the two protocols, where they are not the same.

use alloc::string::String;
use alloc::vec::Vec;

use protocol_core::dialect::depth_data;
use protocol_core::dialect::tesseron::code;
use protocol_core::dialect::{Answer, Ask, Blocks, Content, Progress, Reply, Sampled, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::read::{Kind, for_each_member, member, string};
use protocol_core::json::write::{Object, pretty, push_json, write_integer};
use protocol_core::json::{Json, Text};
use protocol_core::session::{AskError, InboundId, InputFailed, Outcome, Refused};

/// Why something is asked of an app.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A tool of the agent's.
    Tool(InboundId),
    /// A resource that the agent reads.
    Resource { invocation: InboundId, uri: Text },
    /// A resource that the agent reads by a tool.
    ResourceText(InboundId),
    /// A subscription of the agent's, which knows who waits; it may be another one by now.
    Subscribe { uri: Text, name: Text },
    /// A subscription that the agent had when the app went: it is asked for again, or taken back.
    Renew { uri: Text, name: Text },
    /// No request waits.
    Unsubscribe,
}

impl Purpose {
    /// The one invocation of the agent that waits for it.
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

/// The end of an action, as the result of a tool. `partial` and `last` are what was done before it failed.
pub(super) fn tool(outcome: Outcome, partial: Option<Json>, last: Option<&Progress>) -> Reply {
    match value(outcome, "output") {
        Ok(output) => Reply::Tool(shown(&output)),
        Err(error) => Reply::Tool(failed(&error, partial, last)),
    }
}

/// Translates the result of an app's tool. Blocks of content stay blocks, one text stays as it is, anything else is shown as JSON.
fn shown(output: &Json) -> ToolOutput {
    if let Some(text) = output.as_text() {
        return ToolOutput::text(text);
    }
    if let Some(blocks) = blocks(output) {
        let mut shown = ToolOutput::default();
        shown.content = blocks;
        return shown;
    }
    ToolOutput::text(pretty(output.as_str()))
}

/// The blocks of an output that consists of nothing else: `{"content":[{"type":..}, ..]}`.
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

/// A failure that says its number and its data to people and to programs, with what was done before.
fn failed(error: &RpcError, partial: Option<Json>, last: Option<&Progress>) -> ToolOutput {
    let mut said = Vec::new();
    Object::write(&mut said, |object| {
        write_integer(object.member("code"), error.code);
        if let Some(data) = &error.data {
            object.json("data", data);
        } else if let Some(partial) = &partial {
            object.object("data", |object| object.json("partial", partial));
        }
        // A call that was lost has told how far it was.
        if let (code::TRANSPORT_CLOSED, Some(percent)) = (error.code, last.and_then(|last| last.value)) {
            object.number("progress", percent);
        }
    });
    let said = Json::written(said);
    let mut text = String::from(error.message.as_str());
    text.push('\n');
    text.push_str(&pretty(said.as_str()));
    let mut output = ToolOutput::error(text);
    output.structured = Some(said);
    output
}

/// The member of a result that holds what was asked for, or why there is none.
fn value(outcome: Outcome, name: &str) -> Result<Json, RpcError> {
    match outcome {
        // A missing output is none (actions page).
        Outcome::Result(result) => Ok(result.member(name).unwrap_or_else(Json::null)),
        Outcome::Error(error) => Err(error),
        Outcome::TimedOut(_) => Err(RpcError::fixed(code::TIMEOUT, "Action timed out.")),
        Outcome::Lost | Outcome::Cancelled => Err(RpcError::fixed(code::TRANSPORT_CLOSED, "Transport closed: the app is gone")),
        _ => Err(RpcError::fixed(RpcError::INTERNAL, "the app answered with something that is no result")),
    }
}

/// Why something was not asked of an app.
pub(super) fn not_started(refused: Refused) -> RpcError {
    let code = match refused {
        Refused::Full => RpcError::BUSY,
        Refused::Closing => code::TRANSPORT_CLOSED,
        Refused::NotReady => code::UNAUTHORIZED,
        Refused::Unsupported => RpcError::METHOD_NOT_FOUND,
        _ => RpcError::INTERNAL,
    };
    RpcError::new(code, alloc::format!("the app cannot be asked: {refused}"))
}

/// The value of a resource as its contents.
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
        Err(error) => refusal(error),
    }
}

/// An error of an app, as it answers a request of the agent's that is no call of a tool.
///
/// Tesseron has no addresses to open, so the error of MCP that brings some is none of the app's: they would be opened in the name of the
/// gateway.
pub(super) fn refusal(error: RpcError) -> Reply {
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
    value.as_text().map_or_else(|| (value.as_str().into(), "application/json"), |text| (text, "text/plain"))
}

/// A question of an app in the words of the agent's protocol: what stood on the wire does not cross.
pub(super) fn ask(ask: Ask) -> Ask {
    match ask {
        Ask::Sample(mut sample) => {
            sample.params = None;
            Ask::Sample(sample)
        }
        ask => ask,
    }
}

/// The code of the error that an app is sent when the agent cannot be asked this.
pub(super) fn unavailable(ask: &Ask) -> i64 {
    if matches!(ask, Ask::Sample(_)) { code::SAMPLING_NOT_AVAILABLE } else { code::ELICITATION_NOT_AVAILABLE }
}

fn not_offered(unavailable: i64, client: &str) -> RpcError {
    let mut data = Vec::new();
    Object::write(&mut data, |object| object.string("clientName", client));
    RpcError::fixed(unavailable, "the agent does not offer this").with_data(Json::written(data))
}

/// Why a question of an app did not reach the agent.
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
pub(super) fn answer(answer: Result<Answer, InputFailed>, unavailable: i64, client: &str) -> Answer {
    let failed = |why: &'static str| Answer::Refused(RpcError::fixed(RpcError::INTERNAL, why));
    match answer {
        Ok(Answer::Sample(sampled)) => Answer::Sample(Sampled::new(sampled.text, sampled.model)),
        Ok(answer) => answer,
        // Numbers mean other things there.
        Err(InputFailed::Refused(error)) => Answer::Refused(if error.code == RpcError::METHOD_NOT_FOUND {
            not_offered(unavailable, client)
        } else {
            let message = alloc::format!("MCP error {}: {}", error.code, error.message);
            RpcError { code: RpcError::INTERNAL, message: message.into(), data: error.data }
        }),
        Err(InputFailed::Invalid(why)) => {
            Answer::Refused(RpcError::new(RpcError::INTERNAL, alloc::format!("the agent's answer does not fit: {why}")))
        }
        Err(InputFailed::TimedOut) => failed("the agent did not answer in time"),
        Err(_) => failed("the agent is gone"),
    }
}

/// An array whose elements are written by `each`.
pub(super) fn list<T>(name: &'static str, items: impl IntoIterator<Item = T>, each: impl Fn(&mut Vec<u8>, T)) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| object.array(name, items, each));
    Json::written(out)
}

/// Copies JSON that stands somewhere else.
pub(super) fn copy(object: &mut Object<'_>, name: &'static str, value: &[u8]) {
    push_json(object.member(name), value);
}
