//! Reading envelopes as messages of Tesseron.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use super::write::{client_name, welcomed};
use super::{App, AppId, ResumeCredentials, Tesseron, code, is_compatible, is_reserved, named_exchange, op_of};
use crate::dialect::form::{self, FieldKinds};
use crate::dialect::message::{HandshakeAnswer, HandshakeRejected, ignored_message};
use crate::dialect::request::{Member, RawParams};
use crate::dialect::{
    Capabilities, Elicit, ElicitResult, HandshakeFailed, HandshakeRequest, Identity, InputRequest, InputResponse, Level, LocalEnd,
    LogRecord, Message, Notification, Op, PeerChange, PeerInfo, Progress, Refusal, ResponseBody, ResultFit, Sample, SampleResult,
    SessionCredentials, excerpt, lists,
};
use crate::error::{RpcError, Violation};
use crate::json::cursor::IndexedObject;
use crate::json::read::{Kind, for_each_key, integer, member, number, string, string_lossy};
use crate::json::write::Object;
use crate::json::{Frame, Json, Payload, Text};
use crate::wire::{self, Body, Element, Envelope, Malformed, Tolerated, WireId};

impl Tesseron {
    pub(crate) fn read(self, bytes: &Bytes, local: &LocalEnd<'_>, tolerated: &Tolerated) -> Message {
        let LocalEnd { limits, .. } = local;
        let options = wire::Options { depth: limits.json_depth, id: limits.id_bytes, batch: None, lenient: true };
        let frame = Frame::new(bytes);
        // Tesseron has no batches (`batch: None`), so `Message::Batch` is never made.
        wire::read(bytes, options, tolerated, |element| self.message(element, frame, local, tolerated), Message::Batch)
    }

    fn message(self, element: Element<'_>, frame: Frame<'_>, local: &LocalEnd<'_>, tolerated: &Tolerated) -> Message {
        if let Ok(Envelope::Request { params, .. } | Envelope::Notification { params, .. }) = &element {
            // The input of an action and the value of a resource may be any JSON.
            tolerated.count_nulls(*params, &["input", "value"]);
        }
        match element {
            Ok(Envelope::Request { id, method, params }) => self.request(id, method, params, frame, local),
            Ok(Envelope::Notification { method, params }) => self.notification(method, params, frame, local),
            Ok(Envelope::Response { id, body }) => {
                let body = match body {
                    Body::Result(result) => ResponseBody::Result(frame.payload(result)),
                    Body::Missing => ResponseBody::Result(Payload::Own(Json::null())),
                    Body::Error(error) => ResponseBody::Error(error),
                    Body::Malformed(why) => ResponseBody::malformed(frame, why),
                };
                Message::response(&id, body, frame)
            }
            Ok(Envelope::Misaddressed { number, why }) => Message::misaddressed(number, why, frame),
            Err(Malformed { violation, answer, recovered }) => {
                // A request in which only the parameters are invalid gets an error reply. Any other text that is not a message is ignored
                // (page "Wire format").
                let answer = answer.filter(|_| violation == Violation::InvalidParams);
                // Nor does JSON that is no message answer a request.
                match recovered.filter(|_| matches!(violation, Violation::NotJson | Violation::TooDeep)) {
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
        given: Option<&IndexedObject<'_>>,
        frame: Frame<'_>,
        local: &LocalEnd<'_>,
    ) -> Message {
        let params = given.unwrap_or(const { &IndexedObject::empty_object() });
        let method = core::str::from_utf8(method).unwrap_or_default();
        if lists(local.custom_methods, method) && op_of(method).is_none() && !is_reserved(method) {
            let params = given.map_or_else(Json::empty_object, |params| frame.json(params.text()));
            return Message::Request {
                id,
                request: Ok(RawParams::custom(method, params)),
                meta: None,
                token: None,
                depth: 0,
                caller: None,
            };
        }
        match (self, method) {
            (Self::App, _) => match op_of(method) {
                Some(op) => operation(id, op, given, frame, local.limits.id_bytes),
                None => not_found(id, method),
            },
            (Self::Gateway, "tesseron/hello") => Message::HandshakeRequest { id, request: hello(params, frame, local) },
            (Self::Gateway, "tesseron/resume") => Message::HandshakeRequest { id, request: resume(params, frame, local) },
            (Self::Gateway, "sampling/request" | "elicitation/request") => ask(id, method, params, frame, local),
            (Self::Gateway, _) => not_found(id, method),
        }
    }

    fn notification(self, method: &[u8], given: Option<&IndexedObject<'_>>, frame: Frame<'_>, local: &LocalEnd<'_>) -> Message {
        let max = local.limits.id_bytes;
        let params = given.unwrap_or(const { &IndexedObject::empty_object() });
        let method = core::str::from_utf8(method).unwrap_or_default();
        let read = match (self, method) {
            (Self::Gateway, "actions/progress") => {
                return read_progress(params, frame, max);
            }
            (Self::Gateway, "log") => read_log(params, frame).map(|record| {
                let named = params.member("invocationId").filter(|name| *name != b"null");
                let invocation = named.map(|name| string(name).as_deref().and_then(named_exchange).unwrap_or_default());
                Message::Log { record, invocation }
            }),
            (Self::Gateway, "actions/list_changed") => {
                array(params, "actions", frame).map(Notification::Actions).map(Message::Notification)
            }
            (Self::Gateway, "resources/list_changed") => {
                array(params, "resources", frame).map(Notification::Resources).map(Message::Notification)
            }
            (Self::Gateway, "resources/updated") => read_update(params, frame).map(Message::Notification),
            (Self::App, "actions/cancel") => {
                let name = params.member("invocationId").filter(|name| Kind::of(name) == Kind::String);
                name.and_then(|name| WireId::read(name, max)).map(|id| Message::Cancel { id, reason: None })
            }
            (Self::App, "tesseron/claimed") => read_claimed(params, frame),
            // A method of a request, without an id, cannot get a reply. A notification that only this end may send has no effect.
            _ if op_of(method).is_some() || is_reserved(method) => return ignored(Violation::WrongDirection),
            _ if !lists(local.custom_notifications, method) => return ignored_message(),
            _ => {
                let params = given.map(|params| frame.json(params.text()));
                return Message::Notification(Notification::Custom { method: method.into(), params });
            }
        };
        read.unwrap_or_else(|| ignored(Violation::InvalidParams))
    }

    // ---- The handshake ----

    /// Reads the answer to a hello or a resume. The agent in the answer may be pending, and is replaced when the session is claimed.
    pub(crate) fn read_handshake_answer(self, result: &Json) -> Result<PeerInfo, HandshakeFailed> {
        let text = |name: &str| result.member(name).and_then(|value| value.as_text());
        let failed = |name: &'static str| HandshakeFailed::of(result.as_bytes(), name, name);
        let protocol = text("protocolVersion").ok_or_else(|| failed("protocolVersion"))?;
        if !is_compatible(&protocol) {
            return Err(HandshakeFailed::Version);
        }
        let session_id = text("sessionId").ok_or_else(|| failed("sessionId"))?;
        let declared = result.member("capabilities").filter(Json::is_object).ok_or_else(|| failed("capabilities"))?;
        let identity = result.member("agent").and_then(|agent| read_agent(agent.as_bytes()));
        let identity = identity.ok_or_else(|| failed("agent"))?;
        Ok(PeerInfo {
            identity,
            protocol,
            capabilities: agent_capabilities(declared.as_bytes()),
            declared,
            instructions: None,
            credentials: Some(SessionCredentials { session_id, claim_code: text("claimCode"), resume_token: text("resumeToken") }),
        })
    }

    // ---- Answers ----

    /// Checks the result of an action (page "Actions"): an object that names the call. The output may be missing.
    pub(crate) fn check_result(self, exchange: u64, op: Op, result: &Json) -> ResultFit {
        if op != Op::CallTool {
            return ResultFit::Fits;
        }
        let named = result.member("invocationId");
        match named.as_ref().map(|name| string(name.as_bytes()).as_deref().and_then(named_exchange)) {
            Some(Some(named)) if named == exchange => ResultFit::Fits,
            // The name is wrong, but the id of the response identifies the call, so the output is usable.
            Some(_) => ResultFit::Tolerated,
            None if result.member("output").is_some() => ResultFit::Tolerated,
            None => ResultFit::Wrong,
        }
    }

    pub(crate) fn read_answer(self, ask: &InputRequest, result: &Json) -> Result<InputResponse, Text> {
        let unknown = || Text::from_static("`action` is missing or unknown");
        Ok(match ask {
            InputRequest::Sample(_) => {
                let content = result.member("content").ok_or_else(|| Text::from_static("`content` is missing"))?;
                let text = string(content.as_bytes()).map_or_else(|| String::from(content.as_str()), Cow::into_owned);
                InputResponse::Sample(SampleResult { text, model: String::new(), result: Some(result.clone()) })
            }
            InputRequest::Elicit(form) => InputResponse::Elicit(match read_action(result).as_deref() {
                Some("accept") => {
                    let nothing = || form.is_confirmation().then(Json::empty_object);
                    let value = result.given("value").or_else(nothing).filter(Json::is_object);
                    let value = form::without_nulls(value.ok_or_else(|| Text::from_static("`value` is missing or no object"))?);
                    form::check_content(&form.schema, &value)?;
                    ElicitResult::Accept(value)
                }
                Some("decline") => ElicitResult::Decline,
                Some("cancel") => ElicitResult::Cancel,
                _ => return Err(unknown()),
            }),
            InputRequest::Confirm { .. } => InputResponse::Confirm(read_action(result).ok_or_else(unknown)? == "accept"),
            // Tesseron has neither of these input requests, and `check_ask` refuses both.
            InputRequest::OpenUrl(_) => return Err(Text::from_static("there are no addresses to open")),
            InputRequest::Roots => return Err(Text::from_static("there are no roots")),
        })
    }
}

/// Reads a request of a gateway. An action is a tool, its input is the arguments, and the name of a resource is its URI.
fn operation(id: WireId, op: Op, given: Option<&IndexedObject<'_>>, frame: Frame<'_>, max: usize) -> Message {
    const ACTION: [Member; 2] = [Member::text("name"), Member::any("input")];
    const SUBSCRIBE: [Member; 2] = [Member::text("name"), Member::text("subscriptionId")];
    const UNSUBSCRIBE: [Member; 2] = [Member::none(), Member::text("subscriptionId")];
    const READ: [Member; 2] = [Member::text("name"), Member::none()];
    let members = match op {
        Op::CallTool => &ACTION,
        Op::Subscribe => &SUBSCRIBE,
        Op::Unsubscribe => &UNSUBSCRIBE,
        _ => &READ,
    };
    let wrong = |id, what: Text| invalid(Some(Violation::InvalidParams), id, RpcError::INVALID_PARAMS, what);
    let request = match RawParams::read(op, |indexed| frame.payload(indexed.text()), given, members) {
        Ok(request) => request,
        Err(why) => return wrong(id, why),
    };
    let mut token = None;
    if op == Op::CallTool {
        let named = given.and_then(|params| params.member("invocationId")).filter(|name| Kind::of(name) == Kind::String);
        token = named.and_then(|name| WireId::read(name, max));
        if token.is_none() {
            return wrong(id, Text::from_static("`invocationId` is missing, no string or too long"));
        }
    }
    Message::Request { id, request: Ok(request), meta: None, token, depth: 0, caller: None }
}

fn ask(id: WireId, method: &str, params: &IndexedObject<'_>, frame: Frame<'_>, local: &LocalEnd<'_>) -> Message {
    let own = local.capabilities;
    let is_sampling = method == "sampling/request";
    let (declared, refusal_code) = match is_sampling {
        true => (own.sampling, code::SAMPLING_NOT_AVAILABLE),
        false => (own.elicitation, code::ELICITATION_NOT_AVAILABLE),
    };
    let named = params.member("invocationId").and_then(string);
    let parent = named.as_deref().and_then(named_exchange);
    let ask = if declared {
        let read = if is_sampling { read_sample(params, frame) } else { read_form(params, frame) };
        let read = read.and_then(|ask| named.map(|_| ask).ok_or_else(|| String::from("invocationId must be text")));
        read.map(Box::new).map_err(|why| Refusal {
            violation: Some(Violation::InvalidParams),
            error: RpcError::new(RpcError::INVALID_PARAMS, why),
        })
    } else {
        let error =
            RpcError::fixed(refusal_code, "the agent does not support this input request").with_data(client_name(local.identity));
        Err(Refusal { violation: Some(Violation::UndeclaredInput), error })
    };
    Message::InputRequest { id, ask, parent, depth: 0 }
}

fn hello(params: &IndexedObject<'_>, frame: Frame<'_>, local: &LocalEnd<'_>) -> Result<HandshakeRequest, HandshakeRejected> {
    let wrong = |what| HandshakeRejected::from(RpcError::fixed(RpcError::INVALID_PARAMS, what));
    check_version(params)?;
    let described = AppDescription::read(params).map_err(wrong)?;
    check_app_id(&described.app.name, RpcError::INVALID_PARAMS)?;
    let answer = match local.welcome() {
        Some(welcome) => HandshakeAnswer::Result(welcomed(welcome, local)),
        None => HandshakeAnswer::Owner(None),
    };
    Ok(HandshakeRequest { peer: described.into_peer(frame.json(params.text())), answer })
}

fn read_action(result: &Json) -> Option<String> {
    let action = result.member("action")?;
    string(action.as_bytes()).map(Cow::into_owned)
}

fn ignored(violation: Violation) -> Message {
    Message::Reject { violation: Some(violation), answer: None }
}

fn invalid(violation: Option<Violation>, id: WireId, code: i64, why: impl Into<Text>) -> Message {
    Message::Reject { violation, answer: Some((Some(id), RpcError::new(code, why))) }
}

fn not_found(id: WireId, method: &str) -> Message {
    // A late bind is not a violation: binds are sent on the same channel, before the session begins.
    let is_known = (op_of(method).is_some() || is_reserved(method)) && method != "tesseron/bind";
    let violation = is_known.then_some(Violation::WrongDirection);
    invalid(violation, id, RpcError::METHOD_NOT_FOUND, alloc::format!("Method not found: {}", excerpt(method)))
}

fn array(params: &IndexedObject<'_>, name: &str, frame: Frame<'_>) -> Option<Json> {
    params.member(name).filter(|value| Kind::of(value) == Kind::Array).map(|value| frame.json(value))
}

/// Checks the version of a hello or a resume (page "Handshake", section "Version negotiation"). After an incompatible version the app
/// cannot try again on this channel.
fn check_version(params: &IndexedObject<'_>) -> Result<(), HandshakeRejected> {
    let version = params.member("protocolVersion").and_then(string);
    let version = version.ok_or_else(|| RpcError::fixed(RpcError::INVALID_PARAMS, "protocolVersion must be text"))?;
    if is_compatible(&version) {
        return Ok(());
    }
    let message = alloc::format!("Protocol version {:?} is not compatible with {}", excerpt(&version), super::VERSION);
    Err(HandshakeRejected { error: RpcError::new(code::PROTOCOL_MISMATCH, message), is_final: true })
}

/// Checks an app id, which becomes part of the names of its tools.
fn check_app_id(id: &str, code: i64) -> Result<(), RpcError> {
    AppId::parse(id).map(drop).map_err(|why| RpcError::new(code, alloc::format!("app.id: {why}")))
}

/// The description of an app in a hello or a resume.
struct AppDescription {
    app: Identity,
    description: Option<Text>,
    subscriptions: bool,
}

impl AppDescription {
    fn read(params: &IndexedObject<'_>) -> Result<Self, &'static str> {
        let is = |name: &str, kind: Kind| params.member(name).is_some_and(|value| Kind::of(value) == kind);
        let app = params.member("app").filter(|app| Kind::of(app) == Kind::Object).ok_or("app must be an object")?;
        let text = |name: &str| member(app, name).and_then(string).map(Cow::into_owned);
        let id = text("id").ok_or("app.id must be text")?;
        let name = text("name").ok_or("app.name must be text")?;
        if !is("actions", Kind::Array) {
            return Err("actions must be an array");
        }
        if !is("resources", Kind::Array) {
            return Err("resources must be an array");
        }
        if !is("capabilities", Kind::Object) {
            return Err("capabilities must be an object");
        }
        let capabilities = params.member("capabilities").unwrap_or_default();
        Ok(Self {
            app: Identity { title: Some(name), ..Identity::new(id, text("version").unwrap_or_default()) },
            description: text("description").map(Text::from),
            subscriptions: is_true(capabilities, "subscriptions"),
        })
    }

    fn into_peer(self, declared: Json) -> Box<PeerInfo> {
        let protocol = declared.member("protocolVersion").and_then(|version| version.as_text());
        Box::new(PeerInfo {
            identity: self.app,
            protocol: protocol.unwrap_or_else(|| Text::from_static("")),
            capabilities: Capabilities {
                tools: true,
                tools_list_changed: true,
                resources: true,
                resources_subscribe: self.subscriptions,
                resources_list_changed: true,
                logging: true,
                ..Capabilities::default()
            },
            declared,
            instructions: self.description,
            credentials: None,
        })
    }
}

/// Reads a resume. Every refusal but that of the version has the code [`code::RESUME_FAILED`], after which the app begins a new session
/// (page "Resume").
fn resume(params: &IndexedObject<'_>, frame: Frame<'_>, local: &LocalEnd<'_>) -> Result<HandshakeRequest, HandshakeRejected> {
    let failed = |what: &'static str| HandshakeRejected::from(RpcError::fixed(code::RESUME_FAILED, what));
    let text = |name: &str| params.member(name).and_then(|value| frame.text(value));
    let session_id = text("sessionId").ok_or_else(|| failed("sessionId must be text"))?;
    let resume_token = text("resumeToken").ok_or_else(|| failed("resumeToken must be text"))?;
    if text("protocolVersion").is_none() {
        return Err(failed("protocolVersion must be text"));
    }
    let described = AppDescription::read(params).map_err(failed)?;
    check_version(params)?;
    check_app_id(&described.app.name, code::RESUME_FAILED)?;
    if local.welcome().is_some() {
        return Err(failed("sessions are not resumed here"));
    }
    // `PeerInfo::declared` is public, so it must not contain the token.
    let mut declared = Vec::new();
    Object::write(&mut declared, |object| {
        for_each_key(params.text(), |key, value| {
            if !matches!(&*key.name(), "sessionId" | "resumeToken") {
                object.copy(key, value);
            }
        });
    });
    let credentials = ResumeCredentials { session_id, resume_token };
    Ok(HandshakeRequest { peer: described.into_peer(Json::written(declared)), answer: HandshakeAnswer::Owner(Some(credentials)) })
}

impl App {
    /// The method of the handshake request, which resumes a session or begins one.
    pub(super) fn handshake_method(&self) -> &'static str {
        if self.resume.is_some() { "tesseron/resume" } else { "tesseron/hello" }
    }
}

fn is_true(object: &[u8], name: &str) -> bool {
    member(object, name) == Some(b"true")
}

fn agent_capabilities(declared: &[u8]) -> Capabilities {
    Capabilities {
        sampling: is_true(declared, "sampling"),
        elicitation: is_true(declared, "elicitation"),
        ..Capabilities::default()
    }
}

fn read_agent(agent: &[u8]) -> Option<Identity> {
    let text = |name: &str| member(agent, name).and_then(string).map(Cow::into_owned);
    Some(Identity { title: Some(text("name")?), ..Identity::new(text("id")?, "") })
}

fn read_claimed(params: &IndexedObject<'_>, frame: Frame<'_>) -> Option<Message> {
    let identity = params.member("agent").and_then(read_agent)?;
    let capabilities = match params.given("agentCapabilities") {
        Some(declared) if Kind::of(declared) == Kind::Object => Some((agent_capabilities(declared), frame.json(declared))),
        Some(_) => return None,
        None => None,
    };
    Some(Message::PeerChanged(Box::new(PeerChange { identity, capabilities })))
}

/// Reads progress, which may have a message, a percentage, data, or any of these together (page "Progress").
fn read_progress(params: &IndexedObject<'_>, frame: Frame<'_>, max: usize) -> Message {
    let (mut token, mut progress, mut is_valid) = (None, Progress::default(), true);
    params.for_each(|name, value| {
        // Not a `match`, which would compare a name byte by byte.
        if name == b"invocationId" && Kind::of(value) == Kind::String {
            token = string(value).and_then(|name| match named_exchange(&name) {
                None if value.len() > max => None,
                // `Some(None)` if the name cannot be one of ours.
                number => Some(number),
            });
        } else if name == b"percent" && value != b"null" {
            progress.value = number(value).map(|percent| percent.clamp(0.0, 100.0));
            progress.total = progress.value.map(|_| 100.0);
            is_valid &= progress.value.is_some();
        } else if name == b"message" && value != b"null" {
            progress.message = frame.text_lossy(value);
            is_valid &= progress.message.is_some();
        } else if name == b"data" && value != b"null" {
            progress.data = Some(frame.json(value));
        }
    });
    match token {
        Some(number) if is_valid => Message::Progress { number, progress, partial: None },
        _ => ignored(Violation::InvalidProgress),
    }
}

/// Reads a log record. Its data is an object with the message and the members of `meta` (`docs/protocols/tesseron.md`, "Log").
fn read_log(params: &IndexedObject<'_>, frame: Frame<'_>) -> Option<LogRecord> {
    let level = params.member("level").and_then(string)?;
    let level = match &*level {
        "warn" => Level::Warning,
        name => Level::from_name(name).unwrap_or(Level::Info),
    };
    let message = params.member("message").filter(|message| Kind::of(message) == Kind::String)?;
    let mut data = Vec::new();
    Object::write(&mut data, |object| {
        object.json("message", &frame.json(message));
        for_each_key(params.member("meta").unwrap_or_default(), |key, value| {
            if key.name() != "message" {
                object.copy(key, value);
            }
        });
    });
    Some(LogRecord { level, logger: None, data: Json::written(data) })
}

fn read_update(params: &IndexedObject<'_>, frame: Frame<'_>) -> Option<Notification> {
    let subscription = params.member("subscriptionId").and_then(|name| frame.text(name))?;
    let value = params.member("value").map_or_else(Json::null, |value| frame.json(value));
    Some(Notification::ResourceValue { subscription, uri: Text::from_static(""), value })
}

fn read_sample(params: &IndexedObject<'_>, frame: Frame<'_>) -> Result<InputRequest, String> {
    let prompt = params.member("prompt").and_then(string_lossy).ok_or("prompt must be text")?;
    let max_tokens = read_tokens(params.member("maxTokens"))?;
    let schema = params.member("schema").filter(|schema| *schema != b"null").map(|schema| frame.json(schema));
    let params = Some(frame.json(params.text()));
    Ok(Sample { prompt: prompt.into_owned(), max_tokens, schema, params }.into())
}

/// Checks a sampling request of ours, before it is sent, as a gateway checks it.
pub(super) fn check_sample(sample: &Sample) -> Result<(), String> {
    let Some(params) = &sample.params else {
        return if sample.max_tokens == Some(0) { Err(String::from(TOKENS)) } else { Ok(()) };
    };
    member(params.as_bytes(), "prompt").and_then(string).ok_or("prompt must be text")?;
    read_tokens(member(params.as_bytes(), "maxTokens")).map(drop)
}

const TOKENS: &str = "maxTokens must be a positive whole number";

fn read_tokens(max: Option<&[u8]>) -> Result<Option<u64>, String> {
    match max {
        None | Some(b"null") => Ok(None),
        Some(max) => integer(max).filter(|max| *max > 0).map(Some).ok_or_else(|| String::from(TOKENS)),
    }
}

/// Reads a form (page "Elicitation"). A form that MCP forbids is refused, although Tesseron allows it, since the gateway passes forms on to
/// an agent over MCP.
fn read_form(params: &IndexedObject<'_>, frame: Frame<'_>) -> Result<InputRequest, String> {
    let message = params.member("question").and_then(string_lossy).ok_or("question must be text")?.into_owned();
    let schema = params.member("schema").map(|schema| frame.json(schema)).ok_or("schema is missing")?;
    form::check(&schema, FieldKinds::Plain)?;
    Ok(InputRequest::Elicit(Elicit { message, schema }))
}
