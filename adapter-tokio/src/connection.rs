use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use endpoint::{Client, Endpoint, Peer, Runtime, Service};
use protocol_core::drive::FrameIo;
use protocol_core::{CloseReason, Config};
use tokio::task::JoinHandle;

use crate::{Error, TokioRuntime};

/// An error of a transport, of any type.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Serves `service` to the peer at the other end of `transport`, until the session has ended.
///
/// [`start`] does the same in a task of its own, and returns a handle.
///
/// # Cancel safety
/// Not cancel safe: dropping the future ends the connection at once, as dropping a [`Connection`] does.
///
/// # Errors
/// If a handler takes a state that the service does not have ([`Service::check`]), or the transport failed ([`Error::Broken`]). That the
/// peer has ended the session is no error, and neither is a session that was closed for a fault of the peer; [`start`] tells the reason.
///
/// # Panics
/// Outside of a tokio runtime.
pub async fn serve<I>(service: impl Into<Arc<Service>>, transport: I) -> endpoint::Result<()>
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    let service = service.into();
    service.check()?;
    start(service, transport).await?;
    Ok(())
}

/// Starts to serve `service` to the peer at the other end of `transport`, in a new task.
///
/// # Panics
/// Outside of a tokio runtime, and if a handler takes a state that the service does not have ([`Service::check`]).
#[track_caller]
pub fn start<I>(service: impl Into<Arc<Service>>, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(transport, |runtime| Endpoint::server(service.into(), runtime))
}

/// Starts to serve `service` with the configuration `config`, in a new task; for example as a Tesseron app, with the configuration of
/// [`Service::app`].
///
/// # Panics
/// Outside of a tokio runtime, and if a handler takes a state that the service does not have ([`Service::check`]).
#[track_caller]
pub fn start_as<I>(service: Arc<Service>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(transport, |runtime| Endpoint::serving(service, config, runtime))
}

/// Connects to the peer at the other end of `transport` as a caller, in a new task. `client` answers the input requests of the peer.
///
/// # Panics
/// Outside of a tokio runtime.
#[track_caller]
pub fn connect<I>(client: Arc<dyn Client>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(transport, |runtime| Endpoint::client(client, config, runtime))
}

/// A connection that runs in a task of its own. It is also a future that waits for the end of the connection.
///
/// The future is ready when the session is closed, all handlers have ended, the last frames are written (for which the peer has 5 s), and
/// the transport is closed. Its output is the reason for which the session closed, or [`Error::Broken`] if the transport failed.
/// If the runtime shuts down first, the output is [`CloseReason::Failed`]. [`Peer::close`] can close the session gracefully.
///
/// # Panics
/// The future passes on a panic of the task.
///
/// # Cancel safety
/// Not cancel safe: dropping it ends the connection at once. Calls end as lost, handlers are cancelled and dropped at their next await
/// point, and a child process is killed. To be able to stop waiting and to continue later, await `&mut connection`.
#[derive(Debug)]
#[must_use = "dropping it ends the connection"]
pub struct Connection {
    peer: Peer,
    task: JoinHandle<Result<CloseReason, Error>>,
}

impl Connection {
    #[track_caller]
    fn start<I>(transport: I, make: impl FnOnce(Arc<dyn Runtime>) -> Endpoint) -> Self
    where
        I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
    {
        let clock = TokioRuntime::start();
        let endpoint = make(Arc::new(clock.clone()));
        let peer = endpoint.peer();
        let driven = endpoint::drive(endpoint, transport, clock.timer());
        let task = tokio::spawn(async move { driven.await.map_err(Error::broken) });
        Self { peer, task }
    }

    /// A connection that runs in `task`.
    #[cfg(feature = "http-client")]
    pub(crate) fn of(peer: Peer, task: JoinHandle<Result<CloseReason, Error>>) -> Self {
        Self { peer, task }
    }

    /// The handle on the peer.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer.clone()
    }
}

impl Future for Connection {
    type Output = Result<CloseReason, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok(end) => end,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The task was dropped, since the runtime is shutting down.
            Err(_) => Ok(CloseReason::Failed),
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
