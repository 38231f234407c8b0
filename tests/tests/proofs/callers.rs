//! One server session for three clients, whose frames come in any order. Each client gets its own replies, log records, progress and
//! notifications, and no frame that belongs to another client (G15, G16).
//!
//! * With lanes: each client has a lane of its own, all clients use the same ids, and their eras differ: one makes the handshake, one makes
//!   stateless requests after a probe, and one makes them after a probe that the test answers itself.
//! * On one channel: all requests are stateless. The [`Crowd`] gives the requests of different clients different ids, and
//!   finds the client of each frame by its id.

use std::panic::{AssertUnwindSafe, catch_unwind};

use protocol_core::mcp::Era;
use protocol_core::{
    Event, InboundId, InputRequest, InputResponse, Instant, Invoke, Lane, Level, LogRecord, Notification, Op, Outcome, Progress,
    Reply, Request, RpcError, Sample, Session, SubscriptionFilter, Text, ToolOutput,
};
use testkit::broken::{Broken, Fault};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::json;
use testkit::{Rng, Subject, Watched};

use crate::crowd::{Crowd, Ways};

/// The names of the clients. With lanes, client 0 makes the handshake and has lane 0, the channel, since frames that belong to no call are
/// sent there.
const NAMES: [&str; 3] = ["greeter", "prober", "stranger"];
const NOW: Instant = Instant::ZERO;

/// An answer to the probe, for clients whose probe is not delivered to the server.
const DISCOVERED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{"subscribe":true},"logging":{}},"ttlMs":0,"cacheScope":"private"}}"#;

/// Counts of the outcomes, frames and events. An array has a count for each client, the other counts are totals.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    results: [usize; 3],
    cancelled: usize,
    /// Subscriptions that the server has ended.
    ended: usize,
    records: [usize; 3],
    notifications: [usize; 3],
    /// Input requests of the server.
    asked: [usize; 3],
}

impl Seen {
    fn add(&mut self, other: Self) {
        for at in 0..3 {
            self.results[at] += other.results[at];
            self.records[at] += other.records[at];
            self.notifications[at] += other.notifications[at];
            self.asked[at] += other.asked[at];
        }
        self.cancelled += other.cancelled;
        self.ended += other.ended;
    }
}

/// The code that uses the sessions of a crowd. All its data contain the name of the client that they belong to.
struct Users<S: Subject> {
    crowd: Crowd<S>,
    ways: Ways,
    /// The open calls at the server, each with its client, and the open subscriptions, each with `usize::MAX`.
    serves: Vec<(usize, InboundId)>,
    seen: Seen,
}

impl<S: Subject> Users<S> {
    fn new(server: S, ways: Ways) -> Self {
        let config = |at: usize| {
            with(client_config(), |config| {
                config.identity.name = NAMES[at].to_owned();
                config.era = if ways == Ways::Channel { Era::Modern } else { [Era::Legacy, Era::Auto, Era::Modern][at] };
                config.capabilities.sampling = at != 2;
            })
        };
        let mut crowd = Crowd::new(server, (0..3).map(config), ways);
        for at in (0..3).filter(|at| *at == 2 || ways == Ways::Channel) {
            let client = crowd.client_mut(at);
            client.poll_transmit().expect("the probe");
            client.handle_frame(DISCOVERED.into(), Lane::CHANNEL, NOW).expect("it takes frames");
            assert!(client.is_ready());
        }
        Self { crowd, ways, serves: Vec::new(), seen: Seen::default() }
    }

    /// Returns `true` for a client without a handshake.
    fn is_stateless(&self, at: usize) -> bool {
        at > 0 || self.ways == Ways::Channel
    }

    /// Puts all queued frames on the links, and handles the events of each client.
    fn send_and_handle(&mut self) {
        self.crowd.leave();
        for at in 0..3 {
            while let Some(event) = self.crowd.client_mut(at).poll_event() {
                self.handle_event(at, &event);
            }
        }
    }

    fn handle_event(&mut self, at: usize, event: &Event) {
        match event {
            Event::Done { outcome: Outcome::Result(result), .. } => {
                self.seen.results[at] += usize::from(result.as_str().contains(NAMES[at]));
            }
            Event::Done { outcome: Outcome::Cancelled, .. } => self.seen.cancelled += 1,
            Event::Notification(Notification::SubscriptionEnded) => self.seen.ended += 1,
            Event::Notification(Notification::ResourceUpdated { .. }) => self.seen.notifications[at] += 1,
            Event::Log(_) => self.seen.records[at] += 1,
            Event::InputRequested { key, .. } => {
                assert!(!self.is_stateless(at), "a client without a handshake was asked: {event:?}");
                self.seen.asked[at] += 1;
                let client = self.crowd.client_mut(at);
                client.provide_input(*key, InputResponse::Refused(RpcError::internal("no")), NOW).expect("it is open");
            }
            Event::Violation(_) | Event::Done { outcome: Outcome::Error(_) | Outcome::Invalid(_), .. } => {
                panic!("{}: {event:?}", NAMES[at])
            }
            _ => {}
        }
    }

    /// Takes a step of a client: a call, a cancel, a log level, a subscription or the end of one, as `number` selects.
    fn act(&mut self, at: usize, number: u64) {
        let is_stateless = self.is_stateless(at);
        let client = self.crowd.client_mut(at);
        match number % 8 {
            0..=3 => {
                let params = format!(r#"{{"name":"t","arguments":{{"of":"{}"}}}}"#, NAMES[at]);
                let _ = client.invoke(Invoke::new(Op::CallTool, json(&params)), NOW);
            }
            4 => {
                if let Some(call) = client.ids.outbound_calls.last().copied() {
                    let _ = client.cancel(call, None, NOW);
                }
            }
            5 if at == 2 => drop(client.invoke(Invoke::set_log_level(Level::Info), NOW)),
            6 if is_stateless && client.is_ready() => drop(client.invoke(Invoke::subscribe(format!("u:{}", NAMES[at])), NOW)),
            7 if is_stateless && client.is_ready() => drop(client.invoke(Invoke::unsubscribe(format!("u:{}", NAMES[at])), NOW)),
            _ => {}
        }
    }

    /// Delivers a frame of a client to the server, and checks that the server reports the right caller.
    fn arrive(&mut self, at: usize) {
        self.crowd.arrive_at_server(at);
        let server = self.crowd.server_mut();
        while let Some(event) = server.poll_event() {
            match event {
                Event::Request { id, request: Request::Listen(_), .. } => {
                    let mut offered = SubscriptionFilter::default();
                    offered.uris = NAMES.iter().map(|name| Text::from(format!("u:{name}"))).collect();
                    server.accept_subscription(id, &offered, NOW).expect("it is open");
                    self.serves.push((usize::MAX, id));
                }
                Event::Request { id, caller, .. } => {
                    assert_eq!(caller.identity().name, NAMES[at]);
                    self.serves.push((at, id));
                }
                Event::Cancelled { id, .. } => {
                    self.serves.retain(|(_, other)| *other != id);
                    // The call needs no reply; this only records that its handler has ended.
                    server.respond(id, Reply::Done, NOW).unwrap_err();
                }
                Event::Violation(rule) => panic!("a proper client broke {rule:?}"),
                _ => {}
            }
        }
    }

    /// Takes a step of the server: it sends progress, a log record, an input request or the response of one of its calls, publishes a
    /// notification, or ends a subscription, as `number` selects. `which` selects the call or the subscription.
    fn serve(&mut self, which: usize, number: u64) {
        // A subscription has `usize::MAX` in the place of its client.
        let subscriptions: Vec<_> = self.serves.iter().filter(|(at, _)| *at > 2).map(|(_, id)| *id).collect();
        if let Some(id) = subscriptions.get(which % subscriptions.len().max(1)).filter(|_| number % 64 == 63) {
            self.serves.retain(|(_, other)| other != id);
            return self.crowd.server_mut().respond(*id, Reply::Done, NOW).expect("it is open");
        }
        let calls: Vec<_> = self.serves.iter().filter(|(at, _)| *at < 3).copied().collect();
        let Some((at, id)) = calls.get(which % calls.len().max(1)).copied() else { return };
        let name = NAMES[at];
        match number % 8 {
            0 | 1 => {
                self.serves.retain(|(_, other)| *other != id);
                self.crowd.server_mut().respond(id, Reply::Tool(ToolOutput::text(name)), NOW).expect("it is open");
            }
            2 | 3 => {
                let record = LogRecord::new(Level::Error, json(&format!("\"{name}\"")));
                self.crowd.server_mut().log(Some(id), record, NOW).expect("it is open");
            }
            4 => drop(self.crowd.server_mut().progress(id, Progress::value(f64::from(number as u32)).with_message(name), NOW)),
            5 => {
                let asked = self.crowd.server_mut().request_input(id, InputRequest::from(Sample::new(name)), NOW);
                assert!(!self.is_stateless(at) || asked.is_err(), "{name} was asked");
            }
            _ => {
                let _ =
                    self.crowd.server_mut().publish(&Notification::ResourceUpdated { uri: Text::from(format!("u:{name}")) }, NOW);
            }
        }
    }

    fn run(mut self, seed: u64, steps: usize) -> Seen {
        let mut rng = Rng::new(seed);
        for _ in 0..steps {
            let (at, number) = (rng.below(3), rng.number());
            match rng.below(8) {
                0 => self.act(at, number),
                1..=3 => self.arrive(at),
                4 | 5 => self.crowd.arrive_at_client(at),
                _ => self.serve(rng.below(64), number),
            }
            self.send_and_handle();
        }
        self.seen
    }
}

#[test]
fn three_clients_of_different_eras_each_get_only_their_own_frames() {
    let mut all = Seen::default();
    for seed in 0..120 {
        all.add(Users::new(Session::new(server_config(), NOW), Ways::Lanes).run(seed, 700));
    }
    println!("{all:?}");
    assert!(all.results.iter().all(|count| *count > 300) && all.cancelled > 100, "{all:?}");
    assert!(all.records[0] > 100 && all.records[1] == 0 && all.records[2] > 100, "{all:?}");
    assert!(all.notifications[0] == 0 && all.notifications[1] > 50 && all.notifications[2] > 50, "{all:?}");
    assert!(all.asked[0] > 50 && all.asked[1..] == [0; 2] && all.ended > 10, "{all:?}");
}

#[test]
fn three_clients_of_one_channel_each_get_only_their_own_frames() {
    let mut all = Seen::default();
    for seed in 0..120 {
        all.add(Users::new(Session::new(server_config(), NOW), Ways::Channel).run(seed, 700));
    }
    println!("{all:?}");
    assert!(all.results.iter().all(|count| *count > 300) && all.cancelled > 100, "{all:?}");
    assert!(all.records[..2] == [0; 2] && all.records[2] > 100, "{all:?}");
    assert!(all.notifications.iter().all(|count| *count > 50) && all.ended > 10, "{all:?}");
    assert_eq!(all.asked, [0; 3]);
}

#[test]
fn each_fault_of_a_server_that_mixes_up_its_callers_breaks_a_guarantee() {
    for ways in [Ways::Lanes, Ways::Channel] {
        for fault in Fault::ALL.into_iter().filter(|fault| fault.is_of_callers()) {
            let named = format!("{}: ", fault.breaks().expect("a guarantee"));
            let message = |seed| {
                let server = Broken::new(Session::new(server_config(), NOW), fault);
                let message = catch_unwind(AssertUnwindSafe(|| Users::new(server, ways).run(seed, 300))).err()?;
                message.downcast_ref::<String>().cloned()
            };
            let messages: Vec<_> = (0..40).filter_map(message).collect();
            assert!(messages.iter().any(|what| what.starts_with(&named)), "{ways:?}: {fault:?} does not break {named}{messages:?}");
        }
    }
}

/// A server sends a request to a client without a handshake. A correct client does not answer, and the judge rejects a client that does.
#[test]
fn a_client_without_a_handshake_that_answers_breaks_a_guarantee() {
    let answers = |fault: Option<Fault>| {
        let session = Session::new(with(client_config(), |config| config.era = Era::Modern), NOW);
        // `Broken` needs a fault. `Panics` has no effect here: it acts only on a cancel, and no frame of this test is one.
        let mut client = Watched::new(Broken::new(session, fault.unwrap_or(Fault::Panics)), NOW);
        client.poll_transmit().expect("the probe");
        for frame in [DISCOVERED, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#] {
            client.handle_frame(frame.into(), Lane::CHANNEL, NOW).expect("it takes frames");
            while client.poll_event().is_some() {}
        }
        let result = catch_unwind(AssertUnwindSafe(|| std::iter::from_fn(|| client.poll_transmit()).count()));
        result.map_err(|result| result.downcast_ref::<String>().cloned().unwrap_or_default())
    };
    assert_eq!(answers(None), Ok(0));
    let message = answers(Some(Fault::AnswersWithoutHandshake)).unwrap_err();
    assert!(message.starts_with("G15: a response of a client"), "{message}");
}
