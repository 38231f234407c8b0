//! Converts facts into the happenings that the coverage counts.

use protocol_core::{CancelReason, Event, InputFailed, Outcome};
use serde_json::Value;

use super::fact::Fact;
use super::stateless::Stamp;
use crate::coverage::Happening;

/// Returns the happening that a fact counts as, if any. `frame` is the parsed frame of the fact; `None` if it has none, or one that is not
/// JSON.
pub(super) fn happening(fact: &Fact<'_>, frame: Option<&Value>) -> Option<Happening> {
    Some(match fact {
        Fact::Called { .. } => Happening::Call,
        Fact::Asked { .. } => Happening::InputRequest,
        Fact::Writable { is_writable: false, .. } => Happening::LaneStopped,
        Fact::LaneLost { .. } => Happening::LaneLost,
        Fact::Received { .. } if frame.is_none() => Happening::Garbage,
        Fact::Received { effect, .. } if effect.began > 0 && frame.and_then(Stamp::read).is_some() => Happening::StatelessRequest,
        Fact::Sent { .. } if frame.is_some_and(is_progress) => Happening::SentProgress,
        Fact::Polled { event, .. } => match event {
            Event::Done { outcome, .. } => match outcome {
                Outcome::Result(_) => Happening::Result,
                Outcome::Error(_) => Happening::Error,
                Outcome::Cancelled => Happening::Cancel,
                Outcome::TimedOut(_) => Happening::Timeout,
                Outcome::Lost => Happening::Lost,
                _ => Happening::Invalid,
            },
            Event::Request { .. } => Happening::Request,
            Event::Cancelled { why: CancelReason::Peer(_), .. } => Happening::PeerCancel,
            Event::Cancelled { why: CancelReason::Deadline, .. } => Happening::Deadline,
            Event::Progress { .. } => Happening::Progress,
            Event::Input { answer: Ok(_), .. } => Happening::InputResponse,
            Event::Input { answer: Err(InputFailed::Refused(_)), .. } => Happening::Refusal,
            Event::Input { .. } => Happening::Unanswered,
            Event::InputRequested { .. } => Happening::PeerInputRequest,
            Event::Alarm(_) => Happening::Alarm,
            Event::Violation(_) | Event::Unreadable(_) => Happening::Violation,
            Event::Closed(_) => Happening::Closed,
            _ => return None,
        },
        _ => return None,
    })
}

fn is_progress(frame: &Value) -> bool {
    matches!(frame["method"].as_str(), Some("notifications/progress" | "actions/progress"))
}
