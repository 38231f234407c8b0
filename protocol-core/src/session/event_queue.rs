//! Events that wait to be polled.
//!
//! | Event | `push` | `pop` |
//! |---|---|---|
//! | the end of a call of ours, the answer to a question of ours | `settled` + 1 | `settled` - 1 |
//! | an alarm | `rung` + 1 | `rung` - 1 |
//! | any other | | |
//!
//! Those that are counted keep the place of the thing that they end until they are polled: an owner that starts things and does not poll
//! cannot make the queue grow without bound.

use alloc::collections::VecDeque;

use crate::session::Event;

#[derive(Clone, Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    settled: usize,
    rung: usize,
}

impl EventQueue {
    pub(super) const fn new() -> Self {
        Self { events: VecDeque::new(), settled: 0, rung: 0 }
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

    /// The number of those that end a call or a question of ours.
    #[inline]
    pub(super) fn settled(&self) -> usize {
        self.settled
    }

    /// The number of alarms among them.
    pub(super) fn rung(&self) -> usize {
        self.rung
    }

    #[inline]
    fn count_of(&mut self, event: &Event) -> Option<&mut usize> {
        match event {
            Event::Done { .. } | Event::Input { .. } => Some(&mut self.settled),
            Event::Alarm(_) => Some(&mut self.rung),
            _ => None,
        }
    }
}
