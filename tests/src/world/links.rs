//! What lies between two ends, as state machines of its own: they are given the time, bytes or messages, and tell when they have
//! something. Neither sleeps, and both are pure functions of their faults, their seed and what they are given.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{Instant, TransportEnd};

use super::rng::Rng;

/// What goes wrong on a link. Chances are out of 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The time that everything takes.
    pub latency: Duration,
    /// The further time that it may take.
    pub jitter: Duration,
    /// A message is lost. Message links only: streams lose nothing but their end.
    pub drop: u8,
    /// A message comes twice. Message links only.
    pub duplicate: u8,
    /// A message may overtake others. Message links only.
    pub reorder: u8,
    /// A byte of a message or of a write is changed.
    pub corrupt: u8,
    /// A message or a write loses its tail.
    pub truncate: u8,
    /// A stream takes and gives at most so many bytes at once, so that writes are split and merged. Zero is no limit.
    pub piece: u8,
}

impl Faults {
    /// Returns `true` if what arrives can be something that was not sent.
    #[must_use]
    pub const fn alters(&self) -> bool {
        self.corrupt > 0 || self.truncate > 0
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        let jitter = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        self.latency + Duration::from_micros(if jitter == 0 { 0 } else { rng.number() % jitter })
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

/// What a link has for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message.
    Message(Bytes),
    /// The other side says nothing more, or the link is broken. Once.
    End(TransportEnd),
}

/// One direction of a channel that carries whole messages.
#[derive(Clone, Debug)]
pub struct MessageLink {
    /// What goes wrong from now on.
    pub faults: Faults,
    /// Nothing is taken while it is set.
    pub stalled: bool,
    rng: Rng,
    /// In the order of arrival.
    flight: VecDeque<(Instant, Arrival)>,
    over: bool,
}

impl MessageLink {
    /// A link that does nothing wrong yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { faults: Faults::default(), stalled: false, rng: Rng::new(seed), flight: VecDeque::new(), over: false }
    }

    /// Returns `true` if [`Self::send`] may be called.
    #[must_use]
    pub const fn accepts(&self) -> bool {
        !self.stalled
    }

    /// Takes a message. After the end it is lost.
    pub fn send(&mut self, message: &Bytes, now: Instant) {
        if self.over || self.rng.chance(self.faults.drop) {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(self.faults.duplicate));
        for _ in 0..copies {
            let mut bytes = message.to_vec();
            self.faults.damage(&mut bytes, &mut self.rng);
            let at = now.saturating_add(self.faults.delay(&mut self.rng));
            let overtakes = self.rng.chance(self.faults.reorder);
            self.put(at, Arrival::Message(Bytes::from(bytes)), overtakes);
        }
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

    /// The writer says nothing more, or the link breaks; what is in flight is lost if it breaks.
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

    /// What has arrived by `now`, if anything.
    pub fn receive(&mut self, now: Instant) -> Option<Arrival> {
        if self.flight.front()?.0 > now {
            return None;
        }
        self.flight.pop_front().map(|(_, what)| what)
    }

    /// Puts back what the reader had no room for.
    pub fn put_back(&mut self, what: Arrival, now: Instant) {
        self.flight.push_front((now, what));
    }

    /// When something arrives.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.flight.front().map(|(at, _)| *at)
    }
}

/// What a stream has for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nothing yet.
    Pending,
    /// Nothing any more.
    End(TransportEnd),
}

/// One direction of a byte stream with a small buffer.
#[derive(Debug)]
pub struct ByteLink {
    /// What goes wrong from now on.
    pub faults: Faults,
    /// Nothing is taken while it is set.
    pub stalled: bool,
    rng: Rng,
    flight: VecDeque<(Instant, Vec<u8>)>,
    held: usize,
    capacity: usize,
    end: Option<(Instant, TransportEnd)>,
    /// Who waits to read and to write.
    pub waiting: [Option<Waker>; 2],
}

impl ByteLink {
    /// A stream that holds at most `capacity` bytes in flight.
    #[must_use]
    pub fn new(seed: u64, capacity: usize) -> Self {
        let (faults, rng) = (Faults::default(), Rng::new(seed));
        let flight = VecDeque::new();
        Self { faults, stalled: false, rng, flight, held: 0, capacity, end: None, waiting: [None, None] }
    }

    /// Wakes who waits to read (0) or to write (1).
    pub fn wake(&mut self, which: usize) {
        if let Some(waker) = self.waiting[which].take() {
            waker.wake();
        }
    }

    /// Takes some of `bytes`: how many, or an error once the link is broken. Zero is "not now".
    ///
    /// # Errors
    /// The link is broken.
    pub fn write(&mut self, bytes: &[u8], now: Instant) -> Result<usize, Broken> {
        if self.end.is_some() {
            return Err(Broken);
        }
        let room = if self.stalled { 0 } else { self.capacity.saturating_sub(self.held) };
        let count = bytes.len().min(room).min(self.piece());
        if count == 0 {
            return Ok(0);
        }
        let mut taken = bytes[..count].to_vec();
        self.faults.damage(&mut taken, &mut self.rng);
        let at = now.saturating_add(self.faults.delay(&mut self.rng));
        let at = self.flight.back().map_or(at, |(last, _)| at.max(*last));
        self.held += taken.len();
        self.flight.push_back((at, taken));
        if at <= now {
            self.wake(0);
        }
        Ok(count)
    }

    fn piece(&mut self) -> usize {
        if self.faults.piece == 0 { usize::MAX } else { 1 + self.rng.below(self.faults.piece.into()) }
    }

    /// What has arrived by `now`.
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
        self.held -= got.len();
        if !got.is_empty() {
            self.wake(1);
            return Read::Bytes(got);
        }
        match self.end {
            Some((at, how)) if at <= now && (self.flight.is_empty() || how == TransportEnd::Failed) => Read::End(how),
            _ => Read::Pending,
        }
    }

    /// The writer says nothing more, or the link breaks; what is in flight is lost if it breaks.
    pub fn finish(&mut self, how: TransportEnd, now: Instant) {
        if how == TransportEnd::Failed {
            self.flight.clear();
            self.held = 0;
        } else if self.end.is_some() {
            return;
        }
        self.end = Some((self.flight.back().map_or(now, |(last, _)| now.max(*last)), how));
        self.wake(0);
        self.wake(1);
    }

    /// When something arrives that has not arrived at `now`.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.flight.front().map(|(at, _)| *at).or_else(|| self.end.map(|(at, _)| at))
    }
}

/// The link is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;
