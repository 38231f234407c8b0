use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use endpoint::{Client, Endpoint, Peer, Runtime, Service};
use protocol_core::drive::FrameIo;
use protocol_core::{CloseReason, Config};
use smol::{Executor, Task};

use crate::{Error, SmolRuntime};

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
/// If a handler takes a state that the service does not have ([`Service::check`]).
#[track_caller]
pub fn start<I>(service: impl Into<Arc<Service>>, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(None, transport, |runtime| Endpoint::server(service.into(), runtime))
}

/// Starts to serve `service` as [`start`] does, in a task on `executor`.
///
/// # Panics
/// If a handler takes a state that the service does not have ([`Service::check`]).
#[track_caller]
pub fn start_on<I>(executor: &Arc<Executor<'static>>, service: impl Into<Arc<Service>>, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(Some(executor), transport, |runtime| Endpoint::server(service.into(), runtime))
}

/// Starts to serve `service` with the configuration `config`, in a new task; for example as a Tesseron app, with the configuration of
/// [`Service::app`].
///
/// # Panics
/// If a handler takes a state that the service does not have ([`Service::check`]).
#[track_caller]
pub fn start_as<I>(service: Arc<Service>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(None, transport, |runtime| Endpoint::serving(service, config, runtime))
}

/// Starts to serve `service` as [`start_as`] does, in a task on `executor`.
///
/// # Panics
/// If a handler takes a state that the service does not have ([`Service::check`]).
#[track_caller]
pub fn start_as_on<I>(executor: &Arc<Executor<'static>>, service: Arc<Service>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(Some(executor), transport, |runtime| Endpoint::serving(service, config, runtime))
}

/// Connects to the peer at the other end of `transport` as a caller, in a new task. `client` answers the input requests of the peer.
pub fn connect<I>(client: Arc<dyn Client>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(None, transport, |runtime| Endpoint::client(client, config, runtime))
}

/// Connects as [`connect`] does, in a task on `executor`.
pub fn connect_on<I>(executor: &Arc<Executor<'static>>, client: Arc<dyn Client>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(Some(executor), transport, |runtime| Endpoint::client(client, config, runtime))
}

/// A connection that runs in a task of its own. It is also a future that waits for the end of the connection.
///
/// The future is ready when the session is closed, all handlers have ended, the last frames are written (for which the peer has 5 s), and
/// the transport is closed. Its output is the reason for which the session closed, or [`Error::Broken`] if the transport failed.
/// [`Peer::close`] can close the session gracefully.
///
/// # Cancel safety
/// Not cancel safe: dropping it ends the connection at once. Calls end as lost, handlers are cancelled and dropped at their next await
/// point, and a child process is killed. To be able to stop waiting and to continue later, await `&mut connection`.
#[derive(Debug)]
#[must_use = "dropping it ends the connection"]
pub struct Connection {
    peer: Peer,
    task: Task<Result<CloseReason, Error>>,
}

impl Connection {
    fn start<I>(executor: Option<&Arc<Executor<'static>>>, transport: I, make: impl FnOnce(Arc<dyn Runtime>) -> Endpoint) -> Self
    where
        I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
    {
        let clock = executor.map_or_else(SmolRuntime::start, SmolRuntime::start_on);
        let endpoint = make(Arc::new(clock.clone()));
        let peer = endpoint.peer();
        let driven = endpoint::drive(endpoint, transport, clock.timer());
        Self::of(executor, peer, async move { driven.await.map_err(Error::broken) })
    }

    /// A connection to `peer`, run by the future `driven` in a new task.
    pub(crate) fn of(
        executor: Option<&Arc<Executor<'static>>>,
        peer: Peer,
        driven: impl Future<Output = Result<CloseReason, Error>> + Send + 'static,
    ) -> Self {
        let task = match executor {
            Some(executor) => executor.spawn(driven),
            None => smol::spawn(driven),
        };
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
        Pin::new(&mut self.task).poll(cx)
    }
}
