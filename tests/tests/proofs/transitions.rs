//! The diagrams in `docs/model.md` are drawn from the tables of the two machines, which unit tests of the core compare with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The rows of a table: state, input, next state. Columns are at least two blanks apart.
fn rows(table: &str) -> Vec<[&str; 3]> {
    let lines = table.lines().skip_while(|line| !line.starts_with("state ")).skip(1);
    lines
        .map(|line| {
            let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
            std::array::from_fn(|_| cells.next().expect("a row has five cells"))
        })
        .collect()
}

/// One arrow for each pair of states, with every input that leads from one to the other.
fn diagram(table: &str) -> String {
    let rows = rows(table);
    let mut order = Vec::new();
    let mut arrows: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for [from, input, next] in &rows {
        if from != next {
            let arrow = (*from, *next);
            if !arrows.contains_key(&arrow) {
                order.push(arrow);
            }
            arrows.entry(arrow).or_default().push(input);
        }
    }
    let name = |state| if state == "gone" { "[*]" } else { state };
    let mut text = format!("```mermaid\nstateDiagram-v2\n    [*] --> {}\n", rows[0][0]);
    for arrow in order {
        writeln!(text, "    {} --> {} : {}", name(arrow.0), name(arrow.1), arrows[&arrow].join("<br>")).unwrap();
    }
    text.push_str("```\n");
    text
}

#[test]
fn the_diagrams_in_the_docs_are_drawn_from_the_tables() {
    let path = docs().join("model.md");
    let page = fs::read_to_string(&path).expect("docs/model.md");
    let mut drawn = page.clone();
    for machine in ["call", "serve"] {
        let table = fs::read_to_string(docs().join(format!("transitions/{machine}.txt"))).expect("the table");
        let mark = format!("<!-- {machine} -->\n");
        let begin = drawn.find(&mark).expect("the mark of the diagram") + mark.len();
        let end = begin + drawn[begin..].find("<!-- end -->").expect("the end of the diagram");
        drawn.replace_range(begin..end, &diagram(&table));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &drawn).unwrap();
    }
    assert!(drawn == page || std::env::var_os("UPDATE_GOLDEN").is_some(), "docs/model.md is not drawn from docs/transitions");
}

#[test]
fn every_state_can_be_reached_and_left_and_meets_every_input() {
    for machine in ["call", "serve"] {
        let table = fs::read_to_string(docs().join(format!("transitions/{machine}.txt"))).expect("the table");
        let rows = rows(&table);
        let states: BTreeSet<_> = rows.iter().map(|row| row[0]).collect();
        let inputs: BTreeSet<_> = rows.iter().map(|row| row[1]).collect();
        assert_eq!(rows.len(), states.len() * inputs.len(), "{machine}: a row for each state and input");
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len(), "{machine}: a row is repeated");
        for state in &states {
            let reached = state == &rows[0][0] || rows.iter().any(|[from, _, next]| from != state && next == state);
            assert!(reached, "{machine}: no row leads to {state}");
            let left = rows.iter().any(|[from, _, next]| from == state && next != state);
            assert_eq!(left, *state != "gone", "{machine}: every state but `gone` can be left: {state}");
        }
        assert!(rows.iter().all(|row| states.contains(row[2])), "{machine}: every next state has rows");
    }
}

#[test]
fn a_table_that_changes_changes_the_diagram() {
    let table = "A title.\n\nstate  input     next\nA      go on     A     -  -\nA      go, fast  B     -  -\nA      run       B     -  -\nB      end       gone  -  -\n";
    assert_eq!(
        diagram(table),
        "```mermaid\nstateDiagram-v2\n    [*] --> A\n    A --> B : go, fast<br>run\n    B --> [*] : end\n```\n"
    );
    assert_ne!(diagram(table), diagram(&table.replace("run       B", "run       A")));
}
