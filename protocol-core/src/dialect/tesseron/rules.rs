//! The rules of an end of Tesseron, and the checks of what it may send.

use super::{Tesseron, is_reserved, op_of, read};
use crate::dialect::form::{self, FieldKinds};
use crate::dialect::message::{RequestsStart, Rules};
use crate::dialect::{AskUnfit, Capabilities, Dialect, InputRequest, Notification, Op, Unfit};

impl Tesseron {
    /// The rules of this end.
    pub(crate) const fn rules(self) -> &'static Rules {
        static APP: Rules = Tesseron::App.build_rules();
        static GATEWAY: Rules = Tesseron::Gateway.build_rules();
        match self {
            Self::App => &APP,
            Self::Gateway => &GATEWAY,
        }
    }

    const fn build_rules(self) -> Rules {
        Rules {
            stateless: false,
            dialect: Dialect::Tesseron(self),
            opens: self.is_app(),
            requests_start: RequestsStart::Claimed,
            repeats_handshake: false,
            keeps_capabilities: false,
            names_calls: true,
            answers_cancelled: true,
            cancels_input_requests: false,
            outlives_input: false,
            lane_bound: true,
            answers_unreadable: false,
            allows_updates_without_value: true,
            percent: true,
            accepts_no_increase: true,
        }
    }

    /// Checks that a request of ours may be sent. `custom` is the method of a custom request.
    pub(crate) fn check_call(self, op: Op, custom: Option<&str>, peer: &Capabilities) -> Result<(), Unfit> {
        match op {
            Op::Custom if custom.is_none_or(|method| is_reserved(method) || op_of(method).is_some()) => Err(Unfit::WrongEnd),
            Op::Custom => Ok(()),
            // An app sends no other request.
            _ if self.is_app() => Err(Unfit::WrongEnd),
            Op::CallTool | Op::ReadResource => Ok(()),
            Op::Subscribe | Op::Unsubscribe if peer.resources_subscribe => Ok(()),
            _ => Err(Unfit::Unsupported),
        }
    }

    pub(crate) fn check_ask(self, ask: &InputRequest, peer: &Capabilities) -> Result<(), AskUnfit> {
        let supported = self.is_app()
            && match ask {
                InputRequest::Sample(_) => peer.sampling,
                InputRequest::Elicit(_) | InputRequest::Confirm { .. } => peer.elicitation,
                InputRequest::OpenUrl(_) | InputRequest::Roots => false,
            };
        match ask {
            _ if !supported => Err(AskUnfit::Unsupported),
            InputRequest::Elicit(elicit) => form::check(&elicit.schema, FieldKinds::Plain).map_err(AskUnfit::Invalid),
            InputRequest::Sample(sample) => read::check_sample(sample).map_err(AskUnfit::Invalid),
            InputRequest::Confirm { .. } | InputRequest::OpenUrl(_) | InputRequest::Roots => Ok(()),
        }
    }

    pub(crate) fn check_notification(self, notification: &Notification) -> Result<(), Unfit> {
        match notification {
            Notification::Actions(_) | Notification::Resources(_) | Notification::ResourceValue { .. } if self.is_app() => Ok(()),
            Notification::Actions(_) | Notification::Resources(_) | Notification::ResourceValue { .. } => Err(Unfit::WrongEnd),
            Notification::Custom { method, .. } if is_reserved(method) || op_of(method).is_some() => Err(Unfit::WrongEnd),
            Notification::Custom { .. } => Ok(()),
            _ => Err(Unfit::Unsupported),
        }
    }
}
