//! The cost of a bridge: `cargo run --release -p tests --example bridge_load`.
//!
//! The table has the time of a round trip, and of a progress update from handler to caller: over two bare sessions, and with a bridge between
//! them. The two measurements alternate; the times are medians.

use std::time::Instant as Clock;

use protocol_core::{Config, Event, InboundId, Instant, Invoke, Json, Lane, Op, Progress, Reply, Session, ToolOutput};
use tesseron::bridge::{Bridge, BridgeConfig, BridgeEvent, Leg};
use tesseron::claims::ChannelId;
use testkit::Rng;
use testkit::config::{client_config, server_config};
use tests::bridge::{app_config, config};

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

/// Prints one line of the table. The two measurements alternate, so that other load of the machine affects both.
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

fn main() {
    println!("{:<34} {:>10} {:>10} {:>10} {:>8}", "nanoseconds each, medians", "bare", "bridged", "added", "ratio");
    compare("round trip of a call", round_trips, round_trips);
    compare("update from handler to caller", updates, updates);
}
