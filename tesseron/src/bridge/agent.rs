//! Handles the messages of the agent.

use super::translate::{self, Purpose};
use super::{Bridge, BridgeEvent, Leg, Route, meta};
use protocol_core::dialect::{CallTool, NotFound, Page, PeerInfo, Reply, Request, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::{CancelReason, Event, InboundId, Invoke};

impl Bridge {
    pub(super) fn on_agent(&mut self, event: Event) {
        match event {
            Event::Ready(peer) => self.on_agent_ready(&peer),
            Event::Request { id, request, depth, .. } => self.on_request(id, request, depth),
            Event::Cancelled { id, why } => {
                self.has_cancelled = true;
                self.on_cancelled(id, &why);
            }
            Event::LaneClosed { lane, .. } => {
                self.closed_lanes.insert(lane);
            }
            Event::Input { key, answer, .. } => {
                if let Some(input) = self.inputs.remove(&key) {
                    let answer = translate::answer(answer, input.unavailable, self.agent_profile.name());
                    self.answer_app(input.channel, input.key, answer);
                }
            }
            Event::Violation(rule) => self.emit(BridgeEvent::Violation { leg: Leg::Agent, rule }),
            Event::Unreadable(frame) => self.emit(BridgeEvent::Violation { leg: Leg::Agent, rule: frame.rule }),
            Event::Closed(reason) => {
                self.routes.clear();
                self.inputs.clear();
                self.claiming.clear();
                self.subscriptions.clear();
                self.emit(BridgeEvent::AgentClosed(reason));
                self.close_apps();
            }
            // The bridge makes no calls to the agent and uses none of its notifications, so it ignores all other events.
            _ => {}
        }
    }

    /// Stores the name and capabilities of the agent for apps that are claimed from now on. Apps that were claimed before keep the
    /// placeholder.
    fn on_agent_ready(&mut self, peer: &PeerInfo) {
        self.agent_profile.update(peer);
        self.emit(BridgeEvent::AgentReady(alloc::boxed::Box::new(peer.clone())));
    }

    fn on_request(&mut self, id: InboundId, request: Request, depth: u8) {
        match request {
            Request::ListTools(_) => self.reply(id, Reply::Page(Page::last(self.list_tools()))),
            Request::ListResources(_) => self.reply(id, Reply::Page(Page::last(self.list_resources()))),
            Request::ListResourceTemplates(_) => self.reply(id, Reply::Page(Page::default())),
            Request::CallTool(call) => self.call_tool(id, call, depth),
            Request::ReadResource(read) => self.read_resource(id, Text::from(&*read.uri())),
            Request::Subscribe(subscribe) => self.subscribe(id, Text::from(&*subscribe.uri())),
            Request::Unsubscribe(unsubscribe) => self.unsubscribe(id, &Text::from(&*unsubscribe.uri().unwrap_or_default())),
            _ => self.reply(id, Reply::Error(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found"))),
        }
    }

    fn call_tool(&mut self, id: InboundId, call: CallTool, depth: u8) {
        let name = call.name();
        if let Some(tool) = meta::Tool::from_name(&name) {
            return self.call_meta(id, tool, call.arguments(), depth);
        }
        let Some((channel, action)) = self.resolve(&name).map(|(channel, action)| (channel, Text::from(action))) else {
            return self.reply(id, self.unknown_tool(&name));
        };
        drop(name);
        self.call_action(id, channel, action, call.into_arguments(), depth);
    }

    /// Calls the action of an app. The arguments are passed on byte for byte.
    pub(super) fn call_action(
        &mut self,
        id: InboundId,
        channel: crate::claims::ChannelId,
        action: Text,
        arguments: Option<Json>,
        depth: u8,
    ) {
        let call = Invoke::call_tool(action, arguments.unwrap_or_else(Json::empty_object)).with_depth(depth);
        if let Err(why) = self.start_at_app(channel, call, Purpose::Tool(id)) {
            self.reply(id, Reply::Tool(ToolOutput::error(why.message)));
        }
    }

    fn read_resource(&mut self, id: InboundId, uri: Text) {
        let Some((channel, name)) = self.find_resource(&uri) else {
            return self.reply(id, Reply::NotFound(NotFound::Resource(uri)));
        };
        if let Err(why) = self.start_at_app(channel, Invoke::read_resource(name), Purpose::Resource { invocation: id, uri }) {
            self.reply(id, Reply::Error(why));
        }
    }

    /// Handles the cancel of a request of the agent, by the agent itself or because the request's lane or the agent's session has ended. A
    /// call at an app is cancelled there, and later frames of the app about the call are dropped. A claim is forgotten, and so is a
    /// subscribe request that waits for its app.
    fn on_cancelled(&mut self, id: InboundId, why: &CancelReason) {
        // Frees the id. In an endpoint the end of the handler does this, but a bridge has no handlers.
        let _ = self.agent.respond(id, Reply::Done, self.now);
        match self.routes.remove(&id) {
            Some(Route::App(channel, call)) => {
                let reason = if let CancelReason::Peer(Some(reason)) = why { Some(reason.as_str()) } else { None };
                self.cancel_at_app(channel, call, reason);
            }
            Some(Route::Claim) => self.forget_claim(id),
            None => self.forget_subscriber(id),
        }
    }

    pub(super) fn reply(&mut self, id: InboundId, reply: Reply) {
        self.routes.remove(&id);
        // An error means that the call was cancelled meanwhile, and has ended, or that the agent's session has closed.
        let _ = self.agent.respond(id, reply, self.now);
        self.mark_unprocessed(Leg::Agent);
    }
}
