//! The rules of an end of MCP in each revision, and the checks of what it may send.

use super::{Mcp, Revision, Side, is_reserved, offers, op_of, sampling};
use crate::dialect::form::{self, FieldKinds};
use crate::dialect::message::{RequestsStart, Rules};
use crate::dialect::{AskUnfit, Capabilities, Dialect, InputRequest, Notification, Op, Unfit};

impl Mcp {
    /// The rules of an end in the revision `agreed`. If it is `None`, the rules before a handshake.
    pub(crate) const fn rules(side: Side, agreed: Option<Revision>) -> &'static Rules {
        const fn all(side: Side) -> [Rules; 6] {
            [
                Mcp { side, agreed: None }.build_rules(),
                Mcp { side, agreed: Some(Revision::R2024_11_05) }.build_rules(),
                Mcp { side, agreed: Some(Revision::R2025_03_26) }.build_rules(),
                Mcp { side, agreed: Some(Revision::R2025_06_18) }.build_rules(),
                Mcp { side, agreed: Some(Revision::R2025_11_25) }.build_rules(),
                Mcp { side, agreed: Some(Revision::R2026_07_28) }.build_rules(),
            ]
        }
        static CLIENT: [Rules; 6] = all(Side::Client);
        static SERVER: [Rules; 6] = all(Side::Server);
        let [before, r2024_11_05, r2025_03_26, r2025_06_18, r2025_11_25, r2026_07_28] = match side {
            Side::Client => &CLIENT,
            Side::Server => &SERVER,
        };
        match agreed {
            None => before,
            Some(Revision::R2024_11_05) => r2024_11_05,
            Some(Revision::R2025_03_26) => r2025_03_26,
            Some(Revision::R2025_06_18) => r2025_06_18,
            Some(Revision::R2025_11_25) => r2025_11_25,
            Some(Revision::R2026_07_28) => r2026_07_28,
        }
    }

    const fn build_rules(self) -> Rules {
        let is_stateless = self.is_stateless();
        Rules {
            dialect: Dialect::Mcp(self),
            stateless: is_stateless,
            opens: matches!(self.side, Side::Client),
            requests_start: RequestsStart::Confirmed,
            repeats_handshake: matches!(self.side, Side::Server) && !is_stateless,
            keeps_capabilities: true,
            names_calls: false,
            answers_cancelled: false,
            cancels_input_requests: true,
            outlives_input: true,
            lane_bound: is_stateless,
            answers_unreadable: matches!(self.side, Side::Server),
            allows_updates_without_value: false,
            percent: false,
            accepts_no_increase: false,
        }
    }

    /// The rules once `revision` is agreed on.
    pub(crate) fn agree(self, revision: &str) -> &'static Rules {
        Self::rules(self.side, Revision::from_name(revision))
    }

    /// The kinds of field that a form may have in this revision.
    pub(super) fn field_kinds(self) -> FieldKinds {
        if self.revision() >= Revision::R2025_11_25 { FieldKinds::Rich } else { FieldKinds::Plain }
    }

    /// Checks that a request of ours may be sent. `custom` is the method of a custom request.
    pub(crate) fn check_call(self, op: Op, custom: Option<&str>, peer: &Capabilities) -> Result<(), Unfit> {
        match op {
            Op::Custom => return self.check_custom(custom.unwrap_or_default(), peer),
            Op::Ping if !self.is_stateless() => return Ok(()),
            _ if self.side == Side::Server => return Err(Unfit::WrongEnd),
            // Stateless revisions have no methods for these operations. Instead the session writes the log level into each request, and
            // subscribes to the resource with `subscriptions/listen`.
            Op::SetLogLevel if self.is_stateless() && peer.logging => return Ok(()),
            Op::Subscribe | Op::Unsubscribe if self.is_stateless() && peer.resources_subscribe => return Ok(()),
            _ => {}
        }
        if offers(peer, op, self.revision()) { Ok(()) } else { Err(Unfit::Unsupported) }
    }

    /// Checks a custom request. If its method is the method of an operation, the request is checked like that operation. A request with any
    /// other method of the protocol is refused.
    fn check_custom(self, method: &str, peer: &Capabilities) -> Result<(), Unfit> {
        match op_of(method.as_bytes()) {
            Some(op) if self.is_stateless() && !offers(peer, op, self.revision()) => Err(Unfit::Unsupported),
            Some(op) => self.check_call(op, None, peer),
            None if is_reserved(method) => Err(Unfit::WrongEnd),
            None => Ok(()),
        }
    }

    pub(crate) fn check_ask(self, ask: &InputRequest, peer: &Capabilities) -> Result<(), AskUnfit> {
        let supported = self.side == Side::Server
            && match ask {
                InputRequest::Sample(_) => peer.sampling,
                InputRequest::Elicit(_) | InputRequest::Confirm { .. } => {
                    peer.elicitation && self.revision() >= Revision::R2025_06_18
                }
                InputRequest::OpenUrl(_) => peer.elicitation_url && self.has_urls(),
                InputRequest::Roots => peer.roots,
            };
        if !supported {
            return Err(AskUnfit::Unsupported);
        }
        match ask {
            InputRequest::Sample(sample) => match &sample.params {
                Some(params) => sampling::check(params, peer.sampling_tools, self.revision()),
                None if sample.max_tokens == Some(0) => Err("an answer needs at least one token".into()),
                None => Ok(()),
            },
            InputRequest::Elicit(form) => {
                form::check(&form.schema, self.field_kinds()).and_then(|()| form::check_formats(&form.schema))
            }
            InputRequest::OpenUrl(open) if self.is_stateless() => open.check_url(),
            InputRequest::OpenUrl(open) => open.check(),
            InputRequest::Confirm { .. } | InputRequest::Roots => Ok(()),
        }
        .map_err(AskUnfit::Invalid)
    }

    pub(crate) fn check_notification(self, notification: &Notification, own: &Capabilities) -> Result<(), Unfit> {
        let (side, declared) = match notification {
            Notification::ToolsChanged => (Side::Server, own.tools_list_changed),
            Notification::PromptsChanged => (Side::Server, own.prompts_list_changed),
            Notification::ResourcesChanged => (Side::Server, own.resources_list_changed),
            Notification::ResourceUpdated { .. } | Notification::ResourceValue { .. } => (Side::Server, own.resources_subscribe),
            Notification::RootsChanged => (Side::Client, own.roots_list_changed && !self.is_stateless()),
            // The capability is the client's, so it is not in `own`. Before the handshake the revision is not known, and the notification
            // passes.
            Notification::ElicitationComplete { .. } => (Side::Server, self.agreed.is_none() || self.has_urls()),
            Notification::Custom { method, .. } if is_reserved(method) || op_of(method.as_bytes()).is_some() => {
                return Err(Unfit::WrongEnd);
            }
            // A client without a handshake sends no notification but a cancel (2026-07-28, Basic, "Notifications").
            Notification::Custom { .. } => (self.side, !self.is_stateless_client()),
            Notification::Actions(_) | Notification::Resources(_) | Notification::SubscriptionEnded => {
                return Err(Unfit::Unsupported);
            }
        };
        match (side == self.side, declared) {
            (false, _) => Err(Unfit::WrongEnd),
            (true, false) => Err(Unfit::Unsupported),
            (true, true) => Ok(()),
        }
    }
}
