//! Listening for HTTP connections, for any runtime.
//!
//! ```text
//!   Accepting --- close ---> Closing --- no connection is open, or the grace is over ---> Closed
//!       |                       |                                                           ^
//!       `------- dropped -------'-----------------------------------------------------------'
//! ```
//!
//! *Dropped* means that the listener was dropped, or that the runtime has dropped the task that accepts connections.

use core::convert::Infallible;
use core::fmt;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use endpoint::{Runtime, TimedRuntime};
use engine::{Engine, Guarded, VerbEffects, Waiters, park};
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Executor, Read, ReadBuf, ReadBufCursor, Write};
use hyper::service::Service;
use hyper_util::server::conn::auto;
use pin_project_lite::pin_project;
use protocol_core::Instant;
use protocol_core::drive::Timer;

use crate::budget::{Account, Who};
use crate::guard::Trusted;
use crate::{HttpBody, HttpFuture, HttpService};

/// The time to wait after a connection could not be accepted. The usual reason is that there are no free file descriptors until clients
/// disconnect.
const PAUSE: Duration = Duration::from_millis(100);

/// One connection in this many may be open in addition, to be answered with 503.
const SURPLUS: usize = 16;
/// The time for which such a connection may be open without a request.
const SURPLUS_IDLE: Duration = Duration::from_secs(5);

/// The limits of an [`HttpListener`], in addition to those of its service ([`HttpLimits`](crate::HttpLimits)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// The maximum number of open connections; zero counts as one. A further connection ends the one on which no request is being served
    /// for the longest time. If a request is being served on each, the requests of the further connection are answered with 503; at most
    /// one more in sixteen are open for that. An address (a network of 64 bits for IPv6) may have at most as many connections as are left
    /// for all others; beyond that, its own connections are those that end. Default: 4096.
    pub connections: usize,
    /// The time after which a connection is closed if no request is being served on it, also while a [`Guard`](crate::Guard) looks up who
    /// has connected. A request is being served only once its body was read, so its head may take this long to arrive, and its body may
    /// take this long again. If other requests are being served, a body may take
    /// [`HttpTimeouts::body`](crate::HttpTimeouts::body). Default: 60 s.
    pub idle: Duration,
    /// The maximum number of header fields of a request over HTTP/1.1. A request with more is answered with 431. Default: 128.
    pub headers: usize,
    /// The maximum length of the head of a request, in bytes. A request with a longer head is refused. Over HTTP/1.1 this is the size of
    /// the buffer that the head is read into, which is at least 8 KiB. Default: 64 KiB.
    pub head_bytes: usize,
    /// The maximum number of requests at the same time on one connection over HTTP/2. Default: 128.
    pub streams: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { connections: 4096, idle: Duration::from_secs(60), headers: 128, head_bytes: 64 << 10, streams: 128 }
    }
}

/// A listening socket of one runtime.
pub trait Acceptor: Send + Sync + 'static {
    /// An accepted connection.
    type Io: Read + Write + Unpin + Send + 'static;

    /// Waits for the next connection.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: if the future is dropped, no connection is lost.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Io>> + Send;

    /// The addresses of a connection: of our end, and of the client's. `None` if they are not known; then a [`Guard`](crate::Guard) trusts
    /// no connection.
    fn ends(_io: &Self::Io) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

/// Serves an [`HttpService`] to all clients that connect to a socket, in tasks of its own, over HTTP/1.1 and HTTP/2. [`close`](Self::close)
/// ends it gracefully. Dropping it ends all connections immediately, without grace.
#[must_use = "dropping it ends all connections"]
pub struct HttpListener {
    address: SocketAddr,
    service: HttpService,
    listening: Arc<Engine<Listening>>,
}

impl HttpListener {
    /// Serves `service` to the clients of `acceptor`, a socket that listens on `address`.
    pub fn start<A: Acceptor>(acceptor: A, address: SocketAddr, service: HttpService, limits: ConnectionLimits) -> Self {
        let timed = Arc::clone(service.runtime());
        let runtime: Arc<dyn Runtime> = Arc::clone(&timed) as _;
        let listening = Arc::new(Engine::new(Listening::new(limits.connections), runtime));
        let connections = Connections::new(Arc::clone(&listening), service.clone(), timed, limits);
        listening.runtime().spawn(Box::pin(accept_all(acceptor, connections)));
        Self { address, service, listening }
    }

    /// The address of the listener.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections, and [closes](HttpService::close) the service: requests that are being served have `grace` to end, and a
    /// connection ends after its last response. A second call can only shorten the time.
    pub fn close(&self, grace: Duration) {
        self.service.close(grace);
        // One more second is for writing the last replies.
        let grace = grace.saturating_add(Duration::from_secs(1));
        self.listening.verb(|listening, now, _| listening.close(now.saturating_add(grace)));
    }

    /// Waits until all connections have ended or are ended by force. This happens only after [`close`](Self::close), or when the runtime
    /// drops the task that accepts connections.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and the method can be called again at any time.
    pub async fn closed(&self) {
        let mut watch = Watch::new(&self.listening);
        poll_fn(|cx| match watch.read(cx, |listening| listening.phase) {
            Phase::Closed => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
    }
}

impl Drop for HttpListener {
    fn drop(&mut self) {
        self.listening.verb(|listening, _, _| listening.end());
    }
}

impl fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpListener").field(&self.address).finish()
    }
}

/// The state of a listener under its lock.
struct Listening {
    phase: Phase,
    limit: usize,
    open: BTreeMap<u64, OpenConnection>,
    /// The number of connections that count, of all clients: those that are neither surplus nor ended by another.
    counted: usize,
    /// The same number for each client.
    clients: HashMap<Who, usize>,
    last_id: u64,
    /// The wakers of the task that accepts connections, and of the tasks that wait for the end.
    watchers: Waiters,
    /// Wakers of tasks that have something to do after this verb.
    woken: Vec<Waker>,
}

/// An open connection.
struct OpenConnection {
    activity: Arc<Activity>,
    client: Option<Who>,
    waker: Option<Waker>,
    /// `false` if it is one too many, or was ended in favour of another one.
    counts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Accepting,
    /// A connection ends after its last response, at the latest at this time.
    Closing(Instant),
    Closed,
}

impl Guarded for Listening {
    type Wakers = Vec<Waker>;

    fn is_closed(&self) -> bool {
        // The engine would only store this, and nothing here reads it: `phase` is used instead.
        false
    }

    fn take_wakers(&mut self, _: &VerbEffects) -> Vec<Waker> {
        core::mem::take(&mut self.woken)
    }
}

impl Listening {
    fn new(limit: usize) -> Self {
        Self {
            phase: Phase::Accepting,
            limit: limit.max(1),
            open: BTreeMap::new(),
            counted: 0,
            clients: HashMap::new(),
            last_id: 0,
            watchers: Waiters::default(),
            woken: Vec::new(),
        }
    }

    fn close(&mut self, until: Instant) {
        self.phase = match self.phase {
            Phase::Accepting => Phase::Closing(until),
            Phase::Closing(earlier) => Phase::Closing(earlier.min(until)),
            Phase::Closed => return,
        };
        self.end_all(Ending::Graceful);
    }

    fn end(&mut self) {
        self.phase = Phase::Closed;
        self.end_all(Ending::Now);
    }

    fn end_all(&mut self, how: Ending) {
        self.woken.extend(self.watchers.take());
        for connection in self.open.values_mut() {
            connection.activity.end(how);
            self.woken.extend(connection.waker.take());
        }
    }

    /// Adds a connection, and returns its number. If there is no room for it, ends the connection that is idle for the longest time; if
    /// none is idle, the new one is one too many.
    fn add(&mut self, activity: &Arc<Activity>, client: Option<Who>) -> u64 {
        let room = self.limit.saturating_sub(self.counted);
        let own = client.as_ref().and_then(|client| self.clients.get(client)).copied().unwrap_or_default();
        let counts = if room == 0 {
            self.end_idle(|connection| connection.counts)
        } else {
            own < room || self.end_idle(|connection| connection.counts && connection.client == client)
        };
        if counts {
            self.count(client.as_ref());
        } else {
            activity.is_surplus.store(true, Ordering::Release);
            let surplus = self.open.len().saturating_sub(self.counted);
            if surplus >= (self.limit / SURPLUS).max(1) {
                self.end_idle(|connection| !connection.counts);
            }
        }
        self.last_id = self.last_id.saturating_add(1);
        self.open.insert(self.last_id, OpenConnection { activity: Arc::clone(activity), client, waker: None, counts });
        self.last_id
    }

    /// Ends the connection that is idle for the longest time, of those that `is_meant` returns `true` for. Returns `false` if none is idle.
    fn end_idle(&mut self, is_meant: impl Fn(&OpenConnection) -> bool) -> bool {
        let idle = self.open.iter().filter(|(_, connection)| is_meant(connection));
        let idle = idle.filter_map(|(id, connection)| Some((connection.activity.unused_since()?, *id)));
        let Some((_, oldest)) = idle.min() else { return false };
        let Some(connection) = self.open.get_mut(&oldest) else { return false };
        connection.activity.end(Ending::IfIdle);
        self.woken.extend(connection.waker.take());
        if core::mem::replace(&mut connection.counts, false) {
            let client = connection.client.clone();
            self.uncount(client.as_ref());
        }
        true
    }

    fn count(&mut self, client: Option<&Who>) {
        self.counted = self.counted.saturating_add(1);
        if let Some(client) = client {
            let count = self.clients.entry(client.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }

    fn uncount(&mut self, client: Option<&Who>) {
        self.counted = self.counted.saturating_sub(1);
        if let Some(client) = client
            && let Some(count) = self.clients.get_mut(client)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.clients.remove(client);
            }
        }
    }

    /// Removes a connection. Returns its waker, to be dropped after the lock is released.
    fn remove(&mut self, id: u64) -> Option<Waker> {
        let connection = self.open.remove(&id)?;
        if connection.counts {
            self.uncount(connection.client.as_ref());
        }
        if self.phase != Phase::Accepting {
            self.woken.extend(self.watchers.take());
        }
        connection.waker
    }
}

/// The values that the tasks of connections share.
struct Connections {
    listening: Arc<Engine<Listening>>,
    service: HttpService,
    runtime: Arc<dyn TimedRuntime>,
    builder: auto::Builder<Tasks>,
    idle: Duration,
}

impl Connections {
    fn new(
        listening: Arc<Engine<Listening>>,
        service: HttpService,
        runtime: Arc<dyn TimedRuntime>,
        limits: ConnectionLimits,
    ) -> Self {
        let mut builder = auto::Builder::new(Tasks(Arc::clone(&runtime)));
        // hyper's own time limit for heads is off, since `ConnectionLimits::idle` also limits the time for a head.
        // hyper reads nothing while a request is served. `serve` notices the end of input, and whether the client is gone.
        builder.http1().half_close(true);
        builder.http1().header_read_timeout(None).max_headers(limits.headers).max_buf_size(limits.head_bytes.max(8 << 10));
        let list_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
        builder.http2().max_concurrent_streams(limits.streams).max_header_list_size(list_bytes);
        Self { listening, service, runtime, builder, idle: limits.idle }
    }
}

/// Accepts connections and starts a task for each, until the listener is closed. Then waits until all connections have ended.
async fn accept_all<A: Acceptor>(acceptor: A, connections: Connections) {
    let connections = Arc::new(connections);
    let end = EndOnDrop(Arc::clone(&connections.listening));
    let mut watch = Watch::new(&connections.listening);
    loop {
        let accepted = {
            let mut accept = pin!(acceptor.accept());
            poll_fn(|cx| match watch.read(cx, |listening| listening.phase) {
                Phase::Accepting => accept.as_mut().poll(cx).map(Some),
                _ => Poll::Ready(None),
            })
            .await
        };
        match accepted {
            None => break,
            Some(Ok(io)) => {
                let ends = A::ends(&io);
                let open = Open::new(&connections, ends.map(|(_, client)| Who::at(client.ip())));
                connections.runtime.spawn(Box::pin(serve(io, ends, open, Arc::clone(&connections))));
            }
            Some(Err(error)) if is_of_connection(&error) => {}
            Some(Err(_)) => {
                let until = connections.runtime.now().saturating_add(PAUSE);
                let mut timer = connections.runtime.timer();
                poll_fn(|cx| timer.poll_until(cx, until)).await;
            }
        }
    }
    drop(acceptor);
    let mut timer = connections.runtime.timer();
    poll_fn(|cx| match watch.read(cx, |listening| (listening.phase, listening.open.is_empty())) {
        (Phase::Closing(until), false) => timer.poll_until(cx, until),
        _ => Poll::Ready(()),
    })
    .await;
    drop(end);
}

/// Returns `true` for an error of one incoming connection, and `false` for an error of the listening socket. After an error of one
/// connection the next connection is accepted without a pause, so that a client that disconnects early delays no other.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused)
}

/// Ends all connections when the task that accepts connections has ended, or was dropped by its runtime.
struct EndOnDrop(Arc<Engine<Listening>>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.verb(|listening, _, _| listening.end());
    }
}

/// The registration of a task that waits for changes of the state. Dropping it removes the waker of the task.
struct Watch<'a> {
    listening: &'a Engine<Listening>,
    waiter: Option<u64>,
}

impl<'a> Watch<'a> {
    fn new(listening: &'a Engine<Listening>) -> Self {
        Self { listening, waiter: None }
    }

    /// Reads the state, and stores the waker of the task. The task is woken when the phase changes, and when a connection ends while the
    /// listener is closing.
    fn read<T>(&mut self, cx: &Context<'_>, read: impl FnOnce(&Listening) -> T) -> T {
        let mut waker = Some(cx.waker().clone());
        self.listening.with_state(|listening| {
            listening.watchers.park(&mut self.waiter, &mut waker);
            read(listening)
        })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let waker = self.waiter.and_then(|waiter| self.listening.with_state(|listening| listening.watchers.leave(waiter)));
        drop(waker);
    }
}

/// The place of an open connection in its listener, which it leaves when this is dropped.
struct Open {
    connections: Arc<Connections>,
    id: u64,
    activity: Arc<Activity>,
    client: Option<Arc<Account>>,
    /// The waker that the listener has, and what it was told when it stored the waker.
    parked: Option<(Waker, Ending)>,
}

impl Open {
    fn new(connections: &Arc<Connections>, client: Option<Who>) -> Self {
        let connections = Arc::clone(connections);
        let activity = Arc::new(Activity::new(Arc::clone(&connections.runtime)));
        let budget = connections.service.budget();
        budget.connections().take();
        let account = client.clone().map(|client| budget.account(client));
        let id = connections.listening.verb(|listening, _, _| listening.add(&activity, client));
        Self { connections, id, activity, client: account, parked: None }
    }

    /// How the connection must end. The task is woken when this changes. Takes the lock of the listener only the first time, and after a
    /// change.
    fn ending(&mut self, cx: &Context<'_>) -> Ending {
        if let Some((waker, told)) = &self.parked
            && waker.will_wake(cx.waker())
            && self.activity.ending() == *told
        {
            return *told;
        }
        let mut waker = Some(cx.waker().clone());
        let id = self.id;
        let ending = self.connections.listening.with_state(|listening| {
            if let Some(connection) = listening.open.get_mut(&id) {
                park(&mut connection.waker, &mut waker);
            }
            self.activity.ending()
        });
        drop(waker);
        self.parked = Some((cx.waker().clone(), ending));
        ending
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let waker = self.connections.listening.verb(|listening, _, _| listening.remove(self.id));
        drop(waker);
        let meter = self.connections.service.budget().connections();
        // One that was too many leaves no room.
        if self.activity.is_surplus() { meter.undo(1) } else { meter.give_back(1) }
    }
}

/// Serves one connection to its end. Errors of the connection are ignored, since the client causes them.
async fn serve<I>(io: I, ends: Option<(SocketAddr, SocketAddr)>, mut open: Open, connections: Arc<Connections>)
where
    I: Read + Write + Unpin + Send + 'static,
{
    let runtime = &connections.runtime;
    let activity = Arc::clone(&open.activity);
    // A connection that is one too many gets its answer, and ends.
    let idle = if activity.is_surplus() { connections.idle.min(SURPLUS_IDLE) } else { connections.idle };
    let mut timer: Box<dyn Timer + Send + Sync> = runtime.timer();
    let is_trusted = match (connections.service.guard(), ends) {
        (Some(guard), Some((local, remote))) => {
            let mut trusts = guard.trusts(local, remote);
            let until = runtime.now().saturating_add(idle);
            // Nothing was read from the connection, so no response is owed to the client.
            let found = poll_fn(|cx| match open.ending(cx) {
                Ending::Graceful | Ending::IfIdle | Ending::Now => Poll::Ready(None),
                Ending::None => match trusts.as_mut().poll(cx) {
                    Poll::Ready(is_trusted) => Poll::Ready(Some(is_trusted)),
                    Poll::Pending => timer.poll_until(cx, until).map(|()| None),
                },
            });
            let Some(is_trusted) = found.await else { return };
            is_trusted
        }
        _ => false,
    };
    let service = ConnectionService {
        service: connections.service.clone(),
        activity: Arc::clone(&activity),
        client: open.client.clone(),
        connection: Arc::default(),
        is_trusted,
    };
    let socket = Socket::new(io);
    let mut connection = pin!(connections.builder.serve_connection(socket.clone(), service).into_owned());
    let mut is_closing = false;
    poll_fn(|cx| {
        loop {
            match open.ending(cx) {
                Ending::None => {}
                Ending::Now => return Poll::Ready(()),
                Ending::IfIdle if activity.in_progress.load(Ordering::Acquire) == 0 => return Poll::Ready(()),
                Ending::Graceful | Ending::IfIdle if is_closing => {}
                Ending::Graceful | Ending::IfIdle => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if activity.ending() > Ending::None && !is_closing {
                continue;
            }
            if activity.looks_ahead() {
                match socket.poll_ahead(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(has_ended)) => {
                        if has_ended {
                            activity.end_input();
                        }
                        continue;
                    }
                    // The client has reset the connection.
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                }
            }
            let now = runtime.now();
            let since = activity.idle_since().unwrap_or(now);
            let until = since.saturating_add(idle);
            if until > now {
                if timer.poll_until(cx, until).is_pending() {
                    return Poll::Pending;
                }
            } else if core::mem::replace(&mut is_closing, true) {
                return Poll::Ready(());
            } else {
                // Over HTTP/2 this sends GOAWAY to the client. If this does not end the connection, the next round of the loop drops it,
                // unless a request has arrived meanwhile.
                connection.as_mut().graceful_shutdown();
            }
        }
    })
    .await;
}

/// The socket of one connection. hyper has one clone of it, and [`serve`] another, by which it reads while hyper does not.
struct Socket<I>(Arc<Mutex<Input<I>>>);

struct Input<I> {
    io: I,
    /// A byte that [`serve`] has read, until hyper reads it: the first one of the next request.
    ahead: Option<u8>,
    has_ended: bool,
}

impl<I> Clone for Socket<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I> Socket<I> {
    fn new(io: I) -> Self {
        Self(Arc::new(Mutex::new(Input { io, ahead: None, has_ended: false })))
    }

    /// The socket. Only the task of the connection locks it, so no task waits here.
    fn input(&self) -> MutexGuard<'_, Input<I>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I: Read + Unpin> Socket<I> {
    /// Reads until there is a byte ahead, or the input has ended, and returns whether it has ended. Pending if that is known already.
    fn poll_ahead(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut input = self.input();
        if input.ahead.is_some() || input.has_ended {
            return Poll::Pending;
        }
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut input.io).poll_read(cx, buffer.unfilled()))?;
        input.ahead = buffer.filled().first().copied();
        input.has_ended = input.ahead.is_none();
        Poll::Ready(Ok(input.has_ended))
    }
}

impl<I: Read + Unpin> Read for Socket<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut input = self.input();
        if buffer.remaining() > 0
            && let Some(byte) = input.ahead.take()
        {
            buffer.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        if input.has_ended {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut input.io).poll_read(cx, buffer)
    }
}

impl<I: Write + Unpin> Write for Socket<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input().io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.input().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input().io).poll_shutdown(cx)
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
enum Ending {
    /// It does not end yet.
    None,
    /// After its last response.
    Graceful,
    /// At once, unless a request is in progress; then after its last response.
    IfIdle,
    Now,
}

/// The requests that are being served on one connection.
struct Activity {
    runtime: Arc<dyn TimedRuntime>,
    served: AtomicUsize,
    /// The requests of which the head has arrived, and whose responses have not ended.
    in_progress: AtomicUsize,
    /// `true` if the last request was one of HTTP/1. Over HTTP/2, hyper reads all the time.
    is_http1: AtomicBool,
    /// `true` once the client has closed its side while a request was being served.
    has_ended: AtomicBool,
    /// An [`Ending`], as a number. It only grows.
    ending: AtomicU8,
    /// `true` if the connection is one too many, so that its requests are answered with 503.
    is_surplus: AtomicBool,
    /// The time of the last event, in microseconds: the start of the connection, the head of a request, or the end of a response.
    last: AtomicU64,
}

impl Activity {
    fn new(runtime: Arc<dyn TimedRuntime>) -> Self {
        let last = AtomicU64::new(runtime.now().as_micros());
        Self {
            runtime,
            served: AtomicUsize::new(0),
            in_progress: AtomicUsize::new(0),
            is_http1: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            ending: AtomicU8::new(Ending::None as u8),
            is_surplus: AtomicBool::new(false),
            last,
        }
    }

    fn end(&self, how: Ending) {
        self.ending.fetch_max(how as u8, Ordering::AcqRel);
    }

    fn ending(&self) -> Ending {
        match self.ending.load(Ordering::Acquire) {
            0 => Ending::None,
            1 => Ending::Graceful,
            2 => Ending::IfIdle,
            _ => Ending::Now,
        }
    }

    /// The time since which no request is in progress; `None` while one is, from its head on, or if the connection ends already.
    fn unused_since(&self) -> Option<Instant> {
        let is_unused = self.in_progress.load(Ordering::Acquire) == 0 && self.ending() < Ending::IfIdle;
        is_unused.then(|| Instant::from_micros(self.last.load(Ordering::Acquire)))
    }

    fn is_surplus(&self) -> bool {
        self.is_surplus.load(Ordering::Acquire)
    }

    /// Records an event at the current time.
    fn touch(&self) {
        self.last.store(self.runtime.now().as_micros(), Ordering::Release);
    }

    /// Returns `true` while hyper reads nothing because a request is being served.
    fn looks_ahead(&self) -> bool {
        self.is_http1.load(Ordering::Acquire) && self.served.load(Ordering::Acquire) > 0
    }

    fn end_input(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// The time since which no request is being served; `None` while one is.
    fn idle_since(&self) -> Option<Instant> {
        (self.served.load(Ordering::Acquire) == 0).then(|| Instant::from_micros(self.last.load(Ordering::Acquire)))
    }
}

/// A request in progress: its head has arrived, and its response has not ended.
struct InProgress {
    activity: Arc<Activity>,
    /// `true` once its body was read, so that it is being served.
    is_served: bool,
}

impl InProgress {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.in_progress.fetch_add(1, Ordering::AcqRel);
        Self { activity: Arc::clone(activity), is_served: false }
    }

    fn serve(&mut self) {
        if !core::mem::replace(&mut self.is_served, true) {
            self.activity.served.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns `true` if the client has closed its side while the request is being served.
    fn is_half_closed(&self) -> bool {
        self.is_served && self.activity.has_ended()
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if self.is_served {
            self.activity.touch();
            self.activity.served.fetch_sub(1, Ordering::AcqRel);
        }
        self.activity.in_progress.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The service of one connection, which counts the requests that are being served.
struct ConnectionService {
    service: HttpService,
    activity: Arc<Activity>,
    client: Option<Arc<Account>>,
    connection: Arc<Account>,
    is_trusted: bool,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<ServedBody>;
    type Error = Infallible;
    type Future = ServedFuture;

    fn call(&self, mut request: Request<Incoming>) -> ServedFuture {
        self.activity.touch();
        self.activity.is_http1.store(request.version() < Version::HTTP_2, Ordering::Release);
        if self.is_trusted {
            request.extensions_mut().insert(Trusted);
        }
        let inner = if self.activity.is_surplus() {
            self.activity.end(Ending::Graceful);
            let retry_after = self.service.budget().connections().retry_after(self.activity.runtime.now());
            HttpFuture::surplus(&request.into_parts().0, retry_after)
        } else {
            self.service.answer_on(request, self.client.as_ref(), Some(&self.connection))
        };
        ServedFuture { inner, request: Some(InProgress::begin(&self.activity)), was_told: false }
    }
}

pin_project! {
    // The response to one request on a connection.
    struct ServedFuture {
        #[pin]
        inner: HttpFuture<Incoming>,
        // The body of the response takes it.
        request: Option<InProgress>,
        // `true` once the service knows that the client has closed its side.
        was_told: bool,
    }
}

impl Future for ServedFuture {
    type Output = Result<Response<ServedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut polled = this.inner.as_mut().poll(cx);
        let Some(request) = this.request else { return Poll::Pending };
        if !this.inner.is_reading() {
            request.serve();
        }
        // The end of input may have been seen before this request began.
        if polled.is_pending() && !*this.was_told && request.is_half_closed() {
            *this.was_told = true;
            this.inner.half_close();
            polled = this.inner.as_mut().poll(cx);
        }
        let response = ready!(polled)?;
        let (request, was_told) = (this.request.take(), *this.was_told);
        Poll::Ready(Ok(response.map(|inner| ServedBody { inner, request, was_told })))
    }
}

/// The body of a response. Until it is dropped, its request is being served.
struct ServedBody {
    inner: HttpBody,
    request: Option<InProgress>,
    was_told: bool,
}

impl Body for ServedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.was_told && self.request.as_ref().is_some_and(InProgress::is_half_closed) {
            self.was_told = true;
            self.inner.half_close();
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Tasks of a runtime, for the streams of HTTP/2.
#[derive(Clone)]
struct Tasks(Arc<dyn TimedRuntime>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn(Box::pin(task));
    }
}
