//! What goes into a login and comes out of it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use protocol_core::Instant;

use crate::address::{Reach, bare, written_origin};
use crate::answer::Refusal;
use crate::record::{Registration, Tokens};
use crate::secret::Secret;

/// The time: of a monotonic axis for deadlines, and of the calendar for tokens, whose end is a date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// See [`Instant`].
    pub instant: Instant,
    /// Seconds since 1970.
    pub unix: u64,
}

/// A request to the MCP server, by a number that its owner chooses. A number may be used again once its request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// A request or a task that a login waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub(crate) u64);

/// What the owner of a login does, in the order in which it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send a request, and pass its answer to `Login::handle_response`.
    Request(Request),
    /// Do something with the store, and pass the result to `Login::handle_store`.
    Store(TicketId, StoreTask),
    /// Get a token that proves who we are, anew each time, and pass it to `Login::handle_subject`: of a person for an identity provider, or
    /// of this workload.
    Subject,
    /// Listen for callbacks, if possible at this port, and pass the address to `Login::handle_listening`.
    Listen {
        /// The port of a former login.
        port: Option<u16>,
    },
    /// Show a page to a person.
    Open(PageAddress),
    /// Send the request of this tag to the MCP server with these headers in addition.
    Send(Tag, Vec<(&'static str, Secret)>),
    /// End the request of this tag.
    GiveUp(Tag, Reason),
    /// Tell the user, or a log.
    Notice(Notice),
}

/// A request to an authorization server, or for metadata. No redirect may be followed and no cookie be sent.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Names the request in `Login::handle_response`.
    pub id: TicketId,
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The address. It came from documents of others.
    pub address: String,
    /// The headers.
    pub headers: Vec<(&'static str, Secret)>,
    /// The body; empty for `GET`.
    pub body: Secret,
    /// How long the request may take in all. The login gives up by itself, too.
    pub timeout: Duration,
    /// The largest body of an answer, in bytes. A larger one is a failure.
    pub max_body: usize,
    /// The machines that the connection may lead to.
    pub reach: Reach,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, bare(&self.address))
    }
}

/// The answer to a request.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// A response.
    Response {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: &'a [(&'a str, &'a str)],
        /// Its body.
        body: &'a [u8],
    },
    /// There is none: no connection, no answer in time, too large a body.
    Failed,
}

/// The address of a page on which a person logs in. It contains secrets of this login, so that its `Debug` shows only the host.
#[derive(Clone, PartialEq, Eq)]
pub struct PageAddress(pub(crate) Secret);

impl PageAddress {
    /// The whole address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.expose()
    }

    /// Its scheme, host and port: what a person is shown before the page is opened.
    #[must_use]
    pub fn origin(&self) -> String {
        written_origin(self.as_str())
    }
}

impl fmt::Debug for PageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

/// A task for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreTask {
    /// Load the tokens: [`StoreAnswer::Loaded`].
    Load,
    /// Take the lock of the tokens, then load them: [`StoreAnswer::Locked`]; if the lock is not free within 125 s, or the tokens cannot be read, [`StoreAnswer::Busy`].
    Lock,
    /// Save the tokens, under the lock: [`StoreAnswer::Saved`].
    Save(Box<Tokens>),
    /// Forget the tokens if they are still those of this generation, under the lock. No answer is needed.
    Forget {
        /// See [`Tokens::generation`].
        generation: u64,
    },
    /// Release the lock. No answer is needed.
    Unlock,
    /// Load the client at an issuer: [`StoreAnswer::Registration`].
    LoadRegistration(String),
    /// Save a client. No answer is needed.
    SaveRegistration(Registration),
    /// Forget the client at an issuer. No answer is needed.
    ForgetRegistration(String),
}

/// The result of a [`StoreTask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreAnswer {
    /// What is in the store; `None` also if it cannot be read.
    Loaded(Option<Tokens>),
    /// The lock is ours, and this is in the store.
    Locked(Option<Tokens>),
    /// The lock is not free, and this is in the store.
    Busy(Option<Tokens>),
    /// Whether the tokens are saved.
    Saved(bool),
    /// The client at the issuer.
    Registration(Option<Registration>),
}

/// What the browser is told after a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallbackAnswer {
    /// 200: the page can be closed.
    Done,
    /// 200: the server refused; the program has the reason.
    Refused,
    /// 400: this is no answer to our page. The listener goes on.
    Stray,
}

/// Why a request is given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A server of the login is down or busy.
    #[error("the authorization server is not available")]
    Unavailable {
        /// Seconds after which it asked to be asked again.
        retry_after: Option<u64>,
    },
    /// The metadata of the MCP server is missing or unfit.
    #[error("the server does not say where to log in")]
    BadResource,
    /// No authorization server that the MCP server names can be used.
    #[error("no authorization server can be used")]
    NoServer,
    /// The metadata of an authorization server is that of another one.
    #[error("the authorization server names another issuer than its own")]
    IssuerMismatch,
    /// The authorization server does not say that it offers PKCE with S256.
    #[error("the authorization server does not offer PKCE")]
    NoPkce,
    /// The MCP server names other authorization servers than the one that is configured or that the client is registered at.
    #[error("the server wants a login at another authorization server than the configured one")]
    OtherServer,
    /// The server demands tokens that are bound to a key, and there is none that it takes.
    #[error("the server demands tokens that are bound to a key")]
    NoProof,
    /// The authorization server registers no clients: the user has to do it.
    #[error("no client is registered at {issuer}")]
    NeedClientId {
        /// The authorization server.
        issuer: String,
    },
    /// The authorization server refused to register the client.
    #[error("the client was not registered: {0}")]
    Registration(Refusal),
    /// The client cannot authenticate in a way that the authorization server takes.
    #[error("the client cannot authenticate at the authorization server")]
    NoAuthentication,
    /// Nobody listens for callbacks.
    #[error("callbacks cannot be received")]
    NoListener,
    /// The person said no.
    #[error("access was denied")]
    Denied,
    /// The authorization server refused.
    #[error("the authorization server refused: {0}")]
    Refused(Refusal),
    /// The answer of the token endpoint has no tokens that can be used.
    #[error("the authorization server gave no tokens that can be used")]
    NoTokens,
    /// There is no token of who we are, or it is for another client, another server, or expired.
    #[error("there is no token that proves who we are")]
    NoSubject,
    /// The MCP server demands scopes that were not granted.
    #[error("the server demands a scope that was not granted")]
    Scope,
    /// The MCP server refuses the tokens that were just given.
    #[error("the server refuses the tokens of its authorization server")]
    Rejected,
    /// Nobody logged in within ten minutes.
    #[error("nobody logged in in time")]
    TimedOut,
    /// The login was aborted.
    #[error("the login was aborted")]
    Aborted,
    /// Another process has the lock of the tokens.
    #[error("another process has the lock of the tokens")]
    Busy,
    /// Too many requests wait for this login.
    #[error("too many requests wait for the login")]
    TooMany,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// New tokens could not be saved: they are used, and lost when the program ends.
    NotSaved,
    /// Five refreshes in a row got no answer: a person can log in anew.
    RefreshFails,
}
