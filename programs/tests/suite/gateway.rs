//! The programs `gateway` and `tools --tesseron`, run as a person runs them: an MCP client on the stdin of the gateway reaches the app over
//! real sockets and manifests in a home directory of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::call_and_tools::{ask_over_http, undisturbed};
use super::children::{Agent, App, Home, Lines, Program, Programs, Relay, audit, blocks, is_error, processor_time, text, value};
use super::program;
use tests::scratch::Scratch;
use tests::until::{PATIENCE, until};

/// Declares a test for each name: it calls the function of this name in this file.
macro_rules! rows {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            super::$name(&super::Programs);
        }
    )*};
}

mod rows {
    rows! {
        an_app_on_a_web_socket_is_found_claimed_and_called
        an_app_on_a_unix_socket_is_found_claimed_and_called
        an_app_whose_code_comes_from_the_gateway_can_be_claimed
        an_app_that_any_user_may_claim_prints_a_warning
        another_user_of_this_machine_cannot_lock_the_owner_out
        only_the_right_code_claims_in_upper_or_lower_case
        a_session_whose_channel_was_cut_is_resumed_without_a_new_claim
        the_error_about_a_code_of_another_gateway_names_that_gateway
        after_its_gateway_has_left_an_app_has_a_new_code_and_the_old_one_is_invalid
        an_app_must_be_claimed_again_at_another_gateway
        a_cancelled_call_stops_at_the_app_and_keeps_its_partial_result
        an_agent_that_leaves_cancels_its_running_calls
        an_app_that_is_killed_fails_its_calls_and_its_tools_are_removed
        sampling_and_forms_of_an_app_reach_the_agent
        the_resource_clock_is_listed_read_and_subscribed
        a_manifest_is_removed_when_its_app_ends_by_any_signal
        only_the_manifest_of_a_dead_process_is_removed
        an_app_that_stalls_does_not_delay_another_claim
        agents_come_one_after_the_other_over_tcp
        an_agent_over_http_takes_the_place_of_the_one_before
        another_user_of_this_machine_is_not_served
        a_client_with_the_token_of_the_gateway_is_served
        the_surface_is_set_by_the_flag_or_the_environment
        the_gateway_runs_although_its_stderr_is_not_read
        the_gateway_ends_with_status_4_if_its_client_closes_its_output
        an_idle_gateway_uses_no_processor_time
        the_gateway_ends_at_the_end_of_input_and_on_a_signal
        help_lists_the_flags_and_the_exit_statuses
        an_invalid_command_line_is_reported_in_one_line_with_status_2
        an_address_or_a_folder_that_cannot_be_used_is_reported_in_one_line
    }
}

/// The greatest time between two scans of the manifests by the gateway.
const POLL: Duration = Duration::from_secs(2);

// ---- Claims ----

fn found_claimed_and_called(programs: &Programs, binding: &str) {
    let home = Home::new();
    let app = App::start(programs, &home, [binding]);
    let code = app.code(0);
    let mut agent = Agent::start(programs, &home, &[]);
    let waiting = agent.pending();
    assert!(waiting.contains("host-minted") && !waiting.contains(&code), "the app is listed without its code: {waiting}");
    let before = agent.mark();
    assert!(!agent.tools().iter().any(|tool| tool.starts_with("tools__")));
    let claimed = agent.claimed(&code);
    assert!(claimed.contains("tools__progress") && claimed.contains("tesseron://tools/clock"), "{claimed}");
    agent.message(before, "notifications/tools/list_changed");
    agent.message(before, "notifications/resources/list_changed");
    assert!(agent.tools().contains(&"tools__whoami".to_owned()));
    let caller = value(&agent.call("tools__whoami", &json!({})));
    assert_eq!((&caller["agent"]["name"], &caller["capabilities"]["sampling"]), (&json!("agent"), &json!(true)), "{caller}");
    assert!(agent.pending().contains("No app waits"), "a claimed app is not listed");
    let same = agent.call("tesseron__invoke_action", &json!({ "app_id": "tools", "action": "whoami" }));
    assert_eq!(value(&same), caller);
    let wrong = agent.call("tools__progress", &json!({ "steps": "many" }));
    assert!(is_error(&wrong) && text(&wrong).contains("steps"), "{wrong}");
    assert_eq!(wrong["structuredContent"]["code"], -32004, "{wrong}");
}

fn an_app_on_a_web_socket_is_found_claimed_and_called(programs: &Programs) {
    found_claimed_and_called(programs, "--ws");
}

fn an_app_on_a_unix_socket_is_found_claimed_and_called(programs: &Programs) {
    found_claimed_and_called(programs, "--unix");
}

fn an_app_whose_code_comes_from_the_gateway_can_be_claimed(programs: &Programs) {
    for flags in [["--gateway-claims", "--any-user"], ["--gateway-claims", "--ws"], ["--gateway-claims", "--unix"]] {
        // Only Linux identifies the user of a connection. On other systems such an app needs `--any-user`.
        if flags == ["--gateway-claims", "--ws"] && !cfg!(target_os = "linux") {
            continue;
        }
        let home = Home::new();
        let app = App::start(programs, &home, flags);
        let mut agent = Agent::start(programs, &home, &[]);
        let code = app.code(0);
        agent.gateway.err.nth(&code, 0);
        let waiting = agent.pending();
        assert!(waiting.contains("gateway-minted") && !waiting.contains(&code), "{waiting}");
        let early = agent.call("tools__whoami", &json!({}));
        assert!(is_error(&early) && text(&early).contains("Waiting to be claimed"), "the app is not claimed: {early}");
        agent.claimed(&code);
        assert_eq!(value(&agent.call("tools__whoami", &json!({})))["agent"]["name"], "agent");
    }
}

fn an_app_that_any_user_may_claim_prints_a_warning(programs: &Programs) {
    const WARNING: &str = "warning: any user of this machine may claim this app";
    let home = Home::new();
    let app = App::start(programs, &home, ["--gateway-claims", "--any-user"]);
    app.0.err.nth(WARNING, 0);
    for flags in [&["--ws"][..], &["--any-user"], &["--unix", "--gateway-claims"]] {
        let mut app = App::start(programs, &home, flags);
        app.0.signal("-TERM");
        app.0.wait();
        let content = app.0.err.all();
        assert!(!content.contains(WARNING), "{flags:?}: {content}");
    }
}

/// A regression: after 64 silent connections or five wrong codes of another user, the app's own user could not claim the app.
fn another_user_of_this_machine_cannot_lock_the_owner_out(programs: &Programs) {
    const ATTACK: &str = r#"
        trap '' PIPE
        for i in {1..100}; do exec {silent}<>"/dev/tcp/127.0.0.1/$1"; done
        for i in {1..20}; do
            exec {wrong}<>"/dev/tcp/127.0.0.1/$1"
            printf '%s\r\n' 'GET / HTTP/1.1' 'Host: 127.0.0.1' 'Connection: Upgrade' 'Upgrade: websocket' 'Sec-WebSocket-Version: 13' \
                'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' 'Sec-WebSocket-Protocol: tesseron-gateway,tesseron-bind.WRONG' '' >&$wrong
            head -c 12 <&$wrong
            exec {wrong}>&-
        done 2>/dev/null
        echo done
        read -r
    "#;
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let url = home.manifest()["transport"]["url"].as_str().expect("a URL").to_owned();
    let port = url.trim_end_matches('/').rsplit(':').next().expect("a port").to_owned();
    let mut other = Command::new("bash");
    other.args(["-c", ATTACK, "attack", &port]).uid(12345).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = match other.spawn() {
        // Only the superuser can run a program as another user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return,
        other => other.expect("a shell"),
    };
    let answers = Lines::of(other.stdout.take().expect("a pipe"));
    assert_eq!(answers.nth("done", 0), "done", "no wrong code was answered, so none has slowed down the right one");
    Agent::start(programs, &home, &[]).claimed(&app.code(0));
    drop(other.stdin.take());
    other.wait().expect("a child");
}

fn only_the_right_code_claims_in_upper_or_lower_case(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let code = app.code(0);
    let mut agent = Agent::start(programs, &home, &[]);
    // The gateway does not dial for an unknown code, so none of these counts as a guess at the app.
    let long = "A".repeat(100_000);
    for wrong in ["ZZZZ-ZZ", "", "../../../etc/passwd", "AB\u{0}CD", "AB\r\nCD-EF", "\u{1F980}", "%s%n", &long] {
        let refused = agent.claim(wrong);
        assert!(is_error(&refused), "{refused}");
        assert!(text(&refused).len() < 1000, "the code is not quoted in full");
    }
    for malformed in [json!({}), json!({ "code": 7 }), json!({ "code": null }), json!({ "code": [&code] })] {
        assert!(is_error(&agent.call("tesseron__claim_session", &malformed)), "{malformed}");
    }
    let hint = text(&agent.claim("ZZZZ-ZZ"));
    assert!(hint.contains("Waiting to be claimed") && !hint.contains(&code), "the app that waits is named: {hint}");
    agent.claimed(&code.to_lowercase());
    // The same agent may claim the app again.
    agent.claimed(&code);
    assert!(!is_error(&agent.call("tools__chatty", &json!({}))));
}

/// Writes a manifest for the app of `home` into the home `there`, with the address of a relay to the app.
fn relayed(home: &Home, there: &Home) -> Relay {
    let mut manifest = home.manifest();
    let relay = Relay::to(manifest["transport"]["url"].as_str().expect("a URL"));
    manifest["transport"]["url"] = json!(format!("ws://{}/", relay.address));
    there.put(manifest["instanceId"].as_str().expect("an id"), &manifest.to_string());
    relay
}

fn a_session_whose_channel_was_cut_is_resumed_without_a_new_claim(programs: &Programs) {
    let (home, there) = (Home::new(), Home::new());
    let app = App::start(programs, &home, ["--ws", "--gateway-claims", "--any-user"]);
    let relay = relayed(&home, &there);
    let mut agent = Agent::start(programs, &there, &["--resume-ttl", "1e19"]);
    agent.claimed(&app.code(0));
    for number in 1..=2 {
        let running = agent.send_call("tools__countdown", &json!({ "from": 1000, "step_ms": 50 }));
        agent.until_updates(running, 2);
        let before = agent.mark();
        relay.cut();
        let lost = agent.result(running);
        assert!(is_error(&lost) && lost["structuredContent"]["code"] == -32010, "{lost}");
        assert!(lost["structuredContent"]["progress"].is_number(), "the error has the last progress: {lost}");
        agent.message(before, "notifications/tools/list_changed");
        agent.gateway.err.nth("tools is there", number - 1);
        agent.until_listed(before, "tools__whoami", true);
        assert_eq!(value(&agent.call("tools__whoami", &json!({})))["agent"]["name"], "agent");
    }
    assert_eq!(app.0.err.seen().matches("claim code").count(), 1, "{}", app.0.err.seen());
}

fn the_error_about_a_code_of_another_gateway_names_that_gateway(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--unix", "--gateway-claims"]);
    let mut one = Agent::start(programs, &home, &[]);
    let first = app.code(0);
    one.gateway.err.nth(&first, 0);
    // A breadcrumb is a file that announces an unclaimed code to other gateways (`tesseron/src/net/breadcrumb.rs`).
    let breadcrumbs = home.0.join(".tesseron/claims");
    let breadcrumb = breadcrumbs.join(format!("{first}.json"));
    until("there is a breadcrumb", || breadcrumb.exists().then_some(()));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&breadcrumbs), mode(&breadcrumb)), (0o700, 0o600));

    let mut other = Agent::start(programs, &home, &[]);
    let refused = other.claim(&first);
    let process = one.gateway.child.id();
    assert!(is_error(&refused) && text(&refused).contains(&format!("another gateway (process {process})")), "{refused}");
    assert!(!text(&refused).contains(&first), "{refused}");

    // The breadcrumb of a killed gateway remains.
    one.gateway.signal("-KILL");
    one.gateway.wait();
    let second = app.code(1);
    other.gateway.err.nth(&second, 0);
    let refused = other.claim(&first);
    assert!(is_error(&refused) && text(&refused).contains(&format!("a gateway that has ended (process {process})")), "{refused}");
    assert!(text(&refused).contains("Waiting to be claimed"), "the app that waits is named: {refused}");
    other.claimed(&second);
    // The breadcrumb of a claimed code is removed without delay, and that of a dead gateway after an hour.
    let remaining =
        || fs::read_dir(&breadcrumbs).expect("a folder").map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>();
    until("the other breadcrumb is removed", || (remaining() == [breadcrumb.clone()]).then_some(()));
    let long_ago = fs::read_to_string(&breadcrumb).expect("a breadcrumb").replace("\"mintedAt\":", "\"mintedAt\":1,\"was\":");
    fs::write(&breadcrumb, long_ago).expect("our folder");
    Agent::start(programs, &home, &[]).pending();
    until("the breadcrumb is removed", || remaining().is_empty().then_some(()));
}

fn after_its_gateway_has_left_an_app_has_a_new_code_and_the_old_one_is_invalid(programs: &Programs) {
    for binding in ["--ws", "--unix"] {
        let home = Home::new();
        let app = App::start(programs, &home, [binding]);
        let first = app.code(0);
        let mut agent = Agent::start(programs, &home, &[]);
        agent.claimed(&first);
        let mut other = Agent::start(programs, &home, &[]);
        assert!(is_error(&other.claim(&first)), "the app is claimed");
        assert_eq!(agent.leave().status, Some(0));
        let second = app.code(1);
        assert_ne!(first, second);
        assert!(is_error(&other.claim(&first)), "the code was used");
        other.claimed(&second);
        assert_eq!(value(&other.call("tools__whoami", &json!({})))["agent"]["name"], "agent");
    }
}

fn an_app_must_be_claimed_again_at_another_gateway(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws", "--gateway-claims", "--any-user"]);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&app.code(0));
    assert_eq!(agent.leave().status, Some(0));
    let mut next = Agent::start(programs, &home, &[]);
    // The app tries to resume its session, which this gateway refuses.
    next.claimed(&app.code(1));
    assert!(!is_error(&next.call("tools__chatty", &json!({}))));
}

// ---- Calls ----

fn a_cancelled_call_stops_at_the_app_and_keeps_its_partial_result(programs: &Programs) {
    let home = Home::new();
    let path = Scratch::new("audit");
    let flags = ["--partial-on-progress", "--audit", path.to_str().expect("a path in UTF-8")];
    let app = App::start(programs, &home, flags);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&app.code(0));

    let countdown = agent.send_call("tools__countdown", &json!({ "from": 500, "step_ms": 60 }));
    agent.until_updates(countdown, 3);
    agent.cancel(countdown);
    let cancelled = audit(&path, 1).remove(0);
    assert_eq!((&cancelled["tool"], &cancelled["outcome"]), (&json!("countdown"), &json!("cancelled")), "{cancelled}");
    assert!(cancelled["steps"].as_u64().is_some_and(|steps| (2..500).contains(&steps)), "{cancelled}");

    let items: Vec<_> = (0..90).map(|item| item.to_string()).collect();
    let bulk = agent.send_call("tools__bulk", &json!({ "items": items, "fail": ["1"], "step_ms": 60 }));
    agent.until_updates(bulk, 4);
    agent.cancel(bulk);
    let cancelled = audit(&path, 2).remove(1);
    let partial = &cancelled["partial"];
    let (processed, remaining) = (partial["processed"].as_u64(), partial["remaining"].as_u64());
    assert_eq!(processed.zip(remaining).map(|(done, left)| done + left + 1), Some(90), "{cancelled}");

    // On MCP no frame may follow a cancel, so the agent has the partial result of the last update.
    let (_, last) = agent.updates(bulk).pop().expect("updates");
    let meta = last["_meta"].to_string();
    assert!(meta.contains(r#""failed":1"#) && meta.contains(r#""processed":"#), "{last}");
    assert!(!is_error(&agent.call("tools__chatty", &json!({}))));
    let answered = agent.received.iter().any(|(_, message)| message["id"] == countdown || message["id"] == bulk);
    assert!(!answered, "a cancelled call is not answered");
}

fn an_agent_that_leaves_cancels_its_running_calls(programs: &Programs) {
    let home = Home::new();
    let path = Scratch::new("audit");
    let app = App::start(programs, &home, ["--audit", path.to_str().expect("a path in UTF-8")]);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&app.code(0));
    let calls: Vec<_> = (0..20).map(|_| agent.send_call("tools__countdown", &json!({ "from": 1000, "step_ms": 100 }))).collect();
    for id in calls {
        agent.until_updates(id, 1);
    }
    let start = Instant::now();
    // This kills the gateway.
    drop(agent);
    assert!(audit(&path, 20).iter().all(|line| line["outcome"] == "cancelled"));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    app.code(1);
}

fn an_app_that_is_killed_fails_its_calls_and_its_tools_are_removed(programs: &Programs) {
    let home = Home::new();
    let flags = ["--partial-on-progress"];
    let doomed = App::start(programs, &home, ["--app-id", "doomed"].iter().chain(&flags));
    let other = App::start(programs, &home, ["--unix", "--app-id", "other"]);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&doomed.code(0));
    agent.claimed(&other.code(0));
    let running = agent.send_call("doomed__countdown", &json!({ "from": 1000, "step_ms": 50 }));
    let unhurt = agent.send_call("other__progress", &json!({ "steps": 8, "step_ms": 60 }));
    agent.until_updates(running, 2);
    let before = agent.mark();
    doomed.0.signal("-KILL");
    let lost = agent.result(running);
    assert!(is_error(&lost) && lost["structuredContent"]["code"] == -32010, "{lost}");
    agent.until_listed(before, "doomed__countdown", false);
    assert_eq!(value(&agent.result(unhurt))["steps"], 8);
    assert_eq!(agent.updates(unhurt).len(), 8);
    let gone = agent.call("doomed__chatty", &json!({}));
    assert!(is_error(&gone) && text(&gone).contains("doomed"), "{gone}");
}

fn sampling_and_forms_of_an_app_reach_the_agent(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&app.code(0));

    let before = agent.mark();
    let id = agent.send_call("tools__summarise", &json!({ "text": "Once there were two foxes." }));
    let asked = agent.message(before, "sampling/createMessage");
    assert!(asked["params"]["messages"].to_string().contains("two foxes"), "{asked}");
    assert_eq!(asked["params"]["maxTokens"], 400, "{asked}");
    let content = json!({ "type": "text", "text": "Foxes, \u{e9}t\u{e9}." });
    agent.reply(&asked, &json!({ "model": "m", "role": "assistant", "content": content }));
    assert_eq!(blocks(&agent.result(id)), ["Foxes, \u{e9}t\u{e9}."]);

    for (answer, outcome) in [
        (json!({ "action": "accept", "content": {} }), json!({ "deleted": "a" })),
        (json!({ "action": "decline" }), json!({ "cancelled": true })),
        (json!({ "action": "cancel" }), json!({ "cancelled": true })),
    ] {
        let before = agent.mark();
        let id = agent.send_call("tools__delete", &json!({ "name": "a" }));
        let asked = agent.message(before, "elicitation/create");
        assert_eq!(asked["params"]["message"], "Delete a?");
        agent.reply(&asked, &answer);
        assert_eq!(value(&agent.result(id)), outcome);
    }

    for (answer, outcome) in [
        (json!({ "action": "accept", "content": { "newName": "b" } }), json!({ "renamed": { "from": "a", "to": "b" } })),
        (json!({ "action": "decline" }), json!({ "cancelled": true })),
    ] {
        let before = agent.mark();
        let id = agent.send_call("tools__rename", &json!({ "name": "a" }));
        let asked = agent.message(before, "elicitation/create");
        assert_eq!(asked["params"]["requestedSchema"]["properties"]["newName"]["type"], "string", "{asked}");
        agent.reply(&asked, &answer);
        assert_eq!(value(&agent.result(id)), outcome);
    }

    // The input request ends with its call, so it is cancelled at the agent.
    let before = agent.mark();
    let id = agent.send_call("tools__rename", &json!({ "name": "a" }));
    let asked = agent.message(before, "elicitation/create");
    agent.cancel(id);
    let withdrawn = agent.message(before, "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
}

fn the_resource_clock_is_listed_read_and_subscribed(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--unix"]);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&app.code(0));
    let uri = json!({ "uri": "tesseron://tools/clock" });
    let listed = agent.ask("resources/list", &json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], uri["uri"], "{listed}");
    let read = agent.ask("resources/read", &uri);
    let now: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().expect("text")).expect("JSON");
    assert!(now["unix_ms"].as_u64().is_some_and(|now| now > 1_700_000_000_000), "{read}");
    let by_tool = agent.call("tesseron__read_resource", &json!({ "app_id": "tools", "name": "clock" }));
    assert!(value(&by_tool)["unix_ms"].is_u64(), "{by_tool}");

    assert!(agent.ask("resources/subscribe", &uri)["result"].is_object());
    for _ in 0..2 {
        let before = agent.mark();
        let updated = agent.message(before, "notifications/resources/updated");
        assert_eq!(updated["params"], uri);
    }
    assert!(agent.ask("resources/unsubscribe", &uri)["result"].is_object());
    let before = agent.mark().0;
    assert!(!agent.ends_within(Duration::from_millis(1200)));
    agent.ask("ping", &json!({}));
    let notified = agent.received[before..].iter().any(|(_, message)| message["method"] == "notifications/resources/updated");
    assert!(!notified, "no update comes without a subscription");
    for wrong in ["tesseron://tools/no_such", "tesseron://nobody/clock", "file:///etc/passwd", ""] {
        assert!(agent.ask("resources/read", &json!({ "uri": wrong }))["error"].is_object(), "{wrong}");
        assert!(agent.ask("resources/subscribe", &json!({ "uri": wrong }))["error"].is_object(), "{wrong}");
    }
}

// ---- Manifests ----

fn a_manifest_is_removed_when_its_app_ends_by_any_signal(programs: &Programs) {
    for (signal, binding) in [("-INT", "--ws"), ("-TERM", "--unix")] {
        let home = Home::new();
        let mut app = App::start(programs, &home, [binding]);
        let code = app.code(0);
        let address = home.manifest()["transport"].clone();
        let mut agent = Agent::start(programs, &home, &[]);
        agent.claimed(&code);
        let before = agent.mark();
        app.0.signal(signal);
        assert_eq!(app.0.wait().code(), Some(0));
        assert_eq!(home.names(), BTreeSet::new());
        if let Some(socket) = address["path"].as_str() {
            assert!(!Path::new(socket).exists(), "{socket}");
        }
        agent.until_listed(before, "tools__chatty", false);
        assert_eq!(agent.leave().status, Some(0));
    }
}

fn only_the_manifest_of_a_dead_process_is_removed(programs: &Programs) {
    let home = Home::new();
    let mut dead = App::start(programs, &home, ["--ws"]);
    dead.code(0);
    let left = home.names();
    assert_eq!(left.len(), 1);
    dead.0.signal("-KILL");
    dead.0.wait();
    assert_eq!(home.names(), left, "the manifest of a killed app remains");

    let ours = |id: &str, url: &str, version: u32| {
        let transport = json!({ "kind": "ws", "url": url });
        json!({ "version": version, "instanceId": id, "appName": "x", "addedAt": 1, "transport": transport }).to_string()
    };
    let (here, elsewhere) = ("ws://127.0.0.1:9/", "ws://192.0.2.1:9/");
    home.put("garbage", "\u{0}{{{");
    home.put("nested", &"[".repeat(10_000));
    home.put("version", &ours("version", here, 1));
    home.put("foreign", &ours("foreign", elsewhere, 2));
    home.put("other-name", &ours("another", here, 2));
    home.put("large", &" ".repeat(100_000));
    let open = home.put("open", &ours("open", here, 2));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("a file of ours");
    symlink("/etc/hostname", home.instances().join("link.json")).expect("a link");
    fs::create_dir(home.instances().join("folder.json")).expect("a folder");
    let mut bad = vec!["garbage", "nested", "version", "foreign", "other-name", "large", "open", "link", "folder"];
    // Only the superuser can change the owner of a file.
    if chown(home.put("theirs", &ours("theirs", here, 2)), Some(1), None).is_ok() {
        bad.push("theirs");
    } else {
        fs::remove_file(home.instances().join("theirs.json")).expect("a file of ours");
    }

    let mut agent = Agent::start(programs, &home, &[]);
    for id in &bad {
        agent.gateway.err.nth(&format!("{id}.json is not used"), 0);
    }
    // Each of these is reported by a later scan of the folder.
    for id in ["more", "still-more"] {
        home.put(id, "no");
        agent.gateway.err.nth(&format!("{id}.json is not used"), 0);
    }
    let kept = bad.iter().chain(&["more", "still-more"]).map(|id| format!("{id}.json")).collect();
    assert_eq!(home.names(), kept, "only the manifest of the dead process is removed");
    assert!(agent.pending().contains("No app waits"));
    let err = agent.leave().err;
    for id in &bad {
        assert_eq!(err.matches(&format!("/{id}.json is not used")).count(), 1, "{err}");
    }
}

fn an_app_that_stalls_does_not_delay_another_claim(programs: &Programs) {
    let home = Home::new();
    // The system accepts connections for this listener, which never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_millis();
    let url = format!("ws://{}/", silent.local_addr().expect("an address"));
    let transport = json!({ "kind": "ws", "url": url });
    let minted = json!({
        "code": "SLOW-22",
        "sessionId": "s_slow",
        "resumeToken": "t".repeat(32),
        "mintedAt": now as u64,
        "expiresAt": now as u64 + 600_000,
        "boundAgent": null,
    });
    let mut stalled = json!({ "version": 2, "instanceId": "stalled", "appName": "Stalled", "addedAt": 1, "transport": transport });
    home.put("never-answers", &{
        let mut dialled = stalled.clone();
        dialled["instanceId"] = json!("never-answers");
        dialled.to_string()
    });
    stalled["helloHandledByHost"] = json!(true);
    stalled["hostMintedClaim"] = minted;
    home.put("stalled", &stalled.to_string());

    let app = App::start(programs, &home, ["--ws"]);
    let mut agent = Agent::start(programs, &home, &[]);
    assert!(agent.pending().contains("stalled"));
    let start = Instant::now();
    let slow = agent.send("tools/call", &json!({ "name": "tesseron__claim_session", "arguments": { "code": "SLOW-22" } }));
    let second = agent.send("tools/call", &json!({ "name": "tesseron__claim_session", "arguments": { "code": "slow-22" } }));
    assert!(is_error(&agent.result(second)), "the code is being claimed already");
    agent.claimed(&app.code(0));
    assert!(!is_error(&agent.call("tools__chatty", &json!({}))));
    assert!(
        !agent.received.iter().any(|(_, message)| message["id"] == slow && message.get("method").is_none()),
        "the claim is still running"
    );
    let refused = agent.result(slow);
    assert!(is_error(&refused) && text(&refused).contains("Stalled"), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!(agent.leave().status, Some(0), "the gateway exits although it may be dialling again");
}

// ---- The program ----

fn agents_come_one_after_the_other_over_tcp(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let mut command = programs.command("gateway");
    command.args(["--tcp", "127.0.0.1:0", "--home", home.path()]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut gateway = Program::start(command);
    let address = gateway.err.nth("listening on", 0).rsplit(' ').next().expect("an address").to_owned();
    for number in 0..2 {
        let mut stream = TcpStream::connect(&address).expect("a gateway");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        let mut ask = |id: u64, method: &str, params: Value| -> Value {
            writeln!(stream, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).expect("a reader");
            loop {
                let line = lines.next().expect("an answer").expect("an answer");
                let message: Value = serde_json::from_str(&line).expect("JSON");
                if message["id"] == id {
                    return message["result"].clone();
                }
            }
        };
        let info = json!({ "name": format!("agent {number}"), "version": "1" });
        ask(1, "initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info }));
        let code = app.code(number);
        let claimed = ask(2, "tools/call", json!({ "name": "tesseron__claim_session", "arguments": { "code": code } }));
        assert!(!is_error(&claimed), "{claimed}");
        let caller = value(&ask(3, "tools/call", json!({ "name": "tools__whoami", "arguments": {} })));
        assert_eq!(caller["agent"]["name"], info["name"]);
    }
    gateway.signal("-TERM");
    assert_eq!(gateway.wait().code(), Some(0));
}

fn an_agent_over_http_takes_the_place_of_the_one_before(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let mut command = programs.command("gateway");
    command.args(["--http", "127.0.0.1:0", "--home", home.path()]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut gateway = Program::start(command);
    let url = gateway.err.nth("listening on", 0).rsplit(' ').next().expect("a URL").to_owned();
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).expect("a URL");
    let post = |fields: &str, message: Value, words: &str| {
        ask_over_http(&mut TcpStream::connect(address).expect("a gateway"), fields, &message.to_string(), words)
    };
    let call = |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": "p" } });
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
    };
    let mut before = String::new();
    for number in 0..2 {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": format!("agent {number}"), "version": "1" },
        });
        let opened = post("", json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }), "serverInfo");
        let id = opened.lines().find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
        let session = format!("Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n", id.expect("a session"));
        post(&session, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }), "202");
        post(&session, call("tesseron__claim_session", json!({ "code": app.code(number) })), "tools__progress");
        let caller = post(&session, call("tools__whoami", json!({})), "\"id\":2");
        assert!(caller.contains(&format!("agent {number}")), "{caller}");
        let counted = post(&session, call("tools__progress", json!({ "steps": 3, "step_ms": 20 })), "\"id\":2");
        assert!(counted.contains("text/event-stream") && counted.contains("notifications/progress"), "{counted}");
        if number > 0 {
            post(&before, call("tools__chatty", json!({})), "404 Not Found");
        }
        before = session;
    }
    // A client without a handshake is refused, since the gateway serves only revisions with one.
    let fields = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n";
    let discover = json!({ "jsonrpc": "2.0", "id": 3, "method": "server/discover", "params": {} });
    let refused = post(fields, discover, "the header Mcp-Session-Id is missing");
    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("-32600"), "{refused}");
    gateway.signal("-TERM");
    assert_eq!(gateway.wait().code(), Some(0));
}

fn the_surface_is_set_by_the_flag_or_the_environment(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let meta = ["claim_session", "list_actions", "invoke_action", "read_resource", "list_pending_claims"];
    let start = |flags: &[&str], surface: Option<&str>| {
        let mut command = programs.command("gateway");
        command.args(["--home", home.path()]).args(flags);
        command.envs(surface.map(|surface| ("TESSERON_TOOL_SURFACE", surface)));
        Agent::of(command, &json!({}))
    };
    for (number, (flags, environment, own, actions)) in
        [(&["--surface", "dynamic"][..], Some("meta"), 1, true), (&[], Some("meta"), 5, false), (&[], Some("nonsense"), 5, true)]
            .into_iter()
            .enumerate()
    {
        let mut agent = start(flags, environment);
        agent.claimed(&app.code(number));
        let tools = agent.tools();
        let listed: Vec<_> = tools.iter().filter_map(|tool| tool.strip_prefix("tesseron__")).collect();
        assert_eq!(listed, meta[..own]);
        assert_eq!(tools.iter().any(|tool| tool.starts_with("tools__")), actions, "{tools:?}");
        assert!(!is_error(&agent.call("tools__chatty", &json!({}))), "a tool that is not listed can be called");
        let err = agent.leave().err;
        assert_eq!(err.contains("TESSERON_TOOL_SURFACE=nonsense"), environment == Some("nonsense"), "{err}");
    }
}

fn the_gateway_runs_although_its_stderr_is_not_read(programs: &Programs) {
    let home = Home::new();
    let mut command = programs.command("tools");
    command.args(["--tesseron", "--home", home.path()]).stdin(Stdio::null()).stdout(Stdio::null());
    let _app = Program::with_unread_stderr(command);
    for _ in 0..2 {
        let mut command = programs.command("gateway");
        command.args(["--home", home.path(), "--verbose"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut agent = Agent::on(Program::with_unread_stderr(command), &json!({}));
        let code = home.next_code();
        agent.claimed(&code);
        assert!(!is_error(&agent.call("tools__chatty", &json!({}))));
        assert_eq!(agent.leave().status, Some(0));
    }
}

fn the_gateway_ends_with_status_4_if_its_client_closes_its_output(programs: &Programs) {
    let home = Home::new();
    let mut command = programs.command("gateway");
    command.args(["--home", home.path()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut gateway = Program::start(command);
    drop(gateway.child.stdout.take());
    let mut input = gateway.child.stdin.take().expect("a pipe");
    // Regression: a program that another test starts holds a copy of our end of the pipe until its `exec`. An answer that the gateway
    // writes meanwhile does not fail, so one request is not enough.
    let start = Instant::now();
    while !gateway.err.ends_within(Duration::from_millis(20)) && start.elapsed() < PATIENCE {
        let _ = writeln!(input, r#"{{"jsonrpc":"2.0","id":1,"method":"ping"}}"#);
    }
    let status = gateway.wait().code();
    let err = gateway.err.all();
    assert_eq!((status, err.lines().count()), (Some(4), 1), "{err}");
}

fn an_idle_gateway_uses_no_processor_time(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    let mut agent = Agent::start(programs, &home, &[]);
    agent.claimed(&app.code(0));
    // The gateway's own reads of the manifests must not cause another scan.
    let Some(before) = processor_time(&agent.gateway) else { return };
    assert!(!agent.ends_within(POLL / 2));
    let spent = processor_time(&agent.gateway).expect("as before") - before;
    assert!(spent < 15, "{spent} of 100 ticks");
}

fn the_gateway_ends_at_the_end_of_input_and_on_a_signal(programs: &Programs) {
    let home = Home::new();
    let app = App::start(programs, &home, ["--ws"]);
    for (number, signal) in [None, Some("-INT"), Some("-TERM")].into_iter().enumerate() {
        let mut agent = Agent::start(programs, &home, &[]);
        agent.claimed(&app.code(number));
        let start = Instant::now();
        let Some(signal) = signal else {
            // Requests that the gateway has read are answered first.
            let id = agent.send_call("tools__progress", &json!({ "steps": 2, "step_ms": 100 }));
            let ended = agent.leave();
            assert_eq!(ended.status, Some(0), "{ended:?}");
            assert!(ended.out.contains(&format!(r#""id":{id}"#)) && ended.out.contains(r#"\"steps\": 2"#), "{ended:?}");
            assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
            continue;
        };
        // A handler that does not end delays neither this gateway nor the next one, which the app accepts at once.
        agent.send_call("tools__stuck", &json!({}));
        agent.ask("ping", &json!({}));
        agent.gateway.signal(signal);
        assert_eq!(agent.gateway.wait().code(), Some(0), "{signal}");
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
    let start = Instant::now();
    Agent::start(programs, &home, &[]).claimed(&app.code(3));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());

    // The same without any client.
    for signal in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        let mut command = undisturbed(program("gateway"));
        command.args(["--home", home.path(), "--tcp", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut gateway = Program::start(command);
        gateway.err.nth("listening on", 0);
        gateway.signal(signal);
        assert_eq!(gateway.wait().code(), Some(0), "{signal}");
    }
    let ended = programs.run("gateway", &["--home", home.path()]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), ""), "{ended:?}");
}

/// Runs bash as another user; `None` if that is not possible, since only the superuser can.
fn as_another_user(script: &str, arguments: &[&str]) -> Option<String> {
    let mut other = Command::new("bash");
    other.args(["-c", script, "other"]).args(arguments).uid(12345).current_dir("/").stdin(Stdio::null());
    match other.output() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        ran => Some(String::from_utf8_lossy(&ran.expect("a shell").stdout).into_owned()),
    }
}

/// Sends `$3` to the port `$1`, with a header `$2`, and prints the answer.
const POST: &str = r#"
    exec {s}<>"/dev/tcp/127.0.0.1/$1"
    printf '%s\r\n' 'POST /mcp HTTP/1.1' "Host: 127.0.0.1:$1" 'Content-Type: application/json' 'Connection: close' \
        'Accept: application/json, text/event-stream' ${2:+"$2"} "Content-Length: ${#3}" '' >&$s
    printf '%s' "$3" >&$s
    cat <&$s
"#;

/// Starts a gateway that listens. Returns it with its port.
fn listening_gateway(programs: &Programs, home: &Home, flags: &[&str]) -> (Program, String) {
    let mut command = programs.command("gateway");
    command.args(["--home", home.path()]).args(flags).stdin(Stdio::null()).stdout(Stdio::null());
    let gateway = Program::start(command);
    let address = gateway.err.nth("listening on", 0);
    let port = address.trim_end_matches("/mcp").rsplit(':').next().expect("a port").to_owned();
    (gateway, port)
}

fn initialize(name: &str) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": name, "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

/// In the field another user of the machine connected to a gateway over TCP and HTTP, claimed the app of its user, and ended the session of
/// the agent with an `initialize`.
fn another_user_of_this_machine_is_not_served(programs: &Programs) {
    let home = Home::new();
    let (mut gateway, port) = listening_gateway(programs, &home, &["--http", "127.0.0.1:0"]);
    let ours = |fields: &str, message: &str, words: &str| {
        let address = format!("127.0.0.1:{port}");
        ask_over_http(&mut TcpStream::connect(address).expect("a gateway"), fields, message, words)
    };
    let opened = ours("", &initialize("agent"), "serverInfo");
    let id = opened.lines().find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    let session = format!("Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-11-25\r\n", id.expect("a session"));
    for header in ["", "Authorization: Bearer wrong"] {
        let Some(answer) = as_another_user(POST, &[&port, header, &initialize("stranger")]) else { return };
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    gateway.err.nth("is not known to be this user was refused", 0);
    ours(&session, &json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string(), "tesseron__claim_session");
    gateway.signal("-TERM");
    gateway.wait();

    const ASK: &str = r#"exec {s}<>"/dev/tcp/127.0.0.1/$1"; printf '%s\n' "$2" >&$s; head -n 1 <&$s"#;
    let (mut gateway, port) = listening_gateway(programs, &home, &["--tcp", "127.0.0.1:0"]);
    assert_eq!(as_another_user(ASK, &[&port, &initialize("stranger")]).as_deref(), Some(""), "the connection is closed");
    gateway.err.nth("is not known to be this user was refused", 0);
    let ask = ["-c", ASK, "ours", &port, &initialize("agent")];
    let ours = Command::new("bash").args(ask).output().expect("a shell").stdout;
    assert!(String::from_utf8_lossy(&ours).contains("serverInfo"), "this user is served after that");
    gateway.signal("-TERM");
    gateway.wait();

    let (mut gateway, port) = listening_gateway(programs, &home, &["--tcp", "127.0.0.1:0", "--allow-any-user"]);
    gateway.err.nth("warning: any user of this machine may use this gateway", 0);
    let answer = as_another_user(ASK, &[&port, &initialize("guest")]).expect("it was possible before");
    assert!(answer.contains("serverInfo"), "{answer}");
    gateway.signal("-TERM");
    gateway.wait();
}

fn a_client_with_the_token_of_the_gateway_is_served(programs: &Programs) {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let path = home.0.join("token");
    // An older file, which others can read, is not reused.
    fs::write(&path, "old").expect("our folder");
    let flags = ["--http", "127.0.0.1:0", "--token-file", path.to_str().expect("UTF-8")];
    let (mut gateway, port) = listening_gateway(programs, &home, &flags);
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&path).expect("a file");
    assert_eq!(token.trim().len(), 32, "{token}");
    let header = format!("Authorization: Bearer {}", token.trim());
    if let Some(answer) = as_another_user(POST, &[&port, &header, &initialize("guest")]) {
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("serverInfo"), "{answer}");
        let refused = as_another_user(POST, &[&port, "Authorization: Bearer old", &initialize("guest")]);
        assert!(refused.is_some_and(|answer| answer.starts_with("HTTP/1.1 401 ")));
    }
    // Another gateway that cannot listen there replaced the file, and removed it.
    let again = ["--home", home.path(), "--http", &format!("127.0.0.1:{port}"), "--token-file", flags[3]];
    programs.run("gateway", &again).complained(4, "in use");
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some(&*token));
    gateway.signal("-TERM");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(!gateway.err.all().contains(token.trim()), "the token is a secret");
    assert!(!path.exists(), "the file is removed at the end");
    let missing = home.0.join("missing/token");
    let flags = ["--home", home.path(), "--http", "127.0.0.1:0", "--token-file", missing.to_str().expect("UTF-8")];
    programs.run("gateway", &flags).complained(4, "cannot write the token");
}

fn help_lists_the_flags_and_the_exit_statuses(programs: &Programs) {
    let ended = programs.run("gateway", &["--help"]);
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let flags = ["--tcp", "--http", "--token-file", "--allow-any-user", "--home", "--surface", "--resume-ttl", "--verbose"];
    for flag in flags.into_iter().chain(["Exit status", "TESSERON_TOOL_SURFACE"]) {
        assert!(ended.out.contains(flag), "{flag}: {ended:?}");
    }
    let ended = programs.run("tools", &["--help"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for flag in ["--tesseron", "--gateway-claims", "--any-user", "--home", "--app-id", "--ws"] {
        assert!(ended.out.contains(flag), "{flag}: {ended:?}");
    }
}

fn an_invalid_command_line_is_reported_in_one_line_with_status_2(programs: &Programs) {
    let gateway: &[(&[&str], &str)] = &[
        (&["--no-such-flag"], "--no-such-flag"),
        (&["word"], "word"),
        (&["--surface", "all"], "must be dynamic, meta or both"),
        (&["--surface", ""], "--surface"),
        (&["--resume-ttl", "-1"], "-1"),
        (&["--resume-ttl=-1"], "--resume-ttl"),
        (&["--resume-ttl", "soon"], "--resume-ttl"),
        (&["--resume-ttl", "NaN"], "--resume-ttl"),
        (&["--resume-ttl", "1e300"], "--resume-ttl"),
        (&["--tcp"], "--tcp"),
        (&["--home"], "--home"),
        (&["--tcp", "a:1", "--tcp", "b:2"], "--tcp"),
        (&["--tcp", "a:1", "--http", "b:2"], "--http"),
        (&["--token-file", "t"], "--http"),
        (&["--tcp", "a:1", "--token-file", "t"], "--tcp"),
        (&["--allow-any-user"], "--tcp"),
        (&["--http", "a:1", "--token-file", "t", "--allow-any-user"], "--allow-any-user"),
    ];
    for (flags, words) in gateway {
        programs.run("gateway", flags).complained(2, words);
    }
    let long = "a".repeat(10_000);
    let tools: &[(&[&str], &str)] = &[
        (&["--ws"], "--tesseron"),
        (&["--gateway-claims"], "--tesseron"),
        (&["--any-user"], "--tesseron"),
        (&["--tesseron", "--unix", "--any-user"], "--any-user"),
        (&["--home", "/tmp"], "--tesseron"),
        (&["--app-id", "a"], "--tesseron"),
        (&["--tesseron", "--ws", "--unix"], "--unix"),
        (&["--tesseron", "--tcp", "127.0.0.1:0"], "--tcp"),
        (&["--tesseron", "--unix", "/tmp/socket"], "the socket is in the home"),
        (&["--unix"], "--unix"),
        (&["--tesseron", "--app-id", "Tools"], "--app-id"),
        (&["--tesseron", "--app-id", ""], "--app-id"),
        (&["--tesseron", "--app-id", "tesseron"], "--app-id"),
        (&["--tesseron", "--app-id", "../x"], "--app-id"),
        (&["--tesseron", "--app-id", "a\nb"], "--app-id"),
        (&["--tesseron", "--app-id", &long], "--app-id"),
    ];
    for (flags, words) in tools {
        programs.run("tools", flags).complained(2, words);
    }
}

fn an_address_or_a_folder_that_cannot_be_used_is_reported_in_one_line(programs: &Programs) {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    programs.run("gateway", &["--home", home.path(), "--tcp", &address]).complained(4, &address);
    programs.run("gateway", &["--home", home.path(), "--tcp", "nonsense"]).complained(4, "nonsense");
    programs.run("gateway", &["--home", home.path(), "--http", &address]).complained(4, &address);

    let file = Scratch::new("file");
    fs::write(&file, "").expect("a file");
    let beneath = file.join("home");
    programs.run("tools", &["--tesseron", "--home", beneath.to_str().expect("UTF-8")]).complained(4, "file");
    // A path that is too long for a socket.
    let deep = home.0.join("d".repeat(120));
    programs.run("tools", &["--tesseron", "--unix", "--home", deep.to_str().expect("UTF-8")]).complained(4, "ddd");
    // A folder that other users may write to is reported and not read, and the client is still served.
    fs::set_permissions(home.instances(), fs::Permissions::from_mode(0o777)).expect("a folder of ours");
    programs.run("tools", &["--tesseron", "--home", home.path()]).complained(4, "open to others");
    let mut agent = Agent::start(programs, &home, &[]);
    agent.gateway.err.nth("open to others", 0);
    assert!(agent.pending().contains("No app waits"));
    // Once the folder is private, apps that come later are found.
    fs::set_permissions(home.instances(), fs::Permissions::from_mode(0o700)).expect("a folder of ours");
    let app = App::start(programs, &home, ["--gateway-claims", "--any-user"]);
    let start = Instant::now();
    agent.claimed(&app.code(0));
    assert!(start.elapsed() < 2 * POLL + PATIENCE / 3, "{:?}", start.elapsed());
}
