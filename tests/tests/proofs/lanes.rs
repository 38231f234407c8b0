//! Independence of lanes: two equal ends get the same operations, and the first lane of one end stops or is lost. The frames on each of the
//! other lanes, and the events about calls that came by them, must be the same at both ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{
    Event, Gone, InboundId, InputRequest, Lane, Level, LogRecord, Progress, RateWindow, Reply, RouteKind, RpcError, ServeOptions,
    ToolOutput,
};
use testkit::config::app_config;
use testkit::config::{server_config, with};
use testkit::scripted::{call_tool, cancelled, json};
use testkit::tesseron::{cancel, invoke};
use testkit::{Rng, Scripted};

/// The lane with the trouble.
const FIRST: Lane = Lane::new(1);

/// The kind of trouble with the first lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The peer does not read the lane for a while.
    Stop,
    /// The lane is lost.
    Loss,
}

/// The frames of each lane and the events, in their order.
#[derive(Debug, Default)]
struct Observed {
    frames: BTreeMap<Lane, Vec<(RouteKind, Bytes)>>,
    events: Vec<Event>,
}

impl Observed {
    /// The frames of the other lanes, and the events except those about the calls `own`, which came by the first lane.
    fn of_others(&self, own: &[InboundId]) -> String {
        let frames: Vec<_> = self.frames.iter().filter(|(lane, _)| **lane != FIRST).collect();
        let is_own = |event: &&Event| match event {
            Event::Cancelled { id, .. } | Event::Input { id, .. } => own.contains(id),
            _ => false,
        };
        let events: Vec<_> = self.events.iter().filter(|event| !is_own(event)).collect();
        format!("{frames:?} {events:?}")
    }

    /// The replies on the first lane, without their order, which may differ: a response waits for `response_gap` after the last progress of
    /// its call.
    fn replies(&self) -> BTreeSet<&Bytes> {
        let all = self.frames.get(&FIRST).into_iter().flatten();
        all.filter(|(kind, _)| matches!(kind, RouteKind::Reply(_))).map(|(_, frame)| frame).collect()
    }
}

/// One end, with the frames and events that were polled.
struct Bench {
    end: Scripted,
    is_tesseron: bool,
    /// The running calls, each with the lane that it came by.
    serves: Vec<(Lane, InboundId)>,
    /// The number of calls that were made.
    calls: u64,
    observed: Observed,
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
        Self { end, is_tesseron, serves: Vec::new(), calls: 0, observed: Observed::default() }
    }

    fn frame(&mut self, lane: Lane, frame: String) {
        self.end.session.handle_frame(frame.into(), lane, self.end.now).expect("the lane takes frames");
    }

    /// Makes the step that `number` selects. No frame arrives on the lane `lost`, and its calls make no other step than their response.
    fn act(&mut self, number: u64, lost: Option<Lane>) {
        let [kind, which, lane, how, ..] = number.to_le_bytes();
        let lane = Lane::new(1 + u32::from(lane % 5));
        let serve = self.serves.get(usize::from(which) % self.serves.len().max(1)).copied();
        let now = self.end.now;
        match (kind % 16, serve) {
            (0..=2, _) if Some(lane) != lost => {
                self.calls += 1;
                let call = if self.is_tesseron { invoke(self.calls, &self.name()) } else { call_tool(self.calls, how & 1 == 1) };
                self.frame(lane, call);
            }
            (3 | 4, _) => drop(self.end.at(now.as_micros() / 1_000 + u64::from(how))),
            (5, _) if Some(lane) != lost => self.frame(lane, "{".to_owned()),
            // A handler may end on the lost lane, too.
            (6 | 7, Some((_, id))) => {
                self.serves.retain(|(_, serve)| *serve != id);
                let reply = if how & 1 == 1 { Reply::Tool(ToolOutput::text("ok")) } else { Reply::Error(RpcError::internal("no")) };
                let _ = self.end.session.respond(id, reply, now);
            }
            (_, Some((of, _))) if Some(of) == lost => {}
            (8..=11, Some((_, id))) => drop(self.end.session.progress(id, Progress::value(f64::from(how) / 3.0), now)),
            (12, Some((_, id))) => drop(self.end.session.request_input(id, InputRequest::Confirm { message: "?".to_owned() }, now)),
            (13, Some((_, id))) => {
                let record = LogRecord::new(Level::Error, json("1"));
                let _ = self.end.session.log(Some(id), record, now);
            }
            (14, _) if Some(lane) != lost => {
                let cancel = if self.is_tesseron { cancel(&self.name()) } else { cancelled(self.calls) };
                self.frame(lane, cancel);
            }
            (15, Some((_, id))) => {
                let options = ServeOptions::default().with_deadline(Duration::from_millis(u64::from(how) * 4));
                let _ = self.end.session.configure(id, options, now);
            }
            _ => {}
        }
        self.poll_all(lane);
    }

    fn name(&self) -> String {
        format!("inv_{}", self.calls)
    }

    /// Polls all frames and events. A request among the events has come by `lane`.
    fn poll_all(&mut self, lane: Lane) {
        while let Some(out) = self.end.session.poll_transmit() {
            self.observed.frames.entry(out.route.lane).or_default().push((out.route.kind, out.frame));
        }
        for event in self.end.events() {
            if let Event::Request { id, .. } = event {
                self.serves.push((lane, id));
            }
            self.observed.events.push(event);
        }
    }
}

/// Makes the same random steps at both ends, and compares them after each. Returns the number of frames on other lanes, and of replies on
/// the first lane, both at the disturbed end.
fn compare(seed: u64, is_tesseron: bool, trouble: Trouble) -> [usize; 2] {
    let mut rng = Rng::new(seed);
    let [mut calm, mut disturbed] = [Bench::new(is_tesseron), Bench::new(is_tesseron)];
    let mut own = Vec::new();
    let (begin, end) = (20 + rng.below(40), 120);
    let mut lost = None;
    for step in 0..160 {
        let now = disturbed.end.now;
        if step == begin {
            let frames = disturbed.observed.frames.get(&FIRST).map_or(0, Vec::len);
            let done = match trouble {
                Trouble::Stop => disturbed.end.session.set_writable(FIRST, false, now).is_ok(),
                Trouble::Loss => disturbed.end.session.handle_gone(Gone::Lane(FIRST), now).is_ok(),
            };
            lost = Some(FIRST).filter(|_| trouble == Trouble::Loss);
            disturbed.poll_all(FIRST);
            assert_eq!(disturbed.observed.frames.get(&FIRST).map_or(0, Vec::len), frames, "no frame is sent on the first lane");
            // The first lane is not open yet.
            if !done {
                return [0; 2];
            }
        } else if step == end && trouble == Trouble::Stop {
            disturbed.end.session.set_writable(FIRST, true, now).expect("a stopped lane stays open");
        }
        let number = rng.number();
        for bench in [&mut calm, &mut disturbed] {
            bench.act(number, lost);
        }
        own.extend(
            calm.serves.iter().filter(|(lane, id)| *lane == FIRST && !own.contains(id)).map(|(_, id)| *id).collect::<Vec<_>>(),
        );
        assert_eq!(calm.observed.of_others(&own), disturbed.observed.of_others(&own), "seed {seed}, step {step}, {trouble:?}");
    }
    // Once a stopped lane is writable again, all replies are sent. After a loss of the lane, MCP still sends them, and Tesseron does not.
    if trouble == Trouble::Stop || !is_tesseron {
        assert_eq!(calm.observed.replies(), disturbed.observed.replies(), "seed {seed}, {trouble:?}");
    }
    let others = disturbed.observed.frames.iter().filter(|(lane, _)| **lane != FIRST);
    [others.map(|(_, frames)| frames.len()).sum(), disturbed.observed.replies().len()]
}

fn campaign(trouble: Trouble) {
    for is_tesseron in [false, true] {
        let all = (0..150).map(|seed| compare(seed, is_tesseron, trouble));
        let [others, own] = all.fold([0; 2], |[others, own], [more, replies]| [others + more, own + replies]);
        assert!(others > 2_000 && own > 50, "{others} frames of other lanes and {own} replies of the first");
    }
}

#[test]
fn a_stopped_lane_does_not_affect_the_others() {
    campaign(Trouble::Stop);
}

#[test]
fn a_lost_lane_does_not_affect_the_others() {
    campaign(Trouble::Loss);
}
