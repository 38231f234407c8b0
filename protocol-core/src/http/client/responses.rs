//! The steps that read responses: heads, bodies, streams of events, and exchanges that break.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::call::{Call, Kind};
use super::exchange::Purpose;
use super::reason::shortened;
use super::resumption::Resumption;
use super::verdict::{Answer, Subject, Verdict, judge};
use super::{HttpClient, HttpClientEvent, HttpExcerpt, HttpFailure, HttpFault, HttpReason, HttpRequestId, Phase, TimerKey};
use crate::error::RpcError;
use crate::http::accept::{EVENT_STREAM, JSON, is_media_type};
use crate::http::era::Era;
use crate::http::head::{Headers, ResponseHead};
use crate::http::header;
use crate::http::message::{self, Incoming};
use crate::http::sse::{Decoder, DecoderLimits, Event, Item};
use crate::json::Text;
use crate::json::read::{member, string};
use crate::mcp::Revision;
use crate::session::ExchangeId;

/// The maximum number of challenges in a fault.
const MAX_CHALLENGES: usize = 8;

/// The parts of a head that determine how the response is read.
struct Head {
    status: u16,
    form: Form,
    /// `true` if the response has no body that is of use.
    is_empty: bool,
    /// The fault if the body has no response.
    fault: HttpFault,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Events,
    Other,
}

impl Head {
    fn of(head: &ResponseHead<'_>) -> Self {
        let media_type = head.headers.get_all(header::CONTENT_TYPE).next().unwrap_or_default();
        let is_encoded = header::encoding(&head.headers).is_some();
        let form = match () {
            // The client asks for no encoding, and reads none.
            () if is_encoded => Form::Other,
            () if is_media_type(media_type, JSON) => Form::Json,
            () if is_media_type(media_type, EVENT_STREAM) => Form::Events,
            () => Form::Other,
        };
        // The body of a redirection is of no use.
        let is_empty = matches!(head.status, 202 | 204 | 300..=399)
            || head.headers.get_all(header::CONTENT_LENGTH).any(|length| length == b"0");
        let fault = match head.status {
            200..=299 if is_encoded && !is_empty => HttpFault::Encoded,
            200..=299 if form == Form::Other && !is_empty => HttpFault::MediaType,
            200..=299 => HttpFault::NoResponse,
            300..=399 => HttpFault::Redirected { status: head.status, location: location(&head.headers).map(Text::from) },
            401 | 403 => HttpFault::Unauthorized { status: head.status, challenges: challenges(&head.headers) },
            status @ (429 | 503) => match retry_after(&head.headers) {
                Some(retry_after) => HttpFault::Overloaded { status, retry_after },
                None => HttpFault::Status(status),
            },
            status => HttpFault::Status(status),
        };
        Self { status: head.status, form, is_empty, fault }
    }

    fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }
}

/// The revision in the result of a handshake, if it is known.
fn agreed_revision(frame: &[u8]) -> Option<Revision> {
    message::agreed_version(frame).and_then(|version| Revision::from_name(&version))
}

fn location<'h>(headers: &'h Headers<'_>) -> Option<&'h str> {
    headers.only(header::LOCATION).ok().flatten()
}

/// The time after which a request may be made again. A date is not read, since the client has no calendar.
fn retry_after(headers: &Headers<'_>) -> Option<Duration> {
    let value = headers.only(header::RETRY_AFTER).ok().flatten()?;
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(value.parse().unwrap_or(u64::MAX)))
}

fn challenges(headers: &Headers<'_>) -> Vec<Text> {
    let texts = headers.get_all(header::WWW_AUTHENTICATE).filter_map(|value| core::str::from_utf8(value).ok());
    texts.take(MAX_CHALLENGES).map(Text::from).collect()
}

impl HttpClient {
    // ---- Heads ----

    pub(super) fn read_head(&mut self, request: HttpRequestId, head: &ResponseHead<'_>) {
        let awaits_head = self.exchanges.get(&request).is_some_and(|exchange| exchange.request().is_some());
        // An informational response is followed by another one.
        if !awaits_head || head.status < 200 || self.follow(request, head) {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(&request) else { return };
        exchange.see(HttpExcerpt::of(head));
        let purpose = exchange.purpose();
        let response = Head::of(head);
        if response.fault.is_unauthorized() {
            // From now on requests may be made for another caller, who may get other results.
            self.cache.clear();
        }
        match purpose {
            Purpose::Call(exchange) => self.read_call_head(request, exchange, head, response),
            Purpose::Resume(exchange) => self.read_resumed_head(request, exchange, response),
            Purpose::GetStream => {
                self.begin();
                self.read_get_stream_head(request, &response);
            }
            Purpose::Message(generation) => {
                self.abort(request);
                match response.status {
                    200..=299 => {}
                    404 if self.session.id().is_some() => self.reopen(generation),
                    _ => self.fault(None, response.fault),
                }
                self.flush();
            }
            Purpose::Confirmation => {
                self.abort(request);
                if !response.is_success() {
                    self.fault(None, response.fault);
                }
                self.confirm();
            }
            Purpose::Reopening | Purpose::Lookup if response.is_success() && response.form != Form::Other => {
                if purpose == Purpose::Reopening {
                    self.take_session_id(head);
                }
                self.read_body(request, response);
            }
            Purpose::OldStream if response.is_success() && response.form == Form::Events => self.read_body(request, response),
            Purpose::OldMessage(_) if response.is_success() => {
                self.abort(request);
                self.flush();
            }
            Purpose::Reopening | Purpose::Lookup | Purpose::OldStream | Purpose::OldMessage(_) | Purpose::Delete => {
                let seen = self.abort(request).and_then(|exchange| exchange.seen());
                self.lose(purpose, response.fault, seen);
            }
        }
    }

    fn read_call_head(&mut self, request: HttpRequestId, exchange: ExchangeId, head: &ResponseHead<'_>, response: Head) {
        let Some(call) = self.calls.get_mut(&exchange) else { return };
        let is_initialize = *call.kind() == Kind::Initialize;
        if response.is_success() && response.form == Form::Events {
            call.stream(request);
            call.resumption().begin(self.now);
        }
        if response.is_success() && is_initialize {
            self.take_session_id(head);
        }
        if response.fault.is_always_reported() {
            self.fault(Some(exchange), response.fault.clone());
        }
        let has_answer = response.form == Form::Json || (response.form == Form::Events && response.is_success());
        if has_answer {
            self.read_body(request, response);
        } else if response.is_empty {
            let seen = self.abort(request).and_then(|exchange| exchange.seen());
            self.conclude(exchange, response.status, &response.fault, seen, Answer::None);
        } else if let Some(open) = self.exchanges.get_mut(&request) {
            open.read_excerpt(response.status, response.fault);
            self.limit(request, self.config.timeouts.linger);
        }
    }

    fn read_resumed_head(&mut self, request: HttpRequestId, exchange: ExchangeId, response: Head) {
        let Some(call) = self.calls.get_mut(&exchange) else { return };
        let generation = call.generation();
        if response.is_success() && response.form == Form::Events {
            call.stream(request);
            call.resumption().begin(self.now);
            return self.read_body(request, response);
        }
        let seen = self.abort(request).and_then(|exchange| exchange.seen());
        let is_temporary = response.fault.is_temporary();
        let why = self.reason(Purpose::Resume(exchange), response.fault, seen);
        if is_temporary {
            return self.break_call(exchange, why);
        }
        self.lose_call(exchange, why);
        if response.status == 404 {
            self.reopen(generation);
        }
    }

    fn read_get_stream_head(&mut self, request: HttpRequestId, response: &Head) {
        if response.is_success() && response.form == Form::Events {
            self.get_stream.live(request);
            self.get_stream.resumption().begin(self.now);
            let last_event_id = self.get_stream.resumption().last_event_id().cloned();
            let decoder = Decoder::resumed(self.decoder_limits(), last_event_id);
            if let Some(exchange) = self.exchanges.get_mut(&request) {
                exchange.read_events(decoder);
            }
            return;
        }
        self.abort(request);
        match response.status {
            404 if self.get_stream.was_live() => self.reopen(self.session.generation()),
            _ if response.fault.is_temporary() => self.break_get_stream(&response.fault),
            // Most servers have no such stream.
            _ => drop(self.get_stream.stop()),
        }
    }

    fn read_body(&mut self, request: HttpRequestId, response: Head) {
        let limits = &self.config.limits;
        let limit = if response.is_success() { limits.frame_bytes } else { limits.error_bytes };
        let decoder_limits = self.decoder_limits();
        let Some(exchange) = self.exchanges.get_mut(&request) else { return };
        let last_event_id = match exchange.purpose() {
            Purpose::Resume(call) => self.calls.get_mut(&call).and_then(|call| call.resumption().last_event_id().cloned()),
            _ => None,
        };
        match response.form {
            Form::Events => exchange.read_events(Decoder::resumed(decoder_limits, last_event_id)),
            Form::Json | Form::Other => exchange.read_text(response.status, response.fault, limit),
        }
    }

    fn decoder_limits(&self) -> DecoderLimits {
        let limits = &self.config.limits;
        DecoderLimits { event_bytes: limits.frame_bytes, id_bytes: limits.id_bytes }
    }

    /// Follows a redirection: sends the same request again, to another target of the same origin. If the redirection leads to another
    /// origin, would change the request, or is one too many, does nothing and returns `false`.
    fn follow(&mut self, request: HttpRequestId, head: &ResponseHead<'_>) -> bool {
        let Some(exchange) = self.exchanges.get(&request) else { return false };
        let may_follow = matches!(head.status, 307 | 308) && exchange.redirects() < self.config.limits.redirects;
        let Some(sent) = exchange.request().filter(|_| may_follow) else { return false };
        let target = location(&head.headers).and_then(|location| self.location.resolve(&sent.target, location));
        let Some(target) = target else { return false };
        let (sent, purpose, redirects) = (sent.clone(), exchange.purpose(), exchange.redirects().saturating_add(1));
        // A permanent redirection holds for later requests, too. Any redirection of the stream of the transport of 2024-11-05 also does,
        // since the address for messages that the server names is relative to the address of the stream.
        if purpose == Purpose::OldStream || (head.status == 308 && sent.target == *self.location.target()) {
            self.location.move_to(target.clone());
        }
        let is_confirming = matches!(self.phase, Phase::Old { confirming: Some(confirming), .. } if confirming == request);
        self.abort(request);
        if matches!(purpose, Purpose::Message(_) | Purpose::OldMessage(_)) {
            self.backlog.post();
        }
        let again = self.send_to(purpose, sent.method, target, sent.headers, sent.body, redirects);
        if let Phase::Old { confirming, .. } = &mut self.phase
            && is_confirming
        {
            *confirming = Some(again);
        }
        let timeouts = &self.config.timeouts;
        match purpose {
            Purpose::Call(exchange) => {
                if let Some(call) = self.calls.get_mut(&exchange) {
                    call.send(again, call.generation());
                    if *call.kind() == Kind::Ping {
                        self.limit(again, timeouts.acknowledge);
                    }
                }
            }
            Purpose::Resume(exchange) => {
                if let Some(call) = self.calls.get_mut(&exchange) {
                    call.resume(again);
                }
            }
            Purpose::GetStream => self.get_stream.ask(again),
            Purpose::Reopening | Purpose::OldStream => self.limit(again, timeouts.reopen),
            Purpose::Delete => self.limit(again, timeouts.close),
            Purpose::Message(_) | Purpose::Confirmation | Purpose::Lookup | Purpose::OldMessage(_) => {
                self.limit(again, timeouts.acknowledge);
            }
        }
        true
    }

    /// Reads the id of the HTTP session from the head of the response to a handshake.
    fn take_session_id(&mut self, head: &ResponseHead<'_>) {
        let id = head.headers.only(header::SESSION_ID);
        let is_proper = id.is_ok_and(|id| id.is_none_or(header::is_session_id));
        self.session.set_id(id.ok().flatten().filter(|_| is_proper).map(Text::from));
        if !is_proper {
            self.fault(None, HttpFault::SessionId);
        }
    }

    // ---- Bodies ----

    pub(super) fn read_chunk(&mut self, request: HttpRequestId, chunk: Bytes) {
        let Some(exchange) = self.exchanges.get_mut(&request) else { return };
        let is_full_excerpt = exchange.see_body(&chunk);
        if let Some(decoder) = exchange.events() {
            decoder.feed(chunk);
            self.read_events(request);
        } else if is_full_excerpt {
            self.end_exchange(request, true, HttpFault::NoResponse);
        } else if exchange.add_text(&chunk).is_err() {
            let Some(mut exchange) = self.abort(request) else { return };
            let (purpose, seen) = (exchange.purpose(), exchange.seen());
            match (purpose, exchange.take_text()) {
                // If the body of an error is too long, the error is handled without the body.
                (Purpose::Call(exchange), Some((status @ 300.., fault, _))) => {
                    self.conclude(exchange, status, &fault, seen, Answer::None);
                }
                _ => self.lose(purpose, HttpFault::TooLong, seen),
            }
        }
    }

    pub(super) fn read_end(&mut self, request: HttpRequestId) {
        let Some(exchange) = self.exchanges.get_mut(&request) else { return };
        let (purpose, seen) = (exchange.purpose(), exchange.seen());
        let Some((status, fault, body)) = exchange.take_text() else {
            return self.end_exchange(request, false, HttpFault::NoResponse);
        };
        self.remove(request);
        match purpose {
            Purpose::Call(exchange) => self.conclude(exchange, status, &fault, seen, Answer::read(body, exchange, status)),
            Purpose::Reopening => self.take_repeated_handshake(&body),
            Purpose::Lookup => self.take_page(&body),
            _ => self.lose(purpose, HttpFault::NoResponse, seen),
        }
    }

    pub(super) fn lose_exchange(&mut self, request: HttpRequestId, why: &str) {
        self.end_exchange(request, false, HttpFault::Disconnected(shortened(why)));
    }

    /// Handles the deadline of an exchange.
    pub(super) fn expire_exchange(&mut self, request: HttpRequestId) {
        self.end_exchange(request, true, HttpFault::NoAnswer);
    }

    /// Removes an exchange whose response has no frame, or no further one, and handles the consequences; `fault` is the reason, unless
    /// the head of the response gave another one. If `is_open`, the exchange is given up.
    fn end_exchange(&mut self, request: HttpRequestId, is_open: bool, fault: HttpFault) {
        let exchange = if is_open { self.abort(request) } else { self.remove(request) };
        let Some(exchange) = exchange.filter(|exchange| !exchange.ignores_rest()) else { return };
        let (purpose, seen) = (exchange.purpose(), exchange.seen());
        match (purpose, exchange.excerpt()) {
            (Purpose::Call(call), Some((status, fault))) => self.conclude(call, status, &fault, seen, Answer::None),
            _ => self.lose(purpose, fault, seen),
        }
    }

    // ---- Streams of events ----

    fn read_events(&mut self, request: HttpRequestId) {
        loop {
            let Some(exchange) = self.exchanges.get_mut(&request) else { return };
            let purpose = exchange.purpose();
            let Some(decoder) = exchange.events() else { return };
            let item = decoder.next_item();
            let resumption = match purpose {
                Purpose::Call(call) | Purpose::Resume(call) => self.calls.get_mut(&call).map(|call| call.resumption()),
                Purpose::GetStream => Some(self.get_stream.resumption()),
                _ => None,
            };
            match (&item, resumption) {
                (Ok(Some(Item::Event(_) | Item::Id)), Some(resumption)) => resumption.reach(decoder.last_event_id()),
                (Ok(Some(Item::Retry(wait))), Some(resumption)) => Resumption::set_retry(resumption, *wait),
                _ => {}
            }
            match item {
                Ok(Some(Item::Event(event))) => self.take_event(request, purpose, event),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => {
                    let seen = self.abort(request).and_then(|exchange| exchange.seen());
                    return self.lose_unreadable(purpose, HttpFault::Stream(error), seen);
                }
            }
        }
    }

    fn take_event(&mut self, request: HttpRequestId, purpose: Purpose, event: Event) {
        let is_message = event.is_message();
        if let Purpose::Call(exchange) | Purpose::Resume(exchange) = purpose
            && let Some(call) = self.calls.get_mut(&exchange)
        {
            // The stream goes on, so a later break has another reason.
            drop(call.cause().take());
        }
        match purpose {
            Purpose::OldStream if event.name == "endpoint" => self.take_endpoint(request, &event.data),
            _ if !is_message => {}
            Purpose::Call(exchange) | Purpose::Resume(exchange) => self.take_stream_frame(request, exchange, event.data),
            Purpose::GetStream => self.take_from_get_stream(event.data),
            Purpose::Reopening => match message::incoming(&event.data) {
                Incoming::Response(_) => {
                    self.ignore_rest(request);
                    self.take_repeated_handshake(&event.data);
                }
                // The response in an array, or in text that is no message.
                Incoming::Batch(numbers) if !numbers.is_empty() => self.fail(HttpFailure::SessionLost(None)),
                _ => self.pass(event.data, None, self.session.generation()),
            },
            Purpose::Lookup => {
                let incoming = message::incoming(&event.data);
                if matches!(incoming, Incoming::Response(_) | Incoming::Batch(_)) {
                    self.ignore_rest(request);
                    self.take_page(&event.data);
                }
            }
            Purpose::OldStream => self.pass(event.data, None, self.session.generation()),
            Purpose::Message(_) | Purpose::Confirmation | Purpose::Delete | Purpose::OldMessage(_) => {}
        }
    }

    /// Takes a frame on the stream of a call.
    fn take_stream_frame(&mut self, request: HttpRequestId, exchange: ExchangeId, frame: Bytes) {
        let Some(call) = self.calls.get(&exchange) else { return };
        let (era, generation) = (call.era(), call.generation());
        match message::incoming(&frame) {
            Incoming::Response(Some(number)) if number == exchange.0 => {
                self.ignore_rest(request);
                self.answer(exchange, frame);
            }
            Incoming::Batch(numbers) if numbers.iter().all(|number| *number == exchange.0) && !numbers.is_empty() => {
                self.ignore_rest(request);
                self.answer_mixed(exchange, frame);
            }
            Incoming::Response(_) | Incoming::Batch(_) if era == Era::Modern => {
                self.fault(Some(exchange), HttpFault::ForeignResponse);
            }
            Incoming::Response(number) => {
                self.take_responses(number.as_slice(), &frame);
                self.pass(frame, Some(exchange), generation);
            }
            Incoming::Batch(numbers) => {
                if numbers.contains(&exchange.0) {
                    self.ignore_rest(request);
                }
                self.take_responses(&numbers, &frame);
                self.pass(frame, Some(exchange), generation);
            }
            Incoming::Malformed | Incoming::Message | Incoming::Error => {
                if self.config.cache {
                    self.cache.notification(&frame);
                }
                self.pass(frame, Some(exchange), generation);
            }
        }
    }

    /// Takes a frame on the GET stream. Some servers send responses on it, although they should not.
    fn take_from_get_stream(&mut self, frame: Bytes) {
        match message::incoming(&frame) {
            Incoming::Response(number) => self.take_responses(number.as_slice(), &frame),
            Incoming::Batch(numbers) => self.take_responses(&numbers, &frame),
            Incoming::Malformed | Incoming::Message | Incoming::Error => {}
        }
        self.pass(frame, None, self.session.generation());
    }

    /// Ends the calls with these numbers, whose responses are in a frame.
    fn take_responses(&mut self, numbers: &[u64], frame: &Bytes) {
        for answered in numbers.iter().copied().map(ExchangeId) {
            // If the response came on the stream of another request, the call's own request is given up. On its own stream the rest is
            // ignored already.
            let request = self.calls.get(&answered).and_then(|call| call.request());
            self.settle(answered, frame);
            if let Some(request) = request.filter(|request| self.exchanges.get(request).is_some_and(|open| !open.ignores_rest())) {
                self.abort(request);
            }
        }
    }

    /// Ignores the rest of a response from now on. The exchange stays open for a short time, so that the server can end the response, and
    /// the connection can be used again.
    fn ignore_rest(&mut self, request: HttpRequestId) {
        if let Some(exchange) = self.exchanges.get_mut(&request) {
            exchange.ignore_rest();
        }
        self.limit(request, self.config.timeouts.linger);
    }

    // ---- Responses ----

    /// Handles the whole response to a call according to the verdict on it.
    fn conclude(&mut self, exchange: ExchangeId, status: u16, fault: &HttpFault, seen: Option<HttpExcerpt>, answer: Answer) {
        let Some(call) = self.calls.get_mut(&exchange) else { return };
        let why = HttpReason::new(call.method().clone(), fault.clone(), seen);
        let subject = match (call.kind(), call.era()) {
            (Kind::Probe, _) => Subject::Probe,
            (Kind::Initialize, _) => Subject::Initialize,
            (_, Era::Modern) => Subject::Modern,
            (_, Era::Legacy) => {
                // A call of an earlier generation was sent in an HTTP session that the server has forgotten.
                let is_past = call.generation() != self.session.generation();
                Subject::Legacy { has_session: is_past || self.session.id().is_some(), was_moved: call.was_moved() }
            }
        };
        match judge(subject, status, answer) {
            Verdict::Pass(frame) => self.answer(exchange, frame),
            Verdict::PassMixed(frame) => self.answer_mixed(exchange, frame),
            Verdict::LookUp(error) => {
                self.cache.drop_tools();
                if !call.hold_for_tools() {
                    self.answer(exchange, error);
                } else if self.tools.look_up(exchange, error) && !self.ask_for_tools(exchange, None) {
                    // The lookup is new, and its first page cannot be requested.
                    self.end_lookup(false);
                }
            }
            // The fault was reported when the head came.
            Verdict::Lose if fault.is_always_reported() => self.drop_call(exchange, why, false),
            Verdict::Lose => self.lose_call(exchange, why),
            Verdict::TakeForLegacy => {
                self.refuse(exchange, &RpcError::new(RpcError::NO_RESPONSE, format!("{why}")));
            }
            Verdict::TryOldTransport if self.config.old_transport => {
                let initialize = call.frame().clone();
                self.use_old_transport(initialize);
                // If the server has no such transport either, the first refusal is the one to tell.
                self.session.cause().note(&why);
            }
            // The body may be of MCP.
            Verdict::FailAsNotMcp if *fault == HttpFault::Encoded => self.fail(HttpFailure::Refused(Box::new(why))),
            Verdict::TryOldTransport | Verdict::Fail => self.fail(HttpFailure::Refused(Box::new(why))),
            Verdict::FailAsNotMcp => self.fail(HttpFailure::NotMcp(Some(Box::new(why)))),
            Verdict::Reopen => {
                let (generation, size) = (call.generation(), call.frame().len());
                if call.hold_for_session() {
                    self.backlog.push_call(exchange, size);
                    self.reopen(generation);
                    self.flush();
                } else {
                    self.lose_call(exchange, why);
                }
            }
        }
    }

    /// Ends a call with its response.
    fn answer(&mut self, exchange: ExchangeId, frame: Bytes) {
        let call = self.calls.get_mut(&exchange);
        let (generation, permit) = call.map_or((0, None), |call| (call.generation(), call.take_permit()));
        let frame = self.settle(exchange, &frame).unwrap_or(frame);
        if let Some(permit) = permit {
            self.cache.store(permit, &frame, &self.config.limits, &self.config.timeouts, self.now);
        }
        self.pass(frame, Some(exchange), generation);
    }

    /// Ends a call whose response is in a batch, or in text that is no message, and passes the frame to the session. Nothing else is read
    /// from such a frame.
    fn answer_mixed(&mut self, exchange: ExchangeId, frame: Bytes) {
        let Some(call) = self.forget_call(exchange) else { return };
        self.drop_cache_after_subscription(&call);
        if *call.kind() == Kind::Initialize {
            self.session.forget();
        }
        self.pass(frame, Some(exchange), call.generation());
    }

    /// Ends a call whose response is in the frame. If the response is a list with invalid tools, returns a frame without these tools, which
    /// must be passed to the session instead.
    fn settle(&mut self, exchange: ExchangeId, frame: &Bytes) -> Option<Bytes> {
        let call = self.forget_call(exchange)?;
        self.drop_cache_after_subscription(&call);
        match (call.kind(), call.era()) {
            (Kind::Initialize, _) => {
                if member(frame, "result").is_some() {
                    // This cannot fail: only a repeated handshake can lead to another version.
                    let _ = self.session.agree(agreed_revision(frame));
                } else {
                    self.session.forget();
                }
                None
            }
            (Kind::Tools, Era::Modern) => {
                let page = self.tools.learn(frame, self.config.limits.tools);
                for fault in page.faults {
                    self.fault(Some(exchange), fault);
                }
                page.without_invalid
            }
            _ => None,
        }
    }

    /// Drops all cached results if the call was a subscription: from now on the client may miss changes.
    fn drop_cache_after_subscription(&mut self, call: &Call) {
        if *call.kind() == Kind::Listen {
            self.cache.clear();
        }
    }

    /// Handles the acknowledgement of the confirmation of the handshake, or the end of the wait for it.
    fn confirm(&mut self) {
        if self.session.confirm() {
            if self.session.was_reopened() {
                self.events.push_back(HttpClientEvent::Reopened);
            }
            self.open_get_stream();
            if !self.config.get_stream {
                return self.begin();
            }
            let until = self.now.saturating_add(self.config.timeouts.get_stream);
            self.timers.set(self.session.timer(), TimerKey::Session, Some(until));
        }
    }

    /// Sends the requests that wait for the GET stream. Called once the stream is open, was refused or lost, or has taken too long, and
    /// also if the client opens no such stream.
    pub(super) fn begin(&mut self) {
        if self.session.begin() {
            self.timers.set(self.session.timer(), TimerKey::Session, None);
            self.flush();
        }
    }

    /// Fails, since the handshake could not be repeated.
    fn lose_session(&mut self) {
        let cause = self.session.cause().take();
        self.fail(HttpFailure::SessionLost(cause));
    }

    /// Takes the response to a handshake that the client has repeated.
    fn take_repeated_handshake(&mut self, frame: &Bytes) {
        match agreed_revision(frame).map(|revision| self.session.agree(Some(revision))) {
            Some(Ok(())) => self.confirm_again(),
            Some(Err(_)) | None => {
                self.lose_session();
            }
        }
    }

    /// Takes a page of the list of tools that the client has requested by itself.
    fn take_page(&mut self, frame: &Bytes) {
        let Some(result) = member(frame, "result") else { return self.end_lookup(false) };
        let cursor = member(result, "nextCursor").and_then(string);
        // Faults of tools are not reported here, but when the session requests the list.
        self.tools.learn(frame, self.config.limits.tools);
        let next = cursor.and_then(|cursor| Some((self.tools.next_page(&cursor, self.config.limits.pages)?, cursor)));
        if !next.is_some_and(|(call, cursor)| self.ask_for_tools(call, Some(&cursor))) {
            self.end_lookup(true);
        }
    }

    /// Repeats the calls that wait for the list of tools if the list `is_known`, and otherwise ends them with their errors.
    fn end_lookup(&mut self, is_known: bool) {
        for (exchange, error) in self.tools.end_lookup() {
            if is_known {
                self.send_call(exchange, None);
            } else {
                self.answer(exchange, error);
            }
        }
    }

    /// Takes the address for messages of the transport of 2024-11-05.
    fn take_endpoint(&mut self, request: HttpRequestId, data: &Bytes) {
        let Phase::Old { target: target @ None, .. } = &mut self.phase else { return };
        let reference = core::str::from_utf8(data).unwrap_or_default();
        match self.location.resolve(self.location.target(), reference) {
            Some(found) => {
                *target = Some(found);
                if let Some(exchange) = self.exchanges.get_mut(&request) {
                    self.timers.set(exchange.deadline(), TimerKey::Exchange(request), None);
                }
                self.flush();
            }
            None => self.fail(HttpFailure::NotMcp(None)),
        }
    }

    // ---- Losses ----

    /// Handles an exchange that has ended without the response that it was made for.
    fn lose(&mut self, purpose: Purpose, fault: HttpFault, seen: Option<HttpExcerpt>) {
        match purpose {
            Purpose::Call(exchange) | Purpose::Resume(exchange) => self.break_call(exchange, self.reason(purpose, fault, seen)),
            Purpose::GetStream => {
                self.begin();
                self.break_get_stream(&fault);
            }
            Purpose::Message(_) => {
                self.fault(None, fault);
                self.flush();
            }
            Purpose::Confirmation => {
                self.fault(None, fault);
                self.confirm();
            }
            // The server may be restarting.
            Purpose::Reopening if fault.is_temporary() => self.break_reopening(&self.reason(purpose, fault, seen)),
            Purpose::Reopening => {
                let why = self.reason(purpose, fault, seen);
                self.session.cause().note(&why);
                self.lose_session();
            }
            Purpose::Lookup => self.end_lookup(false),
            Purpose::Delete => self.finish_closing(),
            Purpose::OldStream => {
                let is_open = matches!(self.phase, Phase::Old { target: Some(_), .. });
                let is_refused = matches!(fault, HttpFault::Status(_) | HttpFault::MediaType);
                let first = self.session.cause().take().filter(|_| is_refused);
                let why = first.unwrap_or_else(|| Box::new(self.reason(purpose, fault, seen)));
                self.fail(if is_open { HttpFailure::Ended } else { HttpFailure::Refused(why) });
            }
            Purpose::OldMessage(exchange) => {
                self.fault(exchange, fault.clone());
                let why = self.reason(purpose, fault, seen);
                self.events.extend(exchange.map(|exchange| HttpClientEvent::Lost { exchange, why }));
                self.flush();
            }
        }
    }

    /// Handles a stream that cannot be read. It is not resumed, since the same events would come again.
    fn lose_unreadable(&mut self, purpose: Purpose, fault: HttpFault, seen: Option<HttpExcerpt>) {
        match purpose {
            Purpose::Call(exchange) | Purpose::Resume(exchange) => self.lose_call(exchange, self.reason(purpose, fault, seen)),
            Purpose::GetStream => {
                self.get_stream.stop();
                self.fault(None, fault);
            }
            _ => self.lose(purpose, fault, seen),
        }
    }

    /// Handles the break of the exchange of a call: the stream is resumed if possible, and otherwise the call is lost.
    fn break_call(&mut self, exchange: ExchangeId, why: HttpReason) {
        let Some(call) = self.calls.get_mut(&exchange) else { return };
        let is_current = call.generation() == self.session.generation() && self.session.is_open();
        let can_resume = call.era() == Era::Legacy && is_current && call.resumption().last_event_id().is_some();
        let jitter = self.jitter.next();
        let (limits, timeouts) = (&self.config.limits, &self.config.timeouts);
        call.resumption().pause(why.fault.retry_after(), timeouts);
        let attempt = can_resume.then(|| call.resumption().next_attempt(limits, timeouts, jitter, self.now)).flatten();
        if attempt.is_some() {
            call.wait();
            self.timers.set(call.timer(), TimerKey::Resume(exchange), attempt);
            if call.cause().note(&why) {
                self.events.push_back(HttpClientEvent::Resuming { exchange: Some(exchange), why });
            }
        } else {
            self.lose_call(exchange, why);
        }
    }

    /// Ends a call that will get no response. If the call is the probe or the handshake, the client fails.
    pub(super) fn lose_call(&mut self, exchange: ExchangeId, why: HttpReason) {
        self.drop_call(exchange, why, true);
    }

    /// The same as [`lose_call`](Self::lose_call), but reports the fault only if `reports_fault`.
    fn drop_call(&mut self, exchange: ExchangeId, last: HttpReason, reports_fault: bool) {
        let Some(mut call) = self.forget_call(exchange) else { return };
        let fault = last.fault.clone();
        let why = call.cause().take().map_or(last, |first| HttpReason { gave_up: true, ..*first });
        if let Some(request) = call.request() {
            self.abort(request);
        }
        self.drop_cache_after_subscription(&call);
        if matches!(call.kind(), Kind::Probe | Kind::Initialize) {
            return self.fail(HttpFailure::Refused(Box::new(why)));
        }
        if reports_fault {
            self.fault(Some(exchange), fault);
        }
        self.events.push_back(HttpClientEvent::Lost { exchange, why });
    }

    /// Handles the failure of an attempt to repeat the handshake: another attempt is made after a while or, after too many, the client
    /// fails.
    fn break_reopening(&mut self, why: &HttpReason) {
        let jitter = self.jitter.next();
        let (limits, timeouts) = (&self.config.limits, &self.config.timeouts);
        self.session.attempts().pause(why.fault.retry_after(), timeouts);
        let is_first = self.session.cause().note(why);
        match self.session.attempts().next_attempt(limits, timeouts, jitter, self.now) {
            Some(at) => {
                self.timers.set(self.session.timer(), TimerKey::Session, Some(at));
                if is_first {
                    self.events.push_back(HttpClientEvent::Resuming { exchange: None, why: why.clone() });
                }
            }
            None => {
                self.lose_session();
            }
        }
    }

    /// Handles the break of the GET stream: it is opened again after a while or, after too many attempts, given up.
    fn break_get_stream(&mut self, fault: &HttpFault) {
        let jitter = self.jitter.next();
        let (limits, timeouts) = (&self.config.limits, &self.config.timeouts);
        self.get_stream.resumption().pause(fault.retry_after(), timeouts);
        match self.get_stream.resumption().next_attempt(limits, timeouts, jitter, self.now) {
            Some(at) => {
                self.get_stream.wait();
                self.timers.set(self.get_stream.timer(), TimerKey::GetStream, Some(at));
            }
            None => drop(self.get_stream.stop()),
        }
    }
}
