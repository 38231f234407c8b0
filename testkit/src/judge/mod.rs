//! The guarantees of a session, G1 to G16, as checks of the method calls, frames and events of one session.
//!
//! A [`Judge`] is passed [`Fact`]s in the order in which they happen: the methods that the owner calls, the frames that arrive and are
//! sent, the events that are polled. It keeps a ledger of them and runs one check for each [`Guarantee`] except
//! [`Guarantee::Deterministic`], which needs two runs. It reads frames with `serde_json`, and calls no method of the session.
//! [`Watched`](crate::Watched) collects the facts of a session and panics on the first [`Objection`].

mod checks;
mod counting;
mod ledger;
mod members;
mod reading;
mod rounds;
mod stateless;
mod transitions;

use std::fmt;
use std::hash::{Hash, Hasher};

use protocol_core::{
    AlarmId, Config, Event, Gone, InboundId, InputKey, Instant, Invoke, Lane, Limits, Notification, OutboundId, PendingInput,
    Received, Reply, Reported, Stats, Transmit, TransportEnd, Violation,
};
use serde_json::Value;

use crate::coverage::Coverage;
use ledger::{Ledger, Terms};
use reading::Reading;

/// A guarantee that [`Session`](protocol_core::Session) makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// G1. Judged in full.
    DoneOnce,
    /// G2. Judged in full.
    OneResponse,
    /// G3. Judged in full, for what is sent and for the events about what the peer has sent. If the peer may break rules
    /// ([`Judge::distrust_peer`]) and uses a token for several requests at a time, the values that are sent for these are not compared.
    ProgressRises,
    /// G4. Judged in full.
    SilentAfterClosed,
    /// G5. Judged by [`Stats`]: calls, handlers and queued bytes; by the length of frames, and by the number of events that are polled in a
    /// row. The remembered ids of ended requests are not judged, since `Stats` does not count them. A separate test checks that memory does
    /// not grow with age: `g5_after_ten_thousand_calls` in `tests/tests/session/limits.rs`.
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
    /// G10. Needs two runs: [`replays`].
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
    /// G16. Judged for the caller that [`Event::Request`] names, and for log records, results and notifications of subscriptions. A log
    /// record does not name its request, so it is judged by its lane while no peer has made the handshake; a record that belongs to no call
    /// must be older than all stateless requests.
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

/// The answer of a [`Judge`].
pub type Verdict = Result<(), Objection>;

/// Something that happened at the boundary of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are the arguments and the results of the method that the variant names")]
pub enum Fact<'a> {
    /// `invoke` accepted a call. `at_once`: one of its time limits is zero.
    Called { id: OutboundId, call: &'a Invoke, at_once: bool },
    /// `resume_input` continued a call that was kept between two rounds. `at_once`: one of its time limits is zero.
    Resumed { id: OutboundId, pending: &'a PendingInput, at_once: bool },
    /// `cancel` returned `Ok`.
    Cancelled { id: OutboundId },
    /// `request_input` accepted an input request on behalf of a call of the peer.
    Asked { key: InputKey, id: InboundId },
    /// `abandon_input` returned `Ok`.
    Abandoned { key: InputKey },
    /// `respond` returned; `accepted` if it returned `Ok`.
    Responded { id: InboundId, reply: &'a Reply, accepted: bool },
    /// `configure` accepted a deadline, which may have passed already.
    Configured { id: InboundId },
    /// `set_alarm` returned `Ok`. `at_once`: the instant is not in the future.
    AlarmSet { id: AlarmId, at_once: bool },
    /// `provide_input` returned `Ok`. `is_refusal`: the answer was a refusal.
    Answered { key: InputKey, is_refusal: bool },
    /// `progress` accepted an update.
    Reported { id: InboundId, reported: Reported },
    /// `checkpoint` returned `Ok`.
    Checkpointed { id: InboundId },
    /// `log` queued a record, on behalf of a call of the peer or of no call.
    Logged { id: Option<InboundId> },
    /// `close` was called.
    Closing { is_graceful: bool },
    /// `handle_end` was called.
    Ended { end: TransportEnd },
    /// `handle_frame` took a frame.
    Received { frame: &'a [u8], lane: Lane, effect: Effect },
    /// `poll_transmit` returned a frame. `max_depth` is `DepthPolicy::max` of the configuration.
    Sent { transmit: &'a Transmit, max_depth: u8 },
    /// `poll_event` returned an event. `max_depth` is `DepthPolicy::max` of the configuration.
    Polled { event: &'a Event, max_depth: u8 },
    /// `handle_timeout` is about to be called. `due` is the next deadline.
    Timeout { now: Instant, due: Option<Instant> },
    /// A method has returned. These are the counters and the next deadline of the session.
    Returned { stats: &'a Stats, limits: &'a Limits, due: Option<Instant> },
    /// `accept_subscription` returned `Ok`.
    Accepted { id: InboundId },
    /// `publish` was called.
    Published { notification: &'a Notification },
    /// `handle_gone` returned `Ok`.
    Gone { gone: Gone },
    /// A lane was stopped or resumed.
    Writable { lane: Lane, is_writable: bool },
    /// A lane was lost or closed: no frame is sent on it any more for requests that came on it.
    LaneLost { lane: Lane },
    /// A method panicked.
    Panicked { method: &'a str, message: &'a str },
    /// A `handle_timeout` that was not due changed the output from `before` to `after`.
    Probed { before: &'a str, after: &'a str },
}

/// The effect of a frame that arrived, read off the counters of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect {
    /// The value that `handle_frame` returned.
    pub received: Received,
    /// The number of calls of the peer that began; a batch may have several.
    pub began: usize,
    /// A call of the peer was cancelled.
    pub cancelled: bool,
    /// The frame was a request whose id was in use, so it is never answered.
    pub dropped: bool,
    /// The frame broke a rule.
    pub violated: bool,
}

impl Effect {
    /// The effect of a frame, from the counters before and after it.
    #[must_use]
    pub fn between(before: &Stats, after: &Stats, received: Received) -> Self {
        let breaks = |rule: &Violation| after.violations(*rule) > before.violations(*rule);
        let is_duplicate = breaks(&Violation::DuplicateRequest);
        Self {
            received,
            began: after.inbound_calls.saturating_sub(before.inbound_calls),
            cancelled: after.cancelled_calls > before.cancelled_calls || after.inbound_calls < before.inbound_calls,
            dropped: is_duplicate && after.queued_bytes == before.queued_bytes,
            violated: Violation::ALL.iter().any(breaks),
        }
    }
}

/// A frame with its parsed JSON, for all checks.
#[derive(Debug)]
struct Read<'a> {
    text: &'a str,
    value: Value,
}

/// Judges one session by its facts.
///
/// Two judges are equal if they would object to the same later facts. Ended calls and requests are ignored in the comparison.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    ledger: Ledger,
    /// The guarantees that are not checked.
    without: Vec<Guarantee>,
    coverage: Coverage,
}

impl PartialEq for Judge {
    fn eq(&self, other: &Self) -> bool {
        self.ledger == other.ledger && self.without == other.without
    }
}

impl Eq for Judge {}

impl Hash for Judge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ledger.hash(state);
        self.without.hash(state);
    }
}

impl Judge {
    /// A judge of a session that has just begun, with the default configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A judge of a session that has just begun. The configuration determines whether progress is a percentage, and which time limits are
    /// zero, so that what they limit ends immediately.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let mut judge = Self::new();
        judge.ledger.terms = Terms::of(config);
        judge
    }

    /// Stops checking one guarantee.
    pub fn leave_out(&mut self, guarantee: Guarantee) {
        self.without.push(guarantee);
    }

    /// Notes that the peer may break rules from now on, or that frames may be damaged on the way. Checks that depend on a peer that keeps
    /// the rules are left out from then on. A frame that is not a valid message has the same effect.
    pub fn distrust_peer(&mut self) {
        self.ledger.altered = true;
    }

    /// Notes that the peer has answered a request of ours, for a judge that gets no [`Fact::Polled`].
    pub(crate) fn end_request(&mut self, id: u64) {
        self.ledger.requests.open.remove(&id);
    }

    /// Notes that the session has closed, for a judge that gets no [`Fact::Polled`].
    pub(crate) fn end_session(&mut self) {
        self.ledger.closed = true;
    }

    /// The number of requests of the peer that may still be answered.
    pub(crate) fn owed(&self) -> usize {
        self.ledger.pending.len()
    }

    /// Returns `true` once the session has closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ledger.closed
    }

    /// Returns `true` for a client that has opened a handshake and then chosen stateless requests. Frames that the server still sends for
    /// the handshake are unexpected then, but no fault of the server.
    #[must_use]
    pub(crate) fn has_left_a_handshake(&self) -> bool {
        self.ledger.era.has_left_a_handshake()
    }

    /// The counts of happenings so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Checks a fact, and adds it to the ledger.
    ///
    /// # Errors
    /// The first guarantee that the fact breaks. The judge must not be used afterwards.
    pub fn see(&mut self, fact: &Fact<'_>) -> Verdict {
        let read = match fact {
            Fact::Sent { transmit, .. } => {
                let shown = || String::from_utf8_lossy(&transmit.frame);
                match reading::read(&transmit.frame) {
                    Reading::Json(text, value) if value.is_object() => Some(Read { text, value }),
                    Reading::Json(..) => return Err(broken_payload(format!("a frame is no message: {}", shown()))),
                    Reading::Unread => None,
                    Reading::Garbage => return Err(broken_payload(format!("a frame is not JSON: {}", shown()))),
                }
            }
            Fact::Received { frame, .. } => match reading::read(frame) {
                Reading::Json(text, value) => Some(Read { text, value }),
                Reading::Unread => {
                    self.ledger.miss();
                    None
                }
                Reading::Garbage => None,
            },
            _ => None,
        };
        for (guarantee, check) in checks::ALL {
            if !self.without.contains(&guarantee) {
                check(&self.ledger, fact, read.as_ref()).map_err(|what| Objection { guarantee, what })?;
            }
        }
        if let Some(happening) = counting::happening(fact, read.as_ref().map(|read| &read.value)) {
            self.coverage.saw(happening);
        }
        self.coverage.meet(transitions::met(&self.ledger, fact, read.as_ref()));
        self.ledger.enter(fact, read.as_ref());
        Ok(())
    }

    /// Checks that the session has closed, that its last event was polled, and that neither a call nor a deadline is left. `due` is its
    /// next deadline.
    ///
    /// # Errors
    /// [`Guarantee::DoneOnce`] or [`Guarantee::SilentAfterClosed`].
    pub fn see_end(&self, due: Option<Instant>) -> Verdict {
        let object = |guarantee, what: String| Err(Objection { guarantee, what });
        if !self.ledger.closed {
            return object(Guarantee::SilentAfterClosed, "the session does not close".to_owned());
        }
        if !self.ledger.calls.is_empty() {
            return object(Guarantee::DoneOnce, format!("never done: {:?}", self.ledger.calls.keys()));
        }
        if due.is_some() {
            return object(Guarantee::SilentAfterClosed, format!("a deadline at {due:?}"));
        }
        Ok(())
    }
}

fn broken_payload(what: impl Into<String>) -> Objection {
    Objection { guarantee: Guarantee::PayloadUnchanged, what: what.into() }
}

/// Calls `run` twice and compares the two outputs line by line.
///
/// # Errors
/// [`Guarantee::Deterministic`], with the first line in which the two differ.
pub fn replays(mut run: impl FnMut() -> Vec<String>) -> Verdict {
    let (first, second) = (run(), run());
    if first == second {
        return Ok(());
    }
    let line = first.iter().zip(&second).position(|(one, other)| one != other).unwrap_or_else(|| first.len().min(second.len()));
    let what = format!("two equal runs differ in line {line}: {:?} and {:?}", first.get(line), second.get(line));
    Err(Objection { guarantee: Guarantee::Deterministic, what })
}
