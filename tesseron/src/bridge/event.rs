//! The events of a bridge.

use alloc::boxed::Box;
use core::fmt;

use super::Leg;
use crate::claims::{ChannelId, ClaimCode};
use protocol_core::dialect::PeerInfo;
use protocol_core::error::{RpcError, Violation};
use protocol_core::json::Text;
use protocol_core::session::{CloseReason, InboundId};

/// A claim that the owner works on. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(InboundId);

impl ClaimId {
    /// The claim of the agent's call `id`.
    pub(super) fn of(id: InboundId) -> Self {
        Self(id)
    }

    /// The call of the agent that asks for the claim.
    pub(super) fn invocation(self) -> InboundId {
        self.0
    }
}

/// A code for a person to read. `Debug` keeps it to itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownCode(Text);

impl ShownCode {
    pub(super) fn new(code: Text) -> Self {
        Self(code)
    }

    /// The code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownCode(..)")
    }
}

/// An event for the owner of a bridge.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BridgeEvent {
    /// The agent has introduced itself.
    AgentReady(Box<PeerInfo>),
    /// The agent has named a code that no app on a channel of ours has. Look for an app with this code, dial it, and say
    /// [`open_claimed`](super::Bridge::open_claimed) or [`refuse_claim`](super::Bridge::refuse_claim).
    ClaimWanted {
        /// Names the claim.
        claim: ClaimId,
        /// The code, as it was said.
        code: ClaimCode,
    },
    /// The agent waits for a claim no longer. What is being dialled for it may be hung up.
    ClaimGone {
        /// Which.
        claim: ClaimId,
    },
    /// An app has said hello, or has come back.
    AppReady {
        /// On which channel.
        channel: ChannelId,
        /// Which app.
        app: Box<PeerInfo>,
        /// The code that claims it, unless it is claimed.
        code: Option<ShownCode>,
    },
    /// An app was not taken in.
    AppRefused {
        /// On which channel.
        channel: ChannelId,
        /// The error that was sent.
        error: RpcError,
    },
    /// The agent has claimed an app.
    AppClaimed {
        /// On which channel.
        channel: ChannelId,
    },
    /// The channel to an app is over: hang up once its last frame is written.
    AppClosed {
        /// Which.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
    },
    /// The agent's session is over. The sessions of all apps end.
    AgentClosed(CloseReason),
    /// The peer on a leg broke a rule. The session goes on.
    Violation {
        /// The leg that the peer is on.
        leg: Leg,
        /// Which.
        rule: Violation,
    },
}
