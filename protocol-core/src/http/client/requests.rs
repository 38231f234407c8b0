//! The steps that make requests: for the frames of the session, and for the client itself.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::call::{Call, Kind};
use super::exchange::{Exchange, Purpose};
use super::{HttpClient, HttpClientEvent, HttpClientRequest, HttpFailure, HttpFault, HttpReason, HttpRequestId, Phase, TimerKey};
use crate::error::RpcError;
use crate::http::accept::{EVENT_STREAM, JSON};
use crate::http::era::Era;
use crate::http::head::{Headers, Method};
use crate::http::header::{self, WrongArgument};
use crate::http::message::{self, ErrorId, Outgoing, Request};
use crate::json::Text;
use crate::json::write::Object;
use crate::session::{ExchangeId, Lane};
use crate::wire::WireId;

/// The confirmation of a repeated handshake.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// The id of the requests for the list of tools that the client makes by itself. No request of a session has this id.
const LOOKUP_ID: &str = "http-client/tools";

impl HttpClient {
    // ---- Frames of the session ----

    pub(super) fn take_frame(&mut self, frame: Bytes, lane: Lane) {
        match message::outgoing(&frame) {
            Outgoing::Request(number, request) => self.take_request(ExchangeId(number), &request, frame),
            Outgoing::Cancel(number) => self.take_cancel(ExchangeId(number), frame),
            Outgoing::Confirmation => {
                let headers = self.legacy_headers();
                let request = self.send(Purpose::Confirmation, Method::Post, headers, frame);
                self.limit(request, self.config.timeouts.acknowledge);
            }
            // Without a handshake a client sends only requests.
            _ if self.session.is_unopened() => {}
            // The server has made the request in an earlier HTTP session, which it has forgotten.
            Outgoing::Answer if lane.number() != self.session.generation() => {}
            Outgoing::Answer => self.queue_answer(frame),
            Outgoing::Notification | Outgoing::Unknown => self.queue_message(frame),
        }
    }

    fn take_request(&mut self, exchange: ExchangeId, request: &Request, frame: Bytes) {
        if self.calls.len() >= self.config.limits.calls {
            self.fault(Some(exchange), HttpFault::TooMany);
            let why = HttpReason::new(request.method.clone(), HttpFault::TooMany, None);
            return self.events.push_back(HttpClientEvent::Lost { exchange, why });
        }
        let kind = Kind::of(request);
        let era = if request.names_version { Era::Modern } else { Era::Legacy };
        let is_opening = kind == Kind::Initialize;
        if is_opening {
            // If the probe gets no answer, the session assumes a server with a handshake. But over HTTP such a server would have answered.
            if self.calls.values().any(|call| *call.kind() == Kind::Probe) {
                return self.fail(HttpFailure::NoAnswer);
            }
            self.session.open(frame.clone());
        }
        let mut permit = None;
        if self.config.cache && era == Era::Modern {
            if let Some(response) = self.cache.response(exchange, request, self.now) {
                return self.pass(response, Some(exchange), self.session.generation());
            }
            permit = self.cache.permit(request);
        }
        let size = frame.len();
        self.calls.insert(exchange, Call::new(era, kind, request.method.clone(), frame, permit));
        if era == Era::Modern || is_opening || self.session.is_open() {
            self.send_call(exchange, Some(request));
        } else {
            self.backlog.push_call(exchange, size);
            self.flush();
        }
    }

    fn take_cancel(&mut self, exchange: ExchangeId, frame: Bytes) {
        let call = self.forget_call(exchange);
        self.backlog.withdraw(exchange);
        self.tools.withdraw(exchange);
        // A server with a handshake does not treat the end of a stream as a cancel. It may also still work on a call that was lost at this
        // end.
        let posts_cancel = match &call {
            Some(call) => call.era() == Era::Legacy && !call.is_held(),
            None => !self.session.is_unopened(),
        };
        if posts_cancel {
            self.queue_message(frame);
        }
        if let Some(request) = call.and_then(|call| call.request()) {
            self.abort(request);
        }
    }

    /// Sends the request of a call. `request` is the contents of its frame, if the frame was read already.
    pub(super) fn send_call(&mut self, exchange: ExchangeId, request: Option<&Request>) {
        let Some(call) = self.calls.get(&exchange) else { return };
        let (frame, kind) = (call.frame().clone(), call.kind().clone());
        let read;
        let request = match request {
            Some(request) => request,
            None => match message::outgoing(&frame) {
                Outgoing::Request(_, request) => {
                    read = request;
                    &read
                }
                _ => return,
            },
        };
        let headers = match call.era() {
            Era::Legacy => Ok(self.legacy_headers()),
            Era::Modern => self.modern_headers(request),
        };
        let mut headers = match headers {
            Ok(headers) => headers,
            Err(wrong) => return self.refuse(exchange, &RpcError::invalid_params(format!("{wrong}"))),
        };
        request.write_trace(&mut headers);
        let sent = self.send(Purpose::Call(exchange), Method::Post, headers, frame);
        if kind == Kind::Ping {
            self.limit(sent, self.config.timeouts.acknowledge);
        }
        let generation = self.session.generation();
        if let Some(call) = self.calls.get_mut(&exchange) {
            call.send(sent, generation);
        }
    }

    /// Ends a call with an error of the client.
    pub(super) fn refuse(&mut self, exchange: ExchangeId, error: &RpcError) {
        self.forget_call(exchange);
        let id = i64::try_from(exchange.0).map_or(ErrorId::Null, |number| ErrorId::Of(WireId::Int(number)));
        self.pass(message::error(&id, error), Some(exchange), self.session.generation());
    }

    /// Posts a notification, or queues it until the HTTP session is open and enough earlier messages are acknowledged.
    fn queue_message(&mut self, frame: Bytes) {
        self.backlog.push_message(frame);
        self.flush();
    }

    /// Posts an answer, even if notifications wait, since the server may wait for the answer before it responds to anything. An answer
    /// waits only if too many messages are not acknowledged.
    fn queue_answer(&mut self, frame: Bytes) {
        if !self.backlog.push_answer(frame, &self.config.limits) {
            self.fault(None, HttpFault::TooMany);
        }
        self.flush();
    }

    fn send_message(&mut self, frame: Bytes) {
        let headers = self.legacy_headers();
        let request = self.send(Purpose::Message(self.session.generation()), Method::Post, headers, frame);
        self.limit(request, self.config.timeouts.acknowledge);
    }

    /// Sends the frames that wait and may be sent, stops or resumes the channel of the session, and ends the HTTP session of a client that
    /// is closing if nothing is left to wait for.
    pub(super) fn flush(&mut self) {
        while matches!(self.phase, Phase::Running | Phase::Closing)
            && let Some(frame) = self.backlog.pop_answer(&self.config.limits)
        {
            self.send_message(frame);
        }
        match &self.phase {
            Phase::Old { target: Some(target), .. } => {
                let target = target.clone();
                while !matches!(self.phase, Phase::Old { confirming: Some(_), .. })
                    && let Some(frame) = self.backlog.pop_message(&self.config.limits)
                {
                    self.send_old(target.clone(), frame);
                }
            }
            Phase::Running | Phase::Closing if self.session.is_open() => {
                while let Some(exchange) = self.backlog.pop_call() {
                    self.send_call(exchange, None);
                }
                while let Some(frame) = self.backlog.pop_message(&self.config.limits) {
                    self.send_message(frame);
                }
            }
            Phase::Closing => self.backlog.clear(),
            _ => {}
        }
        if let Some(is_stopped) = self.backlog.update_stopped(&self.config.limits) {
            self.events.push_back(HttpClientEvent::Writable(!is_stopped));
        }
        // This is the last step, since no event may follow `Closed`.
        self.end_session();
    }

    /// Sends a frame over the transport of 2024-11-05.
    fn send_old(&mut self, target: Text, frame: Bytes) {
        let (exchange, is_confirmation) = match message::outgoing(&frame) {
            Outgoing::Request(number, _) => (Some(ExchangeId(number)), false),
            outgoing => (None, matches!(outgoing, Outgoing::Confirmation)),
        };
        let mut headers = Headers::new();
        headers.push(header::CONTENT_TYPE, JSON);
        let request = self.send_to(Purpose::OldMessage(exchange), Method::Post, target, headers, frame, 0);
        self.limit(request, self.config.timeouts.acknowledge);
        if let Phase::Old { confirming, .. } = &mut self.phase {
            *confirming = is_confirmation.then_some(request);
        }
    }

    // ---- Requests of the client itself ----

    /// Opens the GET stream, or resumes it.
    pub(super) fn open_get_stream(&mut self) {
        if !self.config.get_stream || !self.session.is_confirmed() {
            return;
        }
        let last_event_id = self.get_stream.resumption().last_event_id().cloned();
        let headers = self.stream_headers(last_event_id);
        let request = self.send(Purpose::GetStream, Method::Get, headers, Bytes::new());
        self.get_stream.ask(request);
    }

    /// Resumes the stream of a call.
    pub(super) fn resume_call(&mut self, exchange: ExchangeId) {
        let Some(call) = self.calls.get_mut(&exchange) else { return };
        let last_event_id = call.resumption().last_event_id().cloned();
        let headers = self.stream_headers(last_event_id);
        let request = self.send(Purpose::Resume(exchange), Method::Get, headers, Bytes::new());
        if let Some(call) = self.calls.get_mut(&exchange) {
            call.resume(request);
        }
    }

    /// Repeats the handshake after the server has forgotten the HTTP session of this generation, unless it was repeated already.
    pub(super) fn reopen(&mut self, generation: u32) {
        if generation != self.session.generation() || !matches!(self.phase, Phase::Running) {
            return;
        }
        if !self.session.reopen() {
            return;
        }
        if let Some(request) = self.get_stream.stop() {
            self.abort(request);
        }
        self.timers.set(self.get_stream.timer(), TimerKey::GetStream, None);
        self.backlog.clear_answers();
        let broken = self.calls.iter().filter(|(_, call)| call.is_broken()).map(|(exchange, _)| *exchange);
        for exchange in broken.collect::<Vec<_>>() {
            let why = self.reason(Purpose::Call(exchange), HttpFault::NoResponse, None);
            self.lose_call(exchange, why);
        }
        self.repeat_handshake();
    }

    /// Repeats the handshake. Called again if an attempt is lost.
    pub(super) fn repeat_handshake(&mut self) {
        let (headers, initialize) = (self.post_headers(), self.session.initialize().clone());
        let request = self.send(Purpose::Reopening, Method::Post, headers, initialize);
        self.limit(request, self.config.timeouts.reopen);
    }

    /// Sends the confirmation of a repeated handshake.
    pub(super) fn confirm_again(&mut self) {
        let headers = self.legacy_headers();
        let request = self.send(Purpose::Confirmation, Method::Post, headers, Bytes::from_static(INITIALIZED.as_bytes()));
        self.limit(request, self.config.timeouts.acknowledge);
    }

    /// Requests a page of the list of tools. The members of `_meta` that describe the caller are copied from the request of the call
    /// `exchange`. Returns `false`, and requests nothing, if there is no such call.
    pub(super) fn ask_for_tools(&mut self, exchange: ExchangeId, cursor: Option<&str>) -> bool {
        let Some(call) = self.calls.get(&exchange) else { return false };
        let Outgoing::Request(_, request) = message::outgoing(call.frame()) else { return false };
        let mut body = Vec::new();
        Object::write(&mut body, |object| {
            object.word("jsonrpc", "2.0");
            object.word("id", LOOKUP_ID);
            object.word("method", "tools/list");
            object.object("params", |object| {
                if let Some(cursor) = cursor {
                    object.string("cursor", cursor);
                }
                object.object("_meta", |object| request.write_caller(object));
            });
        });
        let mut headers = self.post_headers();
        headers.push(header::VERSION, String::from(request.version.as_deref().unwrap_or_default()));
        headers.push(header::METHOD, "tools/list");
        let sent = self.send(Purpose::Lookup, Method::Post, headers, body.into());
        self.limit(sent, self.config.timeouts.acknowledge);
        true
    }

    // ---- Headers ----

    fn post_headers(&self) -> Headers<'static> {
        let mut headers = Headers::new();
        headers.push(header::CONTENT_TYPE, JSON);
        headers.push(header::ACCEPT, "application/json, text/event-stream");
        headers
    }

    /// The header fields of a POST of the era with a handshake.
    fn legacy_headers(&self) -> Headers<'static> {
        let mut headers = self.post_headers();
        self.write_session(&mut headers);
        headers
    }

    /// The header fields of a POST of the era without a handshake.
    fn modern_headers(&self, request: &Request) -> Result<Headers<'static>, WrongArgument> {
        let mut headers = self.post_headers();
        headers.push(header::VERSION, String::from(request.version.as_deref().unwrap_or_default()));
        headers.push(header::METHOD, String::from(&*header::encode(&request.method)));
        if let Some(name) = request.name.as_deref() {
            headers.push(header::NAME, String::from(&*header::encode(name)));
            if let Some(params) = self.tools.headers(name).filter(|_| request.calls_tool()) {
                params.write(&request.arguments_json(), &mut headers)?;
            }
        }
        Ok(headers)
    }

    /// The header fields of a GET.
    fn stream_headers(&self, last_event_id: Option<Text>) -> Headers<'static> {
        let mut headers = Headers::new();
        headers.push(header::ACCEPT, EVENT_STREAM);
        self.write_session(&mut headers);
        if let Some(id) = last_event_id {
            headers.push(header::LAST_EVENT_ID, String::from(&*id));
        }
        headers
    }

    /// Adds the header fields that name the HTTP session and its revision.
    pub(super) fn write_session(&self, headers: &mut Headers<'static>) {
        if let Some(id) = self.session.id() {
            headers.push(header::SESSION_ID, String::from(&**id));
        }
        if let Some(version) = self.session.version() {
            headers.push(header::VERSION, version.as_str());
        }
    }

    // ---- Sending ----

    pub(super) fn send(&mut self, purpose: Purpose, method: Method, headers: Headers<'static>, body: Bytes) -> HttpRequestId {
        let target = self.location.target().clone();
        self.send_to(purpose, method, target, headers, body, 0)
    }

    pub(super) fn send_to(
        &mut self,
        purpose: Purpose,
        method: Method,
        target: Text,
        headers: Headers<'static>,
        body: Bytes,
        redirects: u8,
    ) -> HttpRequestId {
        let id = HttpRequestId(self.next_number);
        self.next_number = self.next_number.saturating_add(1);
        let request = HttpClientRequest { id, method, target, headers, body };
        self.exchanges.insert(id, Exchange::new(purpose, request.clone(), redirects));
        self.events.push_back(HttpClientEvent::Send(request));
        id
    }

    /// Sets the time that an exchange may take from now on.
    pub(super) fn limit(&mut self, request: HttpRequestId, span: Duration) {
        let at = self.now.saturating_add(span);
        if let Some(exchange) = self.exchanges.get_mut(&request) {
            self.timers.set(exchange.deadline(), TimerKey::Exchange(request), Some(at));
        }
    }
}
