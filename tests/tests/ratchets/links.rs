//! Every link of a page leads to an existing file and heading, every test that a page cites exists, and every page of `docs` is in the book.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Files below `folder` whose names end with `ending`, except for those in hidden, generated and installed folders.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
            found.extend(files(&entry, ending));
        } else if name.ends_with(ending) {
            found.push(entry);
        }
    }
    found.sort_unstable();
    found
}

/// The text of a page without its blocks of code.
fn prose(page: &str) -> String {
    let mut in_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The targets of `[..](target)`, except for addresses on the web and texts with blanks.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|after| after.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

/// The anchor that GitHub gives a heading: lower-case letters, digits, `-` and `_`; a blank becomes `-`.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
    kept.map(|char| if char == ' ' { '-' } else { char.to_ascii_lowercase() }).collect()
}

fn has_anchor(page: &str, wanted: &str) -> bool {
    prose(page).lines().filter_map(|line| line.strip_prefix('#')).any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

/// The broken links of a page. `read` returns the text of a file, an empty text for a folder, and `None` for a path that does not exist.
fn broken(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let prose = prose(page);
    let leads = |link: &&str| {
        let (file, heading) = link.split_once('#').map_or((*link, None), |(file, heading)| (file, Some(heading)));
        let text = if file.is_empty() { Some(page.to_owned()) } else { read(file) };
        text.is_some_and(|text| heading.is_none_or(|heading| has_anchor(&text, heading)))
    };
    links(&prose).into_iter().filter(|link| !leads(link)).map(str::to_owned).collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = root();
    let pages = files(&root, ".md");
    assert!(pages.len() > 20, "{} pages", pages.len());
    for path in pages {
        let page = fs::read_to_string(&path).expect("a page");
        let folder = path.parent().expect("a folder");
        let read = |file: &str| {
            let target = folder.join(file);
            if target.is_dir() {
                Some(String::new())
            } else {
                fs::read(target).ok().map(|it| String::from_utf8_lossy(&it).into_owned())
            }
        };
        assert_eq!(broken(&page, read), [""; 0], "links of {}", path.display());
    }
}

#[test]
fn every_page_of_docs_is_in_the_summary_of_the_book() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("a summary");
    let listed = links(&summary);
    let pages = files(&docs, ".md").into_iter().map(|page| page.strip_prefix(&docs).expect("below docs").display().to_string());
    let missing: Vec<_> = pages.filter(|page| page != "SUMMARY.md" && !listed.contains(&page.as_str())).collect();
    assert_eq!(missing, [""; 0]);
}

/// The tests that a page cites as `` `name` in `file.rs` ``.
fn cited_tests(page: &str) -> Vec<(&str, &str)> {
    let cited = page
        .match_indices("` in `")
        .filter_map(|(at, between)| Some((page[..at].rsplit('`').next()?, page[at + between.len()..].split('`').next()?)));
    cited.filter(|(name, file)| name.starts_with(char::is_lowercase) && file.ends_with(".rs")).collect()
}

#[test]
fn every_test_that_a_page_cites_exists() {
    let root = root();
    let mut count = 0;
    for path in files(&root.join("docs"), ".md") {
        let page = fs::read_to_string(&path).expect("a page");
        for (name, file) in cited_tests(&page) {
            let source = fs::read_to_string(root.join(file)).unwrap_or_default();
            let exists = [format!("fn {name}("), format!("fn {name}<")].iter().any(|function| source.contains(function));
            assert!(exists, "{} cites {name} in {file}", path.display());
            count += 1;
        }
    }
    assert!(count > 40, "{count} cited tests");
}

#[test]
fn links_to_missing_files_and_headings_are_found() {
    let page = "# One page\n[a](there.md) [b](gone.md) [c](there.md#two-words-g1) [d](there.md#three) [e](#one-page) [f](#two)\n```\n[g](gone)\n```\n[h](https://a.example/b)";
    let read = |file: &str| (file == "there.md").then(|| "## Two words: `G1`\n".to_owned());
    assert_eq!(broken(page, read), ["gone.md", "there.md#three", "#two"]);
}
