//! The stored cases of the fuzz targets, in `tests/corpus`, replayed with a stable compiler. Cases that a fuzzer has found are named
//! `found-*`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use tests::fuzz::TARGETS;

fn cases(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut all: Vec<_> = fs::read_dir(&directory)
        .expect("a corpus for each target")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("a case")))
        .collect();
    all.sort();
    all
}

/// Replays all cases of a target. Returns the names of those that fail; their panics are printed as they happen.
fn failures(target: &str) -> Vec<String> {
    let (_, body) = TARGETS.into_iter().find(|(name, _)| *name == target).expect("a target");
    let fails = |data: &[u8]| catch_unwind(AssertUnwindSafe(|| body(data))).is_err();
    let all = cases(target);
    assert!(all.len() > 5, "the corpus of {target} is there");
    all.into_iter().filter(|(_, data)| fails(data)).map(|(name, _)| name).collect()
}

#[test]
fn the_stored_cases_of_envelope_pass() {
    assert_eq!(failures("envelope"), [""; 0]);
}

#[test]
fn the_stored_cases_of_headers_pass() {
    assert_eq!(failures("headers"), [""; 0]);
}

#[test]
fn the_stored_cases_of_http_client_pass() {
    assert_eq!(failures("http_client"), [""; 0]);
}

#[test]
fn the_stored_cases_of_http_server_pass() {
    assert_eq!(failures("http_server"), [""; 0]);
}

#[test]
fn the_stored_cases_of_lines_pass() {
    assert_eq!(failures("lines"), [""; 0]);
}

#[test]
fn the_stored_cases_of_login_pass() {
    assert_eq!(failures("login"), [""; 0]);
}

#[test]
fn the_stored_cases_of_session_pass() {
    assert_eq!(failures("session"), [""; 0]);
}

#[test]
fn the_stored_cases_of_sse_pass() {
    assert_eq!(failures("sse"), [""; 0]);
}

#[test]
fn the_stored_cases_of_pair_pass() {
    assert_eq!(failures("pair"), [""; 0]);
}

#[test]
fn the_stored_cases_of_endpoint_pass() {
    assert_eq!(failures("endpoint"), [""; 0]);
}

#[test]
fn the_stored_cases_of_bridge_pass() {
    assert_eq!(failures("bridge"), [""; 0]);
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = |directory: &str, end: &str| {
        let entries = fs::read_dir(root.join(directory)).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries
            .filter_map(|name| name.to_string_lossy().strip_suffix(end).map(str::to_owned))
            .filter(|name| name != "NOTICE" && name != "FOUND.md")
            .collect();
        names.sort();
        names
    };
    let targets = TARGETS.map(|(name, _)| name);
    assert_eq!(listed("corpus", ""), targets);
    // The template for targets of other projects has no stored cases.
    let found: Vec<_> = listed("../fuzz/fuzz_targets", ".rs").into_iter().filter(|name| name != "template").collect();
    assert_eq!(found, targets);
}

#[test]
fn every_case_that_a_fuzzer_found_is_explained() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let page = fs::read_to_string(corpus.join("FOUND.md")).expect("tests/corpus/FOUND.md");
    let explained: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(name, _)| name).collect();
    let found = TARGETS.iter().flat_map(|(target, _)| {
        let names = fs::read_dir(corpus.join(target)).expect("a corpus").map(|entry| entry.expect("an entry").file_name());
        names.map(move |name| format!("{target}/{}", name.to_string_lossy()))
    });
    let mut found: Vec<_> = found.filter(|name| name.contains("/found-")).collect();
    found.sort();
    assert_eq!(explained, found, "tests/corpus/FOUND.md has a row for each case, in order");
}

/// A fuzzer found the stored case, in which a frame without a result has the id of a retry, and the round that answers the retry follows. The
/// other rows are further frames that the judge reads differently than the session: one repeats a member, one is nested too deep, and two
/// have a number that only the session reads.
#[test]
fn the_judge_knows_the_round_of_a_call_after_a_frame_that_may_be_no_response() {
    let case = include_str!("../../corpus/session/found-round-after-a-frame-that-is-no-response");
    let (first, round) = (r#"{"rpc":"","id":6,"resuL":{}}"#, r#""result":{"resultType""#);
    assert!(case.contains(first) && case.contains(round));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":6,"result":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    for frame in [
        r#"{"jsonrpc":"2.0","id":6,"id":6,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":6,"result":{"resultType":"input_required","requestState":"s"},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":6,"n":1e999}"#,
        &deep,
    ] {
        tests::fuzz::session(case.replace(first, frame).as_bytes());
    }
    tests::fuzz::session(case.replace(round, r#""result":{"n":1e999,"resultType""#).as_bytes());
}

/// Generates cases of the target `session` in which clients choose the era. Few of the stored cases have such a client.
#[test]
fn a_client_that_chooses_the_era_keeps_its_guarantees_with_frames_in_any_order() {
    const FRAMES: [&str; 9] = [
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":3,"progress":1}}"#,
    ];
    // The documentation of `tests::fuzz::session` explains the bytes. Bit 3 of the second byte lets the client choose the era.
    let mut rng = testkit::Rng::new(28);
    for _ in 0..1_500 {
        let kind = (rng.number() as u8) & 0x72;
        let mut data = vec![kind, 8 | (rng.number() as u8 & 7)];
        for _ in 0..rng.below(16) {
            if rng.chance(128) {
                data.extend([1, rng.number() as u8 & 31, rng.number() as u8 | 0x80]);
            } else {
                data.extend(FRAMES[rng.below(FRAMES.len())].as_bytes());
            }
            data.push(b'\n');
        }
        tests::fuzz::session(&data);
    }
}
