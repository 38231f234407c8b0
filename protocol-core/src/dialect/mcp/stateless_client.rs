//! The messages of a client in the revision without a handshake (2026-07-28): the probe, which asks a server for its revisions, the members
//! that name the client in each request, and subscriptions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::meta::{REVISION, SERVER, SUBSCRIPTION, write_caller, write_stamp};
use super::peer::{read_capabilities, read_identity};
use super::rounds::has_rounds;
use super::stateless::write_filter;
use super::{Era, Mcp, Revision, Side};
use crate::dialect::message::ignored_message;
use crate::dialect::request::read_filter;
use crate::dialect::{
    Identity, LocalEnd, Message, Notification, Op, PeerInfo, ProbeVerdict, ResponseBody, ResultFit, Stamp, SubscriptionFilter,
};
use crate::error::{MemberFault, RpcError, Violation};
use crate::json::cursor::IndexedObject;
use crate::json::read::{Kind, elements, member, string};
use crate::json::write::Object;
use crate::json::{Json, Text};
use crate::wire::{FrameBuffer, WireId, WrittenFrame};

/// Writes the probe: the request for the revisions of the server (Discovery).
pub(crate) fn write_probe(frames: &mut FrameBuffer, id: u64, local: &LocalEnd<'_>) -> WrittenFrame {
    frames.request(id, "server/discover", 256, |out| {
        Object::write(out, |object| object.object("_meta", |object| write_caller(object, local)));
    })
}

/// Reads the response to a probe (Versioning, "Clients").
pub(crate) fn read_probe_answer(body: &ResponseBody, local: &LocalEnd<'_>) -> ProbeVerdict {
    match body {
        ResponseBody::Result(result) => read_discovered(result, local),
        ResponseBody::Error(error) => match error.code {
            RpcError::UNSUPPORTED_VERSION if names_our_revision(error) => ProbeVerdict::Again,
            RpcError::UNSUPPORTED_VERSION if has_legacy(error.data.as_deref().and_then(supported).as_ref(), local) => {
                ProbeVerdict::Legacy
            }
            RpcError::UNSUPPORTED_VERSION => ProbeVerdict::Mismatch,
            RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY => ProbeVerdict::Refused,
            // Servers with a handshake answer an unknown method with various codes.
            _ => ProbeVerdict::Legacy,
        },
        ResponseBody::Unreadable(_) => ProbeVerdict::Legacy,
    }
}

/// Reads the result of `server/discover`. A server whose result has no list of versions, or a `resultType` that is not defined, does not
/// support this request, and is treated as a server with a handshake.
fn read_discovered(result: &Json, local: &LocalEnd<'_>) -> ProbeVerdict {
    let Some(versions) = result.member("supportedVersions").filter(|versions| Kind::of(versions.as_bytes()) == Kind::Array) else {
        return ProbeVerdict::Legacy;
    };
    if Mcp::check_type(None, result) == ResultFit::Wrong {
        return ProbeVerdict::Legacy;
    }
    if !lists_revision(&versions, |revision| revision == REVISION) {
        return if has_legacy(Some(&versions), local) { ProbeVerdict::Legacy } else { ProbeVerdict::Mismatch };
    }
    let Some(declared) = result.member("capabilities").filter(Json::is_object) else {
        return ProbeVerdict::Malformed("capabilities", MemberFault::of(result.as_bytes(), "capabilities"));
    };
    let server = member(result.as_bytes(), "_meta").and_then(|meta| member(meta, SERVER)).and_then(read_identity);
    ProbeVerdict::Modern(Box::new(PeerInfo {
        // The server need not name itself.
        identity: server.unwrap_or_else(|| Identity::new("", "")),
        protocol: Text::from_static(REVISION.as_str()),
        capabilities: read_capabilities(&declared),
        declared,
        instructions: result.member("instructions").and_then(|text| text.as_text_lossy()),
        credentials: None,
    }))
}

/// Returns `true` for an error that refuses our revision, although the error lists our revision among those that the server speaks.
pub(crate) fn names_our_revision(error: &RpcError) -> bool {
    let supported = error.data.as_deref().and_then(supported);
    error.code == RpcError::UNSUPPORTED_VERSION
        && supported.is_some_and(|versions| lists_revision(&versions, |revision| revision == REVISION))
}

fn supported(data: &Json) -> Option<Json> {
    data.member("supported").filter(|versions| Kind::of(versions.as_bytes()) == Kind::Array)
}

fn lists_revision(versions: &Json, is_wanted: impl Fn(Revision) -> bool) -> bool {
    elements(versions.as_bytes()).into_iter().filter_map(string).filter_map(|name| Revision::from_name(&name)).any(is_wanted)
}

/// Returns `true` if the list has a revision with a handshake up to [`LocalEnd::newest`], even if the era of this end excludes handshakes.
fn has_legacy(versions: Option<&Json>, local: &LocalEnd<'_>) -> bool {
    versions.is_some_and(|versions| lists_revision(versions, |revision| revision <= local.newest()))
}

/// Writes the request that begins a subscription (Subscriptions).
pub(crate) fn write_listen(frames: &mut FrameBuffer, id: u64, filter: &SubscriptionFilter, stamp: Stamp<'_>) -> WrittenFrame {
    frames.request(id, "subscriptions/listen", 256, |out| {
        Object::write(out, |object| {
            write_filter(object, filter);
            object.object("_meta", |object| write_stamp(object, stamp));
        });
    })
}

impl Mcp {
    /// Returns `true` for a client that begins with a probe.
    pub(crate) const fn probes(self, era: Era) -> bool {
        matches!(self.side, Side::Client) && era.has_modern()
    }

    /// The members of `_meta` that name this end in each of its requests. Empty in a revision with a handshake.
    pub(crate) fn stamp(self, local: &LocalEnd<'_>) -> Box<[u8]> {
        if !self.is_stateless() {
            return Box::default();
        }
        let mut out = Vec::new();
        Object::write(&mut out, |object| write_caller(object, local));
        out.strip_prefix(b"{").and_then(|members| members.strip_suffix(b"}")).unwrap_or_default().into()
    }

    /// Returns `true` for a client without a handshake. Such a client receives no request, and so sends no response.
    pub(super) const fn is_stateless_client(self) -> bool {
        self.is_stateless() && matches!(self.side, Side::Client)
    }

    /// Checks the member `resultType` of a result (Basic, "Responses"). `op` is the kind of the request, `None` for a probe. A type that
    /// the revision does not define belongs to an extension, and is not supported.
    pub(super) fn check_type(op: Option<Op>, result: &Json) -> ResultFit {
        /// The beginning of most results. In any other result the member is searched for, which takes time in proportion to the length of
        /// the result.
        const COMPLETE: &[u8] = br#"{"resultType":"complete","#;
        if result.as_bytes().starts_with(COMPLETE) {
            return ResultFit::Fits;
        }
        let Some(kind) = result.given("resultType") else { return ResultFit::Fits };
        match string(kind.as_bytes()).as_deref() {
            Some("complete") => ResultFit::Fits,
            Some("input_required") if op.is_some_and(has_rounds) => ResultFit::AsksForInput,
            _ => ResultFit::Wrong,
        }
    }
}

/// Reads a notification that is new in this revision, or has another meaning than in earlier revisions. `None` for any other notification.
/// `max_uris` is the maximum number of URIs in a filter, `max_id` the maximum length of an id in bytes.
pub(super) fn notification(method: &str, params: &IndexedObject<'_>, max_uris: usize, max_id: usize) -> Option<Message> {
    let notification = match method {
        "notifications/tools/list_changed" => Notification::ToolsChanged,
        "notifications/prompts/list_changed" => Notification::PromptsChanged,
        "notifications/resources/list_changed" => Notification::ResourcesChanged,
        "notifications/resources/updated" => match params.member("uri").and_then(string) {
            Some(uri) => Notification::ResourceUpdated { uri: Text::from(&*uri) },
            None => return Some(Message::Reject { violation: Some(Violation::InvalidParams), answer: None }),
        },
        "notifications/subscriptions/acknowledged" => {
            return Some(match read_filter(params.text(), max_uris) {
                Ok(accepted) => Message::Acknowledged { number: subscription_of(params, max_id), accepted },
                Err(_) => Message::Reject { violation: Some(Violation::InvalidParams), answer: None },
            });
        }
        "notifications/cancelled" => {
            let number = params.member("requestId").and_then(|id| WireId::read(id, max_id)).and_then(|id| id.as_ours());
            return Some(Message::SubscriptionCancelled { number });
        }
        // This revision no longer has this notification.
        "notifications/elicitation/complete" => return Some(ignored_message()),
        _ => return None,
    };
    Some(Message::Published { number: subscription_of(params, max_id), notification })
}

/// The number of the subscription that a notification names.
fn subscription_of(params: &IndexedObject<'_>, max_id: usize) -> Option<u64> {
    let id = params.member("_meta").and_then(|meta| member(meta, SUBSCRIPTION))?;
    WireId::read(id, max_id)?.as_ours()
}
