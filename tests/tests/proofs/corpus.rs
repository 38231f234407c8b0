//! The stored cases of the fuzz targets, replayed on stable. What a fuzzer finds is stored there as `found-*`.

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

/// Replays all, and gives the names of those that fail. Their panics are printed as they happen.
fn failures(target: &str) -> Vec<String> {
    let (_, body) = TARGETS.into_iter().find(|(name, _)| *name == target).expect("a target");
    let fails = |data: &[u8]| catch_unwind(AssertUnwindSafe(|| body(data))).is_err();
    let all = cases(target);
    assert!(all.len() > 5, "the corpus of {target} is there");
    all.into_iter().filter(|(_, data)| fails(data)).map(|(name, _)| name).collect()
}

#[test]
fn the_stored_cases_of_envelope_hold() {
    assert_eq!(failures("envelope"), [""; 0]);
}

#[test]
fn the_stored_cases_of_headers_hold() {
    assert_eq!(failures("headers"), [""; 0]);
}

#[test]
fn the_stored_cases_of_lines_hold() {
    assert_eq!(failures("lines"), [""; 0]);
}

#[test]
fn the_stored_cases_of_session_hold() {
    assert_eq!(failures("session"), [""; 0]);
}

#[test]
fn the_stored_cases_of_sse_hold() {
    assert_eq!(failures("sse"), [""; 0]);
}

#[test]
fn the_stored_cases_of_pair_hold() {
    assert_eq!(failures("pair"), [""; 0]);
}

#[test]
fn the_stored_cases_of_endpoint_hold() {
    assert_eq!(failures("endpoint"), [""; 0]);
}

#[test]
fn the_stored_cases_of_bridge_hold() {
    assert_eq!(failures("bridge"), [""; 0]);
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = |directory: &str, end: &str| {
        let entries = fs::read_dir(root.join(directory)).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries
            .filter_map(|name| name.to_string_lossy().strip_suffix(end).map(str::to_owned))
            .filter(|name| name != "NOTICE")
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
