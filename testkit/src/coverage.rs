//! Counts of what a case exercised.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something that a case can exercise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Happening {
    /// A call of ours was accepted.
    Call,
    /// A call of ours ended with a result.
    Result,
    /// A call of ours ended with an error of the peer.
    Error,
    /// A call of ours was cancelled.
    Cancel,
    /// A call of ours timed out.
    Timeout,
    /// A call of ours was lost with its channel.
    Lost,
    /// A call of ours ended with a response that could not be read.
    Invalid,
    /// A call of the peer began.
    Request,
    /// A stateless request arrived, and began a call (MCP 2026-07-28).
    StatelessRequest,
    /// The peer cancelled a call that we serve.
    PeerCancel,
    /// A call that we serve ran into its deadline.
    Deadline,
    /// Progress left for the peer.
    Report,
    /// Progress of the peer was accepted.
    Progress,
    /// A question of ours to the caller was accepted.
    Question,
    /// A question of ours was answered.
    Answer,
    /// A question of ours was refused by the peer.
    Refusal,
    /// A question of ours was not answered in time, or lost.
    Unanswered,
    /// The peer asked a question.
    PeerQuestion,
    /// An alarm rang.
    Alarm,
    /// A frame that is no JSON arrived.
    Garbage,
    /// The peer broke a rule, and an event says so.
    Violation,
    /// The session closed.
    Closed,
    /// A lane was stopped.
    LaneStopped,
    /// A lane was lost or given up.
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
        Self::Report,
        Self::Progress,
        Self::Question,
        Self::Answer,
        Self::Refusal,
        Self::Unanswered,
        Self::PeerQuestion,
        Self::Alarm,
        Self::Garbage,
        Self::Violation,
        Self::Closed,
        Self::LaneStopped,
        Self::LaneLost,
    ];

    /// The sentence that a vacuous campaign fails with.
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
            Self::Report => "no progress was reported",
            Self::Progress => "no progress crossed",
            Self::Question => "no question was asked",
            Self::Answer => "no question was answered",
            Self::Refusal => "no question was refused",
            Self::Unanswered => "no question was left unanswered",
            Self::PeerQuestion => "the peer asked nothing",
            Self::Alarm => "no alarm rang",
            Self::Garbage => "no garbage arrived",
            Self::Violation => "the peer broke no rule",
            Self::Closed => "no session closed",
            Self::LaneStopped => "no lane was stopped",
            Self::LaneLost => "no lane was lost",
        }
    }
}

/// A row of `docs/transitions`: the machine (`call` or `serve`), its state, and what it met.
pub type Transition = [&'static str; 3];

/// Counts of what happened, and the transitions that calls have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<Happening, u64>,
    transitions: BTreeSet<Transition>,
}

impl Coverage {
    /// The number of times that it happened.
    #[must_use]
    pub fn of(&self, happening: Happening) -> u64 {
        self.counts.get(&happening).copied().unwrap_or_default()
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        for (happening, count) in &other.counts {
            *self.counts.entry(*happening).or_default() += count;
        }
        self.transitions.extend(&other.transitions);
    }

    /// Every state of a call in which something was met, with what it met, in the words of `docs/transitions`.
    ///
    /// An answer that a gap holds back, and inputs that differ in time alone, are not told apart from others.
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

/// One line for each happening, those that never happened included.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for happening in Happening::ALL {
            writeln!(f, "{:>10} {happening:?}", self.of(happening))?;
        }
        Ok(())
    }
}
