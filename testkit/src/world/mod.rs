//! A [`World`] of two ends: sessions over links that carry messages, or drivers over streams of bytes, in virtual time. Each end is checked
//! against the guarantees G1 to G16 except G10, which needs two runs (G8 only after [`World::check_needless_timeouts`]).
//!
//! A world applies [operations](ops), four bytes each, and otherwise only delivers messages or bytes. So it is a pure function of its
//! operations and its seed: [`World::trace`] of two equal runs is equal. Only the operations about time move the clock: to the next instant
//! at which something happens ([`World::next`]), to a time before or after it, or by a span.

pub mod lanes;
pub mod ops;
mod storm;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use protocol_core::FrameSink as _;
use protocol_core::drive::{Driver, FrameIo, Timer};
use protocol_core::lines::{LineDecoder, LineEncoder};
use protocol_core::{Close, Config, Event, Gone, Instant, Lane, Session, Transmit, TransportEnd};

use crate::coverage::Coverage;
use crate::link::{Arrival, Faults, LinkBroken, Read, SimLink, SimStream};
use crate::watched::{Shared, lock};
use crate::{Subject, Watched};
use lanes::{Lanes, Seen};
pub use storm::storm;

/// The kind of links between the ends of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Links that carry whole messages; the world moves them itself.
    Messages,
    /// Streams of bytes in small buffers; each end has a driver.
    Bytes,
}

type Ends<S> = [Node<S>; 2];

/// One end of a world: a session whose frames the world moves, or a driver of a session.
#[derive(Debug)]
enum Node<S: Subject> {
    /// `has_ended` is `true` once the session is closed and its link has ended.
    Bare { watched: Box<Watched<S>>, has_ended: bool },
    /// `over` is `true` once the driver has returned the end, and the session is closed.
    Driven { driver: Box<Driver<Watched<S>, SimIo, SimTimer>>, woken: Arc<Woken>, armed: Armed, over: bool },
}

impl<S: Subject> Node<S> {
    fn watched(&self) -> &Watched<S> {
        match self {
            Self::Bare { watched, .. } => watched,
            Self::Driven { driver, .. } => driver.machine(),
        }
    }

    /// The watched session. Wakes the driver, if the node has one, since the session may be changed.
    fn watched_mut(&mut self) -> &mut Watched<S> {
        match self {
            Self::Bare { watched, .. } => watched,
            Self::Driven { driver, woken, .. } => {
                woken.0.store(true, Ordering::Relaxed);
                driver.machine_mut()
            }
        }
    }
}

/// The deadline that a driver waits for, and its waker.
type Armed = Rc<RefCell<Option<(Instant, Waker)>>>;

#[derive(Debug)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Links {
    Messages(Box<[SimLink; 2]>),
    Bytes([Rc<RefCell<SimStream>>; 2]),
}

/// Two ends and the links between them. End 0 is the MCP client or Tesseron gateway, and end 1 the server or app. Link 0 leads from end 0
/// to end 1.
#[derive(Debug)]
pub struct World<S: Subject = Session> {
    now: Rc<Cell<Instant>>,
    ends: Ends<S>,
    links: Links,
    /// The lanes of end 1, if it has more than the channel.
    lanes: Option<Lanes>,
    /// Ends whose application polls no events.
    ignores_events: [bool; 2],
    /// `true` if deadlines come before arrivals at the same instant. The default is the other order.
    timeouts_first: bool,
    shared: Arc<Mutex<Shared>>,
}

impl World {
    /// A world of two new sessions.
    #[must_use]
    pub fn of_sessions(client: Config, server: Config, wire: Wire, seed: u64) -> Self {
        Self::new(Session::new(client, Instant::ZERO), Session::new(server, Instant::ZERO), wire, seed)
    }

    /// A world of two sessions with links that carry messages, after the handshake.
    ///
    /// # Panics
    /// As [`Self::shake_hands`].
    #[must_use]
    pub fn messages(client: Config, server: Config, seed: u64) -> Self {
        Self::after_handshake(client, server, Wire::Messages, seed)
    }

    /// A world of two sessions with streams of bytes and a driver at each end, after the handshake.
    ///
    /// # Panics
    /// As [`Self::shake_hands`].
    #[must_use]
    pub fn bytes(client: Config, server: Config, seed: u64) -> Self {
        Self::after_handshake(client, server, Wire::Bytes, seed)
    }

    fn after_handshake(client: Config, server: Config, wire: Wire, seed: u64) -> Self {
        let mut world = Self::of_sessions(client, server, wire, seed);
        world.shake_hands();
        world
    }
}

/// The number of bytes that a stream of a world holds in flight, which is less than the length of most frames.
const STREAM: usize = 96;
/// The maximum number of frames polled in one step.
const STEP_FRAMES: usize = 64;
/// The maximum number of times that both ends make a step at one instant. More are a livelock.
const STEPS: usize = 5_000;

impl<S: Subject> World<S> {
    /// A world of two new subjects.
    #[must_use]
    pub fn new(client: S, server: S, wire: Wire, seed: u64) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let now = Rc::new(Cell::new(Instant::ZERO));
        let [first, second] = [client, server].map(|subject| Watched::of_world(subject, Instant::ZERO, shared.clone()));
        let seeds = [seed, seed.wrapping_add(1)];
        let (ends, links) = match wire {
            Wire::Messages => {
                let bare = |watched| Node::Bare { watched: Box::new(watched), has_ended: false };
                ([bare(first), bare(second)], Links::Messages(Box::new(seeds.map(SimLink::new))))
            }
            Wire::Bytes => {
                let links = seeds.map(|seed| Rc::new(RefCell::new(SimStream::new(seed, STREAM))));
                let drive = |watched, reads: &Rc<RefCell<SimStream>>, writes: &Rc<RefCell<SimStream>>| {
                    let io = SimIo {
                        now: now.clone(),
                        reads: reads.clone(),
                        writes: writes.clone(),
                        decoder: LineDecoder::new(1 << 20),
                        encoder: LineEncoder::new(),
                        at_end: false,
                    };
                    let armed = Armed::default();
                    let driver = Box::new(Driver::new(watched, io, SimTimer { now: now.clone(), armed: armed.clone() }));
                    Node::Driven { driver, woken: Arc::new(Woken(AtomicBool::new(true))), armed, over: false }
                };
                let ends = [drive(first, &links[1], &links[0]), drive(second, &links[0], &links[1])];
                (ends, Links::Bytes(links))
            }
        };
        Self { now, ends, links, lanes: None, ignores_events: [false; 2], timeouts_first: false, shared }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// The end `at`, which is 0 or 1.
    #[must_use]
    pub fn end(&self, at: usize) -> &Watched<S> {
        self.ends[at].watched()
    }

    /// The end `at`, for calling its methods.
    pub fn end_mut(&mut self, at: usize) -> &mut Watched<S> {
        self.ends[at].watched_mut()
    }

    /// Gives end 1 a transport of many lanes, which chooses the lane of each frame at random from `seed`. Call it before the first frame.
    ///
    /// # Panics
    /// If there are streams of bytes between the ends.
    pub fn many_lanes(&mut self, seed: u64) {
        assert!(matches!(self.links, Links::Messages(_)), "a driver has one lane");
        self.lanes = Some(Lanes::new(seed, self.end(1).is_tesseron()));
    }

    /// Counts of the events of lanes.
    #[must_use]
    pub fn seen_of_lanes(&self) -> Seen {
        self.lanes.as_ref().map(|lanes| lanes.seen).unwrap_or_default()
    }

    /// The method calls, frames and events of each end, in order.
    #[must_use]
    pub fn trace(&self) -> [Vec<String>; 2] {
        [0, 1].map(|at| self.end(at).trace().to_vec())
    }

    /// Counts of the happenings at both ends.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let mut all = self.end(0).coverage().clone();
        all.add(self.end(1).coverage());
        all
    }

    /// From now on, checks G8 after each method, unless a deadline has passed: one more `handle_timeout` must change nothing.
    pub fn check_needless_timeouts(&mut self) {
        for at in 0..2 {
            self.end_mut(at).check_needless_timeouts();
        }
    }

    /// Changes the faults of the link that leads away from end `at`.
    pub fn faults(&mut self, at: usize, change: impl FnOnce(&mut Faults)) {
        let faults = match &mut self.links {
            Links::Messages(links) => {
                change(&mut links[at].faults);
                links[at].faults
            }
            Links::Bytes(links) => {
                let mut link = links[at].borrow_mut();
                change(&mut link.faults);
                link.faults
            }
        };
        let unfaithful = faults.drop > 0 || faults.duplicate > 0 || faults.reorder > 0 || faults.alters();
        lock(&self.shared).unfaithful |= unfaithful;
    }

    /// Stops the link that leads away from end `at`, or resumes it. A stopped link accepts nothing.
    pub fn stall(&mut self, at: usize, stalled: bool) {
        match &mut self.links {
            Links::Messages(links) => links[at].stalled = stalled,
            Links::Bytes(links) => {
                links[at].borrow_mut().stalled = stalled;
                links[at].borrow_mut().wake(1); // the writer
            }
        }
    }

    /// Stops the application of end `at`, or resumes it. A stopped application polls no events; with streams of bytes its driver does not
    /// run at all.
    pub fn set_ignores_events(&mut self, at: usize, ignores_events: bool) {
        self.ignores_events[at] = ignores_events;
        // Wakes the driver, if the end has one.
        self.end_mut(at);
    }

    /// Sets the order at one instant: deadlines before arrivals if `first`, otherwise arrivals before deadlines, which is the default.
    pub fn timeouts_first(&mut self, first: bool) {
        self.timeouts_first = first;
    }

    /// Ends the direction from end `at`. Frames of the other end still arrive.
    pub fn half_close(&mut self, at: usize) {
        self.end_link(at, TransportEnd::Eof);
    }

    /// Breaks both directions.
    pub fn reset(&mut self) {
        self.end_link(0, TransportEnd::Failed);
        self.end_link(1, TransportEnd::Failed);
    }

    fn end_link(&mut self, at: usize, how: TransportEnd) {
        let now = self.now();
        match &mut self.links {
            Links::Messages(links) => links[at].end(how, now),
            Links::Bytes(links) => links[at].borrow_mut().finish(how, now),
        }
    }

    /// Passes end `at` a frame that the other end has not sent, if end `at` takes input and the lane of the frame is not lost.
    pub fn inject(&mut self, at: usize, frame: &str) {
        lock(&self.shared).unfaithful = true;
        let (now, frame) = (self.now(), Bytes::copy_from_slice(frame.as_bytes()));
        let session = self.ends[at].watched().subject().session();
        let lane = match &mut self.lanes {
            Some(lanes) if at == 1 => lanes.pick(&frame, session),
            _ => Some(Lane::CHANNEL),
        };
        let watched = self.end_mut(at);
        if let Some(lane) = lane.filter(|lane| watched.subject().session().wants_input(*lane)) {
            watched.handle_injected(frame, lane, now);
        }
    }

    // ---- Lanes ----

    /// Stops a lane of end 1, or resumes it.
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool) {
        let now = self.now();
        let was_open = self.end_mut(1).set_writable(lane, is_writable, now).is_ok();
        if let Some(lanes) = &mut self.lanes {
            lanes.set_writable(lane, is_writable, was_open);
        }
    }

    /// Loses a lane of end 1.
    pub fn lose_lane(&mut self, lane: Lane) {
        let now = self.now();
        let was_open = self.end_mut(1).handle_gone(Gone::Lane(lane), now).is_ok();
        if let Some(lanes) = &mut self.lanes {
            lanes.lose(lane, was_open);
        }
    }

    // ---- Time ----

    /// Runs until both ends are ready, or the client has chosen stateless requests.
    ///
    /// # Panics
    /// If an end closes first, or if the handshake takes more than an hour of virtual time: the links lose frames, or the ends have no
    /// revision in common.
    pub fn shake_hands(&mut self) {
        let limit = self.now().saturating_add(Duration::from_secs(3_600));
        self.deliver_all();
        while !self.end(0).has_met(self.end(1)) {
            let Some(next) = self.next().filter(|next| *next <= limit && !(0..2).any(|at| self.end(at).is_closed())) else {
                let lost = match &self.links {
                    Links::Messages(links) => links.each_ref().map(SimLink::lost),
                    Links::Bytes(_) => [0; 2],
                };
                let sent = [0, 1].map(|at| self.end(at).subject().stats().frames_out);
                panic!("no handshake by {}: the ends 0 and 1 sent {sent:?} frames, of which {lost:?} were lost", self.now());
            };
            self.jump(next);
        }
    }

    /// Delivers everything that can be delivered at this instant.
    ///
    /// # Panics
    /// If that never ends.
    pub fn deliver_all(&mut self) {
        for _ in 0..STEPS {
            let moved = [self.step(0), self.step(1)];
            if moved == [false, false] {
                return;
            }
        }
        panic!("a livelock: events without end at one instant");
    }

    /// The next instant at which a deadline of an end passes, a message or bytes arrive, or a stall or a stream ends.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let now = self.now();
        let links = match &self.links {
            Links::Messages(links) => [links[0].due(), links[1].due(), links[0].resumes(now), links[1].resumes(now)],
            Links::Bytes(links) => {
                let [one, other] = links.each_ref().map(|link| link.borrow());
                [one.due(), other.due(), one.resumes(now), other.resumes(now)]
            }
        };
        // An arrival that is due but was not accepted is left out, since it waits until the receiving end takes input.
        let ends = self.ends.iter().map(|end| match end {
            Node::Bare { watched, .. } => watched.subject().poll_timeout(),
            Node::Driven { armed, over, .. } => armed.borrow().as_ref().map(|(at, _)| *at).filter(|_| !over),
        });
        links.into_iter().chain(ends).flatten().filter(|at| *at > now).min()
    }

    /// Jumps to `at` in one step, so that deadlines and arrivals on the way are late.
    pub fn jump(&mut self, at: Instant) {
        let at = at.max(self.now());
        self.now.set(at);
        if let Links::Bytes(links) = &self.links {
            for link in links {
                link.borrow_mut().wake(0); // the reader
                if link.borrow_mut().end_stall(at) {
                    link.borrow_mut().wake(1); // the writer
                }
            }
        }
        for end in &self.ends {
            if let Node::Driven { armed, .. } = end
                && let Some((_, waker)) = armed.borrow_mut().take_if(|(due, _)| *due <= at)
            {
                waker.wake();
            }
        }
        self.deliver_all();
    }

    /// Moves to `target`, with a stop at each instant at which something happens.
    pub fn run_until(&mut self, target: Instant) {
        self.deliver_all();
        while let Some(at) = self.next().filter(|at| *at <= target) {
            self.jump(at);
        }
        self.jump(target);
    }

    /// Makes one step of end `at` at this instant. Returns `true` if anything happened.
    fn step(&mut self, at: usize) -> bool {
        let (now, ignores_events, timeouts_first) = (self.now(), self.ignores_events[at], self.timeouts_first);
        match (&mut self.ends[at], &mut self.links) {
            (Node::Bare { watched, has_ended }, Links::Messages(links)) => {
                let mut moved = false;
                let timeout = |watched: &mut Watched<S>| {
                    let due = watched.subject().poll_timeout().is_some_and(|due| due <= now);
                    if due {
                        watched.handle_timeout(now);
                    }
                    due
                };
                if timeouts_first {
                    moved |= timeout(watched);
                }
                // Bounded, so that `settle` detects a session that sends without end.
                for _ in 0..STEP_FRAMES {
                    if !links[at].accepts(now) {
                        break;
                    }
                    let Some(out) = watched.poll_transmit() else { break };
                    links[at].send(&out.frame, now);
                    if let Some(lanes) = self.lanes.as_mut().filter(|_| at == 1) {
                        lanes.sent(&out.frame, out.route);
                    }
                    moved = true;
                }
                let other = 1 - at;
                while watched.subject().session().wants_input(Lane::CHANNEL) {
                    let mut lanes = self.lanes.as_mut().filter(|_| at == 1);
                    if let Some(lanes) = &mut lanes
                        && let Some((lane, frame)) = lanes.unaccepted.take()
                    {
                        if let Err(full) = watched.handle_frame(frame, lane, now) {
                            lanes.unaccepted = Some((lane, full.0));
                            break;
                        }
                        moved = true;
                        continue;
                    }
                    let Some(arrival) = links[other].receive(now) else { break };
                    moved = true;
                    match (arrival, lanes) {
                        (Arrival::Message(frame), Some(lanes)) => {
                            let lane = lanes.pick(&frame, watched.subject().session());
                            lanes.unaccepted = lane.map(|lane| (lane, frame));
                        }
                        (Arrival::Message(frame), None) => {
                            _ = watched.handle_frame(frame, Lane::CHANNEL, now).expect("input was wanted")
                        }
                        (Arrival::End(end), _) => watched.handle_end(end, now),
                    }
                }
                moved |= timeout(watched);
                while !ignores_events && let Some(event) = watched.poll_event() {
                    moved = true;
                    if let (Some(lanes), Event::LaneClosed { lane, .. }) = (&mut self.lanes, event) {
                        lanes.give_up(lane);
                    }
                }
                if watched.subject().session().is_closed() && !*has_ended {
                    *has_ended = true;
                    links[at].end(TransportEnd::Eof, now);
                    moved = true;
                }
                moved
            }
            (Node::Driven { driver, woken, over, .. }, _) => {
                // A driver is polled only when it was woken, so that a missing wake is detected.
                if *over || ignores_events || !woken.0.swap(false, Ordering::Relaxed) {
                    return false;
                }
                let waker = Waker::from(woken.clone());
                match driver.poll_event(&mut Context::from_waker(&waker)) {
                    Poll::Ready(Ok(Some(_))) => woken.0.store(true, Ordering::Relaxed),
                    Poll::Ready(Ok(None) | Err(LinkBroken)) => *over = driver.machine().subject().session().is_closed(),
                    Poll::Pending => {}
                }
                true
            }
            (Node::Bare { .. }, Links::Bytes(_)) => unreachable!("a bare end has links for messages"),
        }
    }

    // ---- The end ----

    /// Clears all faults, resumes all lanes, ends both sessions, and checks the guarantees about their ends. `how` modulo 3 chooses how
    /// they end: 0 breaks the links, 1 closes both sessions immediately, and 2 ends both directions.
    ///
    /// # Panics
    /// If a guarantee is violated.
    pub fn finish(&mut self, how: u8) {
        for at in 0..2 {
            self.faults(at, |faults| *faults = Faults::default());
            self.stall(at, false);
            self.set_ignores_events(at, false);
        }
        while let Some(lane) = self.lanes.as_ref().and_then(|lanes| lanes.choose_stopped(0)) {
            self.set_writable(lane, true);
        }
        self.deliver_all();
        match how % 3 {
            0 => self.reset(),
            1 => (0..2).for_each(|at| {
                let now = self.now();
                self.end_mut(at).close(Close::Now, now);
            }),
            _ => (0..2).for_each(|at| self.half_close(at)),
        }
        self.deliver_all();
        for _ in 0..1_000 {
            let Some(next) = self.next() else { break };
            self.jump(next);
        }
        for at in 0..2 {
            self.end(at).check_end();
        }
    }
}

// ---- The transport and the clock of a driver ----

#[derive(Debug)]
struct SimTimer {
    now: Rc<Cell<Instant>>,
    armed: Armed,
}

impl Timer for SimTimer {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        if at <= self.now.get() {
            return Poll::Ready(());
        }
        *self.armed.borrow_mut() = Some((at, cx.waker().clone()));
        Poll::Pending
    }
}

#[derive(Debug)]
struct SimIo {
    now: Rc<Cell<Instant>>,
    reads: Rc<RefCell<SimStream>>,
    writes: Rc<RefCell<SimStream>>,
    decoder: LineDecoder,
    encoder: LineEncoder,
    at_end: bool,
}

impl SimIo {
    /// Writes as much as the link accepts. Returns `Pending` while bytes are left.
    fn drain(&mut self, cx: &Context<'_>) -> Poll<Result<(), LinkBroken>> {
        let mut link = self.writes.borrow_mut();
        while self.encoder.has_remaining() {
            match link.write(self.encoder.chunk(), self.now.get()) {
                Err(broken) => return Poll::Ready(Err(broken)),
                Ok(0) => {
                    link.waiting[1] = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Ok(count) => self.encoder.advance(count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl FrameIo for SimIo {
    type Error = LinkBroken;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, LinkBroken>> {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.at_end {
                return Poll::Ready(Ok(self.decoder.finish()));
            }
            let mut link = self.reads.borrow_mut();
            match link.read(self.now.get()) {
                Read::Bytes(bytes) => self.decoder.feed(&bytes),
                Read::End(TransportEnd::Eof) => self.at_end = true,
                Read::End(_) => return Poll::Ready(Err(LinkBroken)),
                Read::Pending => {
                    link.waiting[0] = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkBroken>> {
        self.drain(cx)
    }

    fn start_send(&mut self, transmit: Transmit) -> Result<(), LinkBroken> {
        self.encoder.push(transmit.frame);
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LinkBroken>> {
        self.drain(cx)
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), LinkBroken>> {
        self.writes.borrow_mut().finish(TransportEnd::Eof, self.now.get());
        Poll::Ready(Ok(()))
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.decoder.set_limit(bytes);
    }
}
