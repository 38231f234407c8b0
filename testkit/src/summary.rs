//! Frames and events as short texts. A model predicts these texts, and the frames and events of a session are compared with them.

use std::collections::BTreeSet;

use protocol_core::{
    Answer, Ask, CancelReason, Elicited, Event, InputFailed, Notice, Op, Outcome, Progress, ReplyKind, RouteKind,
    SubscriptionFilter, TimeoutKind, Violation,
};
use serde_json::Value;

/// A frame in a few words. Ids keep their JSON type.
#[must_use]
pub fn frame(text: &str) -> String {
    let Ok(frame) = serde_json::from_str::<Value>(text) else { return format!("garbage {text}") };
    let params = &frame["params"];
    let id = frame.get("id").map(Value::to_string);
    match (frame["method"].as_str(), id) {
        (Some(method), Some(id)) => {
            let mut summary = format!("request {id} {method}");
            if let Some(name) = params.get("invocationId") {
                summary += &format!(" {} {name}", if method == "actions/invoke" { "token" } else { "parent" });
            }
            if names_caller(params) {
                summary += " stateless";
            }
            for (name, word) in
                [("progressToken", "token"), ("protocol-core/samplingDepth", "depth"), ("protocol-core/parent", "parent")]
            {
                if let Some(value) = params["_meta"].get(name) {
                    summary += &format!(" {word} {value}");
                }
            }
            if let Some(level) = params["_meta"][LOG_LEVEL].as_str() {
                summary += &format!(" level {level}");
            }
            if method == LISTEN {
                summary += &format!(" wants {}", kinds_in_words(params));
            }
            summary
        }
        (Some("notifications/cancelled"), None) => format!("cancel {}", params["requestId"]),
        (Some("notifications/progress"), None) => {
            format!("progress {} {}", params["progressToken"], progress(&read_progress(params)))
        }
        (Some("actions/cancel"), None) => format!("cancel {}", params["invocationId"]),
        (Some("actions/progress"), None) => format!("progress {} {}", params["invocationId"], progress(&read_progress(params))),
        (Some("log"), None) => "log".to_owned(),
        (Some("notifications/initialized"), None) => "initialized".to_owned(),
        (Some("notifications/message"), None) => "log".to_owned(),
        (Some(method), None) => match params["_meta"].get(SUBSCRIPTION) {
            Some(id) if method == ACKNOWLEDGED => format!("notice {method} of {id} wants {}", kinds_in_words(params)),
            Some(id) => format!("notice {method} of {id} about {}", kind_of(method, params)),
            None => format!("notice {method}"),
        },
        (None, id) => {
            let id = id.unwrap_or_default();
            match frame.get("error") {
                Some(error) => format!("error {id} {}{}", error["code"], if has_partial(error) { " partial" } else { "" }),
                None => format!("result {id}"),
            }
        }
    }
}

pub(crate) const LISTEN: &str = "subscriptions/listen";
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const UPDATED: &str = "notifications/resources/updated";
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Returns `true` if a request names its caller, so that it is stateless (MCP 2026-07-28).
#[must_use]
pub(crate) fn names_caller(params: &Value) -> bool {
    const MEMBERS: [&str; 3] = ["protocolVersion", "clientCapabilities", "clientInfo"];
    let members = MEMBERS.iter().map(|name| format!("io.modelcontextprotocol/{name}"));
    members.chain([LOG_LEVEL.to_owned()]).any(|name| params["_meta"].get(name).is_some())
}

/// Kinds of notices: the words `tools`, `prompts` and `resources`, and the URIs of resources.
pub(crate) type Kinds = BTreeSet<String>;

const LISTS: [(&str, &str, &str); 3] = [
    ("toolsListChanged", "tools", "notifications/tools/list_changed"),
    ("promptsListChanged", "prompts", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "resources", "notifications/resources/list_changed"),
];

/// The kinds in the parameters of a request for a subscription, or of its acknowledgement.
#[must_use]
pub(crate) fn read_kinds(params: &Value) -> Kinds {
    let kinds = &params["notifications"];
    let lists = LISTS.iter().filter(|(name, ..)| kinds[name] == true).map(|(_, word, _)| (*word).to_owned());
    let uris = kinds["resourceSubscriptions"].as_array().into_iter().flatten();
    lists.chain(uris.filter_map(Value::as_str).map(str::to_owned)).collect()
}

/// The kinds of a filter.
#[must_use]
pub(crate) fn filter(filter: &SubscriptionFilter) -> Kinds {
    let lists = [(filter.tools, "tools"), (filter.prompts, "prompts"), (filter.resources, "resources")];
    let lists = lists.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, word)| word.to_owned());
    lists.chain(filter.uris.iter().map(ToString::to_string)).collect()
}

/// Kinds in a few words.
#[must_use]
pub(crate) fn kinds(kinds: &Kinds) -> String {
    kinds.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The kinds that [`read_kinds`] reads from the parameters, in a few words.
fn kinds_in_words(params: &Value) -> String {
    kinds(&read_kinds(params))
}

/// The kind of a notice on the wire; empty for a notification that is not sent to subscriptions.
#[must_use]
pub(crate) fn kind_of(method: &str, params: &Value) -> String {
    let list = LISTS.iter().find(|(.., name)| *name == method).map(|(_, word, _)| *word);
    let uri = params["uri"].as_str().filter(|_| method == UPDATED);
    list.or(uri).unwrap_or_default().to_owned()
}

/// The kind of a notice that is sent to subscriptions, and its method. Both are empty for any other notice.
#[must_use]
pub(crate) fn published(notice: &Notice) -> (String, &'static str) {
    let [tools, prompts, resources] = LISTS.map(|(_, word, method)| (word.to_owned(), method));
    match notice {
        Notice::ToolsChanged => tools,
        Notice::PromptsChanged => prompts,
        Notice::ResourcesChanged => resources,
        Notice::ResourceUpdated { uri } => (uri.to_string(), UPDATED),
        _ => (String::new(), ""),
    }
}

/// The kind of a frame's route, in a few words.
#[must_use]
pub fn route(kind: RouteKind) -> String {
    match kind {
        RouteKind::Reply(ReplyKind::Result) => "result".to_owned(),
        RouteKind::Reply(ReplyKind::Error) => "error".to_owned(),
        RouteKind::Reply(ReplyKind::Refused) => "refusal".to_owned(),
        RouteKind::Within => "within".to_owned(),
        RouteKind::Request(exchange) => format!("request {}", number(exchange)),
        RouteKind::Cancel(exchange) => format!("cancel {}", number(exchange)),
        RouteKind::Answer(key) => format!("answer {}", number(key)),
        RouteKind::Notice => "notice".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns `true` if an error object contains a partial result.
#[must_use]
pub(crate) fn has_partial(error: &Value) -> bool {
    error["data"]["partial"].is_object()
}

/// The progress in the parameters of a notification.
#[must_use]
pub(crate) fn read_progress(params: &Value) -> Progress {
    let percent = params["percent"].as_f64().map(|percent| percent.clamp(0.0, 100.0));
    let (value, total) = (params["progress"].as_f64().or(percent), params["total"].as_f64().or_else(|| percent.map(|_| 100.0)));
    let mut progress = Progress::default();
    (progress.value, progress.total) = (value, total);
    progress.message = params["message"].as_str().map(|message| message.to_owned().into());
    progress
}

/// Progress in a few words. The value is rounded, since two parsers may read it with different last bits.
#[must_use]
pub fn progress(progress: &Progress) -> String {
    let round = |value: f64| (value * 1e6).round() / 1e6;
    let value = progress.value.map_or_else(|| "-".to_owned(), |value| round(value).to_string());
    let total = progress.total.map_or_else(String::new, |total| format!("/{total}"));
    let message = progress.message.as_ref().map_or_else(String::new, |message| format!(" {message}"));
    format!("{value}{total}{message}")
}

/// The number at the end of the text of an id, such as 7 in `out-7`.
#[must_use]
pub fn number(id: impl std::fmt::Display) -> u64 {
    let words = id.to_string();
    words.rsplit('-').next().and_then(|digits| digits.parse().ok()).expect("the words of an id end in its number")
}

/// The kind of a call.
#[must_use]
pub fn op(op: Op) -> &'static str {
    match op {
        Op::CallTool => "tools/call",
        Op::ListTools => "tools/list",
        Op::Ping => "ping",
        Op::Subscribe => "resources/subscribe",
        Op::Unsubscribe => "resources/unsubscribe",
        Op::SetLogLevel => "logging/setLevel",
        Op::Listen => LISTEN,
        _ => "other",
    }
}

/// The kind of an input request. A confirmation is a form on the wire.
#[must_use]
pub fn ask(ask: &Ask) -> &'static str {
    match ask {
        Ask::Sample(_) => "sample",
        Ask::Elicit(_) | Ask::Confirm { .. } => "elicit",
        Ask::OpenUrl(_) => "open",
        _ => "roots",
    }
}

/// An event in a few words.
#[must_use]
pub fn event(event: &Event) -> String {
    match event {
        Event::Ready(_) => "ready".to_owned(),
        Event::PeerChanged(_) => "changed".to_owned(),
        Event::Request { id, request, depth, observed, .. } => {
            format!("request {} {} depth {depth} observed {observed}", number(id), op(request.op()))
        }
        Event::Cancelled { id, why } => {
            let why = match why {
                CancelReason::Peer(_) => "peer",
                CancelReason::Deadline => "deadline",
                CancelReason::Closing => "closing",
                _ => "disconnected",
            };
            format!("cancelled {} {why}", number(id))
        }
        Event::Input { id, key, answer } => {
            let answer = match answer {
                Ok(Answer::Sample(_)) => "sample".to_owned(),
                Ok(Answer::Elicit(Elicited::Accept(_))) => "accept".to_owned(),
                Ok(Answer::Elicit(_)) => "decline".to_owned(),
                Ok(Answer::OpenUrl(consent)) => format!("open {}", consent.as_str()),
                Ok(Answer::Confirm(yes)) => format!("confirm {yes}"),
                Ok(_) => "roots".to_owned(),
                Err(InputFailed::Refused(error)) => format!("refused {}", error.code),
                Err(InputFailed::Invalid(_)) => "invalid".to_owned(),
                Err(InputFailed::TimedOut) => "timed out".to_owned(),
                Err(_) => "lost".to_owned(),
            };
            format!("input {} {} {answer}", number(id), number(key))
        }
        Event::InputRequested { key, parent, ask: asked, depth } => {
            format!("asked {} parent {} {} depth {depth}", number(key), parent.map_or(0, number), ask(asked))
        }
        Event::InputGone { key } => format!("gone {}", number(key)),
        Event::Progress { id, progress: update } => format!("progress {} {}", number(id), progress(update)),
        Event::Done { id, outcome, partial, last } => {
            let outcome = match outcome {
                Outcome::Result(_) => "result".to_owned(),
                Outcome::Error(error) => format!("error {}", error.code),
                Outcome::Cancelled => "cancelled".to_owned(),
                Outcome::TimedOut(TimeoutKind::Idle) => "timed out idle".to_owned(),
                Outcome::TimedOut(TimeoutKind::MaxTotal) => "timed out in all".to_owned(),
                Outcome::Lost => "lost".to_owned(),
                _ => "invalid".to_owned(),
            };
            let partial = if partial.is_some() { " partial" } else { "" };
            let last = last.as_ref().map_or_else(String::new, |last| format!(" last {}", progress(last)));
            format!("done {} {outcome}{partial}{last}", number(id))
        }
        Event::Log(_) => "log".to_owned(),
        Event::Notice(_) => "notice".to_owned(),
        Event::Alarm(id) => format!("alarm {}", number(id)),
        Event::Violation(rule) => format!("violation {rule:?}"),
        // A response whose id has the wrong type: for the guarantees this is a violation as any other.
        Event::Unreadable(frame) if frame.rule == Violation::UnknownResponse => format!("violation {:?}", frame.rule),
        Event::Unreadable(frame) => format!("unreadable {:?}", frame.rule),
        Event::HandshakeRefused(error) => format!("refused {}", error.code),
        Event::Closed(reason) => format!("closed {reason:?}"),
        other => format!("{other:?}"),
    }
}
