//! Stateless requests (MCP 2026-07-28) in frames: the caller, the log level and the subscription that a request names.

use protocol_core::Caller;
use serde_json::Value;

/// The revision without a handshake.
pub(super) const REVISION: &str = "2026-07-28";

const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn severity(level: &Value) -> Option<usize> {
    let level = level.as_str()?;
    LEVELS.iter().position(|other| *other == level)
}

/// The id of the subscription that a notification names, as JSON.
pub(super) fn subscription(frame: &Value) -> Option<String> {
    frame["params"]["_meta"].get("io.modelcontextprotocol/subscriptionId").map(Value::to_string)
}

/// The caller, the log level and the subscription that a stateless request names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    pub(super) protocol: String,
    name: String,
    can_sample: bool,
    /// The least severe level of log records that it asks for.
    level: Option<usize>,
    /// The kinds of notifications that a request for a subscription asks for, as JSON.
    wanted: Option<String>,
}

impl Stamp {
    /// Reads the parameters of a request. `None` if they name no caller.
    pub(super) fn read(frame: &Value) -> Option<Self> {
        let params = &frame["params"];
        let meta = |name: &str| &params["_meta"][format!("io.modelcontextprotocol/{name}")];
        let protocol = meta("protocolVersion").as_str()?.to_owned();
        let listens = frame["method"] == "subscriptions/listen";
        Some(Self {
            protocol,
            name: meta("clientInfo")["name"].as_str().unwrap_or_default().to_owned(),
            can_sample: meta("clientCapabilities").get("sampling").is_some(),
            level: severity(meta("logLevel")),
            wanted: listens.then(|| params["notifications"].to_string()),
        })
    }

    /// Returns `true` if `caller`, as the session has reported it to its owner, is the caller that the request names. The name, the support
    /// of sampling and the log level are compared.
    pub(super) fn names(&self, caller: &Caller) -> bool {
        let level = caller.log_level().map(|level| format!("{level:?}").to_lowercase());
        let level = level.and_then(|level| LEVELS.iter().position(|other| *other == level));
        // A subscription gets no log records, so its level does not matter.
        let is_level = level == self.level || self.wanted.is_some();
        caller.identity().name == self.name && caller.capabilities().sampling == self.can_sample && is_level
    }

    /// Returns `true` if the request asks for log records of this level.
    pub(super) fn admits(&self, level: &Value) -> bool {
        self.level.is_some_and(|least| severity(level).is_some_and(|level| level >= least))
    }

    /// Returns `true` if this is the request for a subscription, and it asks for notifications of this kind. Kinds of notifications that no
    /// subscription can select count as asked for.
    pub(super) fn wants(&self, notification: &Value) -> bool {
        let Some(wanted) = self.wanted.as_ref().and_then(|wanted| serde_json::from_str::<Value>(wanted).ok()) else { return false };
        match notification["method"].as_str() {
            Some("notifications/tools/list_changed") => wanted["toolsListChanged"] == true,
            Some("notifications/prompts/list_changed") => wanted["promptsListChanged"] == true,
            Some("notifications/resources/list_changed") => wanted["resourcesListChanged"] == true,
            Some("notifications/resources/updated") => {
                wanted["resourceSubscriptions"].as_array().is_some_and(|uris| uris.contains(&notification["params"]["uri"]))
            }
            _ => true,
        }
    }
}

/// The eras that one end speaks, according to its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Eras {
    /// It has opened a handshake or probed, as MCP clients and Tesseron apps do.
    is_client: bool,
    /// The peer has opened a handshake.
    was_greeted: bool,
    /// It has received a stateless request that began a call.
    serves_stateless: bool,
    /// It is a client, and has sent a probe.
    has_probed: bool,
    /// It is a client, and has opened the handshake.
    has_greeted: bool,
    /// A handshake is done.
    is_greeted: bool,
    /// It is a client, and has chosen stateless requests.
    pub(super) calls_stateless: bool,
}

impl Eras {
    /// Returns `true` for a server that has received a stateless call, and no handshake request.
    pub(super) fn serves_stateless_alone(self) -> bool {
        self.serves_stateless && !self.was_greeted && !self.is_client
    }

    /// Returns `true` for a client that may have chosen stateless requests. Such a client answers no requests.
    pub(super) fn may_be_a_stateless_client(self) -> bool {
        self.has_probed && !self.is_greeted
    }

    /// Returns `true` for a client that has opened the handshake, and then chosen stateless requests because the server answered the probe
    /// late.
    pub(super) fn has_left_a_handshake(self) -> bool {
        self.has_greeted && self.calls_stateless
    }

    pub(super) fn send(&mut self, frame: &Value) {
        self.has_probed |= frame["method"] == "server/discover";
        self.has_greeted |= frame["method"] == "initialize";
        let opens = ["initialize", "server/discover", "tesseron/hello"];
        self.is_client |= frame["method"].as_str().is_some_and(|method| opens.contains(&method));
    }

    /// Notes a received frame. `began` is `true` if the frame began a call.
    pub(super) fn receive(&mut self, frame: &Value, began: bool) {
        self.was_greeted |= ["initialize", "tesseron/hello"].iter().any(|greeting| frame["method"] == *greeting);
        self.serves_stateless |= began && Stamp::read(frame).is_some();
    }

    /// Notes that the peer is ready, with the revision `protocol`.
    pub(super) fn begin(&mut self, protocol: &str) {
        self.calls_stateless |= protocol == REVISION;
        self.is_greeted |= protocol != REVISION;
    }
}
