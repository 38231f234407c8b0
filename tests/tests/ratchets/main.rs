//! Properties of the sources that must not get worse: no crate below the adapters reads a clock, can panic, or has unsafe code; pure code
//! uses no files, sockets, processes or threads; the core has only the listed dependencies; and no machine has state that another file can
//! assign.
//!
//! Lints refuse indexing, arithmetic, `unwrap`, `expect` and `panic!`, which `scripts/lints` checks. The tests here check that no crate
//! switches these lints off, and the rules for which there is no lint.

mod cancel_safety;
#[cfg(unix)]
mod futures;
mod links;
mod packages;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use source::{attributes, code, sources, words};

/// The crates that must have these properties. The adapters and the programs are not listed, since they use clocks, sockets and processes,
/// nor is `testkit`, since its checks panic.
const CRATES: [&str; 7] = ["adapter-io", "auth", "endpoint", "engine", "http-service", "protocol-core", "tesseron"];

/// The beginnings of the paths of pure code, which makes no calls of the operating system, each with the parts that are not pure.
const PURE: [(&str, &[&str]); 3] = [
    ("auth/", &["auth/file_store.rs", "auth/store.rs"]),
    ("protocol-core/", &[]),
    ("tesseron/", &["tesseron/legs.rs", "tesseron/net/"]),
];

/// Lints that the `lib.rs` of each crate denies outside of its tests.
const DENIED: [&str; 6] = [
    "clippy::arithmetic_side_effects",
    "clippy::expect_used",
    "clippy::indexing_slicing",
    "clippy::panic",
    "clippy::unreachable",
    "clippy::unwrap_used",
];

/// Groups of lints that contain a lint of [`DENIED`], or all lints.
const GROUPS: [&str; 3] = ["clippy::restriction", "clippy::all", "warnings"];

/// Macros that panic and for which there is no lint. `debug_assert!` is not among them, since reviewed uses of it are allowed.
const PANICKING_MACROS: [&str; 6] = ["assert!", "assert_eq!", "assert_ne!", "todo!", "unimplemented!", "debug_assert_eq!"];

/// Calls that panic on an invalid argument, and `debug_assert!`. Only the uses in [`REVIEWED`] are allowed.
const PANICKING_CALLS: [&str; 12] = [
    ".split_at(",
    ".split_to(",
    ".split_off(",
    ".slice_ref(",
    ".swap_remove(",
    ".drain(",
    ".advance(",
    ".step_by(",
    ".chunks(",
    ".windows(",
    "from_secs_f64(",
    "debug_assert!",
];

/// The reviewed uses of these calls: the file, the call, the number of uses, and the reason why they cannot panic.
const REVIEWED: [(&str, &str, usize, &str); 16] = [
    ("adapter-io/line_io.rs", ".advance(", 1, "an encoder drops no more than it has"),
    ("adapter-io/stdin.rs", ".advance(", 1, "bounded in place"),
    ("auth/login.rs", "debug_assert!", 1, "the table of `phase.rs`; the steps are explored"),
    ("endpoint/state/served_call_slot.rs", ".swap_remove(", 2, "the index was found in the same list"),
    ("engine/wake.rs", ".swap_remove(", 1, "the index was found in the same list"),
    ("protocol-core/byte_queue.rs", ".advance(", 1, "never more than the length of the queue"),
    ("protocol-core/byte_queue.rs", ".drain(", 1, "never more than the length of the queue"),
    ("protocol-core/json/mod.rs", ".advance(", 1, "never beyond the end"),
    ("protocol-core/json/mod.rs", ".slice_ref(", 3, "the part is a slice of the same text"),
    ("protocol-core/json/mod.rs", "debug_assert!", 1, "the part is a slice of the same text"),
    (
        "protocol-core/lines.rs",
        ".advance(",
        6,
        "past a line feed or a mark that was found, by bounded steps, or within a queue of ours",
    ),
    ("protocol-core/lines.rs", ".split_to(", 2, "a line feed was found there"),
    ("protocol-core/lines.rs", "debug_assert!", 2, "a duty of the caller; a frame of a session has no line feed (G13)"),
    ("protocol-core/table.rs", "debug_assert!", 1, "a duty of the caller; a number is used once"),
    ("protocol-core/wire/recover.rs", ".windows(", 1, "the words are constants, and not empty"),
    ("protocol-core/wire/write.rs", ".advance(", 1, "within a queue of ours, whose length is known"),
];

/// Names that read a clock or wait for time. An import with `std::{` could hide one of them.
const CLOCKS: [&str; 6] = ["Instant::now", "SystemTime", "std::time", "std::{", "thread::sleep", "park_timeout"];

/// Modules that pure code must not use with any feature: files, sockets, processes, threads, the environment.
const SYSTEM: [&str; 8] =
    ["std::env", "std::fs", "std::net", "std::os", "std::process", "std::thread", "thread_local!", "extern crate std"];

/// The beginnings of the paths of the machines. No type in these files, except those in [`PLAIN_DATA`], may have a field that is visible in
/// another file.
const MACHINES: [&str; 8] = [
    "engine/",
    "http-service/",
    "protocol-core/http/",
    "protocol-core/session/",
    "tesseron/bridge/",
    "tesseron/claims/",
    "tesseron/legs.rs",
    "tesseron/net/",
];

/// Types in these files that are no machines, and the reason why their fields may be visible.
const PLAIN_DATA: [(&str, &[&str], &str); 32] = [
    ("http-service/budget.rs", &["Refused"], "the reason of a refusal is read by name"),
    ("http-service/listen.rs", &["ConnectionLimits"], "the owner fills in limits"),
    ("http-service/request.rs", &["BodyLimits"], "limits are read by name"),
    ("http-service/server/exchange.rs", &["Charges"], "its parts go separate ways when the exchange begins"),
    ("http-service/server/shared.rs", &["Shared"], "it is shared as it was made, and its state is under its lock"),
    ("http-service/stats.rs", &["HttpStats"], "counts are read by name"),
    ("protocol-core/http/accept.rs", &["Accepted"], "the result of reading a header is read by name"),
    ("protocol-core/http/client/mod.rs", &["HttpClientConfig"], "the owner fills in a configuration"),
    ("protocol-core/http/client/reason.rs", &["HttpExcerpt", "HttpReason"], "the reason of a loss is read by name"),
    ("protocol-core/http/client/tools.rs", &["Page"], "the result of reading a list is read by name"),
    (
        "protocol-core/http/client/types.rs",
        &["HttpClientRequest", "HttpRequestId"],
        "the owner takes apart a request that it is to make; ids are numbers that the client makes",
    ),
    ("protocol-core/http/head.rs", &["RequestHead", "ResponseHead"], "the owner fills in one head and takes the other apart"),
    ("protocol-core/http/header.rs", &["WrongArgument"], "an error names the header that it is about"),
    (
        "protocol-core/http/limits.rs",
        &["HttpClientLimits", "HttpClientTimeouts", "HttpLimits", "HttpTimeouts"],
        "the owner fills in limits",
    ),
    ("protocol-core/http/message.rs", &["Batch", "Request"], "the result of reading a body is read by name"),
    ("protocol-core/http/server/refusal.rs", &["HttpRefusal", "Refusal"], "a response that is on its way has no state"),
    (
        "protocol-core/http/server/types.rs",
        &["HttpExchangeId", "HttpRequest", "HttpServerConfig", "SessionKey"],
        "the owner fills in a configuration, and a request that it has received; ids are numbers that the server makes",
    ),
    ("protocol-core/http/sse.rs", &["DecoderLimits", "Event", "EventId"], "the owner fills in limits, and takes an event apart"),
    ("protocol-core/session/ids.rs", &["$name"], "ids are numbers that the whole core makes"),
    ("protocol-core/session/route.rs", &["Received", "Route", "Transmit"], "the transport takes apart what it is given"),
    ("protocol-core/session/stats.rs", &["Stats"], "counters are read by name"),
    (
        "protocol-core/session/types.rs",
        &["Full", "Invoke", "InvokeError", "ServeOptions"],
        "the owner fills in parameters, and takes results apart",
    ),
    ("tesseron/bridge/mod.rs", &["BridgeConfig"], "the owner fills in a configuration"),
    (
        "tesseron/bridge/types.rs",
        &["Advertised", "Claiming"],
        "the owner fills in what it announces; a claim that waits is a row of the bridge's private table",
    ),
    ("tesseron/claims/backlog.rs", &["Arrival"], "the owner takes an answer apart"),
    ("tesseron/claims/gate.rs", &["HostStep"], "the owner takes an answer apart"),
    (
        "tesseron/claims/host.rs",
        &["Agent", "Claim"],
        "the owner fills in a name, and writes a copy of the claim; the host keeps its own",
    ),
    ("tesseron/claims/policy.rs", &["HostPolicy"], "the owner fills in a policy"),
    (
        "tesseron/claims/registry.rs",
        &["Admission", "BoundDial", "Claimed", "RegistryPolicy", "Pending", "Resolved", "Routed"],
        "the owner fills in a policy and a dial, and takes answers apart",
    ),
    ("tesseron/net/gateway.rs", &["Scan"], "the owner reads what was found"),
    ("tesseron/net/instance.rs", &["Instance", "ManifestRefused"], "the owner reads what a file says"),
    ("tesseron/net/listen.rs", &["TesseronOptions"], "the owner fills in options"),
];

/// Words that follow `pub` or `pub(..)` if the item is not a field.
const ITEMS: [&str; 13] =
    ["async", "const", "enum", "extern", "fn", "macro", "mod", "static", "struct", "trait", "type", "unsafe", "use"];

fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

/// Every source file of [`CRATES`] with its text, as `crate/file`.
fn all_sources() -> Vec<(String, String)> {
    let of_crate = |name| sources(&source_of(name)).into_iter().map(move |(file, text)| (format!("{name}/{file}"), text));
    CRATES.into_iter().flat_map(of_crate).collect()
}

fn is_pure(file: &str) -> bool {
    PURE.iter().any(|(begin, impure)| file.starts_with(begin) && !impure.iter().any(|part| file.starts_with(part)))
}

/// Every occurrence in the code of `text` of a word in `wanted`, unless it is harmless, with the name of the file.
fn found<'a>(file: &str, text: &str, wanted: &[&'a str]) -> Vec<(String, &'a str)> {
    let code = code(text);
    let all = wanted.iter().flat_map(|word| words(&code, word).map(move |at| (at, *word)));
    all.filter(|(at, word)| !is_harmless(&code[..*at], word, &code[at + word.len()..]))
        .map(|(_, word)| (file.to_owned(), word))
        .collect()
}

/// Returns `true` for a method of `self`, a `drain` of everything, or a size that is a constant other than zero.
fn is_harmless(before: &str, word: &str, after: &str) -> bool {
    let is_size = [".step_by(", ".chunks(", ".windows("].contains(&word);
    let is_drain = word == ".drain(";
    (word.starts_with('.') && before.ends_with("self"))
        || (is_drain && (after.starts_with("..)") || after.starts_with(')')))
        || (is_size && after.starts_with(|digit| ('1'..='9').contains(&digit)))
}

fn found_in_crates<'a>(wanted: &[&'a str]) -> Vec<(String, &'a str)> {
    all_sources().iter().flat_map(|(file, text)| found(file, text, wanted)).collect()
}

/// The attributes that may allow a denied lint, as [`code`] returns them, without the text of the reason. This panic reports misuse as soon
/// as the program starts.
const SOFTENED: [(&str, &str); 1] = [("endpoint/service/mod.rs", "#[allow(clippy::panic, reason =  )]")];

/// The attributes of a source that allow one of the denied lints, or make it a warning.
fn softened(text: &str) -> Vec<String> {
    let softens = |attribute: &String| {
        let levels = ["allow(", "expect(", "warn("];
        levels.iter().any(|level| attribute.contains(level))
            && DENIED.iter().chain(&GROUPS).any(|lint| words(attribute, lint).next().is_some())
    };
    attributes(&code(text)).into_iter().filter(softens).collect()
}

/// The lints of [`DENIED`] that the text of a `lib.rs` does not deny, and `forbid(unsafe_code)` if that is missing.
fn header_lacks(header: &str) -> Vec<&'static str> {
    let attributes = attributes(&code(header));
    let squeezed: Vec<String> = attributes.iter().map(|text| text.split_whitespace().collect()).collect();
    let denies = |lint: &&str| {
        squeezed.iter().any(|text| {
            let begins = text.strip_prefix("#![deny(").or_else(|| text.strip_prefix("#![cfg_attr(not(test),deny("));
            begins.is_some_and(|lints| lints.split([',', ')']).any(|name| name == *lint))
        })
    };
    let mut lacks: Vec<_> = DENIED.into_iter().filter(|lint| !denies(lint)).collect();
    if !squeezed.iter().any(|text| text == "#![forbid(unsafe_code)]") {
        lacks.push("forbid(unsafe_code)");
    }
    lacks
}

/// Fields with any visibility that begins with `pub`, each after the name of its struct.
fn open_fields(text: &str) -> Vec<(String, String)> {
    let code = code(text);
    let owner = |at: usize| {
        let owner = words(&code[..at], "struct").last().map_or("", |last| code[last + "struct".len()..].trim_start());
        let ends = |character: char| !character.is_alphanumeric() && character != '_' && character != '$';
        owner.split(ends).next().unwrap_or_default().to_owned()
    };
    let after_visibility = |at: usize| {
        let after = code[at + "pub".len()..].trim_start();
        after.strip_prefix('(').and_then(|scope| scope.split_once(')')).map_or(after, |(_, after)| after).trim_start()
    };
    let is_field = |after: &&str| {
        let word = after.split(|character: char| !character.is_alphanumeric() && character != '_').next();
        !word.is_some_and(|word| ITEMS.contains(&word))
    };
    let fields = words(&code, "pub").map(|at| (owner(at), after_visibility(at))).filter(|(_, after)| is_field(after));
    fields.map(|(owner, after)| (owner, after.split([':', ',', ')']).next().unwrap_or_default().trim().to_owned())).collect()
}

#[test]
fn the_state_of_machines_changes_only_by_their_methods() {
    let machines: Vec<_> =
        all_sources().into_iter().filter(|(file, _)| MACHINES.iter().any(|begin| file.starts_with(begin))).collect();
    for begin in MACHINES {
        assert!(machines.iter().any(|(file, _)| file.starts_with(begin)), "{begin} has machines");
    }
    let mut open = BTreeSet::new();
    for (file, text) in &machines {
        let plain = PLAIN_DATA.iter().find(|(plain, ..)| plain == file).map_or(&[][..], |(_, types, _)| *types);
        for (owner, field) in open_fields(text) {
            assert!(plain.contains(&&*owner), "{owner}.{field} of {file} can be assigned from outside; give it a method");
            open.insert((file.as_str(), owner));
        }
    }
    for (file, types, _) in PLAIN_DATA {
        for plain in types {
            assert!(open.contains(&(file, (*plain).to_owned())), "{plain} of {file} needs no exception");
        }
    }
}

#[test]
fn no_crate_below_the_adapters_reads_a_clock() {
    // The lock of a file can be waited for only by trying again.
    assert_eq!(found_in_crates(&CLOCKS), [("auth/store.rs".to_owned(), "thread::sleep")]);
}

#[test]
fn pure_code_uses_no_file_socket_process_or_thread() {
    let pure: Vec<_> = all_sources().into_iter().filter(|(file, _)| is_pure(file)).collect();
    let found: Vec<_> = pure.iter().flat_map(|(file, text)| found(file, text, &SYSTEM)).collect();
    assert_eq!(found, []);
    for (begin, impure) in PURE {
        assert!(pure.iter().any(|(file, _)| file.starts_with(begin)), "{begin} has pure code");
        for part in impure {
            assert!(
                all_sources().iter().any(|(file, _)| file.starts_with(part)),
                "{part} does not exist, so it needs no exception"
            );
        }
    }
}

#[test]
fn no_crate_below_the_adapters_has_unsafe_code() {
    assert_eq!(found_in_crates(&["unsafe"]), []);
}

#[test]
fn each_crate_denies_every_lint_about_panics() {
    for name in CRATES {
        let header = std::fs::read_to_string(source_of(name).join("lib.rs")).expect("lib.rs");
        assert_eq!(header_lacks(&header), [""; 0], "{name}/src/lib.rs");
    }
    for (file, text) in all_sources() {
        let known =
            SOFTENED.iter().find(|(known, _)| *known == file).map_or(&[][..], |(_, attribute)| std::slice::from_ref(attribute));
        assert_eq!(softened(&text), known, "{file} softens a denied lint");
    }
}

#[test]
fn no_crate_uses_a_panicking_macro_for_which_there_is_no_lint() {
    // The test tools of the endpoint may panic, as assertions do.
    let found = found_in_crates(&PANICKING_MACROS);
    let outside: Vec<_> = found.into_iter().filter(|(file, _)| !file.starts_with("endpoint/testing/")).collect();
    assert_eq!(outside, []);
}

#[test]
fn every_call_that_could_panic_on_an_invalid_argument_is_reviewed() {
    let all = found_in_crates(&PANICKING_CALLS);
    let mut places: Vec<_> = all.iter().map(|(file, call)| (file.as_str(), *call)).collect();
    places.sort_unstable();
    places.dedup();
    let counted: Vec<_> = places
        .into_iter()
        .map(|(file, call)| (file, call, all.iter().filter(|(at, word)| at == file && *word == call).count()))
        .collect();
    let known: Vec<_> = REVIEWED.iter().map(|(file, call, count, _)| (*file, *call, *count)).collect();
    assert_eq!(counted, known);
}

/// The packages that `cargo tree` lists, in order, without build dependencies.
fn dependencies(of: &str, more: &[&str]) -> Vec<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-p", of, "-e", "normal", "--prefix", "none", "--format", "{p}"])
        .args(more)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("cargo tree");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("names");
    let mut names: Vec<_> =
        tree.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_core_has_only_the_listed_dependencies() {
    let agreed = ["bytes", "sansmcp-protocol-core", "serde", "serde_json", "thiserror"];
    assert_eq!(dependencies("sansmcp-protocol-core", &["--all-features", "--depth", "1"]), agreed);
    let all: Vec<_> = include_str!("dependencies.txt").lines().collect();
    assert_eq!(dependencies("sansmcp-protocol-core", &["--no-default-features"]), all, "tests/tests/ratchets/dependencies.txt");
}

#[test]
fn tesseron_without_std_depends_only_on_the_core_and_on_subtle() {
    let agreed = ["bytes", "sansmcp-protocol-core", "sansmcp-tesseron", "serde", "serde_json", "subtle", "thiserror"];
    assert_eq!(dependencies("sansmcp-tesseron", &["--no-default-features", "--depth", "1"]), agreed);
    let mut all: Vec<_> = include_str!("dependencies.txt").lines().chain(["sansmcp-tesseron", "subtle"]).collect();
    all.sort_unstable();
    assert_eq!(dependencies("sansmcp-tesseron", &["--no-default-features"]), all);
}

// ---- The ratchets find violations ----

#[test]
fn clocks_panics_unsafe_code_and_calls_of_the_system_are_found_except_in_tests() {
    let bad = "
        fn f() { let t = std::time::Instant::now(); }
        #[cfg(test)] mod tests { fn g() { assert!(true); } }
        fn h() { assert!(1 == 1); unsafe { x() } }
    ";
    let seen = |wanted: &[&'static str]| found("f", bad, wanted).into_iter().map(|(_, word)| word).collect::<Vec<_>>();
    assert_eq!(seen(&CLOCKS), ["Instant::now", "std::time"]);
    assert_eq!(seen(&PANICKING_MACROS), ["assert!"], "the macro in the tests is ignored, and the one after them is found");
    assert_eq!(seen(&["unsafe"]), ["unsafe"]);
    let bad = "use std::fs::read; mod a { fn f() { ::std::thread::spawn(f); std::process::id() } } thread_local! {} use std::net;";
    assert_eq!(found("f", bad, &SYSTEM).len(), 5);
    assert!(is_pure("protocol-core/session/mod.rs") && is_pure("tesseron/bridge/mod.rs"));
    assert!(!is_pure("tesseron/net/home.rs") && !is_pure("tesseron/legs.rs") && !is_pure("engine/task.rs"));
    for call in ["a.split_at(at)", "a.swap_remove(0)", "self.list.drain(2..)", "a.chunks(n)", "a.windows(0)", "debug_assert!(x)"] {
        assert_eq!(found("f", &format!("fn f() {{ {call}; }}"), &PANICKING_CALLS).len(), 1, "{call}");
    }
    for call in ["self.advance(now)", "a.drain(..)", "a.chunks(3)"] {
        assert_eq!(found("f", &format!("fn f() {{ {call}; }}"), &PANICKING_CALLS), [], "{call}");
    }
}

#[test]
fn a_field_that_other_files_can_see_is_found() {
    let bad = "
        pub(super) struct Call { pub(super) op: Op, armed: Option<Instant>, pub(in crate::session) depth: u8, pub(crate)clocks: Clocks }
        pub struct Ticket(pub(crate) u64, pub Text);
        struct Plain { pub state: State, fn_count: usize, pub r#type: u8, pub used: bool }
    ";
    let seen = open_fields(bad);
    let fields: Vec<_> = seen.iter().map(|(_, field)| field.as_str()).collect();
    assert_eq!(fields, ["op", "depth", "clocks", "u64", "Text", "state", "r#type", "used"]);
    let owners: Vec<_> = seen.iter().map(|(owner, _)| owner.as_str()).collect();
    assert_eq!(owners, ["Call", "Call", "Call", "Ticket", "Ticket", "Plain", "Plain", "Plain"]);
    let good = "
        pub(super) struct Call { op: Op } pub(super) enum Ended { Reply } pub use event::Event; pub(crate) mod a {}
        impl Call { pub(super) fn op(&self) -> &Op { &self.op } pub(super) const fn new() -> Self { Self } pub(in crate::session) async fn f() {} }
        // pub(super) op: Op,
        #[cfg(test)] mod tests { struct Bench { pub(super) now: Instant } }
    ";
    assert_eq!(open_fields(good), []);
}

#[test]
fn words_in_comments_and_strings_are_not_taken_for_code() {
    let innocent = r###"
        //! Instant::now is never read. assert!
        /* unsafe /* nested */ std::time */
        const A: &str = "unsafe \" std::time"; const B: &str = r#"SystemTime "assert!" "#; const C: char = '"'; const D: u8 = b'\'';
        #![forbid(unsafe_code)] fn f<'a>(x: &'a str) { debug_assert!(true); unsafely() }
    "###;
    assert_eq!(found("f", innocent, &CLOCKS), []);
    assert_eq!(found("f", innocent, &PANICKING_MACROS), []);
    assert_eq!(found("f", innocent, &["unsafe"]), []);
}

#[test]
fn a_softened_lint_and_a_lint_missing_in_the_header_are_found() {
    for bad in [
        "#[allow(clippy::unwrap_used)] fn f() {}",
        "#[expect(dead_code, clippy::panic, reason = \"x\")] fn f() {}",
        "#![cfg_attr(feature = \"x\", allow(clippy::indexing_slicing))]",
        "#![warn(\n    clippy::restriction\n)]",
        "#[allow(warnings)] fn f() {}",
    ] {
        assert_eq!(softened(bad).len(), 1, "{bad}");
    }
    for good in
        ["#[allow(clippy::large_enum_variant)] fn f() {}", "#![deny(clippy::panic)]", "#[allow(clippy::panic_in_result_fn)] x"]
    {
        assert_eq!(softened(good), [""; 0], "{good}");
    }
    let header = std::fs::read_to_string(source_of("protocol-core").join("lib.rs")).expect("lib.rs");
    for lint in DENIED {
        assert_eq!(header_lacks(&header.replace(lint, "clippy::nothing")), [lint]);
        assert_eq!(header_lacks(&header.replace("clippy::panic,", "")), ["clippy::panic"]);
    }
    assert_eq!(header_lacks(&header.replace("forbid(unsafe_code)", "deny(unsafe_code)")), ["forbid(unsafe_code)"]);
    assert_eq!(header_lacks(&header.replace("not(test)", "test")).len(), DENIED.len());
    assert_eq!(header_lacks(&header.replace("#![forbid", "// #![forbid")), ["forbid(unsafe_code)"]);
}
