//! The tables in `docs/transitions`, which unit tests of the core compare with the code. The diagrams beside them are
//! drawn from them, and every transition that a [`Campaign`] of the testkit counts is a row of a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use protocol_core::mcp::Era;
use testkit::config::{client_config, server_config, with};
use testkit::world::ops;
use testkit::{Campaign, Rng, World};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The state, the input and the next state of each row of a table. Columns are at least two blanks apart.
fn rows(table: &str) -> Vec<[&str; 3]> {
    let lines = table.lines().skip_while(|line| !line.starts_with("state ")).skip(1);
    lines
        .map(|line| {
            let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let [state, input, next, _, _] = cells[..] else { panic!("a row has five cells: {line}") };
            [state, input, next]
        })
        .collect()
}

/// The diagram of a table in Mermaid: one arrow for each pair of states, with every input that leads from one to the other.
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
    let path = docs().join("transitions/README.md");
    let page = fs::read_to_string(&path).expect("the page of the tables");
    let mut drawn = page.clone();
    for machine in ["call", "serve", "listen"] {
        let table = fs::read_to_string(docs().join(format!("transitions/{machine}.txt"))).expect("the table");
        let mark = format!("<!-- {machine} -->\n");
        let begin = drawn.find(&mark).expect("the mark of the diagram") + mark.len();
        let end = begin + drawn[begin..].find("<!-- end -->").expect("the end of the diagram");
        drawn.replace_range(begin..end, &diagram(&table));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &drawn).unwrap();
    }
    assert!(drawn == page || std::env::var_os("UPDATE_GOLDEN").is_some(), "the diagrams are not drawn from docs/transitions");
}

#[test]
fn every_state_can_be_reached_and_left_and_has_a_row_for_every_input() {
    for machine in ["call", "serve", "serve-stateless", "listen"] {
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
fn a_diagram_has_an_arrow_for_each_change_of_state_in_its_table() {
    let table = "A title.\n\nstate  input     next\nA      go on     A     -  -\nA      go, fast  B     -  -\nA      run       B     -  -\nB      end       gone  -  -\n";
    assert_eq!(
        diagram(table),
        "```mermaid\nstateDiagram-v2\n    [*] --> A\n    A --> B : go, fast<br>run\n    B --> [*] : end\n```\n"
    );
    assert_ne!(diagram(table), diagram(&table.replace("run       B", "run       A")));
}

/// The rows of all tables, in the form in which the coverage of a case names them. Calls of a gateway are named `call` there, too.
fn all_rows() -> BTreeSet<[String; 3]> {
    let tables = ["call", "call-of-a-gateway", "call-over-rounds", "serve", "serve-stateless", "listen"];
    let read = |name: &str| fs::read_to_string(docs().join(format!("transitions/{name}.txt"))).expect("the table");
    let named = |name: &str| {
        let table = read(name);
        let name = if name == "call-of-a-gateway" { "call" } else { name };
        rows(&table).into_iter().map(|[state, input, _]| [name, state, input].map(str::to_owned)).collect::<Vec<_>>()
    };
    tables.into_iter().flat_map(named).collect()
}

#[test]
fn every_transition_that_a_campaign_counts_is_a_row_of_a_table() {
    let rows = all_rows();
    let mut campaign = Campaign::new(&[]);
    for era in [Era::Legacy, Era::Auto, Era::Modern] {
        campaign.run(0..60, 0, |case| {
            let client = with(client_config(), |config| config.era = era);
            let mut world = World::messages(client, server_config(), case.seed);
            let mut rng = Rng::new(case.seed);
            for _ in 0..300 {
                let operation = if rng.chance(96) { ops::random_of_subscriptions(&mut rng) } else { ops::random(&mut rng) };
                if !ops::ends(operation) {
                    world.apply(operation);
                }
            }
            world.finish((case.seed % 3) as u8);
            world.coverage()
        });
    }
    let met: BTreeSet<_> = campaign.coverage().transitions().map(|row| row.map(str::to_owned)).collect();
    assert_eq!(met.difference(&rows).collect::<Vec<_>>(), Vec::<&[String; 3]>::new());
    let of = |table: &str| met.iter().filter(|[name, ..]| name == table).count();
    let counts = ["call", "serve", "call-over-rounds", "serve-stateless", "listen"].map(of);
    println!("{counts:?}");
    assert!(counts.iter().all(|count| *count >= 15), "{counts:?}");
}
