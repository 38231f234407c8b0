//! The queue of events that wait to be polled.
//!
//! | Event | `push` | `pop` |
//! |---|---|---|
//! | the outcome of an outbound call, the answer to an input request of ours | `settled` + 1 | `settled` - 1 |
//! | an alarm | `due_alarms` + 1 | `due_alarms` - 1 |
//! | the end of a lane | `closed_lanes` + 1 | `closed_lanes` - 1 |
//! | any other | no count changes | no count changes |
//!
//! The limits on calls and on input requests also count the events in `settled`, and the limit on alarms those in `due_alarms`. So the
//! queue has a bound, even if an owner starts calls and does not poll. Frames of a lane are dropped until the `Event::LaneClosed` of that
//! lane is polled.

use alloc::collections::VecDeque;

use crate::session::{Event, Lane};

#[derive(Clone, Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    settled: usize,
    due_alarms: usize,
    closed_lanes: usize,
}

impl EventQueue {
    pub(super) const fn new() -> Self {
        Self { events: VecDeque::new(), settled: 0, due_alarms: 0, closed_lanes: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        if let Some(count) = self.count_of(&event) {
            *count = count.saturating_add(1);
        }
        self.events.push_back(event);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Some(count) = self.count_of(&event) {
            *count = count.saturating_sub(1);
        }
        Some(event)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The number of queued events that end a call or an input request of ours.
    #[inline]
    pub(super) fn settled(&self) -> usize {
        self.settled
    }

    /// Returns `true` if there is an `Event::LaneClosed` of this lane that has not been polled.
    #[inline]
    pub(super) fn closes(&self, lane: Lane) -> bool {
        let is_its_end = |event: &Event| matches!(event, Event::LaneClosed { lane: closed, .. } if *closed == lane);
        self.closed_lanes > 0 && self.events.iter().any(is_its_end)
    }

    /// The number of queued events of alarms.
    pub(super) fn due_alarms(&self) -> usize {
        self.due_alarms
    }

    #[inline]
    fn count_of(&mut self, event: &Event) -> Option<&mut usize> {
        match event {
            Event::Done { .. } | Event::Input { .. } => Some(&mut self.settled),
            Event::Alarm(_) => Some(&mut self.due_alarms),
            Event::LaneClosed { .. } => Some(&mut self.closed_lanes),
            _ => None,
        }
    }
}
