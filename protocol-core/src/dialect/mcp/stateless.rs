//! The messages of a server in the revision without a handshake (2026-07-28): requests that name their caller, and results that name the
//! server.

use super::meta::{Meta, REVISION, SERVER, SUBSCRIPTION, versions, write_server};
use super::peer::{declare, write_introduction};
use super::requests::{not_found, read_request, unknown_method, wrong_params};
use super::rounds::{has_rounds, read_retry};
use super::{Era, Side, is_reserved, offers, op_of};
use crate::dialect::request::{RawParams, read_filter};
use crate::dialect::{LocalEnd, Message, Notification, Op, SubscriptionFilter, lists, write_meta_members};
use crate::error::RpcError;
use crate::json::cursor::IndexedObject;
use crate::json::read::{Kind, for_each_key, string};
use crate::json::write::{Object, write_string};
use crate::json::{Frame, Json, Text};
use crate::wire::{FrameBuffer, WireId, WrittenFrame};

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// The methods that only this revision has.
const DISCOVER: &[u8] = b"server/discover";
const LISTEN: &[u8] = b"subscriptions/listen";

/// Returns `true` if a request is served as a stateless one.
pub(super) fn is_stateless(method: &[u8], meta: &Meta<'_>, era: Era) -> bool {
    era.has_modern() && (!era.has_legacy() || !meta.caller.is_empty() || method == DISCOVER || method == LISTEN)
}

/// Reads a stateless request. If it has several faults, the error is about the first of: the caller, the version, the method, the
/// parameters.
pub(super) fn request(
    id: WireId,
    method: &[u8],
    params: Option<&IndexedObject<'_>>,
    meta: Meta<'_>,
    frame: Frame<'_>,
    local: &LocalEnd<'_>,
) -> Message {
    if method == b"initialize" {
        return Message::Reject { violation: None, answer: Some((Some(id), no_handshake(params, &meta))) };
    }
    let caller = match meta.caller.check(meta.text, frame) {
        Ok(caller) => caller,
        Err((violation, error)) => return Message::Reject { violation, answer: Some((Some(id), error)) },
    };
    let request = match op_of(method) {
        Some(Op::Listen) => read_listen(params, frame, local.limits.subscriptions).map_err(|why| Box::new(wrong_params(why))),
        Some(op) if offers(local.capabilities, op, REVISION) => {
            read_request_or_retry(op, params, frame).map_err(|why| Box::new(wrong_params(why)))
        }
        Some(_) => return not_found(None, id, method),
        None if method == DISCOVER => return Message::AnsweredByDialect { id, result: discovered(local), is_stateless: true },
        None => match core::str::from_utf8(method).unwrap_or_default() {
            name if lists(local.custom_methods, name) && !is_reserved(name) => {
                Ok(RawParams::custom(name, params.map_or_else(Json::empty_object, |params| frame.json(params.text()))))
            }
            _ => return not_found(None, id, method),
        },
    };
    let given = meta.given(frame);
    Message::Request { id, request, meta: given, token: meta.token, depth: meta.depth, caller: Some(caller) }
}

/// Reads a request, with the answers to an earlier round if it is a retry.
fn read_request_or_retry(op: Op, params: Option<&IndexedObject<'_>>, frame: Frame<'_>) -> Result<RawParams, Text> {
    let request = read_request(op, params, frame)?;
    match params.filter(|_| has_rounds(op)).map(|params| read_retry(params, frame)).transpose()?.flatten() {
        Some(retry) => Ok(request.with_retry(retry)),
        None => Ok(request),
    }
}

/// Reads a `subscriptions/listen` for at most `limit` resources.
fn read_listen(params: Option<&IndexedObject<'_>>, frame: Frame<'_>, limit: usize) -> Result<RawParams, Text> {
    let filter = read_filter(params.map_or(b"{}", IndexedObject::text), limit)?;
    Ok(read_request(Op::Listen, params, frame)?.with_filter(filter))
}

/// The error for a handshake request at a server that serves only stateless requests, or for a handshake request whose `_meta` makes it
/// stateless. The error names the versions of stateless requests (Versioning, "Servers").
fn no_handshake(params: Option<&IndexedObject<'_>>, meta: &Meta<'_>) -> RpcError {
    let requested = params.and_then(|params| params.member("protocolVersion")).and_then(string);
    let error = match meta.caller.is_empty() {
        true => RpcError::fixed(RpcError::UNSUPPORTED_VERSION, "only revisions without a handshake are served"),
        false => unknown_method(b"initialize"),
    };
    error.with_data(versions(requested.as_deref()))
}

/// The result of `server/discover` (Discovery).
fn discovered(local: &LocalEnd<'_>) -> Json {
    let mut meta = local.meta.clone();
    let introduction = || Object::value(|object| write_introduction(object, REVISION, local.identity));
    meta.entry(SERVER.into()).or_insert_with(introduction);
    Object::value(|object| {
        write_result_members(object, true, None, local, &meta, |object| {
            object.array("supportedVersions", [REVISION], |out, revision| write_string(out, revision.as_str()));
            object.object("capabilities", |object| declare(object, Side::Server, REVISION, local));
            if let Some(instructions) = local.instructions {
                object.string("instructions", instructions);
            }
        });
    })
}

/// Writes the members of a result: those that `members` writes, and those that every result of the revision has. Also writes the cache hint
/// if `is_cacheable` is `true`, the id `subscription` if the result ends a subscription, and `meta` as members of `_meta`.
pub(super) fn write_result_members(
    object: &mut Object<'_>,
    is_cacheable: bool,
    subscription: Option<&WireId>,
    local: &LocalEnd<'_>,
    meta: &BTreeMap<String, Json>,
    members: impl FnOnce(&mut Object<'_>),
) {
    object.word("resultType", "complete");
    members(object);
    if is_cacheable {
        write_cache_hint(object, local);
    }
    object.object("_meta", |object| {
        if let Some(id) = subscription {
            id.write(object.member(SUBSCRIPTION));
        }
        write_meta_members(object, meta);
        if !meta.contains_key(SERVER) {
            write_server(object, local.identity);
        }
    });
}

pub(super) fn write_cache_hint(object: &mut Object<'_>, local: &LocalEnd<'_>) {
    object.integer("ttlMs", u64::try_from(local.cache.ttl.as_millis()).unwrap_or(u64::MAX));
    object.word("cacheScope", if local.cache.public { "public" } else { "private" });
}

/// Writes `result`, and adds the members that every result of the revision has, if `result` does not have them. If `is_cacheable` is
/// `true`, also adds the cache hint, unless `result` has one of its two members.
pub(super) fn write_given(out: &mut alloc::vec::Vec<u8>, result: &Json, is_cacheable: bool, local: &LocalEnd<'_>) {
    let (mut has_type, mut has_ttl, mut has_scope, mut given) = (false, false, false, None);
    for_each_key(result.as_bytes(), |key, value| {
        has_type |= key.is("resultType");
        has_ttl |= key.is("ttlMs");
        has_scope |= key.is("cacheScope");
        if key.is("_meta") && Kind::of(value) == Kind::Object {
            given = Some(value);
        }
    });
    Object::write(out, |object| {
        if !has_type {
            object.word("resultType", "complete");
        }
        for_each_key(result.as_bytes(), |key, value| {
            if !key.is("_meta") {
                object.copy(key, value);
            }
        });
        if is_cacheable && !has_ttl && !has_scope {
            write_cache_hint(object, local);
        }
        object.object("_meta", |object| {
            let mut names_server = false;
            for_each_key(given.unwrap_or(b"{}"), |key, value| {
                names_server |= key.is(SERVER);
                object.copy(key, value);
            });
            if !names_server {
                write_server(object, local.identity);
            }
        });
    });
}

/// Writes the acknowledgement of a subscription to the kinds in `accepted` (Subscriptions).
pub(crate) fn write_acknowledged(frames: &mut FrameBuffer, id: &WireId, accepted: &SubscriptionFilter) -> WrittenFrame {
    frames.notify("notifications/subscriptions/acknowledged", |object| {
        write_filter(object, accepted);
        write_subscription(object, id);
    })
}

/// Writes the filter of a subscription. The kinds of notifications that it does not include are omitted.
pub(super) fn write_filter(object: &mut Object<'_>, filter: &SubscriptionFilter) {
    let kinds =
        [("toolsListChanged", filter.tools), ("promptsListChanged", filter.prompts), ("resourcesListChanged", filter.resources)];
    object.object("notifications", |object| {
        for (kind, _) in kinds.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            object.boolean(kind, true);
        }
        if !filter.uris.is_empty() {
            object.array("resourceSubscriptions", &filter.uris, |out, uri| write_string(out, uri));
        }
    });
}

/// Writes a notification for one subscription.
pub(crate) fn write_published(frames: &mut FrameBuffer, id: &WireId, notification: &Notification) -> WrittenFrame {
    let method = match notification {
        Notification::ToolsChanged => "notifications/tools/list_changed",
        Notification::PromptsChanged => "notifications/prompts/list_changed",
        Notification::ResourcesChanged => "notifications/resources/list_changed",
        // Only `Notification::ResourceUpdated` is left, since no subscription includes any other notification.
        _ => "notifications/resources/updated",
    };
    frames.notify(method, |object| {
        if let Notification::ResourceUpdated { uri } = notification {
            object.string("uri", uri);
        }
        write_subscription(object, id);
    })
}

fn write_subscription(object: &mut Object<'_>, id: &WireId) {
    object.object("_meta", |object| id.write(object.member(SUBSCRIPTION)));
}
