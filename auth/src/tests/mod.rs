//! The machine against an authorization server in memory, in virtual time.

mod explore;
mod flows;
mod hostile;

use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString as _};
use std::time::Duration;
use std::vec::Vec;

use crate::*;

pub(super) const SERVER: &str = "https://rs.example/mcp";
pub(super) const CALLBACK: &str = "http://127.0.0.1:4711/callback";
pub(super) const RESOURCE: &str = r#"{"resource":"https://rs.example/mcp","authorization_servers":["https://as.example"]}"#;
pub(super) const AUTHORITY: &str = r#"{"issuer":"https://as.example","authorization_endpoint":"https://as.example/auth","token_endpoint":"https://as.example/token","registration_endpoint":"https://as.example/register","code_challenge_methods_supported":["S256"],"authorization_response_iss_parameter_supported":true}"#;
pub(super) const CHALLENGE: &str =
    r#"Bearer resource_metadata="https://rs.example/.well-known/oauth-protected-resource/mcp", scope="read""#;
pub(super) const PAIRS: &str = "code=the-code&state=STATE&iss=https%3A%2F%2Fas.example";

/// An answer of a server.
#[derive(Clone)]
pub(super) struct Reply(pub(super) u16, pub(super) Vec<(&'static str, String)>, pub(super) String);

pub(super) fn reply(status: u16, body: impl Into<String>) -> Option<Reply> {
    Some(Reply(status, Vec::new(), body.into()))
}

type Rule = Box<dyn FnMut(&Request) -> Option<Option<Reply>>>;

/// The owner of a login.
pub(super) struct World {
    pub(super) login: Login,
    pub(super) now: Now,
    pub(super) stored: Option<Tokens>,
    pub(super) registrations: BTreeMap<String, Registration>,
    pub(super) is_locked: bool,
    pub(super) cannot_save: bool,
    pub(super) is_busy: bool,
    /// What is asked first for an answer. `Some(None)`: there is none.
    pub(super) rules: Vec<Rule>,
    /// The queries of callbacks, in turn; the last one is used again.
    pub(super) callbacks: Vec<String>,
    pub(super) subject: Option<String>,
    pub(super) requests: Vec<(String, String)>,
    pub(super) pages: Vec<String>,
    pub(super) sent: Vec<(Tag, Vec<(&'static str, Secret)>)>,
    pub(super) ended: Vec<(Tag, Reason)>,
    pub(super) notices: Vec<Notice>,
    pub(super) answered: Vec<CallbackAnswer>,
    pub(super) issued: u32,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(LoginConfig::new(SERVER, "test"))
    }

    pub(super) fn with(config: LoginConfig) -> Self {
        let mut counter = 0_u8;
        let random = move |bytes: &mut [u8]| {
            counter = counter.wrapping_add(1);
            bytes.fill(counter);
        };
        Self {
            login: Login::new(config, Box::new(random)),
            now: Now { instant: protocol_core::Instant::from_millis(1000), unix: 1_000_000 },
            stored: None,
            registrations: BTreeMap::new(),
            is_locked: false,
            cannot_save: false,
            is_busy: false,
            rules: Vec::new(),
            callbacks: Vec::from([PAIRS.to_string()]),
            subject: None,
            requests: Vec::new(),
            pages: Vec::new(),
            sent: Vec::new(),
            ended: Vec::new(),
            notices: Vec::new(),
            answered: Vec::new(),
            issued: 0,
        }
    }

    /// Answers requests whose address has `part` in this way.
    pub(super) fn on(&mut self, part: &'static str, answer: Option<Reply>) {
        self.rules.push(Box::new(move |request| request.address.contains(part).then(|| answer.clone())));
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now.instant = self.now.instant.saturating_add(Duration::from_secs(seconds));
        self.now.unix += seconds;
        self.login.handle_timeout(self.now);
        self.run();
    }

    pub(super) fn call(&mut self, tag: u64) {
        self.login.authorize(Tag(tag), "POST", self.now);
        self.run();
    }

    pub(super) fn reject(&mut self, tag: u64, status: u16, challenge: &str) {
        self.login.handle_rejected(Tag(tag), status, &[challenge], None, self.now);
        self.run();
    }

    /// A request that goes without a token, and is refused.
    pub(super) fn log_in(&mut self) {
        self.call(1);
        self.reject(1, 401, CHALLENGE);
    }

    /// The token that the last request was sent with.
    pub(super) fn token(&self) -> Option<String> {
        let (_, headers) = self.sent.last()?;
        headers.iter().find(|(name, _)| *name == "authorization").map(|(_, value)| value.expose().to_string())
    }

    pub(super) fn posts(&self, part: &str) -> Vec<&str> {
        self.requests.iter().filter(|(line, _)| line.starts_with("POST") && line.contains(part)).map(|(_, body)| &**body).collect()
    }

    /// Does one thing for the login.
    pub(super) fn obey(&mut self, output: Output) {
        self.check_secrets(&output);
        match output {
            Output::Request(request) => {
                self.requests.push((format!("{} {}", request.method, request.address), request.body.expose().to_string()));
                let answer =
                    self.rules.iter_mut().find_map(|rule| rule(&request)).unwrap_or_else(|| healthy(&request, &mut self.issued));
                match answer {
                    Some(Reply(status, headers, body)) => {
                        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                        let answer = Answer::Response { status, headers: &headers, body: body.as_bytes() };
                        self.login.handle_response(request.id, answer, self.now);
                    }
                    None => self.login.handle_response(request.id, Answer::Failed, self.now),
                }
            }
            Output::Store(id, task) => {
                if let Some(answer) = self.store(task) {
                    self.login.handle_store(id, answer, self.now);
                }
            }
            Output::Subject => self.login.handle_subject(self.subject.as_deref().map(Secret::from), self.now),
            Output::Listen { .. } => self.login.handle_listening(Some(CALLBACK), self.now),
            Output::Open(page) => {
                assert!(!self.is_locked, "no person is waited for under the lock");
                self.pages.push(page.as_str().to_string());
                let mut queries = self.callbacks.clone();
                if self.callbacks.len() > 1 {
                    self.callbacks.remove(0);
                    queries.truncate(1);
                }
                for query in queries {
                    if query.is_empty() {
                        continue;
                    }
                    let answer = self.login.handle_callback(&format!("{CALLBACK}?{}", filled(&query, page.as_str())), self.now);
                    self.answered.push(answer);
                }
            }
            Output::Send(tag, headers) => self.sent.push((tag, headers)),
            Output::GiveUp(tag, reason) => self.ended.push((tag, reason)),
            Output::Notice(notice) => self.notices.push(notice),
        }
    }

    pub(super) fn store(&mut self, task: StoreTask) -> Option<StoreAnswer> {
        Some(match task {
            StoreTask::Load => StoreAnswer::Loaded(self.stored.clone()),
            StoreTask::Lock if self.is_busy => StoreAnswer::Busy(self.stored.clone()),
            StoreTask::Lock => {
                assert!(!core::mem::replace(&mut self.is_locked, true), "the lock is taken once");
                StoreAnswer::Locked(self.stored.clone())
            }
            StoreTask::Save(tokens) => {
                assert!(self.is_locked, "tokens are saved under the lock");
                if !self.cannot_save {
                    self.stored = Some(*tokens);
                }
                StoreAnswer::Saved(!self.cannot_save)
            }
            StoreTask::Forget { generation } => {
                assert!(self.is_locked);
                self.stored = self.stored.take().filter(|tokens| tokens.generation != generation);
                return None;
            }
            StoreTask::Unlock => {
                assert!(core::mem::take(&mut self.is_locked), "what is unlocked was locked");
                return None;
            }
            StoreTask::LoadRegistration(issuer) => StoreAnswer::Registration(self.registrations.get(&issuer).cloned()),
            StoreTask::SaveRegistration(client) => {
                self.registrations.insert(client.issuer.clone(), client);
                return None;
            }
            StoreTask::ForgetRegistration(issuer) => {
                self.registrations.remove(&issuer);
                return None;
            }
        })
    }

    pub(super) fn run(&mut self) {
        for _ in 0..200 {
            match self.login.poll_output() {
                Some(output) => self.obey(output),
                None => return,
            }
        }
        panic!("the login does not come to rest");
    }

    /// Nothing that is secret is shown.
    fn check_secrets(&self, output: &Output) {
        let shown = format!("{output:?} {:?} {:?}", self.login, self.ended);
        for secret in ["at-", "rt-", "the-code", "BwcH", "AQEB", "AgIC", "AwMD", "c-secret", "eyJh"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

/// A query with the state of a page.
pub(super) fn filled(query: &str, page: &str) -> String {
    let state = page.split_once("state=").map(|(_, rest)| rest.split('&').next().unwrap_or_default()).unwrap_or_default();
    query.replace("STATE", state)
}

/// The answers of servers that do what they should.
pub(super) fn healthy(request: &Request, issued: &mut u32) -> Option<Reply> {
    match (request.method, request.address.as_str()) {
        ("GET", "https://rs.example/.well-known/oauth-protected-resource/mcp") => reply(200, RESOURCE),
        ("GET", "https://as.example/.well-known/oauth-authorization-server") => reply(200, AUTHORITY),
        ("POST", "https://as.example/register") => reply(201, r#"{"client_id":"c1"}"#),
        ("POST", "https://as.example/token") => {
            *issued += 1;
            reply(
                200,
                format!(
                    r#"{{"access_token":"at-{issued}","refresh_token":"rt-{issued}","token_type":"Bearer","expires_in":3600}}"#
                ),
            )
        }
        _ => reply(404, ""),
    }
}
