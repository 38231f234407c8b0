//! The guarantees of a session, with their names and sentences, and the objection to a session that breaks one.

use std::fmt;

/// A guarantee that [`Session`](protocol_core::Session) makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// G1. Judged in full.
    DoneOnce,
    /// G2. Judged in full.
    OneResponse,
    /// G3. Judged in full, for what is sent and for the events about what the peer has sent. If the peer may break rules
    /// ([`Judge::distrust_peer`](crate::Judge::distrust_peer)) and uses a token for several requests at a time, the values that are sent
    /// for these are not compared.
    ProgressRises,
    /// G4. Judged in full.
    SilentAfterClosed,
    /// G5. Judged by [`Stats`](protocol_core::Stats): calls, handlers and queued bytes; by the length of frames, and by the number of
    /// events that are polled in a row. The remembered ids of ended requests are not judged, since `Stats` does not count them. A separate
    /// test checks that memory does not grow with age: `g5_after_ten_thousand_calls` in `tests/tests/session/limits.rs`.
    Bounded,
    /// G6. A panic of the session is caught and reported with the method that panicked. Unbounded recursion ends the process, and so the
    /// test.
    NeverPanics,
    /// G7. Judged in full.
    NoHotLoop,
    /// G8. Needs a second session. Once [`Watched::check_needless_timeouts`](crate::Watched::check_needless_timeouts) was called, the
    /// output is compared with that of a clone whose `handle_timeout` was called although no deadline had passed.
    OutputReady,
    /// G9. A call or input request that has expired must have been open at the time of some `handle_timeout` that was due. The judge does
    /// not notice another method that expires it later; a table of all methods does, in `tests/tests/session/timeouts.rs`.
    OnlyTimeoutExpires,
    /// G10. Needs two runs: [`replays`](super::replays).
    Deterministic,
    /// G11. Judged by ids on the wire. That the ids of the two directions are different types is checked by the compiler.
    TypedIds,
    /// G12. Judged by the depths in frames, and in the events of sampling requests.
    DepthBounded,
    /// G13. Judged for calls, requests and results: each member of the payload must be found, byte for byte, on the other side of the
    /// session. Progress, log records and errors do not count as payload, since the session writes them itself.
    PayloadUnchanged,
    /// G14. Judged for the requests of a client that has chosen stateless requests. G1 judges that the call is done once.
    RoundsApart,
    /// G15. All requests of a server are judged until a peer makes the handshake with it. From then on they may be for that peer, and only
    /// input requests are judged.
    OneDirection,
    /// G16. Judged for the caller that [`Event::Request`](protocol_core::Event::Request) names, and for log records, results and
    /// notifications of subscriptions. A log record does not name its request, so it is judged by its lane while no peer has made the
    /// handshake; a record that belongs to no call must be older than all stateless requests.
    CallersApart,
    /// Without a number: a frame is sent on the lane that it belongs to, and its route has the right kind.
    RightLane,
}

impl Guarantee {
    /// Every guarantee, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::DoneOnce,
        Self::OneResponse,
        Self::ProgressRises,
        Self::SilentAfterClosed,
        Self::Bounded,
        Self::NeverPanics,
        Self::NoHotLoop,
        Self::OutputReady,
        Self::OnlyTimeoutExpires,
        Self::Deterministic,
        Self::TypedIds,
        Self::DepthBounded,
        Self::PayloadUnchanged,
        Self::RoundsApart,
        Self::OneDirection,
        Self::CallersApart,
        Self::RightLane,
    ];

    /// The number of the guarantee in the documentation of `Session`, `G1` to `G16`; `lanes` for [`Self::RightLane`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DoneOnce => "G1",
            Self::OneResponse => "G2",
            Self::ProgressRises => "G3",
            Self::SilentAfterClosed => "G4",
            Self::Bounded => "G5",
            Self::NeverPanics => "G6",
            Self::NoHotLoop => "G7",
            Self::OutputReady => "G8",
            Self::OnlyTimeoutExpires => "G9",
            Self::Deterministic => "G10",
            Self::TypedIds => "G11",
            Self::DepthBounded => "G12",
            Self::PayloadUnchanged => "G13",
            Self::RoundsApart => "G14",
            Self::OneDirection => "G15",
            Self::CallersApart => "G16",
            Self::RightLane => "lanes",
        }
    }

    /// The guarantee in one sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::DoneOnce => "every call that was accepted is done exactly once, at the latest just before the session closes",
            Self::OneResponse => "a request has at most one response and at most one cancel, and nothing follows either",
            Self::ProgressRises => "the value of progress rises, between the request and its response or cancel",
            Self::SilentAfterClosed => "after the event that closes the session there is no frame, no event and no deadline",
            Self::Bounded => "queues, tables and remembered ids stay within the limits",
            Self::NeverPanics => "no input panics",
            Self::NoHotLoop => "the next deadline is later than the last handle_timeout",
            Self::OutputReady => "output is ready when a method returns; only deadlines wait for handle_timeout",
            Self::OnlyTimeoutExpires => "only handle_timeout expires anything",
            Self::Deterministic => "equal operations give equal output, byte for byte",
            Self::TypedIds => "ids and tokens are typed, and the ids of the two directions never meet",
            Self::DepthBounded => "sampling never nests deeper than the limit",
            Self::PayloadUnchanged => "payload bytes cross unchanged, but for line breaks between tokens",
            Self::RoundsApart => "a retry has a new id, the exact state of its round or none, and only the answers of that round",
            Self::OneDirection => {
                "for stateless requests a server sends no request and nothing after its result, a client no response"
            }
            Self::CallersApart => "nothing of one stateless request is visible in another",
            Self::RightLane => "a frame leaves by the lane that it belongs to, with a route of the right kind",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A guarantee that was broken, and the fact that broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Objection {
    /// The guarantee.
    pub guarantee: Guarantee,
    /// The frame, event or number that broke it.
    pub what: String,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.guarantee.name(), self.what, self.guarantee.sentence())
    }
}

impl std::error::Error for Objection {}

/// The answer of a [`Judge`](crate::Judge).
pub type Verdict = Result<(), Objection>;
