//! The actions and resources of an app. (The file by which a gateway finds an app is also called a manifest; see `net`.)

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::tool_name;
use protocol_core::dialect::PeerInfo;
use protocol_core::json::Json;
use protocol_core::json::read::{member, string};

/// The actions and resources of an app, as the app has listed them.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// The id of the app.
    id: String,
    /// The name of the app, for people.
    name: String,
    origin: String,
    /// The actions, in the order in which the app lists them. Of two actions with the same name the first counts.
    actions: Vec<Action>,
    /// The names of the actions.
    names: BTreeSet<String>,
    /// The indexes of the actions whose tools are listed under an alias, by alias. Of two actions with the same alias the first counts.
    aliases: BTreeMap<String, usize>,
    resources: Vec<(String, Json)>,
}

/// An action.
#[derive(Clone, Debug)]
pub(super) struct Action {
    name: String,
    tool: String,
    /// The app's description of the action.
    described: Json,
}

impl Action {
    /// The name of the action.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name of the tool that is listed to the agent.
    pub(super) fn tool(&self) -> &str {
        &self.tool
    }

    /// The member `name` of the app's description, as JSON.
    pub(super) fn part(&self, name: &str) -> Option<&[u8]> {
        member(self.described.as_bytes(), name)
    }
}

impl Manifest {
    pub(super) fn read(app: &PeerInfo) -> Self {
        let origin = app.declared.member("app").and_then(|app| app.member("origin")).and_then(|origin| origin.as_text());
        let mut manifest = Self {
            id: app.identity.name.clone(),
            name: app.identity.title.clone().unwrap_or_else(|| app.identity.name.clone()),
            origin: origin.map_or_else(String::new, |origin| String::from(origin.as_str())),
            actions: Vec::new(),
            names: BTreeSet::new(),
            aliases: BTreeMap::new(),
            resources: Vec::new(),
        };
        manifest.set_actions(&app.declared.member("actions").unwrap_or_else(Json::null));
        manifest.set_resources(&app.declared.member("resources").unwrap_or_else(Json::null));
        manifest
    }

    /// The id of the app.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The name of the app, for people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The actions, in the order in which the app lists them.
    pub(super) fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The resources with their names, in the order in which the app lists them.
    pub(super) fn resources(&self) -> &[(String, Json)] {
        &self.resources
    }

    pub(super) fn has_action(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The name of the action whose tool has `alias`.
    pub(super) fn action_of_alias(&self, alias: &str) -> Option<&str> {
        self.actions.get(*self.aliases.get(alias)?).map(Action::name)
    }

    pub(super) fn has_resource(&self, name: &str) -> bool {
        self.resources.iter().any(|(known, _)| known == name)
    }

    pub(super) fn set_actions(&mut self, list: &Json) {
        let id = &self.id;
        let action = |(name, described): (String, Json)| Action { tool: tool_name::of_action(id, &name), name, described };
        self.actions = by_name(list).into_iter().map(action).collect();
        self.names = self.actions.iter().map(|action| action.name.clone()).collect();
        self.aliases.clear();
        for (index, action) in self.actions.iter().enumerate().filter(|(_, action)| tool_name::is_alias(&action.tool)) {
            self.aliases.entry(action.tool.clone()).or_insert(index);
        }
    }

    pub(super) fn set_resources(&mut self, list: &Json) {
        self.resources = by_name(list);
    }
}

/// The maximum number of actions of an app, and of its resources. Later ones are ignored.
const MAX_ENTRIES: usize = 4096;

/// The entries of `list` with their names, at most [`MAX_ENTRIES`]. An entry without a name, or with the name of an earlier one, is
/// dropped. Half of a surrogate pair in a description becomes U+FFFD, since clients would reject the whole list.
fn by_name(list: &Json) -> Vec<(String, Json)> {
    let mut seen = BTreeSet::new();
    let mut named = Vec::new();
    for item in list.elements() {
        if named.len() >= MAX_ENTRIES {
            break;
        }
        let name = member(item.as_bytes(), "name").and_then(string).map(Cow::into_owned);
        if let Some(name) = name.filter(|name| seen.insert(name.clone())) {
            named.push((name, item.mended().unwrap_or(item)));
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen in the field: a description that was cut within a character.
    #[test]
    fn a_description_with_half_of_a_surrogate_pair_is_mended() {
        let list = Json::parse(r#"[{"name":"a","description":"cut \ud83d"},{"name":"\ud83d"},{"name":"b"}]"#).unwrap();
        let entries = by_name(&list);
        let entries: Vec<_> = entries.iter().map(|(name, entry)| (&**name, entry.as_str())).collect();
        assert_eq!(entries, [("a", r#"{"name":"a","description":"cut \ufffd"}"#), ("b", r#"{"name":"b"}"#)]);
    }
}
