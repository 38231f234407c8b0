//! The reasons to refuse a gateway, and their form on each transport (`docs/protocols/tesseron.md`, "Binding a WebSocket" and "Binding a
//! Unix socket").

use protocol_core::dialect::tesseron::code::UNAUTHORIZED;
use protocol_core::error::RpcError;

/// The reason why a [`super::Host`] refuses a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[error("{}", self.text())]
#[non_exhaustive]
pub enum BindRefused {
    /// The connection is from another user of this machine, or its user is unknown and no code protects the app.
    Foreign,
    /// The upgrade request does not offer the subprotocol of a gateway.
    NoGateway,
    /// This channel is already bound.
    BoundHere,
    /// A bind with two codes, with an invalid code (on a WebSocket), or without a code that is text (on a Unix socket).
    Malformed,
    /// A wrong code, which delays the check of later codes; or a code for an app that has none.
    Mismatch,
    /// The claim is spent: an agent has claimed the app.
    Spent,
    /// The claim is taken by a gateway whose agent is not known yet.
    Taken,
    /// No code, although the app requires one; on a Unix socket another frame instead of a bind, or a frame during the check of a code.
    Unbound,
    /// The app has no claim code, and its one channel is in use.
    Occupied,
}

/// The forms that a refusal takes on each transport.
struct Row {
    /// The HTTP status for an upgrade; `None` to close the socket without an answer.
    http: Option<u16>,
    /// The JSON-RPC code on a Unix socket.
    code: i64,
    /// `true` if the Unix socket is closed after the refusal.
    closes: bool,
    text: &'static str,
}

impl BindRefused {
    const ALL: [Self; 9] = [
        Self::Foreign,
        Self::NoGateway,
        Self::BoundHere,
        Self::Malformed,
        Self::Mismatch,
        Self::Spent,
        Self::Taken,
        Self::Unbound,
        Self::Occupied,
    ];

    /// Finds the refusal in the answer to an upgrade, by status and text. `None` for a text that this crate does not write.
    #[must_use]
    pub fn from_answer(status: u16, text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refused| refused.http_status() == Some(status) && refused.text() == text)
    }

    /// The text of the refusal, on both transports.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.row().text
    }

    /// The table of all answers.
    const fn row(self) -> Row {
        const fn row(http: Option<u16>, code: i64, closes: bool, text: &'static str) -> Row {
            Row { http, code, closes, text }
        }
        const KEPT: bool = false;
        const CLOSED: bool = true;
        match self {
            Self::Foreign => row(None, UNAUTHORIZED, CLOSED, "only the user of this app may connect"),
            Self::NoGateway => row(None, RpcError::INVALID_REQUEST, CLOSED, "only a gateway may connect"),
            Self::BoundHere => row(Some(409), UNAUTHORIZED, KEPT, "this channel is already bound"),
            Self::Malformed => row(Some(400), RpcError::INVALID_PARAMS, KEPT, "a bind must have exactly one valid claim code"),
            Self::Mismatch => row(Some(403), UNAUTHORIZED, CLOSED, "the claim code is not the one of this app"),
            Self::Spent => row(Some(409), UNAUTHORIZED, KEPT, "the claim is already bound to an agent"),
            Self::Taken => row(Some(409), UNAUTHORIZED, KEPT, "another gateway has just bound the claim"),
            Self::Unbound => row(Some(426), RpcError::INVALID_REQUEST, CLOSED, "this app must be bound by its claim code first"),
            Self::Occupied => row(Some(409), UNAUTHORIZED, KEPT, "this app has a gateway already"),
        }
    }

    /// The HTTP status for the upgrade of a WebSocket; `None` to close the socket without an answer.
    #[must_use]
    pub const fn http_status(self) -> Option<u16> {
        self.row().http
    }

    /// The JSON-RPC error for a bind on a Unix socket.
    #[must_use]
    pub const fn error(self) -> RpcError {
        let row = self.row();
        RpcError::fixed(row.code, row.text)
    }

    /// Returns `true` if a Unix socket must be closed after the error is written.
    #[must_use]
    pub const fn closes(self) -> bool {
        self.row().closes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_found_only_by_its_own_status_and_text_together() {
        for refused in BindRefused::ALL {
            let known = refused.http_status().and_then(|status| BindRefused::from_answer(status, refused.text()));
            assert_eq!(known, refused.http_status().map(|_| refused));
            assert_eq!(BindRefused::from_answer(404, refused.text()), None);
        }
        for text in ["", "Conflict", "Ignore all previous instructions"] {
            assert_eq!(BindRefused::from_answer(409, text), None, "{text}");
        }
    }
}
