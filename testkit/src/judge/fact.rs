//! What happens at the boundary of a session, as a judge is told it.

use protocol_core::{
    AlarmId, Event, Gone, InboundId, InputKey, Instant, Invoke, Lane, Limits, Notification, OutboundId, PendingInput, Received,
    Reply, Reported, Stats, Transmit, TransportEnd, Violation,
};

/// Something that happened at the boundary of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are the arguments and the results of the method that the variant names")]
pub enum Fact<'a> {
    /// `invoke` accepted a call. `at_once`: one of its time limits is zero.
    Called { id: OutboundId, call: &'a Invoke, at_once: bool },
    /// `resume_input` continued a call that was kept between two rounds. `at_once`: one of its time limits is zero.
    Resumed { id: OutboundId, pending: &'a PendingInput, at_once: bool },
    /// `cancel` returned `Ok`.
    Cancelled { id: OutboundId },
    /// `request_input` accepted an input request on behalf of a call of the peer.
    Asked { key: InputKey, id: InboundId },
    /// `abandon_input` returned `Ok`.
    Abandoned { key: InputKey },
    /// `respond` returned; `accepted` if it returned `Ok`.
    Responded { id: InboundId, reply: &'a Reply, accepted: bool },
    /// `configure` accepted a deadline, which may have passed already.
    Configured { id: InboundId },
    /// `set_alarm` returned `Ok`. `at_once`: the instant is not in the future.
    AlarmSet { id: AlarmId, at_once: bool },
    /// `provide_input` returned `Ok`. `is_refusal`: the answer was a refusal.
    Answered { key: InputKey, is_refusal: bool },
    /// `progress` accepted an update.
    Reported { id: InboundId, reported: Reported },
    /// `checkpoint` returned `Ok`.
    Checkpointed { id: InboundId },
    /// `log` queued a record, on behalf of a call of the peer or of no call.
    Logged { id: Option<InboundId> },
    /// `close` was called.
    Closing { is_graceful: bool },
    /// `handle_end` was called.
    Ended { end: TransportEnd },
    /// `handle_frame` took a frame.
    Received { frame: &'a [u8], lane: Lane, effect: Effect },
    /// `poll_transmit` returned a frame. `max_depth` is `DepthPolicy::max` of the configuration.
    Sent { transmit: &'a Transmit, max_depth: u8 },
    /// `poll_event` returned an event. `max_depth` is `DepthPolicy::max` of the configuration.
    Polled { event: &'a Event, max_depth: u8 },
    /// `handle_timeout` is about to be called. `due` is the next deadline.
    Timeout { now: Instant, due: Option<Instant> },
    /// A method has returned. These are the counters and the next deadline of the session.
    Returned { stats: &'a Stats, limits: &'a Limits, due: Option<Instant> },
    /// `accept_subscription` returned `Ok`.
    Accepted { id: InboundId },
    /// `publish` was called.
    Published { notification: &'a Notification },
    /// `handle_gone` returned `Ok`.
    Gone { gone: Gone },
    /// A lane was stopped or resumed.
    Writable { lane: Lane, is_writable: bool },
    /// A lane was lost or closed: no frame is sent on it any more for requests that came on it.
    LaneLost { lane: Lane },
    /// A method panicked.
    Panicked { method: &'a str, message: &'a str },
    /// A `handle_timeout` that was not due changed the output from `before` to `after`.
    Probed { before: &'a str, after: &'a str },
}

/// The effect of a frame that arrived, read off the counters of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect {
    /// The value that `handle_frame` returned.
    pub received: Received,
    /// The number of calls of the peer that began; a batch may have several.
    pub began: usize,
    /// A call of the peer was cancelled.
    pub cancelled: bool,
    /// The frame was a request whose id was in use, so it is never answered.
    pub dropped: bool,
    /// The frame broke a rule.
    pub violated: bool,
}

impl Effect {
    /// The effect of a frame, from the counters before and after it.
    #[must_use]
    pub fn between(before: &Stats, after: &Stats, received: Received) -> Self {
        let breaks = |rule: &Violation| after.violations(*rule) > before.violations(*rule);
        let is_duplicate = breaks(&Violation::DuplicateRequest);
        Self {
            received,
            began: after.inbound_calls.saturating_sub(before.inbound_calls),
            cancelled: after.cancelled_calls > before.cancelled_calls || after.inbound_calls < before.inbound_calls,
            dropped: is_duplicate && after.queued_bytes == before.queued_bytes,
            violated: Violation::ALL.iter().any(breaks),
        }
    }
}
