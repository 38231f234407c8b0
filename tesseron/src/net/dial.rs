use std::string::ToString;

use crate::claims::ClaimCode;
use crate::net::TesseronError;
use crate::net::error::Failed;
use crate::net::{Address, Instance, Sockets, TesseronTransport};
use adapter_io::Error as TransportError;

/// Connects to an app as a gateway, with its claim code if the app has made one. Connecting (with the upgrade, on a WebSocket) and waiting
/// for the answer to a bind take at most 5 seconds each.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped, the connection is closed, and if the app has already accepted `code`, that code is spent.
///
/// # Errors
/// [`adapter_io::Error::Connect`] if the app cannot be reached in time, if the connection fails, if the path is no socket of this user, if
/// the answer to an upgrade is not valid, or if this build does not support the kind of address. [`TesseronError::Refused`] if the app
/// refuses the upgrade to a WebSocket. [`TesseronError::Unbound`] if the app refuses the bind on a Unix socket, or gives no valid answer to
/// it in time.
pub async fn dial<S: Sockets>(
    sockets: &S,
    instance: &Instance,
    code: Option<&ClaimCode>,
) -> Result<TesseronTransport, TesseronError> {
    let mut timer = sockets.timer();
    let dialled = match &instance.address {
        #[cfg(feature = "websocket")]
        Address::WebSocket(url) => web_socket::dial::<S>(url, code, &mut timer).await,
        #[cfg(unix)]
        Address::Unix(path) => unix::dial::<S>(path, code, &mut timer).await,
        #[cfg(not(all(unix, feature = "websocket")))]
        _ => Err(std::io::ErrorKind::Unsupported.into()),
    };
    let address = instance.address.to_string();
    dialled.map_err(|failed| match failed {
        Failed::Io(source) => TransportError::Connect { address, source }.into(),
        #[cfg(feature = "websocket")]
        Failed::Refused(status, refused) => TesseronError::Refused { address, status, refused },
        #[cfg(unix)]
        Failed::Unbound(source) => TesseronError::Unbound { address, source },
    })
}

#[cfg(feature = "websocket")]
mod web_socket {
    use std::boxed::Box;
    use std::io;

    use crate::claims::ClaimCode;
    use crate::net::error::Failed;
    use crate::net::{LoopbackUrl, Sockets, TesseronTransport, in_time, upgrade};

    pub(super) async fn dial<S: Sockets>(
        url: &LoopbackUrl,
        code: Option<&ClaimCode>,
        timer: &mut S::Timer,
    ) -> Result<TesseronTransport, Failed> {
        let upgraded = async {
            let stream = connect::<S>(url).await?;
            upgrade::request_upgrade::<S::Io, _>(stream, url, code).await
        };
        let socket = in_time(timer, upgraded).await.ok_or(io::ErrorKind::TimedOut)??;
        Ok(TesseronTransport::dialled(Box::new(socket)))
    }

    async fn connect<S: Sockets>(url: &LoopbackUrl) -> io::Result<S::Tcp> {
        let mut failed = io::ErrorKind::AddrNotAvailable.into();
        for address in url.addresses() {
            match S::connect_tcp(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

#[cfg(unix)]
mod unix {
    use core::future::poll_fn;
    use std::boxed::Box;
    use std::fs;
    use std::io;
    use std::os::unix::fs::FileTypeExt;
    use std::path::Path;

    use crate::claims::{ClaimCode, DialGate, DialStep};
    use crate::net::error::Failed;
    use crate::net::{MAX_BIND_LINE, Sockets, TesseronTransport, home, in_time, until};
    use protocol_core::drive::{FrameIo, Timer};
    use protocol_core::limits::Limits;
    use protocol_core::session::Transmit;

    pub(super) async fn dial<S: Sockets>(
        path: &Path,
        code: Option<&ClaimCode>,
        timer: &mut S::Timer,
    ) -> Result<TesseronTransport, Failed> {
        check(path)?;
        let mut io = in_time(timer, S::connect_unix(path)).await.ok_or(io::ErrorKind::TimedOut)??;
        if let Some(code) = code {
            bind(&mut io, code, timer).await?;
        }
        Ok(TesseronTransport::dialled(Box::new(io)))
    }

    /// Checks that a socket belongs to this user: a manifest may contain any path, and the process that listens there gets the code.
    fn check(path: &Path) -> io::Result<()> {
        let file = fs::symlink_metadata(path)?;
        if file.file_type().is_socket() && home::is_ours(&file) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is no socket of this user"))
    }

    /// Sends the code, and waits until the app has accepted it.
    async fn bind(io: &mut impl FrameIo<Error = io::Error>, code: &ClaimCode, timer: &mut impl Timer) -> Result<(), Failed> {
        let mut gate = DialGate::new(code, DialGate::WAIT, timer.now());
        io.set_frame_limit(MAX_BIND_LINE);
        while let Some(bind) = gate.poll_transmit() {
            io.start_send(Transmit::new(bind))?;
        }
        while let Some(due) = gate.poll_timeout() {
            let answer = async {
                poll_fn(|cx| io.poll_flush(cx)).await?;
                poll_fn(|cx| io.poll_recv(cx)).await
            };
            let step = match until(timer, due, answer).await {
                Some(Ok(Some(frame))) => gate.handle_frame(frame),
                Some(Ok(None)) => gate.handle_end().map(|()| DialStep::Wait),
                Some(Err(error)) => return Err(error.into()),
                None => gate.handle_timeout(timer.now()).map(|()| DialStep::Wait),
            };
            step.map_err(Failed::Unbound)?;
        }
        io.set_frame_limit(Limits::default().frame_bytes);
        Ok(())
    }
}
