//! Packages can be published: their names belong to no other project, and their manifests say what a registry shows. The names that others
//! have are in `taken_names.txt`, so the test needs no network; `cargo info NAME` tells if a registry has a name.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::{code, files_below, words};
use crate::source_of;

/// Packages that are never published.
const OURS_ALONE: [&str; 2] = ["conformance", "tests"];

/// The packages of the workspace, as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("cargo metadata");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let mut metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    serde_json::from_value(metadata["packages"].take()).expect("packages")
}

/// A name as a registry compares it: without case, and with hyphens for underscores.
fn compared(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// The names that others have, without comments.
fn taken() -> Vec<String> {
    include_str!("taken_names.txt").lines().filter(|line| !line.starts_with('#')).map(compared).collect()
}

/// The reasons why a package cannot be published as it is, each in a few words.
fn faults(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent().and_then(Path::file_name);
    let folder = folder.and_then(|folder| folder.to_str()).unwrap_or_default();
    let expected = match folder {
        "sansmcp" => "sansmcp".to_owned(),
        "programs" => "sansmcp-cli".to_owned(),
        _ => format!("sansmcp-{folder}"),
    };
    let is_list = |key: &str, most: usize| package[key].as_array().is_some_and(|list| (1..=most).contains(&list.len()));
    let targets = package["targets"].as_array().into_iter().flatten();
    let library = targets
        .filter(|target| ["lib", "proc-macro"].iter().any(|kind| target["kind"] == serde_json::json!([kind])))
        .find_map(|target| target["name"].as_str());
    let described = package["description"].as_str().is_some_and(|text| (20..200).contains(&text.len()));
    let addresses = ["documentation", "homepage", "repository"];
    [
        (taken().contains(&compared(name)), "the name belongs to another project".to_owned()),
        (name != expected, format!("the name is not {expected}")),
        (library != Some(&folder.replace('-', "_")), "the library does not have the name of its folder".to_owned()),
        (!described, "it has no description, or a long one".to_owned()),
        (!is_list("keywords", 5), "it has no keywords, or more than five".to_owned()),
        (!is_list("categories", 5), "it has no categories, or more than five".to_owned()),
        // A member that does not inherit them has none.
        (addresses.iter().any(|key| package[*key].is_null()), "it does not inherit the addresses of the workspace".to_owned()),
    ]
    .into_iter()
    .filter_map(|(is_fault, fault)| is_fault.then(|| format!("{name}: {fault}")))
    .collect()
}

#[test]
fn every_package_that_users_may_depend_on_can_be_published() {
    let (unpublished, published): (Vec<_>, Vec<_>) = packages().into_iter().partition(|package| package["publish"].is_array());
    let mut names: Vec<_> = unpublished.iter().filter_map(|package| package["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, OURS_ALONE);
    assert!(published.len() >= 10, "{} packages", published.len());
    let found: Vec<_> = published.iter().flat_map(faults).collect();
    assert_eq!(found, [""; 0]);
}

/// The words in the code of a source that begin anything but a module or a re-export.
fn logic(text: &str) -> Vec<&'static str> {
    let code = code(text);
    let all = ["const", "enum", "fn", "impl", "macro_rules!", "static", "struct", "trait", "type"];
    all.into_iter().filter(|word| words(&code, word).next().is_some()).collect()
}

#[test]
fn the_facade_has_no_logic() {
    for (file, text) in files_below(&source_of("sansmcp")) {
        assert_eq!(logic(&text), [""; 0], "sansmcp/{file}");
    }
    assert_eq!(logic("/// A struct.\npub use a::fn_name; pub mod a { pub use b::*; }"), [""; 0]);
    assert_eq!(logic("pub struct S; impl S { pub const fn f() {} }"), ["const", "fn", "impl", "struct"]);
}

#[test]
fn a_package_that_cannot_be_published_is_found() {
    let engine = packages().into_iter().find(|package| package["name"] == "sansmcp-engine").expect("a package");
    assert_eq!(faults(&engine), [""; 0]);
    let with = |key: &str, value: Value| {
        let mut changed = engine.clone();
        changed[key] = value;
        faults(&changed)
    };
    assert_eq!(
        with("name", "Engine".into()),
        ["Engine: the name belongs to another project", "Engine: the name is not sansmcp-engine"]
    );
    assert_eq!(with("targets", Value::Null), ["sansmcp-engine: the library does not have the name of its folder"]);
    assert_eq!(with("description", "short".into()), ["sansmcp-engine: it has no description, or a long one"]);
    assert_eq!(with("keywords", serde_json::json!([])), ["sansmcp-engine: it has no keywords, or more than five"]);
    assert_eq!(with("categories", Value::Null), ["sansmcp-engine: it has no categories, or more than five"]);
    assert_eq!(with("repository", Value::Null), ["sansmcp-engine: it does not inherit the addresses of the workspace"]);
}
