//! Links between two ends, as state machines: their methods take the time and bytes or messages, and return the time of the next arrival. A
//! [`SimLink`] carries messages, and a [`SimStream`] bytes. Both are pure functions of their faults, their seed and these arguments.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{Instant, TransportEnd};

use crate::Rng;

/// Faults of a link. Chances are out of 256: 256 is always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The time that each message or write takes.
    pub latency: Duration,
    /// The maximum additional time, which is random.
    pub jitter: Duration,
    /// The chance that a message is lost. Message links only: a stream loses bytes only by [`truncate`](Faults::truncate), and when it
    /// breaks.
    pub drop: u16,
    /// The chance that a message arrives twice. Message links only.
    pub duplicate: u16,
    /// The chance that a message may overtake others. Message links only.
    pub reorder: u16,
    /// The chance that a byte of a message or of a write is changed.
    pub corrupt: u16,
    /// The chance that a message or a write is truncated.
    pub truncate: u16,
    /// The maximum number of bytes that a stream reads or writes at once, so that writes are split and merged. Zero means no limit.
    pub piece: u8,
    /// The chance that the link takes nothing for up to 100 ms after a message or a write.
    pub stall: u16,
}

/// The longest time of a stall by [`Faults::stall`], in milliseconds.
const STALL: usize = 100;

impl Faults {
    /// A mix of all faults: messages take up to 30 ms, and some are lost, duplicated, reordered, damaged or truncated; the link stalls now
    /// and then, and a stream splits what it is given.
    #[must_use]
    pub const fn hostile() -> Self {
        Self {
            latency: Duration::from_millis(1),
            jitter: Duration::from_millis(29),
            drop: 8,
            duplicate: 16,
            reorder: 16,
            corrupt: 12,
            truncate: 4,
            piece: 7,
            stall: 8,
        }
    }

    /// Faults with which every message is lost.
    #[must_use]
    pub fn losing_everything() -> Self {
        Self { drop: 256, ..Self::default() }
    }

    /// Returns `true` if messages or bytes can be changed or truncated.
    #[must_use]
    pub const fn alters(&self) -> bool {
        self.corrupt > 0 || self.truncate > 0
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        let jitter = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        self.latency + Duration::from_micros(if jitter == 0 { 0 } else { rng.number() % jitter })
    }

    /// The end of a stall that begins now, if one does.
    fn stalls(&self, now: Instant, rng: &mut Rng) -> Option<Instant> {
        rng.chance(self.stall).then(|| now.saturating_add(Duration::from_millis(1 + rng.below(STALL) as u64)))
    }

    fn damage(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        if rng.chance(self.corrupt) && !bytes.is_empty() {
            let place = rng.below(bytes.len());
            bytes[place] ^= 1 << rng.below(8);
        }
        if rng.chance(self.truncate) {
            bytes.truncate(rng.below(bytes.len()));
        }
    }
}

/// An arrival at the reading end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message.
    Message(Bytes),
    /// The writer has ended, or the link is broken. Arrives once, unless [`SimLink::end`] breaks a link that was already broken or had
    /// ended.
    End(TransportEnd),
}

/// One direction of a channel, for whole messages.
#[derive(Clone, Debug)]
pub struct SimLink {
    /// The faults from now on.
    pub faults: Faults,
    /// While `true`, [`accepts`](SimLink::accepts) returns `false`. It has no effect on [`send`](SimLink::send).
    pub stalled: bool,
    /// The end of a stall by [`Faults::stall`].
    stalled_until: Option<Instant>,
    rng: Rng,
    /// Messages in flight, in the order of arrival.
    flight: VecDeque<(Instant, Arrival)>,
    over: bool,
    lost: u64,
}

impl SimLink {
    /// Makes a link without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (faults, rng, flight) = (Faults::default(), Rng::new(seed), VecDeque::new());
        Self { faults, stalled: false, stalled_until: None, rng, flight, over: false, lost: 0 }
    }

    /// The number of messages that were lost so far by [`Faults::drop`], or because they were sent after the end. Messages in flight when
    /// the link breaks are not counted.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns `true` if the link takes a message at `now`.
    #[must_use]
    pub fn accepts(&self, now: Instant) -> bool {
        !self.stalled && self.stalled_until.is_none_or(|until| until <= now)
    }

    /// The end of a stall by [`Faults::stall`], if the link stalls at `now`.
    #[must_use]
    pub fn resumes(&self, now: Instant) -> Option<Instant> {
        self.stalled_until.filter(|until| *until > now)
    }

    /// Sends a message. A message that is sent after the end is lost; the latency of one that is sent during a stall by [`Faults::stall`]
    /// counts from the end of the stall. This method also takes messages while the link is [`stalled`](Self::stalled), so call
    /// [`accepts`](Self::accepts) first.
    pub fn send(&mut self, message: &Bytes, now: Instant) {
        if self.over || self.rng.chance(self.faults.drop) {
            self.lost += 1;
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(self.faults.duplicate));
        for _ in 0..copies {
            let mut bytes = message.to_vec();
            self.faults.damage(&mut bytes, &mut self.rng);
            let at = self.resumes(now).unwrap_or(now).saturating_add(self.faults.delay(&mut self.rng));
            let overtakes = self.rng.chance(self.faults.reorder);
            self.put(at, Arrival::Message(Bytes::from(bytes)), overtakes);
        }
        self.stalled_until = self.faults.stalls(now, &mut self.rng).max(self.resumes(now));
    }

    fn put(&mut self, at: Instant, what: Arrival, overtakes: bool) {
        let last = self.flight.back().map_or(at, |(last, _)| *last);
        if overtakes {
            let place = self.rng.below(self.flight.len() + 1);
            let at = self.flight.get(place).map_or(at, |(there, _)| (*there).min(at));
            self.flight.insert(place, (at, what));
        } else {
            self.flight.push_back((at.max(last), what));
        }
    }

    /// Ends the link, or breaks it. If it breaks, messages in flight are lost.
    pub fn end(&mut self, how: TransportEnd, now: Instant) {
        if how == TransportEnd::Failed {
            self.flight.clear();
        } else if self.over {
            return;
        }
        self.over = true;
        let at = now.saturating_add(self.faults.latency);
        self.put(if how == TransportEnd::Failed { now } else { at }, Arrival::End(how), false);
    }

    /// Removes and returns the next arrival, if it is due by `now`.
    pub fn receive(&mut self, now: Instant) -> Option<Arrival> {
        if self.flight.front()?.0 > now {
            return None;
        }
        self.flight.pop_front().map(|(_, what)| what)
    }

    /// Puts back an arrival that the reader had no room for.
    pub fn put_back(&mut self, what: Arrival, now: Instant) {
        self.flight.push_front((now, what));
    }

    /// The instant of the next arrival.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.flight.front().map(|(at, _)| *at)
    }
}

/// The result of reading a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Bytes.
    Bytes(Vec<u8>),
    /// No bytes have arrived yet.
    Pending,
    /// The end of the stream.
    End(TransportEnd),
}

/// One direction of a byte stream with a small buffer.
#[derive(Debug)]
pub struct SimStream {
    /// The faults from now on.
    pub faults: Faults,
    /// While `true`, the stream takes no bytes.
    pub stalled: bool,
    /// The end of a stall by [`Faults::stall`].
    stalled_until: Option<Instant>,
    rng: Rng,
    flight: VecDeque<(Instant, Vec<u8>)>,
    /// The number of bytes in `flight`.
    in_flight: usize,
    capacity: usize,
    end: Option<(Instant, TransportEnd)>,
    /// The wakers of the tasks that wait to read (0) and to write (1).
    pub waiting: [Option<Waker>; 2],
}

impl SimStream {
    /// A stream that holds at most `capacity` bytes in flight.
    #[must_use]
    pub fn new(seed: u64, capacity: usize) -> Self {
        let (faults, rng) = (Faults::default(), Rng::new(seed));
        let flight = VecDeque::new();
        Self { faults, stalled: false, stalled_until: None, rng, flight, in_flight: 0, capacity, end: None, waiting: [None, None] }
    }

    /// The end of a stall by [`Faults::stall`], if the stream stalls at `now`.
    #[must_use]
    pub fn resumes(&self, now: Instant) -> Option<Instant> {
        self.stalled_until.filter(|until| *until > now)
    }

    /// Ends a stall that is over at `now`. Returns `true` if there was one.
    pub(crate) fn end_stall(&mut self, now: Instant) -> bool {
        self.stalled_until.take_if(|until| *until <= now).is_some()
    }

    /// Wakes the task that waits to read (0) or to write (1).
    pub fn wake(&mut self, which: usize) {
        if let Some(waker) = self.waiting[which].take() {
            waker.wake();
        }
    }

    /// Writes some of `bytes`, and returns their number. Zero means that the stream is full or stalled, or that `bytes` is empty.
    ///
    /// # Errors
    /// If the stream has ended or is broken.
    pub fn write(&mut self, bytes: &[u8], now: Instant) -> Result<usize, LinkBroken> {
        if self.end.is_some() {
            return Err(LinkBroken);
        }
        let room = if self.stalled || self.resumes(now).is_some() { 0 } else { self.capacity.saturating_sub(self.in_flight) };
        let count = bytes.len().min(room).min(self.piece());
        if count == 0 {
            return Ok(0);
        }
        let mut taken = bytes[..count].to_vec();
        self.faults.damage(&mut taken, &mut self.rng);
        let at = now.saturating_add(self.faults.delay(&mut self.rng));
        let at = self.flight.back().map_or(at, |(last, _)| at.max(*last));
        self.in_flight += taken.len();
        self.flight.push_back((at, taken));
        self.stalled_until = self.faults.stalls(now, &mut self.rng);
        if at <= now {
            self.wake(0);
        }
        Ok(count)
    }

    /// Returns `true` if the stream takes a byte at `now`.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        !self.stalled && self.end.is_none() && self.resumes(now).is_none() && self.in_flight < self.capacity
    }

    fn piece(&mut self) -> usize {
        if self.faults.piece == 0 { usize::MAX } else { 1 + self.rng.below(self.faults.piece.into()) }
    }

    /// Some of the bytes that have arrived by `now`, or the end, which is returned again each time.
    pub fn read(&mut self, now: Instant) -> Read {
        let mut got = Vec::new();
        let most = self.piece();
        while let Some((at, bytes)) = self.flight.front_mut() {
            if *at > now || got.len() >= most {
                break;
            }
            let count = bytes.len().min(most - got.len());
            got.extend(bytes.drain(..count));
            if bytes.is_empty() {
                self.flight.pop_front();
            }
        }
        self.in_flight -= got.len();
        if !got.is_empty() {
            self.wake(1);
            return Read::Bytes(got);
        }
        match self.end {
            Some((at, how)) if at <= now && (self.flight.is_empty() || how == TransportEnd::Failed) => Read::End(how),
            _ => Read::Pending,
        }
    }

    /// Ends the stream, or breaks it. If it breaks, bytes in flight are lost.
    pub fn finish(&mut self, how: TransportEnd, now: Instant) {
        if how == TransportEnd::Failed {
            self.flight.clear();
            self.in_flight = 0;
        } else if self.end.is_some() {
            return;
        }
        self.end = Some((self.flight.back().map_or(now, |(last, _)| now.max(*last)), how));
        self.wake(0);
        self.wake(1);
    }

    /// The instant of the next arrival, or of the end.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.flight.front().map(|(at, _)| *at).or_else(|| self.end.map(|(at, _)| at))
    }
}

/// An error: the stream has ended or is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBroken;
