//! A proxy in front of a server over HTTP. It can speak TLS with clients, as the proxy of a real server does.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use programs::adapter::first;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The ALPN protocols of a server that speaks HTTP/2 and HTTP/1.1.
pub(super) const EITHER: &[&str] = &["h2", "http/1.1"];
/// The ALPN protocols of a server without HTTP/2.
pub(super) const OLD: &[&str] = &["http/1.1"];

/// A certificate authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// The root certificate, in PEM and in DER.
    pub(super) fn root(&self) -> (String, Vec<u8>) {
        (self.0.pem(), self.0.der().to_vec())
    }

    /// The configuration of a server with a certificate for `host`, which speaks these protocols.
    pub(super) fn server(&self, host: &str, protocols: &[&str]) -> ServerConfig {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([host.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let versions =
            ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let certificates = vec![certificate.der().clone()];
        let config = versions.expect("versions").with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.expect("a key for the certificate");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }
}

/// The traffic that has passed a proxy.
#[derive(Default)]
pub(super) struct Passed {
    /// The protocol of each connection that a client has made, such as `h2`; empty without TLS.
    pub(super) protocols: Vec<String>,
    /// All bytes that clients have sent.
    pub(super) sent: Vec<u8>,
}

/// A running proxy. Dropping it ends its connections.
pub(super) struct Front {
    pub(super) address: SocketAddr,
    passed: Arc<Mutex<Passed>>,
    /// `true` while no bytes of the server are passed on.
    paused: watch::Sender<bool>,
    _stop: oneshot::Sender<()>,
}

impl Front {
    /// Starts a proxy in front of a server.
    pub(super) fn start(server: SocketAddr, tls: Option<ServerConfig>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener for tokio");
        let passed = Arc::<Mutex<Passed>>::default();
        let (stop, stopped) = oneshot::channel();
        let (paused, pause) = watch::channel(false);
        let shared = Arc::clone(&passed);
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
            runtime.block_on(first(accept(listener, server, acceptor, shared, pause), async { drop(stopped.await) }));
        });
        Self { address, passed, paused, _stop: stop }
    }

    /// While `is_paused`, no bytes of the server are passed on.
    pub(super) fn set_paused(&self, is_paused: bool) {
        self.paused.send_replace(is_paused);
    }

    pub(super) fn passed(&self) -> MutexGuard<'_, Passed> {
        lock(&self.passed)
    }
}

fn lock(passed: &Mutex<Passed>) -> MutexGuard<'_, Passed> {
    passed.lock().unwrap_or_else(PoisonError::into_inner)
}

type Pause = watch::Receiver<bool>;

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    tls: Option<TlsAcceptor>,
    passed: Arc<Mutex<Passed>>,
    pause: Pause,
) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let (client, _) = listener.accept().await.expect("a connection");
        let (tls, passed, pause) = (tls.clone(), Arc::clone(&passed), pause.clone());
        // An error means that the client has disconnected or refuses the certificate.
        tokio::spawn(async move { connection(client, server, tls, &passed, pause).await.ok() });
    }
}

async fn connection(
    client: TcpStream,
    server: SocketAddr,
    tls: Option<TlsAcceptor>,
    passed: &Mutex<Passed>,
    pause: Pause,
) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let Some(tls) = tls else {
        lock(passed).protocols.push(String::new());
        return relay(client, server, passed, pause).await;
    };
    let client = tls.accept(client).await?;
    let protocol = client.get_ref().1.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned());
    lock(passed).protocols.push(protocol.unwrap_or_default());
    relay(client, server, passed, pause).await
}

/// Passes bytes on in both directions until one end closes.
async fn relay(client: impl AsyncRead + AsyncWrite, server: TcpStream, passed: &Mutex<Passed>, mut pause: Pause) -> io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let up = async {
        let mut bytes = [0; 16 << 10];
        loop {
            let read = from_client.read(&mut bytes).await?;
            if read == 0 {
                return Ok(());
            }
            lock(passed).sent.extend_from_slice(&bytes[..read]);
            to_server.write_all(&bytes[..read]).await?;
        }
    };
    let down = async {
        let mut bytes = [0; 16 << 10];
        loop {
            let read = from_server.read(&mut bytes).await?;
            pause.wait_for(|is_paused| !is_paused).await.map_err(io::Error::other)?;
            if read == 0 {
                return to_client.shutdown().await;
            }
            to_client.write_all(&bytes[..read]).await?;
            // A TLS stream buffers the bytes that the socket does not take.
            to_client.flush().await?;
        }
    };
    first(up, down).await
}
