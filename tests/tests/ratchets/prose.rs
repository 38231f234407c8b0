//! Doc comments open with a verb or a noun phrase, as those of the standard library do: "Returns `true` if the handshake is done" instead
//! of "Whether the handshake is done". No line of a doc comment opens with a question word.

use std::path::Path;

use crate::source::files_below;
use crate::source_of;

/// The words with which no line of documentation may open.
const QUESTION_WORDS: [&str; 8] = ["What", "Who", "Where", "When", "How", "Whether", "Whoever", "Whatever"];

/// Members of the workspace that are not libraries.
const NO_LIBRARIES: [&str; 2] = ["programs", "tests"];

/// The library crates, as the workspace lists them.
fn libraries(manifest: &str) -> Vec<String> {
    let (_, members) = manifest.split_once("members = [").expect("a list of members");
    let (members, _) = members.split_once(']').expect("its end");
    let names = members.split(',').map(|name| name.trim().trim_matches('"'));
    names.filter(|name| !name.is_empty() && !NO_LIBRARIES.contains(name)).map(str::to_owned).collect()
}

/// The numbers of the lines of a source that are documentation, public or private, and open with a question word.
fn question_words(text: &str) -> Vec<usize> {
    let is_question = |line: &str| {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { return false };
        let doc = doc.trim_start().trim_start_matches(['*', '-', '`']).trim_start();
        QUESTION_WORDS.contains(&doc.split(|character: char| !character.is_alphabetic()).next().unwrap_or_default())
    };
    text.lines().zip(1..).filter(|(line, _)| is_question(line)).map(|(_, number)| number).collect()
}

#[test]
fn no_line_of_documentation_opens_with_a_question_word() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let libraries = libraries(&std::fs::read_to_string(manifest).expect("the manifest of the workspace"));
    for known in [
        "protocol-core",
        "engine",
        "endpoint",
        "tesseron",
        "adapter-io",
        "http-service",
        "adapter-tokio",
        "adapter-smol",
        "testkit",
    ] {
        assert!(libraries.iter().any(|name| name == known), "{known} is a library");
    }
    let mut found = Vec::new();
    for name in &libraries {
        for (file, text) in files_below(&source_of(name)) {
            found.extend(question_words(&text).into_iter().map(|line| format!("{name}/src/{file}:{line}")));
        }
    }
    assert_eq!(found, [""; 0], "lines of documentation that open with a question word");
}

#[test]
fn a_question_word_is_found_at_the_beginning_of_every_line_of_documentation() {
    let bad = "
        //! What a session costs.
        /// Whether it is ready.
        pub fn is_ready() {}
        /// The reply.
        /// When it is late, nothing.
        /// * How long it takes.
        fn private() {}
    ";
    assert_eq!(question_words(bad), [2, 3, 6, 7]);
    let good = "
        /// Whatsoever and Howard are no question words; what and When amid a line are none either.
        // What a comment is, is not documentation.
        /// The time. When it is over, the call ends.
        let text = \"Whether\";
    ";
    assert_eq!(question_words(good), [0; 0]);
}

#[test]
fn the_libraries_are_the_members_without_programs_and_tests() {
    assert_eq!(libraries("[workspace]\nmembers = [\"a\", \"programs\",\n  \"b\", \"tests\",\n]\n"), ["a", "b"]);
}
