use core::fmt;
use core::future::poll_fn;
#[cfg(unix)]
use core::time::Duration;
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
    /// The end that makes the claim code.
    pub claim_code_source: ClaimCodeSource,
    /// The home folder for the manifest and the socket; `None` for that of the user who runs this program.
    pub home: Option<PathBuf>,
    /// `true` if gateways of any user of this machine may connect to a WebSocket. With `false` gateways of other users are refused, if the
    /// system reports which user has connected (Linux does).
    pub any_user: bool,
}

impl TesseronOptions {
    /// Options with a claim code made by the app, in the home folder of this user.
    #[must_use]
    pub fn new(app_name: impl Into<String>, binding: Binding) -> Self {
        Self { app_name: app_name.into(), binding, claim_code_source: ClaimCodeSource::default(), home: None, any_user: false }
    }
}

/// The kind of socket that a gateway connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binding {
    /// A WebSocket on any free port of `127.0.0.1`.
    #[cfg(feature = "websocket")]
    WebSocket,
    /// A Unix socket in `.tesseron/sockets`.
    #[cfg(unix)]
    Unix,
}

impl Binding {
    /// The rules for codes on this socket. Only programs that can read the home folder, and so the code, reach a Unix socket: their wrong
    /// codes are no guesses, and a delay would only give them the time to displace the connection that has sent the right one.
    fn policy(self, policy: HostPolicy) -> HostPolicy {
        match self {
            #[cfg(feature = "websocket")]
            Self::WebSocket => policy,
            #[cfg(unix)]
            Self::Unix => HostPolicy { max_delay: Duration::ZERO, ..policy },
        }
    }
}

/// The end that makes the claim code of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimCodeSource {
    /// The app: it shows a code before any gateway has connected, and accepts a gateway that sends the code. On a Unix socket no code is
    /// delayed, whatever the policy says.
    App(HostPolicy),
    /// The gateway: it connects as soon as it has read the manifest, and answers the app's hello with a code. The connection needs no code,
    /// so a WebSocket accepts only programs that the system attributes to this user. With [`TesseronOptions::any_user`] any user of this
    /// machine may claim the app.
    Gateway,
}

impl Default for ClaimCodeSource {
    fn default() -> Self {
        Self::App(HostPolicy::default())
    }
}

/// Listens for gateways, and writes a manifest.
///
/// # Cancel safety
/// Cancel safe: if the future is dropped, no listener and no manifest remain.
///
/// # Errors
/// [`TesseronError::AppName`], [`TesseronError::NoHome`], [`TesseronError::Folder`], [`adapter_io::Error::Listen`],
/// [`adapter_io::Error::PathExists`], [`TesseronError::Manifest`] and [`TesseronError::Random`]; [`TesseronError::AnyUser`] for a WebSocket
/// with [`ClaimCodeSource::Gateway`] on a system that does not report which user has connected.
pub async fn listen<S: Sockets>(sockets: S, options: TesseronOptions) -> Result<TesseronListener, TesseronError> {
    if !instance::is_name(&options.app_name) {
        return Err(TesseronError::AppName);
    }
    let home = options.home.map_or_else(Home::of_user, |home| Ok(Home::at(home)))?;
    let (mut random, mut number, added_at) = (Random::of(&sockets), [0; 8], sockets.epoch_ms());
    random.fill(&mut number);
    let host = match options.claim_code_source {
        ClaimCodeSource::App(policy) => {
            let policy = options.binding.policy(policy);
            Host::with_claims(policy, sockets.now(), added_at, &mut |bytes| random.fill(bytes))
        }
        ClaimCodeSource::Gateway => Host::without_claims(),
    };
    random.check()?;
    let host = if options.any_user { host.for_any_user() } else { host };
    let id = format!("inst-{:016x}", u64::from_ne_bytes(number));
    let (binding, app_name, has_claim) = (options.binding, options.app_name, host.claim().is_some());
    let instance_id = id.clone();
    let instance = |address| Instance {
        id: instance_id,
        app_name,
        added_at,
        process: Some(std::process::id()),
        address,
        hello_handled_by_host: has_claim,
        claim: None,
    };
    match binding {
        #[cfg(feature = "websocket")]
        Binding::WebSocket => {
            if !has_claim && !options.any_user && !peer::can_be_known() {
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

/// An app that listens for gateways, and has one channel at a time.
///
/// A task accepts connections, answers connections that it refuses, and keeps the manifest up to date. When a channel has ended, because
/// its peer has closed it or its transport was closed or dropped, the next gateway may connect. With [`ClaimCodeSource::App`] the next
/// gateway needs a new code.
///
/// Dropping the listener stops accepting connections, and removes the manifest and the socket file, unless other files have replaced them.
/// The end of the runtime has the same effect. A channel that was returned continues.
pub struct TesseronListener {
    shared: Arc<Shared>,
    manifest: PathBuf,
}

impl TesseronListener {
    /// Waits for the next channel, after its bind if one is required.
    ///
    /// # Cancel safety
    /// Cancel safe: a bound channel is returned by the next call.
    ///
    /// # Errors
    /// [`adapter_io::Error::Accept`] if a connection could not be accepted, [`TesseronError::Manifest`] if the manifest could not be
    /// written; a later call may succeed. [`TesseronError::Random`] if no new code can be made; then no more connections are accepted.
    /// After that, and once the runtime has ended, every call returns [`adapter_io::Error::Accept`].
    pub async fn accept(&self) -> Result<TesseronTransport, TesseronError> {
        poll_fn(|cx| self.shared.poll_accept(cx)).await
    }

    /// Waits for the next code to show to a person: first the current code, then each new code. `None` with [`ClaimCodeSource::Gateway`],
    /// and once no more connections are accepted.
    ///
    /// # Cancel safety
    /// Cancel safe: a code that was not returned is returned by the next call.
    pub async fn next_code(&self) -> Option<ClaimCode> {
        poll_fn(|cx| self.shared.poll_code(cx)).await
    }

    /// The current code. While there is a channel, this code is spent. `None` with [`ClaimCodeSource::Gateway`].
    #[must_use]
    pub fn claim_code(&self) -> Option<ClaimCode> {
        self.shared.claim_code()
    }

    /// Stores the agent of a channel, for the manifest. No effect if the channel has ended, and with [`ClaimCodeSource::Gateway`].
    pub fn handle_agent(&self, channel: HostChannel, agent: Agent) {
        self.shared.name_agent(channel, agent);
    }

    /// The path of the manifest.
    #[must_use]
    pub fn manifest_path(&self) -> &Path {
        &self.manifest
    }

    /// The address that the app listens on.
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

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use bytes::Bytes;
    use protocol_core::Instant;

    use super::Binding;
    use crate::claims::{ClaimCode, Host, HostGate, HostNext, HostPolicy, PeerUser, UnixChannel};

    fn gate(host: &mut Host) -> HostGate {
        let place = host.accept(PeerUser::ThisUser).unwrap().place;
        let UnixChannel::Gated(gate) = host.accept_unix(place, Instant::ZERO) else { panic!("a host with a claim has a gate") };
        gate
    }

    fn bind(code: &str) -> Bytes {
        let frame = std::format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tesseron/bind","params":{{"code":"{code}"}}}}"#);
        frame.into_bytes().into()
    }

    /// In the field a program of the same user that sent wrong codes as fast as it could kept the owner from claiming the app.
    #[test]
    fn a_flood_of_wrong_codes_on_a_unix_socket_does_not_delay_the_right_code() {
        let mut number = 0_u8;
        let mut random = |bytes: &mut [u8]| {
            number = number.wrapping_add(1);
            bytes.fill(number);
        };
        let mut host = Host::with_claims(Binding::Unix.policy(HostPolicy::default()), Instant::ZERO, 0, &mut random);
        let mut flood: Vec<_> = (0..50).map(|_| gate(&mut host)).collect();
        for gate in &mut flood {
            let _ = gate.handle_frame(bind("AAAA-AA"), &mut host, Instant::ZERO);
        }
        let code: ClaimCode = host.poll_claim().unwrap().code.clone();
        let mut owner = gate(&mut host);
        let next = owner.handle_frame(bind(code.reveal()), &mut host, Instant::ZERO).next;
        assert!(matches!(next, HostNext::Open(_)), "{next:?}");
        #[cfg(feature = "websocket")]
        assert_eq!(Binding::WebSocket.policy(HostPolicy::default()).max_delay, core::time::Duration::from_secs(2));
    }
}
