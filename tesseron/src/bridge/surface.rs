//! What the agent sees of the apps: names of tools, uris of resources, lists, and the news that they have changed.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::manifest::Manifest;
use super::meta::{self, Surface};
use super::subscription::Subscription;
use super::translate::{self, Purpose};
use super::{Bridge, Leg};
use crate::claims::{AppId, ChannelId};
use protocol_core::dialect::{NotFound, Op, Reply, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::read::{Kind, member, string};
use protocol_core::json::write::Object;
use protocol_core::json::{Json, Text};
use protocol_core::session::{InboundId, Invoke, Outcome};

/// What every uri of a resource begins with.
const SCHEME: &str = "tesseron://";

/// What a list may still take of a frame: a quarter of it in all, since as a text in a text it may grow to nearly four times that. An app that
/// does not fit is left out as a whole, so that none hides the others.
pub(super) struct Room(usize);

impl Room {
    pub(super) fn admit(&mut self, list: &mut Vec<Json>, of_app: Vec<Json>) {
        let bytes = of_app.iter().map(|entry| entry.as_bytes().len().saturating_add(1)).fold(0, usize::saturating_add);
        if let Some(left) = self.0.checked_sub(bytes) {
            self.0 = left;
            list.extend(of_app);
        }
    }
}

impl Bridge {
    /// Tools and resources are others now.
    pub(super) fn change_surface(&mut self) {
        self.news.change_tools();
        self.news.change_resources();
        self.stir(Leg::Agent);
    }

    /// Tells the agent what it does not know, as far as there is room.
    pub(super) fn tell_news(&mut self) {
        if self.agent.is_ready() {
            self.news.tell(&mut self.agent, self.now);
        }
    }

    // ---- Tools ----

    /// The tools of the bridge, then those of the apps that are routed to.
    pub(super) fn list_tools(&self) -> Json {
        let mut tools = meta::tools(self.config.surface);
        let mut room = self.room();
        if self.config.surface != Surface::Meta {
            for routed in self.lobby.routed() {
                let Some(manifest) = self.manifest(routed.channel) else { continue };
                let mut of_app = Vec::new();
                for (name, action) in manifest.actions() {
                    let listed = alloc::format!("{}__{name}", routed.app);
                    // Two apps can come to the same name: `a` with `b__c`, and `a__b` with `c`. It is listed where it leads.
                    if self.resolve(&listed).is_some_and(|(channel, _)| channel == routed.channel) {
                        of_app.push(tool(&listed, manifest, name, action));
                    }
                }
                room.admit(&mut tools, of_app);
            }
        }
        translate::list("tools", &tools, |out, tool: &Json| out.extend_from_slice(tool.as_bytes()))
    }

    pub(super) fn room(&self) -> Room {
        Room(self.config.agent_limits.frame_bytes / 4)
    }

    /// Where a tool's name leads: to the app with the longest id that has such an action; if none has, to that with the longest id, which
    /// may have learned of it since.
    pub(super) fn resolve<'a>(&self, name: &'a str) -> Option<(ChannelId, &'a str)> {
        let longest = self.lobby.resolve(name)?;
        let first = name.len().saturating_sub(longest.action.len());
        let (channel, action) = (longest.channel, name.get(first..).unwrap_or_default());
        if self.manifest(channel).is_some_and(|manifest| manifest.has_action(action)) {
            return Some((channel, action));
        }
        let mut others = (0..name.len().min(AppId::LONGEST.saturating_add(1))).rev().filter_map(|at| {
            let (app, rest) = name.split_at_checked(at)?;
            let (action, channel) = (rest.strip_prefix("__")?, self.lobby.route(app)?);
            self.manifest(channel)?.has_action(action).then_some((channel, action))
        });
        others.next().or(Some((channel, action)))
    }

    pub(super) fn manifest(&self, channel: ChannelId) -> Option<&Manifest> {
        self.apps.get(&channel)?.manifest()
    }

    /// A result, so that the model can read how to go on.
    pub(super) fn unknown_tool(&self, name: &str) -> Reply {
        let app = name.split_once("__").map_or(name, |(app, _)| app);
        let shown: String = app.chars().take(64).collect();
        Reply::Tool(ToolOutput::error(self.no_session(&shown)))
    }

    // ---- Resources ----

    pub(super) fn list_resources(&self) -> Json {
        let mut resources = Vec::new();
        let mut room = self.room();
        for routed in self.lobby.routed() {
            let Some(manifest) = self.manifest(routed.channel) else { continue };
            let mut of_app = Vec::new();
            for (name, resource) in manifest.resources() {
                let mut out = Vec::new();
                Object::write(&mut out, |object| {
                    object.string("uri", &uri_of(routed.app.as_str(), name));
                    object.string("name", &alloc::format!("{}__{name}", routed.app));
                    if let Some(description) = member(resource.as_bytes(), "description") {
                        translate::copy(object, "description", description);
                    }
                    object.string("mimeType", "application/json");
                });
                of_app.push(Json::written(out));
            }
            room.admit(&mut resources, of_app);
        }
        translate::list("resources", &resources, |out, resource: &Json| out.extend_from_slice(resource.as_bytes()))
    }

    /// Where a resource is, and what its app calls it.
    pub(super) fn find_resource(&self, uri: &str) -> Option<(ChannelId, String)> {
        let (app, name) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        Some((self.lobby.route(app)?, decoded(name)))
    }

    pub(super) fn subscribe(&mut self, id: InboundId, params: &Json) {
        let uri = params.member("uri").and_then(|uri| uri.as_text());
        let Some(uri) = uri else { return self.reply(id, Reply::Error(RpcError::invalid_params("uri must be text"))) };
        if let Some(subscription) = self.subscriptions.get_mut(&uri) {
            if !subscription.join(id) {
                self.reply(id, Reply::Done);
            }
            return;
        }
        if self.subscriptions.len() >= self.config.agent_limits.in_flight {
            return self.reply(id, Reply::Error(RpcError::fixed(RpcError::BUSY, "too many subscriptions")));
        }
        let Some((channel, resource)) = self.find_resource(&uri) else {
            return self.reply(id, Reply::NotFound(NotFound::Resource(uri)));
        };
        self.subscribed = self.subscribed.saturating_add(1);
        let name = Text::from(alloc::format!("sub_{}", self.subscribed));
        let mut out = Vec::new();
        Object::write(&mut out, |object| {
            object.string("uri", &resource);
            object.string("subscriptionId", &name);
        });
        // Known before it is asked for: the first value may come before the answer.
        self.subscriptions.insert(uri.clone(), Subscription::new(channel, name.clone(), id));
        let call = Invoke::new(Op::Subscribe, Json::written(out));
        if let Err(why) = self.start_at_app(channel, call, Purpose::Subscribe { uri: uri.clone(), name }) {
            self.subscriptions.remove(&uri);
            self.reply(id, Reply::Error(why));
        }
    }

    pub(super) fn end_subscribe(&mut self, uri: &Text, name: &Text, outcome: Outcome) {
        let Some(subscription) = self.subscriptions.get_mut(uri).filter(|subscription| subscription.name() == name) else { return };
        let waiting = subscription.agree();
        let reply = match outcome {
            Outcome::Result(_) => Reply::Done,
            Outcome::Error(error) => Reply::Error(error),
            _ => Reply::Error(RpcError::fixed(RpcError::INTERNAL, "Transport closed: the app is gone")),
        };
        if reply != Reply::Done {
            self.subscriptions.remove(uri);
        }
        for id in waiting {
            self.reply(id, reply.clone());
        }
    }

    /// The agent waits for a subscription no longer. One that nobody else waits for, and that was not agreed on, is taken back.
    pub(super) fn forget_subscriber(&mut self, id: InboundId) {
        let found = self.subscriptions.iter_mut().find(|(_, subscription)| subscription.has_waiting(id));
        let Some((uri, subscription)) = found else { return };
        subscription.leave(id);
        if subscription.waiting() == 0 {
            let uri = uri.clone();
            // If the app has no room for it the agent is told of a value that it does not want.
            let _ = self.drop_subscription(&uri);
        }
    }

    /// Takes a subscription back at its app. An app that is busy keeps it, and this says so.
    fn drop_subscription(&mut self, uri: &Text) -> Result<(), RpcError> {
        let Some(subscription) = self.subscriptions.get(uri).cloned() else { return Ok(()) };
        let mut out = Vec::new();
        Object::write(&mut out, |object| object.string("subscriptionId", subscription.name()));
        let call = Invoke::new(Op::Unsubscribe, Json::written(out));
        if let Err(error) = self.start_at_app(subscription.channel(), call, Purpose::Unsubscribe)
            && error.code == RpcError::BUSY
        {
            return Err(error);
        }
        // Any other refusal is that of an app that is about to go, and its subscriptions with it.
        self.subscriptions.remove(uri);
        self.news.forget(uri);
        for waiting in subscription.end() {
            self.reply(waiting, Reply::Done);
        }
        Ok(())
    }

    /// What was never subscribed is well.
    pub(super) fn unsubscribe(&mut self, id: InboundId, params: &Json) {
        let uri = params.member("uri").and_then(|uri| uri.as_text());
        let Some(uri) = uri else { return self.reply(id, Reply::Error(RpcError::invalid_params("uri must be text"))) };
        let dropped = self.drop_subscription(&uri);
        self.reply(id, dropped.map_or_else(Reply::Error, |()| Reply::Done));
    }

    pub(super) fn pass_update(&mut self, channel: ChannelId, name: &Text) {
        let subscribed = |subscription: &Subscription| subscription.channel() == channel && subscription.name() == name;
        let uri = self.subscriptions.iter().find(|(_, subscription)| subscribed(subscription)).map(|(uri, _)| uri.clone());
        if let Some(uri) = uri {
            self.news.update(uri);
            self.stir(Leg::Agent);
        }
    }
}

/// An action as MCP describes a tool. A schema that is none would make clients throw the whole list away.
fn tool(listed: &str, manifest: &Manifest, name: &str, action: &Json) -> Json {
    let part = |name: &str| member(action.as_bytes(), name);
    Object::value(|object| {
        object.string("name", listed);
        match part("description").filter(|text| string(text).is_some_and(|text| !text.is_empty())) {
            Some(description) => translate::copy(object, "description", description),
            None => object.string("description", &alloc::format!("Action {name} from {}", manifest.name())),
        }
        let is_object = |&schema: &&[u8]| member(schema, "type").and_then(string).as_deref() == Some("object");
        let schema = part("inputSchema").filter(is_object).unwrap_or(br#"{"type":"object","additionalProperties":true}"#);
        translate::copy(object, "inputSchema", schema);
        let hints = part("annotations").unwrap_or_default();
        let hints: Vec<_> = [("readOnly", "readOnlyHint"), ("destructive", "destructiveHint")]
            .into_iter()
            .filter_map(|(theirs, ours)| member(hints, theirs).filter(|hint| Kind::of(hint) == Kind::Bool).map(|hint| (ours, hint)))
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

pub(super) fn no_templates() -> Json {
    translate::list("resourceTemplates", core::iter::empty::<&Json>(), |_, _| {})
}

/// The uri of a resource: whatever could be taken for another part of a uri is encoded (RFC 3986, section 2.1).
pub(super) fn uri_of(app: &str, name: &str) -> String {
    let mut uri = alloc::format!("{SCHEME}{app}/");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&alloc::format!("%{byte:02X}"));
        }
    }
    uri
}

/// What is not properly encoded stands for itself.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => String::from(text),
        // Bytes that are no text name nothing that a manifest could.
        Cow::Owned(_) => String::from(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_resource_comes_back_out_of_its_uri() {
        for name in ["balance", "a b", "100%", "x?y#z", "ü/ö", "%41", "a%2", "\u{1f600}"] {
            let uri = uri_of("app", name);
            assert!(!uri.contains(' ') && !uri.contains('#') && !uri.contains('?'), "{uri}");
            assert_eq!(decoded(uri.strip_prefix("tesseron://app/").unwrap()), name);
        }
        assert_eq!(decoded("%ff"), "%ff");
        assert_eq!(decoded("a%+1"), "a%+1");
    }
}
