//! What the agent says, and where it goes.

use alloc::string::String;

use super::translate::{self, Purpose};
use super::{Bridge, BridgeEvent, Leg, Route, meta, surface};
use protocol_core::dialect::{NotFound, Op, PeerInfo, Reply, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{Event, InboundId, Invoke, Why};

impl Bridge {
    pub(super) fn on_agent(&mut self, event: Event) {
        match event {
            Event::Ready(peer) => self.meet_agent(&peer),
            Event::Request { id, op, params, depth, .. } => self.on_request(id, &op, &params, depth),
            Event::Cancelled { id, why } => self.give_up(id, &why),
            Event::Input { key, answer, .. } => {
                if let Some(question) = self.questions.remove(&key) {
                    let answer = translate::answer(answer, question.unavailable, self.speaks_for.name());
                    self.answer_app(question.channel, question.key, answer);
                }
            }
            Event::Violation(rule) => self.tell(BridgeEvent::Violation { leg: Leg::Agent, rule }),
            Event::Closed(reason) => {
                self.routes.clear();
                self.questions.clear();
                self.claiming.clear();
                self.subscriptions.clear();
                self.tell(BridgeEvent::AgentClosed(reason));
                self.close_apps();
            }
            // A server calls nothing and asks nothing by itself.
            _ => {}
        }
    }

    /// Whoever claims an app from now on is this agent. Sessions that were claimed before know no other.
    fn meet_agent(&mut self, peer: &PeerInfo) {
        self.speaks_for.introduce(peer);
        self.tell(BridgeEvent::AgentReady(alloc::boxed::Box::new(peer.clone())));
    }

    fn on_request(&mut self, id: InboundId, op: &Op, params: &Json, depth: u8) {
        match op {
            Op::ListTools => self.reply(id, Reply::Raw(self.list_tools())),
            Op::ListResources => self.reply(id, Reply::Raw(self.list_resources())),
            Op::ListResourceTemplates => self.reply(id, Reply::Raw(surface::no_templates())),
            Op::CallTool => self.call_tool(id, params, depth),
            Op::ReadResource => self.read_resource(id, params),
            Op::Subscribe => self.subscribe(id, params),
            Op::Unsubscribe => self.unsubscribe(id, params),
            _ => self.reply(id, Reply::Error(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found"))),
        }
    }

    fn call_tool(&mut self, id: InboundId, params: &Json, depth: u8) {
        let Some(name) = params.member("name").and_then(|name| name.as_text()) else {
            return self.reply(id, Reply::Error(RpcError::invalid_params("name must be text")));
        };
        if let Some(tool) = meta::Tool::from_name(&name) {
            return self.call_meta(id, tool, params.member("arguments"), depth);
        }
        let resolved = self.resolve(&name).map(|(channel, action)| (channel, String::from(action)));
        match resolved {
            Some((channel, action)) => self.call_action(id, channel, &action, params.member("arguments"), depth),
            None => self.reply(id, self.unknown_tool(&name)),
        }
    }

    pub(super) fn call_action(
        &mut self,
        id: InboundId,
        channel: crate::claims::ChannelId,
        action: &str,
        arguments: Option<Json>,
        depth: u8,
    ) {
        let params = translate::call(action, arguments.as_ref());
        let call = Invoke::new(Op::CallTool, params).with_depth(depth);
        if let Err(why) = self.start_at_app(channel, call, Purpose::Tool(id)) {
            self.reply(id, Reply::Tool(ToolOutput::error(why.message)));
        }
    }

    fn read_resource(&mut self, id: InboundId, params: &Json) {
        let uri = params.member("uri").and_then(|uri| uri.as_text());
        let Some(uri) = uri else { return self.reply(id, Reply::Error(RpcError::invalid_params("uri must be text"))) };
        let Some((channel, name)) = self.find_resource(&uri) else {
            return self.reply(id, Reply::NotFound(NotFound::Resource(uri)));
        };
        let call = Invoke::new(Op::ReadResource, translate::named(&name));
        if let Err(why) = self.start_at_app(channel, call, Purpose::Resource { invocation: id, uri }) {
            self.reply(id, Reply::Error(why));
        }
    }

    /// The agent is free at once; the app is told, and whatever it still says of the call goes nowhere.
    fn give_up(&mut self, id: InboundId, why: &Why) {
        // Nothing runs here on its behalf.
        let _ = self.agent.respond(id, Reply::Done, self.now);
        match self.routes.remove(&id) {
            Some(Route::App(channel, call)) => {
                let reason = if let Why::Peer(Some(reason)) = why { Some(reason.as_str()) } else { None };
                self.cancel_at_app(channel, call, reason);
            }
            Some(Route::Claim) => self.forget_claim(id),
            None => self.forget_subscriber(id),
        }
    }

    pub(super) fn reply(&mut self, id: InboundId, reply: Reply) {
        self.routes.remove(&id);
        // One that was cancelled meanwhile is answered already.
        let _ = self.agent.respond(id, reply, self.now);
        self.stir(Leg::Agent);
    }
}
