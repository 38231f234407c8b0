//! The methods that show the state of a session.

use super::Session;
use super::ids::InboundId;
use super::inbound_call::InboundCall;
use super::route::Lane;
use super::stats::Stats;
use crate::config::Config;
use crate::dialect::mcp::Era;
use crate::dialect::{PeerInfo, Protocol};
use crate::time::Instant;

impl Session {
    /// Returns `true` once the handshake is done, so that requests of ours are sent. At a Tesseron gateway the handshake is done once the
    /// session is claimed or resumed. A client without a handshake is ready once the server has named its revisions.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.handshake.may_send_requests()
    }

    /// The era that a client of MCP has chosen; `None` until then, and at any other end. The era is a property of the server, so a client
    /// that connects again may set it as [`Config::era`](crate::Config::era) to save the probe (MCP 2026-07-28, Versioning).
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        let is_client = self.rules.opens && matches!(self.config.protocol, Protocol::Mcp { .. });
        let era = if self.rules.stateless { Era::Modern } else { Era::Legacy };
        Some(era).filter(|_| is_client && self.handshake.may_send_requests())
    }

    /// Returns `true` if the session has closed. Events may still wait to be polled.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ending.is_closed()
    }

    /// The peer; `None` before [`Event::Ready`](crate::Event::Ready).
    #[must_use]
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.peer.as_deref()
    }

    /// The configuration that the session was created with. After a [claim](Self::claim), its identity and capabilities are those of the
    /// agent.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The lane that an inbound call came by. `None` once its handler has ended and its response is queued, and after the session has
    /// closed.
    #[must_use]
    pub fn lane(&self, id: InboundId) -> Option<Lane> {
        self.inbound_calls.get(&id).map(InboundCall::lane)
    }

    /// The counters of the session.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.outbound_calls = self.outbound_calls.len();
        stats.inbound_calls = self.inbound_calls.len();
        stats.cancelled_calls = self.cancelled_calls;
        stats.exchanges_out = self.exchanges_out();
        let inputs = self.inbound_inputs.values().filter(|input| input.exchange().is_some()).count();
        stats.exchanges_in = self.inbound_calls.len().saturating_sub(self.cancelled_calls).saturating_add(inputs);
        stats.request_bytes = self.request_bytes;
        stats.queued_bytes = self.outbox.bytes();
        stats
    }

    fn exchanges_out(&self) -> usize {
        let open =
            self.outbound_calls.len().saturating_add(self.outbound_inputs.len()).saturating_add(self.subscriber.open_exchanges());
        // A call has no exchange while it is held for the handshake, or waits between a round and its retry.
        let without_exchange = self.outbound_calls.iter().filter(|(_, call)| !call.has_exchange()).count();
        if self.handshake.may_send_requests() {
            return open.saturating_sub(without_exchange);
        }
        let held_inputs = self.outbound_inputs.values().filter(|input| input.is_held()).count();
        let opening = if self.is_closed() { 0 } else { self.handshake.open_exchanges() };
        open.saturating_sub(without_exchange).saturating_sub(held_inputs).saturating_add(opening)
    }

    /// The greatest `now` passed so far.
    #[must_use]
    pub fn time(&self) -> Instant {
        self.now
    }

    /// Returns `true` if at least one outbound call has not settled.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        !self.outbound_calls.is_empty()
    }

    /// The number of events that wait to be polled.
    #[must_use]
    pub fn unread_events(&self) -> usize {
        self.events.len()
    }
}
