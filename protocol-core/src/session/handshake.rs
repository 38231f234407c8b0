//! The handshake.
//!
//! ```text
//!   opening end:    Fresh --- open ---> Opened --- complete: the answer ---> Ready
//!                     |                 |  ^  `--- refusal, another version, no answer in time: the session closes
//!               probe |          probe  v  | open: the server is of the legacy era, or does not answer in time
//!                     `-------------> Probing --- complete: the answer ---> Ready
//!                                         `--- refusal, another version: the session closes
//!
//!   answering end:  Fresh --- answer ---> Answered --- complete: the confirmation ---> Ready
//!                   |   ^
//!         ask_owner |   | take_asked: the owner has decided; forget_asked: its lane is lost
//!                   v   |
//!                   Asked
//! ```
//!
//! In `Answered` the peer's requests are already served (MCP, "Lifecycle": only the *server's* requests wait for the confirmation). `Asked`
//! exists only for a Tesseron gateway whose owner decides on each handshake request. A Tesseron gateway gets no confirmation: `complete` is
//! called when the app is claimed, or when the owner accepts it as resumed.
//!
//! In `Answered` and `Ready` an end of MCP also answers another handshake request, if it comes by the channel (`answer`). The state does not
//! change: in `Ready` requests of ours are still sent, since calls that began before may make them.
//!
//! Not drawn: in `Probing` the answer can ask for one more probe, and the session closes if no answer comes in time and no handshake may
//! follow. In `Opened` a late answer to the probe can also lead to `Ready`.

use alloc::boxed::Box;

use crate::dialect::PeerInfo;
use crate::session::Lane;
use crate::session::outbox::Ticket;
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;
use crate::wire::WireId;

#[derive(Clone, Debug)]
pub(super) struct Handshake {
    state: State,
    /// The time for which the deadline of the handshake is armed in the session's timers.
    armed: Option<Instant>,
    /// `true` if the peer need not make a handshake, because it sends stateless requests, or because this end serves only stateless
    /// requests.
    is_optional: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// No handshake request was sent. If one was received, it was refused, or its lane is lost.
    Fresh,
    /// Our probe, the request for the revisions of the peer, was sent. Its answer decides the era.
    Probing {
        request: OpeningRequest,
        /// `true` if no other probe and no handshake may follow.
        is_last: bool,
    },
    /// Our handshake request was sent.
    Opened {
        request: OpeningRequest,
        /// The probe that was sent before and has no answer yet. A late answer to it can still choose the era.
        late_probe: Option<OpeningRequest>,
    },
    /// The peer has sent its handshake request, and the owner has not decided yet.
    Asked { lane: Lane, request: WireId, peer: Box<PeerInfo> },
    /// The peer's handshake request was answered, and the confirmation has not come yet.
    Answered { lane: Lane, request: WireId },
    /// The handshake is done.
    Ready,
}

/// The number of a probe or of a handshake request of ours, and the ticket of its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpeningRequest {
    exchange: u64,
    ticket: Ticket,
}

impl OpeningRequest {
    pub(super) const fn new(exchange: u64, ticket: Ticket) -> Self {
        Self { exchange, ticket }
    }

    pub(super) const fn ticket(self) -> Ticket {
        self.ticket
    }
}

/// A request of ours that opens the handshake or chooses the era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The probe.
    Probe {
        /// `true` if no other probe and no handshake may follow.
        is_last: bool,
    },
    /// A probe that had no answer when the handshake request was sent.
    LateProbe,
    /// The handshake request.
    Handshake,
}

impl Handshake {
    pub(super) const fn new() -> Self {
        Self { state: State::Fresh, armed: None, is_optional: false }
    }

    // ---- Transitions ----

    /// Fresh -> Fresh. From now on the peer need not make a handshake. Until the peer makes one, no request of ours is sent.
    pub(super) fn make_optional(&mut self) {
        self.is_optional = true;
    }

    /// Fresh, Opened, Probing -> Probing.
    pub(super) fn probe(&mut self, request: OpeningRequest, is_last: bool) {
        self.state = State::Probing { request, is_last };
    }

    /// Fresh, Probing -> Opened.
    pub(super) fn open(&mut self, request: OpeningRequest, late_probe: Option<OpeningRequest>) {
        self.state = State::Opened { request, late_probe };
    }

    /// Opened -> Opened. Forgets the late probe: its answer came, and does not choose stateless requests.
    pub(super) fn forget_late_probe(&mut self) {
        if let State::Opened { late_probe, .. } = &mut self.state {
            *late_probe = None;
        }
    }

    /// Fresh -> Asked.
    pub(super) fn ask_owner(&mut self, lane: Lane, request: WireId, peer: Box<PeerInfo>) {
        self.state = State::Asked { lane, request, peer };
    }

    /// Asked -> Fresh. Returns the handshake request that the owner has decided on. In any other state, changes nothing and returns `None`.
    pub(super) fn take_asked(&mut self) -> Option<(Lane, WireId, Box<PeerInfo>)> {
        match core::mem::replace(&mut self.state, State::Fresh) {
            State::Asked { lane, request, peer } => Some((lane, request, peer)),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Asked -> Fresh, if the handshake request came by this lane; otherwise returns `false` and changes nothing.
    pub(super) fn forget_asked(&mut self, by: Lane) -> bool {
        let came_by_lane = matches!(&self.state, State::Asked { lane, .. } if *lane == by);
        if came_by_lane {
            self.state = State::Fresh;
        }
        came_by_lane
    }

    /// Fresh, Answered -> Answered. Ready -> Ready.
    pub(super) fn answer(&mut self, lane: Lane, request: WireId) {
        if !self.may_send_requests() {
            self.state = State::Answered { lane, request };
        }
    }

    /// Opened, Probing, Answered -> Ready.
    pub(super) fn complete(&mut self) {
        self.state = State::Ready;
    }

    // ---- Deadline ----

    pub(super) fn arm(&mut self, at: Option<Instant>, timers: &mut Timers) {
        timers.set(TimerKey::Handshake, &mut self.armed, at);
    }

    /// Records that the deadline was removed from the timers.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    // ---- State ----

    /// Returns `true` if the peer has made no handshake and need not make one.
    pub(super) fn is_forgone(&self) -> bool {
        self.is_optional && self.is_fresh()
    }

    pub(super) fn is_fresh(&self) -> bool {
        matches!(self.state, State::Fresh)
    }

    /// The number of our opening requests ([`Opening`]) that wait for a response. A late probe is not counted.
    pub(super) fn open_exchanges(&self) -> usize {
        usize::from(matches!(self.state, State::Opened { .. } | State::Probing { .. }))
    }

    /// The request of ours that has this number and waits for a response, and the ticket of its frame.
    pub(super) fn awaited(&self, number: u64) -> Option<(Opening, Ticket)> {
        let (opening, request) = match self.state {
            State::Probing { request, is_last } => (Opening::Probe { is_last }, request),
            State::Opened { late_probe: Some(probe), .. } if probe.exchange == number => (Opening::LateProbe, probe),
            State::Opened { request, .. } => (Opening::Handshake, request),
            _ => return None,
        };
        (request.exchange == number).then_some((opening, request.ticket))
    }

    /// The probe that waits for a response, unless no other probe and no handshake may follow it.
    pub(super) fn open_probe(&self) -> Option<OpeningRequest> {
        match self.state {
            State::Probing { request, is_last: false } => Some(request),
            _ => None,
        }
    }

    /// The handshake request of ours that waits for a response.
    pub(super) fn opened(&self) -> Option<OpeningRequest> {
        match self.state {
            State::Opened { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Returns `true` if a probe waits for a response, so that the era is not chosen yet.
    pub(super) fn is_probing(&self) -> bool {
        matches!(self.state, State::Probing { .. })
    }

    /// Returns `true` if `id` on the lane `by` is the handshake request that waits for the owner.
    pub(super) fn is_asked_by(&self, by: Lane, id: &WireId) -> bool {
        matches!(&self.state, State::Asked { lane, request, .. } if *lane == by && request == id)
    }

    /// Returns `true` if `id` on the lane `by` is the handshake request that was answered, and is not confirmed yet.
    pub(super) fn is_answered_request(&self, by: Lane, id: &WireId) -> bool {
        matches!(&self.state, State::Answered { lane, request } if *lane == by && request == id)
    }

    /// Returns `true` if the peer's requests are served. Stateless requests are served in any state.
    #[inline]
    pub(super) fn serves_requests(&self) -> bool {
        matches!(self.state, State::Answered { .. } | State::Ready)
    }

    /// Returns `true` if our requests may be sent.
    #[inline]
    pub(super) fn may_send_requests(&self) -> bool {
        matches!(self.state, State::Ready)
    }
}
