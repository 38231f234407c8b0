//! From what we mean to frames of Tesseron.

use alloc::string::String;
use alloc::vec::Vec;

use super::{App, End, Standing, Tesseron, VERSION, Welcome, code, invocation_name, method_of};
use crate::dialect::checkpoint::{with_partial, with_status};
use crate::dialect::depth_data;
use crate::dialect::form::confirmation;
use crate::dialect::{
    Answer, Ask, Content, CutShort, Elicited, Level, LogRecord, NotFound, Notice, Op, Progress, Reply, Sampled, ToolOutput,
};
use crate::error::RpcError;
use crate::json::Json;
use crate::json::read::{Kind, elements, for_each_key, for_each_member, member, string};
use crate::json::write::{Object, push_json, write_string, write_text};
use crate::wire::{Draft, Frames, WireId};

impl Tesseron {
    // ---- The handshake ----

    pub(crate) fn write_greeting(&self, frames: &mut Frames, id: u64) -> Draft {
        let End::App(app) = &self.end else { return frames.none() };
        let hint = app.actions.as_bytes().len().saturating_add(app.resources.as_bytes().len()).saturating_add(512);
        frames.request(id, app.greeting_method(), hint, |out| Object::write(out, |object| self.write_manifest(object, app)))
    }

    fn write_manifest(&self, object: &mut Object<'_>, app: &App) {
        object.string("protocolVersion", VERSION);
        if let Some(credentials) = &app.resume {
            object.string("sessionId", &credentials.session_id);
            object.string("resumeToken", &credentials.resume_token);
        }
        object.object("app", |object| {
            let Self { identity, .. } = self;
            object.string("id", &identity.name);
            object.string("name", identity.title.as_deref().unwrap_or(&identity.name));
            object.string("origin", &app.origin);
            let optional = |text: &str| Some(String::from(text)).filter(|text| !text.is_empty());
            for (name, value) in [
                ("description", self.description.clone()),
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
        let own = &self.own;
        write_capabilities(object, "capabilities", own.resources_subscribe, own.sampling, own.elicitation);
    }

    /// The `result` for an app that is taken in.
    pub(crate) fn welcome(&self, welcome: &Welcome) -> Json {
        let mut out = Vec::new();
        Object::write(&mut out, |object| {
            object.string("sessionId", &welcome.session_id);
            object.string("protocolVersion", VERSION);
            write_capabilities(object, "capabilities", true, self.own.sampling, self.own.elicitation);
            self.write_agent(object);
            if let Standing::Unclaimed { claim_code } = &welcome.standing {
                object.string("claimCode", claim_code);
            }
            if let Some(token) = &welcome.resume_token {
                object.string("resumeToken", token);
            }
        });
        Json::written(out)
    }

    pub(crate) fn write_claimed(&self, frames: &mut Frames, at_millis: u64) -> Draft {
        frames.notify("tesseron/claimed", |object| {
            self.write_agent(object);
            object.integer("claimedAt", at_millis);
            write_capabilities(object, "agentCapabilities", true, self.own.sampling, self.own.elicitation);
        })
    }

    fn write_agent(&self, object: &mut Object<'_>) {
        object.object("agent", |object| {
            object.string("id", &self.identity.name);
            object.string("name", self.identity.title.as_deref().unwrap_or(&self.identity.name));
        });
    }

    pub(super) fn client_name(&self) -> Json {
        let mut out = Vec::new();
        Object::write(&mut out, |object| object.string("clientName", &self.identity.name));
        Json::written(out)
    }

    // ---- As a caller ----

    pub(crate) fn envelope_size(&self, op: &Op) -> usize {
        /// `jsonrpc`, the id and the name of the invocation.
        const MEMBERS: usize = 192;
        // A character takes up to six bytes when it is escaped.
        method_of(op).len().saturating_mul(6).saturating_add(MEMBERS)
    }

    pub(crate) fn write_call(&self, frames: &mut Frames, id: u64, op: &Op, params: &Json) -> Draft {
        let copied = |object: &mut Object<'_>, names: &[(&str, &'static str)]| {
            for_each_member(params.as_bytes(), |given, value| {
                if let Some((_, name)) = names.iter().find(|(ours, _)| *ours == given) {
                    push_json(object.member(name), value);
                }
            });
        };
        frames.request(id, method_of(op), params.as_bytes().len(), |out| match op {
            Op::CallTool => Object::write(out, |object| {
                copied(object, &[("name", "name"), ("arguments", "input")]);
                if member(params.as_bytes(), "arguments").is_none() {
                    object.json("input", &Json::empty_object());
                }
                object.string("invocationId", &invocation_name(id));
            }),
            Op::ReadResource | Op::Subscribe | Op::Unsubscribe => Object::write(out, |object| {
                let uri = ("uri", "name");
                let subscription = ("subscriptionId", "subscriptionId");
                match op {
                    Op::ReadResource => copied(object, &[uri]),
                    Op::Subscribe => copied(object, &[uri, subscription]),
                    _ => copied(object, &[subscription]),
                }
            }),
            _ => push_json(out, params.as_bytes()),
        })
    }

    pub(crate) fn write_cancel(&self, frames: &mut Frames, id: u64) -> Draft {
        frames.notify("actions/cancel", |object| object.string("invocationId", &invocation_name(id)))
    }

    pub(crate) fn write_answer(&self, frames: &mut Frames, id: &WireId, answer: &Answer) -> Draft {
        let mut result =
            |members: &dyn Fn(&mut Object<'_>)| frames.response(id, 64, |out| Object::write(out, |object| members(object)));
        let wrong = RpcError::fixed(RpcError::INTERNAL, "the answer has the wrong shape");
        match answer {
            Answer::Sample(Sampled { result: Some(raw), .. }) if !raw.is_object() => frames.error(Some(id), &wrong),
            Answer::Elicit(Elicited::Accept(value)) if !value.is_object() => frames.error(Some(id), &wrong),
            Answer::Roots(_) => frames.error(Some(id), &wrong),
            Answer::Sample(Sampled { result: Some(raw), .. }) => {
                frames.response(id, raw.as_bytes().len(), |out| push_json(out, raw.as_bytes()))
            }
            Answer::Sample(sampled) => result(&|object| object.string("content", &sampled.text)),
            Answer::Elicit(Elicited::Accept(value)) => result(&|object| {
                object.string("action", "accept");
                object.json("value", value);
            }),
            Answer::Confirm(true) => result(&|object| object.string("action", "accept")),
            Answer::Elicit(Elicited::Decline) | Answer::Confirm(false) => result(&|object| object.string("action", "decline")),
            Answer::Elicit(Elicited::Cancel) => result(&|object| object.string("action", "cancel")),
            Answer::Refused(error) => frames.error(Some(id), error),
        }
    }

    // ---- As a callee ----

    pub(crate) fn write_ask(&self, frames: &mut Frames, id: u64, ask: &Ask, invocation: &WireId) -> Draft {
        let method = if matches!(ask, Ask::Sample(_)) { "sampling/request" } else { "elicitation/request" };
        frames.request(id, method, 256, |out| {
            Object::write(out, |object| {
                invocation.write(object.member("invocationId"));
                match ask {
                    Ask::Sample(sample) => match &sample.params {
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
                            if let Some(most) = sample.max_tokens {
                                object.integer("maxTokens", most);
                            }
                        }
                    },
                    Ask::Elicit(form) => write_question(object, &form.message, &form.schema),
                    Ask::Confirm { message } => write_question(object, message, &confirmation()),
                    Ask::Roots => {}
                }
            });
        })
    }

    /// What is done so far rides as data, unless there is other data.
    pub(crate) fn write_progress(&self, frames: &mut Frames, token: &WireId, progress: &Progress, partial: Option<&Json>) -> Draft {
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
        &self,
        frames: &mut Frames,
        id: &WireId,
        token: Option<&WireId>,
        op: &Op,
        reply: &Reply,
        partial: Option<&Json>,
    ) -> Draft {
        let mut failed = |error: &RpcError| match partial {
            Some(partial) => frames.error(Some(id), &with_partial(error, &with_status(partial, "failed"))),
            None => frames.error(Some(id), error),
        };
        let misfit = |what| RpcError::fixed(RpcError::INTERNAL, what);
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
            (Reply::Tool(_), _) => frames.error(Some(id), &misfit("a tool's output answers only a call of a tool")),
            (Reply::Contents(contents), Op::ReadResource) => frames.response(id, contents.as_bytes().len(), |out| {
                Object::write(out, |object| write_value(object.member("value"), contents));
            }),
            (Reply::Contents(_), _) => frames.error(Some(id), &misfit("the contents of a resource answer only the reading of one")),
            (Reply::NotFound(what), _) => frames.error(Some(id), &missing(what)),
            (Reply::Error(error), _) => failed(error),
        }
    }

    pub(crate) fn cut_short(&self, why: CutShort, partial: Option<&Json>) -> Reply {
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

    // ---- As either ----

    pub(crate) fn write_log(&self, frames: &mut Frames, record: &LogRecord, invocation: Option<&WireId>) -> Draft {
        let level = match record.level {
            Level::Debug => "debug",
            Level::Info | Level::Notice => "info",
            Level::Warning => "warn",
            Level::Error | Level::Critical | Level::Alert | Level::Emergency => "error",
        };
        let data = record.data.as_bytes();
        let words = member(data, "message").filter(|words| Kind::of(words) == Kind::String);
        frames.notify("log", |object| {
            if let Some(invocation) = invocation {
                invocation.write(object.member("invocationId"));
            }
            object.string("level", level);
            let message = object.member("message");
            match words.or_else(|| Some(data).filter(|data| Kind::of(data) == Kind::String)) {
                Some(words) => push_json(message, words),
                None => write_text(message, data),
            }
            let mut meta = Vec::new();
            Object::write(&mut meta, |object| {
                if let Some(logger) = &record.logger {
                    object.string("logger", logger);
                }
                if Kind::of(data) == Kind::Object {
                    for_each_key(data, |key, value| {
                        if !matches!(&*key.name(), "message" | "logger") {
                            object.copy(key, value);
                        }
                    });
                }
            });
            if meta != b"{}" {
                push_json(object.member("meta"), &meta);
            }
        })
    }

    pub(crate) fn write_notice(&self, frames: &mut Frames, notice: &Notice) -> Draft {
        match notice {
            Notice::Actions(actions) => frames.notify("actions/list_changed", |object| object.json("actions", actions)),
            Notice::Resources(resources) => frames.notify("resources/list_changed", |object| object.json("resources", resources)),
            Notice::ResourceValue { subscription, value, .. } => frames.notify("resources/updated", |object| {
                object.string("subscriptionId", subscription);
                object.json("value", value);
            }),
            Notice::Custom { method, params } => frames.notify_as_it_is(method, params.as_ref()),
            // `check_notice` lets nothing else through.
            _ => frames.none(),
        }
    }

    pub(crate) fn too_deep(&self, depth: u8, max: u8) -> RpcError {
        RpcError::fixed(code::SAMPLING_TOO_DEEP, "sampling is nested too deep").with_data(depth_data(depth, max))
    }

    pub(crate) fn busy(&self, closing: bool) -> RpcError {
        let mut data = Vec::new();
        Object::write(&mut data, |object| object.boolean("busy", true));
        let why = if closing { "closing" } else { "too many requests at once" };
        RpcError::fixed(RpcError::INTERNAL, why).with_data(Json::written(data))
    }

    pub(crate) fn call_is_over(&self) -> RpcError {
        RpcError::fixed(code::CANCELLED, "the invocation that this belongs to is over")
    }

    pub(crate) fn no_such_call(&self) -> RpcError {
        RpcError::fixed(code::UNAUTHORIZED, "no invocation of that name is active in this session")
    }

    pub(crate) fn too_early(&self, why: &'static str) -> RpcError {
        RpcError::fixed(code::UNAUTHORIZED, why)
    }
}

fn write_capabilities(object: &mut Object<'_>, name: &'static str, subscriptions: bool, sampling: bool, elicitation: bool) {
    object.object(name, |object| {
        object.boolean("streaming", true);
        object.boolean("subscriptions", subscriptions);
        object.boolean("sampling", sampling);
        object.boolean("elicitation", elicitation);
    });
}

fn write_question(object: &mut Object<'_>, message: &str, schema: &Json) {
    object.string("question", message);
    object.json("schema", schema);
}

/// The error of a tool that failed: its own, or its words as an internal one (errors page: what a handler throws).
fn fault(output: &ToolOutput) -> RpcError {
    if let Some(error) = &output.fault {
        return (**error).clone();
    }
    let mut words = String::new();
    for block in &output.content {
        if let Content::Text(text) = block {
            if !words.is_empty() {
                words.push('\n');
            }
            words.push_str(text);
        }
    }
    let error = RpcError::internal(words);
    match &output.structured {
        Some(data) => error.with_data(data.clone()),
        None => error,
    }
}

/// What programs read, else the one text as a string, else all blocks in the shape that MCP gives them: a gateway to MCP can tell that
/// they are blocks.
fn write_output(out: &mut Vec<u8>, output: &ToolOutput) {
    match (&output.structured, &*output.content) {
        (Some(value), _) => push_json(out, value.as_bytes()),
        (None, []) => out.extend_from_slice(b"null"),
        (None, [Content::Text(text)]) => write_string(out, text),
        (None, blocks) => Object::write(out, |object| object.array("content", blocks, |out, block| block.write(out))),
    }
}

/// The value of a resource: one content that says it is JSON is that JSON, one of text is a string; others stay as they are.
fn write_value(out: &mut Vec<u8>, contents: &Json) {
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
