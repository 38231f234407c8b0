//! From envelopes to what they mean on Tesseron.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use super::{App, AppId, Credentials, End, Gateway, Tesseron, code, is_compatible, is_ours, named_exchange, op_of};
use crate::dialect::form::{self, Fields};
use crate::dialect::message::{GreetingAnswer, GreetingRefused};
use crate::dialect::{
    Answer, Ask, Capabilities, Change, Elicit, Elicited, Fit, Greeting, GreetingFailed, Identity, Level, LogRecord, Message,
    Notice, Op, Params, Pass, PeerInfo, Progress, ResponseBody, Sample, Sampled, shown,
};
use crate::error::{RpcError, Violation};
use crate::json::read::{Kind, for_each_key, integer, member, number, string};
use crate::json::scan::{Noted, Span};
use crate::json::write::{Object, push_json};
use crate::json::{Frame, Json, Payload, Text};
use crate::wire::{self, Body, Element, Envelope, Malformed, WireId};

impl Tesseron {
    pub(crate) fn read(&self, bytes: &Bytes) -> Message {
        let options = wire::Options { depth: self.limits.json_depth, id: self.limits.id_bytes, batch: None, lenient: true };
        let frame = Frame::new(bytes);
        // There are no batches, so none is ever made: each is refused while it is read.
        wire::read(bytes, options, |element| self.message(element, frame), Message::Batch)
    }

    fn message(&self, element: Element<'_>, frame: Frame<'_>) -> Message {
        match element {
            Ok(Envelope::Request { id, method, params }) => self.request(id, method, params, frame),
            Ok(Envelope::Notification { method, params }) => self.notification(method, params, frame),
            Ok(Envelope::Response { id, body }) => {
                let body = match body {
                    Body::Result(result) => ResponseBody::Result(frame.payload(result)),
                    Body::Missing => ResponseBody::Result(Payload::Own(Json::null())),
                    Body::Error(error) => ResponseBody::Error(error),
                    Body::Malformed => ResponseBody::Malformed,
                };
                Message::Response { number: id.as_ours(), body }
            }
            Err(Malformed { violation, answer }) => {
                // What is no message is passed over; a request that only its parameters spoil is answered (wire format page).
                let answer = answer.filter(|_| violation == Violation::InvalidParams);
                Message::Reject { violation: Some(violation), answer }
            }
        }
    }

    fn request(&self, id: WireId, method: &[u8], given: Option<&Noted<'_>>, frame: Frame<'_>) -> Message {
        let params = given.unwrap_or(const { &Noted::empty_object() });
        let method = core::str::from_utf8(method).unwrap_or_default();
        match (&self.end, method) {
            (End::App(_), _) => match op_of(method) {
                Some(op) => self.operation(id, op, params),
                None => not_found(id, method),
            },
            (End::Gateway(gateway), "tesseron/hello") => Message::Greeting { id, greeting: self.hello(gateway, params, frame) },
            (End::Gateway(gateway), "tesseron/resume") => Message::Greeting { id, greeting: resume(gateway, params, frame) },
            (End::Gateway(_), "sampling/request" | "elicitation/request") => self.ask(id, method, params, frame),
            (End::Gateway(_), _) => not_found(id, method),
        }
    }

    /// What a gateway asks for, in the words of the session.
    fn operation(&self, id: WireId, op: Op, params: &Noted<'_>) -> Message {
        let text = |name: &str| params.member(name).filter(|value| Kind::of(value) == Kind::String);
        let wrong = |id, what: &'static str| invalid(Some(Violation::InvalidParams), id, RpcError::INVALID_PARAMS, what);
        let (mut token, mut members) = (None, Vec::new());
        match op {
            Op::CallTool => {
                let Some(name) = text("name") else { return wrong(id, "name must be text") };
                let named = text("invocationId").and_then(|name| WireId::read(name, self.limits.id_bytes));
                let Some(named) = named else { return wrong(id, "invocationId must be text, and not too long") };
                token = Some(named);
                members.extend([("name", name), ("arguments", params.member("input").unwrap_or(b"null"))]);
            }
            Op::Unsubscribe => match text("subscriptionId") {
                Some(subscription) => members.push(("subscriptionId", subscription)),
                None => return wrong(id, "subscriptionId must be text"),
            },
            _ => {
                let Some(name) = text("name") else { return wrong(id, "name must be text") };
                members.push(("uri", name));
                if op == Op::Subscribe {
                    let Some(subscription) = text("subscriptionId") else { return wrong(id, "subscriptionId must be text") };
                    members.push(("subscriptionId", subscription));
                }
            }
        }
        Message::Request { id, params: rewritten(&op, &members).into(), op, token, depth: 0 }
    }

    fn ask(&self, id: WireId, method: &str, params: &Noted<'_>, frame: Frame<'_>) -> Message {
        if !self.claimed {
            return invalid(Some(Violation::OutOfPhase), id, code::UNAUTHORIZED, "the session is not claimed");
        }
        let (declared, missing) = match method {
            "sampling/request" => (self.own.sampling, code::SAMPLING_NOT_AVAILABLE),
            _ => (self.own.elicitation, code::ELICITATION_NOT_AVAILABLE),
        };
        if !declared {
            let error = RpcError::fixed(missing, "the agent does not offer this").with_data(self.client_name());
            return Message::Reject { violation: Some(Violation::UndeclaredInput), answer: Some((Some(id), error)) };
        }
        let ask = if method == "sampling/request" { read_sample(params, frame) } else { read_form(params, frame) };
        let named = params.member("invocationId").and_then(string);
        match (ask, named) {
            (Ok(ask), Some(named)) => Message::Ask { id, ask: ask.into(), parent: named_exchange(&named), depth: 0 },
            (Ok(_), None) => invalid(Some(Violation::InvalidParams), id, RpcError::INVALID_PARAMS, "invocationId must be text"),
            (Err(why), _) => invalid(Some(Violation::InvalidParams), id, RpcError::INVALID_PARAMS, why),
        }
    }

    fn notification(&self, method: &[u8], given: Option<&Noted<'_>>, frame: Frame<'_>) -> Message {
        let params = given.unwrap_or(const { &Noted::empty_object() });
        let method = core::str::from_utf8(method).unwrap_or_default();
        let read = match (&self.end, method) {
            (End::Gateway(_), "actions/progress") => {
                return read_progress(params, frame, self.limits.id_bytes);
            }
            (End::Gateway(_), "log") => read_log(params, frame).map(|record| {
                let named = params.member("invocationId").filter(|name| *name != b"null");
                let invocation = named.map(|name| string(name).as_deref().and_then(named_exchange).unwrap_or_default());
                Message::Log { record, invocation }
            }),
            (End::Gateway(_), "actions/list_changed") => array(params, "actions", frame).map(Notice::Actions).map(Message::Notice),
            (End::Gateway(_), "resources/list_changed") => {
                array(params, "resources", frame).map(Notice::Resources).map(Message::Notice)
            }
            (End::Gateway(_), "resources/updated") => read_update(params, frame).map(Message::Notice),
            (End::App(_), "actions/cancel") => {
                let name = params.member("invocationId").filter(|name| Kind::of(name) == Kind::String);
                name.and_then(|name| WireId::read(name, self.limits.id_bytes)).map(|id| Message::Cancel { id, reason: None })
            }
            (End::App(_), "tesseron/claimed") => read_claimed(params, frame),
            // A request that lacks its id cannot be answered, and news of the other end are none.
            _ if op_of(method).is_some() || is_ours(method) => return ignored(Violation::WrongDirection),
            _ => {
                let params = given.map(|params| frame.json(params.text()));
                return Message::Notice(Notice::Custom { method: method.into(), params });
            }
        };
        read.unwrap_or_else(|| ignored(Violation::InvalidParams))
    }

    // ---- The handshake ----

    fn hello(&self, gateway: &Gateway, params: &Noted<'_>, frame: Frame<'_>) -> Result<Greeting, GreetingRefused> {
        let wrong = |what| GreetingRefused::from(RpcError::fixed(RpcError::INVALID_PARAMS, what));
        check_version(params)?;
        let manifest = Manifest::read(params).map_err(wrong)?;
        check_app_id(&manifest.app.name, RpcError::INVALID_PARAMS)?;
        let answer = match &gateway.welcome {
            Some(welcome) => GreetingAnswer::Result(self.welcome(welcome)),
            None => GreetingAnswer::Owner(None),
        };
        Ok(Greeting { peer: manifest.into_peer(frame.json(params.text())), answer })
    }

    /// The answer to a hello or a resume. Claims that follow are sent on top of it.
    pub(crate) fn read_greeting_answer(&self, result: &Json) -> Result<PeerInfo, GreetingFailed> {
        let text = |name: &str| result.member(name).and_then(|value| value.as_text());
        let protocol = text("protocolVersion").ok_or(GreetingFailed::Malformed)?;
        if !is_compatible(&protocol) {
            return Err(GreetingFailed::Version);
        }
        let session_id = text("sessionId").ok_or(GreetingFailed::Malformed)?;
        let declared = result.member("capabilities").filter(Json::is_object).ok_or(GreetingFailed::Malformed)?;
        let identity = result.member("agent").and_then(|agent| read_agent(agent.as_bytes())).ok_or(GreetingFailed::Malformed)?;
        Ok(PeerInfo {
            identity,
            protocol,
            capabilities: of_agent(declared.as_bytes()),
            declared,
            instructions: None,
            pass: Some(Pass { session_id, claim_code: text("claimCode"), resume_token: text("resumeToken") }),
        })
    }

    // ---- Answers ----

    /// The result of an action is an object around its output, which may be missing (actions page).
    pub(crate) fn fit(&self, exchange: u64, op: &Op, result: &Json) -> Fit {
        if *op != Op::CallTool {
            return Fit::Fits;
        }
        let named = result.member("invocationId");
        match named.as_ref().map(|name| string(name.as_bytes()).as_deref().and_then(named_exchange)) {
            Some(Some(named)) if named == exchange => Fit::Fits,
            // Its output may still be the one: the number of the response is what counts.
            Some(_) => Fit::Odd,
            None if result.member("output").is_some() => Fit::Odd,
            None => Fit::Wrong,
        }
    }

    pub(crate) fn read_answer(&self, ask: &Ask, result: &Json) -> Result<Answer, Text> {
        let unknown = || Text::from_static("`action` is missing or unknown");
        Ok(match ask {
            Ask::Sample(_) => {
                let content = result.member("content").ok_or_else(|| Text::from_static("`content` is missing"))?;
                let text = string(content.as_bytes()).map_or_else(|| String::from(content.as_str()), Cow::into_owned);
                Answer::Sample(Sampled { text, model: String::new(), result: Some(result.clone()) })
            }
            Ask::Elicit(form) => Answer::Elicit(match read_action(result).as_deref() {
                Some("accept") => {
                    let nothing = || form.is_confirmation().then(Json::empty_object);
                    let value = result.member("value").or_else(nothing).filter(Json::is_object);
                    let value = value.ok_or_else(|| Text::from_static("`value` is missing or no object"))?;
                    form::check_content(&form.schema, &value)?;
                    Elicited::Accept(value)
                }
                Some("decline") => Elicited::Decline,
                Some("cancel") => Elicited::Cancel,
                _ => return Err(unknown()),
            }),
            Ask::Confirm { .. } => Answer::Confirm(read_action(result).ok_or_else(unknown)? == "accept"),
            // It has none, so nobody can have asked for them.
            Ask::Roots => return Err(Text::from_static("there are no roots")),
        })
    }
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
    // A bind belongs to the channel, before there is a session.
    let is_known = (op_of(method).is_some() || is_ours(method)) && method != "tesseron/bind";
    let violation = is_known.then_some(Violation::WrongDirection);
    invalid(violation, id, RpcError::METHOD_NOT_FOUND, alloc::format!("Method not found: {}", shown(method)))
}

/// The parameters of an `op`: an object of these members, each with the JSON of its value.
fn rewritten(op: &Op, members: &[(&'static str, &[u8])]) -> Params {
    let mut out = Vec::new();
    let (mut target, mut arguments) = (Span::default(), Span::default());
    Object::write(&mut out, |object| {
        for (name, value) in members {
            let out = object.member(name);
            let start = out.len();
            push_json(out, value);
            let place = Span::new(start, out.len());
            if *name == Params::ARGUMENTS {
                arguments = place;
            } else if Some(*name) == op.names_by() {
                target = place;
            }
        }
    });
    Params::found(Json::written(out), target, arguments)
}

fn array(params: &Noted<'_>, name: &str, frame: Frame<'_>) -> Option<Json> {
    params.member(name).filter(|value| Kind::of(value) == Kind::Array).map(|value| frame.json(value))
}

/// Handshake page, "Version negotiation". A further try on this channel would end alike.
fn check_version(params: &Noted<'_>) -> Result<(), GreetingRefused> {
    let said = params.member("protocolVersion").and_then(string);
    let said = said.ok_or_else(|| RpcError::fixed(RpcError::INVALID_PARAMS, "protocolVersion must be text"))?;
    if is_compatible(&said) {
        return Ok(());
    }
    let message = alloc::format!("Protocol version {:?} is not compatible with {}", shown(&said), super::VERSION);
    Err(GreetingRefused { error: RpcError::new(code::PROTOCOL_MISMATCH, message), is_final: true })
}

/// The id of an app is a part of the names of its tools.
fn check_app_id(id: &str, code: i64) -> Result<(), RpcError> {
    AppId::parse(id).map(drop).map_err(|why| RpcError::new(code, alloc::format!("app.id: {why}")))
}

/// What an app says of itself in a hello or a resume.
struct Manifest {
    app: Identity,
    description: Option<Text>,
    subscriptions: bool,
}

impl Manifest {
    fn read(params: &Noted<'_>) -> Result<Self, &'static str> {
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
            app: Identity { name: id, version: text("version").unwrap_or_default(), title: Some(name) },
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
            pass: None,
        })
    }
}

/// Every refusal but that of the version has one number, so that an app knows to begin anew (resume page).
fn resume(gateway: &Gateway, params: &Noted<'_>, frame: Frame<'_>) -> Result<Greeting, GreetingRefused> {
    let failed = |what: &'static str| GreetingRefused::from(RpcError::fixed(code::RESUME_FAILED, what));
    let text = |name: &str| params.member(name).and_then(|value| frame.text(value));
    let session_id = text("sessionId").ok_or_else(|| failed("sessionId must be text"))?;
    let resume_token = text("resumeToken").ok_or_else(|| failed("resumeToken must be text"))?;
    if text("protocolVersion").is_none() {
        return Err(failed("protocolVersion must be text"));
    }
    let manifest = Manifest::read(params).map_err(failed)?;
    check_version(params)?;
    check_app_id(&manifest.app.name, code::RESUME_FAILED)?;
    if gateway.welcome.is_some() {
        return Err(failed("sessions are not resumed here"));
    }
    // What is told on has no secret in it.
    let mut declared = Vec::new();
    Object::write(&mut declared, |object| {
        for_each_key(params.text(), |key, value| {
            if !matches!(&*key.name(), "sessionId" | "resumeToken") {
                object.copy(key, value);
            }
        });
    });
    let credentials = Credentials { session_id, resume_token };
    Ok(Greeting { peer: manifest.into_peer(Json::written(declared)), answer: GreetingAnswer::Owner(Some(credentials)) })
}

impl App {
    /// What a greeting goes on with.
    pub(super) fn greeting_method(&self) -> &'static str {
        if self.resume.is_some() { "tesseron/resume" } else { "tesseron/hello" }
    }
}

fn is_true(object: &[u8], name: &str) -> bool {
    member(object, name) == Some(b"true")
}

fn of_agent(declared: &[u8]) -> Capabilities {
    Capabilities {
        sampling: is_true(declared, "sampling"),
        elicitation: is_true(declared, "elicitation"),
        ..Capabilities::default()
    }
}

fn read_agent(agent: &[u8]) -> Option<Identity> {
    let text = |name: &str| member(agent, name).and_then(string).map(Cow::into_owned);
    Some(Identity { name: text("id")?, version: String::new(), title: Some(text("name")?) })
}

fn read_claimed(params: &Noted<'_>, frame: Frame<'_>) -> Option<Message> {
    let identity = params.member("agent").and_then(read_agent)?;
    let capabilities = match params.member("agentCapabilities") {
        Some(declared) if Kind::of(declared) == Kind::Object => Some((of_agent(declared), frame.json(declared))),
        Some(_) => return None,
        None => None,
    };
    Some(Message::Changed(Box::new(Change { identity, capabilities })))
}

/// Progress page: any subset of message, percent and data.
fn read_progress(params: &Noted<'_>, frame: Frame<'_>, most: usize) -> Message {
    let (mut token, mut progress, mut proper) = (None, Progress::default(), true);
    params.for_each(|name, value| {
        // Not by `match`, which would look at the bytes of a name one after the other.
        if name == b"invocationId" && Kind::of(value) == Kind::String {
            token = string(value).and_then(|name| match named_exchange(&name) {
                None if value.len() > most => None,
                // Nobody owns a name that we never gave.
                number => Some(number),
            });
        } else if name == b"percent" && value != b"null" {
            progress.value = number(value).map(|percent| percent.clamp(0.0, 100.0));
            progress.total = progress.value.map(|_| 100.0);
            proper &= progress.value.is_some();
        } else if name == b"message" && value != b"null" {
            progress.message = frame.text(value);
            proper &= progress.message.is_some();
        } else if name == b"data" {
            progress.data = Some(frame.json(value));
        }
    });
    match token {
        Some(number) if proper => Message::Progress { number, progress, partial: None },
        _ => ignored(Violation::InvalidProgress),
    }
}

/// Logging page. What goes with the message lies beside it, and cannot be taken for it.
fn read_log(params: &Noted<'_>, frame: Frame<'_>) -> Option<LogRecord> {
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

fn read_update(params: &Noted<'_>, frame: Frame<'_>) -> Option<Notice> {
    let subscription = params.member("subscriptionId").and_then(|name| frame.text(name))?;
    let value = params.member("value").map_or_else(Json::null, |value| frame.json(value));
    Some(Notice::ResourceValue { subscription, uri: Text::from_static(""), value })
}

fn read_sample(params: &Noted<'_>, frame: Frame<'_>) -> Result<Ask, String> {
    let prompt = params.member("prompt").and_then(string).ok_or("prompt must be text")?;
    let max_tokens = read_tokens(params.member("maxTokens"))?;
    let schema = params.member("schema").filter(|schema| *schema != b"null").map(|schema| frame.json(schema));
    let params = Some(frame.json(params.text()));
    Ok(Sample { prompt: prompt.into_owned(), max_tokens, schema, params }.into())
}

/// What a gateway would refuse need not be sent.
pub(super) fn check_sample(sample: &Sample) -> Result<(), String> {
    let Some(params) = &sample.params else {
        return if sample.max_tokens == Some(0) { Err(String::from(TOKENS)) } else { Ok(()) };
    };
    member(params.as_bytes(), "prompt").and_then(string).ok_or("prompt must be text")?;
    read_tokens(member(params.as_bytes(), "maxTokens")).map(drop)
}

const TOKENS: &str = "maxTokens must be a positive whole number";

fn read_tokens(most: Option<&[u8]>) -> Result<Option<u64>, String> {
    match most {
        None | Some(b"null") => Ok(None),
        Some(most) => integer(most).filter(|most| *most > 0).map(Some).ok_or_else(|| String::from(TOKENS)),
    }
}

/// Elicitation page. The agent's protocol is stricter than this one, so what it would refuse is refused here.
fn read_form(params: &Noted<'_>, frame: Frame<'_>) -> Result<Ask, String> {
    let message = params.member("question").and_then(string).ok_or("question must be text")?.into_owned();
    let schema = params.member("schema").map(|schema| frame.json(schema)).ok_or("schema is missing")?;
    form::check(&schema, Fields::Plain)?;
    Ok(Ask::Elicit(Elicit { message, schema }))
}
