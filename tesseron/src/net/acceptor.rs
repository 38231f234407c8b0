//! Accepts the connections of gateways. Each connection has a task of its own until it is admitted as a channel, is refused or evicted, or
//! ends, so that a slow connection does not delay other ones.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::boxed::Box;
use std::io;
use std::sync::Arc;
use std::vec::Vec;

use crate::claims::Peer;
use crate::net::host::{Dialler, Shared};
use crate::net::{Sockets, TesseronTransport};
use protocol_core::drive::Timer;

/// A listening socket for gateways.
pub(super) trait Acceptor: Send + Sync + 'static {
    /// A connection that is not admitted as a channel yet.
    type Incoming: Send + 'static;

    /// Waits for the next connections, and returns those that have not ended, each with its peer. If the future is dropped, connections may
    /// be lost.
    fn accept(&self) -> impl Future<Output = io::Result<Vec<(Self::Incoming, Peer)>>> + Send;

    /// Handles the upgrade or the bind. Returns `None` if the connection was refused, has ended or was too slow.
    fn admit(
        incoming: Self::Incoming,
        dialler: &Dialler,
        timer: &mut (impl Timer + Send),
    ) -> impl Future<Output = Option<TesseronTransport>> + Send;
}

/// The next step of the accepting task.
enum Next<C> {
    Closed,
    Refresh,
    Accepted(io::Result<Vec<(C, Peer)>>),
}

/// Accepts connections and refreshes the claim, until the host is closed.
pub(super) async fn serve<D: Acceptor, S: Sockets>(acceptor: D, guard: AcceptorGuard, sockets: S) {
    let shared = &guard.0;
    let mut timer = sockets.timer();
    // This future is kept over a refresh of the claim, since it may have accepted a connection, and be looking up its user.
    let mut accepting = pin!(acceptor.accept());
    loop {
        let next = poll_fn(|cx| {
            let Some(accept_state) = shared.accept_state(cx) else { return Poll::Ready(Next::Closed) };
            if accept_state.due().is_some_and(|at| timer.poll_until(cx, at).is_ready()) {
                return Poll::Ready(Next::Refresh);
            }
            // While an error waits to be reported, no connection is accepted.
            if accept_state.has_error() { Poll::Pending } else { accepting.as_mut().poll(cx).map(Next::Accepted) }
        });
        let accepted = match next.await {
            Next::Closed => return,
            Next::Refresh => {
                shared.refresh();
                continue;
            }
            Next::Accepted(accepted) => accepted,
        };
        accepting.set(acceptor.accept());
        for (incoming, peer) in accepted.map_err(|error| shared.on_accept_failed(error)).unwrap_or_default() {
            let Some(dialler) = shared.arrive(peer) else { continue };
            let mut timer = sockets.timer();
            sockets.spawn(Box::pin(async move {
                if let Some(Some(transport)) = dialler.unless_evicted(D::admit(incoming, &dialler, &mut timer)).await {
                    dialler.shared().queue_channel(transport);
                }
            }));
        }
    }
}

/// Closes the host when the accepting task ends, or when its runtime drops it.
pub(super) struct AcceptorGuard(Arc<Shared>);

impl AcceptorGuard {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

impl Drop for AcceptorGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(feature = "websocket")]
pub(super) use tcp::TcpAcceptor;

#[cfg(feature = "websocket")]
mod tcp {
    use core::future::{pending, poll_fn};
    use core::net::SocketAddr;
    use core::pin::pin;
    use core::task::Poll;
    use std::boxed::Box;
    use std::io;
    use std::vec::Vec;

    use super::Acceptor;
    use crate::claims::{Peer, PeerUser, UpgradeStep};
    use crate::net::TesseronError;
    use crate::net::blocking::run_blocking;
    use crate::net::host::{Dialler, guard};
    use crate::net::{Address, LoopbackUrl, Sockets, TesseronTransport, in_time, peer, until, upgrade};
    use adapter_io::{Error as TransportError, ListenTcp};
    use protocol_core::drive::Timer;

    /// An address with any free port, which can be reached only from this machine.
    const ANY_PORT: &str = "127.0.0.1:0";

    /// The maximum number of connections whose users are looked up at once: a quarter of the usual limit on open files. A look-up of many
    /// connections takes no longer than that of one. It takes seconds if another user has made the system's tables long by opening many
    /// sockets.
    const MAX_LOOKUPS: usize = 256;

    pub(crate) struct TcpAcceptor<S: Sockets> {
        listener: S::TcpListener,
        address: SocketAddr,
        /// `true` if the system can report which user has connected.
        reports_users: bool,
        sockets: S,
    }

    impl<S: Sockets> TcpAcceptor<S> {
        pub(crate) async fn open(sockets: S) -> Result<(Self, Address), TesseronError> {
            let (listener, address) = S::Io::bind(ANY_PORT).await.map_err(TransportError::listening_on(ANY_PORT))?;
            let url = LoopbackUrl::at(address)
                .map_err(|_| TransportError::listening_on(address)(io::ErrorKind::AddrNotAvailable.into()))?;
            Ok((Self { listener, address, reports_users: peer::can_be_known(), sockets }, Address::WebSocket(url)))
        }

        /// Waits for a connection, and accepts all that are ready, up to [`MAX_LOOKUPS`]. If no users are looked up, accepts exactly one.
        async fn accept_all(&self) -> io::Result<Vec<(S::Tcp, SocketAddr)>> {
            let mut all = Vec::from([S::accept_tcp(&self.listener).await?]);
            while self.reports_users && all.len() < MAX_LOOKUPS {
                let mut next = pin!(S::accept_tcp(&self.listener));
                match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
                    Poll::Ready(Ok(one)) => all.push(one),
                    // If an error persists, the next call returns it.
                    Poll::Ready(Err(_)) | Poll::Pending => break,
                }
            }
            Ok(all)
        }

        /// Finds the peers of the connections; `None` for a connection that has already ended.
        async fn look_up(&self, remotes: Vec<SocketAddr>) -> Vec<Option<Peer>> {
            let unknown = remotes.iter().map(|_| Some(PeerUser::Unknown.into())).collect();
            if !self.reports_users {
                return unknown;
            }
            let local = self.address;
            // The look-up is a blocking task, since the tables of a busy machine are long. If the task does not end in time, the users stay
            // unknown.
            let found = run_blocking(&self.sockets, move || peer::find_with_processes(local, &remotes));
            in_time(&mut self.sockets.timer(), found).await.flatten().unwrap_or(unknown)
        }
    }

    /// Returns `true` for an error of a single connection, which a peer can cause, and `false` for an error of the listener.
    fn is_of_one_connection(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
    }

    impl<S: Sockets> Acceptor for TcpAcceptor<S> {
        type Incoming = S::Tcp;

        async fn accept(&self) -> io::Result<Vec<(S::Tcp, Peer)>> {
            match self.accept_all().await {
                Err(error) if is_of_one_connection(&error) => Ok(Vec::new()),
                Err(error) => Err(error),
                Ok(all) => {
                    let peers = self.look_up(all.iter().map(|(_, remote)| *remote).collect()).await;
                    Ok(all.into_iter().zip(peers).filter_map(|((incoming, _), peer)| Some((incoming, peer?))).collect())
                }
            }
        }

        async fn admit(mut incoming: S::Tcp, dialler: &Dialler, timer: &mut (impl Timer + Send)) -> Option<TesseronTransport> {
            let shared = dialler.shared();
            let mut gate = dialler.accept_web_socket();
            let request = until(timer, gate.poll_timeout()?, upgrade::read::<S::Io, _>(&mut incoming)).await?.ok()?;
            let mut step = shared.handle_upgrade(&mut gate, request.offer());
            while let (UpgradeStep::Wait, Some(due)) = (step, gate.poll_timeout()) {
                let _ = until(timer, due, pending::<()>()).await;
                step = shared.handle_upgrade_timeout(&mut gate);
            }
            match step {
                UpgradeStep::Open(channel) => {
                    // The app is occupied from here on, so the guard that frees it again is made before the next await.
                    let guard = guard(shared, channel);
                    let socket = in_time(timer, upgrade::accept::<S::Io, _>(incoming, request)).await?.ok()?;
                    Some(TesseronTransport::guarded(Box::new(socket), guard))
                }
                UpgradeStep::Refuse(refused) => {
                    in_time(timer, upgrade::refuse::<S::Io, _>(&mut incoming, refused)).await?.ok()?;
                    None
                }
                UpgradeStep::Wait | UpgradeStep::Close => None,
            }
        }
    }
}

#[cfg(unix)]
pub(super) use unix::UnixAcceptor;

#[cfg(unix)]
mod unix {
    use core::future::{pending, poll_fn};
    use std::boxed::Box;
    use std::fs::{self, Permissions};
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::vec::Vec;

    use super::Acceptor;
    use crate::claims::{HostGate, HostNext, Peer, PeerUser, UnixChannel};
    use crate::net::TesseronError;
    use crate::net::host::{Dialler, Shared, guard};
    use crate::net::{Address, Home, MAX_BIND_LINE, Sockets, TesseronTransport, in_time, instance, until};
    use adapter_io::{Accept, Error as TransportError, ListenUnix, SocketFile};
    use protocol_core::drive::{FrameIo, Timer};
    use protocol_core::limits::Limits;
    use protocol_core::session::Transmit;

    pub(crate) struct UnixAcceptor<S: Sockets>(S::UnixListener);

    impl<S: Sockets> UnixAcceptor<S> {
        /// Creates the socket in a folder with mode 0700, so that no other user can reach the socket even before its permissions are set.
        pub(crate) fn open(home: &Home, id: &str) -> Result<(Self, Address, SocketFile), TesseronError> {
            let folder = home.sockets();
            home.make(&folder)?;
            let mut path = folder.join(id);
            path.set_extension("sock");
            let failed = |source| TransportError::listening_on(path.display())(source);
            if !instance::is_socket_path(&path) {
                let why = "the path is too long for a socket, or cannot be written";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)).into());
            }
            let (listener, file) = SocketFile::make(&path, S::UnixIo::bind)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
            Ok((Self(listener), Address::Unix(path), file))
        }
    }

    impl<S: Sockets> Acceptor for UnixAcceptor<S> {
        type Incoming = S::Unix;

        async fn accept(&self) -> io::Result<Vec<(S::Unix, Peer)>> {
            // Only this user can enter the folder of the socket, so the peer is this user.
            S::UnixIo::accept(&self.0).await.map(|incoming| Vec::from([(incoming, PeerUser::ThisUser.into())]))
        }

        async fn admit(incoming: S::Unix, dialler: &Dialler, timer: &mut (impl Timer + Send)) -> Option<TesseronTransport> {
            let shared = dialler.shared();
            match dialler.accept_unix() {
                UnixChannel::Open(channel) => Some(TesseronTransport::guarded(Box::new(incoming), guard(shared, channel))),
                UnixChannel::Gated(gate) => bind(incoming, gate, shared, timer).await,
            }
        }
    }

    /// Passes frames to the gate until it opens. Returns `None` if the socket ends or is closed first.
    async fn bind<I: FrameIo<Error = io::Error> + Send + 'static>(
        mut io: I,
        mut gate: HostGate,
        shared: &Arc<Shared>,
        timer: &mut (impl Timer + Send),
    ) -> Option<TesseronTransport> {
        io.set_frame_limit(MAX_BIND_LINE);
        while let Some(due) = gate.poll_timeout() {
            let step = if gate.is_deciding() {
                let _ = until(timer, due, pending::<()>()).await;
                shared.handle_bind_timeout(&mut gate)
            } else {
                match until(timer, due, poll_fn(|cx| io.poll_recv(cx))).await {
                    Some(frame) => shared.handle_bind(&mut gate, frame.ok()??),
                    None => shared.handle_bind_timeout(&mut gate),
                }
            };
            // The app is occupied from here on, so the guard that frees it again is made before the next await.
            let guard = if let HostNext::Open(channel) = step.next { Some(guard(shared, channel)) } else { None };
            if let Some(reply) = step.reply {
                io.start_send(Transmit::new(reply)).ok()?;
                in_time(timer, poll_fn(|cx| io.poll_flush(cx))).await?.ok()?;
            }
            if let Some(guard) = guard {
                io.set_frame_limit(Limits::default().frame_bytes);
                return Some(TesseronTransport::gated(Box::new(io), guard, gate));
            }
            if step.next == HostNext::Close {
                let _ = poll_fn(|cx| io.poll_close(cx)).await;
                return None;
            }
        }
        None
    }
}
