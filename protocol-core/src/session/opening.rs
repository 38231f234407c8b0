//! The steps of the handshake at both ends, and the choice of an era by a client of MCP.
//!
//! A client that speaks revisions without a handshake first sends a *probe*: it asks the server for its revisions (MCP 2026-07-28,
//! Versioning). The answer decides between stateless requests and the handshake. If a server does not answer in time, a client that also
//! speaks the legacy era makes the handshake. Even then, a late answer can choose stateless requests.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::handshake::{Opening, OpeningRequest};
use super::lane_queue::Class;
use super::outbox::Ticket;
use super::route::{Lane, ReplyKind};
use super::{CloseReason, Event, ExchangeId, Session};
use crate::dialect::{
    HandshakeAnswer, HandshakeFailed, HandshakeRejected, HandshakeRequest, PeerChange, PeerInfo, ProbeVerdict, ResponseBody,
};
use crate::error::{MemberFault, RpcError, Violation};
use crate::json::Json;
use crate::shared::Arc;
use crate::wire::WireId;

impl Session {
    /// Sends the first request of ours, if this end opens the handshake, and starts the deadline of the handshake. A server of only the
    /// modern era waits for no handshake.
    pub(super) fn begin(&mut self) {
        if self.rules.dialect.probes(&self.config.local_end()) {
            self.probe(false);
        } else if self.rules.opens {
            self.open_handshake(None);
        } else if self.rules.dialect.has_handshake(&self.config.local_end()) {
            self.limit_handshake();
        } else {
            self.handshake.make_optional();
        }
    }

    /// Fresh, Opened, Probing -> Probing. `is_last` is `true` if neither another probe nor a handshake may follow this probe.
    fn probe(&mut self, is_last: bool) {
        let exchange = self.take_number();
        let frame = self.rules.dialect.write_probe(self.outbox.frames(), exchange, &self.config.local_end());
        let ticket = self.outbox.push(Lane::CHANNEL, Class::Request(ExchangeId(exchange)), frame);
        self.handshake.probe(OpeningRequest::new(exchange, ticket), is_last);
        self.limit_handshake();
    }

    /// Fresh, Probing -> Opened. `late_probe` is the probe that was not answered in time, whose answer can still choose the era.
    fn open_handshake(&mut self, late_probe: Option<OpeningRequest>) {
        let exchange = self.take_number();
        let frame = self.rules.dialect.write_handshake_request(self.outbox.frames(), exchange, &self.config.local_end());
        let ticket = self.outbox.push(Lane::CHANNEL, Class::Request(ExchangeId(exchange)), frame);
        self.handshake.open(OpeningRequest::new(exchange, ticket), late_probe);
        self.limit_handshake();
    }

    /// Starts the deadline of the probe or the handshake, counted from now.
    fn limit_handshake(&mut self) {
        let timeouts = &self.config.timeouts;
        let probe = timeouts.probe.filter(|_| self.probe_before_handshake().is_some());
        let span = [timeouts.handshake, probe].into_iter().flatten().min();
        match span.map(|span| self.now.saturating_add(span)) {
            Some(at) if at <= self.now => self.expire_handshake(),
            at => self.handshake.arm(at, &mut self.timers),
        }
    }

    /// The open probe, if a handshake request may follow it.
    fn probe_before_handshake(&self) -> Option<OpeningRequest> {
        self.handshake.open_probe().filter(|_| self.config.era.has_legacy())
    }

    /// Handles the deadline of the probe or of the handshake. A server that has not answered a probe is treated as a server of the legacy
    /// era, if a handshake may follow the probe. Otherwise the session closes.
    pub(super) fn expire_handshake(&mut self) {
        match self.probe_before_handshake() {
            Some(probe) => self.open_handshake(Some(probe)),
            None => self.fail(CloseReason::HandshakeTimeout),
        }
    }

    /// Handles an error that names no request. While a probe is open, the probe is our only request. So if the probe was polled, the error
    /// means that the peer could not read it. If a handshake may follow, its request is sent now, without waiting for the deadline of
    /// the probe.
    pub(super) fn handle_error_without_id(&mut self) {
        if self.ending.may_write()
            && let Some(probe) = self.probe_before_handshake().filter(|probe| !self.outbox.is_unpolled(probe.ticket()))
        {
            self.open_handshake(Some(probe));
        }
    }

    /// Stops the deadline of the handshake, since the peer sends stateless requests and need not make a handshake.
    #[inline]
    pub(super) fn stop_awaiting_handshake(&mut self) {
        if self.handshake.is_fresh() {
            self.handshake.make_optional();
            self.handshake.arm(None, &mut self.timers);
        }
    }

    pub(super) fn handle_handshake_request(&mut self, id: WireId, request: Result<HandshakeRequest, HandshakeRejected>) {
        let is_first = self.handshake.is_fresh();
        let is_allowed = is_first || (self.rules.repeats_handshake && self.arriving.lane() == Lane::CHANNEL);
        if !is_allowed {
            return self.refuse(id, Some(Violation::OutOfPhase), |_| {
                RpcError::fixed(RpcError::INVALID_REQUEST, "the handshake was made before")
            });
        }
        // A session that is finishing still completes the handshake, for the calls that are held for it.
        if !self.ending.may_write() {
            return self.refuse(id, None, |session| session.rules.dialect.closing());
        }
        match request {
            Err(HandshakeRejected { error, is_final }) => {
                self.refuse(id, Some(Violation::InvalidParams), |_| error);
                if is_final {
                    self.drain(CloseReason::VersionMismatch);
                }
            }
            // The answer would end the request in flight with this id.
            Ok(_) if self.peer_ids.use_of(self.arriving.lane(), &id).is_some() => self.violation(Violation::DuplicateRequest),
            Ok(HandshakeRequest { peer, answer: HandshakeAnswer::Result(answer) }) if is_first => {
                self.arriving.note_reply();
                self.answer_handshake(self.arriving.lane(), id, &answer, peer);
            }
            Ok(HandshakeRequest { peer, answer: HandshakeAnswer::Result(answer) }) => {
                self.answer_another_handshake(id, &answer, peer);
            }
            Ok(HandshakeRequest { peer, answer: HandshakeAnswer::Owner(resume) }) => {
                let lane = self.owe();
                self.handshake.ask_owner(lane, id, peer.clone());
                self.push_event(Event::HandshakeRequest { peer, resume });
            }
        }
    }

    /// Fresh -> Answered.
    pub(super) fn answer_handshake(&mut self, lane: Lane, id: WireId, answer: &Json, peer: Box<PeerInfo>) {
        let frame = self.rules.dialect.write_result(self.outbox.frames(), &id, answer);
        self.outbox.push(lane, Class::Reply(ReplyKind::Result), frame);
        self.handshake.answer(lane, id);
        self.set_peer(peer);
    }

    /// Answers the handshake request of a peer that has made its handshake before. The new terms apply to its later requests.
    fn answer_another_handshake(&mut self, id: WireId, answer: &Json, peer: Box<PeerInfo>) {
        let frame = self.rules.dialect.write_result(self.outbox.frames(), &id, answer);
        self.reply_at_once(ReplyKind::Result, frame);
        self.handshake.answer(self.arriving.lane(), id);
        self.set_peer(peer);
    }

    /// Answered -> Ready.
    pub(super) fn confirm(&mut self) {
        self.handshake.complete();
        self.release_held();
    }

    /// Applies a change that the peer announces. If the peer is not known yet, the change is stored until the handshake is done.
    pub(super) fn handle_change(&mut self, change: Box<PeerChange>) {
        let Some(peer) = &self.peer else {
            self.change = Some(change);
            return;
        };
        let mut peer = PeerInfo::clone(peer);
        peer.identity = change.identity;
        if let Some((capabilities, declared)) = change.capabilities {
            (peer.capabilities, peer.declared) = (capabilities, declared);
        }
        if let Some(credentials) = &mut peer.credentials {
            credentials.claim_code = None;
        }
        self.peer = Some(Arc::new(peer.clone()));
        self.push_event(Event::PeerChanged(peer.into()));
    }

    /// Handles the confirmation of the handshake by the peer. A repeated confirmation has no effect.
    pub(super) fn handle_confirmation(&mut self) {
        if !self.handshake.serves_requests() {
            self.violation(Violation::OutOfPhase);
        } else if !self.handshake.may_send_requests() {
            self.confirm();
        }
    }

    /// Handles the response to our probe or our handshake request. `ticket` is that of the request.
    pub(super) fn handle_opening_answer(&mut self, opening: Opening, ticket: Ticket, body: ResponseBody) {
        // A session that is finishing still completes the handshake, for the calls that are held for it. A session that is draining does
        // not.
        if !self.ending.may_write() {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
            return;
        }
        // A request that has not been polled cannot be answered: the peer guessed its number.
        if self.outbox.is_unpolled(ticket) {
            return self.violation(Violation::UnknownResponse);
        }
        match opening {
            Opening::Probe { is_last } => self.handle_probe_answer(is_last, body),
            Opening::Handshake => self.handle_handshake_answer(body),
            Opening::LateProbe => match self.rules.dialect.read_probe_answer(&body, &self.config.local_end()) {
                ProbeVerdict::Modern(peer) => self.begin_stateless(peer),
                _ => {
                    self.handshake.forget_late_probe();
                    self.stats.late_frames = self.stats.late_frames.saturating_add(1);
                }
            },
        }
    }

    /// Handles the response to a probe, which chooses the era.
    fn handle_probe_answer(&mut self, is_last: bool, body: ResponseBody) {
        match self.rules.dialect.read_probe_answer(&body, &self.config.local_end()) {
            ProbeVerdict::Modern(peer) => self.begin_stateless(peer),
            ProbeVerdict::Again if !is_last => self.probe(true),
            ProbeVerdict::Legacy if !is_last && self.config.era.has_legacy() => self.open_handshake(None),
            verdict => {
                if let ResponseBody::Error(error) = body {
                    self.push_event(Event::HandshakeRefused(error));
                }
                self.fail(match verdict {
                    ProbeVerdict::Refused => CloseReason::ProbeRefused,
                    ProbeVerdict::Malformed(member, fault) => CloseReason::AnswerInvalid(member, fault),
                    _ => CloseReason::VersionMismatch,
                });
            }
        }
    }

    /// Opened, Probing -> Ready, with stateless requests from now on. A handshake request that was not polled is never sent.
    fn begin_stateless(&mut self, peer: Box<PeerInfo>) {
        if let Some(handshake) = self.handshake.opened() {
            self.outbox.withdraw(handshake.ticket());
        }
        self.handshake.complete();
        self.set_peer(peer);
        self.stamp_requests();
        self.listen_for_lists();
        self.release_held();
    }

    fn handle_handshake_answer(&mut self, body: ResponseBody) {
        let answer = match body {
            ResponseBody::Result(result) => self.rules.dialect.read_handshake_answer(&result, &self.config.local_end()),
            // The error names a revision without a handshake that this end speaks.
            ResponseBody::Error(error) if self.rules.dialect.asks_for_probe(&error, &self.config.local_end()) => {
                return self.probe(true);
            }
            ResponseBody::Error(error) => {
                self.push_event(Event::HandshakeRefused(error));
                return self.fail(CloseReason::HandshakeRefused);
            }
            ResponseBody::Unreadable(frame) => {
                let why = frame.hint.unwrap_or(frame.rule.as_str());
                Err(HandshakeFailed::Malformed("result", MemberFault::Unreadable(why)))
            }
        };
        match answer {
            Ok(peer) => {
                self.handshake.complete();
                self.set_peer(peer.into());
                if let Some(frame) = self.rules.dialect.write_handshake_confirmation(self.outbox.frames()) {
                    self.outbox.push(Lane::CHANNEL, Class::Notification, frame);
                }
                self.release_held();
                if let Some(change) = self.change.take() {
                    self.handle_change(change);
                }
            }
            Err(HandshakeFailed::Malformed(member, fault)) => self.fail(CloseReason::AnswerInvalid(member, fault)),
            Err(HandshakeFailed::Version) => self.fail(CloseReason::VersionMismatch),
        }
    }

    /// Sets the terms of later exchanges to those that a handshake with `peer` has agreed on.
    fn set_peer(&mut self, peer: Box<PeerInfo>) {
        self.handshake.arm(None, &mut self.timers);
        self.rules = self.rules.dialect.agree(&peer, self.rules);
        self.peer = Some(Arc::new(PeerInfo::clone(&peer)));
        self.push_event(Event::Ready(peer));
    }

    /// Sends the calls and input requests that were held for the handshake, oldest first.
    fn release_held(&mut self) {
        for id in self.outbound_calls.ids() {
            self.release_call(id);
        }
        let open_inputs: Vec<_> = self.outbound_inputs.keys().copied().collect();
        for key in open_inputs {
            self.release_outbound_input(key);
        }
    }
}
