//! Every order of the steps of a client that chooses its era and a server that serves both eras: the choice, calls, cancels, deadlines and
//! changes of the subscription (MCP 2026-07-28).

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Event, InboundId, Instant, Invoke, Json, Lane, Notification, Op, OutboundId, Outcome, Reply, Request, Session,
    SubscriptionFilter, Text, Violation,
};
use testkit::config::{client_config, server_config, with};
use testkit::explore::{Bounds, Explored, explore};
use testkit::{Scripted, Watched};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Two sessions, and the frames that are under way between them.
struct Link {
    ends: [Scripted; 2],
    /// The frames that were sent to each end and have not arrived.
    under_way: [VecDeque<String>; 2],
    /// The calls that were made.
    calls: Vec<(OutboundId, Invoke)>,
    done: Vec<(OutboundId, Outcome)>,
    /// The requests whose handlers run.
    running: Vec<InboundId>,
    left: Left,
}

/// The number of times that each kind of step may still be taken.
#[derive(Clone, Copy, Hash)]
struct Left {
    calls: u8,
    cancels: u8,
    deadlines: u8,
    /// Changes of the subscription: the first adds a resource, the second removes it.
    changes: u8,
    /// Changes of the list of tools.
    notifications: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The client calls a tool.
    Call,
    /// The client adds a resource to its subscription, or removes the resource.
    Change,
    /// The client cancels the call at this place of [`Link::calls`].
    Cancel(usize),
    /// The next deadline of the client passes.
    Deadline,
    /// The handler at this place of [`Link::running`] responds.
    Respond(usize),
    /// The server publishes that its list of tools has changed.
    Publish,
    /// This end sends its next frame.
    Leave(usize),
    /// The next frame arrives at this end.
    Arrive(usize),
}

impl Link {
    fn new(left: Left) -> Self {
        let client = with(client_config(), |config| {
            config.era = Era::Auto;
            config.timeouts.call = CallTimeouts::NONE.with_idle(Some(Duration::from_millis(10)));
        });
        let ends = [Scripted::new(client), Scripted::new(server_config())];
        Self { ends, under_way: Default::default(), calls: Vec::new(), done: Vec::new(), running: Vec::new(), left }
    }

    fn call(&mut self, call: Invoke) {
        let id = self.ends[CLIENT].invoke(call.clone());
        self.calls.push((id, call));
    }

    fn is_done(&self, id: OutboundId) -> bool {
        self.done.iter().any(|(done, _)| *done == id)
    }

    /// The outcome of the first call of this operation.
    fn outcome(&self, op: Op) -> Option<&Outcome> {
        let (id, _) = self.calls.iter().find(|(_, call)| call.op() == op)?;
        self.done.iter().find(|(done, _)| done == id).map(|(_, outcome)| outcome)
    }

    fn poll(&mut self) {
        for event in self.ends[CLIENT].events() {
            match event {
                Event::Done { id, outcome, .. } => {
                    self.done.push((id, outcome));
                }
                // The time limit of the acknowledgement may expire before the acknowledgement arrives.
                Event::Violation(Violation::SubscriptionUnacknowledged) => {}
                Event::Violation(rule) => panic!("the client objects to its server: {rule}"),
                Event::Closed(reason) => panic!("the client closes: {reason}"),
                _ => {}
            }
        }
        for event in self.ends[SERVER].events() {
            match event {
                Event::Request { id, request: Request::Listen(_), .. } => {
                    let end = &mut self.ends[SERVER];
                    let mut offered = SubscriptionFilter::default();
                    (offered.tools, offered.uris) = (true, vec![Text::from("u:")]);
                    end.session.accept_subscription(id, &offered, end.now).expect("it is new");
                }
                Event::Request { id, .. } => self.running.push(id),
                Event::Cancelled { id, .. } => {
                    self.running.retain(|running| *running != id);
                    // The handler ends at once.
                    let end = &mut self.ends[SERVER];
                    let _ = end.session.respond(id, Reply::Done, end.now);
                }
                Event::Violation(rule) => panic!("the server objects to its client: {rule}"),
                _ => {}
            }
        }
    }
}

impl Explored for Link {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut all = Vec::new();
        let left = self.left;
        all.extend((left.calls > 0).then_some(Step::Call));
        all.extend((left.changes > 0).then_some(Step::Change));
        let open = self.calls.iter().enumerate().filter(|(_, (id, _))| left.cancels > 0 && !self.is_done(*id));
        all.extend(open.map(|(place, _)| Step::Cancel(place)));
        let has_deadline = self.ends[CLIENT].session.poll_timeout().is_some();
        all.extend((left.deadlines > 0 && has_deadline).then_some(Step::Deadline));
        all.extend((0..self.running.len()).map(Step::Respond));
        all.extend((left.notifications > 0).then_some(Step::Publish));
        for end in [CLIENT, SERVER] {
            all.extend((self.ends[end].session.stats().queued_bytes > 0).then_some(Step::Leave(end)));
            all.extend((!self.under_way[end].is_empty()).then_some(Step::Arrive(end)));
        }
        all
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Call => {
                self.left.calls -= 1;
                self.call(Invoke::call_tool("t", Json::empty_object()));
            }
            Step::Change => {
                self.left.changes -= 1;
                let is_first = !self.calls.iter().any(|(_, call)| call.op() == Op::Subscribe);
                self.call(if is_first { Invoke::subscribe("u:") } else { Invoke::unsubscribe("u:") });
            }
            Step::Cancel(place) => {
                self.left.cancels -= 1;
                let end = &mut self.ends[CLIENT];
                end.session.cancel(self.calls[place].0, None, end.now).expect("it is not done");
            }
            Step::Deadline => {
                self.left.deadlines -= 1;
                let end = &mut self.ends[CLIENT];
                end.now = end.session.poll_timeout().expect("there is one");
                end.session.handle_timeout(end.now);
            }
            Step::Respond(place) => {
                let id = self.running.remove(place);
                let end = &mut self.ends[SERVER];
                end.session.respond(id, Reply::Done, end.now).expect("its handler runs");
            }
            Step::Publish => {
                self.left.notifications -= 1;
                let end = &mut self.ends[SERVER];
                end.session.publish(&Notification::ToolsChanged, end.now);
            }
            Step::Leave(end) => {
                let frame = self.ends[end].next_sent().expect("output is queued");
                self.under_way[1 - end].push_back(frame);
            }
            Step::Arrive(end) => {
                let frame = self.under_way[end].pop_front().expect("a frame is under way");
                let end = &mut self.ends[end];
                end.session.handle_frame(frame.into(), Lane::CHANNEL, end.now).expect("the session takes frames");
            }
        }
        self.poll();
    }

    fn state(&self) -> impl Hash {
        // The judge is part of the state, since its verdict on a step may depend on the steps before, even if the sessions are equal.
        let sessions = [CLIENT, SERVER].map(|end| {
            let session = &self.ends[end].session;
            (format!("{:?}", session.subject()), session.judge().clone())
        });
        (sessions, self.under_way.clone(), self.left, format!("{:?}{:?}", self.done, self.running))
    }

    fn check_rest(&self) {
        assert_eq!(self.done.len(), self.calls.len(), "G1: a call is never done");
        let [client, server] = [CLIENT, SERVER].map(|end| &self.ends[end].session);
        let (outbound, inbound) = (client.stats().exchanges_out, server.stats().inbound_calls);
        assert_eq!(outbound, inbound, "the ends do not agree on what is open between them");
        assert!(client.era().is_some(), "the client has chosen");
        if client.era() == Some(Era::Modern) {
            let is_subscribed = matches!(self.outcome(Op::Subscribe), Some(Outcome::Result(_)));
            let unsubscribed = self.outcome(Op::Unsubscribe);
            let reached = server.clone().publish(&Notification::ResourceUpdated { uri: "u:".into() }, self.ends[SERVER].now);
            match unsubscribed {
                Some(Outcome::Result(_)) => assert_eq!(reached, 0, "the resource has left"),
                None if is_subscribed => assert_eq!(reached, 1, "the resource has joined"),
                _ => assert!(reached <= 1, "two subscriptions are open"),
            }
        }
    }
}

/// Takes the steps in every order. More than `states` states must be reached.
fn search(left: Left, states: usize) {
    let found = explore(|| Link::new(left), Bounds::default()).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{found:?}");
    assert!(found.states > states && found.rests > 3 && found.cut == 0, "{found:?}");
}

const NOTHING: Left = Left { calls: 0, cancels: 0, deadlines: 0, changes: 0, notifications: 0 };

#[test]
fn every_order_of_a_call_with_a_cancel_and_a_deadline_ends_the_call_once() {
    search(Left { calls: 1, cancels: 1, deadlines: 1, ..NOTHING }, 300);
}

#[test]
fn every_order_of_two_calls_and_a_cancel_ends_each_call_once() {
    search(Left { calls: 2, cancels: 1, ..NOTHING }, 500);
}

#[test]
fn after_every_order_of_changes_a_subscription_has_the_resources_that_were_asked_for() {
    search(Left { changes: 1, calls: 1, deadlines: 1, ..NOTHING }, 300);
    search(Left { changes: 2, notifications: 1, ..NOTHING }, 300);
    search(Left { changes: 2, cancels: 1, ..NOTHING }, 300);
}

/// The bug: the judge took the result that ends a subscription for the result of the call that had made it. So it rejected a cancel of the
/// subscription that was queued when this result arrived.
#[test]
fn regression_a_subscription_may_be_cancelled_while_its_end_arrives() {
    let now = Instant::ZERO;
    let config = with(client_config(), |config| config.era = Era::Modern);
    let mut client = Watched::new(Session::new(config, now), now);
    let read = |client: &mut Watched<Session>, frame: &str| {
        client.handle_frame(frame.to_owned().into(), Lane::CHANNEL, now).expect("it takes frames");
    };
    let polled = |client: &mut Watched<Session>| std::iter::from_fn(|| client.poll_transmit()).count();
    assert_eq!(polled(&mut client), 1, "the probe");
    read(
        &mut client,
        r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}}}}"#,
    );
    while client.poll_event().is_some() {}
    client.invoke(Invoke::subscribe("u:"), now).expect("it is admitted");
    assert_eq!(polled(&mut client), 1, "the subscription");
    client.invoke(Invoke::unsubscribe("u:"), now).expect("it is admitted");
    let meta = r#""_meta":{"io.modelcontextprotocol/subscriptionId":2}"#;
    let kinds = r#""notifications":{"resourceSubscriptions":["u:"]}"#;
    let acknowledged =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{kinds},{meta}}}}}"#);
    read(&mut client, &acknowledged);
    read(&mut client, &format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"resultType":"complete",{meta}}}}}"#));
    while client.poll_event().is_some() {}
    assert_eq!(polled(&mut client), 1, "the cancel");
}
