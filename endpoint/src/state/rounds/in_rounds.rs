//! What an inbound call has for its rounds.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use super::seal::Sealer;
use protocol_core::dialect::Request;

/// The part of an inbound call that is there only if its caller is asked in rounds.
#[derive(Debug)]
pub(crate) struct InRounds {
    /// The request, which the sealed state is bound to.
    request: Request,
    /// `true` if the request ends or has ended with a round.
    has_ended: AtomicBool,
    /// `true` if the handler blocks a thread, so that it cannot be dropped and run again.
    is_blocking: AtomicBool,
    /// `true` if the state of an earlier request of the call was opened, so that the handler runs again.
    is_repeat: AtomicBool,
    /// The number of progress updates, log records and checkpoints.
    reports: AtomicU32,
}

impl InRounds {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            has_ended: AtomicBool::new(false),
            is_blocking: AtomicBool::new(false),
            is_repeat: AtomicBool::new(false),
            reports: AtomicU32::new(0),
        }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    pub(super) fn note_end(&self, has_ended: bool) {
        self.has_ended.store(has_ended, Ordering::Relaxed);
    }

    pub(super) fn is_blocking(&self) -> bool {
        self.is_blocking.load(Ordering::Relaxed)
    }

    pub(super) fn note_blocking(&self) {
        self.is_blocking.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_repeat(&self) -> bool {
        self.is_repeat.load(Ordering::Relaxed)
    }

    pub(super) fn note_repeat(&self) {
        self.is_repeat.store(true, Ordering::Relaxed);
    }

    pub(super) fn reports(&self) -> u32 {
        self.reports.load(Ordering::Relaxed)
    }

    /// Counts a report, and returns its number, from 1.
    pub(super) fn count_report(&self) -> u32 {
        self.reports.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }
}

/// The keys that seal a state, and the names that the state is bound to.
#[derive(Clone, Debug)]
pub(crate) struct RoundSetup {
    pub(crate) sealer: Arc<Sealer>,
    /// The name of the service.
    pub(crate) service: Arc<str>,
    /// The version of the handlers.
    pub(crate) version: Arc<str>,
}
