//! The handshake.
//!
//! ```text
//!   opening end:    Fresh --- open ---> Opened --- complete: the answer ---> Ready
//!                                         `--- refusal, another version, silence: the session closes
//!
//!   answering end:  Fresh --- answer ---> Answered --- complete: the confirmation ---> Ready
//!                   |   ^
//!         ask_owner |   | take_asked: the owner has decided; forget_asked: its lane is gone
//!                   v   |
//!                   Asked
//! ```
//!
//! In `Answered` the peer is served already (MCP Lifecycle: only the *server's* requests wait for the confirmation). Where the owner of the
//! session decides who is taken in it goes by way of `Asked`; where it confirms, too, `Ready` is a claim.

use alloc::boxed::Box;

use crate::dialect::PeerInfo;
use crate::session::Lane;
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;
use crate::wire::WireId;

#[derive(Clone, Debug)]
pub(super) struct Handshake {
    state: State,
    /// The entry of its end in the session's timers.
    armed: Option<Instant>,
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing was said.
    Fresh,
    /// Our greeting is out.
    Opened,
    /// The peer has greeted; the owner has not decided.
    Asked { lane: Lane, greeting: WireId, peer: Box<PeerInfo> },
    /// The peer's greeting was answered; nothing has confirmed it.
    Answered { lane: Lane, greeting: WireId },
    /// Everything may be said.
    Ready,
}

impl Handshake {
    pub(super) const fn new() -> Self {
        Self { state: State::Fresh, armed: None }
    }

    // ---- Transitions ----

    /// Fresh -> Opened.
    pub(super) fn open(&mut self) {
        self.state = State::Opened;
    }

    /// Fresh -> Asked.
    pub(super) fn ask_owner(&mut self, lane: Lane, greeting: WireId, peer: Box<PeerInfo>) {
        self.state = State::Asked { lane, greeting, peer };
    }

    /// Asked -> Fresh. Gives the greeting that the owner has decided on; `None`, and no change, in any other state.
    pub(super) fn take_asked(&mut self) -> Option<(Lane, WireId, Box<PeerInfo>)> {
        match core::mem::replace(&mut self.state, State::Fresh) {
            State::Asked { lane, greeting, peer } => Some((lane, greeting, peer)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Asked -> Fresh, if the greeting came by this lane. `false`, and no change, otherwise.
    pub(super) fn forget_asked(&mut self, by: Lane) -> bool {
        let is_its = matches!(&self.state, State::Asked { lane, .. } if *lane == by);
        if is_its {
            self.state = State::Fresh;
        }
        is_its
    }

    /// Fresh -> Answered.
    pub(super) fn answer(&mut self, lane: Lane, greeting: WireId) {
        self.state = State::Answered { lane, greeting };
    }

    /// Opened, Answered -> Ready.
    pub(super) fn complete(&mut self) {
        self.state = State::Ready;
    }

    // ---- Its deadline ----

    pub(super) fn arm(&mut self, at: Option<Instant>, timers: &mut Timers) {
        timers.set(TimerKey::Handshake, &mut self.armed, at);
    }

    /// Notes that the timers have let go of its deadline.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    // ---- State ----

    pub(super) fn is_fresh(&self) -> bool {
        matches!(self.state, State::Fresh)
    }

    /// Says whether our greeting waits for its answer.
    pub(super) fn is_opened(&self) -> bool {
        matches!(self.state, State::Opened)
    }

    /// Says whether `id` on that lane is the greeting that waits for the owner.
    pub(super) fn is_asked_by(&self, by: Lane, id: &WireId) -> bool {
        matches!(&self.state, State::Asked { lane, greeting, .. } if *lane == by && greeting == id)
    }

    /// Says whether `id` on that lane was the greeting that was answered and waits for its confirmation.
    pub(super) fn is_answer_to(&self, by: Lane, id: &WireId) -> bool {
        matches!(&self.state, State::Answered { lane, greeting } if *lane == by && greeting == id)
    }

    /// Says whether the peer's requests are served.
    #[inline]
    pub(super) fn serves(&self) -> bool {
        matches!(self.state, State::Answered { .. } | State::Ready)
    }

    /// Says whether our requests may go out.
    #[inline]
    pub(super) fn asks(&self) -> bool {
        matches!(self.state, State::Ready)
    }
}
