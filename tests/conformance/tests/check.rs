//! `conformance-check`: our own servers pass all scenarios, a server with a fault fails the scenario for that fault, and no server can
//! block the process that tests it or exhaust its memory.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use conformance::check::{Call, CannotRun, Plan, Report, Target, Verdict, all, run};
use serde_json::{Map, Value, json};

const CHECK: &str = env!("CARGO_BIN_EXE_conformance-check");
const SERVERS: [&str; 2] = [env!("CARGO_BIN_EXE_conformance-server"), env!("CARGO_BIN_EXE_smol-conformance-server")];

fn check(plan: Plan) -> Result<Report, CannotRun> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(plan, |_| {}))
}

fn command(words: &[&str]) -> Target {
    Target::Command(words.iter().map(Into::into).collect())
}

fn call(name: &str, arguments: Value) -> Option<Call> {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    Some(Call { name: name.to_owned(), arguments })
}

/// The outcomes that are not a pass, as text.
fn complaints(report: &Report) -> Vec<String> {
    let not_passed = report.outcomes.iter().filter(|outcome| outcome.verdict != Verdict::Passed);
    not_passed.map(ToString::to_string).collect()
}

// ---- Our servers

/// Runs all scenarios against a server of ours.
fn passes_all(target: Target) {
    let mut plan = Plan::new(target);
    plan.slow = call("work", json!({"steps": 30}));
    plan.quick = call("test_simple_text", json!({}));
    let report = check(plan).expect("a server");
    assert_eq!(complaints(&report), [""; 0]);
    assert_eq!(report.spoken.len(), 2, "both revisions");
    assert!(report.outcomes.len() > 60, "{} scenarios were run", report.outcomes.len());
}

/// A server of ours over HTTP.
struct Serving {
    process: Child,
    url: String,
}

impl Serving {
    fn start(program: &str) -> Self {
        let mut process = Command::new(program).stdout(Stdio::piped()).spawn().expect("the server");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut url).expect("an address");
        Self { process, url: url.trim().to_owned() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn our_servers_on_both_runtimes_pass_every_scenario_on_their_pipes() {
    thread::scope(|scope| {
        for program in SERVERS {
            scope.spawn(move || passes_all(command(&[program, "--stdio"])));
        }
    });
}

#[test]
fn our_servers_on_both_runtimes_pass_every_scenario_over_http() {
    thread::scope(|scope| {
        for program in SERVERS {
            scope.spawn(move || {
                let server = Serving::start(program);
                passes_all(Target::Url(server.url.clone()));
            });
        }
    });
}

// ---- Servers with a fault

fn faulty(fault: &str) -> Plan {
    let mut plan = Plan::new(command(&["python3", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faulty.py"), fault]));
    plan.slow = call("work", json!({}));
    plan.quick = call("echo", json!({"text": "x"}));
    plan
}

/// Runs one scenario against a server with a fault. Returns its verdict.
fn verdict(fault: &str, scenario: &str) -> Verdict {
    let mut plan = faulty(fault);
    plan.only = vec![scenario.to_owned()];
    plan.timeout = Duration::from_secs(3);
    let report = check(plan).expect("a server");
    assert_eq!(report.outcomes.len(), 1, "{fault}");
    report.outcomes[0].verdict.clone()
}

/// Runs a scenario for each fault, four at a time, and checks the verdict with `is_expected`.
fn verdicts(faults: &[(&str, &str)], is_expected: fn(&Verdict) -> bool) {
    thread::scope(|scope| {
        for part in faults.chunks(faults.len().div_ceil(4)) {
            scope.spawn(move || {
                for (fault, scenario) in part {
                    let verdict = verdict(fault, scenario);
                    assert!(is_expected(&verdict), "{fault}, {scenario}: {verdict:?}");
                }
            });
        }
    });
}

#[test]
fn a_server_without_a_fault_passes_every_scenario_of_its_revision() {
    let report = check(faulty("none")).expect("a server");
    // `batch-is-answered` is not run, since the server does not speak 2025-03-26.
    let not_passed = report.outcomes.iter().filter(|outcome| outcome.verdict != Verdict::Passed).map(|outcome| outcome.scenario.id);
    assert_eq!(not_passed.collect::<Vec<_>>(), ["batch-is-answered"], "{:#?}", complaints(&report));
    assert_eq!(report.server.as_deref(), Some("faulty 1"));
}

#[test]
fn a_server_that_breaks_a_must_fails_the_scenario_of_that_rule() {
    let faults = [
        ("ids-as-text", "ids-are-echoed"),
        ("answers-twice", "flood"),
        ("answers-the-last-again", "flood"),
        ("loses-some", "flood"),
        ("loses-some", "back-pressure"),
        ("takes-any-method", "unknown-method"),
        ("dies-of-garbage", "not-json"),
        ("dies-of-garbage", "not-utf8"),
        ("answers-responses", "response-to-nothing"),
        ("answers-notifications", "notifications-unanswered"),
        ("answers-notifications", "cancel-of-nothing"),
        ("prints-noise", "output-is-frames"),
        ("takes-any-version", "unknown-version"),
        ("token-as-text", "progress-token-echoed"),
        ("token-as-text", "progress-of-two-calls"),
        ("progress-goes-back", "progress-in-order"),
        ("reports-late", "progress-in-order"),
        ("reports-unasked", "progress-unasked"),
        ("one-at-a-time", "ping-while-busy"),
        ("one-at-a-time", "ping-while-very-busy"),
    ];
    verdicts(&faults, |verdict| matches!(verdict, Verdict::Failed(_)));
}

#[test]
fn a_server_that_breaks_a_should_gets_a_warning() {
    let faults = [
        ("runs-unknown-tools", "unknown-tool"),
        ("answers-cancelled", "cancelled-call-unanswered"),
        ("works-on", "cancel-reaches-handler"),
        ("one-at-a-time", "calls-overlap"),
        ("outlives-its-input", "exit-when-idle"),
        ("outlives-its-input", "exit-during-call"),
        ("ignores-sigterm", "exit-on-sigterm"),
    ];
    verdicts(&faults, |verdict| matches!(verdict, Verdict::Warned(_)));
}

// ---- Commands that are no servers

/// Runs some scenarios against a command that is no server. Returns the fault of each in one word.
fn words(script: &str, scenarios: &[&str]) -> Vec<&'static str> {
    let mut plan = Plan::new(command(&["sh", "-c", script]));
    plan.only = scenarios.iter().map(|id| (*id).to_owned()).collect();
    plan.timeout = Duration::from_millis(1500);
    words_of(&check(plan).expect("a process"))
}

fn words_of(report: &Report) -> Vec<&'static str> {
    let word = |verdict: &Verdict| match verdict {
        Verdict::Failed(fault) => fault.word(),
        _ => "no failure",
    };
    report.outcomes.iter().map(|outcome| word(&outcome.verdict)).collect()
}

#[test]
fn a_process_that_exits_has_died_in_each_scenario() {
    let mut plan = Plan::new(command(&["sh", "-c", "exit 3"]));
    plan.timeout = Duration::from_secs(5);
    let report = check(plan).expect("a process");
    assert!(report.outcomes.len() > 30);
    for outcome in &report.outcomes {
        assert!(matches!(&outcome.verdict, Verdict::Failed(fault) if fault.word() == "died"), "{outcome}");
    }
}

#[test]
fn a_process_that_writes_nothing_is_silent() {
    assert_eq!(words("exec sleep 100", &["ids-are-echoed", "exit-when-idle"]), ["silent", "silent"]);
}

#[test]
fn a_process_that_writes_without_end_floods() {
    let frames = r#"exec yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"more and more"}}'"#;
    assert_eq!(words(frames, &["ids-are-echoed", "flood"]), ["flooded", "flooded"]);
    assert_eq!(words("exec tr '\\0' x 3<&0 </dev/zero", &["ids-are-echoed", "flood"]), ["flooded", "flooded"]);
}

#[test]
fn a_line_of_100_mebibytes_floods() {
    let script = "head -c 104857600 /dev/zero | tr '\\0' x; echo; exec sleep 100";
    assert_eq!(words(script, &["ids-are-echoed"]), ["flooded"]);
}

#[test]
fn a_process_that_does_not_read_is_deaf() {
    let result = r#"{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}"#;
    let script = format!("read line; echo '{result}'; exec sleep 100");
    assert_eq!(words(&script, &["large-argument", "flood"]), ["deaf", "deaf"]);
}

#[test]
fn a_server_that_dies_hangs_or_floods_during_a_scenario_fails_only_that_scenario() {
    // Before the scenarios, `run` sends at most three lines to a process. Each scenario has a new process: `unknown-version` sends it fewer
    // than four lines, the two other scenarios send more.
    for (fault, word) in
        [("dies-of-the-fourth-line", "died"), ("hangs-at-the-fourth-line", "silent"), ("floods-at-the-fourth-line", "flooded")]
    {
        let mut plan = faulty(fault);
        plan.only = ["ids-are-echoed", "unknown-version", "second-initialize"].map(str::to_owned).to_vec();
        plan.timeout = Duration::from_secs(3);
        let report = check(plan).expect("a server");
        let ended = report.outcomes.iter().map(|outcome| outcome.scenario.id).zip(words_of(&report)).collect::<Vec<_>>();
        assert_eq!(ended, [("ids-are-echoed", word), ("second-initialize", word), ("unknown-version", "no failure")], "{fault}");
    }
}

#[test]
fn processes_that_a_server_has_started_end_with_it() {
    let mark = format!("/tmp/conformance-check-{}", std::process::id());
    let script = format!("(while sleep 0.05; do date +%s%N >{mark}; done) & exec sleep 100");
    assert_eq!(words(&script, &["ids-are-echoed"]), ["silent"]);
    let last = std::fs::read(&mark).expect("a loop that ran");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(std::fs::read(&mark).expect("the same file"), last, "the loop has ended");
    std::fs::remove_file(&mark).expect("the file");
}

#[test]
fn memory_stays_bounded_while_a_server_floods() {
    // 256 MiB of address space suffice for the program, its libraries, and the part of the output that it keeps.
    for script in [
        "exec tr '\\0' x 3<&0 </dev/zero",
        "exec yes '{\"jsonrpc\":\"2.0\",\"method\":\"x\"}'",
        "head -c 104857600 /dev/zero | tr '\\0' x; exec sleep 100",
    ] {
        let limited = r#"ulimit -v 262144; exec "$0" "$@""#;
        let flood = ["--timeout", "5", "--only", "ids-are-echoed", "--", "sh", "-c", script];
        let output = Command::new("sh").args(["-c", limited, CHECK]).args(flood).output().expect("the program");
        assert_eq!(output.status.code(), Some(1), "{script}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("flooded: "), "{script}: {output:?}");
    }
}

// ---- Listeners that are no HTTP servers

/// Listens, and gives each connection to `serve`. Returns the URL.
fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(socket));
        }
    });
    url
}

fn over_http(url: String) -> Vec<&'static str> {
    let mut plan = Plan::new(Target::Url(url));
    plan.only = vec!["ids-are-echoed".to_owned(), "http-notification".to_owned()];
    plan.timeout = Duration::from_secs(2);
    words_of(&check(plan).expect("a listener"))
}

#[test]
fn a_listener_that_sends_nothing_is_silent() {
    let url = listen(|mut socket| drop(socket.read_to_end(&mut Vec::new())));
    assert_eq!(over_http(url), ["silent", "silent"]);
}

#[test]
fn a_listener_that_closes_each_connection_has_died() {
    assert_eq!(over_http(listen(drop)), ["died", "died"]);
}

#[test]
fn a_response_without_end_floods() {
    for begin in ["content-type: text/event-stream\r\n\r\n", "content-type: text/event-stream\r\n\r\ndata: ", "\r\n"] {
        let url = listen(move |mut socket| {
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(format!("HTTP/1.1 200 OK\r\n{begin}").as_bytes());
            let line = if begin.ends_with("data: ") { "x".repeat(1000) } else { format!("data: {}\n\n", "x".repeat(1000)) };
            while socket.write_all(line.as_bytes()).is_ok() {}
        });
        assert_eq!(over_http(url), ["flooded", "flooded"], "{begin:?}");
    }
}

#[test]
fn a_run_without_a_server_or_with_an_unknown_scenario_cannot_begin() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    drop(listener);
    assert!(check(Plan::new(Target::Url(url))).is_err());
    assert!(check(Plan::new(Target::Url("https://example.com/mcp".to_owned()))).is_err());
    assert!(check(Plan::new(command(&["/no/such/program"]))).is_err());
    let mut plan = Plan::new(command(&["true"]));
    plan.only = vec!["no-such-scenario".to_owned()];
    assert!(check(plan).is_err());
}

// ---- The program

fn program(arguments: &[&str]) -> Output {
    Command::new(CHECK).args(arguments).output().expect("the program")
}

#[test]
fn the_exit_status_shows_how_the_run_ended() {
    let server = SERVERS[0];
    let one = ["--only", "unknown-method"];
    assert_eq!(program(&[&one[..], &["--", server, "--stdio"]].concat()).status.code(), Some(0));
    assert_eq!(program(&[&one[..], &["--", "false"]].concat()).status.code(), Some(1));
    let cannot: [&[&str]; 6] = [
        &[],
        &["--nonsense", "--", server],
        &["--slow-tool", "no-such-tool", "--", server, "--stdio"],
        &["--quick-arguments", "{}", "--", server],
        &["--timeout", "0", "--", server],
        &["--", "/no/such/program"],
    ];
    for line in cannot {
        let output = program(line);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{line:?}");
    }
    let help = program(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit status:"));
}

#[test]
fn the_json_has_the_frames_of_a_scenario() {
    let output = program(&["--json", "--only", "unknown-method", "--", SERVERS[0], "--stdio"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!((&report["passed"], &report["failed"]), (&json!(2), &json!(0)));
    let scenario = report["scenarios"][0].as_object().expect("a scenario");
    let frames = scenario["frames"].as_array().expect("frames");
    let sent = frames
        .iter()
        .find(|frame| frame["direction"] == ">" && frame["text"].as_str().is_some_and(|text| text.contains("no/such")));
    let frame: Map<String, Value> =
        serde_json::from_str(sent.and_then(|frame| frame["text"].as_str()).expect("the request")).expect("JSON");
    assert_eq!(frame["method"], "no/such/method");
}

#[test]
fn the_frames_of_a_scenario_that_failed_are_printed() {
    let begin = Instant::now();
    let faulty = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faulty.py");
    let output = program(&["--only", "unknown-method", "--", "python3", faulty, "takes-any-method"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("failed   2025-11-25 unknown-method"), "{text}");
    assert!(text.lines().any(|line| line.contains(" > {") && line.contains("no/such/method")), "{text}");
    assert!(text.lines().any(|line| line.contains(" < {") && line.contains(r#""result""#)), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn the_document_lists_each_scenario() {
    let document = include_str!("../../../docs/conformance.md");
    let output = program(&["--list"]);
    let list = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(list.lines().count(), all().len() + 2);
    for line in list.lines() {
        assert!(document.contains(line), "docs/conformance.md has not the line: {line}");
    }
}
