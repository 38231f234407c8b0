//! The other end of a channel, and the links to it, for the test of an event loop.

use std::time::Duration;

use bytes::{Buf, Bytes};
use protocol_core::FrameSink as _;
use protocol_core::lines::{LineDecoder, LineEncoder};
use protocol_core::{
    Close, Config, Event, InputResponse, Instant, Invoke, Lane, Op, Progress, Protocol, Reply, RpcError, SampleResult, Session,
    ToolOutput, TransportEnd, mcp, tesseron,
};

use crate::config::{agent, agent_capabilities};
use crate::link::{Arrival, Faults, LinkBroken, Read, SimLink, SimStream};
use crate::scripted::json;
use crate::{Coverage, ODD, Rng, Watched};

/// A peer with random calls, cancels, updates and answers, at the other end of two links with faults. An event loop under test uses it as
/// its transport.
///
/// The peer is a [`Watched`] session: its actions are legal, but the links may change its frames. After a number of actions it closes, so
/// that every run ends.
///
/// ```
/// use protocol_core::{Event, Instant, Lane, Reply, Session, ToolOutput};
/// use testkit::link::{Arrival, Faults};
/// use testkit::{Campaign, FarEnd, Happening, Watched, config};
///
/// /// One turn of the loop under test.
/// fn turn(session: &mut Watched, link: &mut FarEnd, now: Instant) {
///     while let Some(arrival) = link.receive(now) {
///         match arrival {
///             Arrival::Message(frame) => drop(session.handle_frame(frame, Lane::CHANNEL, now).expect("events are polled each turn")),
///             Arrival::End(end) => session.handle_end(end, now),
///         }
///     }
///     session.handle_timeout(now);
///     while let Some(event) = session.poll_event() {
///         if let Event::Request { id, .. } = event {
///             let _ = session.respond(id, Reply::Tool(ToolOutput::text("ok")), now);
///         }
///     }
///     while let Some(out) = session.poll_transmit() {
///         link.send(&out.frame, now);
///     }
/// }
///
/// let mut campaign = Campaign::new(&[Happening::Request, Happening::Violation]);
/// campaign.run(0..20, 0, |case| {
///     let mut link = FarEnd::new(config::client_config(), Faults::hostile(), case.seed);
///     let mut session = Watched::new(Session::new(config::server_config(), Instant::ZERO), Instant::ZERO);
///     session.judge_mut().distrust_peer();
///     link.run(|link, now| {
///         turn(&mut session, link, now);
///         session.poll_timeout()
///     });
///     session.check_end();
///     session.coverage().clone()
/// });
/// campaign.finish();
/// ```
#[derive(Debug)]
pub struct FarEnd {
    session: Watched,
    /// The link from the loop to this end, and the link back.
    links: Links,
    rng: Rng,
    /// The number of actions that are left before this end closes.
    actions: u32,
    next_action: Instant,
    now: Instant,
    is_caller: bool,
    /// `true` once this end has ended the link to the loop.
    hung_up: bool,
    /// `true` if the loop has read or sent something in this turn.
    was_active: bool,
}

/// The links between a loop and its far end.
#[derive(Debug)]
enum Links {
    Messages(Box<[SimLink; 2]>),
    Bytes(Box<Streams>),
}

#[derive(Debug)]
struct Streams {
    streams: [SimStream; 2],
    decoder: LineDecoder,
    encoder: LineEncoder,
    /// `true` once the end of the direction from the loop was passed to the session.
    has_seen_end: bool,
    /// `true` if the direction to the loop must end once the encoder is empty.
    must_end: bool,
}

/// The number of bytes that a stream holds in flight, which is less than the length of most frames.
const STREAM: usize = 96;
/// The maximum number of turns of a loop at one instant.
const TURNS: usize = 1_000;
/// The maximum number of instants in one run.
const INSTANTS: usize = 100_000;

impl FarEnd {
    /// Makes an end with this configuration, two links with these faults, and 60 actions drawn from `seed`. The loop sends and receives
    /// whole messages: [`send`](Self::send), [`receive`](Self::receive).
    #[must_use]
    pub fn new(config: Config, faults: Faults, seed: u64) -> Self {
        let links = [seed, !seed].map(|seed| {
            let mut link = SimLink::new(seed);
            link.faults = faults;
            link
        });
        Self::with_links(config, Links::Messages(Box::new(links)), seed)
    }

    /// An end like that of [`new`](Self::new) for a loop that writes and reads bytes: [`write`](Self::write), [`read`](Self::read). The
    /// frames are lines, as on stdin and stdout. A stream holds 96 bytes in flight, so that long frames are written in pieces.
    #[must_use]
    pub fn bytes(config: Config, faults: Faults, seed: u64) -> Self {
        let streams = [seed, !seed].map(|seed| {
            let mut stream = SimStream::new(seed, STREAM);
            stream.faults = faults;
            stream
        });
        let (decoder, encoder) = (LineDecoder::new(1 << 20), LineEncoder::new());
        let streams = Streams { streams, decoder, encoder, has_seen_end: false, must_end: false };
        Self::with_links(config, Links::Bytes(Box::new(streams)), seed)
    }

    fn with_links(config: Config, links: Links, seed: u64) -> Self {
        let is_caller = match &config.protocol {
            Protocol::Mcp { side, .. } => *side == mcp::Side::Client,
            Protocol::Tesseron(end) => matches!(end, tesseron::End::Gateway(_)),
            _ => true,
        };
        let mut session = Watched::new(Session::new(config, Instant::ZERO), Instant::ZERO);
        session.judge_mut().distrust_peer();
        let (rng, now) = (Rng::new(seed), Instant::ZERO);
        Self { session, links, rng, actions: 60, next_action: now, now, is_caller, hung_up: false, was_active: false }
    }

    /// Sets the number of actions before this end closes.
    #[must_use]
    pub fn with_actions(mut self, actions: u32) -> Self {
        self.actions = actions;
        self
    }

    /// Returns `true` if the link from the loop takes a frame or a byte at `now`. While the link stalls, a loop that respects backpressure
    /// keeps what it has; after the stall it gets another turn.
    #[must_use]
    pub fn accepts(&self, now: Instant) -> bool {
        match &self.links {
            Links::Messages(links) => links[0].accepts(now),
            Links::Bytes(bytes) => bytes.streams[0].has_room(now),
        }
    }

    /// Takes a frame of the loop. If the link stalls, it delivers the frame after the stall.
    ///
    /// # Panics
    /// If this end is one for bytes ([`bytes`](Self::bytes)).
    pub fn send(&mut self, frame: &Bytes, now: Instant) {
        self.was_active = true;
        let Links::Messages(links) = &mut self.links else { panic!("this far end takes bytes: `write`") };
        links[0].send(frame, now);
    }

    /// Takes some of these bytes of the loop, and returns their number. Zero means that the link is full, stalls or has ended.
    ///
    /// # Panics
    /// If this end is one for messages ([`new`](Self::new)).
    pub fn write(&mut self, bytes: &[u8], now: Instant) -> usize {
        let Links::Bytes(link) = &mut self.links else { panic!("this far end takes messages: `send`") };
        let taken = link.streams[0].write(bytes, now).unwrap_or_default();
        self.was_active |= taken > 0;
        taken
    }

    /// Ends the direction from the loop to this end.
    pub fn end_link(&mut self, how: TransportEnd, now: Instant) {
        match &mut self.links {
            Links::Messages(links) => links[0].end(how, now),
            Links::Bytes(bytes) => bytes.streams[0].finish(how, now),
        }
    }

    /// Takes a frame for the loop that has arrived by `now`, or the end of the link.
    ///
    /// # Panics
    /// If this end is one for bytes ([`bytes`](Self::bytes)).
    pub fn receive(&mut self, now: Instant) -> Option<Arrival> {
        self.act(now);
        let Links::Messages(links) = &mut self.links else { panic!("this far end sends bytes: `read`") };
        let arrival = links[1].receive(now);
        self.was_active |= arrival.is_some();
        arrival
    }

    /// Takes bytes for the loop that have arrived by `now`, or the end of the link, which is returned again each time.
    ///
    /// # Panics
    /// If this end is one for messages ([`new`](Self::new)).
    pub fn read(&mut self, now: Instant) -> Read {
        self.act(now);
        let Links::Bytes(bytes) = &mut self.links else { panic!("this far end sends messages: `receive`") };
        let read = bytes.streams[1].read(now);
        self.was_active |= matches!(read, Read::Bytes(_));
        read
    }

    /// The next instant at which something happens at this end or on the links, after the last turn; `None` once this end has closed and
    /// all frames have arrived.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let own = if self.session.is_closed() { [None; 2] } else { [self.session.poll_timeout(), Some(self.next_action)] };
        let links: [[Option<Instant>; 2]; 2] = match &self.links {
            Links::Messages(links) => links.each_ref().map(|link| [link.due(), link.resumes(self.now)]),
            Links::Bytes(bytes) => bytes.streams.each_ref().map(|stream| [stream.due(), stream.resumes(self.now)]),
        };
        links.into_iter().flatten().chain(own).flatten().filter(|at| *at > self.now).min()
    }

    /// The counts of happenings at this end.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        self.session.coverage()
    }

    /// Runs a loop in virtual time: calls `turn` at each instant at which something happens, until nothing more can happen. `turn` does all
    /// work of that instant, and returns the next deadline of the loop. It is called again at the same instant if it has read or sent
    /// anything, or if its deadline is not in the future.
    ///
    /// # Panics
    /// If the loop takes 1,000 turns at one instant, or if the run has not ended after 100,000 instants.
    pub fn run(&mut self, mut turn: impl FnMut(&mut Self, Instant) -> Option<Instant>) {
        let mut turns = 0;
        for _ in 0..INSTANTS {
            self.act(self.now);
            let due = turn(self, self.now);
            self.act(self.now);
            // If the loop was active, it may have left arrived frames unread, so it gets another turn at this instant.
            let was_active = std::mem::take(&mut self.was_active);
            let next = if was_active { Some(self.now) } else { self.next() };
            let Some(next) = next.into_iter().chain(due).min() else { return };
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < TURNS, "the loop spins: {turns} turns at {}, and its deadline is {due:?}", self.now);
            self.now = self.now.max(next);
        }
        panic!("the loop does not come to an end: it goes on after {INSTANTS} instants, at {}", self.now);
    }

    /// Does all that this end has to do at `now`: handles frames and deadlines, takes a random action if one is due, and sends frames.
    fn act(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while self.session.wants_input(Lane::CHANNEL)
            && let Some(arrival) = self.links.arrival(now)
        {
            match arrival {
                Arrival::Message(frame) => drop(self.session.handle_frame(frame, Lane::CHANNEL, now).expect("input is wanted")),
                Arrival::End(end) => self.session.handle_end(end, now),
            }
            self.poll(now);
        }
        if self.session.poll_timeout().is_some_and(|due| due <= now) {
            self.session.handle_timeout(now);
        }
        if self.next_action <= now && !self.session.is_closed() {
            self.next_action = now.saturating_add(Duration::from_millis(1 + self.rng.below(40) as u64));
            self.choose(now);
        }
        self.poll(now);
    }

    /// Takes a random action, or closes the session after the last one.
    fn choose(&mut self, now: Instant) {
        if self.actions == 0 {
            self.session.close(Close::Graceful { grace: Duration::from_secs(1) }, now);
            return;
        }
        self.actions -= 1;
        let inbound = self.rng.pick(&self.session.ids.inbound_calls);
        match (self.rng.below(8), inbound) {
            (0..4, _) if self.is_caller => {
                let call = Invoke::call_tool("t", json(ODD));
                let _ = self.session.invoke(call, now);
            }
            (4, _) if self.is_caller => {
                if let Some(call) = self.rng.pick(&self.session.ids.outbound_calls) {
                    let _ = self.session.cancel(call, None, now);
                }
            }
            (0..4, Some(id)) => {
                let _ = self.session.progress(id, Progress::value(f64::from(100 - self.actions.min(100))), now);
            }
            (_, Some(id)) => {
                let _ = self.session.respond(id, Reply::Tool(ToolOutput::text("ok")), now);
            }
            _ => {
                let _ = self.session.invoke(Invoke::new(Op::Ping, json("{}")), now);
            }
        }
    }

    /// Sends queued frames, answers input requests, and as a Tesseron gateway claims the app. Ends the link to the loop once the session
    /// has closed.
    fn poll(&mut self, now: Instant) {
        loop {
            while let Some(out) = self.session.poll_transmit() {
                self.links.depart(&out.frame, now);
            }
            let Some(event) = self.session.poll_event() else { break };
            match event {
                Event::Ready(_) if self.session.is_tesseron() && self.is_caller => {
                    let _ = self.session.claim(agent(), agent_capabilities(), 1, now);
                }
                Event::InputRequested { key, .. } => {
                    let answer = match self.rng.below(3) {
                        0 => continue,
                        1 => InputResponse::Refused(RpcError::new(RpcError::USER_REJECTED, "no")),
                        _ => InputResponse::Sample(SampleResult::new("!", "m")),
                    };
                    let _ = self.session.provide_input(key, answer, now);
                }
                _ => {}
            }
        }
        if self.session.is_closed() && !std::mem::replace(&mut self.hung_up, true) {
            self.links.end(now);
        }
        self.links.flush(now);
    }
}

impl Links {
    /// The next frame of the loop, or the end of its direction.
    fn arrival(&mut self, now: Instant) -> Option<Arrival> {
        match self {
            Self::Messages(links) => links[0].receive(now),
            Self::Bytes(link) => loop {
                if let Some(frame) = link.decoder.next_frame() {
                    return Some(Arrival::Message(frame));
                }
                match link.streams[0].read(now) {
                    Read::Bytes(bytes) => link.decoder.feed(&bytes),
                    Read::End(how) if !std::mem::replace(&mut link.has_seen_end, true) => return Some(Arrival::End(how)),
                    Read::End(_) | Read::Pending => return None,
                }
            },
        }
    }

    fn depart(&mut self, frame: &Bytes, now: Instant) {
        match self {
            Self::Messages(links) => links[1].send(frame, now),
            Self::Bytes(link) => link.encoder.push(frame.clone()),
        }
    }

    /// Ends the direction to the loop. On streams the end comes after what is written.
    fn end(&mut self, now: Instant) {
        match self {
            Self::Messages(links) => links[1].end(TransportEnd::Eof, now),
            Self::Bytes(link) => link.must_end = true,
        }
    }

    /// Writes as much as the stream to the loop takes, and ends it after the last byte if it must end.
    fn flush(&mut self, now: Instant) {
        let Self::Bytes(link) = self else { return };
        let Streams { streams, encoder, must_end, .. } = &mut **link;
        while encoder.has_remaining() {
            match streams[1].write(encoder.chunk(), now) {
                Ok(0) => return,
                Ok(count) => encoder.advance(count),
                Err(LinkBroken) => return,
            }
        }
        if *must_end {
            streams[1].finish(TransportEnd::Eof, now);
        }
    }
}
