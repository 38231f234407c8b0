//! The line in which invocations wait for what they share on the way out: the session's rate window, and room in the outbox.
//!
//! First come, first served. A caller hears that a call is alive only by its progress, so a call that reports all the time must not
//! starve one that reports now and then. Final updates stand in a line of their own: no window keeps them back, they wait only for room.

use alloc::collections::BTreeMap;

use crate::config::RateWindow;
use crate::session::InboundId;
use crate::session::progress::{Opens, Window};
use crate::time::Instant;

/// What a place is waited in for.
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
}

impl Line {
    pub(super) fn new(rate: RateWindow) -> Self {
        Self { window: Window::new(rate), waiting: BTreeMap::new(), next: 0 }
    }

    /// Whether nobody waits for the window.
    pub(super) fn is_free(&self) -> bool {
        self.waiting.last_key_value().is_none_or(|(place, _)| place.0 == For::Room)
    }

    /// Who is served next.
    pub(super) fn first(&self) -> Option<InboundId> {
        self.waiting.first_key_value().map(|(_, id)| *id)
    }

    /// Joins at the end; whoever has such a place keeps it.
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

    /// When the session's window lets the next update through.
    pub(super) fn opens(&self, now: Instant) -> Opens {
        self.window.opens(now)
    }

    /// An update has gone through the session's window.
    pub(super) fn count(&mut self, now: Instant) {
        self.window.count(now);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}
