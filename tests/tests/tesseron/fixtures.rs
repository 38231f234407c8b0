//! The fixtures of upstream Tesseron and those of this project, run against both ends, and checks that each fixture fails if its rule is
//! broken.

use serde_json::{Value, json};
use tests::fixtures::{
    FOLDERS, Failure, Fixture, Outcome, Sabotage, Saboteur, ScriptedApp, ScriptedGateway, StepKind, Subject, World, breaches, load,
    mirror, run,
};

fn described(outcome: Result<Outcome, Failure>) -> String {
    match outcome {
        Ok(Outcome::Passed) => "passed".to_owned(),
        Ok(Outcome::Skipped { missing }) => format!("skipped for want of {missing}"),
        Err(failure) => failure.to_string(),
    }
}

fn all() -> impl Iterator<Item = Fixture> {
    FOLDERS.into_iter().flat_map(load)
}

fn fixture(id: &str) -> Fixture {
    all().find(|fixture| fixture.id == id).unwrap_or_else(|| panic!("there is no fixture {id}"))
}

/// The fixtures that do not pass, each with its result.
fn not_passed(fixtures: impl Iterator<Item = Fixture>, play: impl Fn(&Fixture) -> Result<Outcome, Failure>) -> Vec<String> {
    fixtures
        .map(|fixture| (described(play(&fixture)), fixture.id))
        .filter(|(result, _)| result != "passed")
        .map(|(result, id)| format!("{id}: {result}"))
        .collect()
}

#[test]
fn all_twelve_upstream_fixtures_pass_for_an_app_without_an_endpoint() {
    assert_eq!(load("tesseron").len(), 12);
    assert_eq!(not_passed(load("tesseron").into_iter(), |fixture| run(fixture, &mut ScriptedApp::new(&fixture.world))), [""; 0]);
}

#[test]
fn every_own_fixture_passes_except_the_one_that_needs_a_misbehaving_app() {
    let not_passed = not_passed(load("ours").into_iter(), |fixture| run(fixture, &mut ScriptedApp::new(&fixture.world)));
    assert_eq!(not_passed, ["elicitation/schema-matrix-at-the-gateway: skipped for want of rogue-app"]);
}

#[test]
fn every_fixture_passes_for_a_gateway_except_those_that_need_a_misbehaving_gateway() {
    let not_passed = not_passed(all(), |fixture| mirror(fixture, &mut ScriptedGateway::new(fixture)));
    let rogue = [
        "actions/cancel-of-nothing",
        "actions/name-in-use",
        "handshake/bind-comes-first",
        "handshake/bind-in-time",
        "handshake/bind-on-a-plain-channel",
        "handshake/bind-twice",
        "handshake/bind-without-code",
    ];
    assert_eq!(not_passed, rogue.map(|id| format!("{id}: skipped for want of rogue-gateway")));
}

// ---- A fixture fails if its rule is broken ----

/// The steps of one kind: the number of each step, and its pattern.
fn frames(fixture: &Fixture, pattern_of: fn(&StepKind) -> Option<&Value>) -> Vec<(usize, &Value)> {
    fixture.steps.iter().enumerate().filter_map(|(index, step)| pattern_of(&step.kind).map(|frame| (index, frame))).collect()
}

/// The steps in which the fixture receives a frame, which the tested end sends.
fn received(fixture: &Fixture) -> Vec<(usize, &Value)> {
    frames(fixture, |kind| if let StepKind::Recv(frame) = kind { Some(frame) } else { None })
}

/// The steps in which the fixture sends a frame to the tested end.
fn sent(fixture: &Fixture) -> Vec<(usize, &Value)> {
    frames(fixture, |kind| if let StepKind::Send(frame) = kind { Some(frame) } else { None })
}

/// Runs a fixture against an app whose frames pass a saboteur, which commits `sabotage`.
fn sabotaged(fixture: &Fixture, sabotage: Sabotage) -> Result<Outcome, Failure> {
    run(fixture, &mut Saboteur::new(ScriptedApp::new(&fixture.world), sabotage))
}

/// The fixtures that apply to an app.
fn of_apps() -> impl Iterator<Item = Fixture> {
    all().filter(|fixture| fixture.requires.iter().all(|tag| ScriptedApp::new(&World::default()).offers(tag)))
}

/// The fixtures that apply to a gateway.
fn of_gateways() -> impl Iterator<Item = Fixture> {
    all().filter(|fixture| fixture.requires.iter().all(|tag| ScriptedGateway::new(fixture).offers(tag)))
}

#[test]
fn an_app_that_sends_any_member_of_a_frame_wrong_fails_at_that_frame() {
    let mut broken = 0;
    for fixture in of_apps() {
        for (nth, (step, pattern)) in received(&fixture).into_iter().enumerate() {
            for (path, change) in breaches(pattern) {
                let outcome = sabotaged(&fixture, Sabotage::ChangesSent(nth, change));
                let failed = outcome.expect_err(&format!("{}, step {step}: {path} is wrong, and the fixture passed", fixture.id));
                assert_eq!(failed.step, step, "{path}: {failed}");
                assert!(failed.what.contains(&format!("`{path}`")), "{path}: {failed}");
                broken += 1;
            }
        }
    }
    assert!(broken > 500, "{broken}");
}

#[test]
fn an_app_that_omits_a_frame_fails_at_that_frame() {
    for fixture in of_apps() {
        for (nth, (step, _)) in received(&fixture).into_iter().enumerate() {
            let failed = sabotaged(&fixture, Sabotage::DropsSent(nth)).expect_err(&fixture.id);
            assert_eq!(failed.step, step, "{failed}");
        }
    }
}

#[test]
fn an_app_that_sends_a_frame_twice_fails_at_the_next_step() {
    for fixture in of_apps() {
        for (nth, (step, _)) in received(&fixture).into_iter().enumerate() {
            let checks = |kind: &StepKind| !matches!(kind, StepKind::Send(_) | StepKind::DropTransport | StepKind::Reconnect);
            let next = fixture.steps.iter().enumerate().skip(step + 1).find(|(_, next)| checks(&next.kind));
            if next.is_some_and(|(_, next)| matches!(next.kind, StepKind::ExpectSilence(_))) {
                // The next step only forbids frames of one method, so the repeated frame has no effect on it.
                continue;
            }
            let failed = sabotaged(&fixture, Sabotage::SendsTwice(nth)).expect_err(&fixture.id);
            assert_eq!(failed.step, next.map_or(fixture.steps.len(), |(index, _)| index), "{failed}");
        }
    }
}

#[test]
fn an_app_that_sends_an_extra_frame_or_does_not_close_fails_at_the_step_that_checks_this() {
    let mut broken = 0;
    for fixture in of_apps() {
        for (step, kind) in fixture.steps.iter().map(|step| &step.kind).enumerate() {
            let before = received(&fixture).into_iter().filter(|(index, _)| *index < step).count();
            let sabotages = match kind {
                StepKind::ExpectSilence(method) => vec![Sabotage::Adds(before, json!({"jsonrpc": "2.0", "method": method}))],
                // The app must not send a second hello either: the note in handshake/protocol-major-mismatch forbids it.
                StepKind::ExpectClosed => {
                    vec![
                        Sabotage::StaysOpen(before),
                        Sabotage::Adds(before, json!({"jsonrpc": "2.0", "id": 2, "method": "tesseron/hello"})),
                    ]
                }
                _ => continue,
            };
            for sabotage in sabotages {
                let failed = sabotaged(&fixture, sabotage).expect_err(&fixture.id);
                assert_eq!(failed.step, step, "{failed}");
                broken += 1;
            }
        }
    }
    assert!(broken > 10, "{broken}");
}

/// A way to break the rule of a fixture: a saboteur between the ends, or an app with another configuration.
enum Broken {
    By(Sabotage),
    App(fn(&mut World)),
}

/// Ways to break apps. Each has the id of a fixture, and the step at which the fixture must fail.
fn broken_apps() -> Vec<(&'static str, usize, Broken)> {
    use Broken::{App, By};
    let set = |path: &'static str, value: Value| {
        move |frame: &mut Value| *frame.pointer_mut(path).unwrap_or_else(|| panic!("{path} is there")) = value.clone()
    };
    vec![
        // The app ignores the cancel.
        ("actions/cancel", 4, By(Sabotage::DropsReceived(2))),
        // The app does not check the input.
        ("actions/input-validation-failure", 3, App(|world| world.actions[0].input_schema = None)),
        ("actions/invoke-success", 3, App(|world| world.actions[0].returns = json!({"sum": 4}))),
        // The app runs an action that was not declared.
        ("actions/not-found", 3, App(|world| world.actions[0].name = "subtract".to_owned())),
        // The progress of the app falls.
        ("actions/progress-monotonic", 4, App(|world| world.actions[0].progress.swap(1, 2))),
        ("elicitation/confirm-decline-is-false", 5, By(Sabotage::changes_received(2, set("/result/action", json!("accept"))))),
        ("handshake/hello-declares-manifest", 0, App(|world| world.resources[0].subscribable = false)),
        ("handshake/hello-minimal", 0, By(Sabotage::changes_sent(0, set("/params/protocolVersion", json!("2.0.0"))))),
        // The app ignores the refusal.
        ("handshake/protocol-major-mismatch", 2, By(Sabotage::DropsReceived(0))),
        ("resources/read", 3, App(|world| world.resources[0].value = json!([]))),
        // The app never sends the update.
        ("resources/subscribe-update-unsubscribe", 4, App(|world| world.resources[0].emits.clear())),
        // The app resumes with its old token.
        ("resume/token-rotation", 9, By(Sabotage::changes_received(2, set("/result/resumeToken", json!("rt_conformance_0001"))))),
        // The app has no token to resume with.
        (
            "resume/token-rotation",
            5,
            By(Sabotage::changes_received(0, |frame| {
                drop(frame["result"].as_object_mut().expect("a welcome").remove("resumeToken"))
            })),
        ),
        ("actions/cancel-with-input-schema", 4, By(Sabotage::DropsReceived(2))),
        // The app ignores a cancel that comes while it checks the arguments: the saboteur drops the cancel.
        ("actions/cancel-while-validating", 4, By(Sabotage::DropsReceived(2))),
        // The handler is started before the cancel, since the check takes no time. This shows after the last step.
        ("actions/cancel-while-validating", 6, App(|world| world.actions[0].validates_for_ms = 0)),
        // The app keeps a cancel that comes before its invocation: the saboteur delivers the cancel after the invocation.
        ("actions/cancel-of-nothing", 4, By(Sabotage::Delays(1))),
        // The action returns immediately, so its result comes instead of the error of the deadline.
        ("actions/timeout-is-answered", 4, App(|world| world.actions[0].blocks_until_cancelled = false)),
        ("actions/progress-backwards", 4, By(Sabotage::changes_sent(2, |frame| frame["params"]["percent"] = json!(20)))),
        ("actions/name-in-use", 4, By(Sabotage::DropsReceived(2))),
        // The app goes on as if the refused input request had been answered.
        (
            "sampling/depth",
            12,
            By(Sabotage::changes_received(6, |frame| {
                *frame = json!({"jsonrpc": "2.0", "id": frame["id"], "result": {"content": ""}})
            })),
        ),
        ("sampling/one-after-another", 4, App(|world| world.actions[0].samples = None)),
        // The app sends a form that no agent can show.
        (
            "elicitation/schema-matrix",
            35,
            App(|world| world.actions[6].elicits.as_mut().expect("a form").schema = json!({"type": "object"})),
        ),
        // The app makes an input request that the agent does not support.
        ("elicitation/not-available", 3, By(Sabotage::changes_received(0, set("/result/capabilities/elicitation", json!(true))))),
        // The app resumes again with the refused token.
        ("resume/refused", 9, By(Sabotage::DropsReceived(2))),
        // The app sends its hello before a bind.
        ("handshake/bind", 0, App(|world| world.host_minted = false)),
        // The app does not answer the unknown method.
        ("handshake/bind-on-a-plain-channel", 3, By(Sabotage::DropsReceived(1))),
        // The app ignores the second bind.
        ("handshake/bind-twice", 5, By(Sabotage::DropsReceived(2))),
        // The app accepts a bind without a code.
        ("handshake/bind-without-code", 1, By(Sabotage::changes_received(0, |frame| frame["params"]["code"] = known_code()))),
        ("handshake/bind-comes-first", 1, App(|world| world.host_minted = false)),
        ("handshake/bind-in-time", 0, App(|world| world.host_minted = false)),
        // The app accepts any code.
        ("handshake/bind-wrong-code", 1, By(Sabotage::changes_received(0, set("/params/code", known_code())))),
        // The app refuses the right code after wrong ones.
        (
            "handshake/bind-after-wrong-codes",
            21,
            By(Sabotage::changes_sent(5, |frame| {
                *frame = json!({"jsonrpc": "2.0", "id": frame["id"], "error": {"code": -32009, "message": "locked"}})
            })),
        ),
    ]
}

fn known_code() -> Value {
    ScriptedApp::new(&fixture("handshake/bind").world).known()["claimCode"].clone()
}

#[test]
fn every_fixture_of_apps_fails_at_the_expected_step_if_its_rule_is_broken() {
    let (mut proven, mut unexpected) = (Vec::new(), Vec::new());
    for (id, step, broken) in broken_apps() {
        let mut fixture = fixture(id);
        let outcome = match broken {
            Broken::By(sabotage) => sabotaged(&fixture, sabotage),
            Broken::App(change) => {
                change(&mut fixture.world);
                let mut app = ScriptedApp::new(&fixture.world);
                run(&fixture, &mut app)
            }
        };
        match outcome {
            Err(failed) if failed.step == step => proven.push(id.to_owned()),
            other => unexpected.push(format!("{id} should fail at step {step}: {}", described(other))),
        }
    }
    assert_eq!(unexpected, [""; 0]);
    let missing: Vec<_> = of_apps().map(|fixture| fixture.id).filter(|id| !proven.contains(id)).collect();
    assert_eq!(missing, [""; 0]);
}

// ---- The same for the gateway ----

/// The frames that the gateway must send, which are those that the fixture sends. Each has its number among all frames of the gateway, and
/// the number of its step. If the fixture has no `tesseron/claimed`, the gateway sends this frame before its first call, so all later
/// numbers of frames are greater by one.
fn frames_of_gateway(fixture: &Fixture) -> Vec<(usize, usize, Value)> {
    let sent = sent(fixture);
    let has_claimed = sent.iter().any(|(_, frame)| frame["method"] == "tesseron/claimed");
    let is_call = |frame: &Value| frame.get("id").is_some() && frame.get("method").is_some_and(|method| method != "tesseron/bind");
    let first_shifted = sent.iter().position(|(_, frame)| is_call(frame)).filter(|_| !has_claimed).unwrap_or(sent.len());
    sent.iter().enumerate().map(|(nth, (step, frame))| (nth + usize::from(nth >= first_shifted), *step, (*frame).clone())).collect()
}

fn sabotaged_gateway(fixture: &Fixture, sabotage: Sabotage) -> Result<Outcome, Failure> {
    mirror(fixture, &mut Saboteur::new(ScriptedGateway::new(fixture), sabotage))
}

#[test]
fn a_gateway_that_sends_any_member_of_a_frame_wrong_fails_at_that_frame() {
    let mut broken = 0;
    for fixture in of_gateways() {
        for (nth, step, pattern) in frames_of_gateway(&fixture) {
            let is_request = pattern.get("method").is_some();
            for (path, change) in breaches(&pattern) {
                // A gateway chooses its ids and the texts of its errors, so other ids and texts are not wrong.
                if path == "error.message"
                    || is_request && (path == "id" || path == "params.invocationId" && pattern.get("id").is_some())
                {
                    continue;
                }
                let outcome = sabotaged_gateway(&fixture, Sabotage::ChangesSent(nth, change));
                let failed = outcome.expect_err(&format!("{}, step {step}: {path} is wrong, and the fixture passed", fixture.id));
                assert_eq!(failed.step, step, "{path}: {failed}");
                broken += 1;
            }
        }
    }
    assert!(broken > 300, "{broken}");
}

#[test]
fn a_gateway_that_omits_a_frame_fails_at_that_frame() {
    for fixture in of_gateways() {
        for (nth, step, _) in frames_of_gateway(&fixture) {
            let failed = sabotaged_gateway(&fixture, Sabotage::DropsSent(nth)).expect_err(&fixture.id);
            assert_eq!(failed.step, step, "{failed}");
        }
    }
}

#[test]
fn a_gateway_that_ignores_a_frame_fails_unless_the_frame_is_the_reply_to_a_cancelled_call() {
    for fixture in of_gateways() {
        for (nth, (step, pattern)) in received(&fixture).into_iter().enumerate() {
            if pattern["error"]["code"] == -32001 {
                continue;
            }
            let failed = sabotaged_gateway(&fixture, Sabotage::DropsReceived(nth)).expect_err(&fixture.id);
            // Ids of binds begin with `b-`. If the gateway ignores the answer to its bind, this shows only when its session should begin.
            let answers_bind = pattern["id"].as_str().is_some_and(|id| id.starts_with("b-"));
            assert!(if answers_bind { failed.step > step } else { failed.step == step }, "{failed}");
        }
    }
}

// ---- Invalid fixtures ----

fn errors_of(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut file = json!({
        "id": "actions/x",
        "title": "X",
        "spec": "/protocol/actions/",
        "requires": [],
        "fixture": {},
        "steps": [
            {"recv": {"id": "~capture:helloId"}, "label": "greeted"},
            {"send": {"jsonrpc": "2.0", "id": "~ref:helloId", "result": {}}},
        ],
    });
    change(&mut file);
    match Fixture::parse("actions/x.json", &file.to_string()) {
        Ok(_) => vec![],
        Err(errors) => errors.into_iter().map(|error| error.to_string()).collect(),
    }
}

#[test]
fn an_error_in_a_fixture_is_reported_with_its_file_and_its_step() {
    assert_eq!(errors_of(|_| {}), [""; 0]);
    let step = |index: usize, step: Value| errors_of(|file| file["steps"][index] = step);
    let frame = |id: Value| json!({"jsonrpc": "2.0", "id": id});
    for (errors, expected) in [
        (
            errors_of(|file| file["id"] = json!("actions/y")),
            "actions/x.json: `id` is \"actions/y\", which is not the path of the file",
        ),
        (errors_of(|file| file["title"] = json!("")), "actions/x.json: `title` must be text"),
        (errors_of(|file| file["spec"] = json!("protocol")), "actions/x.json: `spec` must begin with a slash"),
        (errors_of(|file| file["requires"] = json!("streaming")), "actions/x.json: `requires` must be an array of tags"),
        (errors_of(|file| file["note"] = json!("x")), "actions/x.json: `note` means nothing"),
        (errors_of(|file| file["steps"] = json!([])), "actions/x.json: `steps` must be an array of at least one"),
        (errors_of(|file| file["fixture"] = json!({"actions": [{"nam": "x"}]})), "actions/x.json: `fixture`: unknown field `nam`"),
        (
            errors_of(|file| {
                file["fixture"] = json!({"resources": [{"name": "x", "emits": [{"afterStep": "never", "value": 1}]}]})
            }),
            "actions/x.json: `afterStep`: no step is labelled \"never\"",
        ),
        (step(1, json!(7)), "actions/x.json, step 1: is no object"),
        (step(1, json!({"note": "x"})), "actions/x.json, step 1: must have exactly one of recv, send, "),
        (step(1, json!({"recv": {}, "send": {}})), "actions/x.json, step 1: must have exactly one of recv, send, "),
        (step(1, json!({"reconnect": false})), "actions/x.json, step 1: `reconnect` must be true"),
        (step(1, json!({"expectSilence": true})), "actions/x.json, step 1: `expectSilence` must name a method"),
        (step(1, json!({"recv": {}, "label": "greeted"})), "actions/x.json, step 1: `label` must be text that no other step has"),
        (
            step(1, json!({"recv": {}, "notBefore": "later"})),
            "actions/x.json, step 1: `notBefore`: no step before is labelled \"later\"",
        ),
        (step(1, json!({"recv": {}, "timeoutMs": -1})), "actions/x.json, step 1: `timeoutMs` must be a whole number"),
        (step(1, json!({"recv": {}, "timeout": 1})), "actions/x.json, step 1: `timeout` means nothing"),
        (step(1, json!({"recv": []})), "actions/x.json, step 1: `recv` must be an object"),
        (step(1, json!({"recv": {"a": {"b": "~nothing"}}})), "actions/x.json, step 1: `a.b`: `~nothing` is no matcher"),
        (step(1, json!({"recv": {"a": ["~regex:("]}})), "actions/x.json, step 1: `a[0]`: `~regex:(`: "),
        (step(1, json!({"recv": {"a": "~capture:"}})), "actions/x.json, step 1: `a`: `~capture:` needs a name"),
        (step(1, json!({"recv": {"a": "~capture:helloId"}})), "actions/x.json, step 1: `a`: helloId is captured already"),
        (step(1, json!({"recv": {"a": "~ref:other"}})), "actions/x.json, step 1: `a`: other is not captured before"),
        (step(1, json!({"send": {"id": 1}})), "actions/x.json, step 1: `send` must say jsonrpc 2.0"),
        (step(1, json!({"send": frame(json!("~ref:other"))})), "actions/x.json, step 1: `id`: other is not captured before"),
        (step(1, json!({"send": frame(json!("~any"))})), "actions/x.json, step 1: `id`: `~any` cannot be sent"),
    ] {
        assert_eq!(errors.len(), 1, "{expected}: {errors:?}");
        assert!(errors[0].starts_with(expected), "{expected}: {errors:?}");
    }
    let errors = Fixture::parse("x.json", "{").expect_err("it is no JSON");
    assert!(errors[0].to_string().starts_with("x.json: is no JSON: "), "{errors:?}");
}

#[test]
fn all_errors_of_a_fixture_are_reported_together() {
    let errors = errors_of(|file| {
        file["title"] = json!(7);
        file["steps"][0] = json!({"expectClosed": 1});
        file["steps"][1]["send"]["id"] = json!("~");
    });
    assert_eq!(errors.len(), 3, "{errors:?}");
}

// ---- The earliest step of a frame, and missing features ----

fn run_steps(steps: Value) -> Result<Outcome, Failure> {
    let world = json!({"actions": [{"name": "ping", "returns": 1}]});
    let file = json!({"id": "x", "title": "X", "spec": "/", "requires": [], "fixture": world, "steps": steps});
    let fixture = Fixture::parse("x.json", &file.to_string()).expect("a valid fixture");
    run(&fixture, &mut ScriptedApp::new(&fixture.world))
}

#[test]
fn a_frame_that_comes_before_its_earliest_step_fails() {
    let welcome = json!({"jsonrpc": "2.0", "id": "~ref:hello", "result": {"sessionId": "s", "protocolVersion": "1.2.0",
        "capabilities": {"streaming": true, "subscriptions": true, "sampling": true, "elicitation": true}, "agent": {"id": "a", "name": "A"}}});
    let invoke = json!({"jsonrpc": "2.0", "id": 1, "method": "actions/invoke", "params": {"name": "ping", "input": {}, "invocationId": "i"}});
    let cancel = json!({"jsonrpc": "2.0", "method": "actions/cancel", "params": {"invocationId": "i"}});
    let run_with = |first: Value, second: Value| {
        run_steps(
            json!([{"recv": {"id": "~capture:hello"}}, {"send": welcome}, first, second, {"recv": {"id": 1}, "notBefore": "here"}]),
        )
    };
    assert_eq!(run_with(json!({"send": invoke, "label": "here"}), json!({"send": cancel})), Ok(Outcome::Passed));
    let failed =
        run_with(json!({"send": invoke}), json!({"send": cancel, "label": "here"})).expect_err("the frame comes before the cancel");
    assert_eq!(failed.step, 4);
    assert!(failed.what.ends_with("came too early"), "{failed}");
}

#[test]
fn a_fixture_that_needs_a_missing_feature_is_skipped_and_does_not_pass() {
    let mut fixture = fixture("handshake/hello-minimal");
    fixture.requires.push("teleportation".to_owned());
    let skipped = Ok(Outcome::Skipped { missing: "teleportation".to_owned() });
    assert_eq!(run(&fixture, &mut ScriptedApp::new(&fixture.world)), skipped);
    assert_eq!(mirror(&fixture, &mut ScriptedGateway::new(&fixture)), skipped);
}

// ---- Over real sockets ----

#[cfg(unix)]
mod over_sockets {
    use programs::adapter::Adapter;
    use tesseron::net::Binding;
    use tests::fixtures::{load, run_bound};

    use super::not_passed;

    /// The results of the two fixtures that are skipped over both bindings.
    const ROGUE_APP: &str = "elicitation/schema-matrix-at-the-gateway: skipped for want of rogue-app";
    const VIRTUAL_TIME: &str = "actions/timeout-is-answered: skipped for want of virtual-time";

    fn over_unix<A: Adapter>() {
        assert_eq!(not_passed(load("tesseron").into_iter(), |fixture| run_bound::<A>(fixture, Binding::Unix)), [""; 0]);
        let not_passed = not_passed(load("ours").into_iter(), |fixture| run_bound::<A>(fixture, Binding::Unix));
        assert_eq!(not_passed, [VIRTUAL_TIME, ROGUE_APP, "handshake/bind-in-time: skipped for want of virtual-time"]);
    }

    fn over_a_web_socket<A: Adapter>() {
        assert_eq!(not_passed(load("tesseron").into_iter(), |fixture| run_bound::<A>(fixture, Binding::WebSocket)), [""; 0]);
        let not_passed = not_passed(load("ours").into_iter(), |fixture| run_bound::<A>(fixture, Binding::WebSocket));
        let binds = [
            "bind",
            "bind-after-wrong-codes",
            "bind-comes-first",
            "bind-in-time",
            "bind-twice",
            "bind-without-code",
            "bind-wrong-code",
        ];
        let binds = binds.map(|id| format!("handshake/{id}: skipped for want of bind"));
        assert_eq!(not_passed[..2], [VIRTUAL_TIME, ROGUE_APP]);
        assert_eq!(not_passed[2..], binds);
    }

    #[test]
    fn the_fixtures_pass_over_unix_sockets_of_tokio() {
        over_unix::<programs::tokio::Tokio>();
    }

    #[test]
    fn the_fixtures_pass_over_unix_sockets_of_smol() {
        over_unix::<programs::smol::Smol>();
    }

    #[test]
    fn the_fixtures_pass_over_web_sockets_of_tokio() {
        over_a_web_socket::<programs::tokio::Tokio>();
    }

    #[test]
    fn the_fixtures_pass_over_web_sockets_of_smol() {
        over_a_web_socket::<programs::smol::Smol>();
    }
}
