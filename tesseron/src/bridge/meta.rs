//! The bridge's own tools, with which the agent claims an app, calls any action and reads any resource.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::iso::iso_8601;
use super::manifest::Manifest;
use super::resource_uri::uri_of;
use super::translate::{self, Purpose};
use super::types::{Advertised, Claiming, Surface};
use super::{Bridge, BridgeEvent, ClaimId, Route};
use crate::claims::{ChannelId, ClaimCode, ClaimMissed};
use protocol_core::dialect::{Op, Reply, ToolOutput, mcp};
use protocol_core::json::Json;
use protocol_core::json::read::member;
use protocol_core::json::write::{Object, pretty};
use protocol_core::session::{Close, InboundId, Invoke};

/// One of the bridge's own tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    ClaimSession,
    ListActions,
    InvokeAction,
    ReadResource,
    ListPendingClaims,
}

impl Tool {
    const ALL: [(Self, &'static str); 5] = [
        (Self::ClaimSession, "tesseron__claim_session"),
        (Self::ListActions, "tesseron__list_actions"),
        (Self::InvokeAction, "tesseron__invoke_action"),
        (Self::ReadResource, "tesseron__read_resource"),
        (Self::ListPendingClaims, "tesseron__list_pending_claims"),
    ];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(tool, _)| tool)
    }

    /// The description for the model: the purpose of the tool, and the next step if it fails.
    const fn description(self) -> &'static str {
        match self {
            Self::ClaimSession => {
                "Claim an app with the code that it shows to its user, so that its actions can be called. A code is good once: after the \
                 app or this server has been restarted, the app shows another one. If a code is refused, call \
                 tesseron__list_pending_claims to see which apps wait, and ask the user which code the app shows now."
            }
            Self::ListActions => {
                "List the claimed apps with their actions and resources. Actions that the tool list does not show can be called with \
                 tesseron__invoke_action. If an app is missing, it waits to be claimed: call tesseron__list_pending_claims."
            }
            Self::InvokeAction => {
                "Call an action of a claimed app by its own name, also one that the tool list does not show. Where no claimed session is \
                 found, the app was restarted or has gone: call tesseron__list_pending_claims, claim it anew, and call again."
            }
            Self::ReadResource => {
                "Read a resource of a claimed app by its own name; tesseron__list_actions tells the names. Where no claimed session is \
                 found, the app was restarted or has gone: call tesseron__list_pending_claims, claim it anew, and read again."
            }
            Self::ListPendingClaims => {
                "List the apps that wait to be claimed, newest first. The way back when a session was lost: if the app that was in use is \
                 among them, ask the user for the code that it shows, and call tesseron__claim_session with it. If it is not, ask the \
                 user to open or reload it."
            }
        }
    }

    const fn schema(self) -> &'static str {
        match self {
            Self::ClaimSession => {
                r#"{"type":"object","properties":{"code":{"type":"string","description":"As shown, like ABCD-EF"}},"required":["code"]}"#
            }
            Self::ListActions | Self::ListPendingClaims => r#"{"type":"object","properties":{}}"#,
            Self::InvokeAction => {
                r#"{"type":"object","properties":{"app_id":{"type":"string"},"action":{"type":"string"},"args":{"type":"object","additionalProperties":true}},"required":["app_id","action"]}"#
            }
            Self::ReadResource => {
                r#"{"type":"object","properties":{"app_id":{"type":"string"},"name":{"type":"string"}},"required":["app_id","name"]}"#
            }
        }
    }
}

/// The bridge's own tools that are listed, in the form of MCP tools.
pub(super) fn tools(surface: Surface) -> Vec<Json> {
    let listed = |tool: Tool| surface != Surface::Dynamic || tool == Tool::ClaimSession;
    let described = Tool::ALL.into_iter().filter(|(tool, _)| listed(*tool)).map(|(tool, name)| {
        let mut out = Vec::new();
        Object::write(&mut out, |object| {
            object.string("name", name);
            object.string("description", tool.description());
            translate::copy(object, "inputSchema", tool.schema().as_bytes());
        });
        Json::written(out)
    });
    described.collect()
}

impl Bridge {
    /// Handles a call of one of the bridge's own tools.
    pub(super) fn call_meta(&mut self, id: InboundId, tool: Tool, arguments: Option<Json>, depth: u8) {
        let arguments = arguments.unwrap_or_else(Json::empty_object);
        let text = |name: &str| arguments.member(name).and_then(|value| value.as_text());
        let missing = |name: &str| Reply::Tool(ToolOutput::error(alloc::format!("invalid arguments: {name} must be text")));
        match tool {
            Tool::ClaimSession => match text("code") {
                Some(code) => self.claim(id, &code),
                None => self.reply(id, missing("code")),
            },
            Tool::ListActions => self.reply(id, Reply::Tool(ToolOutput::text(self.describe_apps()))),
            Tool::ListPendingClaims => self.reply(id, Reply::Tool(ToolOutput::text(self.describe_pending()))),
            Tool::InvokeAction => match (text("app_id"), text("action")) {
                (Some(app), Some(action)) => match self.registry.route(&app) {
                    Some(channel) => self.call_action(id, channel, action, arguments.member("args"), depth),
                    None => self.reply(id, Reply::Tool(ToolOutput::error(self.no_session(&app)))),
                },
                (None, _) => self.reply(id, missing("app_id")),
                (_, None) => self.reply(id, missing("action")),
            },
            Tool::ReadResource => match (text("app_id"), text("name")) {
                (Some(app), Some(name)) => self.read_by_name(id, &app, &name),
                (None, _) => self.reply(id, missing("app_id")),
                (_, None) => self.reply(id, missing("name")),
            },
        }
    }

    fn read_by_name(&mut self, id: InboundId, app: &str, name: &str) {
        let Some(channel) = self.registry.route(app) else {
            return self.reply(id, Reply::Tool(ToolOutput::error(self.no_session(app))));
        };
        if let Some(manifest) = self.manifest(channel)
            && !manifest.has_resource(name)
        {
            let known: Vec<_> = manifest.resources().iter().map(|(known, _)| known.as_str()).collect();
            let known = if known.is_empty() { String::from("none") } else { known.join(", ") };
            let shown: String = name.chars().take(64).collect();
            let text = alloc::format!("{app} has no resource {shown:?}. It has: {known}");
            return self.reply(id, Reply::Tool(ToolOutput::error(text)));
        }
        let call = Invoke::read_resource(name);
        if let Err(why) = self.start_at_app(channel, call, Purpose::ResourceText(id)) {
            self.reply(id, Reply::Tool(ToolOutput::error(why.message)));
        }
    }

    // ---- Claims ----

    fn claim(&mut self, id: InboundId, text: &str) {
        match self.registry.claim(text, self.epoch_ms()) {
            Ok(claimed) => {
                self.last_refused = None;
                if claimed.first {
                    if let Some(app) = self.apps.get_mut(&claimed.channel) {
                        app.claim(&self.agent_profile, claimed.claimed_at, self.now);
                    }
                    self.mark_unprocessed(super::Leg::App(claimed.channel));
                    self.change_surface();
                    self.emit(BridgeEvent::AppClaimed { channel: claimed.channel });
                }
                self.reply(id, Reply::Tool(ToolOutput::text(self.describe_claimed(claimed.channel))));
            }
            Err(ClaimMissed::Unknown) => match ClaimCode::parse(text) {
                Ok(code) => self.look_for(id, code),
                Err(why) => self.reply(id, Reply::Tool(ToolOutput::error(why.to_string()))),
            },
            Err(why) => self.reply(id, Reply::Tool(ToolOutput::error(why.to_string()))),
        }
    }

    /// Asks the owner to find the app with this code, since no connected app has it.
    fn look_for(&mut self, id: InboundId, code: ClaimCode) {
        if self.claiming.values().any(|claiming| claiming.code.matches(&code)) {
            return self.reply(id, Reply::Tool(ToolOutput::error("this code is being claimed already")));
        }
        self.routes.insert(id, Route::Claim);
        self.claiming.insert(id, Claiming { code: code.clone(), channel: None });
        self.emit(BridgeEvent::ClaimWanted { claim: ClaimId::of(id), code });
    }

    /// Records that the app on `channel` was connected for a claim. Closes the channel if the claim has ended.
    pub(super) fn wait_for_hello(&mut self, claim: ClaimId, channel: ChannelId) {
        match self.claiming.get_mut(&claim.call()) {
            Some(claiming) => claiming.channel = Some(channel),
            None => self.close_app(channel, Close::Now, self.now),
        }
    }

    /// Completes the claim for which `channel` was opened, after the app's hello or resume was accepted. No effect without such a claim.
    pub(super) fn complete_claim_on(&mut self, channel: ChannelId) {
        if let Some(id) = self.claim_on(channel) {
            self.claiming.remove(&id);
            self.last_refused = None;
            self.emit(BridgeEvent::AppClaimed { channel });
            self.reply(id, Reply::Tool(ToolOutput::text(self.describe_claimed(channel))));
        }
    }

    /// Fails the claim for which `channel` was opened. No effect without such a claim.
    pub(super) fn fail_claim_on(&mut self, channel: ChannelId, why: &str) {
        if let Some(id) = self.claim_on(channel) {
            self.fail_claim(ClaimId::of(id), why);
        }
    }

    fn claim_on(&self, channel: ChannelId) -> Option<InboundId> {
        self.claiming.iter().find(|(_, claiming)| claiming.channel == Some(channel)).map(|(id, _)| *id)
    }

    /// Fails a claim. The reply gives the reason `why`, and the apps that could be claimed instead.
    pub(super) fn fail_claim(&mut self, claim: ClaimId, why: &str) {
        let id = claim.call();
        let Some(claiming) = self.claiming.remove(&id) else { return };
        self.last_refused = Some(claiming.code);
        let mut text = alloc::format!("No app could be claimed with this code: {why}.");
        match self.waiting_apps() {
            None => text.push_str(" Nothing else waits to be claimed."),
            Some(waiting) => text.push_str(&alloc::format!(" Waiting to be claimed: {waiting}.")),
        }
        text.push_str(" InputRequest the user for the code that the app shows now.");
        self.reply(id, Reply::Tool(ToolOutput::error(text)));
    }

    /// Forgets a claim that the agent no longer waits for.
    pub(super) fn forget_claim(&mut self, id: InboundId) {
        if let Some(Claiming { channel: Some(channel), .. }) = self.claiming.remove(&id) {
            self.close_app(channel, Close::Now, self.now);
        }
        self.emit(BridgeEvent::ClaimGone { claim: ClaimId::of(id) });
    }

    // ---- Texts for the model ----

    fn describe_claimed(&self, channel: ChannelId) -> String {
        let Some(manifest) = self.manifest(channel) else { return String::from("Claimed.") };
        let app = manifest.id();
        let names = |names: Vec<String>| if names.is_empty() { String::from("none") } else { names.join(", ") };
        let tools = manifest.actions().iter().map(|action| String::from(action.tool())).collect();
        let resources = manifest.resources().iter().map(|(name, _)| uri_of(app, name)).collect();
        alloc::format!("Claimed {} ({app}). Tools: {}. Resources: {}.", manifest.name(), names(tools), names(resources))
    }

    pub(super) fn no_session(&self, app: &str) -> String {
        let mut text = alloc::format!("No claimed session found for app {app:?}.");
        match self.waiting_apps() {
            None => text.push_str(
                " It was restarted or has gone, or was never claimed. InputRequest the user to open or reload it, and claim",
            ),
            Some(waiting) => text.push_str(&alloc::format!(" Waiting to be claimed: {waiting}. Claim")),
        }
        text.push_str(" it with tesseron__claim_session and the code that it shows to the user.");
        text
    }

    /// The announced apps. Omits those whose code belongs to a connected session, since their manifest files may be out of date.
    fn advertised(&self) -> impl Iterator<Item = &Advertised> {
        self.advertised.iter().filter(|one| !self.registry.has_code(&one.code))
    }

    /// A few apps that wait to be claimed: first the connected apps, newest first, then the announced ones. Omits the app with the code of
    /// the last failed claim, whose announcement is out of date. A code is never part of the text: it is for the agent that a person gives
    /// it to, and the replies of a gateway end up in transcripts and logs.
    fn waiting_apps(&self) -> Option<String> {
        /// The maximum number of apps in the text.
        const SHOWN: usize = 3;
        let may_be_valid = |code: &ClaimCode| self.last_refused.as_ref().is_none_or(|last_refused| !last_refused.matches(code));
        let pending = self.registry.pending().into_iter().map(|one| (one.code, String::from(one.app.as_str())));
        let advertised = self.advertised().map(|one| (one.code.clone(), one.app_name.clone()));
        let waiting = pending.chain(advertised).filter(|(code, _)| may_be_valid(code));
        let shown: Vec<_> = waiting.take(SHOWN).map(|(_, app)| app).collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    fn describe_apps(&self) -> String {
        let routed = self.registry.routed();
        if routed.is_empty() {
            return String::from(
                "No app is claimed. InputRequest the user for the code that an app shows, and use tesseron__claim_session.",
            );
        }
        let (mut described, mut room) = (Vec::new(), self.room());
        for routed in &routed {
            let Some(manifest) = self.manifest(routed.channel) else { continue };
            let app = routed.app.as_str();
            let mut out = Vec::new();
            Object::write(&mut out, |object| {
                object.string("app_id", app);
                object.string("name", manifest.name());
                object.string("origin", manifest.origin());
                object.array("actions", manifest.actions(), |out, action| {
                    Object::write(out, |object| {
                        object.string("action", action.name());
                        if let Some(description) = action.part("description") {
                            translate::copy(object, "description", description);
                        }
                        object.string("mcp_tool_name", action.tool());
                        if let Some(schema) = action.part("inputSchema") {
                            translate::copy(object, "input_schema", schema);
                        }
                    });
                });
                object.array("resources", manifest.resources(), |out, (name, resource)| {
                    Object::write(out, |object| {
                        object.string("name", name);
                        object.string("uri", &uri_of(app, name));
                        if let Some(description) = member(resource.as_bytes(), "description") {
                            translate::copy(object, "description", description);
                        }
                        object.object("read_via", |object| {
                            object.string("preferred", mcp::method_of(Op::ReadResource));
                            object.string("fallback", "tesseron__read_resource");
                        });
                    });
                });
            });
            room.admit(&mut described, Vec::from([Json::written(out)]));
        }
        let sessions = translate::list("sessions", &described, |out, session: &Json| out.extend_from_slice(session.as_bytes()));
        let mut out = Vec::new();
        Object::write(&mut out, |object| {
            object.string("mcp_server_name", &self.config.identity.name);
            object
                .string("mcp_server_note", "tool names are as this server lists them; a client may put its own prefix before them");
            copy_members(object, &sessions);
        });
        pretty(Json::written(out).as_str())
    }

    fn describe_pending(&self) -> String {
        let pending = self.registry.pending();
        if pending.is_empty() && self.advertised().next().is_none() {
            return String::from("No app waits to be claimed. InputRequest the user to open one.");
        }
        let mut entries: Vec<(u64, Json)> = Vec::new();
        for one in &pending {
            let name = self.manifest(one.channel).map_or("", Manifest::name);
            let entry = entry((one.app.as_str(), name), one.minted_at, |object| object.string("source", "gateway-minted"));
            entries.push((one.minted_at, entry));
        }
        for one in self.advertised() {
            // A manifest file has no app id. The id in the last hello or resume of the app is used if there was one, otherwise the name.
            let id = one.app_id.as_ref().unwrap_or(&one.app_name);
            let entry = entry((id, &one.app_name), one.minted_at, |object| {
                object.string("source", "host-minted");
                object.string("instance_id", &one.instance_id);
                if let Some(expires_at) = one.expires_at {
                    time(object, ("expires_at", "expires_at_iso"), expires_at);
                }
            });
            entries.push((one.minted_at, entry));
        }
        entries.sort_by_key(|(minted_at, _)| core::cmp::Reverse(*minted_at));
        let list = translate::list("pending_claims", &entries, |out, (_, entry)| out.extend_from_slice(entry.as_bytes()));
        let mut out = Vec::new();
        Object::write(&mut out, |object| {
            copy_members(object, &list);
            object.string("next_step", "ask the user for the code that the app shows, and call tesseron__claim_session with it");
        });
        pretty(Json::written(out).as_str())
    }
}

/// The entry of an app that waits to be claimed, as JSON; `app` is its id and its name.
fn entry(app: (&str, &str), minted_at: u64, more: impl FnOnce(&mut Object<'_>)) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.string("app_id", app.0);
        object.string("app_name", app.1);
        time(object, ("minted_at", "minted_at_iso"), minted_at);
        more(object);
    });
    Json::written(out)
}

/// Writes a time in milliseconds since 1970, and in ISO 8601.
fn time(object: &mut Object<'_>, (name, iso): (&'static str, &'static str), epoch_ms: u64) {
    object.integer(name, epoch_ms);
    if let Some(text) = iso_8601(epoch_ms) {
        object.string(iso, &text);
    }
}

fn copy_members(object: &mut Object<'_>, from: &Json) {
    protocol_core::json::read::for_each_key(from.as_bytes(), |key, value| object.copy(key, value));
}
