//! Reading envelopes as messages of MCP.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};

use bytes::Bytes;

use super::meta::Meta;
use super::peer::{read_capabilities, read_identity};
use super::requests::{not_found, read_request, unknown_method, wrong_params};
use super::write::handshake_answer;
use super::{Mcp, Revision, Side, is_reserved, meta, offers, op_of, sampling, stateless, stateless_client};
use crate::dialect::form::{self, FieldKinds};
use crate::dialect::message::ignored_message;
use crate::dialect::request::RawParams;
use crate::dialect::{
    Capabilities, Elicit, ElicitResult, HandshakeAnswer, HandshakeFailed, HandshakeRejected, HandshakeRequest, InputRequest,
    InputResponse, KnownCaller, Level, LocalEnd, LogRecord, Message, Notification, Op, OpenUrl, OpenUrlResult, PeerInfo, Progress,
    Refusal, ResponseBody, ResultFit, SampleResult, lists,
};
use crate::error::{RpcError, Violation};
use crate::json::cursor::IndexedObject;
use crate::json::read::{Kind, elements, for_each_member, member, number, string, string_lossy};
use crate::json::{Frame, Json, Text};
use crate::wire::{self, Body, Element, Envelope, Malformed, Tolerated, WireId};

impl Mcp {
    pub(crate) fn read(self, bytes: &Bytes, local: &LocalEnd<'_>, recent: Option<&KnownCaller>, tolerated: &Tolerated) -> Message {
        let LocalEnd { limits, .. } = local;
        let batch = (self.agreed == Some(Revision::R2025_03_26)).then_some(limits.batch);
        let options = wire::Options { depth: limits.json_depth, id: limits.id_bytes, batch, lenient: false };
        let frame = Frame::new(bytes);
        wire::read(
            bytes,
            options,
            tolerated,
            |element| self.message(element, frame, local, recent, tolerated),
            |mut all| {
                for message in &mut all {
                    // A batch must not contain the handshake request (2025-03-26, Lifecycle, "Initialization").
                    if let Message::HandshakeRequest { id, .. } = message {
                        let why = "initialize must not be part of a batch";
                        *message = invalid(Some(Violation::OutOfPhase), id.clone(), RpcError::INVALID_REQUEST, why);
                    }
                }
                Message::Batch(all)
            },
        )
    }

    fn message(
        self,
        element: Element<'_>,
        frame: Frame<'_>,
        local: &LocalEnd<'_>,
        recent: Option<&KnownCaller>,
        tolerated: &Tolerated,
    ) -> Message {
        match element {
            Ok(Envelope::Request { id, method, params }) => {
                tolerated.count_nulls(params, &[]);
                let meta = params.map_or_else(|| Ok(Meta::default()), |params| Meta::read(params, local, recent, tolerated));
                self.request(id, method, params, meta, frame, local)
            }
            Ok(Envelope::Notification { method, params }) => {
                // The data of a log record may be any JSON.
                tolerated.count_nulls(params, &["data"]);
                self.notification(method, params, frame, local)
            }
            Ok(Envelope::Response { id, body }) => {
                let body = match body {
                    // Every result of MCP is an object (schema, "Result").
                    Body::Result(result) if Kind::of(result) == Kind::Object => ResponseBody::Result(frame.payload(result)),
                    Body::Error(error) => ResponseBody::Error(error),
                    Body::Malformed(why) => ResponseBody::malformed(frame, why),
                    Body::Result(_) | Body::Missing => ResponseBody::malformed(frame, "`result` is no object"),
                };
                Message::response(&id, body, frame)
            }
            Ok(Envelope::Misaddressed { number, why }) => Message::misaddressed(number, why, frame),
            Err(Malformed { violation, answer, recovered }) => {
                // A client does not reply to a malformed message without an id, since a server may print other text to its output. A
                // stateless client sends no replies at all.
                let may_answer = |id: &Option<WireId>| self.side == Side::Server || (id.is_some() && !self.is_stateless_client());
                let answer = answer.filter(|(id, _)| may_answer(id));
                match recovered {
                    Some(recovered) => Message::Unreadable { recovered, answer },
                    None => Message::Reject { violation: Some(violation), answer },
                }
            }
        }
    }

    fn request(
        self,
        id: WireId,
        method: &[u8],
        params: Option<&IndexedObject<'_>>,
        meta: Result<Meta<'_>, (Violation, &'static str)>,
        frame: Frame<'_>,
        local: &LocalEnd<'_>,
    ) -> Message {
        // Without a handshake, a server sends no requests, and a client no responses (2026-07-28, Basic, "Requests").
        if self.is_stateless_client() {
            return Message::Reject { violation: Some(Violation::WrongDirection), answer: None };
        }
        let own = local.capabilities;
        let meta = match meta {
            Ok(meta) => meta,
            Err((violation, why)) => {
                let code =
                    if violation == Violation::RepeatedMember { RpcError::INVALID_REQUEST } else { RpcError::INVALID_PARAMS };
                return invalid(Some(violation), id, code, why);
            }
        };
        if self.side == Side::Server && stateless::is_stateless(method, &meta, local.era) {
            return stateless::request(id, method, params, meta, frame, local);
        }
        let json = || params.map_or_else(Json::empty_object, |params| frame.json(params.text()));
        match (self.side, op_of(method)) {
            (_, Some(Op::Ping)) => Message::AnsweredByDialect { id, result: Json::empty_object(), is_stateless: false },
            (Side::Server, Some(Op::SetLogLevel)) if own.logging => set_level(id, params),
            (Side::Server, Some(op)) if offers(own, op, self.revision()) => {
                let given = meta.given(frame);
                let request = read_request(op, params, frame).map_err(|why| Box::new(wrong_params(why)));
                Message::Request { id, request, meta: given, token: meta.token, depth: meta.depth, caller: None }
            }
            (Side::Server, Some(_)) => not_found(None, id, method),
            (Side::Client, Some(_)) => self.misdirected(id, method),
            (side, None) => match (side, core::str::from_utf8(method).unwrap_or_default()) {
                (Side::Server, "initialize") => Message::HandshakeRequest { id, request: read_handshake_request(&json(), local) },
                (Side::Client, method @ ("sampling/createMessage" | "elicitation/create" | "roots/list")) => {
                    self.ask(id, method, json(), meta, own)
                }
                (_, method) if lists(local.custom_methods, method) && !is_reserved(method) => {
                    let given = meta.given(frame);
                    let request = Ok(RawParams::custom(method, json()));
                    Message::Request { id, request, meta: given, token: meta.token, depth: meta.depth, caller: None }
                }
                (_, "initialize" | "sampling/createMessage" | "elicitation/create" | "roots/list") => self.misdirected(id, method),
                _ => not_found(None, id, method),
            },
        }
    }

    fn misdirected(self, id: WireId, method: &[u8]) -> Message {
        not_found(Some(Violation::WrongDirection), id, method)
    }

    fn ask(self, id: WireId, method: &str, params: Json, meta: Meta<'_>, own: &Capabilities) -> Message {
        Message::InputRequest { id, ask: self.read_ask(method, params, own).map(Box::new), parent: meta.parent, depth: meta.depth }
    }

    /// Reads an input request. Refuses the request unless this end has declared the capability for it.
    pub(super) fn read_ask(self, method: &str, params: Json, own: &Capabilities) -> Result<InputRequest, Refusal> {
        match method {
            "sampling/createMessage" if own.sampling => {
                sampling::check(&params, own.sampling_tools, self.revision()).map(|()| sampling::read(params)).map_err(wrong_params)
            }
            "elicitation/create" => self.elicitation(&params, own),
            "roots/list" if own.roots => Ok(InputRequest::Roots),
            _ => Err(undeclared(unknown_method(method.as_bytes()))),
        }
    }

    /// Reads an elicitation request. A missing mode means a form ("Elicitation", section "Elicitation Requests"), and an undeclared mode is
    /// an invalid parameter (section "Error Handling").
    fn elicitation(self, params: &Json, own: &Capabilities) -> Result<InputRequest, Refusal> {
        let by_form = own.elicitation && self.revision() >= Revision::R2025_06_18;
        let by_url = own.elicitation_url && self.has_urls();
        if !by_form && !by_url {
            return Err(undeclared(unknown_method(b"elicitation/create")));
        }
        let not_offered = |mode| undeclared(RpcError::invalid_params(alloc::format!("elicitation by {mode} was not declared")));
        let mode = params.given("mode").map_or_else(|| Some(String::from("form")), |mode| json_string(&mode));
        match mode.as_deref() {
            Some("form") if by_form => read_form(params, self.field_kinds()).map_err(wrong_params),
            Some("url") if by_url && self.is_stateless() => {
                OpenUrl::read_without_id(params.as_bytes()).map(InputRequest::from).map_err(wrong_params)
            }
            Some("url") if by_url => OpenUrl::read(params.as_bytes()).map(InputRequest::from).map_err(wrong_params),
            Some(mode @ ("form" | "url")) => Err(not_offered(mode)),
            _ => Err(wrong_params("mode must be form or url")),
        }
    }

    fn notification(self, method: &[u8], given: Option<&IndexedObject<'_>>, frame: Frame<'_>, local: &LocalEnd<'_>) -> Message {
        let max = local.limits.id_bytes;
        let params = given.unwrap_or(const { &IndexedObject::empty_object() });
        if params.only("_meta").is_err() {
            return Message::Reject { violation: Some(Violation::RepeatedMember), answer: None };
        }
        // Checked first, since progress is by far the most frequent notification.
        if method == b"notifications/progress" {
            return read_progress(params, frame, max);
        }
        let method = core::str::from_utf8(method).unwrap_or_default();
        if self.is_stateless_client()
            && let Some(message) = stateless_client::notification(method, params, local.limits.subscriptions, max)
        {
            return message;
        }
        let wrong = || Message::Reject { violation: Some(Violation::InvalidParams), answer: None };
        let sender = match method {
            "notifications/cancelled" => {
                let id = params.member("requestId").and_then(|id| WireId::read(id, max));
                let reason = params.member("reason").and_then(|reason| frame.text_lossy(reason));
                return id.map_or_else(wrong, |id| Message::Cancel { id, reason });
            }
            "notifications/initialized" | "notifications/roots/list_changed" => Side::Client,
            "notifications/message"
            | "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => Side::Server,
            "notifications/elicitation/complete" if self.has_urls() => Side::Server,
            method if !lists(local.custom_notifications, method) || is_reserved(method) || op_of(method.as_bytes()).is_some() => {
                return ignored_message();
            }
            _ => {
                return Message::Notification(Notification::Custom {
                    method: method.into(),
                    params: given.map(|params| frame.json(params.text())),
                });
            }
        };
        if sender == self.side {
            return Message::Reject { violation: Some(Violation::WrongDirection), answer: None };
        }
        match method {
            "notifications/initialized" => Message::HandshakeConfirmed,
            "notifications/message" => {
                read_log(params, frame).map_or_else(wrong, |record| Message::Log { record, invocation: None })
            }
            "notifications/tools/list_changed" => Message::Notification(Notification::ToolsChanged),
            "notifications/prompts/list_changed" => Message::Notification(Notification::PromptsChanged),
            "notifications/resources/list_changed" => Message::Notification(Notification::ResourcesChanged),
            "notifications/roots/list_changed" => Message::Notification(Notification::RootsChanged),
            "notifications/elicitation/complete" if !local.capabilities.elicitation_url => ignored_message(),
            "notifications/elicitation/complete" => {
                let id = params.member("elicitationId").and_then(|id| frame.text(id));
                id.map_or_else(wrong, |id| Message::Notification(Notification::ElicitationComplete { id }))
            }
            _ => {
                let uri = params.member("uri").and_then(|uri| frame.text(uri));
                uri.map_or_else(wrong, |uri| Message::Notification(Notification::ResourceUpdated { uri }))
            }
        }
    }

    pub(crate) fn read_handshake_answer(self, result: &Json, newest: Revision) -> Result<PeerInfo, HandshakeFailed> {
        let text = |name: &str| result.member(name).as_ref().and_then(json_string);
        let failed = |name: &'static str| HandshakeFailed::of(result.as_bytes(), name, name);
        let revision = text("protocolVersion").ok_or_else(|| failed("protocolVersion"))?;
        let revision = Revision::from_name(&revision).filter(|revision| *revision <= newest).ok_or(HandshakeFailed::Version)?;
        let declared = result.member("capabilities").filter(Json::is_object).ok_or_else(|| failed("capabilities"))?;
        let server = member(result.as_bytes(), "serverInfo").filter(|server| Kind::of(server) == Kind::Object);
        let server = server.ok_or_else(|| failed("serverInfo"))?;
        let identity = read_identity(server).ok_or_else(|| match member(server, "name").and_then(string_lossy) {
            Some(_) => HandshakeFailed::of(server, "version", "serverInfo.version"),
            None => HandshakeFailed::of(server, "name", "serverInfo.name"),
        })?;
        Ok(PeerInfo {
            identity,
            protocol: Text::from_static(revision.as_str()),
            capabilities: read_capabilities(&declared),
            declared,
            instructions: result.member("instructions").and_then(|text| text.as_text_lossy()),
            credentials: None,
        })
    }

    /// Checks a result. In a revision without a handshake, checks its `resultType`. In any other revision, checks only that the result of a
    /// tool, if it is short, is not a task (2025-11-25, "Tasks"): this end never asks for a task.
    pub(crate) fn check_result(self, _exchange: u64, op: Op, result: &Json) -> ResultFit {
        if self.is_stateless() {
            return Self::check_type(Some(op), result);
        }
        /// The maximum length in bytes of a result that is checked for a task, since the check takes time in proportion to the length.
        const TASK: usize = 4096;
        /// The beginning of nearly every result.
        const CONTENT: &[u8] = br#"{"content":"#;
        let text = result.as_bytes();
        let may_be_task = op == Op::CallTool && text.len() <= TASK && !text.starts_with(CONTENT);
        let is_task = may_be_task && result.given("task").is_some() && result.given("content").is_none();
        if is_task { ResultFit::Wrong } else { ResultFit::Fits }
    }

    pub(crate) fn read_answer(self, ask: &InputRequest, result: &Json) -> Result<InputResponse, Text> {
        Ok(match ask {
            InputRequest::Sample(_) => InputResponse::Sample(SampleResult {
                text: result
                    .member("content")
                    .and_then(|content| sampling::answer_text(content.as_bytes()))
                    .ok_or_else(|| Text::from_static("`content` is missing or no content"))?,
                model: result.member("model").as_ref().and_then(json_string).unwrap_or_default(),
                result: Some(result.clone()),
            }),
            InputRequest::Elicit(form) => InputResponse::Elicit(match read_action(result)? {
                OpenUrlResult::Accept => {
                    // Some clients send no content for a form without fields.
                    let nothing = || form.is_confirmation().then(Json::empty_object);
                    let content = result.given("content").or_else(nothing).filter(Json::is_object);
                    let content = content.ok_or_else(|| Text::from_static("`content` is missing or no object"))?;
                    let content = form::without_nulls(content);
                    form::check_content(&form.schema, &content)?;
                    ElicitResult::Accept(content)
                }
                OpenUrlResult::Decline => ElicitResult::Decline,
                OpenUrlResult::Cancel => ElicitResult::Cancel,
            }),
            InputRequest::OpenUrl(_) => InputResponse::OpenUrl(read_action(result)?),
            InputRequest::Confirm { .. } => InputResponse::Confirm(read_action(result)? == OpenUrlResult::Accept),
            InputRequest::Roots => InputResponse::Roots(
                result
                    .member("roots")
                    .filter(are_roots)
                    .ok_or_else(|| Text::from_static("`roots` is missing or no list of roots that are files"))?,
            ),
        })
    }
}

/// Reads a handshake request. Our answer names the revision that the client has named, if we speak it, and otherwise our newest revision
/// ("Lifecycle", section "Version Negotiation").
fn read_handshake_request(params: &Json, local: &LocalEnd<'_>) -> Result<HandshakeRequest, HandshakeRejected> {
    let newest = local.newest();
    let wrong = |what| RpcError::new(RpcError::INVALID_PARAMS, what);
    let requested = params.member("protocolVersion").as_ref().and_then(json_string);
    let requested = requested.ok_or_else(|| wrong("protocolVersion must be text"))?;
    let declared = params.member("capabilities").filter(Json::is_object);
    let declared = declared.ok_or_else(|| wrong("capabilities must be an object"))?;
    let identity = member(params.as_bytes(), "clientInfo").and_then(read_identity);
    let identity = identity.ok_or_else(|| wrong("clientInfo must be an object with a name and a version"))?;
    let revision = Revision::from_name(&requested).filter(|revision| *revision <= newest).unwrap_or(newest);
    let capabilities = read_capabilities(&declared);
    let peer = PeerInfo {
        identity,
        protocol: Text::from_static(revision.as_str()),
        // 2025-06-18 added form mode, 2025-11-25 URL mode.
        capabilities: Capabilities {
            elicitation: capabilities.elicitation && revision >= Revision::R2025_06_18,
            elicitation_url: capabilities.elicitation_url && revision >= Revision::R2025_11_25,
            ..capabilities
        },
        declared,
        instructions: None,
        credentials: None,
    };
    Ok(HandshakeRequest { answer: HandshakeAnswer::Result(handshake_answer(revision, local)), peer: peer.into() })
}

fn undeclared(error: RpcError) -> Refusal {
    Refusal { violation: Some(Violation::UndeclaredInput), error }
}

fn set_level(id: WireId, params: Option<&IndexedObject<'_>>) -> Message {
    let level = params.and_then(|params| params.member("level")).and_then(string).and_then(|name| Level::from_name(&name));
    Message::SetLevel { id, level: level.ok_or_else(|| wrong_params("level must be one of the eight log levels")) }
}

fn invalid(violation: Option<Violation>, id: WireId, code: i64, why: impl Into<Text>) -> Message {
    Message::Reject { violation, answer: Some((Some(id), RpcError::new(code, why))) }
}

/// Reads progress ("Progress", section "Progress Flow").
fn read_progress(params: &IndexedObject<'_>, frame: Frame<'_>, max: usize) -> Message {
    let (mut token, mut progress, mut partial, mut is_valid) = (None, Progress::default(), None, true);
    params.for_each(|name, value| {
        // Not a `match`, which would compare a name byte by byte.
        if name == b"progressToken" {
            token = WireId::read(value, max).map(|token| token.as_ours());
        } else if name == b"progress" {
            progress.value = number(value);
        } else if name == b"total" && value != b"null" {
            progress.total = number(value);
            is_valid &= progress.total.is_some();
        } else if name == b"message" && value != b"null" {
            progress.message = frame.text_lossy(value);
            is_valid &= progress.message.is_some();
        } else if name == b"_meta" {
            for_each_member(value, |name, value| match name {
                meta::DATA if value != b"null" => progress.data = Some(frame.json(value)),
                meta::PARTIAL if Kind::of(value) == Kind::Object => partial = Some(frame.json(value).into()),
                _ => {}
            });
        }
    });
    match token {
        Some(number) if is_valid && progress.value.is_some() => Message::Progress { number, progress, partial },
        _ => Message::Reject { violation: Some(Violation::InvalidProgress), answer: None },
    }
}

fn read_log(params: &IndexedObject<'_>, frame: Frame<'_>) -> Option<LogRecord> {
    let level = Level::from_name(&string(params.member("level")?)?)?;
    let logger = params.member("logger").and_then(|logger| frame.text_lossy(logger));
    Some(LogRecord { level, logger, data: frame.json(params.member("data")?) })
}

fn json_string(json: &Json) -> Option<String> {
    string(json.as_bytes()).map(Cow::into_owned)
}

fn read_form(params: &Json, fields: FieldKinds) -> Result<InputRequest, String> {
    let message = params.member("message").and_then(|message| message.as_text_lossy()).ok_or("message must be text")?.to_string();
    let schema = params.member("requestedSchema").ok_or("requestedSchema is missing")?;
    Ok(InputRequest::Elicit(Elicit { message, schema: form::read(schema, fields)? }))
}

/// Returns `true` for an array of objects, each with the URI of a file ("Roots", section "Data Types").
fn are_roots(roots: &Json) -> bool {
    let is_file = |root: &[u8]| member(root, "uri").and_then(string).is_some_and(|uri| uri.starts_with("file://"));
    Kind::of(roots.as_bytes()) == Kind::Array && elements(roots.as_bytes()).into_iter().all(is_file)
}

fn read_action(result: &Json) -> Result<OpenUrlResult, Text> {
    let action = result.member("action").as_ref().and_then(json_string);
    action.and_then(|action| OpenUrlResult::from_name(&action)).ok_or_else(|| Text::from_static("`action` is missing or unknown"))
}
