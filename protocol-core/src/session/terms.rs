//! The terms under which a request of the peer is served: the rules, the capabilities and the log level. A stateless request states its own
//! terms; for any other request they are those of the handshake, and the log level that the peer has set since.

use alloc::boxed::Box;

use crate::dialect::{Caller, Capabilities, Level, PeerInfo, Rules};
use crate::json::Json;
use crate::shared::Arc;

pub(super) struct Terms {
    peer: Arc<PeerInfo>,
    rules: &'static Rules,
    log_level: Option<Level>,
}

impl Terms {
    /// Terms for a request of `peer`. `log_level` is the level of the least severe log record that the peer gets; `None` if it gets none.
    #[inline]
    pub(super) fn new(peer: Arc<PeerInfo>, rules: &'static Rules, log_level: Option<Level>) -> Self {
        Self { peer, rules, log_level }
    }

    #[inline]
    pub(super) fn rules(&self) -> &'static Rules {
        self.rules
    }

    #[inline]
    pub(super) fn log_level(&self) -> Option<Level> {
        self.log_level
    }

    /// The capabilities of the caller.
    #[inline]
    pub(super) fn capabilities(&self) -> Capabilities {
        self.peer.capabilities
    }

    /// Converts the terms of a request into its caller. `meta` is the `_meta` of the request.
    #[inline]
    pub(super) fn into_caller(self, meta: Option<Box<Json>>) -> Caller {
        Caller::new(self.peer, self.rules.stateless, self.log_level, meta)
    }
}
