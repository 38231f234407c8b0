//! The era of a request: a server can serve both eras on one path (Versioning 2026-07-28, "Servers").
//!
//! The era of a request follows from its body, and only if the body leaves it open, from the version header. It never follows from an
//! earlier request: some clients probe with a request of one era and then use the other. The only exception is a notification that names
//! a session which has not ended: it belongs to the era with a handshake. A server that serves only one era treats every message as one of
//! that era.

use core::fmt;

use crate::mcp::{self, Revision};

/// The era of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// The revisions with a handshake, in which a session lasts for many requests.
    Legacy,
    /// The revisions without a handshake, in which each request names its caller, and has a session of its own.
    Modern,
}

impl Era {
    /// The configuration of a session that serves only this era.
    #[must_use]
    pub const fn config(self) -> mcp::Era {
        match self {
            Self::Legacy => mcp::Era::Legacy,
            Self::Modern => mcp::Era::Modern,
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Legacy => "with handshake",
            Self::Modern => "without handshake",
        })
    }
}

/// The version that the header `MCP-Protocol-Version` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedVersion {
    /// The header is missing.
    Absent,
    /// One of [`Revision::ALL`], even if the server does not serve its era. A handshake agrees on revisions of the same constant, so that
    /// each version that was agreed on can then be named.
    Known(Revision),
    /// A date that is later than the newest revision with a handshake, but is not a revision that this crate implements.
    Newer,
    /// Anything else: an unknown version, or a header that is repeated or is not text.
    Unknown,
}

impl NamedVersion {
    /// Classifies the name of a version.
    #[must_use]
    pub fn of(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Absent };
        match Revision::from_name(name) {
            Some(revision) => Self::Known(revision),
            None if is_date(name) && name > Revision::NEWEST_LEGACY.as_str() => Self::Newer,
            None => Self::Unknown,
        }
    }

    /// Returns `true` if the version can only be one without a handshake.
    const fn is_modern(self) -> bool {
        match self {
            Self::Known(revision) => !revision.has_handshake(),
            Self::Newer => true,
            Self::Absent | Self::Unknown => false,
        }
    }
}

fn is_date(name: &str) -> bool {
    name.len() == "0000-00-00".len()
        && name.bytes().enumerate().all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() })
}

/// The kind of a message in a POST. The era of the message depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Posted {
    /// The request `initialize`.
    Initialize {
        /// `true` if its `_meta` names a version, as every request of the modern era does.
        named: bool,
    },
    /// A request that only the modern era has: `server/discover`, `subscriptions/listen`.
    ModernRequest,
    /// Any other request.
    Request {
        /// `true` if its `_meta` names a version, as every request of the modern era does.
        named: bool,
    },
    /// A notification.
    Notification,
    /// A response to a request of the server.
    Response,
    /// Several messages.
    Batch,
}

/// The way in which a server treats a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// The message is served in this era.
    Serve(Era),
    /// The message is a notification of the modern era. It is accepted and has no effect, since clients of this era send no notifications
    /// over HTTP. If a cancel had an effect, any client could cancel the work of another by its id.
    Discard,
}

/// The destination of a message, on a server that serves the eras `served`. `in_session` is `true` if the HTTP request names a session that
/// has not ended, and whose caller made the request.
#[must_use]
pub fn classify(posted: Posted, version: NamedVersion, in_session: bool, served: mcp::Era) -> Destination {
    let is_modern = match served {
        mcp::Era::Legacy => false,
        mcp::Era::Modern => true,
        mcp::Era::Auto => match posted {
            Posted::Initialize { named } => named,
            Posted::ModernRequest => true,
            Posted::Request { named } => named || version.is_modern(),
            Posted::Notification => !in_session && version.is_modern(),
            Posted::Response | Posted::Batch => false,
        },
    };
    match (is_modern, posted) {
        (true, Posted::Notification) => Destination::Discard,
        (true, _) => Destination::Serve(Era::Modern),
        (false, _) => Destination::Serve(Era::Legacy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Destination::{Discard, Serve};
    use Era::{Legacy, Modern};

    const R2025_11_25: NamedVersion = NamedVersion::Known(Revision::R2025_11_25);
    const R2026_07_28: NamedVersion = NamedVersion::Known(Revision::R2026_07_28);

    #[test]
    fn the_era_follows_from_the_body_and_if_the_body_leaves_it_open_from_the_header() {
        let versions = [NamedVersion::Absent, R2025_11_25, R2026_07_28, NamedVersion::Newer, NamedVersion::Unknown];
        let decide = |posted, version, in_session| classify(posted, version, in_session, mcp::Era::Auto);
        for (posted, expected) in [
            (Posted::Initialize { named: false }, [Serve(Legacy); 5]),
            (Posted::Initialize { named: true }, [Serve(Modern); 5]),
            (Posted::Request { named: true }, [Serve(Modern); 5]),
            (Posted::Request { named: false }, [Serve(Legacy), Serve(Legacy), Serve(Modern), Serve(Modern), Serve(Legacy)]),
            (Posted::ModernRequest, [Serve(Modern); 5]),
            (Posted::Notification, [Serve(Legacy), Serve(Legacy), Discard, Discard, Serve(Legacy)]),
            (Posted::Response, [Serve(Legacy); 5]),
            (Posted::Batch, [Serve(Legacy); 5]),
        ] {
            assert_eq!(versions.map(|version| decide(posted, version, false)), expected, "{posted:?}");
        }
        for posted in [Posted::Notification, Posted::Response] {
            assert_eq!(versions.map(|version| decide(posted, version, true)), [Serve(Legacy); 5], "{posted:?} in an open session");
        }
    }

    #[test]
    fn a_server_of_one_era_serves_everything_in_it() {
        for posted in [
            Posted::Initialize { named: false },
            Posted::ModernRequest,
            Posted::Request { named: true },
            Posted::Request { named: false },
            Posted::Response,
            Posted::Batch,
        ] {
            for version in [NamedVersion::Absent, R2025_11_25, R2026_07_28] {
                assert_eq!(classify(posted, version, true, mcp::Era::Legacy), Serve(Legacy), "{posted:?}");
                assert_eq!(classify(posted, version, true, mcp::Era::Modern), Serve(Modern), "{posted:?}");
            }
        }
        assert_eq!(classify(Posted::Notification, R2025_11_25, true, mcp::Era::Modern), Discard);
        assert_eq!(classify(Posted::Notification, R2026_07_28, false, mcp::Era::Legacy), Serve(Legacy));
    }

    #[test]
    fn a_version_is_known_newer_or_unknown() {
        for revision in Revision::ALL {
            assert_eq!(NamedVersion::of(Some(revision.as_str())), NamedVersion::Known(revision));
        }
        for (name, expected) in [
            (None, NamedVersion::Absent),
            (Some("2025-11-26"), NamedVersion::Newer),
            (Some("2999-01-01"), NamedVersion::Newer),
            (Some("2025-01-01"), NamedVersion::Unknown),
            (Some("2025-11-25 "), NamedVersion::Unknown),
            (Some("v999.0.0"), NamedVersion::Unknown),
            (Some("9999"), NamedVersion::Unknown),
            (Some("2999/01/01"), NamedVersion::Unknown),
            (Some(""), NamedVersion::Unknown),
        ] {
            assert_eq!(NamedVersion::of(name), expected, "{name:?}");
        }
    }
}
