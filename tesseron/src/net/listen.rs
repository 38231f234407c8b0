use core::fmt;
use core::future::poll_fn;
use std::boxed::Box;
use std::format;
use std::path::{Path, PathBuf};
use std::string::String;
use std::sync::Arc;

use crate::claims::{Agent, ClaimCode, Host, HostChannel, HostPolicy};
use crate::net::TesseronError;
use crate::net::acceptor::{self, Acceptor, AcceptorGuard};
use crate::net::host::{Random, Shared};
use crate::net::instance::{self, Manifest};
#[cfg(feature = "websocket")]
use crate::net::peer;
use crate::net::{Address, Home, Instance, Sockets, TesseronTransport};

/// The options of an app that listens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TesseronOptions {
    /// The name of the app for people: 1 to 256 bytes without control characters.
    pub app_name: String,
    /// The kind of socket that the gateway connects to.
    pub binding: Binding,
    /// The end that mints the claim.
    pub claim: ClaimMode,
    /// Whose home the manifest and the socket are in; `None` is that of the user who runs this program.
    pub home: Option<PathBuf>,
    /// `true` if gateways of any user of this machine may connect to a WebSocket. `false`: if the system tells who has connected (Linux does),
    /// others are turned away.
    pub any_user: bool,
}

impl TesseronOptions {
    /// A host-minted claim, in the home of this user.
    #[must_use]
    pub fn new(app_name: impl Into<String>, binding: Binding) -> Self {
        Self { app_name: app_name.into(), binding, claim: ClaimMode::default(), home: None, any_user: false }
    }
}

/// The kind of socket that a gateway connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binding {
    /// A WebSocket on any free port of `127.0.0.1`.
    #[cfg(feature = "websocket")]
    WebSocket,
    /// A socket in `.tesseron/sockets`.
    #[cfg(unix)]
    Unix,
}

/// The end that mints the claim of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimMode {
    /// The app itself: it shows a code before any gateway has dialled, and lets a gateway in that knows it.
    HostMinted(HostPolicy),
    /// The gateway: it dials as soon as it has read the manifest, and answers the app's hello with a code. No code keeps others out, so a
    /// WebSocket lets only in whom the system knows for a program of this user, unless it is for [any
    /// user](TesseronOptions::any_user); then any user of this machine may claim the app.
    GatewayMinted,
}

impl Default for ClaimMode {
    fn default() -> Self {
        Self::HostMinted(HostPolicy::default())
    }
}

/// Listens for gateways, and says so in a manifest.
///
/// # Cancel safety
/// Cancel safe: until it is ready nothing listens, and there is no manifest.
///
/// # Errors
/// [`TesseronError::AppName`], [`TesseronError::NoHome`], [`TesseronError::Folder`], [`adapter_io::Error::Listen`], [`adapter_io::Error::PathExists`],
/// [`TesseronError::Manifest`] and [`TesseronError::Random`]; [`TesseronError::AnyUser`] for a WebSocket without claims where the system does not tell who has
/// connected.
pub async fn listen<S: Sockets>(sockets: S, options: TesseronOptions) -> Result<TesseronListener, TesseronError> {
    if !instance::is_name(&options.app_name) {
        return Err(TesseronError::AppName);
    }
    let home = options.home.map_or_else(Home::of_user, |home| Ok(Home::at(home)))?;
    let (mut random, mut number, added_at) = (Random::default(), [0; 8], sockets.epoch_ms());
    random.fill(&mut number);
    let host = match options.claim {
        ClaimMode::HostMinted(policy) => Host::minting(policy, sockets.now(), added_at, &mut |bytes| random.fill(bytes)),
        ClaimMode::GatewayMinted => Host::plain(),
    };
    random.check()?;
    let host = if options.any_user { host.for_any_user() } else { host };
    let id = format!("inst-{:016x}", u64::from_ne_bytes(number));
    let (binding, app_name, is_minted) = (options.binding, options.app_name, host.claim().is_some());
    let named = id.clone();
    let instance = |address| Instance {
        id: named,
        app_name,
        added_at,
        process: Some(std::process::id()),
        address,
        hello_handled_by_host: is_minted,
        claim: None,
    };
    match binding {
        #[cfg(feature = "websocket")]
        Binding::WebSocket => {
            if !is_minted && !options.any_user && !peer::can_be_known() {
                return Err(TesseronError::AnyUser);
            }
            let (acceptor, address) = acceptor::TcpAcceptor::open(sockets.clone()).await?;
            start(sockets, acceptor, None, host, Manifest::new(&home, instance(address))?)
        }
        #[cfg(unix)]
        Binding::Unix => {
            let (acceptor, address, socket) = acceptor::UnixAcceptor::<S>::open(&home, &id)?;
            start(sockets, acceptor, Some(Box::new(socket)), host, Manifest::new(&home, instance(address))?)
        }
    }
}

fn start<S: Sockets>(
    sockets: S,
    acceptor: impl Acceptor,
    socket: Option<Box<dyn Send>>,
    host: Host,
    manifest: Manifest,
) -> Result<TesseronListener, TesseronError> {
    let path = manifest.path().into();
    let shared = Shared::new(Box::new(sockets.clone()), host, manifest, socket)?;
    let (runtime, guard) = (sockets.clone(), AcceptorGuard::new(&shared));
    runtime.spawn(Box::pin(acceptor::serve(acceptor, guard, sockets)));
    Ok(TesseronListener { shared, manifest: path })
}

/// An app that waits for a gateway, one at a time.
///
/// A task of its own hears who dials, answers those who are not let in, and keeps the manifest up to date. Once a channel is gone, be
/// it that its peer hung up or that its transport was closed or dropped, the next may bind, by a new code.
///
/// Dropping it removes the manifest and the socket file, unless others have been put in their place, and accepts no connection any
/// longer. A channel that was taken goes on. So it is when the runtime ends.
pub struct TesseronListener {
    shared: Arc<Shared>,
    manifest: PathBuf,
}

impl TesseronListener {
    /// The next channel, once it is bound.
    ///
    /// # Cancel safety
    /// Cancel safe: a channel that was bound waits for the next call.
    ///
    /// # Errors
    /// [`adapter_io::Error::Accept`] if a connection was not accepted, [`TesseronError::Manifest`] if the manifest could not be written. Both may work again
    /// later. [`TesseronError::Random`] if no new code can be minted: then no connection is accepted any longer. After that, and once the runtime has
    /// ended, [`adapter_io::Error::Accept`] each time.
    pub async fn accept(&self) -> Result<TesseronTransport, TesseronError> {
        poll_fn(|cx| self.shared.poll_accept(cx)).await
    }

    /// The next code that a person is to be shown: at first the one there is, and later each new one. `None` for an app whose claims
    /// the gateway mints, and once no connection is accepted any longer.
    ///
    /// # Cancel safety
    /// Cancel safe: a code that was not given is given by the next call.
    pub async fn next_code(&self) -> Option<ClaimCode> {
        poll_fn(|cx| self.shared.poll_code(cx)).await
    }

    /// The code of the claim there is now; spent while there is a channel. `None` for an app whose claims the gateway mints.
    #[must_use]
    pub fn claim_code(&self) -> Option<ClaimCode> {
        self.shared.claim_code()
    }

    /// Says who is at the other end of a channel, for the manifest. Nothing happens for a channel that is gone.
    pub fn handle_agent(&self, channel: HostChannel, agent: Agent) {
        self.shared.name_agent(channel, agent);
    }

    /// The path of the manifest.
    #[must_use]
    pub fn manifest_path(&self) -> &Path {
        &self.manifest
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.shared.address()
    }
}

impl Drop for TesseronListener {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for TesseronListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TesseronListener").field(self.address()).finish()
    }
}
