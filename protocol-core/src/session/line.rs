//! The line in which invocations wait for what they share on the way out: the session's rate window, and room in the outbox.
//!
//! | Place | `join` for the turn | `join` for room | `leave` |
//! |---|---|---|---|
//! | none | the last of those for the turn | the last of those for room | none |
//! | for the turn | stays | the last of those for room | none |
//! | for room | the last of those for the turn | stays | none |
//!
//! First come, first served. A caller hears that a call is alive only by its progress, so a call that reports all the time must not
//! starve one that reports now and then. Final updates stand in a line of their own: no window keeps them back, they wait only for room.

use alloc::collections::BTreeMap;

use crate::config::RateWindow;
use crate::session::InboundId;
use crate::session::progress::{Opens, Window};
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;

/// The thing that a place is waited in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum For {
    /// For room alone.
    Room,
    /// For room and for the window.
    Turn,
}

/// A place in a line. Those that wait for room alone come before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(For, u64);

#[derive(Clone, Debug)]
pub(super) struct Line {
    window: Window,
    waiting: BTreeMap<Place, InboundId>,
    next: u64,
    /// The entry in the session's timers of the next opening of the window.
    armed: Option<Instant>,
}

impl Line {
    pub(super) fn new(rate: RateWindow) -> Self {
        Self { window: Window::new(rate), waiting: BTreeMap::new(), next: 0, armed: None }
    }

    /// Says whether something waits in it, or a timer was armed for it.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.armed.is_some()
    }

    /// Says whether no invocation waits for the window.
    pub(super) fn is_free(&self) -> bool {
        self.waiting.last_key_value().is_none_or(|(place, _)| place.0 == For::Room)
    }

    /// The invocation that is served next.
    pub(super) fn first(&self) -> Option<InboundId> {
        self.waiting.first_key_value().map(|(_, id)| *id)
    }

    /// Gives the last place to an invocation; one that has such a place keeps it.
    pub(super) fn join(&mut self, id: InboundId, what: For, place: &mut Option<Place>) {
        if place.is_none_or(|place| place.0 != what) {
            self.leave(place);
            let last = Place(what, self.next);
            self.next = self.next.saturating_add(1);
            self.waiting.insert(last, id);
            *place = Some(last);
        }
    }

    pub(super) fn leave(&mut self, place: &mut Option<Place>) {
        if let Some(place) = place.take() {
            self.waiting.remove(&place);
        }
    }

    /// The moment at which the session's window lets the next update through.
    pub(super) fn opens(&self, now: Instant) -> Opens {
        self.window.opens(now)
    }

    /// Counts an update that has gone through the session's window.
    pub(super) fn count(&mut self, now: Instant) {
        self.window.count(now);
    }

    /// Arms the next opening of the window, if an invocation waits for it.
    pub(super) fn arm(&mut self, now: Instant, timers: &mut Timers) {
        let opens = match self.opens(now) {
            Opens::At(at) if !self.is_free() => Some(at),
            _ => None,
        };
        timers.set(TimerKey::Line, &mut self.armed, opens);
    }

    /// Notes that the timers have let go of the opening of the window.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    pub(super) fn clear(&mut self, timers: &mut Timers) {
        self.waiting.clear();
        timers.set(TimerKey::Line, &mut self.armed, None);
    }
}
