//! Claims at the gateway: by code, by connecting to an app ("dialling" it), apps that resume, several apps with one id, and the tools of
//! the gateway itself.

use protocol_core::{Close, TransportEnd};
use serde_json::{Value, json};
use tesseron::bridge::{Advertised, BridgeEvent, Surface};
use tesseron::claims::{ClaimCode, OpenRefused};
use testkit::scripted::{cancelled, initialize, notification, request};
use tests::bridge::{ACTIONS, EPOCH_MS, RESOURCES, Rig, bound, call_tool, config, credentials, hello, manifest, resume, value};

const CLAIM: &str = "tesseron__claim_session";
/// The tools of the gateway itself.
const META: [&str; 5] =
    [CLAIM, "tesseron__list_actions", "tesseron__invoke_action", "tesseron__read_resource", "tesseron__list_pending_claims"];

/// Lets the agent call the claim tool with `code`.
fn claim_by_code(rig: &mut Rig, id: u64, code: &str) {
    rig.agent(&call_tool(&id.to_string(), CLAIM, &json!({"code": code}).to_string(), None));
}

/// An app that was dialled for the code `PQ7N-4D`, after its hello.
fn bound_app(rig: &mut Rig) -> usize {
    claim_by_code(rig, 1, "PQ7N-4D");
    let (claim, _) = rig.wanted_claim();
    let app = rig.dial_claimed(claim, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    app
}

/// A claimed app, its session id and its resume token.
fn with_credentials(rig: &mut Rig, id: &str) -> (usize, String, String) {
    let app = rig.dial();
    rig.app(app, &hello(id, ACTIONS, RESOURCES));
    let (session, token) = credentials(&rig.app_response(app, 1));
    rig.claim(app);
    (app, session, token)
}

// ---- Claims of connected apps by code ----

#[test]
fn an_app_is_welcomed_with_a_code_and_forwards_nothing_until_it_is_claimed() {
    let mut rig = Rig::new();
    let app = rig.dial();
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    let welcome = rig.app_response(app, 1)["result"].clone();
    assert_eq!(welcome["protocolVersion"], "1.2.0");
    assert_eq!(welcome["agent"]["id"], "c", "the agent is known already");
    assert_eq!(welcome["claimCode"].as_str().map(str::len), Some(7));
    assert!(matches!(&rig.events()[..], [BridgeEvent::AppReady { code: Some(_), .. }]));
    assert_eq!(rig.app_tools(), Vec::<String>::new());
    let (text, failed) = rig.call_text(1, "ledger__t", "{}");
    assert!(failed && !text.contains(welcome["claimCode"].as_str().unwrap()), "the error names no code: {text}");
    rig.app(app, &notification("actions/list_changed", r#"{"actions":[]}"#));
    rig.app(app, &notification("log", r#"{"level":"error","message":"spam"}"#));
    assert!(rig.agent_received().is_empty());
    assert_eq!(rig.app_received(app), Vec::<String>::new());
}

#[test]
fn item_34_a_code_is_accepted_in_upper_and_lower_case_and_the_app_is_notified_once() {
    let mut rig = Rig::new();
    let app = rig.greet("ledger");
    let code = rig.apps[app].code.clone().unwrap();
    for (id, typed) in [(1, code.to_lowercase()), (2, code.clone()), (3, code.to_uppercase())] {
        claim_by_code(&mut rig, id, &typed);
        let (text, failed) = tests::bridge::text_of(&rig.response(id)["result"]);
        assert!(!failed && text.contains("ledger__t") && text.contains("tesseron://ledger/balance"), "{text}");
    }
    let received = rig.app_received(app);
    assert_eq!(received.len(), 1, "{received:?}");
    let claimed = value(&received[0]);
    assert_eq!(claimed["method"], "tesseron/claimed");
    assert_eq!(claimed["params"]["agent"], json!({"id": "c", "name": "c"}));
    assert_eq!(claimed["params"]["claimedAt"], EPOCH_MS);
    assert_eq!(
        claimed["params"]["agentCapabilities"],
        json!({"streaming": true, "subscriptions": true, "sampling": true, "elicitation": true})
    );
}

#[test]
fn a_claim_notifies_the_agent_that_tools_and_resources_have_changed() {
    let mut rig = Rig::new();
    let app = rig.greet("ledger");
    let code = rig.apps[app].code.clone().unwrap();
    claim_by_code(&mut rig, 1, &code);
    let mut methods: Vec<Value> = rig.agent_received().iter().map(|text| value(text)["method"].clone()).collect();
    methods.sort_by_key(ToString::to_string);
    assert_eq!(methods, [json!("notifications/resources/list_changed"), json!("notifications/tools/list_changed"), Value::Null]);
    assert_eq!(rig.app_tools(), ["ledger__t"]);
    claim_by_code(&mut rig, 2, &code);
    assert_eq!(rig.agent_received().len(), 1, "a second claim changes nothing");
    rig.later(100).lose(app);
    assert_eq!(rig.notifications("notifications/tools/list_changed").len(), 1);
    assert_eq!(rig.app_tools(), Vec::<String>::new());
}

#[test]
fn the_app_is_notified_of_the_time_of_its_claim_by_the_wall_clock() {
    let mut rig = Rig::new();
    let app = rig.greet("ledger");
    rig.at(90_000);
    let code = rig.apps[app].code.clone().unwrap();
    claim_by_code(&mut rig, 1, &code);
    assert_eq!(value(&rig.app_received(app)[0])["params"]["claimedAt"], EPOCH_MS + 90_000);
}

#[test]
fn a_text_that_is_no_code_is_refused_without_looking_for_an_app() {
    let mut rig = Rig::new();
    rig.greet("ledger");
    for (id, typed) in ["", " ", "../../etc/passwd", "a/b", "A B", "%41", "\u{e4}"].into_iter().enumerate() {
        claim_by_code(&mut rig, id as u64, typed);
        let (text, failed) = tests::bridge::text_of(&rig.response(id as u64)["result"]);
        assert!(failed && !text.is_empty(), "{typed:?}");
    }
    claim_by_code(&mut rig, 10, &"x".repeat(65));
    assert!(tests::bridge::text_of(&rig.response(10)["result"]).1);
    for (id, arguments) in [(11, "{}"), (12, r#"{"code":7}"#), (13, "[]"), (14, r#""PQ7N-4D""#)] {
        assert!(rig.call_text(id, CLAIM, arguments).1, "{arguments}");
    }
    assert!(rig.events().iter().all(|event| !matches!(event, BridgeEvent::ClaimWanted { .. })));
}

// ---- Claims by dialling an app ----

#[test]
fn a_code_of_no_connected_app_is_passed_to_the_owner_to_dial() {
    let mut rig = Rig::new();
    claim_by_code(&mut rig, 1, "pq7n-4d");
    assert!(rig.agent_received().is_empty(), "the agent waits");
    let (claim, code) = rig.wanted_claim();
    assert_eq!(code.reveal(), "PQ7N-4D");
    rig.bridge.refuse_claim(claim, "no app wears it", rig.now);
    rig.deliver();
    let (text, failed) = tests::bridge::text_of(&rig.response(1)["result"]);
    assert!(failed && text.contains("no app wears it"), "{text}");
    rig.bridge.refuse_claim(claim, "again", rig.now);
    rig.deliver().assert_idle();
    assert!(rig.agent_received().is_empty());
}

#[test]
fn item_38_a_dialled_app_is_claimed_from_the_start_and_notified_after_its_welcome() {
    let mut rig = Rig::new();
    let app = bound_app(&mut rig);
    let received: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)).collect();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0]["result"]["sessionId"], "s_1");
    assert_eq!(received[0]["result"]["resumeToken"], "rt_1");
    assert!(received[0]["result"].get("claimCode").is_none(), "a bound session gets no code");
    assert_eq!(
        (received[1]["method"].clone(), received[1]["params"]["agent"]["id"].clone()),
        (json!("tesseron/claimed"), json!("c"))
    );
    let (text, failed) = tests::bridge::text_of(&rig.response(1)["result"]);
    assert!(!failed && text.contains("ledger__t"), "{text}");
    assert!(rig.events().iter().any(|event| matches!(event, BridgeEvent::AppClaimed { .. })));
    assert_eq!(rig.app_tools(), ["ledger__t"]);
    claim_by_code(&mut rig, 2, "PQ7N-4D");
    assert!(!tests::bridge::text_of(&rig.response(2)["result"]).1, "the second claim finds the app and does not dial");
    assert!(rig.events().is_empty());
    rig.call(3, "ledger__t");
    rig.invoked(app);
}

#[test]
fn a_dialled_app_that_sends_no_hello_is_disconnected_after_five_seconds() {
    let mut rig = Rig::new();
    rig.at(1000);
    claim_by_code(&mut rig, 1, "PQ7N-4D");
    let (claim, _) = rig.wanted_claim();
    rig.at(3000);
    let app = rig.dial_claimed(claim, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
    rig.at(7999);
    assert!(rig.agent_received().is_empty() && !rig.apps[app].gone);
    rig.at(8000);
    assert!(tests::bridge::text_of(&rig.response(1)["result"]).1);
    assert!(rig.apps[app].gone, "the channel is closed");
    rig.assert_idle();
    assert_eq!(rig.bridge.channels().count(), 0);
}

#[test]
fn a_claim_fails_at_once_if_the_dialled_app_disconnects_is_refused_or_is_closed() {
    type Fail = fn(&mut Rig, usize);
    let ways: [(&str, Fail); 4] = [
        ("eof", |rig, app| {
            rig.end(rig.leg(app), TransportEnd::Eof);
        }),
        ("failure", |rig, app| {
            rig.lose(app);
        }),
        ("another version", |rig, app| {
            rig.app(app, &hello("ledger", "[]", "[]").replace("1.2.0", "2.0.0"));
        }),
        ("closed by the owner", |rig, app| {
            rig.bridge.close_app(rig.apps[app].channel, Close::Now, rig.now);
            rig.deliver();
        }),
    ];
    for (name, fail) in ways {
        let mut rig = Rig::new();
        claim_by_code(&mut rig, 1, "PQ7N-4D");
        let (claim, _) = rig.wanted_claim();
        let app = rig.dial_claimed(claim, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
        fail(&mut rig, app);
        assert!(tests::bridge::text_of(&rig.response(1)["result"]).1, "{name}");
        rig.assert_idle();
        assert!(rig.apps[app].gone, "{name}");
    }
}

#[test]
fn an_agent_that_cancels_a_claim_stops_the_dial_at_any_point() {
    let mut rig = Rig::new();
    claim_by_code(&mut rig, 1, "PQ7N-4D");
    let (claim, _) = rig.wanted_claim();
    rig.agent(&cancelled(1));
    assert!(matches!(rig.events()[..], [BridgeEvent::ClaimGone { claim: gone }] if gone == claim));
    rig.assert_idle();
    rig.bridge.refuse_claim(claim, "nobody", rig.now);
    rig.deliver();
    assert!(rig.agent_received().is_empty());

    claim_by_code(&mut rig, 2, "PQ7N-4D");
    let (claim, _) = rig.wanted_claim();
    let app = rig.dial_claimed(claim, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
    rig.agent(&cancelled(2));
    assert!(rig.apps[app].gone, "the channel of an app that has not sent a hello is closed");
    assert!(rig.agent_received().is_empty());
    rig.assert_idle();
    rig.at(60_000).assert_idle();
}

#[test]
fn an_app_that_is_reached_after_the_agent_cancelled_the_claim_is_disconnected() {
    let mut rig = Rig::new();
    claim_by_code(&mut rig, 1, "PQ7N-4D");
    let (claim, _) = rig.wanted_claim();
    rig.agent(&cancelled(1));
    let app = rig.dial_claimed(claim, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
    assert!(rig.apps[app].gone);
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    assert_eq!((rig.agent_received(), rig.app_received(app)), (vec![], vec![]));
    rig.assert_idle();
}

#[test]
fn two_calls_with_one_code_dial_only_once() {
    let mut rig = Rig::new();
    claim_by_code(&mut rig, 1, "PQ7N-4D");
    rig.events();
    claim_by_code(&mut rig, 2, "pq7n-4d");
    assert!(tests::bridge::text_of(&rig.response(2)["result"]).1);
    assert!(rig.events().is_empty());
}

#[test]
fn a_session_that_is_being_dialled_for_one_claim_cannot_be_dialled_for_another() {
    let mut rig = Rig::new();
    claim_by_code(&mut rig, 1, "PQ7N-4D");
    let (first, _) = rig.wanted_claim();
    rig.dial_claimed(first, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
    claim_by_code(&mut rig, 2, "OTHER");
    let (second, _) = rig.wanted_claim();
    assert_eq!(rig.dial_claimed(second, bound("OTHER", "s_1", "rt_1")).unwrap_err(), OpenRefused::AlreadyDialled);
    assert!(tests::bridge::text_of(&rig.response(2)["result"]).1, "the agent gets an error");
}

#[test]
fn an_agent_that_leaves_while_a_claim_is_dialled_ends_the_dial() {
    let mut rig = Rig::new();
    claim_by_code(&mut rig, 1, "PQ7N-4D");
    let (claim, _) = rig.wanted_claim();
    let app = rig.dial_claimed(claim, bound("PQ7N-4D", "s_1", "rt_1")).unwrap();
    rig.end(tesseron::bridge::Leg::Agent, TransportEnd::Failed);
    assert!(rig.apps[app].gone);
    assert!(rig.events().iter().any(|event| matches!(event, BridgeEvent::AgentClosed(_))));
    rig.assert_idle();
    assert_eq!(rig.bridge.open(rig.now).unwrap_err(), OpenRefused::Closed, "no app can connect without an agent");
}

// ---- Resuming ----

#[test]
fn item_105_an_app_that_resumes_with_its_token_is_still_claimed() {
    let mut rig = Rig::new();
    let (app, session, token) = with_credentials(&mut rig, "ledger");
    rig.lose(app).later(60_000);
    assert!(rig.call_text(1, "ledger__t", "{}").1, "a call fails while the app is away");
    let again = rig.dial();
    let late = r#"[{"name":"t"},{"name":"late","description":""}]"#;
    let params = manifest("ledger", late, RESOURCES, &format!(r#""sessionId":"{session}","resumeToken":"{token}","#));
    rig.drop_received().app(again, &request(1, "tesseron/resume", &params));
    let received: Vec<Value> = rig.app_received(again).iter().map(|text| value(text)).collect();
    assert_eq!(received.len(), 1, "the app is not notified of its claim again: {received:?}");
    let welcome = &received[0]["result"];
    assert_eq!(welcome["sessionId"], session);
    assert_ne!(welcome["resumeToken"], token);
    assert!(welcome.get("claimCode").is_none());
    assert_eq!(welcome["agent"]["id"], "c");
    assert_eq!(
        (welcome["capabilities"]["sampling"].clone(), welcome["capabilities"]["elicitation"].clone()),
        (json!(true), json!(true))
    );
    assert_eq!(rig.notifications("notifications/tools/list_changed").len(), 1);
    let mut tools = rig.app_tools();
    tools.sort();
    assert_eq!(tools, ["ledger__late", "ledger__t"], "the list of actions is the new one");
    rig.call(2, "ledger__late");
    rig.invoked(again);
}

#[test]
fn an_app_can_resume_while_its_old_channel_still_seems_open() {
    let mut rig = Rig::new();
    let (app, session, token) = with_credentials(&mut rig, "ledger");
    let leg = rig.leg(app);
    rig.call(1, "ledger__t").stall(leg).agent(&request(2, "resources/read", r#"{"uri":"tesseron://ledger/balance"}"#));
    let again = rig.dial();
    rig.app(again, &resume("ledger", &session, &token));
    let answers: Vec<Value> =
        rig.agent_received().iter().map(|text| value(text)).filter(|frame| frame.get("id").is_some()).collect();
    assert_eq!(answers.len(), 2, "the calls on the old channel are answered: {answers:?}");
    rig.call(3, "ledger__t");
    rig.invoked(again);
    rig.later(10_000);
    assert!(rig.apps[app].gone && !rig.apps[again].gone);
    assert_eq!(rig.app_tools(), ["ledger__t"]);
}

#[test]
fn item_110_a_call_does_not_survive_a_resume() {
    let mut rig = Rig::new();
    let (app, session, token) = with_credentials(&mut rig, "ledger");
    rig.call(1, "ledger__t").lose(app);
    let result = rig.response(1)["result"].clone();
    assert_eq!(result["structuredContent"]["code"], -32010);
    let again = rig.dial();
    rig.app(again, &resume("ledger", &session, &token));
    assert_eq!(rig.all_invoked(again).len(), 0);
    rig.assert_idle();
}

// ---- Several apps, also with the same id ----

#[test]
fn item_121_of_two_apps_with_one_id_the_newer_is_not_called_while_it_closes() {
    type BeginClosing = fn(&mut Rig, usize);
    let ways: [(&str, BeginClosing); 3] = [
        ("the app has ended its side", |rig, app| {
            rig.end(rig.leg(app), TransportEnd::Eof);
        }),
        ("its owner closes it", |rig, app| {
            rig.bridge.close_app(rig.apps[app].channel, Close::Now, rig.now);
            rig.deliver();
        }),
        ("its owner closes it in a while", |rig, app| {
            let how = Close::Graceful { grace: std::time::Duration::from_secs(5) };
            rig.bridge.close_app(rig.apps[app].channel, how, rig.now);
            rig.deliver();
        }),
    ];
    for (name, begin_closing) in ways {
        let mut rig = Rig::new();
        let (older, newer) = (rig.join("ledger"), rig.join("ledger"));
        // A queued frame that the app does not read keeps the leg open.
        rig.call(1, "ledger__t");
        rig.invoked(newer);
        rig.stall(rig.leg(newer)).agent(&cancelled(1));
        begin_closing(&mut rig, newer);
        rig.drop_received().call(2, "ledger__t");
        assert_eq!(rig.all_invoked(older).len(), 1, "{name}");
    }
}

// ---- The tools of the gateway ----

#[test]
fn a_surface_limits_the_tools_that_are_listed_but_not_those_that_can_be_called() {
    for (surface, listed) in [
        (Surface::Both, META.into_iter().chain(["ledger__t"]).collect::<Vec<_>>()),
        (Surface::Meta, META.to_vec()),
        (Surface::Dynamic, vec![CLAIM, "ledger__t"]),
    ] {
        let mut config = config();
        config.surface = surface;
        let mut rig = Rig::with(config);
        let app = rig.join("ledger");
        assert_eq!(rig.tools(), listed);
        rig.call(1, "ledger__t");
        rig.invoked(app);
        assert!(!rig.call_text(2, "tesseron__list_actions", "{}").1, "{surface:?}");
    }
}

#[test]
fn list_actions_describes_every_claimed_app() {
    let mut rig = Rig::new();
    assert!(!rig.call_text(1, "tesseron__list_actions", "{}").0.starts_with('{'), "it is a sentence if there are no apps");
    rig.join("ledger");
    let answer = value(&rig.call_text(2, "tesseron__list_actions", "{}").0);
    assert_eq!(answer["mcp_server_name"], "gateway");
    let session = &answer["sessions"][0];
    assert_eq!((&session["app_id"], &session["name"], &session["origin"]), (&json!("ledger"), &json!("LEDGER"), &json!("here")));
    assert_eq!(
        session["actions"],
        json!([{"action": "t", "description": "", "mcp_tool_name": "ledger__t", "input_schema": {"type": "object"}}])
    );
    let resource = &session["resources"][0];
    assert_eq!((&resource["name"], &resource["uri"]), (&json!("balance"), &json!("tesseron://ledger/balance")));
    assert_eq!(resource["read_via"], json!({"preferred": "resources/read", "fallback": "tesseron__read_resource"}));
}

#[test]
fn invoke_action_behaves_like_a_call_of_the_tool_itself() {
    let mut rig = Rig::new();
    let app = rig.join("ledger");
    let arguments = r#"{"app_id":"ledger","action":"t","args":{"n":1e400}}"#;
    rig.agent(&call_tool("1", "tesseron__invoke_action", arguments, Some("1")));
    let received = rig.app_received(app);
    assert!(received[0].contains(r#""input":{"n":1e400}"#), "{received:?}");
    let call = tests::bridge::Invoked::read(&received[0].replace("1e400", "1")).unwrap();
    rig.app(app, &call.progress(r#","percent":5"#));
    assert_eq!(rig.progress(), [(5.0, None)]);
    rig.agent(&cancelled(1));
    assert!(rig.app_received(app)[0].contains("actions/cancel"));
    rig.assert_idle();
    for (id, arguments) in
        [(2, r#"{"action":"t"}"#), (3, r#"{"app_id":"ledger"}"#), (4, r#"{"app_id":"nobody","action":"t"}"#), (5, "7")]
    {
        assert!(rig.call_text(id, "tesseron__invoke_action", arguments).1, "{arguments}");
    }
}

#[test]
fn read_resource_returns_the_text_of_a_value() {
    let mut rig = Rig::new();
    let app = rig.join("ledger");
    rig.agent(&call_tool("1", "tesseron__read_resource", r#"{"app_id":"ledger","name":"balance"}"#, None));
    let (asked, _) = rig.app_request(app, "resources/read");
    rig.app(app, &tests::bridge::answered(&asked, r#"{"value":{"cents":991}}"#));
    assert_eq!(tests::bridge::text_of(&rig.response(1)["result"]), (r#"{"cents":991}"#.to_owned(), false));
    let (text, failed) = rig.call_text(2, "tesseron__read_resource", r#"{"app_id":"ledger","name":"secret"}"#);
    assert!(failed && text.contains("balance"), "the error lists the resources: {text}");
    for (id, arguments) in
        [(3, r#"{"name":"balance"}"#), (4, r#"{"app_id":"ledger"}"#), (5, r#"{"app_id":"nobody","name":"balance"}"#)]
    {
        assert!(rig.call_text(id, "tesseron__read_resource", arguments).1);
    }
    rig.assert_idle();
}

#[test]
fn pending_claims_of_connected_and_announced_apps_are_listed_newest_first() {
    let mut rig = Rig::new();
    assert!(!rig.call_text(1, "tesseron__list_pending_claims", "{}").0.starts_with('{'));
    let first = rig.greet("first");
    rig.at(1000);
    rig.greet("second");
    rig.bridge.advertise(vec![Advertised {
        code: ClaimCode::parse("PQ7N-4D").unwrap(),
        app_id: Some(String::from("third")),
        app_name: String::from("Third"),
        instance_id: String::from("i-3"),
        minted_at: EPOCH_MS + 500,
        expires_at: Some(EPOCH_MS + 600_500),
    }]);
    let answer = value(&rig.call_text(2, "tesseron__list_pending_claims", "{}").0);
    let claims = answer["pending_claims"].as_array().unwrap();
    let ids: Vec<_> = claims.iter().map(|claim| claim["app_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["second", "third", "first"]);
    let [first_claim, third_claim] = [&claims[2], &claims[1]].map(|claim| claim.as_object().unwrap());
    // The members of the reference implementation (`docs/protocols/tesseron.md`, "The gateway as an MCP server"), but no code.
    let of_gateway = json!({
        "app_id": "first", "app_name": "FIRST", "minted_at": EPOCH_MS, "minted_at_iso": "2026-11-21T11:11:02.592Z",
        "source": "gateway-minted",
    });
    let of_host = json!({
        "app_id": "third", "app_name": "Third", "minted_at": EPOCH_MS + 500,
        "minted_at_iso": "2026-11-21T11:11:03.092Z", "source": "host-minted", "instance_id": "i-3", "expires_at": EPOCH_MS + 600_500,
        "expires_at_iso": "2026-11-21T11:21:03.092Z",
    });
    assert_eq!((first_claim, third_claim), (of_gateway.as_object().unwrap(), of_host.as_object().unwrap()));
    assert!(answer["next_step"].as_str().unwrap().contains(CLAIM));
    rig.claim(first);
    let answer = value(&rig.call_text(3, "tesseron__list_pending_claims", "{}").0);
    assert_eq!(answer["pending_claims"].as_array().unwrap().len(), 2, "a claimed app is no longer pending");
}

/// An app that is known only by its manifest.
fn advertised(code: &str, app_name: &str) -> Advertised {
    Advertised {
        code: ClaimCode::parse(code).unwrap(),
        app_id: None,
        app_name: app_name.to_owned(),
        instance_id: format!("i-{app_name}"),
        minted_at: EPOCH_MS,
        expires_at: None,
    }
}

#[test]
fn a_pending_app_without_an_id_is_listed_by_its_name_and_without_an_expiry_if_it_has_none() {
    let mut rig = Rig::new();
    rig.bridge.advertise(vec![advertised("PQ7N-4D", "ledger-app")]);
    let answer = value(&rig.call_text(1, "tesseron__list_pending_claims", "{}").0);
    let claim = &answer["pending_claims"][0];
    assert_eq!((&claim["app_id"], &claim["app_name"]), (&json!("ledger-app"), &json!("ledger-app")));
    assert!(claim.get("expires_at").is_none() && claim.get("expires_at_iso").is_none(), "{claim}");
}

/// In the field an agent read the codes of all waiting apps in the list of pending claims, and in each error about a claim or an app. A
/// code is for the agent that a person gives it to.
#[test]
fn no_reply_to_the_agent_contains_a_code() {
    let mut rig = Rig::new();
    rig.bridge.advertise(vec![advertised("PQ7N-4D", "Ledger")]);
    let connected = rig.greet("notes");
    let codes = [rig.apps[connected].code.clone().unwrap(), String::from("PQ7N-4D")];
    claim_by_code(&mut rig, 1, "OTHER");
    let (claim, _) = rig.wanted_claim();
    rig.bridge.refuse_claim(claim, "no app has this code", rig.now);
    rig.deliver();
    let mut replies = vec![rig.response(1).to_string()];
    for (id, tool) in [(2, "tesseron__list_pending_claims"), (3, "notes__t"), (4, "nobody__t"), (5, "tesseron__list_actions")] {
        replies.push(rig.call_result(id, tool, "{}").to_string());
    }
    for arguments in [r#"{"app_id":"notes","action":"t"}"#, r#"{"app_id":"nobody","action":"t"}"#] {
        replies.push(rig.call_result(6, "tesseron__invoke_action", arguments).to_string());
    }
    rig.agent(&request(7, "tools/list", "{}"));
    replies.push(rig.response(7).to_string());
    for reply in &replies {
        assert!(!codes.iter().any(|code| reply.contains(code)), "{reply}");
    }
    assert!(replies[0].contains("notes, Ledger"), "the apps are named: {}", replies[0]);
}

/// The manifest of an app can be out of date if another gateway has claimed the app. A regression: the error then suggested the app whose
/// code had just been refused.
#[test]
fn an_error_never_suggests_the_app_whose_code_was_just_refused() {
    let mut rig = Rig::new();
    let (spent, other) = ("PQ7N-4D", "AB3X-7K");
    rig.bridge.advertise(vec![advertised(spent, "Spent")]);
    claim_by_code(&mut rig, 1, &spent.to_lowercase());
    let (claim, _) = rig.wanted_claim();
    rig.bridge.refuse_claim(claim, "the claim is already bound to an agent", rig.now);
    rig.deliver();
    let (text, failed) = tests::bridge::text_of(&rig.response(1)["result"]);
    assert!(failed && !text.contains("Spent"), "{text}");
    assert!(text.contains("InputRequest the user for the code"), "the error names the next step: {text}");
    // The next error does not name that app either, but names the other one.
    rig.bridge.advertise(vec![advertised(spent, "Spent"), advertised(other, "Other")]);
    let (text, _) = rig.call_text(2, "spent__t", "{}");
    assert!(!text.contains("Spent") && text.contains("Other"), "{text}");
    // After another claim succeeds, the app may be suggested again.
    let app = rig.greet("ledger");
    rig.claim(app);
    assert!(rig.call_text(4, "spent__t", "{}").0.contains("Spent"));
}

#[test]
fn the_descriptions_of_the_gateways_own_tools_name_the_next_step() {
    let mut rig = Rig::new();
    rig.agent(&request(1, "tools/list", "{}"));
    let listed = rig.response(1)["result"]["tools"].clone();
    for tool in listed.as_array().unwrap() {
        let (name, description) = (tool["name"].as_str().unwrap(), tool["description"].as_str().unwrap());
        let next = if name == "tesseron__list_pending_claims" { CLAIM } else { "tesseron__list_pending_claims" };
        assert!(description.contains(next), "{name}: {description}");
    }
}

#[test]
fn the_numbers_of_channels_and_of_unclaimed_apps_are_bounded() {
    let mut config = config();
    config.registry.max_pending = 2;
    config.registry.max_channels = 3;
    let mut rig = Rig::with(config);
    let apps = [rig.dial(), rig.dial(), rig.dial()];
    assert_eq!(rig.bridge.open(rig.now).unwrap_err(), OpenRefused::Full);
    for app in apps {
        rig.app(app, &hello("ledger", "[]", "[]"));
    }
    assert!(rig.app_response(apps[2], 1).get("error").is_some());
    assert!(rig.untaken_events.iter().any(|event| matches!(event, BridgeEvent::AppRefused { .. })));
    rig.claim(apps[0]).app(apps[2], &hello("ledger", "[]", "[]"));
    assert!(rig.app_response(apps[2], 1).get("result").is_some(), "there is room again on the same channel");
}

#[test]
fn an_app_that_never_sends_a_hello_is_disconnected() {
    let mut rig = Rig::new();
    let app = rig.dial();
    rig.at(4_999);
    assert!(!rig.apps[app].gone);
    rig.at(5_000);
    assert!(rig.apps[app].gone);
    assert_eq!(rig.bridge.channels().count(), 0);
}

#[test]
fn item_29_an_app_that_came_before_the_agent_gets_the_name_of_the_agent_with_the_claim() {
    let mut rig = Rig::empty(config());
    let app = rig.dial();
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    let welcome = rig.app_response(app, 1)["result"].clone();
    assert_eq!(welcome["agent"], json!({"id": "pending", "name": "Awaiting agent"}));
    assert_eq!(welcome["capabilities"]["sampling"], false);
    rig.agent(&initialize(0, "2025-11-25", r#"{"sampling":{}}"#)).agent(&notification("notifications/initialized", "{}"));
    let code = rig.apps[app].code.clone().unwrap();
    claim_by_code(&mut rig, 1, &code);
    let claimed = value(&rig.app_received(app)[0])["params"].clone();
    assert_eq!(claimed["agent"]["id"], "c");
    assert_eq!(
        (&claimed["agentCapabilities"]["sampling"], &claimed["agentCapabilities"]["elicitation"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn bug_10_an_app_with_a_used_code_is_no_longer_listed_even_if_the_manifest_still_has_it() {
    let mut rig = Rig::new();
    let advertise = |rig: &mut Rig| {
        rig.bridge.advertise(vec![Advertised {
            code: ClaimCode::parse("PQ7N-4D").unwrap(),
            app_id: None,
            app_name: String::from("Ledger"),
            instance_id: String::from("i-1"),
            minted_at: 1,
            expires_at: None,
        }]);
    };
    advertise(&mut rig);
    assert!(rig.call_text(1, "tesseron__list_pending_claims", "{}").0.contains("i-1"));
    assert!(rig.call_text(2, "ledger__t", "{}").0.contains("Ledger"));
    bound_app(&mut rig);
    // The manifest of the app still has the old code.
    advertise(&mut rig);
    for (id, tool) in [(4, "tesseron__list_pending_claims"), (5, "nobody__t")] {
        let (text, _) = rig.call_text(id, tool, "{}");
        assert!(!text.contains("i-1") && !text.contains("Ledger"), "{text}");
    }
}
