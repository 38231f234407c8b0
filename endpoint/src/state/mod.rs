//! The state of an endpoint under its one lock.
//!
//! Also here: the values that the handles of an inbound call or of an inbound input request share ([`ServedCall`], [`ServedInput`]), with
//! the verbs that change the state for them; the outcomes of calls ([`CallOutcome`]); and the records for `tracing` ([`diagnose`]).

mod alarms;
mod call_outcome;
mod call_slot;
mod counters;
pub(crate) mod diagnose;
mod input_request;
mod list_changes;
mod resource_updates;
pub(crate) mod rounds;
mod served_call;
mod served_call_slot;
mod shared;
mod span;
mod subscriptions;

pub(crate) use alarms::Alarmed;
pub use call_outcome::{CallError, CallOutcome, ListFailed};
pub(crate) use call_slot::{CallSlot, CallStage, Unread};
pub use counters::Counters;
pub(crate) use list_changes::ListKind;
#[cfg(any(test, feature = "testing"))]
pub(crate) use served_call::polls;
pub(crate) use served_call::{AlarmWait, AnswerWait};
pub(crate) use served_call_slot::{Leftover, ServedCallSlot};
pub(crate) use shared::{EffectSetup, ServedCall, ServedInput, Shared, State};
pub(crate) use span::Span;
