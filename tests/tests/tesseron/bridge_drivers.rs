//! A bridge whose legs have separate drivers: a driver is woken whenever its leg has something to do, and ends when its leg is closed. The
//! last two tests check other rules of a bridge.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use endpoint::Runtime;
use protocol_core::drive::Machine;
use protocol_core::{Identity, Instant, TransportEnd};
use tesseron::bridge::{BridgeConfig, Leg, Random};
use tesseron::legs::SharedBridge;
use tests::bridge::{ACTIONS, RESOURCES, Rig, config, hello, value};

/// A runtime whose clock stands still, and which runs no tasks.
struct Still;

impl Runtime for Still {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn spawn(&self, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}

    fn spawn_blocking(&self, _: Box<dyn FnOnce() + Send>) {}
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn shared(change: impl FnOnce(&mut BridgeConfig)) -> SharedBridge {
    let mut config = BridgeConfig::new(Identity::new("gateway", "1"), 0);
    change(&mut config);
    let mut next = 0_u8;
    let random: Random = Box::new(move |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_add(1);
            *byte = next;
        }
    });
    SharedBridge::new(config, random, Arc::new(Still))
}

/// The legs whose drivers are to be woken.
fn touched(rig: &mut Rig) -> BTreeSet<Leg> {
    std::iter::from_fn(|| rig.bridge.poll_touched()).collect()
}

#[test]
fn regression_the_driver_of_each_leg_that_one_method_ends_is_woken() {
    // A regression: only the driver of the last leg was woken; the others waited for ever with their sockets open.
    let mut rig = Rig::with(config());
    let apps = [rig.join("a"), rig.join("b"), rig.join("c")];
    let legs = apps.map(|app| rig.leg(app));
    touched(&mut rig);
    rig.bridge.handle_end(Leg::Agent, TransportEnd::Failed, rig.now);
    let woken_legs = touched(&mut rig);
    for leg in legs {
        assert!(rig.bridge.is_closed(leg) && woken_legs.contains(&leg), "{leg:?}");
    }
}

#[test]
fn the_driver_of_each_leg_that_times_out_at_the_same_time_is_woken() {
    let mut rig = Rig::with(config());
    let apps = [rig.dial(), rig.dial()];
    let legs = apps.map(|app| rig.leg(app));
    touched(&mut rig);
    rig.bridge.handle_timeout(Instant::from_millis(5001));
    let woken_legs = touched(&mut rig);
    for leg in legs {
        assert!(rig.bridge.is_closed(leg) && woken_legs.contains(&leg), "{leg:?}");
    }
}

#[test]
fn the_driver_of_a_leg_that_paused_for_unpolled_events_is_woken_when_the_owner_polls_them() {
    let shared = shared(|config| config.agent_limits.events = 4);
    let channel = shared.open().expect("there is room");
    let mut leg = shared.leg(Leg::App(channel));
    let woken = Arc::new(Woken::default());
    leg.register_waker(&Waker::from(Arc::clone(&woken)));
    // Each of these frames is refused for its app id, and becomes an event for the owner.
    let bad = hello("BAD", "[]", "[]");
    for _ in 0..100 {
        if leg.wants_input() {
            leg.handle_frame(Bytes::from(bad.clone()), Instant::ZERO).expect("it takes input");
        }
    }
    assert!(!leg.wants_input());
    let before = woken.0.load(Ordering::SeqCst);
    let mut cx = Context::from_waker(Waker::noop());
    while pin!(shared.next_event()).poll(&mut cx).is_ready() {}
    assert!(leg.wants_input());
    assert!(woken.0.load(Ordering::SeqCst) > before, "the driver of the leg was not woken");
}

/// A regression: when legs could be read again, only the drivers of apps were woken, and not that of the agent.
#[test]
fn regression_the_drivers_of_all_paused_legs_are_woken_when_the_owner_polls_its_events() {
    let mut config = config();
    config.agent_limits.events = 4;
    let mut rig = Rig::with(config);
    let channel = rig.bridge.open(rig.now).expect("there is room");
    let legs = [Leg::Agent, Leg::App(channel)];
    let bad = Bytes::from(hello("BAD", "[]", "[]"));
    while rig.bridge.wants_input(Leg::App(channel)) {
        rig.bridge.handle_frame(Leg::App(channel), bad.clone(), rig.now).expect("it takes input");
    }
    assert!(legs.iter().all(|leg| !rig.bridge.wants_input(*leg)), "no leg is read while the owner leaves events unpolled");
    touched(&mut rig);
    rig.bridge.poll_event().expect("events wait");
    let woken_legs = touched(&mut rig);
    for leg in legs {
        assert!(rig.bridge.wants_input(leg) && woken_legs.contains(&leg), "{leg:?}");
    }
}

#[test]
fn the_leg_of_an_app_that_reads_nothing_is_closed_after_the_agent_has_left() {
    let shared = shared(|_| {});
    let mut agent = shared.leg(Leg::Agent);
    let channel = shared.open().expect("there is room");
    let mut leg = shared.leg(Leg::App(channel));
    leg.handle_frame(Bytes::from(hello("a", "[]", "[]")), Instant::ZERO).expect("it takes input");
    // The welcome is never polled. The bridge has one deadline for all legs. The leg of the agent has it until the agent disconnects, and
    // then each remaining leg has it.
    agent.handle_end(TransportEnd::Eof, Instant::ZERO);
    drop(agent);
    let due = leg.poll_timeout().expect("the remaining leg has the deadline");
    assert!(!leg.is_closed() && due <= Instant::ZERO.saturating_add(Duration::from_secs(5)));
    leg.handle_timeout(due);
    assert!(leg.is_closed());
}

#[test]
fn the_transport_of_each_leg_gets_the_frame_limit_of_that_leg() {
    let shared = shared(|config| (config.agent_limits.frame_bytes, config.app_limits.frame_bytes) = (1000, 2000));
    let channel = shared.open().expect("there is room");
    assert_eq!((shared.leg(Leg::Agent).frame_limit(), shared.leg(Leg::App(channel)).frame_limit()), (1000, 2000));
}

#[test]
fn an_unsubscribe_that_is_refused_as_busy_can_be_repeated() {
    let mut config = config();
    config.app_limits.in_flight = 1;
    let mut rig = Rig::with(config);
    let app = rig.join_with("a", ACTIONS, RESOURCES);
    let uri = r#""params":{"uri":"tesseron://a/balance"}"#;
    rig.agent(&format!(r#"{{"jsonrpc":"2.0","id":5,"method":"resources/subscribe",{uri}}}"#));
    let asked = value(rig.app_received(app).last().expect("a subscribe"));
    rig.app(app, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":null}}"#, asked["id"]));
    rig.agent_received();
    rig.call(6, "a__t");
    let call = rig.invoked(app);
    rig.agent(&format!(r#"{{"jsonrpc":"2.0","id":7,"method":"resources/unsubscribe",{uri}}}"#));
    assert_eq!(value(&rig.agent_received()[0])["error"]["code"], -32809, "busy");
    rig.app(app, &call.output("1"));
    rig.agent_received();
    rig.agent(&format!(r#"{{"jsonrpc":"2.0","id":8,"method":"resources/unsubscribe",{uri}}}"#));
    assert_eq!(value(rig.app_received(app).last().expect("an unsubscribe"))["method"], "resources/unsubscribe");
}

#[test]
fn the_debug_text_of_events_contains_no_claim_code() {
    let mut rig = Rig::with(config());
    let app = rig.dial();
    rig.app(app, &hello("a", "[]", "[]"));
    let events = format!("{:?}", rig.events());
    let code = rig.apps[app].code.clone().expect("a code");
    assert!(events.contains("AppReady") && !events.contains(&code), "{events}");
}
