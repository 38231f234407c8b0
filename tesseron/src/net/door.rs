//! Where gateways come to, and how those who come are heard: each in a task of its own, so that one who is slow costs nobody else
//! anything, until it is let in or turned away.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::boxed::Box;
use std::io;
use std::sync::Arc;

use crate::net::host::Shared;
use crate::net::{Sockets, TesseronTransport};
use protocol_core::drive::Timer;

/// What gateways connect to.
pub(super) trait Door: Send + Sync + 'static {
    /// One who has connected.
    type Comer: Send + 'static;

    /// The next one. Can be dropped and called again.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Comer>> + Send;

    /// Hears what they want. Gives nothing if they are turned away.
    fn admit(
        comer: Self::Comer,
        shared: &Arc<Shared>,
        alarm: &mut (impl Timer + Send),
    ) -> impl Future<Output = Option<TesseronTransport>> + Send;
}

/// What the task has to do next.
enum Next<C> {
    Over,
    Refresh,
    Come(io::Result<C>),
}

/// Hears who comes and keeps the claim fresh, until nobody is to be let in any longer.
pub(super) async fn attend<D: Door, S: Sockets>(door: D, attended: Attended, sockets: S) {
    let shared = &attended.0;
    let mut alarm = sockets.alarm();
    loop {
        let mut come = pin!(door.accept());
        let next = poll_fn(|cx| {
            let Some(attention) = shared.attention(cx) else { return Poll::Ready(Next::Over) };
            if attention.due().is_some_and(|at| alarm.poll_until(cx, at).is_ready()) {
                return Poll::Ready(Next::Refresh);
            }
            if attention.is_troubled() { Poll::Pending } else { come.as_mut().poll(cx).map(Next::Come) }
        });
        match next.await {
            Next::Over => return,
            Next::Refresh => shared.refresh(),
            Next::Come(Err(error)) => shared.on_accept_failed(error),
            Next::Come(Ok(comer)) => {
                let Some(dialler) = shared.hear() else { continue };
                let mut alarm = sockets.alarm();
                sockets.spawn(Box::pin(async move {
                    if let Some(transport) = D::admit(comer, dialler.shared(), &mut alarm).await {
                        dialler.shared().let_in(transport);
                    }
                }));
            }
        }
    }
}

/// What is attended to. Nobody is let in any longer once the task has ended, also when its runtime drops it, and be it at once.
pub(super) struct Attended(Arc<Shared>);

impl Attended {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(feature = "websocket")]
pub(super) use tcp::TcpDoor;

#[cfg(feature = "websocket")]
mod tcp {
    use std::boxed::Box;
    use std::io;
    use std::sync::Arc;

    use super::Door;
    use crate::claims::Offer;
    use crate::net::Error;
    use crate::net::host::Shared;
    use crate::net::{Address, LoopbackUrl, Sockets, TesseronTransport, in_time, upgrade};
    use adapter_io::{Error as TransportError, ListenTcp};
    use protocol_core::drive::Timer;

    /// Any free port of this machine; no other machine reaches it.
    const HERE: &str = "127.0.0.1:0";

    pub(crate) struct TcpDoor<S: Sockets>(S::TcpListener);

    impl<S: Sockets> TcpDoor<S> {
        pub(crate) async fn open() -> Result<(Self, Address), Error> {
            let (listener, address) = S::Io::bind(HERE).await.map_err(TransportError::listening_on(HERE))?;
            let url = LoopbackUrl::at(address)
                .map_err(|_| TransportError::listening_on(address)(io::ErrorKind::AddrNotAvailable.into()))?;
            Ok((Self(listener), Address::WebSocket(url)))
        }
    }

    impl<S: Sockets> Door for TcpDoor<S> {
        type Comer = S::Tcp;

        async fn accept(&self) -> io::Result<S::Tcp> {
            S::accept_tcp(&self.0).await
        }

        async fn admit(comer: S::Tcp, shared: &Arc<Shared>, alarm: &mut (impl Timer + Send)) -> Option<TesseronTransport> {
            let judge = |offer: &Offer| shared.answer_upgrade(offer);
            let (socket, seat) = in_time(alarm, upgrade::accept::<S::Io, _, _>(comer, judge)).await?.ok()?;
            Some(TesseronTransport::seated(Box::new(socket), seat))
        }
    }
}

#[cfg(unix)]
pub(super) use unix::UnixDoor;

#[cfg(unix)]
mod unix {
    use core::future::poll_fn;
    use std::boxed::Box;
    use std::fs::{self, Permissions};
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::Door;
    use crate::claims::{HostGate, HostNext, UnixChannel};
    use crate::net::Error;
    use crate::net::host::{Seat, Shared};
    use crate::net::{Address, BIND_LINE, Home, Sockets, TesseronTransport, home, instance, until};
    use adapter_io::{Accept, Error as TransportError, ListenUnix, SocketFile};
    use protocol_core::drive::{FrameIo, Timer};
    use protocol_core::limits::Limits;
    use protocol_core::session::Transmit;

    pub(crate) struct UnixDoor<S: Sockets>(S::UnixListener);

    impl<S: Sockets> UnixDoor<S> {
        /// A socket in a folder that is ours alone, so that its own permissions are never too wide, not even when it is made.
        pub(crate) fn open(home: &Home, id: &str) -> Result<(Self, Address, SocketFile), Error> {
            let folder = home.sockets();
            home::make_private_folder(&folder)?;
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

    impl<S: Sockets> Door for UnixDoor<S> {
        type Comer = S::Unix;

        async fn accept(&self) -> io::Result<S::Unix> {
            S::UnixIo::accept(&self.0).await
        }

        async fn admit(comer: S::Unix, shared: &Arc<Shared>, alarm: &mut (impl Timer + Send)) -> Option<TesseronTransport> {
            match shared.accept_unix().ok()? {
                UnixChannel::Open(channel) => Some(TesseronTransport::seated(Box::new(comer), Seat::new(shared, channel))),
                UnixChannel::Gated(gate) => bind(comer, gate, shared, alarm).await,
            }
        }
    }

    /// Listens until the gate opens.
    async fn bind<I: FrameIo<Error = io::Error> + Send + 'static>(
        mut io: I,
        mut gate: HostGate,
        shared: &Arc<Shared>,
        alarm: &mut (impl Timer + Send),
    ) -> Option<TesseronTransport> {
        io.set_frame_limit(BIND_LINE);
        while let Some(due) = gate.poll_timeout() {
            let frame = match until(alarm, due, poll_fn(|cx| io.poll_recv(cx))).await {
                Some(frame) => frame.ok()??,
                None if gate.handle_timeout(alarm.now()) => return None,
                None => continue,
            };
            let step = shared.knock(&mut gate, frame);
            // At once: from here on the place is held.
            let seat = if let HostNext::Open(channel) = step.next { Some(Seat::new(shared, channel)) } else { None };
            if let Some(reply) = step.reply {
                io.start_send(Transmit::new(reply)).ok()?;
                until(alarm, due, poll_fn(|cx| io.poll_flush(cx))).await?.ok()?;
            }
            if let Some(seat) = seat {
                io.set_frame_limit(Limits::default().frame_bytes);
                return Some(TesseronTransport::gated(Box::new(io), seat, gate));
            }
            if step.next == HostNext::Close {
                let _ = poll_fn(|cx| io.poll_close(cx)).await;
                return None;
            }
        }
        None
    }
}
