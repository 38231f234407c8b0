//! The era of a request: one server serves both on one path (Versioning 2026-07-28, "Servers").
//!
//! The body decides, and the version header only where the body says nothing. No request decides about another: some clients probe with a
//! request of one era and then use the other.

use core::fmt;

use crate::mcp::{self, Revision};

/// The era of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Era {
    /// The revisions with a handshake, and a session over many requests.
    Legacy,
    /// The revisions without: each request names its caller, and has a session of its own.
    Modern,
}

impl Era {
    /// The configuration of a session that serves this era alone.
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
    /// There is no such header.
    Absent,
    /// A revision that is served over this transport.
    Known(Revision),
    /// A date after the newest revision with a handshake, of a revision that is not served.
    Newer,
    /// Anything else: an unknown version, the first revision (which has another transport), or several.
    Unknown,
}

impl NamedVersion {
    /// Classifies the name of a version.
    #[must_use]
    pub fn of(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Absent };
        match Revision::from_name(name) {
            Some(Revision::R2024_11_05) => Self::Unknown,
            Some(revision) => Self::Known(revision),
            None if is_date(name) && name > Revision::NEWEST_LEGACY.as_str() => Self::Newer,
            None => Self::Unknown,
        }
    }

    /// Returns `true` if only a revision without a handshake can be meant.
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

/// A posted message, as far as the era depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Posted {
    /// `initialize`. `named` is `true` if its `_meta` names a version, as every request of the modern era does.
    Initialize {
        /// Its `_meta` names a version.
        named: bool,
    },
    /// A request that only the modern era has: `server/discover`, `subscriptions/listen`.
    ModernRequest,
    /// Any other request. `named` is `true` if its `_meta` names a version.
    Request {
        /// Its `_meta` names a version.
        named: bool,
    },
    /// A notification.
    Notification,
    /// A response to a request of the server.
    Response,
    /// Several messages.
    Batch,
}

/// The part of the server that a message goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// The part that serves this era.
    Serve(Era),
    /// None: a notification of the modern era. It is accepted and has no effect, since that era has no notification of clients over HTTP;
    /// to act on its id alone would let any client cancel the work of another.
    Drop,
}

/// The destination of a message, on a server that speaks the eras `spoken`. `knows_session` is `true` if the request names a session that
/// lives.
#[must_use]
pub fn classify(posted: Posted, version: NamedVersion, knows_session: bool, spoken: mcp::Era) -> Destination {
    let is_modern = match spoken {
        mcp::Era::Legacy => false,
        mcp::Era::Modern => true,
        mcp::Era::Auto => match posted {
            Posted::Initialize { named } => named,
            Posted::ModernRequest => true,
            Posted::Request { named } => named || version.is_modern(),
            Posted::Notification => !knows_session && version.is_modern(),
            Posted::Response | Posted::Batch => false,
        },
    };
    match (is_modern, posted) {
        (true, Posted::Notification) => Destination::Drop,
        (true, _) => Destination::Serve(Era::Modern),
        (false, _) => Destination::Serve(Era::Legacy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Destination::{Drop, Serve};
    use Era::{Legacy, Modern};

    const R4: NamedVersion = NamedVersion::Known(Revision::R2025_11_25);
    const R5: NamedVersion = NamedVersion::Known(Revision::R2026_07_28);

    #[test]
    fn the_body_decides_about_the_era_and_the_header_where_the_body_says_nothing() {
        let every = [NamedVersion::Absent, R4, R5, NamedVersion::Newer, NamedVersion::Unknown];
        let both = |posted, version, knows_session| classify(posted, version, knows_session, mcp::Era::Auto);
        for (posted, expected) in [
            (Posted::Initialize { named: false }, [Serve(Legacy); 5]),
            (Posted::Initialize { named: true }, [Serve(Modern); 5]),
            (Posted::Request { named: true }, [Serve(Modern); 5]),
            (Posted::Request { named: false }, [Serve(Legacy), Serve(Legacy), Serve(Modern), Serve(Modern), Serve(Legacy)]),
            (Posted::ModernRequest, [Serve(Modern); 5]),
            (Posted::Notification, [Serve(Legacy), Serve(Legacy), Drop, Drop, Serve(Legacy)]),
            (Posted::Response, [Serve(Legacy); 5]),
            (Posted::Batch, [Serve(Legacy); 5]),
        ] {
            assert_eq!(every.map(|version| both(posted, version, false)), expected, "{posted:?}");
        }
        for posted in [Posted::Notification, Posted::Response] {
            assert_eq!(every.map(|version| both(posted, version, true)), [Serve(Legacy); 5], "{posted:?} for a session that lives");
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
            for version in [NamedVersion::Absent, R4, R5] {
                assert_eq!(classify(posted, version, true, mcp::Era::Legacy), Serve(Legacy), "{posted:?}");
                assert_eq!(classify(posted, version, true, mcp::Era::Modern), Serve(Modern), "{posted:?}");
            }
        }
        assert_eq!(classify(Posted::Notification, R4, true, mcp::Era::Modern), Drop);
        assert_eq!(classify(Posted::Notification, R5, false, mcp::Era::Legacy), Serve(Legacy));
    }

    #[test]
    fn a_version_is_known_newer_or_unknown() {
        for (name, expected) in [
            (None, NamedVersion::Absent),
            (Some("2025-11-25"), R4),
            (Some("2026-07-28"), R5),
            (Some("2024-11-05"), NamedVersion::Unknown),
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
