//! Connections with two time limits: one for making the connection, and one for a server that reads nothing.

use core::time::Duration;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use endpoint::TimedRuntime;
use futures_util::future::{Either, select};
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use protocol_core::Instant;
use protocol_core::drive::Timer;
use tower_service::Service;

use super::connector::HTTP_CONNECT_TIMEOUT;

/// The time limit for making a connection: [`HTTP_CONNECT_TIMEOUT`] for the connector, and as much again for TLS, even if TLS is not used.
const CONNECTION_TIMEOUT: Duration = HTTP_CONNECT_TIMEOUT.saturating_mul(2);
/// The longest time for which a server may read nothing while bytes wait to be sent to it.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A connector that makes its connections with another connector, and fails if that takes longer than [`CONNECTION_TIMEOUT`].
#[derive(Clone)]
pub(super) struct Limited<C> {
    connector: C,
    runtime: Arc<dyn TimedRuntime>,
}

impl<C> Limited<C> {
    pub(super) fn new(connector: C, runtime: Arc<dyn TimedRuntime>) -> Self {
        Self { connector, runtime }
    }
}

impl<C> Service<Uri> for Limited<C>
where
    C: Service<Uri, Error: Into<Box<dyn StdError + Send + Sync>>, Future: Unpin + Send + 'static>,
{
    type Response = Watched<C::Response>;
    type Error = Box<dyn StdError + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = self.connector.call(address);
        let runtime = Arc::clone(&self.runtime);
        Box::pin(async move {
            let mut timer = runtime.timer();
            let deadline = timer.now().saturating_add(CONNECTION_TIMEOUT);
            match select(connecting, poll_fn(|cx| timer.poll_until(cx, deadline))).await {
                Either::Left((made, _)) => {
                    made.map(|connection| Watched { connection, runtime: Arc::clone(&runtime), wait: None }).map_err(Into::into)
                }
                Either::Right(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection is made in time").into()),
            }
        })
    }
}

/// A connection that fails if the server reads nothing for [`UNREAD_TIMEOUT`]. When a request is given up, its connection closes only
/// after all written bytes were sent; without this limit it could stay open for ever.
pub(super) struct Watched<T> {
    connection: T,
    runtime: Arc<dyn TimedRuntime>,
    /// A timer, and the time by which the server must have read; `None` while no bytes wait to be sent.
    wait: Option<(Box<dyn Timer + Send + Sync>, Instant)>,
}

impl<T: Unpin> Watched<T> {
    /// Polls a write, which fails if it is pending for [`UNREAD_TIMEOUT`].
    fn watch<V>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<V>>,
    ) -> Poll<io::Result<V>> {
        let this = &mut *self;
        if let Poll::Ready(written) = write(Pin::new(&mut this.connection), cx) {
            this.wait = None;
            return Poll::Ready(written);
        }
        let (timer, deadline) = this.wait.get_or_insert_with(|| {
            let timer = this.runtime.timer();
            let deadline = timer.now().saturating_add(UNREAD_TIMEOUT);
            (timer, deadline)
        });
        ready!(timer.poll_until(cx, *deadline));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the server reads nothing")))
    }
}

impl<T: Read + Unpin> Read for Watched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for Watched<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(cx, |connection, cx| connection.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(cx, Write::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(cx, Write::poll_shutdown)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.watch(cx, |connection, cx| connection.poll_write_vectored(cx, bytes))
    }
}

impl<T: Connection> Connection for Watched<T> {
    fn connected(&self) -> Connected {
        self.connection.connected()
    }
}
