//! A bridge under one lock, with a driver for each leg.

use core::convert::Infallible;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::vec::Vec;

use bytes::Bytes;
use engine::{DriverSlot, Engine, Guarded, Runtime, VerbEffects, park};
use protocol_core::drive::{LaneMachine, Machine, TurnOutcome};
use protocol_core::lines::LineEncoder;
use protocol_core::session::{Close, Full, Lane, Received, Transmit, TransportEnd};
use protocol_core::{FrameSink as _, Instant};

use crate::bridge::{Advertised, Bridge, BridgeConfig, BridgeEvent, ClaimId, Leg, Random};
use crate::claims::{BoundDial, ChannelId, OpenRefused, Pending};

/// A [`Bridge`] with a driver for each leg. A clone is another handle to the same bridge.
///
/// The bridge is under the one lock of an [`Engine`]. A verb takes the lock, changes the bridge, releases the lock, and then wakes the
/// drivers of the legs that have changed. A turn of a leg takes the lock once.
#[derive(Clone)]
pub struct SharedBridge {
    engine: Arc<Engine<State>>,
}

struct State {
    bridge: Bridge,
    drivers: BTreeMap<Leg, DriverSlot>,
    /// The leg whose own driver runs the current verb. This driver is not woken, since it reads the whole state before it waits.
    driving: Option<Leg>,
    /// The waker of the task that waits for an event.
    owner: Option<Waker>,
}

impl State {
    /// The deadline that the driver of `leg` waits for. The agent's driver waits for the deadlines of all legs. Once the agent's leg has
    /// closed, each of the other drivers waits for them, since the leg of an app may still have a last frame to write.
    fn deadline(&self, leg: Leg) -> Option<Instant> {
        if self.has_timer(leg) { self.bridge.poll_timeout() } else { None }
    }

    fn has_timer(&self, leg: Leg) -> bool {
        leg == Leg::Agent || self.bridge.is_closed(Leg::Agent)
    }

    /// Begins a verb. `driving` is the leg whose driver runs the verb, if any. Every verb sets it, since a verb that panicked leaves its
    /// own value.
    fn begin(&mut self, driving: Option<Leg>) {
        self.driving = driving;
    }

    /// Returns and records the deadline that the driver of `leg` waits for.
    fn arm(&mut self, leg: Leg) -> Option<Instant> {
        let until = self.deadline(leg);
        self.drivers.get_mut(&leg).and_then(|slot| slot.arm(until)).or(until)
    }

    /// Stores the waker of a leg's driver, and puts the previous one into `waker`.
    fn park(&mut self, leg: Leg, waker: &mut Option<Waker>) {
        self.drivers.entry(leg).or_default().park(waker);
    }

    fn handle_frames(&mut self, leg: Leg, frames: &mut VecDeque<Bytes>, now: Instant) {
        while self.bridge.wants_input(leg)
            && let Some(frame) = frames.pop_front()
        {
            if let Err(Full(frame)) = self.bridge.handle_frame(leg, frame, now) {
                frames.push_front(frame);
                return;
            }
        }
    }

    fn handle_timeout(&mut self, leg: Leg, now: Instant) {
        if self.has_timer(leg) {
            self.bridge.handle_timeout(now);
        }
    }

    /// Pushes frames of a leg into `room`. Returns `true` if there may be more frames.
    fn fill(&mut self, leg: Leg, room: &mut LineEncoder) -> bool {
        room.fill(|room| self.bridge.poll_transmit(leg).map(|transmit| room.push(transmit.frame)).is_some())
    }
}

impl Guarded for State {
    type Wakers = Vec<Waker>;

    fn is_closed(&self) -> bool {
        self.bridge.is_closed(Leg::Agent)
    }

    fn take_wakers(&mut self, _: &VerbEffects) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let driving = self.driving.take();
        while let Some(leg) = self.bridge.poll_touched() {
            if driving != Some(leg) {
                wakers.extend(self.drivers.get_mut(&leg).and_then(DriverSlot::take));
            }
        }
        // The loop has woken the drivers of legs that have changed. The agent's driver is also woken for an earlier deadline.
        let deadline = self.deadline(Leg::Agent);
        if driving != Some(Leg::Agent)
            && let Some(agent) = self.drivers.get_mut(&Leg::Agent).filter(|agent| agent.must_wake(false, || deadline))
        {
            wakers.extend(agent.take());
        }
        if self.bridge.has_event() {
            wakers.extend(self.owner.take());
        }
        wakers
    }
}

impl SharedBridge {
    /// Creates a bridge on the clock of `runtime`. The drivers of its legs must use the same clock.
    #[must_use]
    pub fn new(config: BridgeConfig, random: Random, runtime: Arc<dyn Runtime>) -> Self {
        let now = runtime.now();
        let bridge = Bridge::new(config, random, now);
        let state = State { bridge, drivers: BTreeMap::new(), driving: None, owner: None };
        Self { engine: Arc::new(Engine::new(state, runtime)) }
    }

    /// One leg, for a [`Driver`](protocol_core::drive::Driver). The agent's leg must be driven until it has closed, since its timer serves
    /// the deadlines of all legs.
    #[must_use]
    pub fn leg(&self, leg: Leg) -> BridgeLeg {
        BridgeLeg { engine: Arc::clone(&self.engine), leg }
    }

    /// The next event for the owner. Call this method from one task at a time.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next_event(&self) -> BridgeEvent {
        poll_fn(|cx| {
            let mut waker = Some(cx.waker().clone());
            let event = self.engine.verb(|state, _, _| {
                state.begin(None);
                // The waker is stored in the verb that polls, so that no event comes unnoticed between the two.
                park(&mut state.owner, &mut waker);
                state.bridge.poll_event()
            });
            event.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn verb<T>(&self, verb: impl FnOnce(&mut Bridge, Instant) -> T) -> T {
        self.engine.verb(|state, now, _| {
            state.begin(None);
            verb(&mut state.bridge, now)
        })
    }

    /// See [`Bridge::open`].
    ///
    /// # Errors
    /// The same.
    pub fn open(&self) -> Result<ChannelId, OpenRefused> {
        self.verb(Bridge::open)
    }

    /// See [`Bridge::open_claimed`].
    ///
    /// # Errors
    /// The same.
    pub fn open_claimed(&self, claim: ClaimId, dial: BoundDial) -> Result<ChannelId, OpenRefused> {
        self.verb(|bridge, now| bridge.open_claimed(claim, dial, now))
    }

    /// See [`Bridge::refuse_claim`].
    pub fn refuse_claim(&self, claim: ClaimId, why: &str) {
        self.verb(|bridge, now| bridge.refuse_claim(claim, why, now));
    }

    /// See [`Bridge::advertise`].
    pub fn advertise(&self, apps: Vec<Advertised>) {
        self.verb(|bridge, _| bridge.advertise(apps));
    }

    /// See [`Bridge::pending`].
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.engine.with_state(|state| state.bridge.pending())
    }

    /// See [`Bridge::close`].
    pub fn close(&self, how: Close) {
        self.verb(|bridge, now| bridge.close(how, now));
    }

    /// See [`Bridge::close_app`].
    pub fn close_app(&self, channel: ChannelId, how: Close) {
        self.verb(|bridge, now| bridge.close_app(channel, how, now));
    }
}

impl fmt::Debug for SharedBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.with_state(|state| state.bridge.fmt(f))
    }
}

/// One leg of a [`SharedBridge`]. Dropping it has the effect of a failed transport.
pub struct BridgeLeg {
    engine: Arc<Engine<State>>,
    leg: Leg,
}

impl BridgeLeg {
    /// A verb of the leg's own driver.
    fn driven<T>(&self, now: Instant, verb: impl FnOnce(&mut State) -> T) -> T {
        self.engine.verb_at(now, |state, _, _| {
            state.begin(Some(self.leg));
            verb(state)
        })
    }
}

impl Machine for BridgeLeg {
    /// A leg returns no events: [`SharedBridge::next_event`] returns those of all legs.
    type Event = Infallible;

    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        self.driven(now, |state| state.bridge.handle_frame(self.leg, frame, now))
    }

    fn handle_frames(&mut self, frames: &mut VecDeque<Bytes>, now: Instant) {
        self.driven(now, |state| state.handle_frames(self.leg, frames, now));
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.driven(now, |state| state.bridge.handle_end(self.leg, end, now));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.driven(now, |state| state.handle_timeout(self.leg, now));
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        // Polling a frame does not depend on the time.
        self.driven(Instant::ZERO, |state| state.bridge.poll_transmit(self.leg))
    }

    fn release_memory(&mut self) {
        self.driven(Instant::ZERO, |state| state.bridge.release_memory(self.leg));
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.engine.with_state(|state| state.arm(self.leg))
    }

    fn wants_input(&self) -> bool {
        self.engine.with_state(|state| state.bridge.wants_input(self.leg))
    }

    fn is_closed(&self) -> bool {
        self.engine.with_state(|state| state.bridge.is_closed(self.leg))
    }

    fn frame_limit(&self) -> usize {
        self.engine.with_state(|state| state.bridge.frame_limit(self.leg))
    }

    fn register_waker(&mut self, waker: &Waker) {
        let mut parked = Some(waker.clone());
        self.engine.with_state(|state| state.park(self.leg, &mut parked));
    }

    fn turn(
        &mut self,
        waker: &Waker,
        frames: &mut VecDeque<Bytes>,
        clock: &dyn Fn() -> Instant,
        room: Option<&mut LineEncoder>,
    ) -> TurnOutcome<Infallible> {
        let mut parked = Some(waker.clone());
        let leg = self.leg;
        let now = clock();
        self.driven(now, |state| {
            state.park(leg, &mut parked);
            state.handle_frames(leg, frames, now);
            // If no frame was handled, a leg that has the timer passes the time to the bridge here.
            if !state.bridge.wants_input(leg) || state.deadline(leg).is_some_and(|at| at <= now) {
                state.handle_timeout(leg, now);
            }
            let has_output = room.is_none_or(|room| state.fill(leg, room));
            TurnOutcome {
                now,
                has_output,
                event: None,
                is_closed: state.bridge.is_closed(leg),
                until: state.arm(leg),
                wants_input: state.bridge.wants_input(leg),
            }
        })
    }
}

/// These methods are only for the agent's leg, since the leg of an app has one lane.
impl LaneMachine for BridgeLeg {
    fn handle_lane_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        self.driven(now, |state| state.bridge.handle_lane_frame(frame, lane, now))
    }

    fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) {
        self.driven(now, |state| state.bridge.set_writable(lane, is_writable, now));
    }

    fn replies_owed(&self, lane: Lane) -> usize {
        self.engine.with_state(|state| state.bridge.replies_owed(lane))
    }

    fn poll_closed_lane(&mut self) -> Option<Lane> {
        self.engine.with_state(|state| state.bridge.poll_closed_lane())
    }

    fn take_cancelled(&mut self) -> bool {
        self.engine.with_state(|state| state.bridge.take_cancelled())
    }

    fn close(&mut self, how: Close, now: Instant) {
        self.driven(now, |state| state.bridge.close(how, now));
    }
}

impl Drop for BridgeLeg {
    fn drop(&mut self) {
        let slot = self.engine.verb(|state, now, _| {
            state.begin(Some(self.leg));
            state.bridge.handle_end(self.leg, TransportEnd::Failed, now);
            state.drivers.remove(&self.leg)
        });
        // The slot may have a waker, which must not be dropped under the lock.
        drop(slot);
    }
}

impl fmt::Debug for BridgeLeg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BridgeLeg").field(&self.leg).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use engine::BoxFuture;
    use protocol_core::Identity;

    use super::*;

    struct FixedTimeRuntime;

    impl Runtime for FixedTimeRuntime {
        fn now(&self) -> Instant {
            Instant::from_millis(1)
        }

        fn spawn(&self, _: BoxFuture<'static, ()>) {}

        fn spawn_blocking(&self, _: Box<dyn FnOnce() + Send>) {}
    }

    /// Counts its wakes, and locks the bridge in each wake, which would deadlock if the lock were held.
    struct LockingWake {
        bridge: SharedBridge,
        wakes: AtomicUsize,
    }

    impl Wake for LockingWake {
        fn wake(self: Arc<Self>) {
            self.bridge.advertise(Vec::new());
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bridge() -> SharedBridge {
        SharedBridge::new(
            BridgeConfig::new(Identity::new("gateway", "1"), 0),
            Box::new(|bytes| bytes.fill(7)),
            Arc::new(FixedTimeRuntime),
        )
    }

    fn locking_wake(bridge: &SharedBridge) -> (Arc<LockingWake>, Waker) {
        let locking_wake = Arc::new(LockingWake { bridge: bridge.clone(), wakes: AtomicUsize::new(0) });
        (Arc::clone(&locking_wake), Waker::from(locking_wake))
    }

    /// Takes a turn of a leg in which these frames arrive. Returns the number of bytes to write.
    fn turn(leg: &mut BridgeLeg, waker: &Waker, frames: &[&'static str]) -> usize {
        let mut frames = frames.iter().map(|frame| Bytes::from_static(frame.as_bytes())).collect();
        let mut room = LineEncoder::new();
        let outcome = leg.turn(waker, &mut frames, &|| Instant::from_millis(1), Some(&mut room));
        assert!(frames.is_empty() && !outcome.has_output && !outcome.is_closed);
        room.buffered_bytes()
    }

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;

    #[test]
    fn a_driver_is_not_woken_by_its_own_work_and_its_waker_runs_under_no_lock() {
        let bridge = bridge();
        let mut agent = bridge.leg(Leg::Agent);
        let (locking_wake, waker) = locking_wake(&bridge);
        assert!(turn(&mut agent, &waker, &[INITIALIZE]) > 0, "the answer");
        assert_eq!(locking_wake.wakes.load(Ordering::Relaxed), 0);
        bridge.close(Close::Now);
        assert_eq!(locking_wake.wakes.load(Ordering::Relaxed), 1, "another task has closed the bridge");
        bridge.close(Close::Now);
        assert_eq!(locking_wake.wakes.load(Ordering::Relaxed), 1, "a driver that was woken is not woken again before it runs");
    }

    /// The bug: the waker that was kept for the next poll belonged to a task that no longer polls.
    #[test]
    fn regression_an_owner_that_moves_to_another_task_is_woken_there() {
        let bridge = bridge();
        let ((first, before), (second, after)) = (locking_wake(&bridge), locking_wake(&bridge));
        let mut next = Box::pin(bridge.next_event());
        for waker in [&before, &before, &after] {
            assert!(next.as_mut().poll(&mut core::task::Context::from_waker(waker)).is_pending());
        }
        let mut agent = bridge.leg(Leg::Agent);
        turn(
            &mut agent,
            &before,
            &[
                INITIALIZE,
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"tesseron__claim_session","arguments":{"code":"PQ7N-4D"}}}"#,
            ],
        );
        assert_eq!((first.wakes.load(Ordering::Relaxed), second.wakes.load(Ordering::Relaxed)), (0, 1));
        assert!(next.as_mut().poll(&mut core::task::Context::from_waker(&after)).is_ready());
    }

    #[test]
    fn the_driver_of_the_agent_is_woken_for_a_deadline_of_an_app_that_comes_before_its_own() {
        let bridge = bridge();
        let mut agent = bridge.leg(Leg::Agent);
        let (locking_wake, waker) = locking_wake(&bridge);
        turn(&mut agent, &waker, &[INITIALIZE]);
        assert_eq!(agent.poll_timeout(), None);
        let channel = bridge.open().expect("a channel");
        assert_eq!(locking_wake.wakes.load(Ordering::Relaxed), 1, "the app has 5 s for its hello");
        assert_eq!(agent.poll_timeout(), Some(Instant::from_millis(5001)));
        assert_eq!(bridge.leg(Leg::App(channel)).poll_timeout(), None, "the agent's driver has the timer of all legs");
    }
}
