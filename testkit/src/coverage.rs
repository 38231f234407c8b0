//! Counts of the happenings at the sessions in a test, such as calls, cancels and losses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something that happens at a session and is counted, so that a test can require it. *Ours* means: of this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Happening {
    /// A call of ours was accepted by `invoke`.
    Call,
    /// A call of ours ended with a result.
    Result,
    /// A call of ours ended with an error of the peer.
    Error,
    /// A call of ours was cancelled by this end.
    Cancel,
    /// A call of ours timed out.
    Timeout,
    /// A call of ours ended with [`Outcome::Lost`](protocol_core::Outcome::Lost).
    Lost,
    /// A call of ours ended in any other way: it could not be sent, its response could not be read, or its input requests were not answered
    /// by a retry.
    Invalid,
    /// A call of the peer began.
    Request,
    /// A stateless request arrived, and began a call (MCP 2026-07-28).
    StatelessRequest,
    /// The peer cancelled a call that we serve.
    PeerCancel,
    /// A call that we serve ran into its deadline.
    Deadline,
    /// Progress was sent to the peer.
    SentProgress,
    /// Progress of the peer was accepted.
    Progress,
    /// An outbound input request was accepted by the session.
    InputRequest,
    /// An outbound input request was answered.
    InputResponse,
    /// An outbound input request was refused by the peer.
    Refusal,
    /// An outbound input request timed out, was lost, or had an answer that could not be read.
    Unanswered,
    /// An input request of the peer arrived.
    PeerInputRequest,
    /// An alarm fired.
    Alarm,
    /// A frame arrived that is not JSON, or that the judge cannot read.
    Garbage,
    /// A violation of the peer was reported.
    Violation,
    /// The session closed.
    Closed,
    /// A lane was stopped.
    LaneStopped,
    /// A lane was lost on Tesseron, or the session closed a lane. A lost lane of MCP is not counted.
    LaneLost,
}

impl Happening {
    /// Every happening.
    pub const ALL: [Self; 24] = [
        Self::Call,
        Self::Result,
        Self::Error,
        Self::Cancel,
        Self::Timeout,
        Self::Lost,
        Self::Invalid,
        Self::Request,
        Self::StatelessRequest,
        Self::PeerCancel,
        Self::Deadline,
        Self::SentProgress,
        Self::Progress,
        Self::InputRequest,
        Self::InputResponse,
        Self::Refusal,
        Self::Unanswered,
        Self::PeerInputRequest,
        Self::Alarm,
        Self::Garbage,
        Self::Violation,
        Self::Closed,
        Self::LaneStopped,
        Self::LaneLost,
    ];

    /// The words for this happening in the error of a campaign in which it never occurred.
    pub(crate) const fn missing(self) -> &'static str {
        match self {
            Self::Call => "no call was made",
            Self::Result => "no call ended with a result",
            Self::Error => "no call ended with an error",
            Self::Cancel => "no cancel happened",
            Self::Timeout => "no call timed out",
            Self::Lost => "no call was lost with its channel",
            Self::Invalid => "no response was unreadable",
            Self::Request => "no request arrived",
            Self::StatelessRequest => "no stateless request arrived",
            Self::PeerCancel => "the peer cancelled nothing",
            Self::Deadline => "no handler ran into its deadline",
            Self::SentProgress => "no progress was reported",
            Self::Progress => "no progress of the peer was accepted",
            Self::InputRequest => "no input request was made",
            Self::InputResponse => "no input request was answered",
            Self::Refusal => "no input request was refused",
            Self::Unanswered => "no input request timed out or was lost",
            Self::PeerInputRequest => "the peer made no input request",
            Self::Alarm => "no alarm fired",
            Self::Garbage => "no invalid JSON arrived",
            Self::Violation => "the peer violated no rule",
            Self::Closed => "no session closed",
            Self::LaneStopped => "no lane was stopped",
            Self::LaneLost => "no lane was lost",
        }
    }
}

/// A row of `docs/transitions`: the table (`call`, `call-over-rounds`, `serve`, `serve-stateless` or `listen`), the state, and the input.
pub type Transition = [&'static str; 3];

/// Counts of happenings, and the transitions that calls have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<Happening, u64>,
    transitions: BTreeSet<Transition>,
}

impl Coverage {
    /// The number of times that `happening` has occurred.
    #[must_use]
    pub fn of(&self, happening: Happening) -> u64 {
        self.counts.get(&happening).copied().unwrap_or_default()
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (happening, count) in &other.counts {
            *self.counts.entry(*happening).or_default() += count;
        }
        self.transitions.extend(&other.transitions);
    }

    /// Every combination of a state of a call and an input that occurred, in the words of `docs/transitions`.
    ///
    /// A call whose response waits for `response_gap` has no state of its own here. Inputs that differ only in time count as one input. A
    /// method that returns an error does not count as an input.
    pub fn transitions(&self) -> impl Iterator<Item = Transition> {
        self.transitions.iter().copied()
    }

    pub(crate) fn meet(&mut self, transitions: Vec<Transition>) {
        self.transitions.extend(transitions);
    }

    pub(crate) fn saw(&mut self, happening: Happening) {
        *self.counts.entry(happening).or_default() += 1;
    }
}

/// One line for each happening, including those that never occurred.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for happening in Happening::ALL {
            writeln!(f, "{:>10} {happening:?}", self.of(happening))?;
        }
        Ok(())
    }
}
