//! The guarantees of a session, G1 to G16, as checks of the method calls, frames and events of one session.
//!
//! A [`Judge`] is passed [`Fact`]s in the order in which they happen: the methods that the owner calls, the frames that arrive and are
//! sent, the events that are polled. It keeps a ledger of them and runs one check for each [`Guarantee`] except
//! [`Guarantee::Deterministic`], which needs two runs. It reads frames with `serde_json`, and calls no method of the session.
//! [`Watched`](crate::Watched) collects the facts of a session and panics on the first [`Objection`].

mod checks;
mod counting;
mod fact;
mod guarantee;
mod ledger;
mod members;
mod reading;
mod rounds;
mod stateless;
mod transitions;

pub use fact::{Effect, Fact};
pub use guarantee::{Guarantee, Objection, Verdict};

use std::hash::{Hash, Hasher};

use protocol_core::{Config, Instant};

use crate::coverage::Coverage;
use ledger::{Ledger, Terms};
use reading::Reading;

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
                    Reading::Json(read) if read.value.is_object() => Some(read),
                    Reading::Json(..) => return Err(broken_payload(format!("a frame is no message: {}", shown()))),
                    Reading::Unread => None,
                    Reading::Garbage => return Err(broken_payload(format!("a frame is not JSON: {}", shown()))),
                }
            }
            Fact::Received { frame, .. } => match reading::read(frame) {
                Reading::Json(read) => Some(read),
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
