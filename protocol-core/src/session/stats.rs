//! The counters of a session.

use crate::error::Violation;

/// Counters of a session since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Frames read.
    pub frames_in: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Frames polled.
    pub frames_out: u64,
    /// Bytes polled.
    pub bytes_out: u64,
    /// Updates that were merged into a later one.
    pub progress_coalesced: u64,
    /// Updates of ours that were dropped: not increasing, or not asked for.
    pub progress_left_out: u64,
    /// Updates of the peer that were dropped.
    pub progress_dropped: u64,
    /// Responses and updates of the peer that came after their call had ended here.
    pub late_frames: u64,
    /// Log records that were dropped because too much output waited.
    pub logs_dropped: u64,
    /// Calls of methods whose `now` was before an earlier one.
    pub clock_went_back: u64,
    /// Outbound calls in flight, now.
    pub outbound_calls: usize,
    /// Inbound calls, now, including cancelled ones whose handler has not ended.
    pub inbound_calls: usize,
    /// Cancelled calls whose handler has not ended, now.
    pub orphans: usize,
    /// Requests of ours that wait for a response, now: calls, input requests, the handshake. A call that is held for the handshake is not
    /// counted.
    pub exchanges_out: usize,
    /// Requests of the peer that wait for our response, now: calls that were not cancelled, and its input requests.
    pub exchanges_in: usize,
    /// Bytes of output that wait to be polled, now.
    pub queued_bytes: usize,
    violations: [u64; Violation::ALL.len()],
}

impl Stats {
    /// The number of times that the peer broke `rule`.
    #[must_use]
    pub fn violations(&self, rule: Violation) -> u64 {
        self.violations.get(rule as usize).copied().unwrap_or_default()
    }

    pub(crate) fn count(&mut self, rule: Violation) {
        if let Some(count) = self.violations.get_mut(rule as usize) {
            *count = count.saturating_add(1);
        }
    }
}
