//! How far the handshake has come.
//!
//! ```text
//!   opening end:    Opened --- answer ---> Ready
//!                      `------ refusal, other version, silence ---> the session closes
//!   answering end:  Fresh --- greeting ---> Asked --- welcome ---> Answered --- confirmation ---> Ready
//!                     ^  `------------------------------------------^
//!                     `------ refusal --------'
//! ```
//!
//! In `Answered` the peer is served already (MCP Lifecycle: only the *server's* requests wait for the confirmation). Where the owner of the
//! session decides who is taken in it goes by way of `Asked`; where it confirms, too, `Ready` is a claim.

use alloc::boxed::Box;

use crate::dialect::PeerInfo;
use crate::wire::WireId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// Nothing was said. The peer begins.
    Fresh,
    /// Our greeting is out.
    Opened,
    /// The peer has greeted; the owner has not decided.
    Asked { greeting: WireId, peer: Box<PeerInfo> },
    /// The peer's greeting was answered; nobody has confirmed.
    Answered { greeting: WireId },
    /// Everything may be said.
    Ready,
}

impl Handshake {
    /// Whether the peer's requests are served.
    pub(super) fn serves(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Ready)
    }

    /// Whether our requests may go out.
    pub(super) fn asks(&self) -> bool {
        matches!(self, Self::Ready)
    }
}
