//! The agent's view of the apps: names of tools, URIs of resources, lists, and notifications of their changes.

use alloc::string::String;
use alloc::vec::Vec;

use super::manifest::{Action, Manifest};
use super::meta;
use super::notifications::Change;
use super::resource_uri::{parts_of, uri_of};
use super::translate;
use super::types::Surface;
use super::{Bridge, Leg, tool_name};
use crate::claims::{AppId, ChannelId};
use protocol_core::dialect::{Reply, ToolOutput};
use protocol_core::json::Json;
use protocol_core::json::read::{Kind, member, string};
use protocol_core::json::write::Object;
use protocol_core::mcp;

/// The number of bytes that a list may still add to a frame. A list gets a quarter of the maximum length of a frame, since escaping the
/// list as text inside JSON may make it nearly four times as long. An app whose entries do not fit is omitted as a whole, so that it does
/// not displace other apps.
pub(super) struct Room(usize);

impl Room {
    /// Adds the entries of one app to `list`, if they fit.
    pub(super) fn admit(&mut self, list: &mut Vec<Json>, of_app: Vec<Json>) {
        let bytes = of_app.iter().map(|entry| entry.as_bytes().len().saturating_add(1)).fold(0, usize::saturating_add);
        if let Some(left) = self.0.checked_sub(bytes) {
            self.0 = left;
            list.extend(of_app);
        }
    }
}

impl Bridge {
    /// Queues notifications that tools and resources have changed.
    pub(super) fn change_surface(&mut self) {
        self.notifications.add(Change::Tools);
        self.notifications.add(Change::Resources);
        self.mark_unprocessed(Leg::Agent);
    }

    /// Sends the queued notifications to the agent, as far as they are due and there is room.
    pub(super) fn send_notifications(&mut self) {
        if self.agent.is_ready() {
            self.notifications.send(&mut self.agent, self.now);
        }
    }

    // ---- Tools ----

    /// The tools that [`Surface`] lists: the bridge's own tools, then those of the apps that serve calls.
    pub(super) fn list_tools(&self) -> Vec<Json> {
        let mut tools = meta::tools(self.config.surface);
        let mut room = self.room();
        if self.config.surface != Surface::Meta {
            for routed in self.registry.routed() {
                let Some(manifest) = self.manifest(routed.channel) else { continue };
                let mut of_app = Vec::new();
                for action in manifest.actions() {
                    // Two actions can have the same tool name: `b__c` of the app `a`, and `c` of the app `a__b`. Only the one that a call
                    // reaches is listed.
                    if self.resolve(action.tool()) == Some((routed.channel, action.name())) {
                        of_app.push(tool(manifest, action));
                    }
                }
                room.admit(&mut tools, of_app);
            }
        }
        tools
    }

    pub(super) fn room(&self) -> Room {
        Room(self.config.agent_limits.frame_bytes / 4)
    }

    /// Finds the app and the action of a tool: the app with the longest matching id that lists such an action. If no app lists it, the app
    /// with the longest matching id is used, since the app may have added the action after it sent its list. An alias leads only to the
    /// action that it was made for.
    pub(super) fn resolve<'a>(&'a self, name: &'a str) -> Option<(ChannelId, &'a str)> {
        if tool_name::is_alias(name) {
            return self.resolve_alias(name);
        }
        let longest = self.registry.resolve(name)?;
        let action_at = name.len().saturating_sub(longest.action.len());
        let (channel, action) = (longest.channel, name.get(action_at..).unwrap_or_default());
        if self.manifest(channel).is_some_and(|manifest| manifest.has_action(action)) {
            return Some((channel, action));
        }
        let mut others = (0..name.len().min(AppId::MAX_BYTES.saturating_add(1))).rev().filter_map(|at| {
            let (app, rest) = name.split_at_checked(at)?;
            let (action, channel) = (rest.strip_prefix("__")?, self.registry.route(app)?);
            self.manifest(channel)?.has_action(action).then_some((channel, action))
        });
        others.next().or(Some((channel, action)))
    }

    /// Finds the app and the action of a tool that is an alias. The alias contains the id of the app, or an abridged id.
    fn resolve_alias(&self, alias: &str) -> Option<(ChannelId, &str)> {
        let app = tool_name::app_of_alias(alias)?;
        let is_meant = |id: &AppId| tool_name::app_in_alias(id.as_str()) == app;
        let abridged = || self.registry.routed().into_iter().find(|routed| is_meant(&routed.app)).map(|routed| routed.channel);
        let channel = self.registry.route(app).or_else(abridged)?;
        Some((channel, self.manifest(channel)?.action_of_alias(alias)?))
    }

    pub(super) fn manifest(&self, channel: ChannelId) -> Option<&Manifest> {
        self.apps.get(&channel)?.manifest()
    }

    /// The reply for an unknown tool: a result with `isError` and no JSON-RPC error, so that the model reads the next step to take.
    pub(super) fn unknown_tool(&self, name: &str) -> Reply {
        let app = name.split_once("__").map_or(name, |(app, _)| app);
        let shown: String = app.chars().take(64).collect();
        Reply::Tool(ToolOutput::error(self.no_session(&shown)))
    }

    // ---- Resources ----

    pub(super) fn list_resources(&self) -> Vec<Json> {
        let mut resources = Vec::new();
        let mut room = self.room();
        for routed in self.registry.routed() {
            let Some(manifest) = self.manifest(routed.channel) else { continue };
            let mut of_app = Vec::new();
            for (name, resource) in manifest.resources() {
                let mut out = Vec::new();
                Object::write(&mut out, |object| {
                    object.string("uri", &uri_of(routed.app.as_str(), name));
                    object.string("name", &alloc::format!("{}__{name}", routed.app));
                    if let Some(description) = member(resource.as_bytes(), "description").filter(|text| string(text).is_some()) {
                        translate::copy(object, "description", description);
                    }
                    object.string("mimeType", "application/json");
                });
                of_app.push(Json::written(out));
            }
            room.admit(&mut resources, of_app);
        }
        resources
    }

    /// Finds the app of a resource, and the name of the resource there. The app need not list the resource.
    pub(super) fn find_resource(&self, uri: &str) -> Option<(ChannelId, String)> {
        let (app, name) = parts_of(uri)?;
        Some((self.registry.route(app)?, name))
    }
}

/// An action in the form of an MCP tool. A missing schema, or one with which clients would reject the whole list, is replaced.
fn tool(manifest: &Manifest, action: &Action) -> Json {
    Object::value(|object| {
        object.string("name", action.tool());
        match action.part("description").filter(|text| string(text).is_some_and(|text| !text.is_empty())) {
            Some(description) => translate::copy(object, "description", description),
            None => object.string("description", &alloc::format!("Action {} from {}", action.name(), manifest.name())),
        }
        let schema = action.part("inputSchema").filter(|schema| mcp::tool_schema_fault(schema).is_none());
        let schema = schema.unwrap_or(br#"{"type":"object","additionalProperties":true}"#);
        translate::copy(object, "inputSchema", schema);
        let hints = action.part("annotations").unwrap_or_default();
        let hints: Vec<_> = [("readOnly", "readOnlyHint"), ("destructive", "destructiveHint")]
            .into_iter()
            .filter_map(|(of_tesseron, of_mcp)| {
                member(hints, of_tesseron).filter(|hint| Kind::of(hint) == Kind::Bool).map(|hint| (of_mcp, hint))
            })
            .collect();
        if !hints.is_empty() {
            object.object("annotations", |object| {
                for (name, hint) in hints {
                    translate::copy(object, name, hint);
                }
            });
        }
    })
}
