//! The Model Context Protocol, revisions 2024-11-05 to 2026-07-28, both ends.
//!
//! The revisions form two eras. Up to 2025-11-25 a handshake agrees on a revision for the whole session. From 2026-07-28 on every request
//! is stateless: its `_meta` names its revision, the capabilities of its caller and, in most requests, the name and version of its caller.
//! A stateless request does not depend on earlier requests.
//!
//! Comments in this folder cite pages and sections of the specification. If they name no revision, they mean 2025-11-25; in `stateless.rs`
//! and `stateless_client.rs` they mean 2026-07-28.

pub(crate) mod meta;
mod peer;
mod projection;
mod read;
mod requests;
mod rounds;
mod rules;
mod sampling;
mod stateless;
mod stateless_client;
mod tool_schema;
mod write;

use core::time::Duration;

pub(crate) use rounds::{RetryMembers, round_size};
pub(crate) use stateless::{write_acknowledged, write_published};
pub(crate) use stateless_client::{names_our_revision, read_probe_answer, write_listen, write_probe};
pub use tool_schema::tool_schema_fault;

use crate::dialect::{Capabilities, Op};

/// An end of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that calls tools, and answers requests for sampling, elicitation and roots.
    Client,
    /// The end that serves tools.
    Server,
}

/// A published revision. An older revision is less than a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Revision {
    /// The first revision. Its progress updates have no message, and its tools have no structured content.
    R2024_11_05,
    /// The only revision with batches.
    R2025_03_26,
    /// The first revision with elicitation and structured content.
    R2025_06_18,
    /// The first revision with sampling with tools, and with elicitation by URL.
    R2025_11_25,
    /// The first revision without a handshake, without requests of the server, and without state between requests.
    R2026_07_28,
}

impl Revision {
    /// Every revision that this crate speaks, oldest first.
    pub const ALL: [Self; 5] = [Self::R2024_11_05, Self::R2025_03_26, Self::R2025_06_18, Self::R2025_11_25, Self::R2026_07_28];
    /// The newest revision with a handshake.
    pub const NEWEST_LEGACY: Self = Self::R2025_11_25;
    /// The newest revision that this crate speaks.
    pub const NEWEST: Self = Self::R2026_07_28;

    /// Returns `true` if the revision is agreed on by a handshake. Otherwise each request names the revision.
    #[must_use]
    pub const fn has_handshake(self) -> bool {
        !matches!(self, Self::R2026_07_28)
    }

    /// The name in the protocol, such as `2025-11-25`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::R2024_11_05 => "2024-11-05",
            Self::R2025_03_26 => "2025-03-26",
            Self::R2025_06_18 => "2025-06-18",
            Self::R2025_11_25 => "2025-11-25",
            Self::R2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with the name `name`, if this crate speaks it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == name)
    }
}

/// The revisions that an end of MCP speaks (Versioning, 2026-07-28).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Era {
    /// Only the revisions with a handshake.
    Legacy,
    /// Both eras. A server serves each request in the era that the request belongs to, in any order. A client first asks the server for its
    /// revisions, and prefers a revision without a handshake.
    Auto,
    /// Only the revisions without a handshake.
    Modern,
}

impl Era {
    /// Returns `true` if the era includes the revisions with a handshake.
    pub(crate) const fn has_legacy(self) -> bool {
        !matches!(self, Self::Modern)
    }

    /// Returns `true` if the era includes the revisions without a handshake.
    pub(crate) const fn has_modern(self) -> bool {
        !matches!(self, Self::Legacy)
    }
}

/// The time for which a peer may cache a list, a resource or the answer to a probe, and the permission to share it (2026-07-28, Caching).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheHint {
    /// The time, which is sent in whole milliseconds. Default: zero, so that nothing is cached.
    pub ttl: Duration,
    /// `true` if the result is the same for every caller, so that callers may share a cached result. Default: `false`.
    pub public: bool,
}

impl CacheHint {
    /// A hint for a result that the caller must not share.
    #[must_use]
    pub const fn private(ttl: Duration) -> Self {
        Self { ttl, public: false }
    }

    /// A hint for a result that is the same for every caller.
    #[must_use]
    pub const fn public(ttl: Duration) -> Self {
        Self { ttl, public: true }
    }
}

/// One end of MCP in one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mcp {
    side: Side,
    /// The revision that the handshake agreed on, that a stateless request named, or that a client chose after its probe; `None` until
    /// then.
    agreed: Option<Revision>,
}

impl Mcp {
    pub(crate) fn is_cancellable(self, op: Op) -> bool {
        op != Op::Ping
    }

    /// Returns `true` in a revision without a handshake.
    const fn is_stateless(self) -> bool {
        matches!(self.agreed, Some(revision) if !revision.has_handshake())
    }

    /// Returns `true` if the revision has elicitation in URL mode.
    fn has_urls(self) -> bool {
        self.revision() >= Revision::R2025_11_25
    }

    /// The agreed revision. Before the handshake, the oldest revision, since this end then sends only messages that all revisions have.
    fn revision(self) -> Revision {
        self.agreed.unwrap_or(Revision::R2024_11_05)
    }
}

/// Returns `true` if a server with these capabilities serves `op` (Lifecycle, "Capability Negotiation").
fn offers(server: &Capabilities, op: Op, revision: Revision) -> bool {
    let has_handshake = revision.has_handshake();
    match op {
        Op::CallTool | Op::ListTools => server.tools,
        Op::GetPrompt | Op::ListPrompts => server.prompts,
        Op::ReadResource | Op::ListResources | Op::ListResourceTemplates => server.resources,
        Op::Subscribe | Op::Unsubscribe => server.resources_subscribe && has_handshake,
        // The first revision has the method, but no capability for it.
        Op::Complete => server.completions || revision == Revision::R2024_11_05,
        Op::SetLogLevel => server.logging && has_handshake,
        Op::Ping => has_handshake,
        Op::Listen => !has_handshake,
        Op::Custom => true,
    }
}

/// The method of each operation.
const METHODS: [(&str, Op); 13] = [
    ("tools/call", Op::CallTool),
    ("tools/list", Op::ListTools),
    ("prompts/get", Op::GetPrompt),
    ("prompts/list", Op::ListPrompts),
    ("resources/read", Op::ReadResource),
    ("resources/list", Op::ListResources),
    ("resources/templates/list", Op::ListResourceTemplates),
    ("resources/subscribe", Op::Subscribe),
    ("resources/unsubscribe", Op::Unsubscribe),
    ("completion/complete", Op::Complete),
    ("logging/setLevel", Op::SetLogLevel),
    ("subscriptions/listen", Op::Listen),
    ("ping", Op::Ping),
];

/// Returns `true` for a method of the protocol that is not an operation of a caller, so that no custom message may have it.
fn is_reserved(method: &str) -> bool {
    const NOTIFICATIONS: [&str; 11] = [
        "cancelled",
        "elicitation/complete",
        "initialized",
        "message",
        "progress",
        "prompts/list_changed",
        "resources/list_changed",
        "resources/updated",
        "roots/list_changed",
        "subscriptions/acknowledged",
        "tools/list_changed",
    ];
    match method.strip_prefix("notifications/") {
        Some(name) => NOTIFICATIONS.contains(&name),
        None => matches!(method, "initialize" | "server/discover" | "sampling/createMessage" | "elicitation/create" | "roots/list"),
    }
}

/// The JSON-RPC method of an operation; empty for [`Op::Custom`].
#[must_use]
pub fn method_of(op: Op) -> &'static str {
    METHODS.iter().find(|(_, other)| *other == op).map_or("", |(method, _)| method)
}

fn op_of(method: &[u8]) -> Option<Op> {
    METHODS.iter().find(|(name, _)| name.as_bytes() == method).map(|(_, op)| *op)
}
