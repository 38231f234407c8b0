use core::convert::Infallible;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use bytes::Bytes;

use crate::bridge::{Advertised, Bridge, BridgeConfig, BridgeEvent, ClaimId, Leg, Random};
use crate::claims::{BoundDial, ChannelId, OpenRefused};
use crate::drive::Machine;
use crate::endpoint::{Runtime, wake_all};
use crate::session::{Close, Full, Transmit, TransportEnd};
use crate::time::Instant;

/// A [`Bridge`] whose legs are driven one by one, each by a driver of its own. Cloning shares it.
///
/// Everything is under one lock. Every verb locks, changes the bridge, unlocks and only then wakes the drivers of the legs on which
/// something has happened.
#[derive(Clone)]
pub struct SharedBridge {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
}

struct State {
    bridge: Bridge,
    drivers: BTreeMap<Leg, Waker>,
    /// Who waits for an event.
    owner: Option<Waker>,
    /// What the driver of the agent's leg was told: it has the alarm of all.
    armed: Option<Instant>,
}

impl SharedBridge {
    /// A bridge that begins now, on the clock of `runtime`: every driver of its legs must be on the same one.
    #[must_use]
    pub fn new(config: BridgeConfig, random: Random, runtime: Arc<dyn Runtime>) -> Self {
        let bridge = Bridge::new(config, random, runtime.now());
        let state = State { bridge, drivers: BTreeMap::new(), owner: None, armed: None };
        Self { shared: Arc::new(Shared { runtime, state: Mutex::new(state) }) }
    }

    /// One leg, for a [`Driver`](crate::drive::Driver). The agent's must be driven as long as any other: it has the alarm of all.
    #[must_use]
    pub fn leg(&self, leg: Leg) -> BridgeLeg {
        BridgeLeg { shared: Arc::clone(&self.shared), leg }
    }

    /// The next thing that concerns the owner. Can be dropped and called again; one at a time.
    pub async fn next_event(&self) -> BridgeEvent {
        poll_fn(|cx| {
            self.shared.lock().owner = Some(cx.waker().clone());
            self.shared.verb(None, |bridge, _| bridge.poll_event()).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// As [`Bridge::open`].
    ///
    /// # Errors
    /// As that.
    pub fn open(&self) -> Result<ChannelId, OpenRefused> {
        self.shared.verb(None, Bridge::open)
    }

    /// As [`Bridge::open_claimed`].
    ///
    /// # Errors
    /// As that.
    pub fn open_claimed(&self, claim: ClaimId, dial: BoundDial) -> Result<ChannelId, OpenRefused> {
        self.shared.verb(None, |bridge, now| bridge.open_claimed(claim, dial, now))
    }

    /// As [`Bridge::refuse_claim`].
    pub fn refuse_claim(&self, claim: ClaimId, why: &str) {
        self.shared.verb(None, |bridge, now| bridge.refuse_claim(claim, why, now));
    }

    /// As [`Bridge::advertise`].
    pub fn advertise(&self, apps: Vec<Advertised>) {
        self.shared.verb(None, |bridge, _| bridge.advertise(apps));
    }

    /// As [`Bridge::close`].
    pub fn close(&self, how: Close) {
        self.shared.verb(None, |bridge, now| bridge.close(how, now));
    }

    /// As [`Bridge::close_app`].
    pub fn close_app(&self, channel: ChannelId, how: Close) {
        self.shared.verb(None, |bridge, now| bridge.close_app(channel, how, now));
    }
}

impl fmt::Debug for SharedBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.lock().bridge.fmt(f)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verb<T>(&self, driven: Option<Leg>, verb: impl FnOnce(&mut Bridge, Instant) -> T) -> T {
        self.verb_at(driven, self.runtime.now(), verb)
    }

    /// Changes the bridge, and wakes whoever has something to do then; not who is at it already.
    fn verb_at<T>(&self, driven: Option<Leg>, now: Instant, verb: impl FnOnce(&mut Bridge, Instant) -> T) -> T {
        let mut wake = Vec::new();
        let mut state = self.lock();
        let state_ref = &mut *state;
        let value = verb(&mut state_ref.bridge, now);
        while let Some(leg) = state_ref.bridge.poll_touched() {
            if driven != Some(leg) {
                wake.extend(state_ref.drivers.get(&leg).cloned());
            }
        }
        if driven != Some(Leg::Agent) && state_ref.bridge.poll_timeout() != state_ref.armed {
            wake.extend(state_ref.drivers.get(&Leg::Agent).cloned());
        }
        if state_ref.bridge.has_event() {
            wake.extend(state_ref.owner.take());
        }
        drop(state);
        wake_all(wake);
        value
    }
}

/// One leg of a [`SharedBridge`]. Dropping it is a transport that has failed.
pub struct BridgeLeg {
    shared: Arc<Shared>,
    leg: Leg,
}

impl BridgeLeg {
    /// The agent's leg has the alarm of all. Once it is over each leg has it: the last words of one may be waiting to be written.
    fn has_alarm(&self) -> bool {
        self.leg == Leg::Agent || self.shared.lock().bridge.is_closed(Leg::Agent)
    }
}

impl Machine for BridgeLeg {
    /// What there is to tell is told to the owner of the bridge.
    type Event = Infallible;

    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        self.shared.verb_at(Some(self.leg), now, |bridge, now| bridge.handle_frame(self.leg, frame, now))
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.shared.verb_at(Some(self.leg), now, |bridge, now| bridge.handle_end(self.leg, end, now));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.has_alarm() {
            self.shared.verb_at(Some(self.leg), now, Bridge::handle_timeout);
        }
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        // Time does not pass by writing.
        self.shared.verb_at(Some(self.leg), Instant::ZERO, |bridge, _| bridge.poll_transmit(self.leg))
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.has_alarm() {
            return None;
        }
        let mut state = self.shared.lock();
        state.armed = state.bridge.poll_timeout();
        state.armed
    }

    fn wants_input(&self) -> bool {
        self.shared.lock().bridge.wants_input(self.leg)
    }

    fn is_closed(&self) -> bool {
        self.shared.lock().bridge.is_closed(self.leg)
    }

    fn frame_limit(&self) -> usize {
        self.shared.lock().bridge.frame_limit(self.leg)
    }

    fn register(&mut self, waker: &Waker) {
        let mut state = self.shared.lock();
        let known = state.drivers.get(&self.leg).is_some_and(|known| known.will_wake(waker));
        let before = if known { None } else { state.drivers.insert(self.leg, waker.clone()) };
        drop(state);
        drop(before);
    }
}

impl Drop for BridgeLeg {
    fn drop(&mut self) {
        self.shared.verb(Some(self.leg), |bridge, now| bridge.handle_end(self.leg, TransportEnd::Failed, now));
        let before = self.shared.lock().drivers.remove(&self.leg);
        drop(before);
    }
}

impl fmt::Debug for BridgeLeg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BridgeLeg").field(&self.leg).finish()
    }
}
