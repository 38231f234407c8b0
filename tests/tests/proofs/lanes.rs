//! What happens to one lane changes nothing for the others: equal ends are given the same operations, and one of them has trouble with
//! its first lane. No model stands between them: what each of the other lanes is sent, and what the owner is told, is compared as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{
    Ask, Event, Gone, InboundId, Lane, Level, LogRecord, Progress, RateWindow, Reply, ReplyKind, RouteKind, RpcError, ServeOptions,
    ToolOutput,
};
use testkit::config::app_config;
use testkit::config::{server_config, with};
use testkit::scripted::{call_tool, cancelled, json};
use testkit::tesseron::{cancel, invoke};
use testkit::{Rng, Scripted};

/// The lane that has trouble.
const FIRST: Lane = Lane::new(1);

/// What goes wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Its peer does not read for a while.
    Stop,
    /// It is lost.
    Loss,
}

/// What is said by each lane, and what the owner is told, in the order in which it happened.
#[derive(Debug, Default)]
struct Heard {
    frames: BTreeMap<Lane, Vec<(RouteKind, Bytes)>>,
    events: Vec<Event>,
}

impl Heard {
    /// Without what belongs to the first lane, on which `own` came.
    fn by_others(&self, own: &[InboundId]) -> String {
        let frames: Vec<_> = self.frames.iter().filter(|(lane, _)| **lane != FIRST).collect();
        let is_own = |event: &&Event| match event {
            Event::Cancelled { id, .. } | Event::Input { id, .. } => own.contains(id),
            _ => false,
        };
        let events: Vec<_> = self.events.iter().filter(|event| !is_own(event)).collect();
        format!("{frames:?} {events:?}")
    }

    /// The replies of the first lane. Their order may be another: a response keeps a moment's distance from the last progress.
    fn replies(&self) -> BTreeSet<&Bytes> {
        let all = self.frames.get(&FIRST).into_iter().flatten();
        all.filter(|(kind, _)| matches!(kind, RouteKind::Reply(_))).map(|(_, frame)| frame).collect()
    }
}

struct Bench {
    end: Scripted,
    is_tesseron: bool,
    serves: Vec<(Lane, InboundId)>,
    calls: u64,
    heard: Heard,
}

impl Bench {
    fn new(is_tesseron: bool) -> Self {
        let config = if is_tesseron { app_config() } else { server_config() };
        let config = with(config, |config| {
            config.progress.window = RateWindow::new(2, Duration::from_millis(40));
            config.timeouts.serve = Some(Duration::from_millis(900));
            config.timeouts.input = Some(Duration::from_millis(300));
            config.timeouts.response_gap = Duration::from_millis(5);
            config.limits.in_flight = 1_000;
        });
        let end = if is_tesseron { Scripted::app(config) } else { Scripted::server(config) };
        Self { end, is_tesseron, serves: Vec::new(), calls: 0, heard: Heard::default() }
    }

    fn frame(&mut self, lane: Lane, frame: String) {
        self.end.session.handle_frame(frame.into(), lane, self.end.now).expect("the lane takes frames");
    }

    /// Does what `number` says. `over` is the lane on which nothing new happens.
    fn act(&mut self, number: u64, over: Option<Lane>) {
        let [kind, which, lane, how, ..] = number.to_le_bytes();
        let lane = Lane::new(1 + u32::from(lane % 5));
        let serve = self.serves.get(usize::from(which) % self.serves.len().max(1)).copied();
        let now = self.end.now;
        match (kind % 16, serve) {
            (0..=2, _) if Some(lane) != over => {
                self.calls += 1;
                let call = if self.is_tesseron { invoke(self.calls, &self.name()) } else { call_tool(self.calls, how & 1 == 1) };
                self.frame(lane, call);
            }
            (3 | 4, _) => drop(self.end.at(now.as_micros() / 1_000 + u64::from(how))),
            (5, _) if Some(lane) != over => self.frame(lane, "{".to_owned()),
            // Handlers end on every lane.
            (6 | 7, Some((_, id))) => {
                self.serves.retain(|(_, serve)| *serve != id);
                let reply = if how & 1 == 1 { Reply::Tool(ToolOutput::text("ok")) } else { Reply::Error(RpcError::internal("no")) };
                let _ = self.end.session.respond(id, reply, now);
            }
            (_, Some((of, _))) if Some(of) == over => {}
            (8..=11, Some((_, id))) => drop(self.end.session.progress(id, Progress::value(f64::from(how) / 3.0), now)),
            (12, Some((_, id))) => drop(self.end.session.request_input(id, Ask::Confirm { message: "?".to_owned() }, now)),
            (13, Some((_, id))) => {
                let record = LogRecord::new(Level::Error, json("1"));
                let _ = self.end.session.log(Some(id), record, now);
            }
            (14, _) if Some(lane) != over => {
                let cancel = if self.is_tesseron { cancel(&self.name()) } else { cancelled(self.calls) };
                self.frame(lane, cancel);
            }
            (15, Some((_, id))) => {
                let options = ServeOptions::default().with_deadline(Duration::from_millis(u64::from(how) * 4));
                let _ = self.end.session.configure(id, options, now);
            }
            _ => {}
        }
        self.listen(lane);
    }

    fn name(&self) -> String {
        format!("inv_{}", self.calls)
    }

    /// Hears everything there is to hear; a request among it came by `lane`.
    fn listen(&mut self, lane: Lane) {
        while let Some(out) = self.end.session.poll_transmit() {
            self.heard.frames.entry(out.route.lane).or_default().push((out.route.kind, out.frame));
        }
        for event in self.end.events() {
            if let Event::Request { id, .. } = event {
                self.serves.push((lane, id));
            }
            self.heard.events.push(event);
        }
    }
}

/// How much there was to compare: frames of other lanes, and replies of the first.
fn compare(seed: u64, is_tesseron: bool, trouble: Trouble) -> [usize; 2] {
    let mut rng = Rng::new(seed);
    let [mut calm, mut disturbed] = [Bench::new(is_tesseron), Bench::new(is_tesseron)];
    let mut own = Vec::new();
    let (begin, end) = (20 + rng.below(40), 120);
    let mut over = None;
    for step in 0..160 {
        let now = disturbed.end.now;
        if step == begin {
            let frames = disturbed.heard.frames.get(&FIRST).map_or(0, Vec::len);
            let done = match trouble {
                Trouble::Stop => disturbed.end.session.set_writable(FIRST, false, now).is_ok(),
                Trouble::Loss => disturbed.end.session.handle_gone(Gone::Lane(FIRST), now).is_ok(),
            };
            over = Some(FIRST).filter(|_| trouble == Trouble::Loss);
            disturbed.listen(FIRST);
            assert_eq!(disturbed.heard.frames.get(&FIRST).map_or(0, Vec::len), frames, "nothing leaves by that");
            if !done {
                return [0; 2];
            }
        } else if step == end && trouble == Trouble::Stop {
            disturbed.end.session.set_writable(FIRST, true, now).expect("it was stopped, and is open for that");
        }
        let number = rng.number();
        for bench in [&mut calm, &mut disturbed] {
            bench.act(number, over);
        }
        own.extend(
            calm.serves.iter().filter(|(lane, id)| *lane == FIRST && !own.contains(id)).map(|(_, id)| *id).collect::<Vec<_>>(),
        );
        assert_eq!(calm.heard.by_others(&own), disturbed.heard.by_others(&own), "seed {seed}, step {step}, {trouble:?}");
    }
    // What waited comes in full once the lane goes on; MCP outlives a lane, and Tesseron says nothing more by it.
    if trouble == Trouble::Stop || !is_tesseron {
        assert_eq!(calm.heard.replies(), disturbed.heard.replies(), "seed {seed}, {trouble:?}");
    }
    let others = disturbed.heard.frames.iter().filter(|(lane, _)| **lane != FIRST);
    [others.map(|(_, frames)| frames.len()).sum(), disturbed.heard.replies().len()]
}

fn campaign(trouble: Trouble) {
    for is_tesseron in [false, true] {
        let all = (0..150).map(|seed| compare(seed, is_tesseron, trouble));
        let [others, own] = all.fold([0; 2], |[others, own], [more, replies]| [others + more, own + replies]);
        assert!(others > 2_000 && own > 50, "{others} frames of other lanes and {own} replies of the first");
    }
}

#[test]
fn a_lane_that_is_stopped_changes_nothing_that_the_others_see() {
    campaign(Trouble::Stop);
}

#[test]
fn a_lane_that_is_lost_changes_nothing_that_the_others_see() {
    campaign(Trouble::Loss);
}

#[test]
fn a_lane_that_is_flooded_with_what_is_refused_is_given_up_and_changes_nothing_that_the_others_see() {
    for is_tesseron in [false, true] {
        let [mut calm, mut disturbed] = [Bench::new(is_tesseron), Bench::new(is_tesseron)];
        let mut rng = Rng::new(7);
        let flood = Lane::new(77);
        let given_up = |event: &Event| matches!(event, Event::LaneClosed { lane, .. } if *lane == flood);
        let mut refused = 0;
        for _ in 0..400 {
            for _ in 0..8 {
                if !disturbed.end.session.wants_input(flood) || disturbed.heard.events.iter().any(given_up) {
                    break;
                }
                let call = r#"{"jsonrpc":"2.0","id":9000,"method":"no/such"}"#;
                let received = disturbed.end.session.handle_frame(call.into(), flood, disturbed.end.now).expect("it takes frames");
                let _ = disturbed.end.session.set_writable(flood, false, disturbed.end.now);
                refused += received.replies;
            }
            let number = rng.number();
            for bench in [&mut calm, &mut disturbed] {
                bench.act(number, None);
            }
            disturbed.heard.events.retain(|event| !matches!(event, Event::Violation(_)));
            calm.heard.events.retain(|event| !matches!(event, Event::Violation(_)));
        }
        assert!(refused >= 256, "{refused}");
        let before = disturbed.heard.events.len();
        disturbed.heard.events.retain(|event| !given_up(event));
        assert!(before > disturbed.heard.events.len(), "it was given up");
        assert!(!disturbed.heard.frames.contains_key(&flood), "nothing has left by it");
        assert_eq!(calm.heard.by_others(&[]), disturbed.heard.by_others(&[]));
        let errors = [&calm, &disturbed].map(|bench| {
            let all = bench.heard.frames.values().flatten();
            all.filter(|(kind, _)| *kind == RouteKind::Reply(ReplyKind::Error)).count()
        });
        assert!(errors[0] == errors[1] && errors[0] > 0);
    }
}
