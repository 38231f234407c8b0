//! The member `_meta` of requests and results: its keys, reading it, and adding to it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::peer::{declare, read_capabilities, read_identity, write_identity};
use super::{Mcp, Revision, Side};
use crate::dialect::{Identity, KnownCaller, Level, LocalEnd, PeerInfo, Stamp, StatelessCaller};
use crate::error::{RpcError, Violation};
use crate::json::cursor::{IndexedObject, RepeatedMember};
use crate::json::read::{Key, Kind, Members, for_each_key, for_each_member, integer, string};
use crate::json::scan::any_part;
use crate::json::write::{Object, push_json, write_string};
use crate::json::{Frame, Json, Text};
use crate::shared::Arc;
use crate::wire::{Tolerated, WireId};

// The keys that are not part of MCP, but this crate's own. Each has a prefix, as MCP demands ("Basic", section "_meta").

/// The number of sampling requests that a request is nested in.
pub(crate) const DEPTH: &str = "protocol-core/samplingDepth";
/// The caller's id of the exchange that an input request belongs to.
pub(crate) const PARENT: &str = "protocol-core/parent";
/// The data of a progress update.
pub(crate) const DATA: &str = "protocol-core/data";
/// The last checkpoint, in a progress update.
pub(crate) const PARTIAL: &str = "protocol-core/partial";

// The keys that the revision without a handshake adds (2026-07-28, Basic, "_meta").

pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The only revision without a handshake.
pub(super) const REVISION: Revision = Revision::R2026_07_28;

/// The members of `params._meta` that the session reads.
#[derive(Default)]
pub(super) struct Meta<'a> {
    /// All of `_meta`.
    pub(super) text: &'a [u8],
    /// `true` if `_meta` has members that the session does not read.
    has_others: bool,
    pub(super) token: Option<WireId>,
    /// The number of the exchange of ours that an input request belongs to.
    pub(super) parent: Option<u64>,
    pub(super) depth: u8,
    /// The members that make a request stateless.
    pub(super) caller: CallerMembers<'a>,
}

impl<'a> Meta<'a> {
    /// Reads the members. Those that make a request stateless are read only if this end serves stateless requests. If their text is the
    /// text of the caller `recent`, they are not read again.
    pub(super) fn read(
        params: &IndexedObject<'a>,
        local: &LocalEnd<'_>,
        recent: Option<&'a KnownCaller>,
        tolerated: &Tolerated,
    ) -> Result<Self, (Violation, &'static str)> {
        let text = params.only("_meta").map_err(|RepeatedMember| (Violation::RepeatedMember, "_meta is repeated"))?;
        let Some(text) = text.filter(|text| *text != b"null") else { return Ok(Self::default()) };
        let mut members = Members::of(text).ok_or((Violation::InvalidParams, "_meta must be an object"))?;
        let mut read = Self { text, ..Self::default() };
        let mut wrong = None;
        loop {
            if let Some(known) = recent
                && members.skip_written(known.text())
            {
                read.caller.recognize(known);
                continue;
            }
            let start = members.offset();
            let Some((key, value)) = members.next() else { break };
            if value == b"null" && Self::reads(key) {
                tolerated.count();
            } else if key.is("progressToken") {
                read.token = WireId::read(value, local.limits.id_bytes);
                if read.token.is_none() {
                    wrong = Some((Violation::InvalidParams, "progressToken must be text or a whole number"));
                }
            } else if key.is(DEPTH) {
                // The peer may send any value. A value that is not a depth counts as the maximum, so that the limit on depth holds.
                read.depth = integer(value).unwrap_or(u8::MAX);
            } else if key.is(PARENT) {
                read.parent = integer(value);
            } else if !(local.era.has_modern() && read.caller.take(key, value, start..members.offset())) {
                read.has_others = true;
            }
        }
        // Without `recent`, all members are read one by one, so that the last of repeated ones counts.
        if read.caller.may_be_repeated() {
            return Self::read(params, local, None, tolerated);
        }
        wrong.map_or(Ok(read), Err)
    }

    /// Returns `true` for the key of a member that the session reads.
    #[cold]
    fn reads(key: Key<'_>) -> bool {
        ["progressToken", DEPTH, PARENT].into_iter().any(|name| key.is(name)) || names_caller(&key.name())
    }

    /// All of `_meta`, if it has members that the session does not read.
    pub(super) fn given(&self, frame: Frame<'_>) -> Option<Box<Json>> {
        self.has_others.then(|| Box::new(frame.json(self.text)))
    }
}

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

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_none() && self.has_none()
    }

    fn has_none(&self) -> bool {
        [self.version, self.capabilities, self.info, self.log_level].iter().all(Option::is_none)
    }

    /// Checks that the required members are present and have the right type, then the type of the other members, then that the version is
    /// served. A caller that was recognized is not checked again. `meta` is the text of `_meta`.
    pub(super) fn check(&self, meta: &[u8], frame: Frame<'_>) -> Result<StatelessCaller, (Option<Violation>, RpcError)> {
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

/// The data of an error about the version: the versions of stateless requests, and the one that was requested.
pub(super) fn versions(requested: Option<&str>) -> Json {
    Object::value(|object| {
        object.array("supported", [REVISION], |out, revision| write_string(out, revision.as_str()));
        if let Some(requested) = requested {
            object.string("requested", requested);
        }
    })
}

/// Returns `true` for the key of a member of `_meta` that names the client, or that has the log level that the client asks for.
pub(super) fn names_caller(key: &str) -> bool {
    [VERSION, CAPABILITIES, CLIENT, LOG_LEVEL].contains(&key)
}

/// The members that the session adds to `params._meta` of a request.
pub(super) struct Added<'a> {
    /// The progress token.
    pub(super) token: Option<u64>,
    /// The sampling depth; 0 is not written.
    pub(super) depth: u8,
    /// The id of the request that an input request belongs to.
    pub(super) parent: Option<&'a WireId>,
    pub(super) stamp: Stamp<'a>,
}

impl Added<'_> {
    fn is_empty(&self) -> bool {
        self.token.is_none() && self.depth == 0 && self.parent.is_none() && self.stamp.is_empty()
    }

    fn write(&self, object: &mut Object<'_>) {
        write_stamp(object, self.stamp);
        if let Some(token) = self.token {
            object.integer("progressToken", token);
        }
        if self.depth > 0 {
            object.integer(DEPTH, self.depth.into());
        }
        if let Some(parent) = self.parent {
            parent.write(object.member(PARENT));
        }
    }

    /// Returns `true` for the name of a member of `_meta` that only the session writes. If the owner passes a member of this name, the
    /// member is dropped.
    fn owns(&self, name: &str) -> bool {
        matches!(name, "progressToken" | DEPTH | PARENT) || (!self.stamp.is_empty() && names_caller(name))
    }

    /// Writes `_meta` with these members and those of `given`. Writes nothing if there are no members to add and `given` is `None`.
    pub(super) fn write_meta(&self, object: &mut Object<'_>, given: Option<&Json>) {
        if self.is_empty() && given.is_none() {
            return;
        }
        object.object("_meta", |object| {
            if let Some(given) = given {
                self.copy_others(object, given.as_bytes());
            }
            self.write(object);
        });
    }

    /// Copies the members of `given` that the session does not write itself.
    fn copy_others(&self, object: &mut Object<'_>, given: &[u8]) {
        for_each_key(given, |key, value| {
            if !self.owns(&key.name()) {
                object.copy(key, value);
            }
        });
    }

    /// Writes `params`, an object without `_meta`, with these members as its `_meta`.
    fn append(&self, params: &Json, out: &mut Vec<u8>) {
        let whole = params.as_bytes();
        let Some(open) = whole.strip_suffix(b"}").filter(|_| !self.is_empty()) else { return push_json(out, whole) };
        push_json(out, open);
        // An object without members has only white space between its braces.
        if open.iter().skip(1).any(|byte| !byte.is_ascii_whitespace()) {
            out.push(b',');
        }
        out.extend_from_slice(b"\"_meta\":");
        Object::write(out, |object| self.write(object));
        out.push(b'}');
    }

    /// Writes `params` with these members merged into its `_meta`.
    pub(super) fn merge(&self, params: &Json, out: &mut Vec<u8>) {
        if !may_have_meta(params) {
            return self.append(params, out);
        }
        let mut given = None;
        for_each_member(params.as_bytes(), |name, value| {
            if name == "_meta" {
                given = Some(value);
            }
        });
        if self.is_empty() && given.is_none() {
            return push_json(out, params.as_bytes());
        }
        Object::write(out, |object| {
            copy_without_meta(object, params);
            object.object("_meta", |object| {
                self.copy_others(object, given.unwrap_or(b"{}"));
                self.write(object);
            });
        });
    }
}

/// Returns `true` if `params` may contain `_meta`: a string begins with `_`, or there is a `\u` escape, which may stand for a
/// character of this name.
fn may_have_meta(params: &Json) -> bool {
    // `any_part` looks at parts of the text that overlap by one byte, so that each pair of neighbouring bytes is within a part.
    let has_start = |found, (one, next): (&u8, &u8)| found | (*one == b'"') & (*next == b'_') | (*one == b'\\') & (*next == b'u');
    any_part::<33>(params.as_bytes(), 1, |part| part.iter().zip(part.iter().skip(1)).fold(false, has_start))
}

/// Copies the members of parameters other than `_meta`.
pub(super) fn copy_without_meta(object: &mut Object<'_>, params: &Json) {
    for_each_key(params.as_bytes(), |key, value| {
        if key.name() != "_meta" {
            object.copy(key, value);
        }
    });
}

/// Writes the members of `_meta` that name the client, and the log level that the client asks for.
pub(super) fn write_stamp(object: &mut Object<'_>, stamp: Stamp<'_>) {
    object.append(stamp.caller);
    // The stamp of a request that is not stateless is empty, although it may have a level.
    if let Some(level) = stamp.level.filter(|_| !stamp.is_empty()) {
        object.word(LOG_LEVEL, level.as_str());
    }
}

/// Writes the members of `_meta` that name the client.
pub(super) fn write_caller(object: &mut Object<'_>, local: &LocalEnd<'_>) {
    object.word(VERSION, REVISION.as_str());
    object.object(CAPABILITIES, |object| declare(object, Side::Client, REVISION, local));
    object.object(CLIENT, |object| write_identity(object, REVISION, local.identity));
}

pub(super) fn write_server(object: &mut Object<'_>, identity: &Identity) {
    object.object(SERVER, |object| write_identity(object, REVISION, identity));
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn merged(params: &str) -> String {
        let mut out = Vec::new();
        let params = Json::parse(String::from(params)).unwrap();
        Added { token: Some(7), depth: 0, parent: None, stamp: Stamp::EMPTY }.merge(&params, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_meta_of_the_session_is_appended_to_parameters_in_any_layout() {
        for (given, expected) in [
            ("{}", r#"{"_meta":{"progressToken":7}}"#),
            ("{ \t }", "{ \t \"_meta\":{\"progressToken\":7}}"),
            ("{\"a\":1\n}", "{\"a\":1 ,\"_meta\":{\"progressToken\":7}}"),
            (r#"{"a_b":"c\\d\n"}"#, r#"{"a_b":"c\\d\n","_meta":{"progressToken":7}}"#),
        ] {
            assert_eq!(merged(given), expected, "{given}");
        }
    }

    #[test]
    fn a_meta_that_was_given_is_merged_even_if_its_name_is_written_with_escapes() {
        for given in [r#"{"_meta":{"x":1,"progressToken":9},"a":2}"#, r#"{"\u005fmeta":{"x":1},"a":2}"#] {
            assert_eq!(merged(given), r#"{"a":2,"_meta":{"x":1,"progressToken":7}}"#, "{given}");
        }
        // A value `_meta` is not a member of this name.
        assert_eq!(merged(r#"{"a":"_meta"}"#), r#"{"a":"_meta","_meta":{"progressToken":7}}"#);
    }
}
