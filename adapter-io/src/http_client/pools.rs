//! Pools of connections for requests.

use core::time::Duration;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;

use endpoint::TimedRuntime;
use futures_channel::oneshot;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, select};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Executor, Timer};
use hyper::{Request, Response};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use protocol_core::Bytes;

use super::connector::HttpConnector;
use super::limited::Limited;
use super::proxy::OverTls;

/// The maximum number of requests that share a pool. Over HTTP/2 the requests of a pool use one connection, unless it takes longer than
/// [`OPENING`] to open. On this connection a request above the server's limit of streams would wait, and so would all later requests. A
/// server's limit should not be smaller than this number (RFC 9113, section 6.5.2).
const STREAMS: usize = 100;
/// The maximum time for which the later requests of a pool wait for the connection of the first one.
const OPENING: Duration = Duration::from_secs(1);
/// The maximum number of attempts to get a connection. An attempt is repeated only after one kind of failure: it waited for a connection
/// that another request was making, and that request was given up.
const ATTEMPTS: usize = 3;

/// Tasks of a runtime, for connections.
#[derive(Clone)]
struct Tasks(Arc<dyn TimedRuntime>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn(Box::pin(task));
    }
}

/// The settings of connections.
fn builder(tasks: Tasks, timer: impl Timer + Clone + Send + Sync + 'static) -> legacy::Builder {
    let mut builder = legacy::Client::builder(tasks);
    builder.pool_timer(timer.clone()).timer(timer);
    #[cfg(feature = "http-client-tls")]
    http_2(&mut builder);
    builder
}

/// The settings of HTTP/2. Requests share a connection, which must not fail because of one of its streams.
#[cfg(feature = "http-client-tls")]
fn http_2(builder: &mut legacy::Builder) {
    /// The time without a frame of the server after which a connection with requests is tested by a ping.
    const PING: Duration = Duration::from_secs(30);
    /// The time in which the ping must be answered. Otherwise the connection is closed, since new requests on a dead one would hang.
    const PONG: Duration = Duration::from_secs(20);
    /// The number of streams whose late frames are ignored for a second after their reset.
    const RESETS: usize = 1024;
    /// The number of frames that may arrive even later, in the whole life of a connection: a server may write for a while before it reads a
    /// reset.
    const LATE: usize = 1 << 16;
    builder.http2_keep_alive_interval(PING).http2_keep_alive_timeout(PONG);
    builder.http2_max_concurrent_reset_streams(RESETS).http2_max_local_error_reset_streams(LATE);
}

type HyperClient<C> = legacy::Client<Limited<OverTls<C>>, Full<Bytes>>;

/// Pools of connections. Each pool has at most [`STREAMS`] requests, so that no request waits for the end of another.
pub(super) struct Pools<C> {
    builder: legacy::Builder,
    connector: Limited<OverTls<C>>,
    /// `true` if the requests of a pool may share a connection.
    are_shared: bool,
    runtime: Arc<dyn TimedRuntime>,
    /// The pools by number.
    pools: HashMap<usize, Pool<C>>,
}

struct Pool<C> {
    client: HyperClient<C>,
    /// The number of requests that have not ended.
    requests: usize,
    /// Ready once the first of these requests has a connection, or has ended.
    opened: Shared<oneshot::Receiver<()>>,
}

/// The place of one request in a pool.
pub(super) struct Taken<C> {
    client: HyperClient<C>,
    /// The number of the pool.
    pub(super) number: usize,
    rank: Rank,
}

/// The rank of a request in its pool. Later requests wait until the first has its connection, for [`OPENING`] at most, since they may
/// share it. Otherwise each would make a connection of its own before it is known if the server speaks HTTP/2.
enum Rank {
    First(oneshot::Sender<()>),
    Later(Shared<oneshot::Receiver<()>>, Arc<dyn TimedRuntime>),
    /// The rank of every request if the requests of a pool do not share a connection.
    Any,
}

impl<C: HttpConnector> Pools<C> {
    /// Pools of connections that `connector` makes. `are_shared` is `true` if the connections may use HTTP/2.
    pub(super) fn new(
        connector: OverTls<C>,
        are_shared: bool,
        runtime: &Arc<dyn TimedRuntime>,
        timer: impl Timer + Clone + Send + Sync + 'static,
    ) -> Self {
        let runtime = Arc::clone(runtime);
        let builder = builder(Tasks(Arc::clone(&runtime)), timer);
        let connector = Limited::new(connector, Arc::clone(&runtime));
        Self { builder, connector, are_shared, runtime, pools: HashMap::new() }
    }

    /// Takes a place in a pool for a request. Give the place back when the request has ended.
    pub(super) fn take(&mut self) -> Taken<C> {
        let has_room = |number: &usize| self.pools.get(number).is_none_or(|pool| pool.requests < STREAMS);
        let number = (0..).find(has_room).unwrap_or_default();
        let pool = self.pools.entry(number).or_insert_with(|| Pool {
            client: self.builder.build(self.connector.clone()),
            requests: 0,
            opened: oneshot::channel().1.shared(),
        });
        let rank = if !self.are_shared {
            Rank::Any
        } else if pool.requests == 0 {
            let (first, opened) = oneshot::channel();
            pool.opened = opened.shared();
            Rank::First(first)
        } else {
            Rank::Later(pool.opened.clone(), Arc::clone(&self.runtime))
        };
        pool.requests = pool.requests.saturating_add(1);
        Taken { client: pool.client.clone(), number, rank }
    }

    /// Gives back a place in the pool with this number, after the end of its request.
    pub(super) fn give_back(&mut self, number: usize) {
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.requests = pool.requests.saturating_sub(1);
        }
    }
}

impl<C: HttpConnector> Taken<C> {
    /// Makes the request. If it is a later one, first waits for the first request of the pool. Returns the response once its head has
    /// arrived.
    pub(super) async fn response(self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, legacy::Error> {
        let client = &self.client;
        match self.rank {
            Rank::Any => response(client, request).await,
            Rank::Later(opened, runtime) => {
                let mut timer = runtime.timer();
                let deadline = timer.now().saturating_add(OPENING);
                select(opened, poll_fn(|cx| timer.poll_until(cx, deadline))).await;
                response(client, request).await
            }
            Rank::First(opened) => {
                let mut connection = capture_connection(&mut request);
                let note_connection = async move {
                    connection.wait_for_connection_metadata().await;
                    drop(opened);
                    pending().await
                };
                select(pin!(response(client, request)), pin!(note_connection)).await.factor_first().0
            }
        }
    }
}

/// Makes a request, and returns the response once its head has arrived.
async fn response<C: HttpConnector>(
    client: &HyperClient<C>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, legacy::Error> {
    for _ in 1..ATTEMPTS {
        match client.request(request.clone()).await {
            // The request may have waited for the connection of another request that was given up.
            Err(error) if error.is_connect() && !is_of_system(&error) => {}
            result => return result,
        }
    }
    client.request(request).await
}

/// An error and its causes.
pub(super) fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// Returns `true` if an error comes from a socket, from TLS or from a time limit.
fn is_of_system(error: &(dyn StdError + 'static)) -> bool {
    chain(error).any(|error| error.is::<io::Error>())
}

#[cfg(test)]
#[cfg(feature = "http-client-tls")]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::Instant;

    use endpoint::testing;
    use hyper::Uri;
    use hyper::rt::{Read, ReadBufCursor, Sleep, Write};
    use hyper_util::client::legacy::connect::{Connected, Connection};
    use tower_service::Service;

    use super::super::proxy::Proxied;
    use super::super::{HttpServerAddress, over_tls};
    use super::*;

    /// A connection whose reads and writes stay pending.
    struct Stuck {
        is_http_2: bool,
        _open: Arc<()>,
    }

    impl Read for Stuck {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Write for Stuck {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Connection for Stuck {
        fn connected(&self) -> Connected {
            if self.is_http_2 { Connected::new().negotiated_h2() } else { Connected::new() }
        }
    }

    /// A timer that is never due.
    #[derive(Clone)]
    struct Never;

    impl Timer for Never {
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
            Box::pin(Self)
        }

        fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Sleep>> {
            Box::pin(Self)
        }
    }

    impl Future for Never {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl Sleep for Never {}

    /// Opens two connections, and refuses all others.
    #[derive(Clone, Default)]
    struct Two(Arc<AtomicUsize>);

    impl Service<Uri> for Two {
        type Response = Stuck;
        type Error = io::Error;
        type Future = std::future::Ready<io::Result<Stuck>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            let opened = self.0.fetch_add(1, Ordering::Relaxed);
            std::future::ready(if opened < 2 {
                Ok(Stuck { is_http_2: true, _open: Arc::default() })
            } else {
                Err(io::ErrorKind::ConnectionRefused.into())
            })
        }
    }

    #[test]
    fn a_request_makes_its_own_connection_once_the_request_whose_connection_it_waits_for_is_given_up() {
        let connector = over_tls(Proxied::new(Two::default(), None), &HttpServerAddress::new("http://localhost"), false).unwrap();
        let runtime: Arc<dyn TimedRuntime> = Arc::new(testing::Executor::new());
        let mut pools = Pools::new(connector, false, &runtime, Never);
        let mut ask = || Box::pin(pools.take().response(Request::post("http://localhost/").body(Full::default()).unwrap()));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut one, mut other) = (ask(), ask());
        assert!(one.as_mut().poll(&mut cx).is_pending() && other.as_mut().poll(&mut cx).is_pending());
        drop(one);
        // The third connection is refused.
        let Poll::Ready(Err(error)) = other.as_mut().poll(&mut cx) else { panic!("it waits") };
        assert!(is_of_system(&error), "{error:?}");
    }

    /// Opens connections whose reads and writes stay pending. Each holds a clone of `open` while it is open.
    #[derive(Clone)]
    struct Stall {
        is_http_2: bool,
        open: Arc<()>,
    }

    impl Service<Uri> for Stall {
        type Response = Stuck;
        type Error = io::Error;
        type Future = std::future::Ready<io::Result<Stuck>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            std::future::ready(Ok(Stuck { is_http_2: self.is_http_2, _open: Arc::clone(&self.open) }))
        }
    }

    #[test]
    fn a_stalled_connection_is_closed_within_30_s_after_its_request_is_given_up() {
        for is_http_2 in [false, true] {
            let open = Arc::new(());
            let stall = Stall { is_http_2, open: Arc::clone(&open) };
            let connector = over_tls(Proxied::new(stall, None), &HttpServerAddress::new("http://localhost"), false).unwrap();
            let executor = testing::Executor::new();
            let runtime: Arc<dyn TimedRuntime> = Arc::new(executor.clone());
            let mut pools = Pools::new(connector, is_http_2, &runtime, Never);
            let mut cx = Context::from_waker(Waker::noop());
            let mut ask = || Box::pin(pools.take().response(Request::post("http://localhost/").body(Full::default()).unwrap()));
            let mut asked = ask();
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            executor.run_for(OPENING);
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            drop((asked, pools));
            executor.run_for(Duration::from_secs(30));
            assert_eq!(Arc::strong_count(&open), 1, "HTTP/2: {is_http_2}");
        }
    }

    #[test]
    fn a_connection_whose_handshake_of_tls_does_not_end_fails_after_the_time_limit() {
        let stall = Stall { is_http_2: false, open: Arc::default() };
        let connector = over_tls(Proxied::new(stall, None), &HttpServerAddress::new("https://localhost"), true).unwrap();
        let executor = testing::Executor::new();
        let runtime: Arc<dyn TimedRuntime> = Arc::new(executor.clone());
        let mut pools = Pools::new(connector, true, &runtime, Never);
        let mut cx = Context::from_waker(Waker::noop());
        let mut asked = Box::pin(pools.take().response(Request::post("https://localhost/").body(Full::default()).unwrap()));
        assert!(asked.as_mut().poll(&mut cx).is_pending());
        executor.run_for(Duration::from_secs(20));
        let Poll::Ready(Err(error)) = asked.as_mut().poll(&mut cx) else { panic!("it waits") };
        assert!(chain(&error).any(|cause| cause.to_string() == "no connection is made in time"), "{error:?}");
    }

    #[test]
    fn later_requests_wait_at_most_a_second_for_the_connection_of_the_first() {
        let two = Two::default();
        let opened = Arc::clone(&two.0);
        let connector = over_tls(Proxied::new(two, None), &HttpServerAddress::new("http://localhost"), false).unwrap();
        let executor = testing::Executor::new();
        let runtime: Arc<dyn TimedRuntime> = Arc::new(executor.clone());
        let mut pools = Pools::new(connector, true, &runtime, Never);
        let mut ask = || Box::pin(pools.take().response(Request::post("http://localhost/").body(Full::default()).unwrap()));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut one, mut other) = (ask(), ask());
        for _ in 0..2 {
            assert!(one.as_mut().poll(&mut cx).is_pending() && other.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        executor.run_for(OPENING);
        assert!(other.as_mut().poll(&mut cx).is_pending());
        assert_eq!(opened.load(Ordering::Relaxed), 2);
    }
}
