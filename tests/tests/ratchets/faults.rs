//! The table in `docs/protocols/http.md` names our tests for each fault of other implementations of HTTP. These tests exist.

use std::fs;
use std::path::Path;

/// The section with the table.
const SECTION: &str = "\n## Faults of other implementations, and our tests for them\n";

/// The minimum number of rows of the table. Rows may be added, but not removed.
const FAULTS: usize = 39;

/// The cells of the rows of the table, without its head.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let (_, section) = page.split_once(SECTION).expect("the section");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let lines = section.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    lines.skip(2).map(|line| line.split('|').map(str::trim).collect()).collect()
}

/// The tests in a cell, each as its name and its file. Any other text is returned as `Err`.
fn tests(cell: &str) -> Result<Vec<(&str, &str)>, &str> {
    let test = |part| {
        let part: &str = str::trim(part);
        let (name, file) = part.strip_prefix('`')?.strip_suffix('`')?.split_once("` in `")?;
        (!name.contains('`') && !file.contains('`')).then_some((name, file))
    };
    cell.split(';').map(|part| test(part).ok_or(part)).collect()
}

/// Returns `true` if a source has a test of that name: a function with `#[test]` or `#[tokio::test]`, or a scenario that is listed in
/// `rows!` for all adapters.
fn has_test(source: &str, name: &str) -> bool {
    let is_function = |line: &str| {
        let line = line.trim_start();
        let after = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")).and_then(|after| after.strip_prefix(name));
        after.is_some_and(|after| after.starts_with(['(', '<']))
    };
    let Some(at) = source.lines().position(is_function) else { return false };
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
    let is_test = attributes.into_iter().any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"));
    let row = source.split_once("rows! {").and_then(|(_, after)| after.split_once('}'));
    is_test || row.is_some_and(|(rows, _)| rows.lines().any(|line| line.trim() == name))
}

/// Descriptions of the errors in the table of a page. `read` returns the text of a file.
fn wrong(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (row, number) in rows(page).iter().zip(1_usize..) {
        let &[number_cell, fault, reported, rule, tests_cell] = &row[..] else {
            wrong.push(format!("{number}: not five cells"));
            continue;
        };
        if number_cell != number.to_string() || [fault, reported, rule].iter().any(|cell| cell.is_empty()) {
            wrong.push(format!("{number}: a cell is empty, or the number is not the next one"));
        }
        match tests(tests_cell) {
            Ok(tests) => {
                let missing = tests.into_iter().filter(|(name, file)| !read(file).is_some_and(|source| has_test(&source, name)));
                wrong.extend(missing.map(|(name, file)| format!("{number}: {file} has no test {name}")));
            }
            Err(part) => wrong.push(format!("{number}: {part:?} is not `test` in `file`")),
        }
    }
    wrong
}

#[test]
fn every_fault_of_others_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/protocols/http.md")).expect("the page");
    assert!(rows(&page).len() >= FAULTS, "{} rows", rows(&page).len());
    assert_eq!(wrong(&page, |file| fs::read_to_string(root.join(file)).ok()), [""; 0]);
}

#[test]
fn a_row_with_a_wrong_cell_or_without_a_test_that_exists_is_found() {
    let source = "
        #[test]
        fn one() {}

        /// A row.
        async fn two<A: Adapter>(stage: Stage<A>) {}
        rows! { $ each ():
            two
        }
        fn three() {}
        #[tokio::test(flavor = \"multi_thread\")]
        #[cfg(unix)]
        async fn four() {}
    ";
    for (name, expected) in [("one", true), ("on", false), ("two", true), ("three", false), ("four", true), ("five", false)] {
        assert_eq!(has_test(source, name), expected, "{name}");
    }
    let page = |rows: &str| {
        format!("# Page\n{SECTION}\n| # | Fault | Reported at | Rule | Tests |\n|---|---|---|---|---|\n{rows}\n## More\n| 9 |\n")
    };
    let read = |file: &str| (file == "a.rs").then(|| source.to_owned());
    assert_eq!(
        wrong(&page("| 1 | f | r | u | `one` in `a.rs`; `two` in `a.rs` |\n| 2 | f | r | u | `four` in `a.rs` |"), read),
        [""; 0]
    );
    for bad in [
        "| 1 | f | r | u | `three` in `a.rs` |",
        "| 1 | f | r | u | `one` in `b.rs` |",
        "| 1 | f | r | u | `one` in `a.rs`; `five` in `a.rs` |",
        "| 1 | f | r | u | one in a.rs |",
        "| 1 | f | r | u |  |",
        "| 2 | f | r | u | `one` in `a.rs` |",
        "| 1 |  | r | u | `one` in `a.rs` |",
        "| 1 | f | r | `one` in `a.rs` |",
    ] {
        assert_eq!(wrong(&page(bad), read).len(), 1, "{bad}");
    }
}
