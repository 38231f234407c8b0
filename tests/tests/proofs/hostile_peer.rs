//! A session between a peer that sends random frames and an owner that calls random methods, in virtual time: the guarantees of the session
//! must hold. The storms of `guarantees` have two well-behaved ends; here there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol_core::{
    Answer, Ask, CallTimeouts, Config, Event, InboundId, InputKey, Invoke, Json, Lane, NotLive, Op, OutboundId, Reply, TransportEnd,
};
use serde_json::Value;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{json, notification, progress};
use testkit::{Rng, Scripted};

/// A random frame, valid or not. It has one of a few ids, so that frames collide; half of the ids are from `ours`.
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
        "no/such",
    ];
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
    ];
    let bodies = [
        r#""result":{}"#,
        r#""result":{"roots":[]}"#,
        r#""result":{"action":"accept","content":{}}"#,
        r#""result":1"#,
        r#""error":{"code":0,"message":"no"}"#,
        r#""error":{}"#,
        r#""result":{},"error":{}"#,
    ];
    let (id, other) = (ids[rng.below(ids.len())], ids[rng.below(ids.len())]);
    let id = &rng.pick(ours).filter(|_| rng.below(2) == 0).map_or_else(|| id.to_owned(), |number| number.to_string());
    let (method, value) = (methods[rng.below(methods.len())], rng.below(6));
    let params = &params[rng.below(params.len())];
    let frame = match rng.below(10) {
        0..3 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#),
        3..5 => format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, bodies[rng.below(bodies.len())]),
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

/// An observer of the frames and events of a session, which checks its guarantees.
#[derive(Default)]
struct Watch {
    /// The number of times that the peer has used an id for a request.
    asked: BTreeMap<String, usize>,
    /// The number of times that a response with this id was sent.
    answered: BTreeMap<String, usize>,
    requests: BTreeSet<u64>,
    cancels: BTreeSet<u64>,
    live: BTreeSet<OutboundId>,
    serves: BTreeSet<InboundId>,
    orphans: BTreeSet<InboundId>,
    open_inputs: BTreeSet<InputKey>,
    closed: bool,
}

impl Watch {
    /// The peer sends a frame.
    fn peer_sends(&mut self, frame: &str) {
        let frames: Value = serde_json::from_str(frame).unwrap_or_default();
        for one in frames.as_array().map_or_else(|| std::slice::from_ref(&frames), Vec::as_slice) {
            if one.get("method").is_some() {
                *self.asked.entry(one["id"].to_string()).or_default() += 1;
            }
        }
    }

    /// The peer receives a frame.
    fn peer_receives(&mut self, frame: &str) {
        assert!(!self.closed, "G4: {frame}");
        let seen: Value = serde_json::from_str(frame).unwrap();
        let id = seen.get("id").map(Value::to_string);
        match (seen["method"].as_str(), id) {
            (Some("notifications/cancelled"), None) => {
                let id = seen["params"]["requestId"].as_u64().unwrap();
                assert!(self.requests.contains(&id) && self.cancels.insert(id), "G2: {frame}");
            }
            (Some(_), Some(id)) => assert!(self.requests.insert(id.parse().unwrap()), "an id twice: {frame}"),
            (Some(_), None) => {}
            (None, None) => assert!(seen["error"]["code"].is_i64(), "{frame}"),
            (None, Some(id)) => {
                let answered = self.answered.entry(id.clone()).or_default();
                *answered += 1;
                assert!(Some(&*answered) <= self.asked.get(&id), "G2: {frame}");
            }
        }
    }

    /// The owner polls an event.
    fn owner_polls(&mut self, event: &Event) {
        assert!(!self.closed, "G4: {event:?}");
        match event {
            Event::Done { id, .. } => assert!(self.live.remove(id), "G1: {event:?}"),
            Event::Progress { id, .. } => assert!(self.live.contains(id), "{event:?}"),
            Event::Request { id, .. } => assert!(self.serves.insert(*id), "{event:?}"),
            Event::Cancelled { id, .. } => assert!(self.serves.remove(id) && self.orphans.insert(*id), "{event:?}"),
            Event::InputRequested { key, parent, .. } => {
                assert!(self.open_inputs.insert(*key) && parent.is_none_or(|parent| self.live.contains(&parent)), "{event:?}");
            }
            Event::InputGone { key } => assert!(self.open_inputs.remove(key), "{event:?}"),
            Event::Closed(_) => self.closed = true,
            _ => {}
        }
    }

    fn poll_all(&mut self, end: &mut Scripted) {
        end.sent().iter().for_each(|frame| self.peer_receives(frame));
        end.events().iter().for_each(|event| self.owner_polls(event));
    }
}

#[test]
fn g1_g2_g4_g5_and_g7_hold_against_a_peer_that_says_anything() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let small = |config: &mut Config| (config.limits.in_flight, config.limits.events, config.limits.tombstones) = (6, 16, 4);
        let mut end = match seed % 4 {
            0 => Scripted::new(with(client_config(), small)),
            1 => Scripted::client(with(client_config(), small)),
            2 => Scripted::new(with(server_config(), small)),
            _ => Scripted::server_at(with(server_config(), small), "2025-03-26", r#"{"roots":{},"sampling":{}}"#),
        };
        let mut watch = Watch::default();
        // The handshake request, which was drained or is still queued.
        watch.asked.insert("0".into(), 1);
        if seed % 4 == 1 {
            watch.requests.insert(1);
        }
        let step = |end: &mut Scripted, watch: &mut Watch, rng: &mut Rng| match rng.below(20) {
            0..11 => {
                let newest: Vec<_> = watch.requests.iter().rev().take(4).copied().collect();
                let frame = anything(rng, &newest);
                if end.session.handle_frame(frame.clone().into(), Lane::CHANNEL, end.now).is_ok() {
                    watch.peer_sends(&frame);
                }
            }
            11..13 => {
                let timeouts = CallTimeouts::NONE
                    .with_idle(Some(Duration::from_millis(40)))
                    .with_max_total(Some(Duration::from_millis(90)))
                    .with_reset_on_progress(true);
                let parent = rng.pick(&watch.open_inputs.iter().copied().collect::<Vec<_>>()).filter(|_| rng.below(2) == 0);
                let mut call = match rng.below(3) {
                    0 => Invoke::new(Op::CallTool, Json::empty_object()),
                    1 => Invoke::ping(),
                    _ => Invoke::custom("acme/do", Json::empty_object()),
                }
                .with_timeouts(timeouts);
                call.parent = parent;
                watch.live.extend(end.session.invoke(call, end.now));
            }
            13 => {
                if let Some(id) = rng.pick(&watch.live.iter().copied().collect::<Vec<_>>()) {
                    // The event of its end may not be polled yet.
                    let _ = end.session.cancel(id, None, end.now);
                }
            }
            14 => {
                if let Some(key) = rng.pick(&watch.open_inputs.iter().copied().collect::<Vec<_>>())
                    && end.session.provide_input(key, Answer::Roots(json("[]")), end.now).is_ok()
                {
                    watch.open_inputs.remove(&key);
                }
            }
            15 => {
                if let Some(id) = rng.pick(&watch.serves.iter().copied().collect::<Vec<_>>()) {
                    if rng.below(2) == 0 {
                        let _ = end.session.request_input(id, Ask::Roots, end.now);
                    } else if end.session.respond(id, Reply::Raw(Json::empty_object()), end.now).is_ok() {
                        watch.serves.remove(&id);
                    }
                }
            }
            16 => {
                if let Some(id) = watch.orphans.pop_first() {
                    assert_eq!(end.session.respond(id, Reply::Raw(Json::empty_object()), end.now), Err(NotLive));
                }
            }
            17 => {
                end.now = end.now.saturating_add(Duration::from_millis(rng.below(30) as u64));
                end.session.handle_timeout(end.now);
                assert!(end.session.poll_timeout().is_none_or(|due| due > end.now), "G7");
            }
            _ => watch.poll_all(end),
        };
        for _ in 0..400 {
            step(&mut end, &mut watch, &mut rng);
            let stats = end.session.stats();
            assert!(stats.outbound_calls <= 6 && stats.inbound_calls <= 6 && stats.orphans <= stats.inbound_calls, "G5: {stats:?}");
        }
        watch.poll_all(&mut end);
        end.session.handle_end(TransportEnd::Failed, end.now);
        watch.poll_all(&mut end);
        assert!(watch.closed && watch.live.is_empty() && watch.open_inputs.is_empty(), "G1 in seed {seed}");
        assert_eq!(end.session.poll_timeout(), None);
    }
}
