//! The guarantees of a session on Tesseron: storms of random operations on a gateway and an app. Testkit checks the guarantees at each end.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{
    Answer, Ask, CallTimeouts, Close, Config, Elicit, Elicited, Event, Instant, Invoke, Lane, Level, LogRecord, Notice, Outcome,
    Progress, RateWindow, Reply, RpcError, Sample, Sampled, ServeOptions, Session, ToolOutput, TransportEnd, Violation,
};
use testkit::config::with;
use testkit::config::{agent, agent_capabilities, app_config, asking_gateway_config, gateway_config, welcome};
use testkit::scripted::{json, notification, request};
use testkit::tesseron::{CLAIMED, WELCOME, call_action, cancel, hello, invoke, invoked, named, progress, sample};
use testkit::{Rng, Scripted, Watched};

/// One end, whose guarantees testkit checks.
struct End {
    session: Watched,
    now: Instant,
    trace: Vec<String>,
    /// `true` if forged frames may arrive at this end. They may cause violations.
    forged: bool,
}

impl End {
    fn new(config: Config) -> Self {
        let mut session = Watched::new(Session::new(config, Instant::ZERO), Instant::ZERO);
        session.forget_trace();
        Self { session, now: Instant::ZERO, trace: Vec::new(), forged: false }
    }

    fn note(&mut self, what: String) {
        self.trace.push(format!("{} {what}", self.now.as_micros()));
    }

    /// Checks the limits on exchanges: in each direction `in_flight` calls and `in_flight` input requests, and one handshake of ours.
    fn check(&self) {
        let (stats, limits) = (self.session.stats(), self.session.config().limits);
        assert!(stats.exchanges_in <= 2 * limits.in_flight && stats.exchanges_out <= 2 * limits.in_flight + 1, "G5: {stats:?}");
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.session.handle_timeout(now);
        self.note("timeout".into());
    }

    /// Passes a frame to the session. Returns it if the session did not accept it.
    fn receive(&mut self, frame: Bytes) -> Option<Bytes> {
        if let Err(full) = self.session.handle_frame(frame.clone(), Lane::CHANNEL, self.now) {
            return Some(full.0);
        }
        self.note(format!("< {}", String::from_utf8_lossy(&frame)));
        None
    }

    fn send(&mut self) -> Option<Bytes> {
        let frame = self.session.poll_transmit()?.frame;
        self.note(format!("> {}", String::from_utf8_lossy(&frame)));
        Some(frame)
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.session.poll_event()?;
        match &event {
            // These two also occur without forged frames: a cancelled handler still counts toward the limit of the app after its call has
            // ended at the gateway, and no frame contains the sampling depth that an app has reached.
            Event::Violation(Violation::TooManyRequests | Violation::SamplingTooDeep) => {}
            Event::Violation(rule) => assert!(self.forged, "a violation without forged frames: {rule}"),
            _ => {}
        }
        self.note(format!("{event:?}"));
        Some(event)
    }
}

/// Frames on their way in one direction, oldest first.
type Link = VecDeque<(Instant, Bytes)>;

struct Storm {
    rng: Rng,
    now: Instant,
    /// The gateway and the app.
    ends: [End; 2],
    /// The frames of the gateway to the app, and those of the app to the gateway.
    links: [Link; 2],
    /// Each frame is delayed by fewer milliseconds than this.
    latency: usize,
    calls: u64,
}

impl Storm {
    fn new(seed: u64, forged: bool) -> Self {
        let gateway = with(asking_gateway_config(), |config| {
            config.timeouts.cancel_grace = Duration::from_millis(seed % 3 * 40);
            config.limits.in_flight = 12;
            config.limits.events = 8;
        });
        let app = with(app_config(), |config| {
            config.progress.window = RateWindow::new(3, Duration::from_millis(400));
            config.timeouts.serve = Some(Duration::from_secs(5));
            config.timeouts.input = Some(Duration::from_secs(3));
            config.timeouts.response_gap = Duration::from_millis(seed % 2 * 30);
            config.limits.in_flight = 12;
            config.limits.events = 8;
            // Small enough to be exceeded sometimes.
            config.limits.output_bytes = 2_000;
        });
        let ends = [gateway, app].map(End::new);
        let links = [Link::new(), Link::new()];
        let mut storm = Self { rng: Rng::new(seed), now: Instant::ZERO, ends, links, latency: 1 + seed as usize % 60, calls: 0 };
        for end in &mut storm.ends {
            end.forged = forged;
            if forged {
                end.session.judge_mut().distrust_peer();
            }
        }
        storm
    }

    /// Polls frames, delivers them, and polls events, until nothing more happens at this instant.
    fn run_until_idle(&mut self) {
        for _ in 0..1_000 {
            let mut moved = false;
            for at in 0..2 {
                // Sometimes an owner polls no events.
                for _ in 0..self.rng.below(12) {
                    let event = self.ends[at].poll_event();
                    moved |= event.is_some();
                    match event {
                        Some(Event::HandshakeRequest { .. }) => {
                            let now = self.now;
                            // The session may have closed after it queued this event.
                            if self.ends[at].session.welcome(Ok(welcome()), now).is_ok() {
                                self.ends[at].session.claim(agent(), agent_capabilities(), 1, now).unwrap();
                            }
                        }
                        Some(_) => {}
                        None => break,
                    }
                }
                for _ in 0..self.rng.below(8) {
                    let Some(frame) = self.ends[at].send() else { break };
                    let delay = Duration::from_millis(self.rng.below(self.latency) as u64);
                    // Frames stay in order.
                    let due = self.links[at].back().map_or(self.now, |(last, _)| *last).max(self.now.saturating_add(delay));
                    self.links[at].push_back((due, frame));
                    moved = true;
                }
                while self.links[at].front().is_some_and(|(due, _)| *due <= self.now) {
                    let Some((due, frame)) = self.links[at].pop_front() else { break };
                    match self.ends[1 - at].receive(frame) {
                        None => moved = true,
                        Some(back) => {
                            self.links[at].push_front((due, back));
                            break;
                        }
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        for end in &mut self.ends {
            end.now = self.now;
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        for end in &mut self.ends {
            end.handle_timeout(now);
        }
    }

    /// The next deadline of an end, or arrival of a frame.
    fn next(&self) -> Option<Instant> {
        let deadlines = self.ends.iter().filter_map(|end| end.session.poll_timeout());
        deadlines.chain(self.links.iter().filter_map(|link| link.front().map(|(due, _)| *due))).filter(|at| *at > self.now).min()
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..=2 => self.call(),
            3 => {
                if let Some(id) = self.rng.pick(&self.ends[0].session.ids.outbound_calls) {
                    let done = self.ends[0].session.cancel(id, None, self.now);
                    self.ends[0].note(format!("cancel {id} -> {done:?}"));
                }
            }
            4..=5 => self.answer(),
            6..=18 => self.serve(),
            19..=20 => {
                if let Some(next) = self.next() {
                    self.advance(next);
                    self.tick();
                }
            }
            // Time passes without `handle_timeout`, so that frames can come after a deadline.
            21 => {
                let span = Duration::from_millis(self.rng.below(400) as u64);
                self.advance(self.now.saturating_add(span));
            }
            22 if self.ends[0].forged => self.forge(),
            _ => {
                let notice = Notice::Actions(json("[]"));
                let notified = self.ends[1].session.notify(notice, self.now);
                self.ends[1].note(format!("notify -> {notified:?}"));
            }
        }
        for end in &self.ends {
            end.check();
        }
        self.run_until_idle();
    }

    fn call(&mut self) {
        self.calls += 1;
        let name = format!("s{}", self.calls);
        let mut call = match self.rng.below(6) {
            0 => Invoke::read_resource("balance"),
            1 => Invoke::subscribe("balance").with_subscription(name),
            _ => call_action(),
        };
        let asked = self.ends[0].session.ids.peer_input_requests.clone();
        // The newest sampling request is the deepest.
        call.parent = asked.last().map(|(key, _)| *key).filter(|_| self.rng.below(8) > 0);
        let millis = |count: usize| Some(Duration::from_millis(count as u64));
        call.timeouts = match self.rng.below(4) {
            0 => Some(
                CallTimeouts::NONE
                    .with_idle(millis(self.rng.below(900)))
                    .with_max_total(millis(2_500))
                    .with_reset_on_progress(true),
            ),
            1 => Some(CallTimeouts::NONE.with_max_total(millis(self.rng.below(2_500)))),
            _ => None,
        };
        let made = self.ends[0].session.invoke(call, self.now);
        self.ends[0].note(format!("invoke -> {:?}", made.map_err(|error| error.why)));
    }

    fn answer(&mut self) {
        let asked = self.ends[0].session.ids.peer_input_requests.clone();
        let Some((key, kind)) = self.rng.pick(&asked).filter(|_| self.rng.below(2) == 0) else { return };
        let answer = match self.rng.below(4) {
            0 => Answer::Refused(RpcError::internal("no")),
            _ if kind == "sample" => Answer::Sample(Sampled::new("a", "")),
            1 => Answer::Elicit(Elicited::Decline),
            _ => Answer::Elicit(Elicited::Accept(json("{}"))),
        };
        let given = self.ends[0].session.provide_input(key, answer, self.now);
        self.ends[0].note(format!("provide {key} -> {given:?}"));
    }

    fn serve(&mut self) {
        let running = self.ends[1].session.ids.inbound_calls.clone();
        let Some(id) = (if self.rng.below(3) == 0 { running.last().copied() } else { self.rng.pick(&running) }) else { return };
        let (what, how) = (self.rng.below(10), self.rng.below(100));
        let (app, now) = (&mut self.ends[1], self.now);
        let description = match what {
            0..=2 => {
                let update = if how % 5 == 0 { Progress::message("m") } else { Progress::percent(how as f64) };
                format!("progress {:?}", app.session.progress(id, update, now))
            }
            3 | 4 => {
                let ask = match how % 6 {
                    0..=3 => Ask::from(Sample::new("?")),
                    4 => Ask::Confirm { message: "?".into() },
                    _ => Ask::Elicit(Elicit::new("?", json(r#"{"type":"object"}"#))),
                };
                format!("ask {:?}", app.session.request_input(id, ask, now))
            }
            5 => {
                let stored = app.session.checkpoint(id, json(r#"{"done":1}"#));
                return app.note(format!("{id} checkpoint {stored:?}"));
            }
            6 => {
                let options = ServeOptions::default().with_deadline(Duration::from_millis(how as u64 * 50));
                format!("configure {:?}", app.session.configure(id, options, now))
            }
            7 => {
                let record = LogRecord::new(Level::Info, json(r#""m""#));
                format!("log {:?}", app.session.log(Some(id), record, now))
            }
            _ => {
                let reply = match how % 3 {
                    0 => Reply::Tool(ToolOutput::text("ok")),
                    1 => Reply::Tool(ToolOutput::error("no")),
                    _ => Reply::Error(RpcError::new(-32004, "no")),
                };
                format!("respond {:?}", app.session.respond(id, reply, now))
            }
        };
        app.note(format!("{id} {description}"));
    }

    /// Passes to one end a forged frame, which the other end has not sent.
    fn forge(&mut self) {
        let number = self.rng.below(40) as u64;
        let name = named(number);
        let frame = match self.rng.below(14) {
            0 => invoked(number, &name, "1"),
            1 => format!(r#"{{"jsonrpc":"2.0","id":{number}}}"#),
            2 => format!(r#"{{"jsonrpc":"2.0","id":{number},"error":null}}"#),
            3 => invoke(1_000 + number % 3, &name),
            4 => invoke(number, "forged"),
            5 => cancel(&name),
            6 => progress(&name, r#","percent":50"#),
            7 => sample(1_000 + number % 3, &name),
            8 => CLAIMED.to_owned(),
            9 => WELCOME.to_owned(),
            10 => hello(number, "1.2.0"),
            11 => request(number, "x/y", "{}"),
            12 => notification("resources/updated", r#"{"subscriptionId":"s1","value":1}"#),
            _ => format!("[{}]", hello(number, "1.2.0")),
        };
        let at = self.rng.below(2);
        drop(self.ends[at].receive(frame.into()));
    }

    /// Ends the session at one of the ends; `how` chooses the end, and one of four ways. Checks that both ends close and keep no state.
    fn finish(mut self, how: u64) -> [Vec<String>; 2] {
        let now = self.now;
        let at = (how % 2) as usize;
        match how / 2 % 4 {
            0 => self.ends[at].session.handle_end(TransportEnd::Eof, now),
            1 => self.ends[at].session.handle_end(TransportEnd::Failed, now),
            2 => self.ends[at].session.close(Close::Now, now),
            _ => self.ends[at].session.close(Close::Graceful { grace: Duration::from_millis(300) }, now),
        }
        for _ in 0..2_000 {
            self.tick();
            self.run_until_idle();
            let Some(next) = self.next() else { break };
            self.advance(next);
        }
        let ended = self.ends.iter().position(|end| end.session.is_closed());
        let other = 1 - ended.expect("one end has closed");
        self.links.iter_mut().for_each(VecDeque::clear);
        let now = self.now;
        self.ends[other].session.handle_end(TransportEnd::Failed, now);
        for _ in 0..200 {
            self.run_until_idle();
        }
        for end in &self.ends {
            end.session.check_end();
            let stats = end.session.stats();
            assert_eq!((stats.outbound_calls, stats.inbound_calls, stats.cancelled_calls, stats.queued_bytes), (0, 0, 0, 0), "G5");
        }
        self.ends.map(|end| end.trace)
    }
}

/// Runs a storm of `steps` operations, and returns the traces of both ends. If `forged` is `true`, some operations pass forged frames to an
/// end. If `needless_timeouts` is `true`, each end is also checked for G8.
fn storm(seed: u64, steps: usize, forged: bool, needless_timeouts: bool) -> [Vec<String>; 2] {
    let mut storm = Storm::new(seed, forged);
    while !storm.ends.iter().all(|end| end.session.is_ready()) {
        storm.run_until_idle();
        if let Some((due, _)) = storm.links.iter().filter_map(VecDeque::front).min() {
            storm.advance(*due);
        }
    }
    if needless_timeouts {
        storm.ends.iter_mut().for_each(|end| end.session.check_needless_timeouts());
    }
    for _ in 0..steps {
        storm.step();
    }
    storm.finish(seed)
}

#[test]
fn g1_to_g5_g7_and_g12_hold_in_every_storm_of_tesseron() {
    let (mut done, mut cancelled, mut nested, mut refused, mut congested) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
        let trace = storm(seed, 800, false, false).concat();
        let count = |what: &str| trace.iter().filter(|line| line.contains(what)).count();
        done += count("Done {");
        cancelled += count("actions/cancel");
        nested += count("depth: 3");
        refused += count("nested too deep");
        congested += count("Congested") + count("Full");
    }
    assert!(
        done > 2_000 && cancelled > 200 && nested > 10 && refused > 0 && congested > 100,
        "a storm with too few events: {done} done, {cancelled} cancels, {nested} nested, {refused} too deep, {congested} congested"
    );
}

#[test]
fn g1_to_g7_hold_in_storms_with_forged_frames() {
    for seed in 0..60 {
        storm(seed, 800, true, false);
    }
}

#[test]
fn g8_a_call_of_handle_timeout_before_any_deadline_changes_nothing() {
    for seed in 0..4 {
        storm(seed, 300, seed % 2 == 1, true);
    }
}

#[test]
fn g10_equal_operations_give_equal_output() {
    for seed in 0..12 {
        assert_eq!(storm(seed, 500, seed % 2 == 1, false), storm(seed, 500, seed % 2 == 1, false));
    }
}

#[test]
fn g9_a_frame_or_a_method_call_after_a_deadline_counts_as_in_time_before_handle_timeout() {
    let mut gateway = Scripted::gateway(gateway_config());
    let timeouts = CallTimeouts::NONE.with_max_total(Some(Duration::from_millis(10)));
    gateway.invoke(call_action().with_timeouts(timeouts));
    gateway.sent();
    gateway.skip_to(3_600_000).frame(&invoked(1, &named(1), "1"));
    assert!(matches!(gateway.outcome(), Outcome::Result(_)));
    let now = gateway.now;
    gateway.session.handle_timeout(now);
    gateway.expect_silence();

    let mut app = Scripted::app(app_config());
    let id = app.receive_invoke(7, "i1");
    app.skip_to(3_600_000).report(id, Progress::percent(1.0));
    app.respond(id);
    assert_eq!(app.sent(), [progress("i1", r#","percent":1"#), invoked(7, "i1", "\"ok\"")]);
}

#[test]
fn g6_no_bytes_cause_a_panic() {
    let samples: Vec<String> = vec![
        hello(1, "1.2.0"),
        hello(1, "1.2.0")
            .replace("tesseron/hello", "tesseron/resume")
            .replace(r#""app""#, r#""sessionId":"s","resumeToken":"t","app""#),
        WELCOME.into(),
        CLAIMED.into(),
        invoke(9, "i2"),
        cancel("i1"),
        invoked(1, &named(1), "1"),
        progress(&named(1), r#","percent":0.5,"message":"m","data":{}"#),
        sample(9, &named(1)),
        request(
            9,
            "elicitation/request",
            r#"{"invocationId":"inv_1","question":"?","schema":{"type":"object","properties":{"a":{"type":"string","enum":["x"]}}}}"#,
        ),
        request(9, "resources/subscribe", r#"{"name":"balance","subscriptionId":"s"}"#),
        notification("resources/updated", r#"{"subscriptionId":"s","value":1}"#),
        notification("log", r#"{"level":"warn","message":"m","meta":{"a":1}}"#),
        notification("actions/list_changed", r#"{"actions":[{}]}"#),
        r#"{"jsonrpc":"2.0","id":3,"result":{"content":"x","action":"accept","value":{}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":{"partial":{}}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":1}"#.into(),
    ];
    let mut rng = Rng::new(6);
    for case in 0..4_000 {
        let mut end = match case % 5 {
            0 => Scripted::new(app_config()),
            1 => Scripted::app(app_config()),
            2 => Scripted::new(asking_gateway_config()),
            3 => Scripted::unclaimed_gateway(gateway_config()),
            _ => Scripted::gateway(gateway_config()),
        };
        match case % 5 {
            1 => {
                let id = end.receive_invoke(7, "i1");
                end.ask(id, Ask::Elicit(Elicit::new("?", json(r#"{"type":"object"}"#))));
            }
            4 => drop(end.invoke_action()),
            _ => {}
        }
        end.sent();
        for _ in 0..8 {
            let mut bytes = samples[rng.below(samples.len())].clone().into_bytes();
            for _ in 0..rng.below(5) {
                if bytes.is_empty() {
                    break;
                }
                let place = rng.below(bytes.len());
                match rng.below(4) {
                    0 => bytes[place] = rng.number() as u8,
                    1 => drop(bytes.remove(place)),
                    2 => bytes.insert(place, b"{}[]\",:0123456789eE+-.\\tfnu"[rng.below(27)]),
                    _ => bytes.truncate(place.max(1)),
                }
            }
            end.session.handle_frame(Bytes::from(bytes), Lane::CHANNEL, end.now).unwrap();
            if end.events().iter().any(|event| matches!(event, Event::HandshakeRequest { .. })) {
                end.session.welcome(Ok(welcome()), end.now).unwrap();
            }
        }
        end.at(100_000);
    }
}
