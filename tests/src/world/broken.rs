//! Sessions that are broken on purpose, one way each: what watches a session must object to every one of them, or it watches nothing.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol_core::{Event, Full, Gone, Instant, Lane, NotLive, Received, ReplyKind, RouteKind, Session, Transmit, TransportEnd};

use super::check::Subject;

/// What is wrong with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A call is never said to be done.
    LosesDone,
    /// A call is done twice.
    RepeatsDone,
    /// A response or a cancel leaves twice.
    RepeatsFrames,
    /// Progress leaves a second time.
    RepeatsProgress,
    /// After the end there is one more event.
    SpeaksAfterTheEnd,
    /// After the end there is still a deadline.
    WaitsAfterTheEnd,
    /// Its deadline is due already.
    HotLoop,
    /// Output waits for `handle_timeout`.
    HoldsOutput,
    /// A frame that comes late finds its call timed out.
    ExpiresOnFrames,
    /// Results are parsed and written anew.
    RewritesResults,
    /// A response arrives as if it were of another call.
    MixesIds,
    /// Eof is taken for a failure.
    FailsOnEof,
    /// A deadline passes and nothing happens.
    MissesDeadlines,
    /// A cancel of the peer is not heard.
    IgnoresCancels,
    /// Each frame is answered with news, for ever.
    Chatters,
    /// A frame leaves by another lane than the one that it belongs to.
    MixesLanes,
    /// A lane that is stopped goes on.
    IgnoresStops,
    /// A lane that is gone is none to it.
    IgnoresLosses,
    /// A reply is taken for a refusal.
    MixesParts,
    /// A lane is owed more than it will get.
    Miscounts,
}

impl Fault {
    /// Every fault, with the guarantee that a judge without a model objects by; empty where only the model can tell.
    pub const ALL: [(Self, &str); 20] = [
        (Self::LosesDone, "G1"),
        (Self::RepeatsDone, "G1"),
        (Self::RepeatsFrames, "G2"),
        (Self::RepeatsProgress, "G3"),
        (Self::SpeaksAfterTheEnd, "G4"),
        (Self::WaitsAfterTheEnd, "G4"),
        (Self::HotLoop, "G7"),
        (Self::HoldsOutput, ""),
        (Self::ExpiresOnFrames, ""),
        (Self::RewritesResults, "G13"),
        (Self::MixesIds, ""),
        (Self::FailsOnEof, ""),
        (Self::MissesDeadlines, "G7"),
        (Self::IgnoresCancels, ""),
        (Self::Chatters, "livelock"),
        (Self::MixesLanes, "routes"),
        (Self::IgnoresStops, "routes"),
        (Self::IgnoresLosses, "routes"),
        (Self::MixesParts, "routes"),
        (Self::Miscounts, "routes"),
    ];

    /// Returns `true` if it shows only where there are many lanes.
    #[must_use]
    pub const fn is_of_lanes(self) -> bool {
        matches!(self, Self::MixesLanes | Self::IgnoresStops | Self::IgnoresLosses)
    }
}

/// A session with a fault.
#[derive(Clone, Debug)]
pub struct Broken {
    session: Session,
    fault: Fault,
    frames: VecDeque<Transmit>,
    events: VecDeque<Event>,
    released: bool,
    timed: Instant,
    /// The lane of the newest frame.
    newest: Lane,
    over: bool,
}

impl Broken {
    /// Breaks a session.
    #[must_use]
    pub fn new(session: Session, fault: Fault) -> Self {
        let (frames, events) = Default::default();
        Self { session, fault, frames, events, released: true, timed: Instant::ZERO, newest: Lane::CHANNEL, over: false }
    }

    fn text(frame: &Bytes) -> &str {
        std::str::from_utf8(frame).unwrap_or_default()
    }
}

fn is_cancel(text: &str) -> bool {
    ["notifications/cancelled", "actions/cancel"].iter().any(|method| text.contains(method))
}

impl Subject for Broken {
    fn session(&self) -> &Session {
        &self.session
    }

    fn session_mut(&mut self) -> &mut Session {
        self.released = false;
        &mut self.session
    }

    fn handle_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        let text = Self::text(&frame);
        self.newest = lane;
        match self.fault {
            Fault::ExpiresOnFrames => self.session.handle_timeout(now),
            Fault::IgnoresCancels if is_cancel(text) => return Ok(Received::default()),
            Fault::MixesIds if text.contains(r#""id":3,"result""#) => {
                let other = text.replace(r#""id":3"#, r#""id":2"#);
                return self.session.handle_frame(other.into(), lane, now);
            }
            Fault::RewritesResults if [r#""result":{"content""#, r#""output":{"#].iter().any(|result| text.contains(result)) => {
                let anew: Option<serde_json::Value> = serde_json::from_str(text).ok();
                return self.session.handle_frame(anew.map_or(frame, |anew| anew.to_string().into()), lane, now);
            }
            Fault::Chatters if self.session.is_ready() => {
                let news = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
                self.frames.push_back(Transmit::new(news));
            }
            _ => {}
        }
        let mut received = self.session.handle_frame(frame, lane, now)?;
        if self.fault == Fault::Miscounts && received.replies > 0 {
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
        self.released = true;
        self.timed = now;
        if self.fault != Fault::MissesDeadlines {
            self.session.handle_timeout(now);
        }
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        let end = if self.fault == Fault::FailsOnEof { TransportEnd::Failed } else { end };
        self.session.handle_end(end, now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        if let Some(again) = self.frames.pop_front() {
            return Some(again);
        }
        if self.fault == Fault::HoldsOutput && !self.released {
            return None;
        }
        let mut out = self.session.poll_transmit()?;
        match (self.fault, out.route.kind) {
            (Fault::MixesLanes, RouteKind::Reply(_) | RouteKind::Within) => out.route.lane = self.newest,
            (Fault::MixesParts, RouteKind::Reply(ReplyKind::Error)) => out.route.kind = RouteKind::Reply(ReplyKind::Refused),
            _ => {}
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
        let event = self.events.pop_front().or_else(|| self.session.poll_event())?;
        match (&event, self.fault) {
            (Event::Done { .. }, Fault::LosesDone) => return self.session.poll_event(),
            (Event::Done { .. }, Fault::RepeatsDone) => self.events.push_back(event.clone()),
            (Event::Closed(_), Fault::SpeaksAfterTheEnd) => self.events.push_back(event.clone()),
            (Event::Closed(_), _) => self.over = true,
            _ => {}
        }
        Some(event)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.fault {
            Fault::HotLoop if self.timed > Instant::ZERO => self.session.poll_timeout().map(|at| at.min(self.timed)),
            Fault::WaitsAfterTheEnd if self.over => Some(Instant::from_micros(u64::MAX)),
            _ => self.session.poll_timeout(),
        }
    }
}
