//! Why a dial is not let in, and how that is said on each transport (Tesseron sections 7.5 and 7.6).

use protocol_core::dialect::tesseron::code::UNAUTHORIZED;
use protocol_core::error::RpcError;

/// Why a [`super::Host`] does not let a dial in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[error("{}", self.row().text)]
#[non_exhaustive]
pub enum BindRefused {
    /// The upgrade does not offer the subprotocol of a gateway.
    NoGateway,
    /// Too many wrong codes lately. No code is looked at.
    LockedOut,
    /// This very channel has bound already.
    BoundHere,
    /// A bind without a proper code, or with two.
    Malformed,
    /// Another code. It counts towards the lockout.
    Mismatch,
    /// The claim is spent: an agent has it.
    Spent,
    /// The claim was taken a moment ago, by a gateway whose agent is not known yet.
    Taken,
    /// No claim where one is needed.
    Unbound,
    /// The one channel of a host without claims is in use.
    Occupied,
}

/// How a refusal looks from outside.
struct Row {
    /// The status that answers an upgrade; `None` where the socket is dropped without a word.
    http: Option<u16>,
    /// The JSON-RPC code on a Unix socket.
    code: i64,
    /// Whether the Unix socket is closed after that.
    closes: bool,
    text: &'static str,
}

impl BindRefused {
    /// The one table of all answers.
    const fn row(self) -> Row {
        const fn row(http: Option<u16>, code: i64, closes: bool, text: &'static str) -> Row {
            Row { http, code, closes, text }
        }
        const KEPT: bool = false;
        const CLOSED: bool = true;
        match self {
            Self::NoGateway => row(None, RpcError::INVALID_REQUEST, CLOSED, "only a gateway may connect"),
            Self::LockedOut => row(Some(429), UNAUTHORIZED, CLOSED, "too many wrong claim codes, try again later"),
            Self::BoundHere => row(Some(409), UNAUTHORIZED, KEPT, "this channel is already bound"),
            Self::Malformed => row(Some(400), RpcError::INVALID_PARAMS, KEPT, "a bind names one claim code"),
            Self::Mismatch => row(Some(403), UNAUTHORIZED, CLOSED, "the claim code is not the one of this app"),
            Self::Spent => row(Some(409), UNAUTHORIZED, KEPT, "the claim is already bound to an agent"),
            Self::Taken => row(Some(409), UNAUTHORIZED, KEPT, "another gateway has just bound the claim"),
            Self::Unbound => row(Some(426), RpcError::INVALID_REQUEST, CLOSED, "this app must be bound by its claim code first"),
            Self::Occupied => row(Some(409), UNAUTHORIZED, CLOSED, "this app has a gateway already"),
        }
    }

    /// The status that answers the upgrade of a WebSocket. `None`: the socket is dropped without an answer.
    #[must_use]
    pub const fn http_status(self) -> Option<u16> {
        self.row().http
    }

    /// The error that answers a bind on a Unix socket.
    #[must_use]
    pub const fn error(self) -> RpcError {
        let row = self.row();
        RpcError::fixed(row.code, row.text)
    }

    /// Whether a Unix socket is closed once the error is written.
    #[must_use]
    pub const fn closes(self) -> bool {
        self.row().closes
    }
}
