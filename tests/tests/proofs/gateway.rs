//! Every order of the steps of a bridge with two legs, searched with `testkit::explore`. Gateways with planted faults show that the search
//! finds such faults.

use std::hash::Hash;

use protocol_core::{Event, InboundId, Invoke, OutboundId, Progress, Reply, ToolOutput};
use tesseron::bridge::Leg;
use testkit::config::app_config;
use testkit::explore::{Bounds, Explored, Failure, explore};
use testkit::scripted::json;
use tests::bridge::{GatewayFault, Rig, config, value};

/// A bridge between the session of an agent and that of an app. Each of the two reads the output of the bridge only in a step of its own,
/// so that a cancel, an update and a result can cross.
struct Gateway {
    rig: Rig,
    app: usize,
    /// The calls of the agent.
    calls: Vec<OutboundId>,
    /// The calls of the agent that have ended.
    done: Vec<OutboundId>,
    /// The calls that the app serves.
    serves: Vec<InboundId>,
    /// The numbers of calls, cancels and updates that may still happen.
    left: [u8; 3],
}

/// A step of the agent or of the app. The number is the place of a call in [`Gateway::calls`] (`Cancel`) or [`Gateway::serves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Call,
    Cancel(usize),
    Update(usize),
    Respond(usize),
    ReadAgent,
    ReadApp,
}

impl Gateway {
    fn new(left: [u8; 3], fault: Option<GatewayFault>) -> Self {
        let mut rig = Rig::of_sessions(config());
        let app = rig.join_session(app_config());
        rig.agent_end().drain();
        rig.app_end(app).drain();
        let leg = rig.leg(app);
        rig.stall(Leg::Agent).stall(leg);
        rig.trace.clear();
        rig.fault = fault;
        Self { rig, app, calls: Vec::new(), done: Vec::new(), serves: Vec::new(), left }
    }

    /// Returns `true` if frames of the bridge to this end (`agent` or `app`) are queued.
    fn unread(&self, name: &str) -> bool {
        // Only the statistics of a leg show this.
        let leg = if name == "agent" { Leg::Agent } else { self.rig.leg(self.app) };
        self.rig.bridge.stats(leg).is_some_and(|stats| stats.queued_bytes > 0)
    }

    fn poll(&mut self) {
        for event in self.rig.agent_end().events() {
            if let Event::Done { id, .. } = event {
                self.done.push(id);
            }
        }
        for event in self.rig.app_end(self.app).events() {
            match event {
                Event::Request { id, .. } => self.serves.push(id),
                Event::Cancelled { id, .. } => {
                    self.serves.retain(|serve| *serve != id);
                    // The handler ends immediately.
                    let end = self.rig.app_end(self.app);
                    let _ = end.session.respond(id, Reply::Tool(ToolOutput::text("late")), end.now);
                }
                Event::Violation(rule) => panic!("the bridge violates a rule at the app: {rule}"),
                _ => {}
            }
        }
    }
}

impl Explored for Gateway {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let [calls, cancels, updates] = self.left;
        let mut all = Vec::new();
        if calls > 0 {
            all.push(Step::Call);
        }
        if cancels > 0 {
            all.extend((0..self.calls.len()).filter(|place| !self.done.contains(&self.calls[*place])).map(Step::Cancel));
        }
        for place in 0..self.serves.len() {
            if updates > 0 {
                all.push(Step::Update(place));
            }
            all.push(Step::Respond(place));
        }
        if self.unread("agent") {
            all.push(Step::ReadAgent);
        }
        if self.unread("app") {
            all.push(Step::ReadApp);
        }
        all
    }

    fn take(&mut self, step: &Step) {
        let app = self.app;
        match *step {
            Step::Call => {
                self.left[0] -= 1;
                let call = self.rig.agent_end().invoke(Invoke::call_tool("ledger__t", json("{}")));
                self.calls.push(call);
            }
            Step::Cancel(place) => {
                self.left[1] -= 1;
                let end = self.rig.agent_end();
                end.session.cancel(self.calls[place], None, end.now).expect("the call is open");
            }
            Step::Update(place) => {
                self.left[2] -= 1;
                let value = f64::from(10 - self.left[2]);
                self.rig.app_end(app).report(self.serves[place], Progress::percent(value));
            }
            Step::Respond(place) => {
                let id = self.serves.remove(place);
                self.rig.app_end(app).respond(id);
            }
            Step::ReadAgent => _ = self.rig.resume(Leg::Agent).stall(Leg::Agent),
            Step::ReadApp => {
                let leg = self.rig.leg(app);
                self.rig.resume(leg).stall(leg);
            }
        }
        self.rig.deliver();
        self.poll();
    }

    /// The frames that the bridge and each of the two ends have received, in order. They determine the states of all three. Only `unread`
    /// shows that a faulty gateway has lost a frame.
    fn state(&self) -> impl Hash {
        let of = |mark: &str| self.rig.trace.iter().filter(|line| line.contains(mark)).cloned().collect::<Vec<_>>();
        let unread = ["agent", "app"].map(|name| self.unread(name));
        (of(" > "), of("agent < "), of("app 0 < "), self.left, self.done.len(), self.serves.len(), unread)
    }

    fn check_rest(&self) {
        assert_eq!(self.done.len(), self.calls.len(), "a call of the agent is never done");
        assert_eq!(self.rig.bridge.in_flight(), 0, "the bridge keeps a call that has ended");
        let received = self.rig.trace.iter().filter_map(|line| line.strip_prefix("agent < ")).map(value);
        let mut answered: Vec<_> =
            received.filter(|frame| frame.get("method").is_none()).map(|frame| frame["id"].to_string()).collect();
        let answers = answered.len();
        answered.sort_unstable();
        answered.dedup();
        assert_eq!(answered.len(), answers, "the bridge answers a call of the agent twice");
    }
}

#[test]
fn every_order_of_two_calls_a_cancel_and_an_update_ends_each_call_once() {
    let found = explore(|| Gateway::new([2, 1, 1], None), Bounds::default()).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{found:?}");
    assert!(found.states > 500 && found.rests > 10 && found.cut == 0, "{found:?}");
}

/// Returns `true` for a frame with which the bridge answers the agent.
fn is_answer(leg: Leg, text: &str) -> bool {
    leg == Leg::Agent && !text.contains(r#""method":"#)
}

fn is_invocation(text: &str) -> bool {
    text.contains(r#""method":"actions/invoke""#)
}

#[test]
fn a_gateway_that_loses_or_repeats_a_frame_is_found_with_the_fewest_steps() {
    let invoked = [Step::Call, Step::ReadApp];
    let answered = [Step::Call, Step::ReadApp, Step::Respond(0), Step::ReadAgent];
    let faults: [(GatewayFault, &str, &[Step]); 4] = [
        (|leg, text| if is_answer(leg, &text) { vec![] } else { vec![text] }, "a call of the agent is never done", &answered),
        (
            |leg, text| if is_answer(leg, &text) { vec![text.clone(), text] } else { vec![text] },
            "the bridge answers a call of the agent twice",
            &answered,
        ),
        (|_, text| if is_invocation(&text) { vec![] } else { vec![text] }, "a call of the agent is never done", &invoked),
        (
            |_, text| if is_invocation(&text) { vec![text.clone(), text] } else { vec![text] },
            "the bridge violates a rule at the app",
            &invoked,
        ),
    ];
    for (fault, expected, fewest) in faults {
        let failure = explore(|| Gateway::new([1, 0, 0], Some(fault)), Bounds::default()).expect_err(expected);
        let Failure::Counterexample { what, way } = failure else { panic!("{failure}") };
        assert!(what.contains(expected), "{what}");
        assert_eq!(way, fewest);
    }
}
