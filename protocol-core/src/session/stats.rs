//! The counters of a session.

use crate::error::Violation;

/// Counters of a session since its creation, and gauges, which show its current state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Frames of the peer that the session took.
    pub frames_in: u64,
    /// Bytes of frames that the session took.
    pub bytes_in: u64,
    /// Frames that were polled.
    pub frames_out: u64,
    /// Bytes of frames that were polled.
    pub bytes_out: u64,
    /// Progress updates of ours that were merged into a later update.
    pub progress_out_merged: u64,
    /// Progress updates of ours that were dropped: they had nothing new, or the peer did not ask for progress.
    pub progress_out_dropped: u64,
    /// Progress updates of the peer that were dropped.
    pub progress_in_dropped: u64,
    /// Faults in frames of the peer that were read all the same, and are no violations: an optional member of a message, of its parameters or
    /// of `_meta` that is `null` and so counts as absent, or an error object without a code or a message.
    pub tolerated: u64,
    /// Frames of the peer about a call that had ended at this end.
    pub late_frames: u64,
    /// Log records of ours that were dropped because their lane was stopped, too much output was queued on it, or the record was too long.
    pub logs_dropped: u64,
    /// Method calls whose `now` was before the `now` of an earlier call.
    pub clock_went_back: u64,
    /// Gauge: outbound calls that have not settled.
    pub outbound_calls: usize,
    /// Gauge: inbound calls, including cancelled calls whose handler has not ended.
    pub inbound_calls: usize,
    /// Gauge: cancelled inbound calls whose handler has not ended.
    pub cancelled_calls: usize,
    /// Gauge: requests of ours without a response yet: calls, input requests, the handshake, our subscription. Requests that are held and
    /// calls between two rounds are not counted.
    pub exchanges_out: usize,
    /// Gauge: requests of the peer without a response yet: calls that were not cancelled, and input requests.
    pub exchanges_in: usize,
    /// Gauge: bytes of frames that requests of the peer hold ([`crate::Limits::request_bytes`]).
    pub request_bytes: usize,
    /// Gauge: bytes of output that wait to be polled.
    pub queued_bytes: usize,
    violations: [u64; Violation::ALL.len()],
}

impl Stats {
    /// The number of violations of `rule` by the peer.
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
