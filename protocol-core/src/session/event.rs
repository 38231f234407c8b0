//! The events of a session, and the reasons in them.

use alloc::boxed::Box;
use core::fmt;

use super::ids::{AlarmId, InboundId, InputKey, OutboundId};
use super::route::Lane;
use crate::dialect::tesseron::ResumeCredentials;
use crate::dialect::{Caller, InputRequest, InputResponse, LogRecord, Notification, PeerInfo, Progress, Request};
use crate::error::{MemberFault, RpcError, Unreadable, Violation};
use crate::json::{Json, Text};

/// An event of a session. Events are polled in the order in which they occur. All events of an outbound call come before its
/// [`Event::Done`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The peer's handshake request was answered with a result, or the peer has answered our handshake request or our probe. The peer's
    /// requests are served from now on; a server serves stateless requests without this event. Requests of ours may still be held until the
    /// peer has confirmed the handshake: see [`Session::is_ready`](crate::Session::is_ready). If a client of MCP makes another handshake,
    /// the event comes again, with the peer of later requests.
    Ready(Box<PeerInfo>),
    /// An app has sent its hello or its resume, and the owner must accept or refuse it with [`crate::Session::welcome`]. This event comes
    /// only at a Tesseron gateway whose configuration does not set the answer in advance.
    HandshakeRequest {
        /// The app that has sent the handshake request.
        peer: Box<PeerInfo>,
        /// The credentials of the earlier session that the app asks to resume; `None` if the app has sent a hello.
        resume: Option<ResumeCredentials>,
    },
    /// The identity or the capabilities of the peer have changed, also for calls that run: a Tesseron session was claimed.
    PeerChanged(Box<PeerInfo>),
    /// The peer has sent a request. The owner must end it with [`crate::Session::respond`] or [`crate::Session::finish_round`]. Once
    /// [`Event::Cancelled`] has come, only `respond` ends it.
    Request {
        /// The id of the call, for the methods of a callee.
        id: InboundId,
        /// The request.
        request: Request,
        /// The caller of the request, and the metadata of the request.
        caller: Caller,
        /// The number of sampling requests that the call is nested in.
        depth: u8,
        /// `true` if the peer asked for progress. Always `true` for an action of Tesseron, and always `false` for a subscription.
        observed: bool,
    },
    /// An inbound call was cancelled, and its handler should stop. No response of the handler will be sent. The methods that act on the
    /// call fail for `id`; [`crate::Session::respond`] returns [`crate::NotLive`]. The event comes at most once for an id. The call counts
    /// as in flight until the owner calls `respond` to tell that the handler has ended.
    Cancelled {
        /// The call.
        id: InboundId,
        /// The cause.
        why: CancelReason,
    },
    /// The answer to an input request of [`crate::Session::request_input`]. The event does not come if the call ends first, or after
    /// [`crate::Session::abandon_input`].
    Input {
        /// The call that the input request belongs to.
        id: InboundId,
        /// The input request.
        key: InputKey,
        /// The answer, or the reason why there is none. For [`InputRequest::Confirm`], a missing or invalid answer counts as no.
        answer: Result<InputResponse, InputFailed>,
    },
    /// The peer has sent an input request. Answer with [`crate::Session::provide_input`].
    InputRequested {
        /// The key of the input request, for [`crate::Session::provide_input`].
        key: InputKey,
        /// The outbound call that the input request belongs to, if this is known.
        parent: Option<OutboundId>,
        /// The input request.
        ask: InputRequest,
        /// The sampling depth: at least one more than that of the call for a sampling request, and at least that of the call for any other
        /// input request.
        depth: u8,
    },
    /// An input request of the peer no longer needs an answer: the peer took it back, its call ended, the lane that it came by or the
    /// channel is lost, or the session closes.
    InputGone {
        /// The input request.
        key: InputKey,
    },
    /// The peer has reported progress of an outbound call.
    Progress {
        /// The call.
        id: OutboundId,
        /// Its progress.
        progress: Progress,
    },
    /// An outbound call has settled. The event comes exactly once for each id.
    Done {
        /// The call.
        id: OutboundId,
        /// The outcome.
        outcome: Outcome,
        /// The last partial result that the peer has sent, if the call has no result.
        partial: Option<Json>,
        /// The last progress update that was accepted.
        last: Option<Box<Progress>>,
    },
    /// The peer has sent a log record.
    Log(LogRecord),
    /// The peer has sent a notification that belongs to no call.
    Notification(Notification),
    /// An alarm of [`crate::Session::set_alarm`] is due.
    Alarm(AlarmId),
    /// The peer broke a rule. The session goes on, except after [`Violation::FrameTooLarge`] on the channel, and after a handshake request
    /// of a version that this end does not speak.
    Violation(Violation),
    /// The peer has sent a frame that is not JSON or is nested too deep, or that should have answered our handshake request or our probe,
    /// and is no message. The violation is counted, and this event replaces [`Event::Violation`]. If the frame answers a call or an input
    /// request of ours, that ends instead, as [`Invalid::Unreadable`] or [`InputFailed::Invalid`], after an [`Event::Violation`]. The event
    /// also comes for a response with an id that is none of ours ([`Violation::UnknownResponse`]) while a request is open that it may have
    /// been meant for: it ends nothing.
    Unreadable(Box<Unreadable>),
    /// The peer answered our handshake request, or our probe, with this error. [`Event::Closed`] follows.
    HandshakeRefused(RpcError),
    /// The session has closed a lane other than the channel. The calls that came by the lane are cancelled, and the input requests that
    /// were open on it are dropped. No frame is sent on the lane any longer. The session goes on.
    LaneClosed {
        /// The lane, which the transport should close.
        lane: Lane,
        /// The reason.
        reason: CloseReason,
    },
    /// The session has closed. The event comes once, as the last event.
    Closed(CloseReason),
}

impl Event {
    /// The rule that the peer broke, if this is [`Event::Violation`] or [`Event::Unreadable`].
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        match self {
            Self::Violation(rule) => Some(*rule),
            Self::Unreadable(frame) => Some(frame.rule),
            _ => None,
        }
    }
}

/// The outcome of an outbound call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The peer sent this result, which is exactly as it arrived.
    Result(Json),
    /// The peer sent an error.
    Error(RpcError),
    /// This end cancelled the call.
    Cancelled,
    /// The call reached a time limit. A cancel was sent if the request had been polled and had no response yet, and the protocol has a
    /// cancel for the request.
    TimedOut(TimeoutKind),
    /// The channel, or the stream that was to carry the response, ended before the response; or the peer cancelled a subscription of ours.
    /// If the request was polled, it is unknown whether the peer did the work.
    Lost,
    /// The call could not be sent, or its response cannot be read or asks for input that this end may not give.
    Invalid(Invalid),
    /// The peer asked for input in a round, and no retry was sent (MCP 2026-07-28): either this end refused to sample or to list its roots,
    /// which a retry cannot express, or the retry would be longer than a frame may be. The error is this end's own.
    Unanswered(RpcError),
}

/// The time limit that a call reached; see [`crate::CallTimeouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// The idle clock ran out: see [`crate::CallTimeouts::idle`].
    Idle,
    /// The call took longer than [`crate::CallTimeouts::max_total`], not counting the time in which its input requests were open.
    MaxTotal,
}

/// The reason why a call ended without a usable response of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// The response is neither a result of the right shape nor a valid error. Or it is a round that is malformed, that needs a capability
    /// which this end did not declare, or that has too many input requests ([`crate::Limits::in_flight`]). Or it is in a frame that is no
    /// message: it is not JSON or nested too deep, repeats a member, has neither a result nor an error, or is a batch in a revision without
    /// batches. The rule in the description says which.
    Unreadable(Box<Unreadable>),
    /// The call was held for the handshake and then not sent: the peer did not declare the capability that the call needs, the revision
    /// that the handshake chose cannot express the call or makes it too large ([`SendError::TooLarge`](crate::SendError::TooLarge)), or the
    /// call changes a subscription and too much output was queued to send it. Or the call was sent, and the peer did not agree to a
    /// subscription to the resource.
    Unsupported,
    /// The peer asked for input in more rounds than [`crate::Limits::input_rounds`] (MCP 2026-07-28).
    TooManyRounds,
    /// The peer asked for sampling that would be nested deeper than [`crate::DepthPolicy::max`] (MCP 2026-07-28).
    TooDeep,
}

/// The cause of the cancel of an inbound call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The caller cancelled the call, with this reason if it gave one.
    Peer(Option<Text>),
    /// The deadline of the call has passed.
    Deadline,
    /// The channel, or the lane of the call, has ended.
    Disconnected,
    /// This end closed the session.
    Closing,
    /// The caller has sent a newer request of the same call, which replaces this one (MCP 2026-07-28). A session never cancels for this
    /// reason; an endpoint does.
    Replaced,
}

/// The reason why an input request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFailed {
    /// The caller answered with an error.
    Refused(RpcError),
    /// The answer has the wrong shape. The text names the fault and, in the answer to a form, the field. A name that the caller chose is
    /// escaped and cut to 64 characters.
    Invalid(Text),
    /// No answer came within [`crate::Timeouts::input`].
    TimedOut,
    /// The channel has ended.
    Lost,
}

/// The reason why a session closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner called [`crate::Session::close`].
    Local,
    /// The peer ended its side.
    Eof,
    /// The transport failed.
    Failed,
    /// The handshake took too long.
    HandshakeTimeout,
    /// The peer refused the handshake.
    HandshakeRefused,
    /// The peer refused the request for its revisions, with which a client of MCP finds out whether it needs a handshake.
    ProbeRefused,
    /// This end refused the answer of the peer to the handshake or to the request for its revisions, because of this member of the answer.
    AnswerInvalid(&'static str, MemberFault),
    /// The two ends have no revision of the protocol in common.
    VersionMismatch,
    /// The peer sent a frame over the size limit.
    FrameTooLarge,
    /// The peer does not read: [`crate::Limits::unsolicited_replies`] replies were queued for too long, or more than
    /// [`crate::Limits::output_bytes_hard`] bytes were queued.
    Overload,
}

/// So that `?` converts it where a session that has closed is a failure.
impl core::error::Error for CloseReason {}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnswerInvalid(member, fault) => {
                return write!(f, "this end refused the peer's answer to the handshake: `{member}` {fault}");
            }
            Self::Local => "closed by this end",
            Self::Eof => "the peer ended the connection",
            Self::Failed => "the transport failed",
            Self::HandshakeTimeout => "the peer did not answer the handshake in time",
            Self::HandshakeRefused => "the peer refused the handshake",
            Self::ProbeRefused => "the peer refused the request for its revisions",
            Self::VersionMismatch => "no protocol revision is common to both ends",
            Self::FrameTooLarge => "the peer sent a frame over the size limit",
            Self::Overload => "the peer does not read our replies",
        })
    }
}
