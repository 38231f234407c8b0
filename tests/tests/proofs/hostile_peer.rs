//! A session between a peer that sends random frames and an owner that calls random methods, in virtual time: the guarantees of the session
//! must hold. The storms of the module `storms` have two sessions; here there is only one.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Config, Event, InboundId, InputRequest, InputResponse, InputRound, Invoke, Json, Lane, NotLive, Notification, Op,
    Reply, RouteKind, SubscriptionFilter, TransportEnd,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{discovered, json, notification, progress};
use testkit::{Campaign, Happening, Rng, Scripted};

/// A random frame, valid or not. It has one of a few ids, so that many frames have equal ids. Half of the ids are from `ours`, the ids of
/// requests of the session.
fn anything(rng: &mut Rng, ours: &[u64]) -> String {
    let ids = ["0", "1", "2", "3", "5", "8", "\"2\"", "null", "1.5"];
    let methods = [
        "tools/call",
        "resources/read",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "ping",
        "initialize",
        "server/discover",
        "subscriptions/listen",
        "no/such",
    ];
    let caller =
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}"#;
    let subscription = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#, rng.below(6));
    let params = [
        "{}".to_owned(),
        r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#.to_owned(),
        r#"{"messages":[],"maxTokens":1,"_meta":{"protocol-core/samplingDepth":2}}"#.to_owned(),
        format!(
            r#"{{"messages":[],"maxTokens":1,"_meta":{{"progressToken":{},"protocol-core/parent":{}}}}}"#,
            rng.below(4),
            rng.below(9)
        ),
        "[]".to_owned(),
        r#"{"_meta":[]}"#.to_owned(),
        // Parameters of calls, so that some begin.
        format!(r#"{{"name":"t","uri":"t","_meta":{{"progressToken":{}}}}}"#, rng.below(4)),
        r#"{"name":"t","uri":"t"}"#.to_owned(),
        // Parameters without a handshake: of calls, a subscription, a retry, and with an invalid log level.
        format!(r#"{{"name":"t","uri":"t","_meta":{{{caller},"progressToken":{}}}}}"#, rng.below(4)),
        format!(r#"{{"notifications":{{"toolsListChanged":true,"resourceSubscriptions":["u:"]}},"_meta":{{{caller}}}}}"#),
        format!(r#"{{"name":"t","uri":"t","requestState":"s","inputResponses":{{"a":{{"roots":[]}}}},"_meta":{{{caller}}}}}"#),
        format!(r#"{{"_meta":{{{caller},"io.modelcontextprotocol/logLevel":7}}}}"#),
    ];
    let bodies = [
        r#""result":{}"#,
        r#""result":{"roots":[]}"#,
        r#""result":{"action":"accept","content":{}}"#,
        r#""result":1"#,
        r#""error":{"code":0,"message":"no"}"#,
        r#""error":{}"#,
        r#""result":{},"error":{}"#,
        r#""result":{"resultType":"complete","content":[]}"#,
        r#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}"#,
        r#""result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list","params":{}}},"requestState":"s"}"#,
        r#""result":{"resultType":"input_required","requestState":"s"}"#,
        r#""error":{"code":-32022,"message":"","data":{"supported":["2026-07-28"]}}"#,
    ];
    let (id, other) = (ids[rng.below(ids.len())], ids[rng.below(ids.len())]);
    let id = &rng.pick(ours).filter(|_| rng.below(2) == 0).map_or_else(|| id.to_owned(), |number| number.to_string());
    let (method, value) = (methods[rng.below(methods.len())], rng.below(6));
    let params = &params[rng.below(params.len())];
    let frame = match rng.below(12) {
        10 => notification(
            "notifications/subscriptions/acknowledged",
            &format!(r#"{{"notifications":{{"toolsListChanged":true}},{subscription}}}"#),
        ),
        11 => notification("notifications/tools/list_changed", &format!("{{{subscription}}}")),
        0..3 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#),
        // At least a third of the responses have the roots that the owner asks for.
        3..5 => format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, bodies[if rng.below(3) == 0 { 1 } else { rng.below(bodies.len()) }]),
        5..7 => notification("notifications/progress", &format!(r#"{{"progressToken":{id},"progress":{value}}}"#)),
        7 => notification("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#)),
        8 => notification("notifications/initialized", "{}"),
        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"id":{other},"method":"{method}"}}"#),
    };
    match rng.below(12) {
        0 => frame[..rng.below(frame.len())].to_owned(),
        1 => format!("[{frame},{}]", progress(2, value as f64)),
        _ => frame,
    }
}

/// The session, whose judge checks every guarantee, and the values from which its owner and its peer choose.
struct Victim {
    end: Scripted,
    /// The ids of the requests that the peer has received.
    requests: BTreeSet<u64>,
    /// The cancelled calls of the peer for which the owner has not tried to respond yet.
    cancelled: BTreeSet<InboundId>,
}

impl Victim {
    /// `kind` selects the end, its era and the state of its handshake.
    fn new(kind: u64) -> Self {
        let small = |config: &mut Config| (config.limits.in_flight, config.limits.events, config.limits.ended_ids) = (6, 16, 4);
        let end = match kind {
            0 => Scripted::new(with(client_config(), small)),
            1 => Scripted::client(with(client_config(), small)),
            2 => Scripted::new(with(server_config(), small)),
            3 | 4 => Scripted::new(with(client_config(), |config| {
                small(config);
                config.era = if kind == 3 { Era::Auto } else { Era::Modern };
            })),
            5 => Scripted::new(with(server_config(), |config| {
                small(config);
                config.era = Era::Modern;
            })),
            _ => Scripted::server_at(with(server_config(), small), "2025-03-26", r#"{"roots":{},"sampling":{}}"#),
        };
        let mut victim = Self { end, requests: BTreeSet::new(), cancelled: BTreeSet::new() };
        if kind == 4 {
            victim.poll_all();
            victim.end.frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#));
        }
        victim
    }

    fn poll_all(&mut self) {
        while let Some(out) = self.end.session.poll_transmit() {
            if let RouteKind::Request(_) = out.route.kind {
                let frame: serde_json::Value = serde_json::from_slice(&out.frame).expect("a frame is JSON");
                self.requests.extend(frame["id"].as_u64());
            }
        }
        for event in self.end.events() {
            if let Event::Cancelled { id, .. } = event {
                self.cancelled.insert(id);
            }
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let (now, end) = (self.end.now, &mut self.end);
        match rng.below(20) {
            0..11 => {
                let newest: Vec<_> = self.requests.iter().rev().take(4).copied().collect();
                let _ = end.session.handle_frame(anything(rng, &newest).into(), Lane::CHANNEL, now);
            }
            11..13 => {
                let timeouts = CallTimeouts::NONE
                    .with_idle(Some(Duration::from_millis(40)))
                    .with_max_total(Some(Duration::from_millis(90)))
                    .with_reset_on_progress(true);
                let parent = rng.pick(&end.session.ids.peer_input_requests).filter(|_| rng.below(2) == 0);
                let mut call = match rng.below(3) {
                    0 => Invoke::new(Op::CallTool, Json::empty_object()),
                    1 if rng.below(2) == 0 => Invoke::subscribe("u:"),
                    1 => Invoke::ping(),
                    _ => Invoke::custom("acme/do", Json::empty_object()),
                }
                .with_timeouts(timeouts);
                call.parent = parent.map(|(key, _)| key);
                let _ = end.session.invoke(call, now);
            }
            13 => {
                if let Some(id) = rng.pick(&end.session.ids.outbound_calls) {
                    // The call may have ended, and its event may not be polled yet.
                    let _ = end.session.cancel(id, None, now);
                }
            }
            14 => {
                if let Some((key, _)) = rng.pick(&end.session.ids.peer_input_requests) {
                    let _ = end.session.provide_input(key, InputResponse::Roots(json("[]")), now);
                }
            }
            15 => {
                if let Some((id, false)) = rng.pick(&end.session.ids.subscriptions) {
                    let mut offered = SubscriptionFilter::default();
                    offered.tools = true;
                    let _ = end.session.accept_subscription(id, &offered, now);
                    let _ = end.session.publish(&Notification::ToolsChanged, now);
                } else if let Some(id) = rng.pick(&end.session.ids.inbound_calls).filter(|id| !self.cancelled.contains(id)) {
                    let _ = match rng.below(4) {
                        0 | 1 => end.session.request_input(id, InputRequest::Roots, now).is_ok(),
                        2 => end
                            .session
                            .finish_round(id, InputRound::new().ask("a", InputRequest::Roots).with_state("s"), now)
                            .is_ok(),
                        _ => end.session.respond(id, Reply::Raw(Json::empty_object()), now).is_ok(),
                    };
                }
            }
            16 => {
                if let Some(id) = self.cancelled.pop_first() {
                    assert_eq!(end.session.respond(id, Reply::Raw(Json::empty_object()), now), Err(NotLive));
                }
            }
            17 => {
                end.now = now.saturating_add(Duration::from_millis(rng.below(30) as u64));
                end.session.handle_timeout(end.now);
            }
            _ => self.poll_all(),
        }
    }
}

#[test]
fn every_guarantee_holds_against_a_peer_that_sends_anything() {
    let required = [
        Happening::Result,
        Happening::Error,
        Happening::Invalid,
        Happening::Cancel,
        Happening::Timeout,
        Happening::Request,
        Happening::StatelessRequest,
        Happening::PeerCancel,
        Happening::InputRequest,
        Happening::PeerInputRequest,
        Happening::InputResponse,
        Happening::Violation,
        Happening::Garbage,
    ];
    let mut campaign = Campaign::new(&required);
    campaign.run(0..700, 0, |case| {
        let mut rng = Rng::new(case.seed);
        let mut victim = Victim::new(case.seed % 7);
        (0..400).for_each(|_| victim.step(&mut rng));
        victim.poll_all();
        let Scripted { mut session, now } = victim.end;
        session.handle_end(TransportEnd::Failed, now);
        while session.poll_event().is_some() {}
        session.check_end();
        assert!(
            session.ids.peer_input_requests.is_empty(),
            "an input request of the peer has no end: {:?}",
            session.ids.peer_input_requests
        );
        session.coverage().clone()
    });
    println!("{}", campaign.coverage());
    campaign.finish();
}
