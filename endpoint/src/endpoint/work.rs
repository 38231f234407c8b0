//! The work that an endpoint does outside of its lock.

use core::task::Waker;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::state::diagnose::Note;
use crate::state::{Leftover, ServedCall, ServedInput};
use protocol_core::dialect::{InputRequest, LogRecord, Notification, Request};
use protocol_core::error::Unreadable;

/// Work that an event or an alarm causes. It is done in order after the lock is released.
pub(super) enum Work {
    Wake(Waker),
    Settle(Leftover),
    Serve(Arc<ServedCall>, Request),
    InputResponse(Arc<ServedInput>, InputRequest),
    // Boxed, as the notification is, since both are large and rare.
    Log(Box<LogRecord>),
    Notification(Box<Notification>),
    Unreadable(Box<Unreadable>),
    Diagnose(Note),
    /// A value to drop outside of the lock, since it may hold a waker.
    Forget(Arc<ServedInput>),
}

impl Work {
    /// Does the work, if it needs no endpoint. Other work is dropped.
    pub(super) fn finish(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Settle(leftover) => drop(leftover),
            Self::Diagnose(note) => note.record(),
            Self::Forget(input_request) => drop(input_request),
            other => drop(other),
        }
    }
}

/// Adds a piece of work, if there is one. Used for nearly every event, and faster than `extend`, which reserves room for several items.
#[inline]
pub(super) fn add(work: &mut VecDeque<Work>, piece: Option<Work>) {
    if let Some(piece) = piece {
        work.push_back(piece);
    }
}
