//! The JSON form of an event.

use crate::dialect::{Capabilities, ElicitResult, InputRequest, InputResponse, Notification, Op, PeerInfo, Progress, Request};
use crate::error::{RpcError, Unreadable};
use crate::json::write::{Object, write_string};
use crate::json::{Json, Text};
use crate::session::{CancelReason, CloseReason, Event, InputFailed, Invalid, Outcome, TimeoutKind};

impl Event {
    /// The event as a JSON object, for a host in another language, a log or a recorder. It begins with `kind`, the name of the variant in
    /// snake case; ids are numbers, payloads are as they arrived, and what is missing is left out. Secrets of Tesseron (claim codes and
    /// tokens) are left out, too: read them from the event.
    ///
    /// | `kind` | other members |
    /// |---|---|
    /// | `ready`, `peer_changed` | `peer` |
    /// | `handshake_request` | `peer`, `resume`: the id of the session to resume |
    /// | `request` | `id`, `op`, `method` (of a custom method), `target` (the name or URI), `params`, `peer`, `meta`, `depth`, `observed` |
    /// | `cancelled` | `id`, `why`, `reason` |
    /// | `input` | `id`, `key`, `answer` or `failed` and `error` or `reason` |
    /// | `input_requested` | `key`, `parent`, `ask`, `depth` |
    /// | `input_gone` | `key` |
    /// | `progress` | `id`, `value`, `total`, `message`, `data` |
    /// | `done` | `id`, `outcome`, `result`, `error`, `reason` or `frame`, `partial`, `last` |
    /// | `log` | `level`, `logger`, `data` |
    /// | `notification` | `name` and its payload: `uri`, `subscription`, `value`, `id`, `method`, `params` |
    /// | `alarm` | `id` |
    /// | `violation` | `rule`: text for people |
    /// | `unreadable` | `frame` |
    /// | `handshake_refused` | `error` |
    /// | `lane_closed` | `lane`, `why`, `reason` |
    /// | `closed` | `why`, `reason` |
    ///
    /// A `peer` is `{name, version, title, protocol, instructions, capabilities, declared}`, where `capabilities` lists those that are on. An
    /// `error` is `{code, message, data}`, a `frame` `{rule, position, excerpt, hint}`. A `reason` is text for people.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Object::value(|out| self.write(out))
    }

    fn write(&self, out: &mut Object<'_>) {
        out.word("kind", self.kind());
        match self {
            Self::Ready(peer) | Self::PeerChanged(peer) => write_peer(out, peer),
            Self::HandshakeRequest { peer, resume } => {
                write_peer(out, peer);
                optional_text(out, "resume", resume.as_ref().map(|resume| &resume.session_id));
            }
            Self::Request { id, request, caller, depth, observed } => {
                out.integer("id", id.number());
                write_request(out, request);
                write_peer(out, caller.peer());
                optional_json(out, "meta", caller.meta());
                out.integer("depth", (*depth).into());
                out.boolean("observed", *observed);
            }
            Self::Cancelled { id, why } => {
                out.integer("id", id.number());
                let reason = if let CancelReason::Peer(reason) = why { reason.as_ref() } else { None };
                out.word(
                    "why",
                    match why {
                        CancelReason::Peer(_) => "peer",
                        CancelReason::Deadline => "deadline",
                        CancelReason::Disconnected => "disconnected",
                        CancelReason::Closing => "closing",
                        CancelReason::Replaced => "replaced",
                    },
                );
                optional_text(out, "reason", reason);
            }
            Self::Input { id, key, answer } => {
                out.integer("id", id.number());
                out.integer("key", key.number());
                match answer {
                    Ok(answer) => out.object("answer", |out| write_answer(out, answer)),
                    Err(failed) => write_failed(out, failed),
                }
            }
            Self::InputRequested { key, parent, ask, depth } => {
                out.integer("key", key.number());
                if let Some(parent) = parent {
                    out.integer("parent", parent.number());
                }
                out.object("ask", |out| write_ask(out, ask));
                out.integer("depth", (*depth).into());
            }
            Self::InputGone { key } => out.integer("key", key.number()),
            Self::Progress { id, progress } => {
                out.integer("id", id.number());
                write_progress(out, progress);
            }
            Self::Done { id, outcome, partial, last } => {
                out.integer("id", id.number());
                write_outcome(out, outcome);
                optional_json(out, "partial", partial.as_ref());
                if let Some(last) = last {
                    out.object("last", |out| write_progress(out, last));
                }
            }
            Self::Log(record) => {
                out.word("level", record.level.as_str());
                optional_text(out, "logger", record.logger.as_ref());
                out.json("data", &record.data);
            }
            Self::Notification(notification) => write_notification(out, notification),
            Self::Alarm(id) => out.integer("id", id.number()),
            Self::Violation(rule) => out.word("rule", rule.as_str()),
            Self::Unreadable(frame) => write_frame(out, frame),
            Self::HandshakeRefused(error) => write_error(out, error),
            Self::LaneClosed { lane, reason } => {
                out.integer("lane", lane.number().into());
                write_close(out, *reason);
            }
            Self::Closed(reason) => write_close(out, *reason),
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Ready(_) => "ready",
            Self::HandshakeRequest { .. } => "handshake_request",
            Self::PeerChanged(_) => "peer_changed",
            Self::Request { .. } => "request",
            Self::Cancelled { .. } => "cancelled",
            Self::Input { .. } => "input",
            Self::InputRequested { .. } => "input_requested",
            Self::InputGone { .. } => "input_gone",
            Self::Progress { .. } => "progress",
            Self::Done { .. } => "done",
            Self::Log(_) => "log",
            Self::Notification(_) => "notification",
            Self::Alarm(_) => "alarm",
            Self::Violation(_) => "violation",
            Self::Unreadable(_) => "unreadable",
            Self::HandshakeRefused(_) => "handshake_refused",
            Self::LaneClosed { .. } => "lane_closed",
            Self::Closed(_) => "closed",
        }
    }
}

fn optional_text(out: &mut Object<'_>, name: &'static str, text: Option<&Text>) {
    if let Some(text) = text {
        out.text(name, text);
    }
}

fn optional_json(out: &mut Object<'_>, name: &'static str, json: Option<&Json>) {
    if let Some(json) = json {
        out.json(name, json);
    }
}

fn write_peer(out: &mut Object<'_>, peer: &PeerInfo) {
    out.object("peer", |out| {
        out.string("name", &peer.identity.name);
        out.string("version", &peer.identity.version);
        if let Some(title) = &peer.identity.title {
            out.string("title", title);
        }
        out.text("protocol", &peer.protocol);
        optional_text(out, "instructions", peer.instructions.as_ref());
        out.array("capabilities", capabilities(peer.capabilities), write_string);
        out.json("declared", &peer.declared);
    });
}

/// The names of the capabilities that are on.
fn capabilities(capabilities: Capabilities) -> impl Iterator<Item = &'static str> {
    // In full, so that a further capability is not forgotten.
    let Capabilities {
        sampling,
        sampling_tools,
        elicitation,
        elicitation_url,
        roots,
        roots_list_changed,
        tools,
        tools_list_changed,
        prompts,
        prompts_list_changed,
        resources,
        resources_subscribe,
        resources_list_changed,
        completions,
        logging,
    } = capabilities;
    [
        ("sampling", sampling),
        ("sampling_tools", sampling_tools),
        ("elicitation", elicitation),
        ("elicitation_url", elicitation_url),
        ("roots", roots),
        ("roots_list_changed", roots_list_changed),
        ("tools", tools),
        ("tools_list_changed", tools_list_changed),
        ("prompts", prompts),
        ("prompts_list_changed", prompts_list_changed),
        ("resources", resources),
        ("resources_subscribe", resources_subscribe),
        ("resources_list_changed", resources_list_changed),
        ("completions", completions),
        ("logging", logging),
    ]
    .into_iter()
    .filter_map(|(name, is_on)| is_on.then_some(name))
}

fn write_request(out: &mut Object<'_>, request: &Request) {
    out.word(
        "op",
        match request.op() {
            Op::CallTool => "call_tool",
            Op::ListTools => "list_tools",
            Op::GetPrompt => "get_prompt",
            Op::ListPrompts => "list_prompts",
            Op::ReadResource => "read_resource",
            Op::ListResources => "list_resources",
            Op::ListResourceTemplates => "list_resource_templates",
            Op::Subscribe => "subscribe",
            Op::Unsubscribe => "unsubscribe",
            Op::Complete => "complete",
            Op::SetLogLevel => "set_log_level",
            Op::Ping => "ping",
            Op::Listen => "listen",
            Op::Custom => "custom",
        },
    );
    if let Request::Custom(request) = request {
        out.string("method", request.method());
    }
    if let Some(target) = request.target() {
        out.string("target", &target);
    }
    out.json("params", request.params());
}

fn write_ask(out: &mut Object<'_>, ask: &InputRequest) {
    match ask {
        InputRequest::Sample(sample) => {
            out.word("type", "sample");
            out.string("prompt", &sample.prompt);
            if let Some(tokens) = sample.max_tokens {
                out.integer("max_tokens", tokens);
            }
            optional_json(out, "schema", sample.schema.as_ref());
            optional_json(out, "params", sample.params.as_ref());
        }
        InputRequest::Elicit(form) => {
            out.word("type", "elicit");
            out.string("message", &form.message);
            out.json("schema", &form.schema);
        }
        InputRequest::OpenUrl(open) => {
            out.word("type", "open_url");
            out.string("message", &open.message);
            out.string("url", &open.url);
            out.string("id", &open.id);
        }
        InputRequest::Confirm { message } => {
            out.word("type", "confirm");
            out.string("message", message);
        }
        InputRequest::Roots => out.word("type", "roots"),
    }
}

fn write_answer(out: &mut Object<'_>, answer: &InputResponse) {
    match answer {
        InputResponse::Sample(sample) => {
            out.word("type", "sample");
            out.string("text", &sample.text);
            out.string("model", &sample.model);
            optional_json(out, "result", sample.result.as_ref());
        }
        InputResponse::Elicit(answer) => {
            out.word("type", "elicit");
            let (action, content) = match answer {
                ElicitResult::Accept(content) => ("accept", Some(content)),
                ElicitResult::Decline => ("decline", None),
                ElicitResult::Cancel => ("cancel", None),
            };
            out.word("action", action);
            optional_json(out, "content", content);
        }
        InputResponse::OpenUrl(answer) => {
            out.word("type", "open_url");
            out.word("action", answer.as_str());
        }
        InputResponse::Confirm(yes) => {
            out.word("type", "confirm");
            out.boolean("yes", *yes);
        }
        InputResponse::Roots(roots) => {
            out.word("type", "roots");
            out.json("roots", roots);
        }
        InputResponse::Refused(error) => {
            out.word("type", "refused");
            write_error(out, error);
        }
    }
}

fn write_failed(out: &mut Object<'_>, failed: &InputFailed) {
    match failed {
        InputFailed::Refused(error) => {
            out.word("failed", "refused");
            write_error(out, error);
        }
        InputFailed::Invalid(reason) => {
            out.word("failed", "invalid");
            out.text("reason", reason);
        }
        InputFailed::TimedOut => out.word("failed", "timed_out"),
        InputFailed::Lost => out.word("failed", "lost"),
    }
}

fn write_progress(out: &mut Object<'_>, progress: &Progress) {
    let Progress { value, total, message, data } = progress;
    for (name, number) in [("value", value), ("total", total)] {
        // Progress that arrives is finite; in an event that was made by hand it need not be, and JSON has no other number.
        if let Some(number) = number.filter(|number| number.is_finite()) {
            out.number(name, number);
        }
    }
    optional_text(out, "message", message.as_ref());
    optional_json(out, "data", data.as_ref());
}

fn write_outcome(out: &mut Object<'_>, outcome: &Outcome) {
    let outcome_is = |out: &mut Object<'_>, name| out.word("outcome", name);
    match outcome {
        Outcome::Result(result) => {
            outcome_is(out, "result");
            out.json("result", result);
        }
        Outcome::Error(error) => {
            outcome_is(out, "error");
            write_error(out, error);
        }
        Outcome::Cancelled => outcome_is(out, "cancelled"),
        Outcome::TimedOut(TimeoutKind::Idle) => outcome_is(out, "timed_out_idle"),
        Outcome::TimedOut(TimeoutKind::MaxTotal) => outcome_is(out, "timed_out_max_total"),
        Outcome::Lost => outcome_is(out, "lost"),
        Outcome::Invalid(Invalid::Unreadable(frame)) => {
            outcome_is(out, "unreadable");
            write_frame(out, frame);
        }
        Outcome::Invalid(Invalid::Unsupported) => outcome_is(out, "unsupported"),
        Outcome::Invalid(Invalid::TooManyRounds) => outcome_is(out, "too_many_rounds"),
        Outcome::Invalid(Invalid::TooDeep) => outcome_is(out, "too_deep"),
        Outcome::Unanswered(error) => {
            outcome_is(out, "unanswered");
            write_error(out, error);
        }
    }
}

fn write_notification(out: &mut Object<'_>, notification: &Notification) {
    let name_is = |out: &mut Object<'_>, name| out.word("name", name);
    match notification {
        Notification::ToolsChanged => name_is(out, "tools_changed"),
        Notification::Actions(actions) => {
            name_is(out, "actions");
            out.json("value", actions);
        }
        Notification::Resources(resources) => {
            name_is(out, "resources");
            out.json("value", resources);
        }
        Notification::PromptsChanged => name_is(out, "prompts_changed"),
        Notification::ResourcesChanged => name_is(out, "resources_changed"),
        Notification::ResourceUpdated { uri } => {
            name_is(out, "resource_updated");
            out.text("uri", uri);
        }
        Notification::ResourceValue { subscription, uri, value } => {
            name_is(out, "resource_value");
            out.text("subscription", subscription);
            out.text("uri", uri);
            out.json("value", value);
        }
        Notification::SubscriptionEnded => name_is(out, "subscription_ended"),
        Notification::RootsChanged => name_is(out, "roots_changed"),
        Notification::ElicitationComplete { id } => {
            name_is(out, "elicitation_complete");
            out.text("id", id);
        }
        Notification::Custom { method, params } => {
            name_is(out, "custom");
            out.text("method", method);
            optional_json(out, "params", params.as_ref());
        }
    }
}

fn write_error(out: &mut Object<'_>, error: &RpcError) {
    out.object("error", |out| {
        // Codes may be below zero, which `Object::integer` does not write.
        out.json("code", &Json::from(serde_json::Value::from(error.code)));
        out.text("message", &error.message);
        optional_json(out, "data", error.data.as_deref());
    });
}

fn write_frame(out: &mut Object<'_>, frame: &Unreadable) {
    out.object("frame", |out| {
        out.word("rule", frame.rule.as_str());
        out.integer("position", frame.position as u64);
        out.text("excerpt", &frame.excerpt);
        if let Some(hint) = frame.hint {
            out.string("hint", hint);
        }
    });
}

fn write_close(out: &mut Object<'_>, reason: CloseReason) {
    out.word(
        "why",
        match reason {
            CloseReason::Local => "local",
            CloseReason::Eof => "eof",
            CloseReason::Failed => "failed",
            CloseReason::HandshakeTimeout => "handshake_timeout",
            CloseReason::HandshakeRefused => "handshake_refused",
            CloseReason::ProbeRefused => "probe_refused",
            CloseReason::AnswerInvalid(..) => "answer_invalid",
            CloseReason::VersionMismatch => "version_mismatch",
            CloseReason::FrameTooLarge => "frame_too_large",
            CloseReason::Overload => "overload",
        },
    );
    out.string("reason", &alloc::format!("{reason}"));
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::collections::BTreeSet;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;
    use crate::session::{AlarmId, InboundId, InputKey, Lane, OutboundId};
    use crate::{Config, Elicit, Identity, Instant, Level, LogRecord, Session, Violation};

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    /// The events with which a server gets ready, and then gets a request.
    fn events_of_a_server() -> Vec<Event> {
        let mut session = Session::new(Config::mcp_server(Identity::new("server", "1")), Instant::ZERO);
        for frame in [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a\"b","arguments":{"x":[1]}}}"#,
        ] {
            session.handle_frame(frame.into(), Lane::CHANNEL, Instant::ZERO).unwrap();
        }
        core::iter::from_fn(|| session.poll_event()).collect()
    }

    #[test]
    fn every_kind_of_event_is_one_object_with_its_ids_and_payloads() {
        let [ready, request] = <[Event; 2]>::try_from(events_of_a_server()).unwrap();
        let Event::Ready(peer) = ready.clone() else { panic!("{ready:?}") };
        let peer_text =
            r#""peer":{"name":"c","version":"1","protocol":"2025-11-25","capabilities":["roots"],"declared":{"roots":{}}}"#;
        let (id, key, out) = (InboundId::from_number(3), InputKey::from_number(4), OutboundId::from_number(5));
        let error = || RpcError::new(-32603, "no").with_data(json("[1]"));
        let frame = Box::new(Unreadable { rule: Violation::NotJson, position: 7, excerpt: "..{".into(), hint: None });
        let progress = Progress { value: Some(1.5), total: Some(f64::NAN), ..Progress::message("m") };
        let resume = crate::tesseron::ResumeCredentials { session_id: "s".into(), resume_token: "secret".into() };
        let done = |outcome| Event::Done { id: out, outcome, partial: None, last: None };
        let input = |answer| Event::Input { id, key, answer };
        let request_text = r#"{"kind":"request","id":1,"op":"call_tool","target":"a\"b","params":{"name":"a\"b","arguments":{"x":[1]}},PEER,"depth":0,"observed":false}"#;
        let table: [(Event, &str); 27] = [
            (ready, "{\"kind\":\"ready\",PEER}"),
            (Event::PeerChanged(peer.clone()), "{\"kind\":\"peer_changed\",PEER}"),
            (Event::HandshakeRequest { peer, resume: Some(resume) }, "{\"kind\":\"handshake_request\",PEER,\"resume\":\"s\"}"),
            (request, request_text),
            (
                Event::Cancelled { id, why: CancelReason::Peer(Some("bored".into())) },
                r#"{"kind":"cancelled","id":3,"why":"peer","reason":"bored"}"#,
            ),
            (Event::Cancelled { id, why: CancelReason::Deadline }, r#"{"kind":"cancelled","id":3,"why":"deadline"}"#),
            (
                input(Ok(InputResponse::Elicit(ElicitResult::Accept(json("{}"))))),
                r#"{"kind":"input","id":3,"key":4,"answer":{"type":"elicit","action":"accept","content":{}}}"#,
            ),
            (input(Ok(InputResponse::Confirm(true))), r#"{"kind":"input","id":3,"key":4,"answer":{"type":"confirm","yes":true}}"#),
            (
                input(Err(InputFailed::Refused(error()))),
                r#"{"kind":"input","id":3,"key":4,"failed":"refused","error":{"code":-32603,"message":"no","data":[1]}}"#,
            ),
            (input(Err(InputFailed::TimedOut)), r#"{"kind":"input","id":3,"key":4,"failed":"timed_out"}"#),
            (
                Event::InputRequested { key, parent: Some(out), ask: InputRequest::Elicit(Elicit::new("?", json("{}"))), depth: 1 },
                r#"{"kind":"input_requested","key":4,"parent":5,"ask":{"type":"elicit","message":"?","schema":{}},"depth":1}"#,
            ),
            (
                Event::InputRequested { key, parent: None, ask: InputRequest::Roots, depth: 0 },
                r#"{"kind":"input_requested","key":4,"ask":{"type":"roots"},"depth":0}"#,
            ),
            (Event::InputGone { key }, r#"{"kind":"input_gone","key":4}"#),
            (Event::Progress { id: out, progress: progress.clone() }, r#"{"kind":"progress","id":5,"value":1.5,"message":"m"}"#),
            (
                Event::Done { id: out, outcome: Outcome::Cancelled, partial: Some(json("[2]")), last: Some(Box::new(progress)) },
                r#"{"kind":"done","id":5,"outcome":"cancelled","partial":[2],"last":{"value":1.5,"message":"m"}}"#,
            ),
            (
                done(Outcome::Result(json(r#"{"content":[]}"#))),
                r#"{"kind":"done","id":5,"outcome":"result","result":{"content":[]}}"#,
            ),
            (done(Outcome::TimedOut(TimeoutKind::Idle)), r#"{"kind":"done","id":5,"outcome":"timed_out_idle"}"#),
            (
                done(Outcome::Invalid(Invalid::Unreadable(frame.clone()))),
                r#"{"kind":"done","id":5,"outcome":"unreadable","frame":{"rule":"a frame that is not JSON","position":7,"excerpt":"..{"}}"#,
            ),
            (
                Event::Log(LogRecord::new(Level::Info, json("{}")).with_logger("l")),
                r#"{"kind":"log","level":"info","logger":"l","data":{}}"#,
            ),
            (Event::Notification(Notification::ToolsChanged), r#"{"kind":"notification","name":"tools_changed"}"#),
            (
                Event::Notification(Notification::Custom { method: "own/m".into(), params: Some(json("[]")) }),
                r#"{"kind":"notification","name":"custom","method":"own/m","params":[]}"#,
            ),
            (Event::Alarm(AlarmId::from_number(6)), r#"{"kind":"alarm","id":6}"#),
            (Event::Violation(Violation::EmptyBatch), r#"{"kind":"violation","rule":"an empty batch"}"#),
            (
                Event::Unreadable(frame),
                r#"{"kind":"unreadable","frame":{"rule":"a frame that is not JSON","position":7,"excerpt":"..{"}}"#,
            ),
            (Event::HandshakeRefused(RpcError::new(1, "n")), r#"{"kind":"handshake_refused","error":{"code":1,"message":"n"}}"#),
            (
                Event::LaneClosed { lane: Lane::new(9), reason: CloseReason::Overload },
                r#"{"kind":"lane_closed","lane":9,"why":"overload","reason":"the peer does not read our replies"}"#,
            ),
            (Event::Closed(CloseReason::Eof), r#"{"kind":"closed","why":"eof","reason":"the peer ended the connection"}"#),
        ];
        let kinds: BTreeSet<_> = table.iter().map(|(event, _)| event.kind()).collect();
        assert_eq!(kinds.len(), 18, "{kinds:?}");
        for (event, expected) in table {
            let expected: String = expected.replace("PEER", peer_text);
            let written = event.to_json();
            assert_eq!(written.as_str(), expected);
            assert_eq!(Json::parse(expected).as_ref(), Ok(&written), "it is read as it was written");
        }
    }
}
