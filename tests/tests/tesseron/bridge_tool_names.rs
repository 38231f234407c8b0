//! Names of actions that MCP does not allow in the name of a tool: the agent gets aliases, and the app its own names.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use testkit::scripted::{notification, request};
use tests::bridge::{Rig, call_tool};

/// Returns `true` if MCP allows the name (2025-11-25, Tools, "Tool Names").
fn is_allowed(tool: &str) -> bool {
    (1..=128).contains(&tool.len()) && tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// Returns `true` if the name contains `__`, and ends in `--` and 16 hexadecimal digits.
fn looks_like_an_alias(tool: &str) -> bool {
    tool.len() > 18 && tool.is_ascii() && {
        let (readable, mark) = tool.split_at(tool.len() - 18);
        readable.contains("__") && mark.starts_with("--") && mark[2..].bytes().all(|digit| b"0123456789abcdef".contains(&digit))
    }
}

fn actions(names: &[String]) -> String {
    json!(names.iter().map(|name| json!({"name": name, "description": "d"})).collect::<Vec<_>>()).to_string()
}

/// The tools that are listed if `app` is the only app, by the names of its actions.
fn listed(app: &str, names: &[String]) -> BTreeMap<String, String> {
    let mut rig = Rig::new();
    rig.join_with(app, &actions(names), "[]");
    let tools = rig.app_tools();
    let mut seen = BTreeSet::new();
    let names: Vec<_> = names.iter().filter(|name| seen.insert(*name)).cloned().collect();
    assert_eq!(tools.len(), names.len(), "{names:?}: {tools:?}");
    names.into_iter().zip(tools).collect()
}

/// Calls a tool. Returns the number of the app that received the call, and the name of the action.
fn called(rig: &mut Rig, tool: &str) -> Option<(usize, String)> {
    rig.agent(&call_tool("1", tool, "{}", None));
    for app in 0..rig.apps.len() {
        if let [call] = &*rig.all_invoked(app) {
            let reached = (app, call.name.clone());
            rig.app(app, &call.output("null")).drop_received();
            return Some(reached);
        }
    }
    None
}

fn app_id() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-l][a-z0-9_]{0,12}",
        2 => Just(String::from("a")),
        2 => Just(String::from("a__b")),
        1 => Just(String::from("a_")),
        // App ids with the same beginning. Their lengths are around the length above which an alias shortens the id.
        2 => (70_usize..=128).prop_map(|length| "long_".repeat(26)[..length].to_owned()),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[A-Za-z0-9_.-]{1,20}",
        2 => any::<String>(),
        2 => "[ _/.\u{e4}\u{4e2d}a-b-]{0,8}",
        1 => (100_usize..200).prop_map(|length| "n".repeat(length)),
        1 => "[a-c ]{0,4}--[0-9a-f]{15,17}",
        1 => Just(String::from("b__c d")),
        1 => Just(String::from("c d")),
        1 => Just("very long ".repeat(500)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each listed name is valid for any client, belongs to one action, and calls this action. This also holds if the names of an app's
    /// actions are the aliases of other actions.
    #[test]
    fn every_listed_tool_name_is_valid_and_unique_and_calls_its_action(
        apps in prop::collection::btree_map(app_id(), prop::collection::vec(name(), 0..8), 1..4),
    ) {
        let mut apps: Vec<_> = apps.into_iter().collect();
        for _ in 0..2 {
            // In the second pass each app also has actions with the names of the tools of the first pass, with and without its prefix.
            let mut rig = Rig::new();
            for (app, names) in &apps {
                rig.join_with(app, &actions(names), "[]");
            }
            let tools = rig.app_tools();
            prop_assert_eq!(tools.iter().collect::<BTreeSet<_>>().len(), tools.len());
            let mut reached = BTreeSet::new();
            for tool in &tools {
                prop_assert!(is_allowed(tool), "{}", tool);
                let called = called(&mut rig, tool);
                prop_assert!(called.is_some(), "{} calls no action", tool);
                let (app, name) = called.expect("seen");
                prop_assert!(apps[app].1.contains(&name));
                let plain = format!("{}__{name}", apps[app].0);
                prop_assert!(*tool == plain || looks_like_an_alias(tool), "{} is {:?}", tool, name);
                if is_allowed(&plain) && !looks_like_an_alias(&plain) {
                    prop_assert_eq!(tool, &plain, "a valid name has no alias");
                }
                prop_assert!(reached.insert((app, name)));
            }
            // Every action is listed, unless another app has an action with an equal tool name.
            for (app, (id, names)) in apps.iter().enumerate() {
                for name in names {
                    let plain = format!("{id}__{name}");
                    let hidden = apps.iter().enumerate().any(|(other, (id, names))| {
                        other != app && names.iter().any(|name| format!("{id}__{name}") == plain)
                    });
                    prop_assert!(hidden || reached.contains(&(app, name.clone())), "{:?} is not listed", plain);
                }
            }
            for (id, names) in &mut apps {
                let learned = tools.iter().filter_map(|tool| tool.strip_prefix(&format!("{id}__"))).map(str::to_owned);
                names.extend(learned.chain(tools.iter().cloned()).collect::<BTreeSet<_>>());
            }
        }
    }

    /// The name of a tool depends only on its app and its action, not on other actions, their order, or earlier lists.
    #[test]
    fn the_tool_name_of_an_action_does_not_depend_on_other_actions(
        app in app_id(),
        names in prop::collection::vec(name(), 1..8),
        others in prop::collection::vec(name(), 0..8),
    ) {
        let alone = listed(&app, &names);
        let mut all: Vec<_> = others.iter().chain(&names).cloned().collect();
        all.reverse();
        let among = listed(&app, &all);
        for (name, tool) in &alone {
            prop_assert_eq!(&among[name], tool);
        }
    }
}

#[test]
fn the_agent_sees_and_uses_the_same_alias_of_an_action_everywhere() {
    let mut rig = Rig::new();
    let app = rig.dial();
    let names = [String::from("post entry"), String::from("look")];
    rig.app(app, &tests::bridge::hello("ledger", &actions(&names), "[]"));
    let code = rig.apps[app].code.clone().unwrap();
    let (text, _) = rig.call_text(1, "tesseron__claim_session", &json!({"code": code}).to_string());
    let alias = "ledger__post_entry--35aff9daf0848473";
    assert!(text.contains(&format!("Tools: {alias}, ledger__look.")), "{text}");
    assert_eq!(rig.app_tools(), [alias, "ledger__look"]);
    let (text, _) = rig.call_text(2, "tesseron__list_actions", "{}");
    let described = tests::bridge::value(&text)["sessions"][0]["actions"][0].clone();
    assert_eq!((&described["action"], &described["mcp_tool_name"]), (&json!("post entry"), &json!(alias)));
    rig.drop_received();
    for (tool, arguments) in [
        (alias, r#"{"n":1}"#),
        ("ledger__post entry", r#"{"n":1}"#),
        ("tesseron__invoke_action", r#"{"app_id":"ledger","action":"post entry","args":{"n":1}}"#),
    ] {
        rig.agent(&call_tool("3", tool, arguments, Some("3")));
        let call = rig.invoked(app);
        assert_eq!(tests::bridge::value(&call.text)["params"]["name"], "post entry");
        assert!(call.text.contains(r#""input":{"n":1}"#), "{}", call.text);
        rig.app(app, &call.progress(r#","percent":5"#));
        assert_eq!(rig.progress(), [(5.0, None)]);
        rig.app(app, &call.output("1"));
        assert_eq!(rig.response(3)["result"]["content"][0]["text"], "1");
    }
}

#[test]
fn the_alias_of_a_removed_action_is_unknown_and_the_same_if_the_action_comes_back() {
    let mut rig = Rig::new();
    let list = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        notification("actions/list_changed", &format!(r#"{{"actions":{}}}"#, actions(&names)))
    };
    let app = rig.join_with("ledger", "[]", "[]");
    rig.app(app, &list(&["a b"]));
    let alias = rig.app_tools().remove(0);
    // An action whose tool would have the former alias as its name gets another alias.
    let named_as_alias = alias.strip_prefix("ledger__").unwrap();
    rig.app(app, &list(&[named_as_alias]));
    let other = rig.app_tools().remove(0);
    assert_ne!(other, alias);
    assert!(rig.call_text(1, &alias, "{}").1, "the alias is unknown now");
    assert_eq!(called(&mut rig, &other), Some((app, named_as_alias.to_owned())));
    rig.app(app, &list(&[named_as_alias, "a b"]));
    assert_eq!(rig.app_tools(), [other, alias.clone()]);
    assert_eq!(called(&mut rig, &alias), Some((app, String::from("a b"))));
}

#[test]
fn calling_an_alias_of_an_absent_or_unknown_app_reports_that_no_session_is_claimed() {
    let mut rig = Rig::new();
    let app = rig.join_with("ledger", r#"[{"name":"a b"}]"#, "[]");
    let alias = rig.app_tools().remove(0);
    rig.lose(app);
    for tool in [&*alias, "nobody__a_b--0123456789abcdef", "--0123456789abcdef", "a--b__--0123456789abcdef"] {
        let (text, failed) = rig.call_text(1, tool, "{}");
        assert!(failed && text.contains("No claimed session found"), "{text}");
    }
}

#[test]
fn a_hostile_app_with_very_many_odd_names_does_not_affect_other_apps() {
    let mut rig = Rig::new();
    rig.join("good");
    let huge = "\u{0}".repeat(1 << 20);
    let names: Vec<_> = (0..5000).map(|number| format!("{number} \u{202e}/../")).chain([huge, String::from(" ")]).collect();
    rig.join_with("bad", &actions(&names), "[]");
    let tools = rig.app_tools();
    assert_eq!(tools.len(), 1 + 4096, "the greatest number of actions of an app");
    assert!(tools.iter().all(|tool| is_allowed(tool)) && tools.contains(&String::from("good__t")));
    rig.agent(&request(1, "tools/list", "{}"));
    assert!(rig.agent_received()[0].len() < 2 << 20, "aliases are short even for long names");
}

/// The two names have the same beginning and the same digest. They were found by a search of three minutes.
#[test]
fn of_two_actions_with_equal_aliases_the_first_is_listed_and_both_can_be_called() {
    let [first, second] = ["BviEZjJ8yYj", "Y_ayhT8mxbo"].map(|end| format!("pay the bill of the customer {end}"));
    let mut rig = Rig::new();
    let bad = rig.join_with("bad", &actions(&[first.clone(), second.clone()]), "[]");
    let other = rig.join_with("other", &actions(std::slice::from_ref(&second)), "[]");
    let tools = rig.app_tools();
    let digits = "352e0bc03be9fa59";
    assert_eq!(tools, ["bad", "other"].map(|app| format!("{app}__pay_the_bill_of_the_customer--{digits}")));
    assert_eq!(called(&mut rig, &tools[0]), Some((bad, first)));
    assert_eq!(called(&mut rig, &tools[1]), Some((other, second.clone())));
    rig.agent(&call_tool("1", "tesseron__invoke_action", &json!({"app_id": "bad", "action": second}).to_string(), None));
    assert_eq!(rig.invoked(bad).name, second);
}
