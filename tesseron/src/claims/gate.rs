//! The bind on a Unix socket, which precedes the session at an app that has made its own claim code (`docs/protocols/tesseron.md`, "Binding
//! a Unix socket"). While an app without a claim has a gateway, it uses the gate to refuse others.
//!
//! ```text
//!   the app's end, HostGate                               the gateway's end, DialGate
//!
//!                a bind         the delay is over             any other frame
//!      Unbound ---------> Delayed ---------------.              ,---.
//!       |   ^                                    |              |   v
//!       |   '-- refused, and kept ---------------|             Waiting ---------------> (failed)
//!       |                                        |                |      an error, an answer of the wrong
//!       |       refused, and closed              |                |      shape, the end, `wait` is over
//!       v    .-----------------------------------|                |
//!     (closed)                                   |                |
//!       any other frame,                         v                v
//!       `bind_wait` is over            Open: frames go to       Open: frames go to
//!                                      the session              the session
//! ```
//!
//! At the app, the owner passes no frame while the check of a code is delayed; if it does, the socket is closed. After the bind, the gate
//! refuses further binds and keeps the channel; all other frames are for the session. At the gateway the frames before the answer are
//! dropped.

use alloc::string::String;
use core::time::Duration;

use bytes::Bytes;

use super::backlog::Place;
use super::host::BindCode;
use super::{BindRefused, ClaimCode, Host, HostChannel};
use protocol_core::WireId;
use protocol_core::dialect::tesseron::bind::{self, BindReply, BindRequest};
use protocol_core::error::RpcError;
use protocol_core::time::Instant;

/// The app's end of a Unix socket until it is bound. Made by [`Host::accept_unix`].
///
/// Pass every frame to [`handle_frame`](Self::handle_frame), except while the gate [`is_deciding`](Self::is_deciding), and call
/// [`handle_timeout`](Self::handle_timeout) at the time of [`poll_timeout`](Self::poll_timeout). An app may have several gates at a time;
/// the first gateway with the right code gets the app.
#[derive(Clone, Debug)]
pub struct HostGate {
    place: Place,
    deadline: Instant,
    /// The number of binds that may still be refused before the socket is closed.
    attempts: u32,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Unbound,
    /// The code of a bind is checked at `due`.
    Delayed {
        id: WireId,
        code: BindCode,
        due: Instant,
    },
    Open,
}

/// The steps that the owner of a [`HostGate`] must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// The frame to write first, if there is one.
    pub reply: Option<Bytes>,
    /// The step after that.
    pub next: HostNext,
}

/// The next step for the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostNext {
    /// Read the next frame.
    Keep,
    /// The socket is bound: start its session. Call [`Host::handle_closed`] when the channel has ended.
    Open(HostChannel),
    /// After [`Self::Open`]: pass this frame to the session.
    Deliver(Bytes),
    /// Close the socket.
    Close,
}

impl HostStep {
    const NOTHING: Self = Self { reply: None, next: HostNext::Keep };
}

/// A new connection on a Unix socket.
#[derive(Debug)]
pub enum UnixChannel {
    /// Pass the frames of the connection to the gate. Either the connection must be bound first, or the app has a channel already, so that
    /// the bind is refused.
    Gated(HostGate),
    /// The connection is admitted: start its session.
    Open(HostChannel),
}

/// The time for which a second socket of an app without a claim stays open, to answer its bind with `Occupied`.
const OCCUPIED_WAIT: Duration = Duration::from_secs(1);

impl Host {
    /// Makes the gate of an accepted connection on a Unix socket, or admits the connection.
    #[must_use]
    pub fn accept_unix(&mut self, place: Place, now: Instant) -> UnixChannel {
        let wait = match (self.claim(), self.channel()) {
            (None, None) => return UnixChannel::Open(self.admit(place)),
            (None, Some(_)) => OCCUPIED_WAIT.min(self.policy().bind_wait),
            (Some(_), _) => self.policy().bind_wait,
        };
        UnixChannel::Gated(HostGate::new(place, now.saturating_add(wait), self.policy().bind_attempts))
    }
}

impl HostGate {
    pub(super) fn new(place: Place, deadline: Instant, attempts: u32) -> Self {
        Self { place, deadline, attempts, state: State::Unbound }
    }

    /// Returns `true` while the check of a code is delayed, so that no frame may be passed.
    #[must_use]
    pub fn is_deciding(&self) -> bool {
        matches!(self.state, State::Delayed { .. })
    }

    /// Takes a frame. `host` must be the host that made the gate. A frame while the gate [`is_deciding`](Self::is_deciding) closes the
    /// socket.
    pub fn handle_frame(&mut self, frame: Bytes, host: &mut Host, now: Instant) -> HostStep {
        let is_open = matches!(self.state, State::Open);
        if is_open && !bind::may_be_bind(&frame) {
            return HostStep { reply: None, next: HostNext::Deliver(frame) };
        }
        let read = |code: Option<String>| code.map(|code| ClaimCode::parse(&code));
        match bind::read_bind(&frame) {
            BindRequest::Bind { id, code } if is_open => self.decide(&id, read(code), host, now),
            BindRequest::Other { .. } if is_open => HostStep { reply: None, next: HostNext::Deliver(frame) },
            BindRequest::Bind { id, code } if !self.is_deciding() => {
                let due = if code.is_some() { host.check_time(self.place, now) } else { now };
                self.state = State::Delayed { id, code: read(code), due };
                self.handle_timeout(host, now)
            }
            BindRequest::Bind { id, .. } | BindRequest::Other { id } => {
                let reply = bind::write_refused(&id, &BindRefused::Unbound.error());
                HostStep { reply: Some(reply), next: HostNext::Close }
            }
        }
    }

    /// The next deadline, at which [`Self::handle_timeout`] must be called; `None` once the socket is bound.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Unbound => Some(self.deadline),
            State::Delayed { due, .. } => Some(due),
            State::Open => None,
        }
    }

    /// Checks a code whose delay has passed, and closes a socket that was not bound in time. Harmless if called early or repeatedly. `host`
    /// must be the host that made the gate.
    pub fn handle_timeout(&mut self, host: &mut Host, now: Instant) -> HostStep {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return HostStep::NOTHING;
        }
        match core::mem::replace(&mut self.state, State::Unbound) {
            State::Delayed { id, code, .. } => self.decide(&id, code, host, now),
            State::Unbound | State::Open => HostStep { reply: None, next: HostNext::Close },
        }
    }

    fn decide(&mut self, id: &WireId, code: BindCode, host: &mut Host, now: Instant) -> HostStep {
        let is_open = matches!(self.state, State::Open);
        match host.answer_bind(self.place, is_open, code, now) {
            Ok(channel) => {
                self.state = State::Open;
                HostStep { reply: Some(bind::write_bound(id)), next: HostNext::Open(channel) }
            }
            Err(refused) => {
                let reply = Some(bind::write_refused(id, &refused.error()));
                let is_over = refused.closes() || (!is_open && self.exceeds_attempts());
                HostStep { reply, next: if is_over { HostNext::Close } else { HostNext::Keep } }
            }
        }
    }

    /// Counts a refused bind. Returns `true` if there were too many.
    fn exceeds_attempts(&mut self) -> bool {
        let remaining = self.attempts.checked_sub(1);
        self.attempts = remaining.unwrap_or_default();
        remaining.is_none()
    }
}

/// The gateway's end of a Unix socket, until it is bound with a claim code.
///
/// Send the frame of [`poll_transmit`](Self::poll_transmit) first. Pass every frame that arrives to [`handle_frame`](Self::handle_frame)
/// until the channel is open, and call [`handle_timeout`](Self::handle_timeout) at the time of [`poll_timeout`](Self::poll_timeout).
/// Without the timeout, a silent app would delay the claim for ever (`docs/protocols/tesseron.md`, "Faults of the reference
/// implementation", unanswered bind).
#[derive(Debug)]
pub struct DialGate {
    bind: Option<Bytes>,
    state: Dialling,
}

#[derive(Clone, Copy, Debug)]
enum Dialling {
    Waiting { deadline: Instant },
    Open,
    Failed,
}

/// The step that the owner of a [`DialGate`] must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialStep {
    /// The frame was not the answer, and was dropped. Read the next frame.
    Wait,
    /// The channel is bound: start its session.
    Open,
    /// After [`Self::Open`]: pass this frame to the session.
    Deliver(Bytes),
}

/// The reason why a bind failed. Close the channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialFailed {
    /// The app refused the bind.
    #[error("the app refused the claim: {0}")]
    Refused(RpcError),
    /// The answer was not valid.
    #[error("the app answered the claim with something else")]
    Malformed,
    /// The socket ended before the answer, or the bind has already failed.
    #[error("the app closed the channel before it answered the claim")]
    Closed,
    /// There was no answer in time.
    #[error("the app did not answer the claim in time")]
    TimedOut,
}

impl DialGate {
    /// The usual maximum time for the answer.
    pub const WAIT: Duration = Duration::from_secs(5);

    /// Starts a bind with `code`. The answer of the app may take at most `wait`.
    #[must_use]
    pub fn new(code: &ClaimCode, wait: Duration, now: Instant) -> Self {
        Self { bind: Some(bind::write_bind(code.reveal())), state: Dialling::Waiting { deadline: now.saturating_add(wait) } }
    }

    /// The frame to send; `None` after the first call, and once the bind has failed.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.bind.take()
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// [`DialFailed`] if the frame is a refusal or an invalid answer; after that [`DialFailed::Closed`] for every frame.
    pub fn handle_frame(&mut self, frame: Bytes) -> Result<DialStep, DialFailed> {
        match self.state {
            Dialling::Open => return Ok(DialStep::Deliver(frame)),
            Dialling::Failed => return Err(DialFailed::Closed),
            Dialling::Waiting { .. } => {}
        }
        match bind::read_bind_reply(&frame) {
            BindReply::Other => Ok(DialStep::Wait),
            BindReply::Bound => {
                self.state = Dialling::Open;
                Ok(DialStep::Open)
            }
            BindReply::Refused(error) => Err(self.fail(DialFailed::Refused(error))),
            BindReply::Malformed => Err(self.fail(DialFailed::Malformed)),
        }
    }

    /// Handles the end of the socket. No effect once the channel is open, since the session then handles the end.
    ///
    /// # Errors
    /// [`DialFailed::Closed`] if the channel is not open.
    pub fn handle_end(&mut self) -> Result<(), DialFailed> {
        match self.state {
            Dialling::Open => Ok(()),
            Dialling::Waiting { .. } | Dialling::Failed => Err(self.fail(DialFailed::Closed)),
        }
    }

    /// The deadline of the answer; `None` once the bind has succeeded or failed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            Dialling::Waiting { deadline } => Some(deadline),
            Dialling::Open | Dialling::Failed => None,
        }
    }

    /// Fails the bind if the answer is late. Harmless if called early or repeatedly.
    ///
    /// # Errors
    /// [`DialFailed::TimedOut`], once.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), DialFailed> {
        match self.poll_timeout() {
            Some(deadline) if deadline <= now => Err(self.fail(DialFailed::TimedOut)),
            _ => Ok(()),
        }
    }

    fn fail(&mut self, why: DialFailed) -> DialFailed {
        self.state = Dialling::Failed;
        self.bind = None;
        why
    }
}

#[cfg(test)]
// In names of tests, `item` or `bug` and a number cite a rule or a fault (docs/protocols/tesseron.md, "Former numbers").
mod tests {
    use super::*;
    use crate::claims::draw::sequence;
    use crate::claims::{Agent, HostPolicy, PeerUser, UnixChannel};
    use alloc::string::{String, ToString};

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn host() -> Host {
        Host::with_claims(HostPolicy::default(), at(0), 0, &mut sequence(20))
    }

    fn gate(host: &mut Host) -> HostGate {
        let place = host.accept(PeerUser::ThisUser).unwrap().place;
        let UnixChannel::Gated(gate) = host.accept_unix(place, at(0)) else { panic!("a host with a claim has a gate") };
        gate
    }

    /// The answer of a gate to a frame, after the delay if there is one.
    fn answer(gate: &mut HostGate, frame: Bytes, host: &mut Host) -> HostStep {
        let step = gate.handle_frame(frame, host, at(0));
        if !gate.is_deciding() {
            return step;
        }
        assert_eq!(step, HostStep::NOTHING);
        let due = gate.poll_timeout().unwrap();
        gate.handle_timeout(host, due)
    }

    fn bind(code: &str) -> Bytes {
        bind::write_bind(code)
    }

    fn frame(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    /// The id and the code of the reply, and the next step for the socket.
    fn shown(step: &HostStep) -> String {
        let reply: Option<serde_json::Value> = step.reply.as_ref().map(|reply| serde_json::from_slice(reply).unwrap());
        let reply = match reply {
            Some(reply) if reply.get("error").is_some() => alloc::format!("{} {}", reply["id"], reply["error"]["code"]),
            Some(reply) => alloc::format!("{} {}", reply["id"], reply["result"]),
            None => "nothing".to_string(),
        };
        let next = match &step.next {
            HostNext::Keep => "keep",
            HostNext::Open(_) => "open",
            HostNext::Deliver(_) => "deliver",
            HostNext::Close => "close",
        };
        alloc::format!("{reply}, {next}")
    }

    /// A bind with the right code.
    fn right(host: &Host) -> Bytes {
        bind(host.claim().unwrap().code.reveal())
    }

    fn opened(step: HostStep) -> HostChannel {
        let HostNext::Open(channel) = step.next else { panic!("it should be open: {step:?}") };
        channel
    }

    #[test]
    fn item_112_every_row_of_the_bind_table_keeps_or_closes_the_socket() {
        let mut host = host();
        let on_new_socket = |host: &mut Host, frame: Bytes| shown(&answer(&mut gate(host), frame, host));

        // The right code; then further binds on the channel that is bound.
        let mut first = gate(&mut host);
        let (good, bad) = (right(&host), bind("WRONG"));
        let step = first.handle_frame(good.clone(), &mut host, at(0));
        assert_eq!(shown(&step), r#""bind" {"ok":true}, open"#);
        let channel = opened(step);
        for _ in 0..20 {
            assert_eq!(shown(&first.handle_frame(good.clone(), &mut host, at(0))), r#""bind" -32009, keep"#);
        }
        // On another socket the right code is refused whether or not the agent is known, and so is a wrong one.
        assert_eq!(on_new_socket(&mut host, good.clone()), r#""bind" -32009, keep"#);
        host.handle_agent(channel, Agent::pending());
        assert_eq!(on_new_socket(&mut host, good), r#""bind" -32009, keep"#);
        assert_eq!(on_new_socket(&mut host, bad.clone()), r#""bind" -32009, keep"#);
        host.handle_closed(channel, at(0), 0, &mut sequence(21));
        // No code.
        for params in [r#"{"code":7}"#, "{}", "[]"] {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tesseron/bind","params":{params}}}"#);
            assert_eq!(on_new_socket(&mut host, frame(&text)), "5 -32602, keep", "{params}");
        }
        // Mismatch: each one delays the next check.
        for (code, due) in [("WRONG", None), ("", Some(125)), ("../../x", Some(250)), ("\u{e4}", Some(500)), ("wrong", Some(1000))]
        {
            let mut gate = gate(&mut host);
            let step = gate.handle_frame(bind(code), &mut host, at(0));
            let step = due.map_or(step, |due| {
                assert_eq!(gate.poll_timeout(), Some(Instant::from_millis(due)));
                gate.handle_timeout(&mut host, Instant::from_millis(due))
            });
            assert_eq!(shown(&step), r#""bind" -32009, close"#, "{code}");
        }
        let good = right(&host);
        // Any other frame: the reply has the id of the frame.
        for (text, id) in [
            (r#"{"jsonrpc":"2.0","id":9,"method":"actions/invoke","params":{}}"#, "9"),
            (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, "\"a\""),
            (r#"{"jsonrpc":"2.0","method":"tesseron/claimed","params":{}}"#, "null"),
            ("nope", "null"),
            ("[]", "null"),
        ] {
            assert_eq!(on_new_socket(&mut host, frame(text)), alloc::format!("{id} -32600, close"), "{text}");
        }
        assert_eq!(on_new_socket(&mut host, good), r#""bind" {"ok":true}, open"#, "the right one is never refused");
    }

    #[test]
    fn every_refusal_of_a_bind_has_its_error_code_and_keeps_or_closes_the_socket() {
        let rows = [
            (BindRefused::BoundHere, -32009, false),
            (BindRefused::Spent, -32009, false),
            (BindRefused::Taken, -32009, false),
            (BindRefused::Occupied, -32009, false),
            (BindRefused::Malformed, -32602, false),
            (BindRefused::Mismatch, -32009, true),
            (BindRefused::Unbound, -32600, true),
        ];
        for (refused, code, closes) in rows {
            assert_eq!((refused.error().code, refused.closes()), (code, closes), "{refused:?}");
            assert_eq!(refused.to_string(), refused.error().message.as_str());
        }
    }

    #[test]
    fn item_114_bug_9_after_the_bound_gateway_has_disconnected_a_socket_without_a_bind_is_refused() {
        let mut host = host();
        let frame_of_a_session = frame(r#"{"jsonrpc":"2.0","id":1,"method":"actions/invoke","params":{}}"#);
        for _ in 0..2 {
            let bind = right(&host);
            let channel = opened(gate(&mut host).handle_frame(bind, &mut host, at(0)));
            host.handle_closed(channel, at(0), 0, &mut sequence(22));
            let step = gate(&mut host).handle_frame(frame_of_a_session.clone(), &mut host, at(0));
            assert_eq!(shown(&step), "1 -32600, close");
        }
    }

    #[test]
    fn of_two_waiting_sockets_the_first_to_bind_gets_the_claim() {
        let mut host = host();
        let (mut slow, mut quick) = (gate(&mut host), gate(&mut host));
        let bind = right(&host);
        assert_eq!(shown(&quick.handle_frame(bind.clone(), &mut host, at(0))), r#""bind" {"ok":true}, open"#);
        assert_eq!(shown(&slow.handle_frame(bind, &mut host, at(0))), r#""bind" -32009, keep"#);
    }

    #[test]
    fn a_gate_keeps_a_socket_for_eight_refused_binds_and_for_five_seconds() {
        let mut host = host();
        let empty = frame(r#"{"jsonrpc":"2.0","id":5,"method":"tesseron/bind","params":{}}"#);
        let mut patient = gate(&mut host);
        for _ in 0..8 {
            assert_eq!(shown(&patient.handle_frame(empty.clone(), &mut host, at(0))), "5 -32602, keep");
        }
        assert_eq!(shown(&patient.handle_frame(empty, &mut host, at(0))), "5 -32602, close");

        let mut gate = gate(&mut host);
        assert_eq!(gate.poll_timeout(), Some(at(5)));
        assert_eq!(shown(&gate.handle_timeout(&mut host, Instant::from_millis(4999))), "nothing, keep");
        assert_eq!(shown(&gate.handle_timeout(&mut host, at(5))), "nothing, close");
        let bind = right(&host);
        opened(gate.handle_frame(bind, &mut host, at(5)));
        assert_eq!(gate.poll_timeout(), None);
        assert_eq!(shown(&gate.handle_timeout(&mut host, at(500))), "nothing, keep");
    }

    #[test]
    fn no_frame_is_accepted_while_a_bind_is_checked() {
        let mut host = host();
        assert_eq!(shown(&gate(&mut host).handle_frame(bind("WRONG"), &mut host, at(0))), r#""bind" -32009, close"#);
        let (mut patient, mut hasty) = (gate(&mut host), gate(&mut host));
        let (right, first) = (right(&host), frame(r#"{"jsonrpc":"2.0","id":1,"method":"actions/invoke","params":{}}"#));
        assert_eq!(patient.handle_frame(right.clone(), &mut host, at(0)), HostStep::NOTHING);
        assert!(patient.is_deciding());
        assert_eq!(patient.handle_timeout(&mut host, Instant::from_millis(124)), HostStep::NOTHING);
        assert_eq!(hasty.handle_frame(right.clone(), &mut host, at(0)), HostStep::NOTHING);
        assert_eq!(shown(&hasty.handle_frame(first, &mut host, at(0))), "1 -32600, close");
        opened(patient.handle_timeout(&mut host, Instant::from_millis(125)));
        assert!(!patient.is_deciding());
    }

    #[test]
    fn a_second_socket_of_an_app_without_a_claim_is_refused_as_occupied() {
        let mut host = Host::without_claims();
        let place = host.accept(PeerUser::ThisUser).unwrap().place;
        let UnixChannel::Open(first) = host.accept_unix(place, at(0)) else { panic!("it is free") };
        let mut second = gate(&mut host);
        for _ in 0..3 {
            let step = second.handle_frame(bind("PQ7N-4D"), &mut host, at(0));
            assert_eq!(shown(&step), r#""bind" -32009, keep"#);
            let reply: serde_json::Value = serde_json::from_slice(&step.reply.unwrap()).unwrap();
            assert_eq!(reply["error"]["message"], "this app has a gateway already");
        }
        let other = frame(r#"{"jsonrpc":"2.0","id":7,"method":"actions/invoke","params":{}}"#);
        assert_eq!(shown(&gate(&mut host).handle_frame(other, &mut host, at(0))), "7 -32600, close");
        let mut silent = gate(&mut host);
        assert_eq!(silent.poll_timeout(), Some(at(1)));
        assert_eq!(shown(&silent.handle_timeout(&mut host, at(1))), "nothing, close");
        host.handle_closed(first, at(0), 0, &mut sequence(23));
        let place = host.accept(PeerUser::ThisUser).unwrap().place;
        assert!(matches!(host.accept_unix(place, at(0)), UnixChannel::Open(_)));
    }

    #[test]
    fn frames_after_the_bind_are_passed_on_unchanged() {
        let mut host = host();
        let mut gate = gate(&mut host);
        let bind = right(&host);
        opened(gate.handle_frame(bind, &mut host, at(0)));
        for text in [r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "nope", r#"{"jsonrpc":"2.0","method":"tesseron/bind"}"#] {
            let step = gate.handle_frame(frame(text), &mut host, at(0));
            assert_eq!(step, HostStep { reply: None, next: HostNext::Deliver(frame(text)) });
        }
    }

    fn dialled() -> DialGate {
        let mut gate = DialGate::new(&ClaimCode::parse("pq7n-4d").unwrap(), DialGate::WAIT, at(0));
        let first = gate.poll_transmit().unwrap();
        assert_eq!(first, bind("PQ7N-4D"));
        assert_eq!(gate.poll_transmit(), None);
        gate
    }

    const BOUND: &str = r#"{"jsonrpc":"2.0","id":"bind","result":{"ok":true}}"#;

    #[test]
    fn item_118_frames_before_the_answer_are_dropped() {
        let mut gate = dialled();
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"tesseron/hello","params":{}}"#;
        for text in [hello, "nope", "", r#"{"jsonrpc":"2.0","id":"other","result":{"ok":true}}"#] {
            assert_eq!(gate.handle_frame(frame(text)), Ok(DialStep::Wait), "{text}");
        }
        assert_eq!(gate.handle_frame(frame(BOUND)), Ok(DialStep::Open));
        assert_eq!(gate.handle_frame(frame(hello)), Ok(DialStep::Deliver(frame(hello))));
        assert_eq!(gate.handle_frame(frame(BOUND)), Ok(DialStep::Deliver(frame(BOUND))));
        assert_eq!((gate.poll_timeout(), gate.handle_timeout(at(500)), gate.handle_end()), (None, Ok(()), Ok(())));
    }

    #[test]
    fn a_dial_fails_on_an_error_on_an_invalid_answer_and_on_the_end_of_the_socket() {
        let refusal = r#"{"jsonrpc":"2.0","id":"bind","error":{"code":-32009,"message":"no"}}"#;
        let mut gate = dialled();
        assert_eq!(gate.handle_frame(frame(refusal)), Err(DialFailed::Refused(RpcError::fixed(-32009, "no"))));
        assert_eq!(gate.handle_frame(frame(BOUND)), Err(DialFailed::Closed), "a failed gate stays failed");
        assert_eq!((gate.poll_timeout(), gate.handle_timeout(at(500))), (None, Ok(())));

        let mut gate = dialled();
        assert_eq!(gate.handle_frame(frame(r#"{"jsonrpc":"2.0","id":"bind","result":null}"#)), Err(DialFailed::Malformed));

        let mut gate = dialled();
        assert_eq!(gate.handle_end(), Err(DialFailed::Closed));
        assert_eq!(gate.handle_end(), Err(DialFailed::Closed));
    }

    #[test]
    fn bug_21_a_host_that_never_answers_delays_a_claim_for_five_seconds() {
        let mut gate = dialled();
        assert_eq!(gate.poll_timeout(), Some(at(5)));
        // Other frames do not extend the time.
        assert_eq!(gate.handle_frame(frame("{}")), Ok(DialStep::Wait));
        assert_eq!(gate.handle_timeout(Instant::from_millis(4999)), Ok(()));
        assert_eq!(gate.handle_timeout(at(5)), Err(DialFailed::TimedOut));
        assert_eq!(gate.handle_timeout(at(6)), Ok(()), "once");
        assert_eq!(gate.handle_frame(frame(BOUND)), Err(DialFailed::Closed));
    }

    #[test]
    fn the_gates_of_a_host_and_a_gateway_understand_each_other() {
        let mut host = host();
        let mut app = gate(&mut host);
        let mut gateway = DialGate::new(&host.claim().unwrap().code, DialGate::WAIT, at(0));
        let step = app.handle_frame(gateway.poll_transmit().unwrap(), &mut host, at(0));
        assert_eq!(gateway.handle_frame(step.reply.unwrap()), Ok(DialStep::Open));

        // The second gateway gets the reason of its refusal.
        let mut app = gate(&mut host);
        let mut gateway = DialGate::new(&host.claim().unwrap().code, DialGate::WAIT, at(0));
        let step = app.handle_frame(gateway.poll_transmit().unwrap(), &mut host, at(0));
        assert_eq!(gateway.handle_frame(step.reply.unwrap()), Err(DialFailed::Refused(BindRefused::Taken.error())));
    }
}
