use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use endpoint::{Client, Endpoint, Peer, Runtime, Service};
use protocol_core::drive::FrameIo;
use protocol_core::{CloseReason, Config};
use smol::{Executor, Task};

use crate::{Clock, Error};

/// An error of a transport, of whatever type.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Serves `service` to the peer at the other end of `transport`.
pub fn serve<I>(service: Arc<Service>, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(None, transport, |runtime| Endpoint::server(service, runtime))
}

/// As [`serve`], on an executor of your own.
pub fn serve_on<I>(executor: &Arc<Executor<'static>>, service: Arc<Service>, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(Some(executor), transport, |runtime| Endpoint::server(service, runtime))
}

/// Serves `service` as `config` says, [`Service::app`] for one: as an app of Tesseron.
pub fn serve_as<I>(service: Arc<Service>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(None, transport, |runtime| Endpoint::serving(service, config, runtime))
}

/// As [`serve_as`], on an executor of your own.
pub fn serve_as_on<I>(executor: &Arc<Executor<'static>>, service: Arc<Service>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(Some(executor), transport, |runtime| Endpoint::serving(service, config, runtime))
}

/// Calls the peer at the other end of `transport`, and answers what it asks through `client`.
pub fn connect<I>(client: Arc<dyn Client>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(None, transport, |runtime| Endpoint::client(client, config, runtime))
}

/// As [`connect`], on an executor of your own.
pub fn connect_on<I>(executor: &Arc<Executor<'static>>, client: Arc<dyn Client>, config: Config, transport: I) -> Connection
where
    I: FrameIo<Error: Into<BoxError> + Send> + Send + 'static,
{
    Connection::start(Some(executor), transport, |runtime| Endpoint::client(client, config, runtime))
}

/// A connection that runs in a task of its own.
///
/// Awaited it gives the end, when all has been written, handlers have ended and the transport is closed: why the session closed, or
/// [`Error::Broken`]. [`Peer::close`] brings that about in an orderly way. Dropping it ends the connection at once: calls are lost,
/// handlers are told and dropped at their next await, a child process is killed.
///
/// # Cancel safety
/// Not cancel safe: dropping it ends the connection at once, as said above; poll a `&mut Connection`, which is a future, too, where
/// it shall go on.
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
        let clock = executor.map_or_else(Clock::start, Clock::start_on);
        let endpoint = make(Arc::new(clock.clone()));
        let peer = endpoint.peer();
        let driven = endpoint::drive(endpoint, transport, clock.alarm());
        let driven = async move { driven.await.map_err(Error::broken) };
        let task = match executor {
            Some(executor) => executor.spawn(driven),
            None => smol::spawn(driven),
        };
        Self { peer, task }
    }

    /// The handle of the other end.
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
