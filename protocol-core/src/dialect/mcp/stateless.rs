//! The messages of a server in the revision without a handshake (2026-07-28): requests that name their caller, and results that name the
//! server.

use super::read::{Meta, not_found, read_capabilities, read_identity, read_request, unknown_method, wrong_params};
use super::rounds::{has_rounds, read_retry};
use super::write::{declare, write_identity};
use super::{Era, Mcp, Revision, Side, is_reserved, offers, op_of};
use crate::dialect::request::{RawParams, read_filter};
use crate::dialect::{
    Identity, KnownCaller, Level, LocalEnd, Message, Notice, Op, PeerInfo, StatelessCaller, SubscriptionFilter, lists,
};
use crate::error::{RpcError, Violation};
use crate::json::read::{Key, Kind, for_each_key, string};
use crate::json::cursor::IndexedObject;
use crate::json::write::{Object, write_string};
use crate::json::{Frame, Json, Text};
use crate::shared::Arc;
use crate::wire::{FrameBuffer, WireId, WrittenFrame};

use alloc::boxed::Box;
use core::ops::Range;

/// The members of `_meta` that the revision adds (Basic, "_meta").
pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The methods that only this revision has.
const DISCOVER: &[u8] = b"server/discover";
const LISTEN: &[u8] = b"subscriptions/listen";

/// The only revision without a handshake.
pub(super) const REVISION: Revision = Revision::R2026_07_28;

/// The members of `_meta` that name the caller of a request.
#[derive(Default)]
pub(super) struct CallerMembers<'a> {
    version: Option<&'a [u8]>,
    capabilities: Option<&'a [u8]>,
    info: Option<&'a [u8]>,
    log_level: Option<&'a [u8]>,
    /// The range in the text of `_meta` from the first of these members to the last. Empty if another member is between them.
    range: Range<usize>,
    /// The caller of an earlier request, if the text that named this caller was found in `_meta`.
    known: Option<&'a KnownCaller>,
}

impl<'a> CallerMembers<'a> {
    /// Takes a member of `_meta`; `range` is its range in the text of `_meta`. Returns `false` if the member is none of those that name the
    /// caller.
    pub(super) fn take(&mut self, key: Key<'a>, value: &'a [u8], range: Range<usize>) -> bool {
        let is_first = self.has_none();
        let member = match () {
            () if key.is(VERSION) => &mut self.version,
            () if key.is(CAPABILITIES) => &mut self.capabilities,
            () if key.is(CLIENT) => &mut self.info,
            () if key.is(LOG_LEVEL) => &mut self.log_level,
            () => return false,
        };
        *member = Some(value);
        self.range = match range.start {
            start if is_first => start..range.end,
            start if start == self.range.end => self.range.start..range.end,
            _ => 0..0,
        };
        true
    }

    /// Takes members whose text is that of `known`.
    pub(super) fn recognize(&mut self, known: &'a KnownCaller) {
        self.known = Some(known);
    }

    /// Returns `true` if [`Self::recognize`] and [`Self::take`] both took members. The same member may then occur twice, and the last one
    /// counts, so all members must be read one by one.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.known.is_some() && !self.has_none()
    }

    fn is_empty(&self) -> bool {
        self.known.is_none() && self.has_none()
    }

    fn has_none(&self) -> bool {
        [self.version, self.capabilities, self.info, self.log_level].iter().all(Option::is_none)
    }

    /// Checks that the required members are present and have the right type, then the type of the other members, then that the version is
    /// served. A caller that was recognized is not checked again. `meta` is the text of `_meta`.
    fn check(&self, meta: &[u8], frame: Frame<'_>) -> Result<StatelessCaller, (Option<Violation>, RpcError)> {
        if let Some(known) = self.known {
            return Ok(known.caller());
        }
        let wrong = |why| (Some(Violation::InvalidParams), RpcError::fixed(RpcError::INVALID_PARAMS, why));
        let version = self.version.and_then(string).ok_or_else(|| wrong("_meta must name the protocol version, as text"))?;
        let capabilities = self.capabilities.filter(|value| Kind::of(value) == Kind::Object);
        let capabilities = capabilities.ok_or_else(|| wrong("_meta must hold the capabilities of the client, as an object"))?;
        let identity = self.info.map(read_identity);
        if identity == Some(None) {
            return Err(wrong("clientInfo must be an object with a name and a version"));
        }
        let log_level = self.log_level.map(|level| string(level).and_then(|name| Level::from_name(&name)));
        if log_level == Some(None) {
            return Err(wrong("logLevel must be one of the eight log levels"));
        }
        if version != REVISION.as_str() {
            let unsupported = RpcError::fixed(RpcError::UNSUPPORTED_VERSION, "this version of the protocol is not served");
            return Err((None, unsupported.with_data(versions(Some(&version)))));
        }
        // Copied, since a caller is kept for longer than the frame.
        let declared = Json::written(capabilities.to_vec());
        let peer = PeerInfo {
            identity: identity.flatten().unwrap_or_else(|| Identity::new("", "")),
            protocol: Text::from_static(REVISION.as_str()),
            capabilities: read_capabilities(&declared),
            declared,
            instructions: None,
            credentials: None,
        };
        Ok(StatelessCaller {
            rules: Mcp::rules(Side::Server, Some(REVISION)),
            peer: Arc::new(peer),
            log_level: log_level.flatten(),
            text: meta.get(self.range.clone()).and_then(|text| frame.place(text)).unwrap_or_default(),
        })
    }
}

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

/// The data of an error about the version: the versions of stateless requests, and the one that was requested.
fn versions(requested: Option<&str>) -> Json {
    Object::value(|object| {
        object.array("supported", [REVISION], |out, revision| write_string(out, revision.as_str()));
        if let Some(requested) = requested {
            object.string("requested", requested);
        }
    })
}

/// The result of `server/discover` (Discovery).
fn discovered(local: &LocalEnd<'_>) -> Json {
    Object::value(|object| {
        write_result_members(object, true, None, local, |object| {
            object.array("supportedVersions", [REVISION], |out, revision| write_string(out, revision.as_str()));
            object.object("capabilities", |object| declare(object, Side::Server, REVISION, local));
            if let Some(instructions) = local.instructions {
                object.string("instructions", instructions);
            }
        });
    })
}

/// Writes the members of a result: those that `members` writes, and those that every result of the revision has. Also writes the cache hint
/// if `is_cacheable` is `true`, and the id `subscription` if the result ends a subscription.
pub(super) fn write_result_members(
    object: &mut Object<'_>,
    is_cacheable: bool,
    subscription: Option<&WireId>,
    local: &LocalEnd<'_>,
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
        write_server(object, local.identity);
    });
}

pub(super) fn write_cache_hint(object: &mut Object<'_>, local: &LocalEnd<'_>) {
    object.integer("ttlMs", u64::try_from(local.cache.ttl.as_millis()).unwrap_or(u64::MAX));
    object.word("cacheScope", if local.cache.public { "public" } else { "private" });
}

pub(super) fn write_server(object: &mut Object<'_>, identity: &Identity) {
    object.object(SERVER, |object| write_identity(object, REVISION, identity));
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

/// Writes the filter of a subscription. The kinds of notices that it does not include are omitted.
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

/// Writes a notice for one subscription.
pub(crate) fn write_published(frames: &mut FrameBuffer, id: &WireId, notice: &Notice) -> WrittenFrame {
    let method = match notice {
        Notice::ToolsChanged => "notifications/tools/list_changed",
        Notice::PromptsChanged => "notifications/prompts/list_changed",
        Notice::ResourcesChanged => "notifications/resources/list_changed",
        // Only `Notice::ResourceUpdated` is left, since no subscription includes any other notice.
        _ => "notifications/resources/updated",
    };
    frames.notify(method, |object| {
        if let Notice::ResourceUpdated { uri } = notice {
            object.string("uri", uri);
        }
        write_subscription(object, id);
    })
}

fn write_subscription(object: &mut Object<'_>, id: &WireId) {
    object.object("_meta", |object| id.write(object.member(SUBSCRIPTION)));
}
