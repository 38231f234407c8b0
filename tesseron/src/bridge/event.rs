//! The events of a bridge, and the ids in them.

use alloc::boxed::Box;
use core::fmt;

use crate::claims::{ChannelId, ClaimCode};
use protocol_core::dialect::PeerInfo;
use protocol_core::error::{RpcError, Violation};
use protocol_core::json::Text;
use protocol_core::session::{CloseReason, InboundId};

/// Names one leg of a bridge: the gateway's end of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// The channel to the MCP client.
    Agent,
    /// A channel to an app, opened by [`Bridge::open`](super::Bridge::open).
    App(ChannelId),
}

/// The id of a claim for which the owner has to find the app. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(InboundId);

impl ClaimId {
    /// The claim of the agent's call `id`.
    pub(super) fn of(id: InboundId) -> Self {
        Self(id)
    }

    /// The call of the agent that requested the claim.
    pub(super) fn call(self) -> InboundId {
        self.0
    }
}

/// A claim code to show to a person. `Debug` hides it.
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
    /// The agent has made its handshake, or another one on the same channel.
    AgentReady(Box<PeerInfo>),
    /// The agent has sent a claim code that belongs to no connected app. Find the app with this code, connect to it, and call
    /// [`open_claimed`](super::Bridge::open_claimed); otherwise call [`refuse_claim`](super::Bridge::refuse_claim).
    ClaimWanted {
        /// The id of the claim.
        claim: ClaimId,
        /// The code that the agent sent.
        code: ClaimCode,
    },
    /// The agent no longer waits for a claim. Drop a connection that is being made for the claim.
    ClaimGone {
        /// The id of the claim.
        claim: ClaimId,
    },
    /// An app has sent a hello or a resume, and was accepted.
    AppReady {
        /// The channel to the app.
        channel: ChannelId,
        /// The app.
        app: Box<PeerInfo>,
        /// The code that claims the app; `None` if the app is already claimed.
        code: Option<ShownCode>,
    },
    /// The hello or resume of an app was refused.
    AppRefused {
        /// The channel to the app.
        channel: ChannelId,
        /// The error that was sent.
        error: RpcError,
    },
    /// The agent has claimed an app.
    AppClaimed {
        /// The channel to the app.
        channel: ChannelId,
    },
    /// The session on a channel to an app has closed. Close the connection once its last frame is written.
    AppClosed {
        /// The channel to the app.
        channel: ChannelId,
        /// The reason.
        reason: CloseReason,
    },
    /// The agent's session has closed, and those of all apps are closing.
    AgentClosed(CloseReason),
    /// The peer on a leg broke a rule. The session continues.
    Violation {
        /// The leg that the peer is on.
        leg: Leg,
        /// The rule.
        rule: Violation,
    },
}
