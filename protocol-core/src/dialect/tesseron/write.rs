//! Writing messages as frames of Tesseron.

use alloc::string::String;
use alloc::vec::Vec;

use super::{App, ClaimState, Tesseron, VERSION, Welcome, code, invocation_name, method_of};
use crate::dialect::checkpoint::{with_partial, with_status};
use crate::dialect::depth_data;
use crate::dialect::form::confirmation;
use crate::dialect::{
    Content, CutShort, EarlyMessage, ElicitResult, Identity, InputRequest, InputResponse, Level, LocalEnd, LogRecord, NotFound,
    Notification, Op, Outgoing, Parts, Progress, Reply, SampleResult, ToolOutput,
};
use crate::error::RpcError;
use crate::json::read::{Kind, elements, for_each_key, member, string};
use crate::json::write::{Object, push_json, write_string};
use crate::json::{Json, Text};
use crate::wire::{FrameBuffer, WireId, WrittenFrame};

impl Tesseron {
    // ---- The handshake ----

    pub(crate) fn write_handshake_request(self, frames: &mut FrameBuffer, id: u64, local: &LocalEnd<'_>) -> WrittenFrame {
        let Some(app) = local.app() else { return frames.no_frame() };
        let hint = app.actions.as_bytes().len().saturating_add(app.resources.as_bytes().len()).saturating_add(512);
        frames.request(id, app.handshake_method(), hint, |out| Object::write(out, |object| write_hello(object, app, local)))
    }

    pub(crate) fn write_claimed(self, frames: &mut FrameBuffer, at_millis: u64, local: &LocalEnd<'_>) -> WrittenFrame {
        let own = local.capabilities;
        frames.notify("tesseron/claimed", |object| {
            write_agent(object, local.identity);
            object.integer("claimedAt", at_millis);
            write_capabilities(object, "agentCapabilities", true, own.sampling, own.elicitation);
        })
    }

    /// The `result` for a handshake request that is accepted.
    pub(crate) fn welcome(self, welcome: &Welcome, local: &LocalEnd<'_>) -> Json {
        welcomed(welcome, local)
    }

    // ---- As a caller ----

    pub(crate) fn write_call(self, frames: &mut FrameBuffer, id: u64, call: &Outgoing) -> WrittenFrame {
        let method = call.custom_method().unwrap_or_else(|| method_of(call.op));
        frames.request(id, method, call.hint(), |out| match &call.parts {
            Parts::Exact(params) if call.op == Op::CallTool => Object::write(out, |object| {
                for_each_key(params.as_bytes(), |key, value| {
                    if key.name() != "invocationId" {
                        object.copy(key, value);
                    }
                });
                object.string("invocationId", &invocation_name(id));
            }),
            Parts::Exact(params) | Parts::Custom { params, .. } => push_json(out, params.as_bytes()),
            parts => Object::write(out, |object| match parts {
                Parts::Named { name, arguments } => {
                    object.text("name", name);
                    object.json("input", arguments);
                    object.string("invocationId", &invocation_name(id));
                }
                Parts::Resource { uri, subscription } => {
                    if call.op != Op::Unsubscribe {
                        object.text("name", uri);
                    }
                    if call.op != Op::ReadResource {
                        object.text("subscriptionId", subscription.as_ref().unwrap_or(uri));
                    }
                }
                // `check_call` refuses other requests.
                _ => {}
            }),
        })
    }

    pub(crate) fn write_cancel(self, frames: &mut FrameBuffer, id: u64) -> WrittenFrame {
        frames.notify("actions/cancel", |object| object.string("invocationId", &invocation_name(id)))
    }

    pub(crate) fn write_answer(self, frames: &mut FrameBuffer, id: &WireId, answer: &InputResponse) -> WrittenFrame {
        let mut result =
            |members: &dyn Fn(&mut Object<'_>)| frames.response(id, 64, |out| Object::write(out, |object| members(object)));
        let wrong = RpcError::fixed(RpcError::INTERNAL, "the answer has the wrong shape");
        match answer {
            InputResponse::Sample(SampleResult { result: Some(raw), .. }) if !raw.is_object() => frames.error(Some(id), &wrong),
            InputResponse::Elicit(ElicitResult::Accept(value)) if !value.is_object() => frames.error(Some(id), &wrong),
            InputResponse::OpenUrl(_) | InputResponse::Roots(_) => frames.error(Some(id), &wrong),
            InputResponse::Sample(SampleResult { result: Some(raw), .. }) => {
                frames.response(id, raw.as_bytes().len(), |out| push_json(out, raw.as_bytes()))
            }
            InputResponse::Sample(sampled) => result(&|object| object.string("content", &sampled.text)),
            InputResponse::Elicit(ElicitResult::Accept(value)) => result(&|object| {
                object.string("action", "accept");
                object.json("value", value);
            }),
            InputResponse::Confirm(true) => result(&|object| object.string("action", "accept")),
            InputResponse::Elicit(ElicitResult::Decline) | InputResponse::Confirm(false) => {
                result(&|object| object.string("action", "decline"))
            }
            InputResponse::Elicit(ElicitResult::Cancel) => result(&|object| object.string("action", "cancel")),
            InputResponse::Refused(error) => frames.error(Some(id), error),
        }
    }

    // ---- As a callee ----

    pub(crate) fn write_ask(self, frames: &mut FrameBuffer, id: u64, ask: &InputRequest, invocation: &WireId) -> WrittenFrame {
        let method = if matches!(ask, InputRequest::Sample(_)) { "sampling/request" } else { "elicitation/request" };
        frames.request(id, method, 256, |out| {
            Object::write(out, |object| {
                invocation.write(object.member("invocationId"));
                match ask {
                    InputRequest::Sample(sample) => match &sample.params {
                        Some(params) => for_each_key(params.as_bytes(), |key, value| {
                            if key.name() != "invocationId" {
                                object.copy(key, value);
                            }
                        }),
                        None => {
                            object.string("prompt", &sample.prompt);
                            if let Some(schema) = &sample.schema {
                                object.json("schema", schema);
                            }
                            if let Some(max) = sample.max_tokens {
                                object.integer("maxTokens", max);
                            }
                        }
                    },
                    InputRequest::Elicit(form) => write_form(object, &form.message, &form.schema),
                    InputRequest::Confirm { message } => write_form(object, message, &confirmation()),
                    // `check_ask` refuses these.
                    InputRequest::OpenUrl(_) | InputRequest::Roots => {}
                }
            });
        })
    }

    /// Writes a progress update. The partial result is sent as its data, unless the update has data of its own.
    pub(crate) fn write_progress(
        self,
        frames: &mut FrameBuffer,
        token: &WireId,
        progress: &Progress,
        partial: Option<&Json>,
    ) -> WrittenFrame {
        frames.notify("actions/progress", |object| {
            token.write(object.member("invocationId"));
            if let Some(percent) = progress.value {
                object.number("percent", percent);
            }
            if let Some(message) = &progress.message {
                object.text("message", message);
            }
            if let Some(data) = progress.data.as_ref().or(partial) {
                object.json("data", data);
            }
        })
    }

    pub(crate) fn write_reply(
        self,
        frames: &mut FrameBuffer,
        id: &WireId,
        token: Option<&WireId>,
        op: Op,
        reply: &Reply,
        partial: Option<&Json>,
    ) -> WrittenFrame {
        let mut failed = |error: &RpcError| match partial {
            Some(partial) => frames.error(Some(id), &with_partial(error, &with_status(partial, "failed"))),
            None => frames.error(Some(id), error),
        };
        let internal = |what| RpcError::fixed(RpcError::INTERNAL, what);
        match (reply, op) {
            (Reply::Raw(result), _) => frames.response(id, result.as_bytes().len(), |out| push_json(out, result.as_bytes())),
            (Reply::Done, Op::CallTool) => self.write_reply(frames, id, token, op, &Reply::Tool(ToolOutput::default()), None),
            (Reply::Done, _) => frames.response(id, 4, |out| push_json(out, b"null")),
            (Reply::Tool(output), Op::CallTool) if output.is_error => failed(&fault(output)),
            (Reply::Tool(output), Op::CallTool) => {
                let size = output.structured.as_ref().map_or(256, |value| value.as_bytes().len());
                frames.response(id, size, |out| {
                    Object::write(out, |object| {
                        if let Some(name) = token {
                            name.write(object.member("invocationId"));
                        }
                        write_output(object.member("output"), output);
                    });
                })
            }
            (Reply::Tool(_), _) => frames.error(Some(id), &internal("a tool's output answers only a call of a tool")),
            (Reply::Contents(contents), Op::ReadResource) => frames.response(id, contents.as_bytes().len(), |out| {
                Object::write(out, |object| write_value(object.member("value"), contents));
            }),
            (Reply::Contents(_), _) => {
                frames.error(Some(id), &internal("the contents of a resource answer only the reading of one"))
            }
            (Reply::Page(_) | Reply::Completion(_), _) => frames.error(Some(id), &internal("an app is not asked for this")),
            (Reply::Input(_), _) => failed(&internal("a result never asks for input on this protocol")),
            (Reply::NotFound(what), _) => frames.error(Some(id), &missing(what)),
            (Reply::Error(error), _) => failed(error),
        }
    }

    pub(crate) fn cut_short(self, why: CutShort, partial: Option<&Json>) -> Reply {
        let (error, status) = match why {
            CutShort::Deadline => (RpcError::fixed(code::TIMEOUT, "Action timed out."), "timeout"),
            CutShort::Cancelled => (RpcError::fixed(code::CANCELLED, "Action invocation was cancelled."), "cancelled"),
            CutShort::Closing => (RpcError::fixed(code::CANCELLED, "The app is closing."), "cancelled"),
        };
        Reply::Error(match partial {
            Some(partial) => with_partial(&error, &with_status(partial, status)),
            None => error,
        })
    }

    // ---- As either end ----

    pub(crate) fn write_log(self, frames: &mut FrameBuffer, record: &LogRecord, invocation: Option<&WireId>) -> WrittenFrame {
        let level = match record.level {
            Level::Debug => "debug",
            Level::Info | Level::Notice => "info",
            Level::Warning => "warn",
            Level::Error | Level::Critical | Level::Alert | Level::Emergency => "error",
        };
        let data = record.data.as_bytes();
        let kind = Kind::of(data);
        let message = if kind == Kind::String { Some(data) } else { member(data, "message") };
        let text = message.filter(|message| Kind::of(message) == Kind::String);
        frames.notify("log", |object| {
            if let Some(invocation) = invocation {
                invocation.write(object.member("invocationId"));
            }
            object.string("level", level);
            // `message` is mandatory: it is empty if the record has no text.
            push_json(object.member("message"), text.unwrap_or(br#""""#));
            let mut meta = Vec::new();
            Object::write(&mut meta, |object| {
                if let Some(logger) = &record.logger {
                    object.string("logger", logger);
                }
                if kind == Kind::Object && message.is_none_or(|_| text.is_some()) {
                    for_each_key(data, |key, value| {
                        let name = key.name();
                        if name != "message" && (name != "logger" || record.logger.is_none()) {
                            object.copy(key, value);
                        }
                    });
                } else if kind != Kind::String {
                    object.json("data", &record.data);
                }
            });
            if meta != b"{}" {
                push_json(object.member("meta"), &meta);
            }
        })
    }

    pub(crate) fn write_notification(self, frames: &mut FrameBuffer, notification: &Notification) -> WrittenFrame {
        match notification {
            Notification::Actions(actions) => frames.notify("actions/list_changed", |object| object.json("actions", actions)),
            Notification::Resources(resources) => {
                frames.notify("resources/list_changed", |object| object.json("resources", resources))
            }
            Notification::ResourceValue { subscription, value, .. } => frames.notify("resources/updated", |object| {
                object.string("subscriptionId", subscription);
                object.json("value", value);
            }),
            Notification::Custom { method, params } => frames.notify_verbatim(method, params.as_ref()),
            // `check_notification` refuses other notifications.
            _ => frames.no_frame(),
        }
    }

    pub(crate) fn too_deep(self, depth: u8, max: u8) -> RpcError {
        RpcError::fixed(code::SAMPLING_TOO_DEEP, "sampling is nested too deep").with_data(depth_data(depth, max))
    }

    pub(crate) fn busy(self, why: Text) -> RpcError {
        let mut data = Vec::new();
        Object::write(&mut data, |object| object.boolean("busy", true));
        RpcError::new(RpcError::INTERNAL, why).with_data(Json::written(data))
    }

    pub(crate) fn call_is_over(self) -> RpcError {
        RpcError::fixed(code::CANCELLED, "the invocation that this belongs to is over")
    }

    pub(crate) fn no_such_call(self) -> RpcError {
        RpcError::fixed(code::UNAUTHORIZED, "no invocation of that name is active in this session")
    }

    pub(crate) fn too_early(self, what: EarlyMessage) -> RpcError {
        let why = match what {
            EarlyMessage::Request => "the first request must be the handshake",
            EarlyMessage::InputRequest => "the session is not claimed",
        };
        RpcError::fixed(code::UNAUTHORIZED, why)
    }
}

/// Writes the params of a handshake request, which begins or resumes an app session.
fn write_hello(object: &mut Object<'_>, app: &App, local: &LocalEnd<'_>) {
    object.string("protocolVersion", VERSION);
    if let Some(credentials) = &app.resume {
        object.string("sessionId", &credentials.session_id);
        object.string("resumeToken", &credentials.resume_token);
    }
    object.object("app", |object| {
        let identity = local.identity;
        object.string("id", &identity.name);
        object.string("name", identity.title.as_deref().unwrap_or(&identity.name));
        object.string("origin", &app.origin);
        let optional = |text: &str| Some(String::from(text)).filter(|text| !text.is_empty());
        for (name, value) in [
            ("description", local.instructions.map(String::from)),
            ("iconUrl", app.icon_url.clone()),
            ("version", optional(&identity.version)),
        ] {
            if let Some(value) = value {
                object.string(name, &value);
            }
        }
    });
    object.json("actions", &app.actions);
    object.json("resources", &app.resources);
    let own = local.capabilities;
    write_capabilities(object, "capabilities", own.resources_subscribe, own.sampling, own.elicitation);
}

/// The `result` for a handshake request that is accepted.
pub(super) fn welcomed(welcome: &Welcome, local: &LocalEnd<'_>) -> Json {
    let own = local.capabilities;
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.string("sessionId", &welcome.session_id);
        object.string("protocolVersion", VERSION);
        write_capabilities(object, "capabilities", true, own.sampling, own.elicitation);
        write_agent(object, local.identity);
        if let ClaimState::Unclaimed { claim_code } = &welcome.claim_state {
            object.string("claimCode", claim_code);
        }
        if let Some(token) = &welcome.resume_token {
            object.string("resumeToken", token);
        }
    });
    Json::written(out)
}

fn write_agent(object: &mut Object<'_>, agent: &Identity) {
    object.object("agent", |object| {
        object.string("id", &agent.name);
        object.string("name", agent.title.as_deref().unwrap_or(&agent.name));
    });
}

pub(super) fn client_name(agent: &Identity) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| object.string("clientName", &agent.name));
    Json::written(out)
}

fn write_capabilities(object: &mut Object<'_>, name: &'static str, subscriptions: bool, sampling: bool, elicitation: bool) {
    object.object(name, |object| {
        object.boolean("streaming", true);
        object.boolean("subscriptions", subscriptions);
        object.boolean("sampling", sampling);
        object.boolean("elicitation", elicitation);
    });
}

fn write_form(object: &mut Object<'_>, message: &str, schema: &Json) {
    object.string("question", message);
    object.json("schema", schema);
}

/// The error of a tool that failed: the `fault` of its output or, without one, an internal error with the text of the output as its message
/// and the structured content as its data (page "Errors").
fn fault(output: &ToolOutput) -> RpcError {
    if let Some(error) = &output.rpc_error {
        return (**error).clone();
    }
    let mut joined = String::new();
    for block in &output.content {
        if let Content::Text(text) = block {
            if !joined.is_empty() {
                joined.push('\n');
            }
            joined.push_str(text);
        }
    }
    let error = RpcError::internal(joined);
    match &output.structured {
        Some(data) => error.with_data(data.clone()),
        None => error,
    }
}

/// Writes the output of an action: the structured content if there is any, `null` without content, a single block of text as a string, or
/// `{content}` with the blocks in the form of MCP, which a gateway can pass on.
fn write_output(out: &mut Vec<u8>, output: &ToolOutput) {
    match (&output.structured, &*output.content) {
        (Some(value), _) => push_json(out, value.as_bytes()),
        (None, []) => out.extend_from_slice(b"null"),
        (None, [Content::Text(text)]) => write_string(out, text),
        (None, blocks) => Object::write(out, |object| object.array("content", blocks, |out, block| block.write(out))),
    }
}

/// Writes the value of a resource from `contents`, an array in the form of MCP. If the only element has text, the value is the text: as
/// JSON if its MIME type is `application/json` and it is valid JSON, otherwise as a string. If the only element has no text, the value is
/// that element. Otherwise the value is the array.
pub(super) fn write_value(out: &mut Vec<u8>, contents: &Json) {
    let all = elements(contents.as_bytes());
    let &[one] = &*all else { return push_json(out, contents.as_bytes()) };
    let text = member(one, "text");
    let is_json = member(one, "mimeType").and_then(string).as_deref() == Some("application/json");
    match text {
        Some(text) if is_json => match string(text).and_then(|text| Json::parse(text.into_owned()).ok()) {
            Some(value) => push_json(out, value.as_bytes()),
            None => push_json(out, text),
        },
        Some(text) => push_json(out, text),
        None => push_json(out, one),
    }
}

fn missing(what: &NotFound) -> RpcError {
    RpcError::new(
        code::ACTION_NOT_FOUND,
        match what {
            NotFound::Tool(name) => alloc::format!("Action not found: {name}"),
            NotFound::Resource(name) => alloc::format!("Resource not readable: {name}"),
        },
    )
}
