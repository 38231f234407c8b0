//! From envelopes to what they mean in MCP.

use alloc::string::String;

use bytes::Bytes;

use super::{Mcp, Revision, Side, meta, offers, op_of, sampling};
use crate::dialect::form::{self, Fields};
use crate::dialect::params::Uncut;
use crate::dialect::{
    Answer, Ask, Capabilities, Elicit, Elicited, Fit, Greeting, GreetingAnswer, GreetingFailed, GreetingRefused, Identity, Level,
    LogRecord, Message, Notice, Op, Params, PeerInfo, Progress, ResponseBody, Sampled, shown,
};
use crate::error::{RpcError, Violation};
use crate::json::read::{Kind, elements, for_each_key, for_each_member, integer, member, number, string};
use crate::json::scan::{Noted, Repeated};
use crate::json::{Frame, Json, Text};
use crate::wire::{self, Body, Element, Envelope, Malformed, WireId};

impl Mcp {
    pub(crate) fn read(&self, bytes: &Bytes) -> Message {
        let batch = (self.agreed == Some(Revision::R2025_03_26)).then_some(self.limits.batch);
        let options = wire::Options { depth: self.limits.json_depth, id: self.limits.id_bytes, batch, lenient: false };
        let frame = Frame::new(bytes);
        wire::read(
            bytes,
            options,
            |element| self.message(element, frame),
            |mut all| {
                for message in &mut all {
                    // Lifecycle (2025-03-26), "Initialization": never part of a batch.
                    if let Message::Greeting { id, .. } = message {
                        let why = "initialize must not be part of a batch";
                        *message = invalid(Some(Violation::OutOfPhase), id.clone(), RpcError::INVALID_REQUEST, why);
                    }
                }
                Message::Batch(all)
            },
        )
    }

    fn message(&self, element: Element<'_>, frame: Frame<'_>) -> Message {
        match element {
            Ok(Envelope::Request { id, method, params }) => self.request(id, method, params, frame),
            Ok(Envelope::Notification { method, params }) => self.notification(method, params, frame),
            Ok(Envelope::Response { id, body }) => {
                let body = match body {
                    // Every result of MCP is an object (schema, "Result").
                    Body::Result(result) if Kind::of(result) == Kind::Object => ResponseBody::Result(frame.payload(result)),
                    Body::Error(error) => ResponseBody::Error(error),
                    Body::Result(_) | Body::Missing | Body::Malformed => ResponseBody::Malformed,
                };
                Message::Response { number: id.as_ours(), body }
            }
            Err(Malformed { violation, answer }) => {
                // A client does not answer what it cannot even attribute: a server's output may hold anything.
                let answer = answer.filter(|(id, _)| id.is_some() || self.side == Side::Server);
                Message::Reject { violation: Some(violation), answer }
            }
        }
    }

    fn request(&self, id: WireId, method: &[u8], params: Option<&Noted<'_>>, frame: Frame<'_>) -> Message {
        let meta = match params.map_or_else(|| Ok(Meta::default()), |params| Meta::read(params, self.limits.id_bytes)) {
            Ok(meta) => meta,
            Err((violation, why)) => {
                let code =
                    if violation == Violation::RepeatedMember { RpcError::INVALID_REQUEST } else { RpcError::INVALID_PARAMS };
                return invalid(Some(violation), id, code, why);
            }
        };
        let json = || params.map_or_else(Json::empty_object, |params| frame.json(params.text()));
        match (self.side, op_of(method)) {
            (_, Some(Op::Ping)) => Message::Ping { id },
            (Side::Server, Some(Op::SetLogLevel)) if self.own.logging => self.set_level(id, params),
            (Side::Server, Some(op)) if offers(&self.own, &op, self.revision()) => {
                let params = match params {
                    Some(noted) => Uncut::noted(frame.payload(noted.text()), &op, noted),
                    None => Params::from(Json::empty_object()).into(),
                };
                Message::Request { id, op, params, token: meta.token, depth: meta.depth }
            }
            (Side::Server, Some(_)) => not_found(None, id, method),
            (Side::Client, Some(_)) => self.misdirected(id, method),
            (side, None) => match (side, core::str::from_utf8(method).unwrap_or_default()) {
                (Side::Server, "initialize") => Message::Greeting { id, greeting: self.greeting(&json()) },
                (Side::Client, method @ ("sampling/createMessage" | "elicitation/create" | "roots/list")) => {
                    self.ask(id, method, json(), meta)
                }
                (_, "initialize" | "sampling/createMessage" | "elicitation/create" | "roots/list") => self.misdirected(id, method),
                _ => not_found(None, id, method),
            },
        }
    }

    fn set_level(&self, id: WireId, params: Option<&Noted<'_>>) -> Message {
        if self.agreed.is_none() {
            return self.refuse_early(id, "the first request must be the handshake");
        }
        let level = params.and_then(|params| params.member("level")).and_then(string).and_then(|name| Level::from_name(&name));
        let wrong = "level must be one of the eight log levels";
        match level {
            Some(level) => Message::SetLevel { id, level },
            None => invalid(Some(Violation::InvalidParams), id, RpcError::INVALID_PARAMS, wrong),
        }
    }

    fn misdirected(&self, id: WireId, method: &[u8]) -> Message {
        not_found(Some(Violation::WrongDirection), id, method)
    }

    /// Before the handshake nothing is looked at: what was declared depends on the revision.
    fn refuse_early(&self, id: WireId, why: &'static str) -> Message {
        Message::Reject { violation: Some(Violation::OutOfPhase), answer: Some((Some(id), self.too_early(why))) }
    }

    fn ask(&self, id: WireId, method: &str, params: Json, meta: Meta) -> Message {
        if self.agreed.is_none() {
            return self.refuse_early(id, "the handshake is not through");
        }
        let declared = match method {
            "sampling/createMessage" => self.own.sampling,
            "elicitation/create" => self.own.elicitation && self.revision() >= Revision::R2025_06_18,
            _ => self.own.roots,
        };
        if !declared {
            return not_found(Some(Violation::UndeclaredInput), id, method.as_bytes());
        }
        let ask = match method {
            "sampling/createMessage" => {
                sampling::check(&params, self.own.sampling_tools, self.revision()).map(|()| sampling::read(params))
            }
            "elicitation/create" => read_form(&params, self.fields()),
            _ => Ok(Ask::Roots),
        };
        match ask {
            Ok(ask) => Message::Ask { id, ask: ask.into(), parent: meta.parent, depth: meta.depth },
            Err(why) => invalid(Some(Violation::InvalidParams), id, RpcError::INVALID_PARAMS, why),
        }
    }

    fn notification(&self, method: &[u8], given: Option<&Noted<'_>>, frame: Frame<'_>) -> Message {
        let params = given.unwrap_or(const { &Noted::empty_object() });
        if params.only("_meta").is_err() {
            return Message::Reject { violation: Some(Violation::RepeatedMember), answer: None };
        }
        // By far the most frequent, and so before anybody looks what else it may be.
        if method == b"notifications/progress" {
            return read_progress(params, frame, self.limits.id_bytes);
        }
        let method = core::str::from_utf8(method).unwrap_or_default();
        let wrong = || Message::Reject { violation: Some(Violation::InvalidParams), answer: None };
        let sender = match method {
            "notifications/cancelled" => {
                let id = params.member("requestId").and_then(|id| WireId::read(id, self.limits.id_bytes));
                let reason = params.member("reason").and_then(|reason| frame.text(reason));
                return id.map_or_else(wrong, |id| Message::Cancel { id, reason });
            }
            "notifications/initialized" | "notifications/roots/list_changed" => Side::Client,
            "notifications/message"
            | "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => Side::Server,
            _ => {
                return Message::Notice(Notice::Custom {
                    method: method.into(),
                    params: given.map(|params| frame.json(params.text())),
                });
            }
        };
        if sender == self.side {
            return Message::Reject { violation: Some(Violation::WrongDirection), answer: None };
        }
        match method {
            "notifications/initialized" => Message::Greeted,
            "notifications/message" => {
                read_log(params, frame).map_or_else(wrong, |record| Message::Log { record, invocation: None })
            }
            "notifications/tools/list_changed" => Message::Notice(Notice::ToolsChanged),
            "notifications/prompts/list_changed" => Message::Notice(Notice::PromptsChanged),
            "notifications/resources/list_changed" => Message::Notice(Notice::ResourcesChanged),
            "notifications/roots/list_changed" => Message::Notice(Notice::RootsChanged),
            _ => {
                let uri = params.member("uri").and_then(|uri| frame.text(uri));
                uri.map_or_else(wrong, |uri| Message::Notice(Notice::ResourceUpdated { uri }))
            }
        }
    }

    /// Lifecycle, "Version Negotiation": the client's revision if we speak it, else our newest.
    fn greeting(&self, params: &Json) -> Result<Greeting, GreetingRefused> {
        let wrong = |what| RpcError::new(RpcError::INVALID_PARAMS, what);
        let asked = params.member("protocolVersion").as_ref().and_then(json_string);
        let asked = asked.ok_or_else(|| wrong("protocolVersion must be text"))?;
        let declared = params.member("capabilities").filter(Json::is_object);
        let declared = declared.ok_or_else(|| wrong("capabilities must be an object"))?;
        let identity = params.member("clientInfo").as_ref().and_then(read_identity);
        let identity = identity.ok_or_else(|| wrong("clientInfo must be an object with a name and a version"))?;
        let revision = Revision::from_name(&asked).filter(|revision| *revision <= self.newest).unwrap_or(self.newest);
        let declares = read_capabilities(&declared);
        let peer = PeerInfo {
            identity,
            protocol: Text::from_static(revision.as_str()),
            // Forms came with 2025-06-18.
            capabilities: Capabilities { elicitation: declares.elicitation && revision >= Revision::R2025_06_18, ..declares },
            declared,
            instructions: None,
            pass: None,
        };
        Ok(Greeting { answer: GreetingAnswer::Result(self.greeting_answer(revision)), peer: peer.into() })
    }

    pub(crate) fn read_greeting_answer(&self, result: &Json) -> Result<PeerInfo, GreetingFailed> {
        let text = |name: &str| result.member(name).as_ref().and_then(json_string);
        let revision = text("protocolVersion").ok_or(GreetingFailed::Malformed)?;
        let revision = Revision::from_name(&revision).filter(|revision| *revision <= self.newest).ok_or(GreetingFailed::Version)?;
        let declared = result.member("capabilities").filter(Json::is_object).ok_or(GreetingFailed::Malformed)?;
        let identity = result.member("serverInfo").as_ref().and_then(read_identity).ok_or(GreetingFailed::Malformed)?;
        Ok(PeerInfo {
            identity,
            protocol: Text::from_static(revision.as_str()),
            capabilities: read_capabilities(&declared),
            declared,
            instructions: text("instructions").map(Text::from),
            pass: None,
        })
    }

    /// A task where none was asked for is no result (2025-11-25, Tasks): whoever called waits for content.
    pub(crate) fn fit(&self, _exchange: u64, op: &Op, result: &Json) -> Fit {
        /// A task is a handful of short members. A longer text is not worth a look, which takes as long as reading it.
        const TASK: usize = 4096;
        /// What nearly every result begins with.
        const CONTENT: &[u8] = br#"{"content":"#;
        let text = result.as_bytes();
        let may_be_task = *op == Op::CallTool && text.len() <= TASK && !text.starts_with(CONTENT);
        let is_task = may_be_task && result.member("task").is_some() && result.member("content").is_none();
        if is_task { Fit::Wrong } else { Fit::Fits }
    }

    pub(crate) fn read_answer(&self, ask: &Ask, result: &Json) -> Result<Answer, Text> {
        Ok(match ask {
            Ask::Sample(_) => Answer::Sample(Sampled {
                text: result
                    .member("content")
                    .and_then(|content| sampling::answer_text(content.as_bytes()))
                    .ok_or_else(|| Text::from_static("`content` is missing or no content"))?,
                model: result.member("model").as_ref().and_then(json_string).unwrap_or_default(),
                result: Some(result.clone()),
            }),
            Ask::Elicit(form) => Answer::Elicit(match read_action(result)? {
                Action::Accept => {
                    // Where nothing was to be filled in, some clients send nothing.
                    let nothing = || form.is_confirmation().then(Json::empty_object);
                    let content = result.member("content").or_else(nothing).filter(Json::is_object);
                    let content = content.ok_or_else(|| Text::from_static("`content` is missing or no object"))?;
                    form::check_content(&form.schema, &content)?;
                    Elicited::Accept(content)
                }
                Action::Decline => Elicited::Decline,
                Action::Cancel => Elicited::Cancel,
            }),
            Ask::Confirm { .. } => Answer::Confirm(matches!(read_action(result)?, Action::Accept)),
            Ask::Roots => Answer::Roots(
                result
                    .member("roots")
                    .filter(are_roots)
                    .ok_or_else(|| Text::from_static("`roots` is missing or no list of roots that are files"))?,
            ),
        })
    }
}

fn not_found(violation: Option<Violation>, id: WireId, method: &[u8]) -> Message {
    let method = String::from_utf8_lossy(method);
    invalid(violation, id, RpcError::METHOD_NOT_FOUND, alloc::format!("method not found: {}", shown(&method)))
}

fn invalid(violation: Option<Violation>, id: WireId, code: i64, why: impl Into<Text>) -> Message {
    Message::Reject { violation, answer: Some((Some(id), RpcError::new(code, why))) }
}

/// What the session needs of `params._meta`.
#[derive(Default)]
struct Meta {
    token: Option<WireId>,
    parent: Option<u64>,
    depth: u8,
}

impl Meta {
    fn read(params: &Noted<'_>, most: usize) -> Result<Self, (Violation, &'static str)> {
        let meta = params.only("_meta").map_err(|Repeated| (Violation::RepeatedMember, "_meta stands twice"))?;
        let Some(meta) = meta else { return Ok(Self::default()) };
        if Kind::of(meta) != Kind::Object {
            return Err((Violation::InvalidParams, "_meta must be an object"));
        }
        let mut read = Self::default();
        let mut wrong = None;
        for_each_key(meta, |key, value| {
            if key.is("progressToken") {
                read.token = WireId::read(value, most);
                if read.token.is_none() {
                    wrong = Some((Violation::InvalidParams, "progressToken must be text or a whole number"));
                }
            } else if key.is(meta::DEPTH) {
                // Ours, but whoever sends it may have made it up: what cannot be a depth is as deep as can be.
                read.depth = integer(value).unwrap_or(u8::MAX);
            } else if key.is(meta::PARENT) {
                read.parent = integer(value);
            }
        });
        wrong.map_or(Ok(read), Err)
    }
}

/// Progress, "Progress Flow".
fn read_progress(params: &Noted<'_>, frame: Frame<'_>, most: usize) -> Message {
    let (mut token, mut progress, mut partial, mut proper) = (None, Progress::default(), None, true);
    params.for_each(|name, value| {
        // Not by `match`, which would look at the bytes of a name one after the other.
        if name == b"progressToken" {
            token = WireId::read(value, most).map(|token| token.as_ours());
        } else if name == b"progress" {
            progress.value = number(value);
        } else if name == b"total" && value != b"null" {
            progress.total = number(value);
            proper &= progress.total.is_some();
        } else if name == b"message" && value != b"null" {
            progress.message = frame.text(value);
            proper &= progress.message.is_some();
        } else if name == b"_meta" {
            for_each_member(value, |name, value| match name {
                meta::DATA => progress.data = Some(frame.json(value)),
                meta::PARTIAL if Kind::of(value) == Kind::Object => partial = Some(frame.json(value).into()),
                _ => {}
            });
        }
    });
    match token {
        Some(number) if proper && progress.value.is_some() => Message::Progress { number, progress, partial },
        _ => Message::Reject { violation: Some(Violation::InvalidProgress), answer: None },
    }
}

fn read_log(params: &Noted<'_>, frame: Frame<'_>) -> Option<LogRecord> {
    let level = Level::from_name(&string(params.member("level")?)?)?;
    let logger = params.member("logger").and_then(|logger| frame.text(logger));
    Some(LogRecord { level, logger, data: frame.json(params.member("data")?) })
}

fn json_string(json: &Json) -> Option<String> {
    string(json.as_bytes()).map(alloc::borrow::Cow::into_owned)
}

fn read_identity(json: &Json) -> Option<Identity> {
    let text = |name: &str| json.member(name).as_ref().and_then(json_string);
    Some(Identity { name: text("name")?, version: text("version")?, title: text("title") })
}

/// What both halves declare. `{}` means supported, absent means not.
fn read_capabilities(declared: &Json) -> Capabilities {
    let object = |name: &str| declared.member(name).filter(Json::is_object);
    let part = |of: &Option<Json>, name: &str| of.as_ref().and_then(|of| of.member(name));
    let is_true = |value: Option<Json>| value.is_some_and(|value| value.as_str() == "true");
    let (sampling, elicitation, roots) = (object("sampling"), object("elicitation"), object("roots"));
    let (tools, prompts, resources) = (object("tools"), object("prompts"), object("resources"));
    // Elicitation, "Capabilities": an empty object means forms only, otherwise each mode is named.
    let by_form = elicitation.is_some() && (part(&elicitation, "form").is_some() || part(&elicitation, "url").is_none());
    Capabilities {
        sampling_tools: part(&sampling, "tools").is_some_and(|tools| tools.is_object()),
        sampling: sampling.is_some(),
        elicitation: by_form,
        roots_list_changed: is_true(part(&roots, "listChanged")),
        roots: roots.is_some(),
        tools_list_changed: is_true(part(&tools, "listChanged")),
        tools: tools.is_some(),
        prompts_list_changed: is_true(part(&prompts, "listChanged")),
        prompts: prompts.is_some(),
        resources_subscribe: is_true(part(&resources, "subscribe")),
        resources_list_changed: is_true(part(&resources, "listChanged")),
        resources: resources.is_some(),
        completions: object("completions").is_some(),
        logging: object("logging").is_some(),
    }
}

fn read_form(params: &Json, fields: Fields) -> Result<Ask, String> {
    // Elicitation, "Elicitation Requests": a missing mode is a form, and other modes were not declared.
    if params.member("mode").is_some_and(|mode| json_string(&mode).as_deref() != Some("form")) {
        return Err(String::from("only elicitation by form was declared"));
    }
    let message = params.member("message").as_ref().and_then(json_string).ok_or("message must be text")?;
    let schema = params.member("requestedSchema").ok_or("requestedSchema is missing")?;
    form::check(&schema, fields)?;
    Ok(Ask::Elicit(Elicit { message, schema }))
}

/// Roots, "Data Types": an array of objects with a file URI.
fn are_roots(roots: &Json) -> bool {
    let is_file = |root: &[u8]| member(root, "uri").and_then(string).is_some_and(|uri| uri.starts_with("file://"));
    Kind::of(roots.as_bytes()) == Kind::Array && elements(roots.as_bytes()).into_iter().all(is_file)
}

enum Action {
    Accept,
    Decline,
    Cancel,
}

fn read_action(result: &Json) -> Result<Action, Text> {
    match result.member("action").as_ref().and_then(json_string).as_deref() {
        Some("accept") => Ok(Action::Accept),
        Some("decline") => Ok(Action::Decline),
        Some("cancel") => Ok(Action::Cancel),
        _ => Err(Text::from_static("`action` is missing or unknown")),
    }
}
