//! Sessions that are broken on purpose, each in one way. A test that does not fail for them tests nothing: run your test over
//! [`Fault::ALL`]. Some faults have an effect only with many lanes, with stateless requests, or at a client that is asked for input in
//! rounds: [`Fault::is_of_lanes`], [`Fault::is_stateless`], [`Fault::is_of_rounds`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use protocol_core::mcp::Era;
use protocol_core::{
    Caller, Event, ExchangeId, Full, Gone, Instant, Lane, NotLive, Received, ReplyKind, RouteKind, Session, Stats, Transmit,
    TransportEnd,
};

use crate::{Guarantee, Subject};

/// A fault of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The event that a call is done is lost.
    LosesDone,
    /// `Done` is returned twice for one call.
    RepeatsDone,
    /// A response or a cancel is sent twice.
    RepeatsFrames,
    /// A progress update is sent twice.
    RepeatsProgress,
    /// One more event is returned after `Closed`.
    EventAfterClosed,
    /// There is still a deadline after `Closed`.
    DeadlineAfterClosed,
    /// The counter of queued bytes exceeds its limit while a frame is queued.
    ExceedsOutputLimit,
    /// A cancel of the peer causes a panic.
    Panics,
    /// `poll_timeout` returns a time that has passed.
    HotLoop,
    /// A deadline passes and nothing happens.
    MissesDeadlines,
    /// Frames that a method of the owner has queued can be polled only after `handle_timeout`.
    DelaysOutput,
    /// A frame that comes after the deadline of a call ends the call, without `handle_timeout`.
    ExpiresOnFrames,
    /// The frames depend on the number of sessions that the process has made.
    Nondeterministic,
    /// A response is taken for the response to another call.
    MixesIds,
    /// An id that is a string is read as the number in it.
    IgnoresIdTypes,
    /// The event of an input request of the peer has a depth above the maximum.
    ExceedsDepth,
    /// Results are parsed and serialized again.
    RewritesResults,
    /// Each frame is answered with a notification, without end.
    NotifiesOnEachFrame,
    /// A frame is sent on the wrong lane.
    MixesLanes,
    /// Frames are sent on a stopped lane.
    IgnoresStops,
    /// Frames are sent on a lost lane.
    IgnoresLosses,
    /// The route of an error reply has the kind of a refusal.
    MixesReplyKinds,
    /// `handle_frame` returns a greater number of replies than will be sent.
    MiscountsReplies,
    /// A server without a handshake sends a request.
    AsksWithoutHandshake,
    /// A client without a handshake answers a request.
    AnswersWithoutHandshake,
    /// A notification of a subscription is sent after the result that ends the subscription.
    NoticeAfterResult,
    /// The event of a stateless request names the caller of the request before it.
    MixesCallers,
    /// A subscription gets a notification of a resource that it did not ask for.
    MixesSubscriptions,
    /// A retry has the state of an earlier round.
    RepeatsStates,
    /// A retry has an answer that its round did not ask for.
    RepeatsAnswers,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 30] = [
        Self::LosesDone,
        Self::RepeatsDone,
        Self::RepeatsFrames,
        Self::RepeatsProgress,
        Self::EventAfterClosed,
        Self::DeadlineAfterClosed,
        Self::ExceedsOutputLimit,
        Self::Panics,
        Self::HotLoop,
        Self::MissesDeadlines,
        Self::DelaysOutput,
        Self::ExpiresOnFrames,
        Self::Nondeterministic,
        Self::MixesIds,
        Self::IgnoresIdTypes,
        Self::ExceedsDepth,
        Self::RewritesResults,
        Self::NotifiesOnEachFrame,
        Self::MixesLanes,
        Self::IgnoresStops,
        Self::IgnoresLosses,
        Self::MixesReplyKinds,
        Self::MiscountsReplies,
        Self::AsksWithoutHandshake,
        Self::AnswersWithoutHandshake,
        Self::NoticeAfterResult,
        Self::MixesCallers,
        Self::MixesSubscriptions,
        Self::RepeatsStates,
        Self::RepeatsAnswers,
    ];

    /// The guarantee that this fault breaks. `None` for [`Self::NotifiesOnEachFrame`], with which a world never comes to rest.
    #[must_use]
    pub const fn breaks(self) -> Option<Guarantee> {
        Some(match self {
            Self::LosesDone | Self::RepeatsDone => Guarantee::DoneOnce,
            Self::RepeatsFrames => Guarantee::OneResponse,
            Self::RepeatsProgress => Guarantee::ProgressRises,
            Self::EventAfterClosed | Self::DeadlineAfterClosed => Guarantee::SilentAfterClosed,
            Self::ExceedsOutputLimit => Guarantee::Bounded,
            Self::Panics => Guarantee::NeverPanics,
            Self::HotLoop | Self::MissesDeadlines => Guarantee::NoHotLoop,
            Self::DelaysOutput => Guarantee::OutputReady,
            Self::ExpiresOnFrames => Guarantee::OnlyTimeoutExpires,
            Self::Nondeterministic => Guarantee::Deterministic,
            Self::MixesIds | Self::IgnoresIdTypes => Guarantee::TypedIds,
            Self::ExceedsDepth => Guarantee::DepthBounded,
            Self::RewritesResults => Guarantee::PayloadUnchanged,
            Self::MixesLanes | Self::IgnoresStops | Self::IgnoresLosses | Self::MixesReplyKinds | Self::MiscountsReplies => {
                Guarantee::RightLane
            }
            Self::AsksWithoutHandshake | Self::AnswersWithoutHandshake | Self::NoticeAfterResult => Guarantee::OneDirection,
            Self::RepeatsStates | Self::RepeatsAnswers => Guarantee::RoundsApart,
            Self::MixesCallers | Self::MixesSubscriptions => Guarantee::CallersApart,
            Self::NotifiesOnEachFrame => return None,
        })
    }

    /// Returns `true` if the fault has an effect only with many lanes.
    #[must_use]
    pub const fn is_of_lanes(self) -> bool {
        matches!(self, Self::MixesLanes | Self::IgnoresStops | Self::IgnoresLosses)
    }
}

impl Fault {
    /// Returns `true` if the fault has an effect only at a server with stateless requests.
    #[must_use]
    pub const fn is_of_callers(self) -> bool {
        matches!(self, Self::AsksWithoutHandshake | Self::NoticeAfterResult | Self::MixesCallers | Self::MixesSubscriptions)
    }

    /// Returns `true` if the fault has an effect only where requests are stateless, at either end.
    #[must_use]
    pub const fn is_stateless(self) -> bool {
        self.is_of_callers() || matches!(self, Self::AnswersWithoutHandshake)
    }

    /// Returns `true` if the fault has an effect only at a client that is asked for input in rounds.
    #[must_use]
    pub const fn is_of_rounds(self) -> bool {
        matches!(self, Self::RepeatsStates | Self::RepeatsAnswers)
    }
}

/// The number of broken sessions that this process has made.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// A session with a fault.
#[derive(Clone, Debug)]
pub struct Broken {
    session: Session,
    fault: Fault,
    /// Frames that the fault adds or repeats.
    frames: VecDeque<Transmit>,
    /// Events that the fault repeats.
    events: VecDeque<Event>,
    /// `false` from the last [`Subject::session_mut`] to the next [`Subject::handle_timeout`].
    output_ready: bool,
    /// The time of the last [`Subject::handle_timeout`].
    last_timeout: Instant,
    /// The lane on which the newest frame arrived.
    newest_lane: Lane,
    /// The caller of the newest request.
    caller: Option<Caller>,
    /// The state and the answers of the last retry.
    last_retry: Option<[serde_json::Value; 2]>,
    /// `true` once [`Event::Closed`] was returned.
    closed: bool,
    /// The value of [`MADE`] when this session was made.
    number: usize,
}

impl Broken {
    /// A session with one fault.
    #[must_use]
    pub fn new(session: Session, fault: Fault) -> Self {
        let (frames, events) = Default::default();
        Self {
            session,
            fault,
            frames,
            events,
            output_ready: true,
            last_timeout: Instant::ZERO,
            newest_lane: Lane::CHANNEL,
            caller: None,
            last_retry: None,
            closed: false,
            number: MADE.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Replaces the state of a retry by that of the retry before it, or adds the answers of that earlier retry.
    fn repeat_round(&mut self, out: &mut Transmit) {
        let Ok(mut frame) = serde_json::from_slice::<serde_json::Value>(&out.frame) else { return };
        let own = ["requestState", "inputResponses"].map(|name| frame["params"][name].clone());
        if own.iter().all(serde_json::Value::is_null) {
            return;
        }
        if let Some([state, answers]) = &self.last_retry {
            match (self.fault, answers.as_object()) {
                (Fault::RepeatsAnswers, Some(answers)) => {
                    answers.iter().for_each(|(name, answer)| frame["params"]["inputResponses"][name] = answer.clone());
                }
                _ => frame["params"]["requestState"] = state.clone(),
            }
        }
        self.last_retry = Some(own);
        out.frame = frame.to_string().into();
    }

    fn text(frame: &Bytes) -> &str {
        std::str::from_utf8(frame).unwrap_or_default()
    }
}

/// An empty result for a request.
fn answer(request: &str) -> Option<String> {
    let request: serde_json::Value = serde_json::from_str(request).ok()?;
    Some(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, request.get("id")?))
}

/// A notification of the subscription that is ended by `result`.
fn notice_after(result: &str) -> Option<String> {
    const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    let frame: serde_json::Value = serde_json::from_str(result).ok()?;
    let id = frame["result"]["_meta"].get(SUBSCRIPTION)?;
    Some(format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"{SUBSCRIPTION}":{id}}}}}}}"#
    ))
}

fn is_cancel(text: &str) -> bool {
    ["notifications/cancelled", "actions/cancel"].iter().any(|method| text.contains(method))
}

impl Subject for Broken {
    fn session(&self) -> &Session {
        &self.session
    }

    fn session_mut(&mut self) -> &mut Session {
        self.output_ready = false;
        &mut self.session
    }

    fn handle_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        let text = Self::text(&frame);
        self.newest_lane = lane;
        match self.fault {
            Fault::ExpiresOnFrames => self.session.handle_timeout(now),
            Fault::Panics if is_cancel(text) => panic!("a cancel"),
            Fault::IgnoresIdTypes if text.starts_with(r#"{"jsonrpc":"2.0","id":""#) => {
                let untyped = text.replacen(r#""id":""#, r#""id":"#, 1).replacen(r#"","result""#, r#","result""#, 1);
                return self.session.handle_frame(untyped.into(), lane, now);
            }
            Fault::MixesIds if text.contains(r#""id":3,"result""#) => {
                let other = text.replace(r#""id":3"#, r#""id":2"#);
                return self.session.handle_frame(other.into(), lane, now);
            }
            Fault::RewritesResults if [r#""result":{"content""#, r#""output":{"#].iter().any(|result| text.contains(result)) => {
                let parsed: Option<serde_json::Value> = serde_json::from_str(text).ok();
                return self.session.handle_frame(parsed.map_or(frame, |parsed| parsed.to_string().into()), lane, now);
            }
            Fault::NotifiesOnEachFrame if self.session.is_ready() => {
                let more = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
                self.frames.push_back(Transmit::new(more));
            }
            Fault::AsksWithoutHandshake if text.contains(r#""method":"tools/call""#) && text.contains("/protocolVersion") => {
                let id = 1_000_000 + self.number as u64;
                let mut out = Transmit::new(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into());
                out.route.kind = RouteKind::Request(ExchangeId::from_number(id));
                self.frames.push_back(out);
            }
            Fault::AnswersWithoutHandshake if self.session.era() == Some(Era::Modern) && text.contains(r#""method""#) => {
                self.frames.extend(answer(text).map(|answer| {
                    let mut out = Transmit::new(answer.into());
                    out.route.kind = RouteKind::Reply(ReplyKind::Result);
                    out
                }));
            }
            _ => {}
        }
        let mut received = self.session.handle_frame(frame, lane, now)?;
        if self.fault == Fault::MiscountsReplies && received.replies > 0 {
            received.replies += 1;
        }
        Ok(received)
    }

    fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        self.session.set_writable(lane, is_writable || self.fault == Fault::IgnoresStops, now)
    }

    fn lose_lane(&mut self, lane: Lane, now: Instant) -> Result<(), NotLive> {
        match self.fault {
            Fault::IgnoresLosses => self.session.set_writable(lane, true, now),
            _ => self.session.handle_gone(Gone::Lane(lane), now),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.output_ready = true;
        self.last_timeout = now;
        if self.fault != Fault::MissesDeadlines {
            self.session.handle_timeout(now);
        }
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.session.handle_end(end, now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        if let Some(extra) = self.frames.pop_front() {
            return Some(extra);
        }
        if self.fault == Fault::DelaysOutput && !self.output_ready {
            return None;
        }
        let mut out = self.session.poll_transmit()?;
        match (self.fault, out.route.kind) {
            (Fault::MixesLanes, RouteKind::Reply(_) | RouteKind::Within) => out.route.lane = self.newest_lane,
            (Fault::MixesReplyKinds, RouteKind::Reply(ReplyKind::Error)) => out.route.kind = RouteKind::Reply(ReplyKind::Refused),
            _ => {}
        }
        if self.fault == Fault::MixesSubscriptions && Self::text(&out.frame).contains(r#""notifications/resources/updated""#) {
            out.frame = Self::text(&out.frame).replacen(r#""uri":""#, r#""uri":"another-"#, 1).into();
        }
        if self.fault.is_of_rounds() {
            self.repeat_round(&mut out);
        }
        if self.fault == Fault::Nondeterministic {
            let blanks = " ".repeat(self.number % 7);
            out.frame = [&out.frame[..], blanks.as_bytes()].concat().into();
        }
        if self.fault == Fault::NoticeAfterResult {
            self.frames.extend(notice_after(Self::text(&out.frame)).map(|notification| {
                let mut transmit = Transmit::new(notification.into());
                (transmit.route.lane, transmit.route.kind) = (out.route.lane, RouteKind::Within);
                transmit
            }));
        }
        let text = Self::text(&out.frame);
        let repeats = match self.fault {
            Fault::RepeatsFrames => !text.contains(r#""method""#) || is_cancel(text),
            Fault::RepeatsProgress => ["notifications/progress", "actions/progress"].iter().any(|method| text.contains(method)),
            _ => false,
        };
        if repeats {
            self.frames.push_back(out.clone());
        }
        Some(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        let mut event = self.events.pop_front().or_else(|| self.session.poll_event())?;
        if let (Event::Request { caller, .. }, Fault::MixesCallers) = (&mut event, self.fault) {
            let previous = self.caller.replace(caller.clone());
            *caller = previous.unwrap_or_else(|| caller.clone());
        }
        match (&event, self.fault) {
            (Event::InputRequested { .. }, Fault::ExceedsDepth) => {
                let Event::InputRequested { key, parent, ask, .. } = event else { return Some(event) };
                return Some(Event::InputRequested { key, parent, ask, depth: u8::MAX });
            }
            (Event::Done { .. }, Fault::LosesDone) => return self.session.poll_event(),
            (Event::Done { .. }, Fault::RepeatsDone) => self.events.push_back(event.clone()),
            (Event::Closed(_), Fault::EventAfterClosed) => self.events.push_back(event.clone()),
            (Event::Closed(_), _) => self.closed = true,
            _ => {}
        }
        Some(event)
    }

    fn stats(&self) -> Stats {
        let mut stats = self.session.stats();
        if self.fault == Fault::ExceedsOutputLimit && stats.queued_bytes > 0 {
            stats.queued_bytes += self.session.config().limits.output_bytes_hard;
        }
        stats
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.fault {
            Fault::HotLoop if self.last_timeout > Instant::ZERO => self.session.poll_timeout().map(|at| at.min(self.last_timeout)),
            Fault::DeadlineAfterClosed if self.closed => Some(Instant::from_micros(u64::MAX)),
            _ => self.session.poll_timeout(),
        }
    }
}
