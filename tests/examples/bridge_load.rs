//! The cost of a bridge: `cargo run --release -p tests --example bridge_load`.
//!
//! The first table has the time of a round trip, and of a progress update from handler to caller: over two bare sessions, and with a bridge
//! between them. The second table is about one app or 200, with one call or 50 each. It has the memory that the bridge holds for an app and
//! for a call, and the time of an update from the frame of its app to the frame for the agent. For comparison, it has the same for as many
//! bare sessions with only a table of calls between them. The measurements with and without a bridge alternate; the times are medians.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant as Clock;

use bytes::Bytes;
use protocol_core::{Config, Event, InboundId, Instant, Invoke, Json, Lane, Op, OutboundId, Progress, Reply, Session, ToolOutput};
use tesseron::bridge::{Bridge, BridgeConfig, BridgeEvent, Leg};
use tesseron::claims::ChannelId;
use testkit::config::gateway_config;
use testkit::config::{client_config, server_config};
use testkit::scripted::{initialize, notification};
use testkit::{Rng, Scripted};
use tests::bridge::{ACTIONS, DECLARES, Invoked, RESOURCES, app_config, call_tool, config, hello};

const APPS: usize = 200;
const CALLS: usize = 50;
const ROUNDS: usize = 201;
const BATCH: u64 = 200;

/// A caller and a callee, with or without a bridge between them.
trait Path {
    /// Starts a call and delivers it to its callee.
    fn call(&mut self) -> InboundId;
    /// Reports progress of a call and delivers it to the caller.
    fn report(&mut self, call: InboundId, value: f64);
    /// Answers a call and delivers the result to the caller.
    fn answer(&mut self, call: InboundId);
}

fn invoke(caller: &mut Session, tool: &str) {
    let params = Json::parse(format!(r#"{{"name":"{tool}","arguments":{{"cents":4200}}}}"#)).expect("JSON");
    caller.invoke(Invoke::new(Op::CallTool, params), Instant::ZERO).expect("there is room");
}

fn next_request(callee: &mut Session) -> InboundId {
    loop {
        match callee.poll_event() {
            Some(Event::Request { id, .. }) => return id,
            Some(_) => {}
            None => panic!("a request"),
        }
    }
}

/// Two sessions, each of which gets the frames of the other.
struct Bare {
    caller: Session,
    callee: Session,
}

impl Bare {
    fn new() -> Self {
        let open = |config: Config| Session::new(config, Instant::ZERO);
        let mut path = Self { caller: open(client_config()), callee: open(server_config()) };
        for _ in 0..2 {
            path.carry();
        }
        while path.caller.poll_event().is_some() || path.callee.poll_event().is_some() {}
        path
    }

    fn carry(&mut self) {
        while let Some(out) = self.caller.poll_transmit() {
            self.callee.handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).expect("there is room");
        }
        while let Some(out) = self.callee.poll_transmit() {
            self.caller.handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).expect("there is room");
        }
    }
}

impl Path for Bare {
    fn call(&mut self) -> InboundId {
        invoke(&mut self.caller, "t");
        self.carry();
        next_request(&mut self.callee)
    }

    fn report(&mut self, call: InboundId, value: f64) {
        self.callee.progress(call, Progress::value(value), Instant::ZERO).expect("it makes sense");
        self.carry();
        assert!(matches!(self.caller.poll_event(), Some(Event::Progress { .. })));
    }

    fn answer(&mut self, call: InboundId) {
        self.callee.respond(call, Reply::Tool(ToolOutput::text("ok")), Instant::ZERO).expect("it is live");
        self.carry();
        assert!(matches!(self.caller.poll_event(), Some(Event::Done { .. })));
    }
}

/// An agent and an app with a bridge between them.
struct Bridged {
    agent: Session,
    bridge: Bridge,
    channel: ChannelId,
    app: Session,
}

impl Bridged {
    fn new() -> Self {
        let mut bridge = bridge(config());
        let channel = bridge.open(Instant::ZERO).expect("a channel");
        let open = |config: Config| Session::new(config, Instant::ZERO);
        let mut path = Self { agent: open(client_config()), bridge, channel, app: open(app_config("ledger")) };
        for _ in 0..3 {
            path.carry();
        }
        let code = std::iter::from_fn(|| path.bridge.poll_event())
            .find_map(|event| if let BridgeEvent::AppReady { code, .. } = event { code } else { None })
            .expect("a code");
        let params = format!(r#"{{"name":"tesseron__claim_session","arguments":{{"code":"{code}"}}}}"#);
        let params = Json::parse(params).expect("JSON");
        path.agent.invoke(Invoke::new(Op::CallTool, params), Instant::ZERO).expect("there is room");
        for _ in 0..3 {
            path.carry();
        }
        while path.agent.poll_event().is_some() || path.app.poll_event().is_some() || path.bridge.poll_event().is_some() {}
        path
    }

    fn carry(&mut self) {
        let (now, app) = (Instant::ZERO, Leg::App(self.channel));
        loop {
            let mut moved = false;
            while let Some(out) = self.agent.poll_transmit() {
                self.bridge.handle_frame(Leg::Agent, out.frame, now).expect("there is room");
                moved = true;
            }
            while let Some(out) = self.app.poll_transmit() {
                self.bridge.handle_frame(app, out.frame, now).expect("there is room");
                moved = true;
            }
            while let Some(out) = self.bridge.poll_transmit(app) {
                self.app.handle_frame(out.frame, Lane::CHANNEL, now).expect("there is room");
                moved = true;
            }
            while let Some(out) = self.bridge.poll_transmit(Leg::Agent) {
                self.agent.handle_frame(out.frame, Lane::CHANNEL, now).expect("there is room");
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }
}

impl Path for Bridged {
    fn call(&mut self) -> InboundId {
        invoke(&mut self.agent, "ledger__t");
        self.carry();
        next_request(&mut self.app)
    }

    fn report(&mut self, call: InboundId, value: f64) {
        self.app.progress(call, Progress::percent(value), Instant::ZERO).expect("it makes sense");
        self.carry();
        assert!(matches!(self.agent.poll_event(), Some(Event::Progress { .. })));
    }

    fn answer(&mut self, call: InboundId) {
        self.app.respond(call, Reply::Tool(ToolOutput::text("ok")), Instant::ZERO).expect("it is live");
        self.carry();
        assert!(matches!(self.agent.poll_event(), Some(Event::Done { .. })));
    }
}

fn bridge(config: BridgeConfig) -> Bridge {
    let mut rng = Rng::new(1);
    Bridge::new(config, Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.number() as u8)), Instant::ZERO)
}

/// Runs a batch of `count` operations. Returns the mean time of one in nanoseconds.
fn timed(count: u64, operation: impl FnOnce()) -> f64 {
    let began = Clock::now();
    operation();
    began.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn round_trips(path: &mut impl Path) -> f64 {
    timed(BATCH, || {
        for _ in 0..BATCH {
            let call = path.call();
            path.answer(call);
        }
    })
}

fn updates(path: &mut impl Path) -> f64 {
    let call = path.call();
    let nanos = timed(BATCH, || {
        for step in 1..=BATCH {
            path.report(call, step as f64 * 99.0 / BATCH as f64);
        }
    });
    path.answer(call);
    nanos
}

/// Prints one line of the first table. The two measurements alternate, so that other load of the machine affects both.
fn compare(what: &str, measure_bare: impl Fn(&mut Bare) -> f64, measure_bridged: impl Fn(&mut Bridged) -> f64) {
    let (mut without, mut with) = (Bare::new(), Bridged::new());
    let (mut bare_nanos, mut bridged_nanos) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare_nanos.push(measure_bare(&mut without));
        bridged_nanos.push(measure_bridged(&mut with));
    }
    let (bare, bridged) = (median(bare_nanos), median(bridged_nanos));
    println!("{what:<34} {bare:>10.0} {bridged:>10.0} {:>10.0} {:>8.2}", bridged - bare, bridged / bare);
}

// ---- ManyApps calls ----

/// The sessions between many apps and an agent, with or without a bridge.
trait ManyApps {
    /// Handles the frame of an app, and returns the frame for the agent.
    fn pass(&mut self, app: usize, frame: Bytes) -> Option<Bytes>;
}

/// As many bare sessions as a bridge has, and a table of their calls. An update that the session for an app receives is reported by the
/// session for the agent.
struct ManyBare {
    agent: Session,
    apps: Vec<Session>,
    calls: BTreeMap<(usize, OutboundId), InboundId>,
}

impl ManyBare {
    fn of_apps(apps: usize) -> Self {
        let mut config = server_config();
        config.limits.in_flight = APPS * CALLS + 16;
        // Without the checks of `Scripted`, which would take more time than the sessions.
        let apps = (0..apps).map(|_| Scripted::gateway(gateway_config()).session.into_subject()).collect();
        Self { agent: Scripted::server(config).session.into_subject(), apps, calls: BTreeMap::new() }
    }

    fn call(&mut self, calls: usize) -> Vec<(usize, Invoked)> {
        let mut made = Vec::new();
        for number in 0..calls {
            for app in 0..self.apps.len() {
                let id = (number * self.apps.len() + app + 1).to_string();
                let frame = call_tool(&id, &format!("app{app}__t"), r#"{"cents":4200}"#, Some(&id));
                self.agent.handle_frame(frame.into(), Lane::CHANNEL, Instant::ZERO).expect("there is room");
                let Some(Event::Request { id: inbound, .. }) = self.agent.poll_event() else { panic!("a request") };
                let params = Json::parse(r#"{"name":"t","arguments":{"cents":4200}}"#).expect("JSON");
                let outbound =
                    self.apps[app].invoke(Invoke::new(Op::CallTool, params), Instant::ZERO).expect("the call is accepted");
                self.calls.insert((app, outbound), inbound);
                let out = self.apps[app].poll_transmit().expect("an invocation");
                let text = std::str::from_utf8(&out.frame).expect("UTF-8");
                made.push((app, Invoked::read(text).expect("an invocation")));
            }
        }
        made
    }
}

impl ManyApps for ManyBare {
    fn pass(&mut self, app: usize, frame: Bytes) -> Option<Bytes> {
        let session = &mut self.apps[app];
        session.handle_frame(frame, Lane::CHANNEL, Instant::ZERO).expect("there is room");
        let Some(Event::Progress { id, mut progress }) = session.poll_event() else { return None };
        progress.total = Some(100.0);
        let inbound = self.calls[&(app, id)];
        self.agent.progress(inbound, progress, Instant::ZERO).expect("it makes sense");
        self.agent.poll_transmit().map(|out| out.frame)
    }
}

/// A bridge with an agent and a number of claimed apps. The frames of the agent and the apps are written without sessions.
struct ManyBridged {
    bridge: Bridge,
    apps: Vec<ChannelId>,
}

impl ManyBridged {
    fn of_apps(apps: usize) -> Self {
        let mut config = config();
        config.agent_limits.in_flight = APPS * CALLS + 16;
        config.registry.max_pending = apps;
        let mut bridged = Self { bridge: bridge(config), apps: Vec::new() };
        bridged.send_from(Leg::Agent, &initialize(0, "2025-11-25", DECLARES));
        bridged.send_from(Leg::Agent, &notification("notifications/initialized", "{}"));
        for number in 0..apps {
            let channel = bridged.bridge.open(Instant::ZERO).expect("a channel");
            bridged.apps.push(channel);
            bridged.send_from(Leg::App(channel), &hello(&format!("app{number}"), ACTIONS, RESOURCES));
            let code = std::iter::from_fn(|| bridged.bridge.poll_event())
                .find_map(|event| if let BridgeEvent::AppReady { code, .. } = event { code } else { None });
            let arguments = format!(r#"{{"code":"{}"}}"#, code.expect("a code"));
            bridged.send_from(Leg::Agent, &call_tool(&format!(r#""claim{number}""#), "tesseron__claim_session", &arguments, None));
            for leg in [Leg::Agent, Leg::App(channel)] {
                while bridged.bridge.poll_transmit(leg).is_some() {}
            }
        }
        while bridged.bridge.poll_event().is_some() {}
        bridged
    }

    fn call(&mut self, calls: usize) -> Vec<(usize, Invoked)> {
        let mut made = Vec::new();
        for number in 0..calls {
            for app in 0..self.apps.len() {
                let id = (number * self.apps.len() + app + 1).to_string();
                self.send_from(Leg::Agent, &call_tool(&id, &format!("app{app}__t"), r#"{"cents":4200}"#, Some(&id)));
                let out = self.bridge.poll_transmit(Leg::App(self.apps[app])).expect("an invocation");
                let text = std::str::from_utf8(&out.frame).expect("UTF-8");
                made.push((app, Invoked::read(text).expect("an invocation")));
            }
        }
        made
    }

    fn send_from(&mut self, leg: Leg, text: &str) {
        self.bridge.handle_frame(leg, Bytes::copy_from_slice(text.as_bytes()), Instant::ZERO).expect("there is room");
    }
}

impl ManyApps for ManyBridged {
    fn pass(&mut self, app: usize, frame: Bytes) -> Option<Bytes> {
        self.bridge.handle_frame(Leg::App(self.apps[app]), frame, Instant::ZERO).expect("there is room");
        self.bridge.poll_transmit(Leg::Agent).map(|out| out.frame)
    }
}

/// The sessions of many apps and an agent with their calls, and their memory.
struct Measured {
    bytes_an_app: f64,
    bytes_a_call: f64,
    sessions: Box<dyn ManyApps>,
    calls: Vec<(usize, Invoked)>,
}

/// Does `work`. Returns the number of bytes by which the heap has grown, and the result.
fn heap_growth<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let mut made = None;
    let counted = allocation_counter::measure(|| made = Some(work()));
    (counted.bytes_current as f64, made.expect("it was made"))
}

/// Makes the sessions of `apps` apps with `calls` calls each, and measures their memory.
fn fill<C: ManyApps + 'static>(
    apps: usize,
    calls: usize,
    make: fn(usize) -> C,
    call: fn(&mut C, usize) -> Vec<(usize, Invoked)>,
) -> Measured {
    let (of_apps, mut sessions) = heap_growth(|| make(apps));
    let (of_calls, calls_made) = heap_growth(|| call(&mut sessions, calls));
    // The memory of the list of invocations does not count.
    let (of_list, _copy) = heap_growth(|| calls_made.clone());
    Measured {
        bytes_an_app: of_apps / apps as f64,
        bytes_a_call: (of_calls - of_list) / (apps * calls) as f64,
        sessions: Box::new(sessions),
        calls: calls_made,
    }
}

/// Passes an update with this percentage for each call. Returns the mean time in nanoseconds from the frame of its app to the frame for the
/// agent.
fn report(measured: &mut Measured, percent: f64) -> f64 {
    let frame = |call: &Invoked| Bytes::from(call.progress(&format!(r#","percent":{percent},"message":"step""#)));
    let frames: Vec<(usize, Bytes)> = measured.calls.iter().map(|(app, call)| (*app, frame(call))).collect();
    timed(frames.len() as u64, || {
        for (app, frame) in frames {
            assert!(black_box(measured.sessions.pass(app, frame)).is_some());
        }
    })
}

/// Prints one line of the second table.
fn many(apps: usize, calls: usize) {
    let mut bare = fill(apps, calls, ManyBare::of_apps, ManyBare::call);
    let mut bridged = fill(apps, calls, ManyBridged::of_apps, ManyBridged::call);
    let rounds = if apps * calls < 100 { 2_000 } else { 41 };
    let (mut bare_nanos, mut bridged_nanos) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let percent = f64::from(round) * 99.0 / f64::from(rounds);
        bare_nanos.push(report(&mut bare, percent));
        bridged_nanos.push(report(&mut bridged, percent));
    }
    let pair = |bare: f64, bridged: f64| format!("{bare:>9.0} {bridged:>9.0}");
    let (bare_nanos, bridged_nanos) = (median(bare_nanos), median(bridged_nanos));
    println!(
        "{apps:>5} {calls:>5}  {}  {}  {} {:>6.2}",
        pair(bare.bytes_an_app, bridged.bytes_an_app),
        pair(bare.bytes_a_call, bridged.bytes_a_call),
        pair(bare_nanos, bridged_nanos),
        bridged_nanos / bare_nanos
    );
}

fn main() {
    println!("{:<34} {:>10} {:>10} {:>10} {:>8}", "nanoseconds each, medians", "bare", "bridged", "added", "ratio");
    compare("round trip of a call", round_trips, round_trips);
    compare("update from handler to caller", updates, updates);
    println!();
    println!("{:>5} {:>5}  {:>19}  {:>19}  {:>19}", "", "", "bytes an app", "bytes a call", "ns an update");
    println!(
        "{:>5} {:>5}  {:>9} {:>9}  {:>9} {:>9}  {:>9} {:>9} {:>6}",
        "apps", "calls", "bare", "bridged", "bare", "bridged", "bare", "bridged", "ratio"
    );
    for (apps, calls) in [(1, 1), (1, CALLS), (APPS, 1), (APPS, CALLS)] {
        many(apps, calls);
    }
}
