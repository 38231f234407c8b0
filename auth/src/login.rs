//! The machine. Its states and their changes are in `phase.rs`.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use protocol_core::Instant;
use protocol_core::time::earlier;
use protocol_core::url::Url;
use serde_json::json;

use crate::address::{
    Reach, bare, covers, encode, form, is_fit, is_issuer, issuer_metadata, query, redirected, resource_metadata, written_origin,
};
use crate::answer::{self, Granted, MAX_ANSWER, NotGranted, Refusal, is_transient};
use crate::challenge::{self, Challenge};
use crate::config::{GivenClient, Grant, LoginConfig};
use crate::document::Document;
use crate::jwt::{self, Expected, Proof};
use crate::metadata::{MAX_DOCUMENT, Needs, NotResource, NotServer, Resource, Server};
use crate::output::{
    Answer, CallbackAnswer, Notice, Now, Output, PageAddress, Reason, Request, StoreAnswer, StoreTask, Tag, TicketId,
};
use crate::phase::{Phase, Step, next};
use crate::record::{AuthMethod, Registration, Tokens};
use crate::scope;
use crate::secret::Secret;

/// A source of random bytes: it fills the slice that it gets.
pub type RandomSource = Box<dyn FnMut(&mut [u8]) + Send>;

const GET_TIMEOUT: Duration = Duration::from_secs(10);
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a person may take.
const USER_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a login that failed is not tried again by itself.
const REST: Duration = Duration::from_secs(30);
/// How long the metadata of a server is used without being read anew, by a login for more scopes.
const SERVER_AGE: Duration = Duration::from_secs(3600);
/// The shortest and the longest time between two refreshes that get no answer.
const RETRY: (u64, u64) = (5, 60);
const MAX_GETS: u8 = 12;
const MAX_REDIRECTS: u8 = 3;
/// The most requests that wait for a login or have gone with one, at a time.
const MAX_TAGS: usize = 1024;
const MAX_CALLBACK: usize = 8 * 1024;
const MAX_NONCE: usize = 256;
const MAX_NONCES: usize = 8;
const MAX_NAMED: usize = 4;
/// For each request to the MCP server.
const MAX_SENDS: u8 = 6;
const MAX_REFRESHES: u8 = 1;
const MAX_LOGINS: u8 = 1;
const MAX_WIDENINGS: u8 = 2;
const MAX_NONCE_RETRIES: u8 = 2;

/// A request to the MCP server.
#[derive(Debug)]
struct Waiter {
    method: &'static str,
    /// It waits; otherwise it was sent.
    waits: bool,
    /// The tokens that it was sent with last.
    generation: Option<u64>,
    /// It was refused for a lack of scopes, so that the tokens there are do not help.
    is_short: bool,
    sends: u8,
    refreshes: u8,
    logins: u8,
    widenings: u8,
    nonces: u8,
}

/// A place where metadata can be.
#[derive(Clone, Debug)]
struct Place {
    address: String,
    /// A challenge named it.
    is_named: bool,
    /// Whose metadata is there; `None` for the resource.
    issuer: Option<String>,
}

/// What one login has found out so far.
#[derive(Default)]
struct Flow {
    places: VecDeque<Place>,
    current: Option<Place>,
    gets: u8,
    redirects: u8,
    /// Something other than "not found" was found, so that the server is none of 2025-03-26.
    is_modern: bool,
    is_fallback: bool,
    is_widening: bool,
    fault: Option<Reason>,
    resource: Option<String>,
    resource_scopes: Option<Vec<String>>,
    needs_proof: bool,
    uses_proof: bool,
    server: Option<Server>,
    scopes: Vec<String>,
    client: Option<Registration>,
    redirect_uri: String,
    verifier: Option<Secret>,
    state: Option<Secret>,
    user_until: Option<Instant>,
    saw_stray_error: bool,
    /// The form of the last token request, to repeat it.
    form: Vec<(&'static str, Secret)>,
    sent_at: u64,
    nonce_retries: u8,
    /// The request was repeated once, or changed once, for this cause.
    repeated: bool,
    without_offline: bool,
    registered_anew: bool,
    without_scope: bool,
    with_localhost: bool,
    /// The assertion of the identity provider is being asked for.
    asks_provider: bool,
    fresh: Option<Tokens>,
}

/// The login of a client at one MCP server: a state machine without a socket, a clock or a store.
///
/// Its owner tells it of each request to the MCP server ([`authorize`](Self::authorize)), of each answer 401 and 403
/// ([`handle_rejected`](Self::handle_rejected)), and does what [`poll_output`](Self::poll_output) says, in that order. Each request that was
/// told of ends by exactly one [`finished`](Self::finished) or [`Output::GiveUp`].
///
/// Limits: a request to the MCP server is sent at most 6 times, with at most 1 refresh, 1 login, 2 logins for more scopes, and 2 new nonces.
/// A login makes at most 12 requests for metadata of at most 64 KiB, follows 3 redirects within an origin, and tries 4 authorization servers.
/// At most 1024 requests wait at a time.
pub struct Login {
    config: LoginConfig,
    random: RandomSource,
    reach: Reach,
    phase: Phase,
    waiters: BTreeMap<Tag, Waiter>,
    outputs: VecDeque<Output>,
    last_ticket: u64,
    request: Option<(TicketId, String, Instant)>,
    store: Option<TicketId>,
    holds_lock: bool,
    tokens: Option<Tokens>,
    /// The store has older tokens than these.
    is_unsaved: bool,
    /// The greatest generation that tokens of this login had, also those that were forgotten: a late refusal is about one of them.
    last_generation: u64,
    flow: Flow,
    known_server: Option<(Server, Instant)>,
    nonces: BTreeMap<String, String>,
    challenges: Vec<Challenge>,
    stopped: Option<(Reason, Instant)>,
    retry_at: Instant,
    failures: u8,
    /// Scopes that the person did not grant. They are not asked for again.
    denied: Vec<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("phase", &self.phase).field("waiters", &self.waiters.len()).finish_non_exhaustive()
    }
}

/// What the owner of a login passes in.
impl Login {
    /// A login that has not begun. The first request begins it.
    #[must_use]
    pub fn new(config: LoginConfig, random: RandomSource) -> Self {
        let own = Url::parse(&config.server).map_or(Reach::Public, |url| Reach::of(url.host));
        Self {
            reach: if config.is_private { own.max(Reach::Private) } else { own },
            config,
            random,
            phase: Phase::Empty,
            waiters: BTreeMap::new(),
            outputs: VecDeque::new(),
            last_ticket: 0,
            request: None,
            store: None,
            holds_lock: false,
            tokens: None,
            is_unsaved: false,
            last_generation: 0,
            flow: Flow::default(),
            known_server: None,
            nonces: BTreeMap::new(),
            challenges: Vec::new(),
            stopped: None,
            retry_at: Instant::ZERO,
            failures: 0,
            denied: Vec::new(),
        }
    }

    /// A request is about to be sent to the MCP server, with this method of HTTP. It is sent at [`Output::Send`].
    pub fn authorize(&mut self, tag: Tag, method: &'static str, now: Now) {
        if self.waiters.len() >= MAX_TAGS && !self.waiters.contains_key(&tag) {
            self.outputs.push_back(Output::GiveUp(tag, Reason::TooMany));
            return;
        }
        let waiter = Waiter {
            method,
            waits: true,
            generation: None,
            is_short: false,
            sends: 0,
            refreshes: 0,
            logins: 0,
            widenings: 0,
            nonces: 0,
        };
        self.waiters.insert(tag, waiter);
        match (&self.stopped, self.phase) {
            (Some((reason, until)), Phase::Stopped) if now.instant < *until => {
                let reason = reason.clone();
                self.give_up(tag, reason);
            }
            (_, Phase::Empty | Phase::Stopped) => self.begin(),
            _ => self.settle(now),
        }
    }

    /// The MCP server refused a request, with the values of these headers. Returns `false` if no login helps: then the answer is the
    /// caller's, and the request has ended.
    pub fn handle_rejected(&mut self, tag: Tag, status: u16, challenges: &[&str], nonce: Option<&str>, now: Now) -> bool {
        self.handle_nonce(nonce);
        let Some(waiter) = self.waiters.get_mut(&tag).filter(|waiter| !waiter.waits) else { return false };
        let mut found = challenge::parse(challenges.iter().copied());
        found.retain(|challenge| challenge.scheme == "bearer" || challenge.scheme == "dpop");
        let is_error = |error: &str| found.iter().any(|challenge| challenge.values("error").any(|value| value == error));
        let is_short = status == 403 && is_error("insufficient_scope");
        if status != 401 && !is_short {
            self.waiters.remove(&tag);
            return false;
        }
        waiter.waits = true;
        if status == 401 && nonce.is_some() && is_error("use_dpop_nonce") {
            waiter.nonces = waiter.nonces.saturating_add(1);
            // It says nothing about the token.
            waiter.generation = None;
            if waiter.nonces > MAX_NONCE_RETRIES {
                self.give_up(tag, Reason::Rejected);
            } else if self.phase == Phase::Stopped {
                self.give_up_stopped(tag);
            }
            self.settle(now);
            return true;
        }
        waiter.is_short = is_short;
        let is_current = waiter.generation == self.tokens.as_ref().map(|tokens| tokens.generation);
        if is_current {
            self.challenges = found;
        }
        match self.phase {
            Phase::Bare => self.log_in(tag, now),
            Phase::Stopped => self.give_up_stopped(tag),
            Phase::Ready if is_current && is_short => self.widen(tag, now),
            Phase::Ready if is_current => {
                let can_refresh = self.tokens.as_ref().is_some_and(|tokens| tokens.refresh.is_some());
                match self.waiters.get_mut(&tag) {
                    Some(waiter) if can_refresh && waiter.refreshes < MAX_REFRESHES => {
                        waiter.refreshes = waiter.refreshes.saturating_add(1);
                        self.lock(Step::Stale);
                    }
                    _ => self.log_in(tag, now),
                }
            }
            _ => self.settle(now),
        }
        true
    }

    /// The nonce in any answer of the MCP server: the newest is used (DPoP).
    pub fn handle_nonce(&mut self, nonce: Option<&str>) {
        let origin = written_origin(&self.config.server);
        self.keep_nonce(origin, nonce);
    }

    /// A request has got an answer that is no concern of the login, or nobody wants one any more. A refresh that was sent for it goes on.
    pub fn finished(&mut self, tag: Tag) {
        self.waiters.remove(&tag);
    }

    /// Begins anew after the login has stopped, without waiting for the rest to be over.
    pub fn restart(&mut self) {
        if self.phase == Phase::Stopped {
            self.denied.clear();
            self.stopped = None;
            self.begin();
        }
    }

    /// Gives up all requests that wait. A login of a person ends; a refresh that was sent goes on, and its tokens are kept.
    pub fn abort(&mut self, now: Now) {
        match self.phase {
            Phase::Resource
            | Phase::Server
            | Phase::Client
            | Phase::Listening
            | Phase::Registering
            | Phase::User
            | Phase::Exchanging
            | Phase::Subject
            | Phase::Asking => self.fail(Reason::Aborted, now),
            _ => self.give_up_waiting(&Reason::Aborted),
        }
    }

    /// The answer to a request. One that is not expected (any more) is ignored.
    pub fn handle_response(&mut self, id: TicketId, answer: Answer<'_>, now: Now) {
        let Some((_, address, _)) = self.request.take_if(|(expected, _, _)| *expected == id) else { return };
        if let Answer::Response { headers, .. } = answer {
            self.keep_nonce(written_origin(&address), header(headers, "dpop-nonce"));
        }
        match self.phase {
            Phase::Resource | Phase::Server => self.on_metadata(answer, now),
            Phase::Registering => self.on_registered(answer, now),
            Phase::Refreshing | Phase::Exchanging | Phase::Asking => self.on_token_answer(answer, &address, now),
            _ => {}
        }
    }

    /// The address at which callbacks are received; `None` if that is impossible.
    pub fn handle_listening(&mut self, redirect_uri: Option<&str>, now: Now) {
        if self.phase != Phase::Listening {
            return;
        }
        match redirect_uri
            .filter(|address| is_fit(address, Reach::Loopback) && query(address).is_some_and(|names| names.is_empty()))
        {
            Some(address) => self.on_listening(address.to_owned(), now),
            None => self.fail(Reason::NoListener, now),
        }
    }

    /// A callback: the whole address, as the browser requested it or the person pasted it.
    pub fn handle_callback(&mut self, address: &str, now: Now) -> CallbackAnswer {
        if self.phase != Phase::User || address.len() > MAX_CALLBACK || bare(address) != self.flow.redirect_uri {
            return CallbackAnswer::Stray;
        }
        let Some(pairs) = query(address) else { return CallbackAnswer::Stray };
        let mut values = [const { None::<&str> }; 5];
        for (name, value) in &pairs {
            let names = ["code", "state", "iss", "error", "error_description"];
            let Some(slot) = names.iter().position(|known| known == name).and_then(|at| values.get_mut(at)) else { continue };
            if slot.replace(value).is_some() {
                return CallbackAnswer::Stray;
            }
        }
        let [code, state, issuer, error, description] = values;
        let Some(state) = state else {
            self.flow.saw_stray_error |= error.is_some();
            return CallbackAnswer::Stray;
        };
        if self.flow.state.as_ref() != Some(&Secret::from(state)) {
            return CallbackAnswer::Stray;
        }
        let Some(server) = &self.flow.server else { return CallbackAnswer::Stray };
        if issuer.map_or(server.sends_issuer, |issuer| issuer != server.issuer) {
            return CallbackAnswer::Stray;
        }
        match (error, code.filter(|code| !code.is_empty())) {
            (Some(error), None) => {
                self.flow.state = None;
                self.on_refused(Refusal::new(error, description.unwrap_or_default()), now);
                if self.phase == Phase::User || self.phase == Phase::Registering {
                    CallbackAnswer::Done
                } else {
                    CallbackAnswer::Refused
                }
            }
            (None, Some(code)) => {
                self.flow.state = None;
                self.exchange(code, now);
                CallbackAnswer::Done
            }
            _ => CallbackAnswer::Stray,
        }
    }

    /// The token of [`Output::Subject`], as a JSON Web Token; `None` if there is none.
    pub fn handle_subject(&mut self, token: Option<Secret>, now: Now) {
        if self.phase == Phase::Subject {
            self.on_subject(token, now);
        }
    }

    /// The result of a task of the store.
    pub fn handle_store(&mut self, id: TicketId, answer: StoreAnswer, now: Now) {
        if self.store.take_if(|expected| *expected == id).is_none() {
            return;
        }
        match (self.phase, answer) {
            (Phase::Loading, StoreAnswer::Loaded(tokens)) => {
                // What could not be saved is newer than what is in the store.
                if !self.is_unsaved {
                    self.tokens = tokens.filter(|tokens| self.is_ours(tokens));
                }
                self.go(if self.tokens.is_some() { Step::Have } else { Step::Lack });
                self.settle(now);
            }
            (Phase::Locking, StoreAnswer::Locked(tokens)) => {
                self.holds_lock = true;
                self.on_locked(tokens, now);
            }
            (Phase::Locking, StoreAnswer::Busy(tokens)) => {
                self.adopt(tokens);
                self.go(Step::Later);
                self.give_up_unless_valid(&Reason::Busy, now);
            }
            (Phase::Securing, StoreAnswer::Locked(tokens)) => {
                self.holds_lock = true;
                let stored = tokens.map_or(0, |tokens| tokens.generation);
                if let Some(mut fresh) = self.flow.fresh.take() {
                    let own = self.tokens.as_ref().map_or(0, |tokens| tokens.generation);
                    fresh.generation = self.next_generation(stored.max(own));
                    self.go(Step::Locked);
                    self.save(fresh);
                }
            }
            (Phase::Securing, _) => {
                let own = self.tokens.as_ref().map_or(0, |tokens| tokens.generation);
                if let Some(mut fresh) = self.flow.fresh.take() {
                    fresh.generation = self.next_generation(own);
                    self.tokens = Some(fresh);
                }
                self.go(Step::Later);
                self.not_saved();
                self.done(now);
            }
            (Phase::Saving, answer) => {
                self.unlock();
                self.go(Step::Have);
                self.is_unsaved = false;
                if answer != StoreAnswer::Saved(true) {
                    self.not_saved();
                }
                self.done(now);
            }
            (Phase::Client, StoreAnswer::Registration(client)) => self.on_client(client, now),
            // The store has answered something else than it was asked.
            (Phase::Loading, _) => {
                self.go(Step::Lack);
                self.settle(now);
            }
            (Phase::Locking, _) => {
                self.go(Step::Later);
                self.give_up_unless_valid(&Reason::Busy, now);
            }
            (Phase::Client, _) => self.on_client(None, now),
            _ => {}
        }
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Now) {
        if let Some((id, _, _)) = self.request.as_ref().filter(|(_, _, deadline)| *deadline <= now.instant) {
            self.handle_response(*id, Answer::Failed, now);
        }
        if self.phase == Phase::User && self.flow.user_until.is_some_and(|until| until <= now.instant) {
            self.fail(Reason::TimedOut, now);
        }
    }
}

/// What the owner of a login takes out.
impl Login {
    /// What to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let request = self.request.as_ref().map(|(_, _, deadline)| *deadline);
        earlier(request, self.flow.user_until.filter(|_| self.phase == Phase::User))
    }
}

/// Requests to the MCP server.
impl Login {
    fn go(&mut self, step: Step) {
        let next = next(self.phase, step);
        debug_assert!(next.is_some(), "{step:?} in {:?}", self.phase);
        self.phase = next.unwrap_or(self.phase);
    }

    fn begin(&mut self) {
        self.go(Step::Begin);
        self.ask_store(StoreTask::Load);
    }

    fn give_up(&mut self, tag: Tag, reason: Reason) {
        if self.waiters.remove(&tag).is_some() {
            self.outputs.push_back(Output::GiveUp(tag, reason));
        }
    }

    /// Gives up a request that was refused after the login has stopped.
    fn give_up_stopped(&mut self, tag: Tag) {
        let reason = self.stopped.as_ref().map_or(Reason::Aborted, |(reason, _)| reason.clone());
        self.give_up(tag, reason);
    }

    fn give_up_waiting(&mut self, reason: &Reason) {
        for tag in self.waiting(|_| true) {
            self.give_up(tag, reason.clone());
        }
    }

    fn waiting(&self, wanted: impl Fn(&Waiter) -> bool) -> Vec<Tag> {
        self.waiters.iter().filter(|(_, waiter)| waiter.waits && wanted(waiter)).map(|(tag, _)| *tag).collect()
    }

    /// Sends what waits, or begins what it waits for.
    fn settle(&mut self, now: Now) {
        let is_open = matches!(self.phase, Phase::Bare | Phase::Ready);
        if !is_open {
            // While a person decides about more scopes, the tokens there are do for all who did not ask for more, and whom the server
            // has not refused with them.
            let valid = self.tokens.as_ref().filter(|tokens| self.flow.is_widening && tokens.is_valid(now.unix));
            if let Some(generation) = valid.map(|tokens| tokens.generation) {
                self.send(|waiter| !waiter.is_short && waiter.generation != Some(generation), now);
            }
            return;
        }
        if self.waiting(|_| true).is_empty() {
            return;
        }
        let Some(tokens) = self.tokens.as_ref().filter(|_| self.phase == Phase::Ready) else {
            self.send(|_| true, now);
            return;
        };
        let (is_fresh, is_valid) = (tokens.is_fresh(now.unix), tokens.is_valid(now.unix));
        let can_refresh = tokens.refresh.is_some();
        // Without a refresh token, it is the server who says that a person has to log in.
        let is_tried = if can_refresh { is_valid } else { self.config.grant.is_person() };
        if is_fresh {
            self.send(|_| true, now);
        } else if can_refresh && now.instant >= self.retry_at {
            self.lock(Step::Stale);
        } else if is_tried {
            self.send(|_| true, now);
        } else if can_refresh {
            self.give_up_waiting(&Reason::Unavailable { retry_after: None });
        } else {
            self.challenges.clear();
            self.discover(now);
        }
    }

    fn send(&mut self, wanted: impl Fn(&Waiter) -> bool, now: Now) {
        for tag in self.waiting(wanted) {
            let Some(waiter) = self.waiters.get_mut(&tag) else { continue };
            if waiter.sends >= MAX_SENDS {
                self.give_up(tag, Reason::Rejected);
                continue;
            }
            waiter.sends = waiter.sends.saturating_add(1);
            waiter.waits = false;
            waiter.is_short = false;
            waiter.generation = None;
            let mut headers = Vec::new();
            if let Some(tokens) = self.tokens.as_ref().filter(|_| self.phase != Phase::Bare) {
                waiter.generation = Some(tokens.generation);
                let method = waiter.method;
                let scheme = if tokens.bound_to.is_some() { "DPoP" } else { "Bearer" };
                headers.push(("authorization", Secret::from(format!("{scheme} {}", tokens.access.expose()))));
                if tokens.bound_to.is_some() {
                    let token = tokens.access.clone();
                    let server = self.config.server.clone();
                    match self.prove(method, &server, Some(&token), now) {
                        Some(proof) => headers.push(("dpop", proof)),
                        None => {
                            self.give_up(tag, Reason::NoProof);
                            continue;
                        }
                    }
                }
            }
            self.outputs.push_back(Output::Send(tag, headers));
        }
    }

    /// Begins a login because of this request, if it has not had one.
    fn log_in(&mut self, tag: Tag, now: Now) {
        match self.waiters.get_mut(&tag) {
            Some(waiter) if waiter.logins < MAX_LOGINS => {
                waiter.logins = waiter.logins.saturating_add(1);
                self.discover(now);
            }
            _ => self.give_up(tag, Reason::Rejected),
        }
    }

    /// Begins a login for the scopes that a challenge names.
    fn widen(&mut self, tag: Tag, now: Now) {
        let Some(tokens) = &self.tokens else { return self.give_up(tag, Reason::Scope) };
        let Some(demanded) = challenge_scopes(&self.challenges) else { return self.give_up(tag, Reason::Scope) };
        let mut scopes = tokens.requested.clone();
        scope::add(&mut scopes, tokens.granted.iter().map(String::as_str));
        scope::add(&mut scopes, demanded.iter().map(String::as_str));
        let is_denied = demanded.iter().any(|scope| self.denied.contains(scope));
        let is_vain = scope::has_all(&tokens.granted, &scopes);
        let (issuer, resource) = (tokens.issuer.clone(), tokens.resource.clone());
        let uses_proof = tokens.bound_to.is_some();
        match self.waiters.get_mut(&tag) {
            Some(waiter) if !is_denied && !is_vain && waiter.widenings < MAX_WIDENINGS => {
                waiter.widenings = waiter.widenings.saturating_add(1);
            }
            _ => return self.give_up(tag, Reason::Scope),
        }
        self.flow = Flow { is_widening: true, resource, scopes, uses_proof, needs_proof: uses_proof, ..Flow::default() };
        self.go(Step::Widen);
        match self.known_server.clone().filter(|(server, until)| server.issuer == issuer && now.instant < *until) {
            Some((server, _)) => self.on_server(server, now),
            None => {
                self.flow.places = places_of(&[issuer]);
                self.next_place(now);
            }
        }
    }

    /// A login is over, with tokens.
    fn done(&mut self, now: Now) {
        self.flow = Flow::default();
        self.failures = 0;
        self.retry_at = now.instant;
        self.stopped = None;
        // However short the life of the tokens is, they are tried once.
        self.send(|_| true, now);
    }

    fn fail(&mut self, reason: Reason, now: Now) {
        self.unlock();
        self.request = None;
        self.store = None;
        let keeps = self.flow.is_widening && self.tokens.as_ref().is_some_and(|tokens| tokens.is_valid(now.unix));
        if keeps {
            if reason == Reason::Denied {
                let granted = self.tokens.as_ref().map(|tokens| tokens.granted.clone()).unwrap_or_default();
                let missing: Vec<String> = self.flow.scopes.iter().filter(|scope| !granted.contains(scope)).cloned().collect();
                scope::add(&mut self.denied, missing.iter().map(String::as_str));
            }
            self.flow = Flow::default();
            self.go(Step::Keep);
            for tag in self.waiting(|waiter| waiter.is_short) {
                self.give_up(tag, reason.clone());
            }
            self.settle(now);
        } else {
            self.flow = Flow::default();
            self.go(Step::Fail);
            self.give_up_waiting(&reason);
            self.stopped = Some((reason, now.instant.saturating_add(REST)));
        }
    }
}

/// The store and the refresh.
impl Login {
    fn ticket(&mut self) -> TicketId {
        self.last_ticket = self.last_ticket.saturating_add(1);
        TicketId(self.last_ticket)
    }

    /// Tells the store something to which it has no answer.
    fn tell_store(&mut self, task: StoreTask) {
        let id = self.ticket();
        self.outputs.push_back(Output::Store(id, task));
    }

    fn ask_store(&mut self, task: StoreTask) {
        let id = self.ticket();
        self.store = Some(id);
        self.outputs.push_back(Output::Store(id, task));
    }

    fn lock(&mut self, step: Step) {
        self.go(step);
        self.ask_store(StoreTask::Lock);
    }

    fn unlock(&mut self) {
        if core::mem::take(&mut self.holds_lock) {
            self.tell_store(StoreTask::Unlock);
        }
    }

    fn save(&mut self, tokens: Tokens) {
        self.tokens = Some(tokens.clone());
        self.ask_store(StoreTask::Save(Box::new(tokens)));
    }

    fn not_saved(&mut self) {
        self.is_unsaved = true;
        self.outputs.push_back(Output::Notice(Notice::NotSaved));
    }

    /// Returns `true` for tokens of this server, this issuer and this key.
    fn is_ours(&self, tokens: &Tokens) -> bool {
        let is_pinned = self.config.grant.issuer().is_none_or(|issuer| is_issuer(issuer, &tokens.issuer));
        let is_bound = tokens.bound_to.is_none() || tokens.bound_to == self.config.proof_key.as_deref().and_then(jwt::thumbprint);
        tokens.resource.as_ref().is_none_or(|resource| covers(resource, &self.config.server))
            && tokens.client.issuer == tokens.issuer
            && is_fit(&tokens.token_endpoint, self.reach)
            && tokens.access.expose().bytes().all(|byte| byte.is_ascii_graphic())
            && is_pinned
            && is_bound
    }

    /// The generation of tokens that follow those of the generation `known`.
    fn next_generation(&mut self, known: u64) -> u64 {
        self.last_generation = self.last_generation.max(known).saturating_add(1);
        self.last_generation
    }

    /// Takes other tokens from the store. Returns `true` if they are others.
    fn adopt(&mut self, stored: Option<Tokens>) -> bool {
        let own = self.tokens.as_ref().map(|tokens| tokens.generation);
        let is_newer = |stored: &Tokens| !self.is_unsaved || Some(stored.generation) > own;
        let Some(stored) = stored.filter(|stored| is_newer(stored) && self.is_ours(stored)) else { return false };
        let is_other = Some(stored.generation) != own;
        self.is_unsaved = false;
        self.tokens = Some(stored);
        is_other
    }

    fn on_locked(&mut self, stored: Option<Tokens>, now: Now) {
        if stored.is_none() && !self.is_unsaved {
            // Logged out by another process: what is in memory no longer counts.
            self.tokens = None;
            self.unlock();
            self.start_discovery(Step::Lack, now);
            return;
        }
        let is_other = self.adopt(stored);
        let Some(tokens) = self.tokens.clone() else { return };
        if is_other && tokens.is_fresh(now.unix) {
            self.unlock();
            self.go(Step::Have);
            self.settle(now);
            return;
        }
        let Some(refresh) = tokens.refresh.clone() else {
            self.unlock();
            self.go(Step::Have);
            return self.discover(now);
        };
        self.go(Step::Locked);
        self.flow = Flow {
            resource: tokens.resource.clone(),
            uses_proof: tokens.bound_to.is_some(),
            client: Some(tokens.client.clone()),
            scopes: tokens.requested.clone(),
            // Whoever left this behind may have sent the token already.
            repeated: tokens.intent,
            ..Flow::default()
        };
        let mut intended = tokens.clone();
        intended.intent = true;
        self.tell_store(StoreTask::Save(Box::new(intended)));
        let mut pairs = Vec::from([("grant_type", Secret::from("refresh_token")), ("refresh_token", refresh)]);
        if self.config.refresh_scopes && !tokens.requested.is_empty() {
            pairs.push(("scope", tokens.requested.join(" ").into()));
        }
        self.ask_for_tokens(pairs, now);
    }

    /// There is no answer to a refresh now.
    fn refresh_later(&mut self, retry_after: Option<u64>, now: Now) {
        let intact = self.tokens.clone();
        if let Some(tokens) = intact {
            // The intent is over, unless it is unknown whether the token was spent.
            self.tell_store(StoreTask::Save(Box::new(Tokens { intent: self.flow.repeated, ..tokens })));
        }
        self.unlock();
        self.failures = self.failures.saturating_add(1);
        if self.failures == 5 {
            self.outputs.push_back(Output::Notice(Notice::RefreshFails));
        }
        let (least, most) = RETRY;
        self.retry_at = now.instant.saturating_add(Duration::from_secs(retry_after.unwrap_or(least).clamp(least, most)));
        self.flow = Flow::default();
        self.go(Step::Later);
        self.give_up_unless_valid(&Reason::Unavailable { retry_after }, now);
    }

    /// Gives up what the tokens there are do not help, and sends the rest.
    fn give_up_unless_valid(&mut self, reason: &Reason, now: Now) {
        let current = self.tokens.as_ref().map(|tokens| tokens.generation);
        let is_valid = self.tokens.as_ref().is_some_and(|tokens| tokens.is_valid(now.unix));
        for tag in self.waiting(|waiter| !is_valid || (waiter.generation.is_some() && waiter.generation == current)) {
            self.give_up(tag, reason.clone());
        }
        self.send(|_| true, now);
    }

    fn on_refresh_refused(&mut self, refusal: Refusal, now: Now) {
        let Some(tokens) = self.tokens.clone() else { return };
        match &*refusal.code {
            "invalid_scope" if !self.flow.repeated && self.flow.form.iter().any(|(name, _)| *name == "scope") => {
                self.flow.repeated = true;
                let mut pairs = core::mem::take(&mut self.flow.form);
                pairs.retain(|(name, _)| *name != "scope");
                return self.send_form(pairs, now);
            }
            "invalid_grant" => {
                self.tell_store(StoreTask::Forget { generation: tokens.generation });
                self.is_unsaved = false;
                self.tokens = None;
            }
            "invalid_client" if tokens.client.redirect_uri.is_none() => {
                // The refresh token is not spent: the client itself was refused.
                self.tell_store(StoreTask::Save(Box::new(tokens)));
                return self.fail(Reason::Refused(refusal), now);
            }
            "invalid_client" => self.tell_store(StoreTask::ForgetRegistration(tokens.issuer.clone())),
            _ => {}
        }
        self.unlock();
        self.start_discovery(Step::Dead, now);
    }
}

/// Discovery.
impl Login {
    /// Begins a login. All that waits shares it.
    fn discover(&mut self, now: Now) {
        self.start_discovery(Step::Login, now);
    }

    fn start_discovery(&mut self, step: Step, now: Now) {
        let is_bound = |challenge: &Challenge| challenge.scheme == "dpop";
        self.go(step);
        self.flow =
            Flow { uses_proof: self.challenges.iter().any(is_bound) && self.challenges.iter().all(is_bound), ..Flow::default() };
        let named = self.challenges.iter().flat_map(|challenge| challenge.values("resource_metadata")).take(MAX_NAMED);
        let named = named.map(|address| Place { address: address.to_owned(), is_named: true, issuer: None });
        let guessed = resource_metadata(&self.config.server).into_iter();
        self.flow.places = named.chain(guessed.map(|address| Place { address, is_named: false, issuer: None })).collect();
        self.next_place(now);
    }

    fn next_place(&mut self, now: Now) {
        while let Some(place) = self.flow.places.pop_front() {
            if !is_fit(&place.address, self.reach) {
                continue;
            }
            if self.flow.gets >= MAX_GETS {
                break;
            }
            self.flow.gets = self.flow.gets.saturating_add(1);
            let address = place.address.clone();
            self.flow.current = Some(place);
            let headers =
                Vec::from([("accept", Secret::from("application/json")), ("mcp-protocol-version", Secret::from("2025-11-25"))]);
            return self.request("GET", address, headers, "".into(), now);
        }
        match (self.phase, self.flow.is_fallback) {
            (Phase::Resource, _) => self.on_no_resource(now),
            (_, true) if self.flow.fault.is_none() => {
                let server = Server::by_default(&self.config.server);
                self.on_server(server, now);
            }
            _ => {
                let reason = self.flow.fault.take().unwrap_or(Reason::NoServer);
                self.fail(reason, now);
            }
        }
    }

    fn request(&mut self, method: &'static str, address: String, headers: Vec<(&'static str, Secret)>, body: Secret, now: Now) {
        let (timeout, max_body) = if method == "GET" { (GET_TIMEOUT, MAX_DOCUMENT) } else { (POST_TIMEOUT, MAX_ANSWER) };
        let id = self.ticket();
        self.request = Some((id, address.clone(), now.instant.saturating_add(timeout)));
        let request = Request { id, method, address, headers, body, timeout, max_body, reach: self.reach };
        self.outputs.push_back(Output::Request(request));
    }

    fn on_metadata(&mut self, answer: Answer<'_>, now: Now) {
        let Some(place) = self.flow.current.take() else { return };
        let Answer::Response { status, headers, body } = answer else {
            return self.fail(Reason::Unavailable { retry_after: None }, now);
        };
        if is_transient(status) {
            let retry_after = header(headers, "retry-after").and_then(|text| text.trim().parse().ok());
            return self.fail(Reason::Unavailable { retry_after }, now);
        }
        let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308) && self.flow.redirects < MAX_REDIRECTS;
        let location = header(headers, "location").filter(|_| is_redirect);
        if let Some(address) = location.and_then(|location| redirected(&place.address, location)) {
            self.flow.redirects = self.flow.redirects.saturating_add(1);
            self.flow.places.push_front(Place { address, ..place });
            return self.next_place(now);
        }
        if status != 200 {
            return self.next_place(now);
        }
        match &place.issuer {
            None => match Resource::parse(body, &self.config.server, self.reach) {
                Ok(resource) => self.on_resource(resource, now),
                Err(_) if place.is_named => self.fail(Reason::BadResource, now),
                Err(fault) => {
                    self.flow.is_modern |= matches!(fault, NotResource::Foreign | NotResource::Other);
                    self.next_place(now);
                }
            },
            Some(issuer) => {
                let needs = Needs { page: self.config.grant.is_person(), pkce: !self.config.accept_silent_pkce };
                match Server::parse(body, issuer, self.config.accept_issuer.as_deref(), needs, self.reach) {
                    Ok(server) => self.on_server(server, now),
                    Err(fault) => {
                        let reason = match fault {
                            NotServer::Issuer => Reason::IssuerMismatch,
                            NotServer::Pkce => Reason::NoPkce,
                            NotServer::Other => Reason::NoServer,
                        };
                        self.flow.fault.get_or_insert(reason);
                        self.next_place(now);
                    }
                }
            }
        }
    }

    fn on_resource(&mut self, resource: Resource, now: Now) {
        let mut issuers = resource.issuers;
        if issuers.is_empty() {
            return self.fail(Reason::BadResource, now);
        }
        if let Some(pinned) = self.config.grant.issuer() {
            issuers.retain(|issuer| is_issuer(pinned, issuer));
        }
        if let Grant::Person { clients, .. } = &self.config.grant {
            // A client that is registered by hand is not used elsewhere, nor replaced by another one.
            if !clients.is_empty() {
                issuers.retain(|issuer| {
                    clients.iter().any(|client| client.issuer.as_ref().is_none_or(|known| is_issuer(known, issuer)))
                });
            }
        }
        if issuers.is_empty() {
            return self.fail(Reason::OtherServer, now);
        }
        let known = self.tokens.as_ref().map(|tokens| tokens.issuer.clone());
        issuers.sort_by_key(|issuer| Some(issuer) != known.as_ref());
        self.flow.resource = resource.name;
        self.flow.resource_scopes = resource.scopes;
        self.flow.needs_proof = resource.needs_dpop;
        self.flow.places = places_of(&issuers);
        self.go(Step::Known);
        self.next_place(now);
    }

    /// No address had metadata of the resource. A server of 2025-03-26 is its own authorization server.
    fn on_no_resource(&mut self, now: Now) {
        let had_one = self.tokens.as_ref().is_some_and(|tokens| tokens.resource.is_some());
        let issuer = written_origin(&self.config.server);
        if self.flow.is_modern || had_one || !self.config.grant.issuer().is_none_or(|pinned| is_issuer(pinned, &issuer)) {
            return self.fail(Reason::BadResource, now);
        }
        self.flow.is_fallback = true;
        self.flow.places = places_of(&[issuer]);
        self.flow.places.truncate(1);
        self.go(Step::Known);
        self.next_place(now);
    }

    fn on_server(&mut self, server: Server, now: Now) {
        self.known_server = Some((server.clone(), now.instant.saturating_add(SERVER_AGE)));
        let can_prove = self.config.proof_key.as_ref().is_some_and(|key| {
            key.public_point().is_some() && server.proof_algorithms.iter().any(|algorithm| algorithm == key.algorithm())
        });
        // A server that took proofs does not go back to tokens that anyone can use.
        let is_downgrade = self.tokens.as_ref().is_some_and(|tokens| tokens.bound_to.is_some() && tokens.issuer == server.issuer);
        if !can_prove && (self.flow.needs_proof || self.flow.uses_proof || is_downgrade) {
            return self.fail(Reason::NoProof, now);
        }
        self.flow.uses_proof = can_prove;
        if !self.flow.is_widening {
            let chosen = self.config.scopes.clone().or_else(|| challenge_scopes(&self.challenges));
            self.flow.scopes = chosen.or_else(|| self.flow.resource_scopes.clone()).unwrap_or_default();
        }
        if server.offers_offline && self.config.grant.is_person() && !self.flow.scopes.is_empty() {
            scope::add(&mut self.flow.scopes, ["offline_access"]);
        }
        let issuer = server.issuer.clone();
        self.flow.server = Some(server);
        match &self.config.grant {
            Grant::Person { .. } => {
                self.go(Step::Known);
                self.ask_store(StoreTask::LoadRegistration(issuer));
            }
            Grant::ClientCredentials(client) => {
                let client = self.given(client);
                self.flow.client = client;
                self.go(Step::Ask);
                self.ask_for_tokens(Vec::from([("grant_type", Secret::from("client_credentials"))]), now);
            }
            Grant::EnterpriseManaged { .. } | Grant::Workload { .. } => self.prove_subject(Step::Prove),
        }
    }
}

/// The client, the page and its callback.
impl Login {
    /// A client that was registered by hand, at the server of this login; `None` if it cannot authenticate there.
    fn given(&self, client: &GivenClient) -> Option<Registration> {
        let server = self.flow.server.as_ref()?;
        let lists = |method: &str| server.methods.as_ref().map(|methods| methods.iter().any(|listed| listed == method));
        let method = if let Some(key) = &client.key {
            let algorithms = server.assertion_algorithms.as_ref();
            algorithms
                .is_none_or(|algorithms| algorithms.iter().any(|algorithm| algorithm == key.algorithm()))
                .then_some(AuthMethod::PrivateKeyJwt)?
        } else if client.client_secret.is_some() {
            match (lists("client_secret_basic"), lists("client_secret_post"), lists("none")) {
                (None | Some(true), ..) => AuthMethod::ClientSecretBasic,
                (_, Some(true), _) => AuthMethod::ClientSecretPost,
                (_, _, Some(true)) => AuthMethod::None,
                _ => return None,
            }
        } else {
            AuthMethod::None
        };
        Some(Registration {
            issuer: server.issuer.clone(),
            client_id: client.client_id.clone(),
            client_secret: client.client_secret.clone(),
            secret_expires_at: None,
            method,
            redirect_uri: None,
        })
    }

    fn on_client(&mut self, stored: Option<Registration>, now: Now) {
        let Some(server) = self.flow.server.clone() else { return };
        let Grant::Person { clients, document } = &self.config.grant else { return };
        let is_at = |client: &&GivenClient| client.issuer.as_ref().is_none_or(|issuer| is_issuer(issuer, &server.issuer));
        let given = clients.iter().find(is_at);
        if given.is_none() && !clients.is_empty() {
            return self.fail(Reason::OtherServer, now);
        }
        let is_alive = |client: &Registration| {
            client.issuer == server.issuer
                && client.secret_expires_at.is_none_or(|end| now.unix < end)
                && !client.client_id.is_empty()
        };
        let documented = document.as_ref().filter(|address| server.takes_documents && is_fit(address, Reach::Public));
        let by_document = documented.map(|address| Registration {
            issuer: server.issuer.clone(),
            client_id: address.clone(),
            client_secret: None,
            secret_expires_at: None,
            method: AuthMethod::None,
            redirect_uri: None,
        });
        if let Some(given) = given {
            self.flow.client = self.given(given);
            if self.flow.client.is_none() {
                return self.fail(Reason::NoAuthentication, now);
            }
        } else {
            self.flow.client = stored.filter(is_alive).or(by_document);
        }
        if self.flow.client.is_none() && server.registration_endpoint.is_none() {
            return self.fail(Reason::NeedClientId { issuer: server.issuer }, now);
        }
        let former = self.flow.client.as_ref().and_then(|client| client.redirect_uri.as_deref());
        let port = former.and_then(|address| Url::parse(address).ok()?.port);
        self.go(Step::Known);
        self.outputs.push_back(Output::Listen { port });
    }

    fn on_listening(&mut self, redirect_uri: String, now: Now) {
        let registered = self.flow.client.as_ref().map(|client| client.redirect_uri.clone());
        self.flow.redirect_uri = redirect_uri;
        let can_register = self.flow.server.as_ref().is_some_and(|server| server.registration_endpoint.is_some());
        match registered {
            Some(former) if !can_register || former.as_ref().is_none_or(|former| *former == self.flow.redirect_uri) => {
                self.go(Step::Known);
                self.open(now);
            }
            _ => self.register(now),
        }
    }

    fn register(&mut self, now: Now) {
        self.go(Step::Register);
        self.send_registration(now);
    }

    fn send_registration(&mut self, now: Now) {
        let Some((server, address)) =
            self.flow.server.as_ref().and_then(|server| Some((server, server.registration_endpoint.clone()?)))
        else {
            return self.fail(Reason::NoServer, now);
        };
        let lists = |name: &str| server.methods.as_ref().is_none_or(|methods| methods.iter().any(|method| method == name));
        let known = ["none", "client_secret_basic"].into_iter().find(|name| lists(name)).unwrap_or("client_secret_post");
        let is_native = Url::parse(&self.flow.redirect_uri).is_ok_and(|url| Reach::of(url.host) == Reach::Loopback);
        let mut body = json!({
            "client_name": self.config.client_name,
            "redirect_uris": [self.flow.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": known,
            "application_type": if is_native { "native" } else { "web" },
        });
        if let Some(body) = body.as_object_mut().filter(|_| !self.flow.without_scope && !self.flow.scopes.is_empty()) {
            body.insert("scope".into(), self.flow.scopes.join(" ").into());
        }
        let headers = Vec::from([("accept", Secret::from("application/json")), ("content-type", Secret::from("application/json"))]);
        self.request("POST", address, headers, format!("{body}").into(), now);
    }

    fn on_registered(&mut self, answer: Answer<'_>, now: Now) {
        let Some(server) = self.flow.server.clone() else { return };
        let Answer::Response { status, body, .. } = answer else {
            return self.fail(Reason::Unavailable { retry_after: None }, now);
        };
        if is_transient(status) {
            return self.fail(Reason::Unavailable { retry_after: None }, now);
        }
        let unfit = |what: &str| Reason::Registration(Refusal::new(what, ""));
        let document = Document::parse(body, MAX_DOCUMENT);
        if status != 200 && status != 201 {
            let code = document.as_ref().and_then(|document| document.text("error")).unwrap_or_default();
            if code == "invalid_redirect_uri"
                && !self.flow.with_localhost
                && self.flow.redirect_uri.starts_with("http://127.0.0.1:")
            {
                self.flow.with_localhost = true;
                self.flow.redirect_uri = self.flow.redirect_uri.replacen("127.0.0.1", "localhost", 1);
                return self.send_registration(now);
            }
            if code == "invalid_client_metadata" && !self.flow.without_scope && !self.flow.scopes.is_empty() {
                self.flow.without_scope = true;
                return self.send_registration(now);
            }
            if status == 401 || status == 403 {
                return self.fail(Reason::NeedClientId { issuer: server.issuer }, now);
            }
            let description = document.and_then(|document| document.text("error_description")).unwrap_or_default();
            return self.fail(Reason::Registration(Refusal::new(&code, &description)), now);
        }
        let Some(document) = document else { return self.fail(unfit("no JSON object"), now) };
        let Some(client_id) = document.text("client_id") else { return self.fail(unfit("no client_id"), now) };
        let client_secret = document.text("client_secret").map(Secret::from);
        let method = match document.text("token_endpoint_auth_method") {
            Some(name) => AuthMethod::named(&name).filter(|method| *method != AuthMethod::PrivateKeyJwt),
            None if client_secret.is_some() => Some(AuthMethod::ClientSecretBasic),
            None => Some(AuthMethod::None),
        };
        let Some(method) = method.filter(|method| *method == AuthMethod::None || client_secret.is_some()) else {
            return self.fail(Reason::NoAuthentication, now);
        };
        let is_ours = document.list("redirect_uris").is_none_or(|addresses| addresses.contains(&self.flow.redirect_uri));
        if !is_ours {
            return self.fail(unfit("another redirect URI"), now);
        }
        let client = Registration {
            issuer: server.issuer,
            client_id,
            client_secret,
            secret_expires_at: document.seconds("client_secret_expires_at").filter(|end| *end != 0),
            method,
            redirect_uri: Some(self.flow.redirect_uri.clone()),
        };
        self.tell_store(StoreTask::SaveRegistration(client.clone()));
        self.flow.client = Some(client);
        self.go(Step::Known);
        self.open(now);
    }

    fn random_text(&mut self) -> Secret {
        let mut bytes = [0; 32];
        (self.random)(&mut bytes);
        BASE64URL_NOPAD.encode(&bytes).into()
    }

    fn open(&mut self, now: Now) {
        let (verifier, state) = (self.random_text(), self.random_text());
        let (Some(server), Some(client)) = (&self.flow.server, &self.flow.client) else { return };
        let Some(endpoint) = server.authorization_endpoint.clone() else { return self.fail(Reason::NoServer, now) };
        let challenge = jwt::hash(verifier.expose());
        let scopes = self.flow.scopes.join(" ");
        let mut pairs = Vec::from([
            ("response_type", "code"),
            ("client_id", &client.client_id),
            ("redirect_uri", &self.flow.redirect_uri),
            ("state", state.expose()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let resource = self.flow.resource.as_deref().filter(|_| !self.config.omit_resource);
        pairs.extend(resource.map(|resource| ("resource", resource)));
        if !scopes.is_empty() {
            pairs.push(("scope", &scopes));
        }
        if self.flow.scopes.iter().any(|scope| scope == "offline_access") {
            pairs.push(("prompt", "consent"));
        }
        let thumbprint = self.config.proof_key.as_deref().filter(|_| self.flow.uses_proof).and_then(jwt::thumbprint);
        pairs.extend(thumbprint.as_ref().map(|thumbprint| ("dpop_jkt", thumbprint.as_str())));
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        let address = format!("{endpoint}{joint}{}", form(pairs));
        self.flow.verifier = Some(verifier);
        self.flow.state = Some(state);
        self.flow.user_until = Some(now.instant.saturating_add(USER_TIMEOUT));
        self.outputs.push_back(Output::Open(PageAddress(address.into())));
    }

    /// The server has sent the person back with an error.
    fn on_refused(&mut self, refusal: Refusal, now: Now) {
        let is_registered = self.flow.client.as_ref().is_some_and(|client| client.redirect_uri.is_some());
        match &*refusal.code {
            "access_denied" => self.fail(Reason::Denied, now),
            "invalid_scope" if !self.flow.without_offline && self.flow.scopes.iter().any(|scope| scope == "offline_access") => {
                self.flow.without_offline = true;
                self.flow.scopes.retain(|scope| scope != "offline_access");
                self.open(now);
            }
            "unauthorized_client" | "invalid_client" if is_registered && !self.flow.registered_anew => {
                self.flow.registered_anew = true;
                self.forget_registration();
                self.register(now);
            }
            "server_error" | "temporarily_unavailable" => self.fail(Reason::Unavailable { retry_after: None }, now),
            _ => self.fail(Reason::Refused(refusal), now),
        }
    }

    fn forget_registration(&mut self) {
        if let Some(issuer) = self.flow.server.as_ref().map(|server| server.issuer.clone()) {
            self.tell_store(StoreTask::ForgetRegistration(issuer));
        }
    }

    fn exchange(&mut self, code: &str, now: Now) {
        self.go(Step::Known);
        let Some(verifier) = self.flow.verifier.take() else { return };
        let pairs = Vec::from([
            ("grant_type", Secret::from("authorization_code")),
            ("code", Secret::from(code)),
            ("redirect_uri", Secret::from(self.flow.redirect_uri.as_str())),
            ("code_verifier", verifier),
        ]);
        self.ask_for_tokens(pairs, now);
    }
}

/// Token requests.
impl Login {
    fn prove_subject(&mut self, step: Step) {
        self.go(step);
        self.outputs.push_back(Output::Subject);
    }

    fn on_subject(&mut self, token: Option<Secret>, now: Now) {
        let Some(server) = self.flow.server.clone() else { return };
        let expected = Expected { kind: None, audience: &server.issuer, client_id: None, resource: None, scopes: None };
        let (Some(token), true) = (token, self.phase == Phase::Subject) else { return self.fail(Reason::NoSubject, now) };
        match &self.config.grant {
            Grant::Workload { client_id, .. } => {
                if !jwt::says(&token, &expected, now.unix) {
                    return self.fail(Reason::NoSubject, now);
                }
                self.flow.client = Some(Registration {
                    issuer: server.issuer.clone(),
                    client_id: client_id.clone().unwrap_or_default(),
                    client_secret: None,
                    secret_expires_at: None,
                    method: AuthMethod::None,
                    redirect_uri: None,
                });
                self.go(Step::Known);
                self.ask_with_assertion(token, now);
            }
            Grant::EnterpriseManaged { provider, provider_client, .. } if is_fit(provider, Reach::Loopback) => {
                let mut pairs = Vec::from([
                    ("grant_type", Secret::from("urn:ietf:params:oauth:grant-type:token-exchange")),
                    ("requested_token_type", Secret::from("urn:ietf:params:oauth:token-type:id-jag")),
                    ("audience", Secret::from(server.issuer.as_str())),
                    ("subject_token", token),
                    ("subject_token_type", Secret::from("urn:ietf:params:oauth:token-type:id_token")),
                ]);
                pairs.extend(self.flow.resource.as_deref().map(|resource| ("resource", Secret::from(resource))));
                if !self.flow.scopes.is_empty() {
                    pairs.push(("scope", self.flow.scopes.join(" ").into()));
                }
                let (address, mut headers) = (provider.clone(), form_headers());
                match &provider_client.client_secret {
                    Some(secret) => headers.push(("authorization", basic(&provider_client.client_id, secret))),
                    None => pairs.push(("client_id", Secret::from(provider_client.client_id.as_str()))),
                }
                self.flow.asks_provider = true;
                self.go(Step::Known);
                self.request("POST", address, headers, body_of(&pairs), now);
            }
            _ => self.fail(Reason::NoSubject, now),
        }
    }

    fn ask_with_assertion(&mut self, assertion: Secret, now: Now) {
        let grant = Secret::from("urn:ietf:params:oauth:grant-type:jwt-bearer");
        self.ask_for_tokens(Vec::from([("grant_type", grant), ("assertion", assertion)]), now);
    }

    /// Sends a token request, with what each has.
    fn ask_for_tokens(&mut self, mut pairs: Vec<(&'static str, Secret)>, now: Now) {
        let resource = self.flow.resource.as_deref().filter(|_| !self.config.omit_resource);
        pairs.extend(resource.map(|resource| ("resource", Secret::from(resource))));
        if self.phase == Phase::Asking && !self.flow.scopes.is_empty() {
            pairs.push(("scope", self.flow.scopes.join(" ").into()));
        }
        self.send_form(pairs, now);
    }

    /// Sends a form to the token endpoint. Each time the client authenticates anew, and proves anew that it has its key.
    fn send_form(&mut self, pairs: Vec<(&'static str, Secret)>, now: Now) {
        let stored = self.tokens.as_ref().filter(|_| self.phase == Phase::Refreshing);
        let server = self.flow.server.as_ref();
        let endpoint = stored.map(|tokens| &tokens.token_endpoint).or_else(|| server.map(|server| &server.token_endpoint)).cloned();
        let issuer = stored.map(|tokens| &tokens.issuer).or_else(|| server.map(|server| &server.issuer)).cloned();
        let (Some(endpoint), Some(issuer), Some(client)) = (endpoint, issuer, self.flow.client.clone()) else {
            return self.fail(Reason::NoAuthentication, now);
        };
        self.flow.form = pairs.clone();
        let mut pairs = pairs;
        let mut headers = form_headers();
        match (client.method, &client.client_secret) {
            (AuthMethod::None, _) if client.client_id.is_empty() => {}
            (AuthMethod::None, _) => pairs.push(("client_id", client.client_id.as_str().into())),
            (AuthMethod::ClientSecretBasic, Some(secret)) => headers.push(("authorization", basic(&client.client_id, secret))),
            (AuthMethod::ClientSecretPost, Some(secret)) => {
                pairs.push(("client_id", client.client_id.as_str().into()));
                pairs.push(("client_secret", secret.clone()));
            }
            (AuthMethod::PrivateKeyJwt, _) => {
                let id = self.random_text();
                let key = self.config.grant.key(&client.client_id);
                let assertion =
                    key.and_then(|key| jwt::client_assertion(&client.client_id, &issuer, id.expose(), now.unix, key).ok());
                let Some(assertion) = assertion else { return self.fail(Reason::NoAuthentication, now) };
                pairs.push(("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer".into()));
                pairs.push(("client_assertion", assertion));
            }
            _ => return self.fail(Reason::NoAuthentication, now),
        }
        if self.flow.uses_proof {
            match self.prove("POST", &endpoint, None, now) {
                Some(proof) => headers.push(("dpop", proof)),
                None => return self.fail(Reason::NoProof, now),
            }
        }
        self.flow.sent_at = now.unix;
        self.request("POST", endpoint, headers, body_of(&pairs), now);
    }

    fn prove(&mut self, method: &str, address: &str, token: Option<&Secret>, now: Now) -> Option<Secret> {
        let id = self.random_text();
        let nonce = self.nonces.get(&written_origin(address)).map(String::as_str);
        let proof = Proof { method, address: bare(address), nonce, token };
        jwt::proof(&proof, id.expose(), now.unix, self.config.proof_key.as_deref()?).ok()
    }

    fn keep_nonce(&mut self, origin: String, nonce: Option<&str>) {
        let is_proper =
            |nonce: &&str| nonce.len() <= MAX_NONCE && !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic());
        let Some(nonce) = nonce.filter(is_proper).filter(|_| self.config.proof_key.is_some()) else { return };
        if self.nonces.len() < MAX_NONCES || self.nonces.contains_key(&origin) {
            self.nonces.insert(origin, nonce.to_owned());
        }
    }

    fn on_token_answer(&mut self, answer: Answer<'_>, address: &str, now: Now) {
        let is_refresh = self.phase == Phase::Refreshing;
        let Answer::Response { status, headers, body } = answer else {
            if is_refresh && !self.flow.repeated {
                // It may have been spent: only the same request can tell. The lock is still ours.
                self.flow.repeated = true;
                let pairs = core::mem::take(&mut self.flow.form);
                return self.send_form(pairs, now);
            }
            return if is_refresh {
                self.refresh_later(None, now)
            } else {
                self.fail(Reason::Unavailable { retry_after: None }, now)
            };
        };
        let retry_after = header(headers, "retry-after");
        if core::mem::take(&mut self.flow.asks_provider) {
            return match answer::parse_assertion(status, body) {
                Ok(assertion) => self.on_assertion(assertion, now),
                Err(NotGranted::Refused(refusal)) => self.fail(Reason::Refused(refusal), now),
                Err(NotGranted::Later(retry_after)) => self.fail(Reason::Unavailable { retry_after }, now),
                Err(NotGranted::Unfit) => self.fail(Reason::NoSubject, now),
            };
        }
        match answer::parse(status, body, retry_after) {
            Ok(granted) => self.on_tokens(granted, now),
            Err(NotGranted::Refused(refusal)) if refusal.code == "use_dpop_nonce" && self.flow.uses_proof => {
                let has_nonce = self.nonces.contains_key(&written_origin(address));
                if !has_nonce || self.flow.nonce_retries >= MAX_NONCE_RETRIES {
                    return if is_refresh { self.refresh_later(None, now) } else { self.fail(Reason::Refused(refusal), now) };
                }
                // The server has not looked at the rest, so that even a code may be sent again.
                self.flow.nonce_retries = self.flow.nonce_retries.saturating_add(1);
                let pairs = core::mem::take(&mut self.flow.form);
                self.send_form(pairs, now);
            }
            Err(NotGranted::Refused(refusal)) if is_refresh => self.on_refresh_refused(refusal, now),
            Err(NotGranted::Refused(refusal)) => {
                let is_expired = refusal.code == "invalid_grant" && matches!(self.config.grant, Grant::EnterpriseManaged { .. });
                if is_expired && !self.flow.repeated {
                    self.flow.repeated = true;
                    return self.prove_subject(Step::Prove);
                }
                let is_registered = self.flow.client.as_ref().is_some_and(|client| client.redirect_uri.is_some());
                if refusal.code == "invalid_client" && is_registered {
                    self.forget_registration();
                }
                self.fail(Reason::Refused(refusal), now);
            }
            Err(NotGranted::Later(retry_after)) if is_refresh => self.refresh_later(retry_after, now),
            Err(NotGranted::Later(retry_after)) => self.fail(Reason::Unavailable { retry_after }, now),
            Err(NotGranted::Unfit) if is_refresh => self.refresh_later(None, now),
            Err(NotGranted::Unfit) => self.fail(Reason::NoTokens, now),
        }
    }

    /// The assertion of the identity provider, which must be for this server, this client and this resource.
    fn on_assertion(&mut self, assertion: Secret, now: Now) {
        let (Some(server), Grant::EnterpriseManaged { client, .. }) = (&self.flow.server, &self.config.grant) else { return };
        let expected = Expected {
            kind: Some("oauth-id-jag+jwt"),
            audience: &server.issuer,
            client_id: Some(&client.client_id),
            resource: self.flow.resource.as_deref(),
            scopes: Some(&self.flow.scopes).filter(|scopes| !scopes.is_empty()).map(Vec::as_slice),
        };
        if !jwt::says(&assertion, &expected, now.unix) {
            return self.fail(Reason::NoSubject, now);
        }
        self.flow.client = self.given(client);
        self.ask_with_assertion(assertion, now);
    }

    fn on_tokens(&mut self, granted: Granted, now: Now) {
        let key = self.config.proof_key.as_deref().filter(|_| granted.is_bound && self.flow.uses_proof).and_then(jwt::thumbprint);
        let (received_at, expires_at) = (self.flow.sent_at, granted.life.map(|life| self.flow.sent_at.saturating_add(life)));
        // Tokens that are bound to a key that we did not show, or to none although a key is demanded, cannot be used.
        let is_unfit = (granted.is_bound && key.is_none()) || (self.flow.needs_proof && !granted.is_bound);
        if self.phase == Phase::Refreshing {
            let Some(mut tokens) = self.tokens.clone() else { return };
            if is_unfit || (tokens.bound_to.is_some() && !granted.is_bound) {
                return self.on_refresh_refused(Refusal::new("invalid_token_type", ""), now);
            }
            tokens.generation = self.next_generation(tokens.generation);
            tokens.access = granted.access;
            tokens.refresh = granted.refresh.or(tokens.refresh);
            tokens.granted = granted.scopes.unwrap_or(tokens.granted);
            (tokens.bound_to, tokens.received_at, tokens.expires_at, tokens.intent) = (key, received_at, expires_at, false);
            self.go(Step::Tokens);
            self.save(tokens);
            return;
        }
        let (Some(server), Some(client), false) = (self.flow.server.take(), self.flow.client.take(), is_unfit) else {
            return self.fail(Reason::NoTokens, now);
        };
        let requested = core::mem::take(&mut self.flow.scopes);
        self.flow.fresh = Some(Tokens {
            generation: 0,
            issuer: server.issuer,
            token_endpoint: server.token_endpoint,
            client,
            resource: self.flow.resource.take(),
            granted: granted.scopes.unwrap_or_else(|| requested.clone()),
            requested,
            access: granted.access,
            refresh: granted.refresh,
            bound_to: key,
            received_at,
            expires_at,
            intent: false,
        });
        self.lock(Step::Tokens);
    }
}

/// The scopes that challenges name.
fn challenge_scopes(challenges: &[Challenge]) -> Option<Vec<String>> {
    challenges.iter().find_map(|challenge| challenge.value("scope")).and_then(scope::parse)
}

fn places_of(issuers: &[String]) -> VecDeque<Place> {
    let places = issuers.iter().flat_map(|issuer| issuer_metadata(issuer).into_iter().map(move |address| (issuer, address)));
    places.map(|(issuer, address)| Place { address, is_named: false, issuer: Some(issuer.clone()) }).collect()
}

fn header<'a>(headers: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

fn form_headers() -> Vec<(&'static str, Secret)> {
    Vec::from([("accept", Secret::from("application/json")), ("content-type", Secret::from("application/x-www-form-urlencoded"))])
}

fn body_of(pairs: &[(&'static str, Secret)]) -> Secret {
    form(pairs.iter().map(|(name, value)| (*name, value.expose()))).into()
}

/// The header of a client that authenticates by its secret (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &Secret) -> Secret {
    let mut text = String::new();
    encode(client_id, &mut text);
    text.push(':');
    encode(secret.expose(), &mut text);
    let text = Secret::from(text);
    format!("Basic {}", BASE64.encode(text.expose().as_bytes())).into()
}
