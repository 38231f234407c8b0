//! The fixtures of upstream Tesseron and those of this project, run against an app: a session without an endpoint, and over real sockets.

use serde_json::{Value, json};
use tests::fixtures::{Failure, Fixture, Outcome, ScriptedApp, load, run};

fn described(outcome: Result<Outcome, Failure>) -> String {
    match outcome {
        Ok(Outcome::Passed) => "passed".to_owned(),
        Ok(Outcome::Skipped { missing }) => format!("skipped for want of {missing}"),
        Err(failure) => failure.to_string(),
    }
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
fn every_own_fixture_passes() {
    assert_eq!(not_passed(load("ours").into_iter(), |fixture| run(fixture, &mut ScriptedApp::new(&fixture.world))), [""; 0]);
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
    let mut fixture = load("tesseron").remove(0);
    fixture.requires.push("teleportation".to_owned());
    let skipped = Ok(Outcome::Skipped { missing: "teleportation".to_owned() });
    assert_eq!(run(&fixture, &mut ScriptedApp::new(&fixture.world)), skipped);
}

// ---- Over real sockets ----

#[cfg(unix)]
mod over_sockets {
    use programs::adapter::Adapter;
    use tesseron::net::Binding;
    use tests::fixtures::{load, run_bound};

    use super::not_passed;

    /// The result of the fixture that is skipped over both bindings.
    const VIRTUAL_TIME: &str = "actions/timeout-is-answered: skipped for want of virtual-time";

    fn over_unix<A: Adapter>() {
        assert_eq!(not_passed(load("tesseron").into_iter(), |fixture| run_bound::<A>(fixture, Binding::Unix)), [""; 0]);
        let not_passed = not_passed(load("ours").into_iter(), |fixture| run_bound::<A>(fixture, Binding::Unix));
        assert_eq!(not_passed, [VIRTUAL_TIME, "handshake/bind-in-time: skipped for want of virtual-time"]);
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
        assert_eq!(not_passed[0], VIRTUAL_TIME);
        assert_eq!(not_passed[1..], binds);
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
