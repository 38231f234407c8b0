//! One call of ours, from the verb to its end. All transitions of the caller's machine are here.
//!
//! ```text
//!            make (peer not ready)           make (peer ready)
//!                  |                               |
//!                  v          release              v
//!                Held  ----------------------->  InFlight --- progress, questions --+
//!                  |                               |  ^                             |
//!                  | cancel, deadline,             |  +-----------------------------+
//!                  | end: nothing was sent         |
//!                  v                               v  response | cancel, deadline: a cancel goes out | end
//!                              (gone)
//! ```
//!
//! A call that is gone leaves nothing behind: its exchange was numbered by us, so a late frame is one whose number is
//! below the next and in no table.

use alloc::vec::Vec;

use crate::config::CallTimeouts;
use crate::dialect::{Op, Progress, Rules};
use crate::json::Json;
use crate::session::outbox::Ticket;
use crate::session::progress::{Seen, Watcher};
use crate::session::{Clock, InputKey};
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) op: Op,
    /// How many samplings it is nested in.
    pub(super) depth: u8,
    clocks: CallTimeouts,
    started: Instant,
    /// When anything was last heard of it.
    activity: Instant,
    /// The peer's questions that are open under it. While there are any the idle clock stands still.
    questions: Vec<InputKey>,
    watcher: Watcher,
    /// The newest partial result that came with progress.
    pub(super) partial: Option<Json>,
    /// Where the session's timers have it.
    pub(super) armed: Option<Instant>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Waits for the handshake.
    Held { params: Json, observed: bool },
    /// Written to the outbox; whether it has left is the outbox's to say.
    InFlight { exchange: u64, ticket: Ticket, observed: bool },
}

/// What the wire must hear when a call is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    /// It was never written.
    Nothing,
    /// The request, if it has not left; otherwise a cancel, unless the operation has none.
    Request { exchange: u64, ticket: Ticket, cancellable: bool },
}

impl Call {
    /// Both clocks start here.
    pub(super) fn held(op: Op, params: Json, depth: u8, clocks: CallTimeouts, observed: bool, now: Instant) -> Self {
        Self {
            op,
            depth,
            clocks,
            started: now,
            activity: now,
            questions: Vec::new(),
            watcher: Watcher::default(),
            partial: None,
            armed: None,
            state: State::Held { params, observed },
        }
    }

    /// What is to be written once the peer is ready.
    pub(super) fn request(&self) -> Option<(&Op, &Json, bool)> {
        match &self.state {
            State::Held { params, observed } => Some((&self.op, params, *observed)),
            State::InFlight { .. } => None,
        }
    }

    /// Held -> InFlight.
    pub(super) fn release(&mut self, exchange: u64, ticket: Ticket) {
        let observed = self.is_observed();
        self.state = State::InFlight { exchange, ticket, observed };
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight { .. })
    }

    /// Whether the peer was asked for progress.
    pub(super) fn is_observed(&self) -> bool {
        match self.state {
            State::Held { observed, .. } | State::InFlight { observed, .. } => observed,
        }
    }

    /// The place of its request in the outbox.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.state {
            State::InFlight { ticket, .. } => Some(ticket),
            State::Held { .. } => None,
        }
    }

    /// The bytes it keeps while it waits for the handshake.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.state {
            State::Held { params, .. } => params.as_bytes().len(),
            State::InFlight { .. } => 0,
        }
    }

    /// InFlight -> InFlight. Only accepted progress is a sign of life.
    pub(super) fn see(
        &mut self,
        progress: Progress,
        partial: Option<Json>,
        now: Instant,
        rules: Rules,
        quiet: core::time::Duration,
    ) -> Seen {
        let seen = self.watcher.see(progress, now, rules, quiet);
        if matches!(seen, Seen::Accepted(_)) {
            self.partial = partial.or_else(|| self.partial.take());
            if self.clocks.reset_on_progress {
                self.activity = now;
            }
        }
        seen
    }

    /// The last progress that was accepted.
    pub(super) fn take_last(&mut self) -> Option<Progress> {
        self.watcher.last.take()
    }

    pub(super) fn open_question(&mut self, key: InputKey) {
        self.questions.push(key);
    }

    /// The idle clock starts afresh with the last question that closes.
    pub(super) fn close_question(&mut self, key: InputKey, now: Instant) {
        self.questions.retain(|open| *open != key);
        if self.questions.is_empty() {
            self.activity = now;
        }
    }

    pub(super) fn take_questions(&mut self) -> Vec<InputKey> {
        core::mem::take(&mut self.questions)
    }

    /// `min(last activity + idle, start + max_total)`, and which of the two it is.
    pub(super) fn deadline(&self) -> Option<(Instant, Clock)> {
        let idle =
            self.clocks.idle.filter(|_| self.questions.is_empty()).map(|idle| (self.activity.saturating_add(idle), Clock::Idle));
        let total = self.clocks.max_total.map(|total| (self.started.saturating_add(total), Clock::MaxTotal));
        match (idle, total) {
            (Some(idle), Some(total)) => Some(if total.0 <= idle.0 { total } else { idle }),
            (idle, total) => idle.or(total),
        }
    }

    /// What is to be taken back when it is given up.
    pub(super) fn withdrawal(&self) -> Withdrawal {
        match self.state {
            State::Held { .. } => Withdrawal::Nothing,
            State::InFlight { exchange, ticket, .. } => {
                Withdrawal::Request { exchange, ticket, cancellable: !matches!(self.op, Op::Ping) }
            }
        }
    }
}
