//! The tools, prompts and resources of a service, and the handle that changes them while sessions run.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

use super::handler::{Needs, States};
use super::{Prompt, Refused, Resource, ResourceTemplate, Tool, prompt, resource, tool};
use crate::state::{ListKind, Shared};
use protocol_core::dialect::{Notification, tesseron};
use protocol_core::json::Json;

/// Adds and removes the tools, prompts and resources of a [`Service`](crate::Service) while it is served. Cloneable.
///
/// Made by [`Service::catalog`](crate::Service::catalog). Each change is announced to the peers of all sessions that begin after the
/// catalog was made. On MCP the announcement is `notifications/tools/list_changed`, or the same for prompts or resources; in MCP 2026-07-28
/// only subscriptions get it. On Tesseron it is `actions/list_changed` or `resources/list_changed`, with the new list; there are no
/// prompts. Several changes of a list in quick succession are announced once. Running calls of a tool that was removed go on.
///
/// ```
/// use endpoint::{Context, Service, Tool};
///
/// let mut service = Service::new("greeter", "1.0");
/// let catalog = service.catalog();
/// let service = std::sync::Arc::new(service);
///
/// // Later, while `service` is served:
/// catalog.add_tool(Tool::new("greet", async |_: Context, ()| Ok("hello")))?;
/// assert!(catalog.remove_tool("greet"));
/// # drop(service);
/// # Ok::<(), endpoint::Refused>(())
/// ```
#[derive(Clone, Default)]
pub struct Catalog(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: RwLock<Entries>,
    sessions: Mutex<Sessions>,
    /// The states of the service, once it is shared. Then each further entry is checked for them at once.
    states: OnceLock<States>,
}

/// The entries of a service by name, each with its description as it is sent to peers.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) tools: BTreeMap<String, (Tool, Json)>,
    pub(crate) prompts: BTreeMap<String, (Prompt, Json)>,
    pub(crate) resources: BTreeMap<String, (Resource, Json)>,
    pub(crate) templates: BTreeMap<String, (ResourceTemplate, Json)>,
    /// The number of changes since the service was made. A removal that finds nothing counts, too.
    changes: u64,
}

impl Entries {
    /// The actions of the manifest of a Tesseron app. `timeout` is the default timeout of a tool.
    pub(crate) fn actions(&self, timeout: Option<Duration>) -> impl Iterator<Item = Json> {
        self.tools.values().map(move |(tool, description)| tesseron::action(description, tool.options.deadline.or(timeout)))
    }

    /// The resources of the manifest of a Tesseron app.
    pub(crate) fn manifest_resources(&self) -> impl Iterator<Item = Json> {
        self.resources.values().map(|(resource, description)| tesseron::resource(description, resource.subscribable))
    }
}

impl Entries {
    /// Returns `true` if peers can subscribe to the resource `uri`.
    pub(crate) fn is_subscribable(&self, uri: &str) -> bool {
        match self.resources.get(uri) {
            Some((resource, _)) => resource.subscribable,
            None => self.templates.values().any(|(template, _)| template.subscribable && template.matches(uri).is_some()),
        }
    }

    /// Returns `true` if peers can subscribe to a resource.
    pub(crate) fn has_subscribable(&self) -> bool {
        self.resources.values().any(|(resource, _)| resource.subscribable)
            || self.templates.values().any(|(template, _)| template.subscribable)
    }
}

/// What becomes of an entry of the same name.
#[derive(Clone, Copy)]
pub(super) enum Insert {
    /// There must be none.
    New,
    OrReplace,
}

/// The sessions whose peers are notified of changes, in the order in which they began.
#[derive(Default)]
struct Sessions {
    watchers: BTreeMap<u64, Watcher>,
    next_number: u64,
}

/// A session whose peer is notified of changes.
struct Watcher {
    session: Weak<Shared>,
    audience: Audience,
}

/// A guard of the entry of a session in the catalog. Dropping it removes the entry, which otherwise keeps the memory of the session
/// allocated.
pub(crate) struct WatcherGuard {
    catalog: Catalog,
    number: u64,
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.catalog.sessions().watchers.remove(&self.number);
    }
}

/// The kind of peer that is notified.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Audience {
    /// An MCP client, which requests the list again.
    Client,
    /// A Tesseron gateway, which is sent the whole list. `timeout` is the default timeout of an action.
    Gateway { timeout: Option<Duration> },
}

impl Audience {
    /// The notification that `list` changed; `None` if the protocol has no such list: Tesseron has no prompts.
    fn notification(self, list: ListKind, entries: &Entries) -> Option<Notification> {
        match (self, list) {
            (Self::Client, ListKind::Tools) => Some(Notification::ToolsChanged),
            (Self::Client, ListKind::Prompts) => Some(Notification::PromptsChanged),
            (Self::Client, ListKind::Resources) => Some(Notification::ResourcesChanged),
            (Self::Gateway { timeout }, ListKind::Tools) => Some(Notification::Actions(Json::array(entries.actions(timeout)))),
            (Self::Gateway { .. }, ListKind::Prompts) => None,
            (Self::Gateway { .. }, ListKind::Resources) => Some(Notification::Resources(Json::array(entries.manifest_resources()))),
        }
    }
}

impl Catalog {
    /// Adds a tool, or replaces the tool with the same name.
    ///
    /// # Errors
    /// As for [`Service::try_tool`](crate::Service::try_tool). Nothing is changed then.
    pub fn add_tool(&self, tool: Tool) -> Result<(), Refused> {
        self.insert_tool(tool, Insert::OrReplace)?;
        self.announce(ListKind::Tools);
        Ok(())
    }

    /// Removes a tool. Returns `false` if there is no tool of that name; then peers are not notified.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.remove(ListKind::Tools, name, |entries| &mut entries.tools)
    }

    /// Adds a prompt, or replaces the prompt with the same name.
    ///
    /// # Errors
    /// As for [`Service::try_prompt`](crate::Service::try_prompt). Nothing is changed then.
    pub fn add_prompt(&self, prompt: Prompt) -> Result<(), Refused> {
        self.insert_prompt(prompt, Insert::OrReplace)?;
        self.announce(ListKind::Prompts);
        Ok(())
    }

    /// Removes a prompt. Returns `false` if there is no prompt of that name.
    pub fn remove_prompt(&self, name: &str) -> bool {
        self.remove(ListKind::Prompts, name, |entries| &mut entries.prompts)
    }

    /// Adds a resource, or replaces the resource with the same URI.
    ///
    /// # Errors
    /// [`Refused`] if it takes a [`State`](crate::State) that the service does not have. Nothing is changed then.
    pub fn add_resource(&self, resource: Resource) -> Result<(), Refused> {
        self.insert_resource(resource, Insert::OrReplace)?;
        self.announce(ListKind::Resources);
        Ok(())
    }

    /// Removes a resource. Returns `false` if there is no resource with that URI. The subscriptions to it remain: subscribers still receive
    /// the values that are passed to [`Peer::update`](crate::Peer::update), but no further [`Updates`](crate::Updates).
    pub fn remove_resource(&self, uri: &str) -> bool {
        self.remove(ListKind::Resources, uri, |entries| &mut entries.resources)
    }

    /// Adds a resource template, or replaces the template with the same text.
    ///
    /// # Errors
    /// As for [`Catalog::add_resource`]. Nothing is changed then.
    pub fn add_resource_template(&self, template: ResourceTemplate) -> Result<(), Refused> {
        self.insert_resource_template(template, Insert::OrReplace)?;
        self.announce(ListKind::Resources);
        Ok(())
    }

    /// Removes a resource template. Returns `false` if there is none with exactly this text.
    pub fn remove_resource_template(&self, template: &str) -> bool {
        self.remove(ListKind::Resources, template, |entries| &mut entries.templates)
    }

    pub(super) fn insert_tool(&self, tool: Tool, how: Insert) -> Result<(), Refused> {
        if let Some(reason) = tool.refusal() {
            return Err(Refused { kind: tool::KIND, name: tool.name, reason });
        }
        let description = tool.describe();
        self.insert(
            tool::KIND,
            how,
            tool.name.clone(),
            (tool, description),
            |(tool, _)| &tool.needs_states,
            |entries| &mut entries.tools,
        )
    }

    pub(super) fn insert_prompt(&self, prompt: Prompt, how: Insert) -> Result<(), Refused> {
        if let Some(reason) = prompt.refusal() {
            return Err(Refused { kind: prompt::KIND, name: prompt.name, reason });
        }
        let description = prompt.describe();
        self.insert(
            prompt::KIND,
            how,
            prompt.name.clone(),
            (prompt, description),
            |(prompt, _)| &prompt.needs_states,
            |entries| &mut entries.prompts,
        )
    }

    pub(super) fn insert_resource(&self, resource: Resource, how: Insert) -> Result<(), Refused> {
        let (description, uri) = (resource.describe(), resource.uri.clone());
        self.insert(
            resource::KIND,
            how,
            uri,
            (resource, description),
            |(resource, _)| &resource.needs_states,
            |entries| &mut entries.resources,
        )
    }

    pub(super) fn insert_resource_template(&self, template: ResourceTemplate, how: Insert) -> Result<(), Refused> {
        if let Some(reason) = template.refusal() {
            return Err(Refused { kind: resource::TEMPLATE_KIND, name: template.template, reason });
        }
        let (description, uri) = (template.describe(), template.template.clone());
        self.insert(
            resource::TEMPLATE_KIND,
            how,
            uri,
            (template, description),
            |(template, _)| &template.needs_states,
            |entries| &mut entries.templates,
        )
    }

    /// Checks that each entry gets the states that it takes of `states`.
    pub(super) fn check(&self, states: &States) -> Result<(), Refused> {
        self.checked(states).map(drop)
    }

    /// Checks the entries for `states`, which are those of the service from now on.
    pub(super) fn share(&self, states: &States) -> Result<(), Refused> {
        // While the entries are locked, so that each is checked here or when it is added.
        let _entries = self.checked(states)?;
        self.0.states.get_or_init(|| states.clone());
        Ok(())
    }

    fn checked(&self, states: &States) -> Result<RwLockReadGuard<'_, Entries>, Refused> {
        let entries = self.entries();
        let tools = entries.tools.iter().map(|(name, (tool, _))| (tool::KIND, name, &tool.needs_states));
        let prompts = entries.prompts.iter().map(|(name, (prompt, _))| (prompt::KIND, name, &prompt.needs_states));
        let resources = entries.resources.iter().map(|(uri, (resource, _))| (resource::KIND, uri, &resource.needs_states));
        let templates = entries.templates.iter().map(|(uri, (template, _))| (resource::TEMPLATE_KIND, uri, &template.needs_states));
        let mut all = tools.chain(prompts).chain(resources).chain(templates);
        all.try_for_each(|(kind, name, needs)| check_states(states, kind, name, needs))?;
        Ok(entries)
    }

    /// Returns `true` once the entries were checked for the states of the service.
    pub(super) fn is_shared(&self) -> bool {
        self.0.states.get().is_some()
    }

    /// The entries, locked for reading. While the guard lives, no code of the application may run. The holder of the guard may lock a
    /// session, so code that has locked a session must not call this method.
    pub(crate) fn entries(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        let mut entries = self.0.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.changes = entries.changes.saturating_add(1);
        change(&mut entries)
    }

    fn insert<E>(
        &self,
        kind: &'static str,
        how: Insert,
        name: String,
        entry: E,
        needs: fn(&E) -> &Needs,
        map: fn(&mut Entries) -> &mut BTreeMap<String, E>,
    ) -> Result<(), Refused> {
        // What is replaced is dropped outside of the lock, since a handler may have captured values of the application.
        let replaced = self.change(|entries| {
            // Before the service is shared it may still be given a state.
            if let Some(states) = self.0.states.get() {
                check_states(states, kind, &name, needs(&entry))?;
            }
            match how {
                Insert::New if map(entries).contains_key(&name) => Err(Refused::duplicate(kind, name)),
                Insert::New | Insert::OrReplace => Ok(map(entries).insert(name, entry)),
            }
        });
        replaced.map(drop)
    }

    /// Takes all entries.
    pub(super) fn take(&self) -> Entries {
        self.change(core::mem::take)
    }

    fn remove<E>(&self, list: ListKind, name: &str, map: fn(&mut Entries) -> &mut BTreeMap<String, E>) -> bool {
        let removed = self.change(|entries| map(entries).remove(name)).is_some();
        if removed {
            self.announce(list);
        }
        removed
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the peer of `session` of every change from now on, until the guard is dropped. `may_have_changed` if the entries may have
    /// changed since the configuration of the session was made.
    #[must_use]
    pub(crate) fn watch(&self, session: &Arc<Shared>, audience: Audience, may_have_changed: bool) -> WatcherGuard {
        let mut sessions = self.sessions();
        let number = sessions.next_number;
        sessions.next_number = number.wrapping_add(1);
        sessions.watchers.insert(number, Watcher { session: Arc::downgrade(session), audience });
        drop(sessions);
        let guard = WatcherGuard { catalog: self.clone(), number };
        // The manifest that an app was configured with may be older than the last change. An MCP client needs nothing here: it requests the
        // lists after the handshake.
        if may_have_changed && matches!(audience, Audience::Gateway { .. }) {
            for list in [ListKind::Tools, ListKind::Resources] {
                self.notify(session, audience, list);
            }
        }
        guard
    }

    /// The sessions that are open, each with the kind of its peer.
    pub(super) fn watchers(&self) -> Vec<(Arc<Shared>, Audience)> {
        let alive = |watcher: &Watcher| Some((watcher.session.upgrade()?, watcher.audience));
        self.sessions().watchers.values().filter_map(alive).collect()
    }

    fn announce(&self, list: ListKind) {
        for (session, audience) in self.watchers() {
            self.notify(&session, audience, list);
        }
    }

    /// Announces a change of `list` that is none of its entries here.
    pub(super) fn announce_again(&self, list: ListKind) {
        self.change(|_| ());
        self.announce(list);
    }

    /// The states of the service, once it is shared.
    pub(super) fn states(&self) -> States {
        self.0.states.get().cloned().unwrap_or_default()
    }

    fn notify(&self, session: &Shared, audience: Audience, list: ListKind) {
        let entries = self.entries();
        let (number, notification) = (entries.changes, audience.notification(list, &entries));
        drop(entries);
        if let Some(notification) = notification {
            session.verb(|state, _, effects| {
                state.list_changes.put(list, number, notification);
                effects.output();
            });
        }
    }
}

/// Checks that the handler of this name gets the states that it takes.
pub(super) fn check_states(states: &States, kind: &'static str, name: &str, needs: &Needs) -> Result<(), Refused> {
    needs.refusal(states).map_or(Ok(()), |reason| Err(Refused { kind, name: name.into(), reason }))
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        f.debug_struct("Catalog")
            .field("tools", &entries.tools.keys())
            .field("prompts", &entries.prompts.keys())
            .field("resources", &entries.resources.keys())
            .field("resource_templates", &entries.templates.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Executor;
    use crate::{Endpoint, Service};

    /// A regression: the entry of an ended session was removed only when the list was about to grow, and kept the memory of the session.
    /// So a server kept several kilobytes for each of the sessions that had once been open at the same time.
    #[test]
    fn a_session_that_has_ended_leaves_no_entry() {
        let mut service = Service::new("server", "1");
        let catalog = service.catalog();
        let service = Arc::new(service);
        let begin = || Endpoint::server(Arc::clone(&service), Arc::new(Executor::new()));
        let endpoints = [begin(), begin(), begin()];
        assert_eq!(catalog.sessions().watchers.len(), 3);
        drop(endpoints);
        assert_eq!(catalog.sessions().watchers.len(), 0);
    }
}
