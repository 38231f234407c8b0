//! What an app has: its actions and its resources, as far as they are known.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use protocol_core::dialect::PeerInfo;
use protocol_core::json::Json;
use protocol_core::json::read::{member, string};

/// What an app has, as it said.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// What it calls itself.
    id: String,
    /// For people.
    name: String,
    origin: String,
    /// In its own order; of two of one name the first counts.
    actions: Vec<(String, Json)>,
    /// Their names.
    names: BTreeSet<String>,
    resources: Vec<(String, Json)>,
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
            resources: Vec::new(),
        };
        manifest.set_actions(&app.declared.member("actions").unwrap_or_else(Json::null));
        manifest.set_resources(&app.declared.member("resources").unwrap_or_else(Json::null));
        manifest
    }

    /// What the app calls itself.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// What people call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Its actions by name, in its own order.
    pub(super) fn actions(&self) -> &[(String, Json)] {
        &self.actions
    }

    /// Its resources by name, in its own order.
    pub(super) fn resources(&self) -> &[(String, Json)] {
        &self.resources
    }

    pub(super) fn has_action(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn has_resource(&self, name: &str) -> bool {
        self.resources.iter().any(|(known, _)| known == name)
    }

    pub(super) fn set_actions(&mut self, list: &Json) {
        self.actions = by_name(list);
        self.names = self.actions.iter().map(|(name, _)| name.clone()).collect();
    }

    pub(super) fn set_resources(&mut self, list: &Json) {
        self.resources = by_name(list);
    }
}

/// As many actions of an app are known, and as many resources: the first ones.
const ENTRIES: usize = 4096;

/// What has no name cannot be asked for, so it is left out.
fn by_name(list: &Json) -> Vec<(String, Json)> {
    let mut seen = BTreeSet::new();
    let mut named = Vec::new();
    for item in list.elements() {
        if named.len() >= ENTRIES {
            break;
        }
        let name = member(item.as_bytes(), "name").and_then(string).map(Cow::into_owned);
        if let Some(name) = name.filter(|name| seen.insert(name.clone())) {
            named.push((name, item));
        }
    }
    named
}
