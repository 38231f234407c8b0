//! One invocation that we serve, from its receipt to the end of its handler. All transitions of the callee's machine are here.
//!
//! ```text
//!   receipt
//!      |
//!      v      respond, with no gap to keep
//!    Active ------------------------------------------------> (gone)
//!      |  \   respond, a moment after the last progress          ^
//!      |   `---------------------------------> Answered ---------+   the gap has passed
//!      |                                                         |
//!      |  the peer's cancel | the deadline | the end             |
//!      v                                                         |
//!   Cancelled ---------------------------------------------------+   respond: the handler has ended
//! ```
//!
//! Nothing leaves once a machine is not `Active` any longer, except the one response of `Answered`, which has already won
//! every race. `Cancelled` keeps its place in the table: stuck handlers are bounded.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::config::RateWindow;
use crate::dialect::Op;
use crate::json::Json;
use crate::session::InputKey;
use crate::session::outbox::Ticket;
use crate::session::progress::Reporter;
use crate::time::Instant;
use crate::wire::WireId;

#[derive(Clone, Debug)]
pub(super) struct Serve {
    /// What the peer calls the exchange.
    pub(super) exchange: WireId,
    pub(super) op: Op,
    /// What the peer wants progress to be called; `None` if it wants none.
    pub(super) token: Option<WireId>,
    /// How many samplings it is nested in.
    pub(super) depth: u8,
    pub(super) received: Instant,
    pub(super) reporter: Reporter,
    /// The newest partial result, an object without `status`.
    pub(super) checkpoint: Option<Json>,
    /// Our questions that are open at the peer.
    pub(super) questions: Vec<InputKey>,
    /// The newest update in the outbox, and when it was written.
    pub(super) last_progress: Option<(Ticket, Instant)>,
    /// Where the session's timers have its deadline.
    pub(super) armed: Option<Instant>,
    /// Where the session's timers have the flush of what is kept, or the release of its response.
    pub(super) armed_flush: Option<Instant>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Active,
    Answered(Bytes),
    Cancelled,
}

/// What the end of a handler means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has answered: the reply goes out.
    Reply,
    /// It was cancelled before: nothing goes out, and its place is free.
    Swallowed,
    /// It has answered before.
    Twice,
}

impl Serve {
    pub(super) fn new(exchange: WireId, op: Op, token: Option<WireId>, depth: u8, rate: RateWindow, now: Instant) -> Self {
        Self {
            exchange,
            op,
            token,
            depth,
            received: now,
            reporter: Reporter::new(rate),
            checkpoint: None,
            questions: Vec::new(),
            last_progress: None,
            armed: None,
            armed_flush: None,
            state: State::Active,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self.state, State::Active)
    }

    /// Active -> Cancelled. `false` if it was not active.
    pub(super) fn cancel(&mut self) -> bool {
        let first = self.is_active();
        if first {
            self.state = State::Cancelled;
        }
        first
    }

    /// The handler has ended.
    pub(super) fn end(&self) -> Ended {
        match self.state {
            State::Active => Ended::Reply,
            State::Cancelled => Ended::Swallowed,
            State::Answered(_) => Ended::Twice,
        }
    }

    /// Active -> Answered: `response` waits for its moment.
    pub(super) fn hold(&mut self, response: Bytes) {
        self.state = State::Answered(response);
    }

    /// The response that was held.
    pub(super) fn take_held(&mut self) -> Option<Bytes> {
        match core::mem::replace(&mut self.state, State::Cancelled) {
            State::Answered(response) => Some(response),
            other => {
                self.state = other;
                None
            }
        }
    }
}
