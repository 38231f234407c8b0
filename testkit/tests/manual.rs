//! Checks that the examples in the documentation of the crate (`src/lib.rs`) are short.

/// The heading above each example, and the number of the example's lines that are not hidden, empty, or imports.
fn examples() -> Vec<(String, usize)> {
    let documentation = include_str!("../src/lib.rs").lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let (mut all, mut heading, mut lines) = (Vec::new(), String::new(), None);
    for line in documentation {
        match (line, &mut lines) {
            ("```", Some(count)) => {
                all.push((heading.clone(), *count));
                lines = None;
            }
            ("```", None) => lines = Some(0),
            (line, None) => heading = line.strip_prefix("# ").map_or(heading, str::to_owned),
            (line, Some(count)) => {
                *count += usize::from(!line.is_empty() && !["# ", "use ", "#!"].iter().any(|start| line.starts_with(start)));
            }
        }
    }
    all
}

#[test]
fn each_example_of_the_crate_documentation_has_five_to_ten_lines() {
    let examples = examples();
    let headings: Vec<_> = examples.iter().map(|(heading, _)| &**heading).collect();
    assert_eq!(headings, ["A loop of your own", "A tool", "A client", "A gateway between protocols"]);
    assert!(examples.iter().all(|(_, lines)| (5..=10).contains(lines)), "{examples:?}");
}
