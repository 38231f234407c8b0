//! A common interface to the adapters, so that programs, test scenarios and benchmarks are written once for all runtimes.

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use adapter_io::{Error, Exit, HttpServerAddress};
use endpoint::{BoxFuture, Client, Peer, Runtime, Service, TimedRuntime};
use http_service::{ConnectionLimits, HttpListener, HttpService};
use protocol_core::drive::FrameIo;
use protocol_core::{CloseReason, Config};
use tesseron::claims::ClaimCode;
use tesseron::net::{Instance, Sockets, TesseronListener, TesseronOptions, TesseronTransport};

/// A boxed transport of any kind.
pub type Transport = Box<dyn FrameIo<Error = io::Error> + Send>;

/// The functions of an adapter, with the same names for every runtime.
pub trait Adapter: Clone + Send + Sync + 'static {
    /// The name of the adapter's crate.
    const NAME: &'static str;

    /// Runs the future that `program` returns, with `threads` threads for its tasks; `None` for the runtime's default. Tasks that still run
    /// when the future is ready are dropped, though not always on smol.
    fn run<T, F: Future<Output = T>>(threads: Option<usize>, program: impl FnOnce(Self) -> F) -> T;

    /// The type of the sockets that Tesseron uses, which is also a runtime with timers.
    type Sockets: Sockets + TimedRuntime;

    /// The sockets of the adapter, with a clock that starts now.
    fn sockets(&self) -> Self::Sockets;

    /// The runtime that tasks start on.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// The same runtime, with timers.
    fn timed_runtime(&self) -> Arc<dyn TimedRuntime>;

    /// Waits for `span`.
    ///
    /// # Cancel safety
    /// Cancel safe: a new call waits for the whole span.
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()>;

    /// Calls the adapter's `serve`.
    fn serve(&self, service: Arc<Service>, transport: Transport) -> Link;

    /// Calls the adapter's `start_as`.
    fn serve_as(&self, service: Arc<Service>, config: Config, transport: Transport) -> Link;

    /// Calls the adapter's `connect`.
    fn connect(&self, client: Arc<dyn Client>, config: Config, transport: Transport) -> Link;

    /// Calls the adapter's `http_connect`.
    ///
    /// # Errors
    /// As the adapter's function.
    fn http_connect(&self, client: Arc<dyn Client>, config: Config, server: HttpServerAddress) -> Result<Link, Error>;

    /// Calls the adapter's `stdio`.
    fn stdio(&self) -> Transport;

    /// Calls the adapter's `stdout_unread`.
    ///
    /// # Cancel safety
    /// Cancel safe if the adapter's function is.
    fn stdout_unread(&self) -> BoxFuture<'static, ()>;

    /// Calls the adapter's `child`, with five seconds for the process to exit.
    ///
    /// # Errors
    /// As the adapter's function.
    fn child(&self, command: Command) -> Result<(Transport, Exit), Error> {
        self.child_with_grace(command, Duration::from_secs(5))
    }

    /// Calls the adapter's `child`, with `grace` as the time for the process to exit.
    ///
    /// # Errors
    /// As the adapter's function.
    fn child_with_grace(&self, command: Command, grace: Duration) -> Result<(Transport, Exit), Error>;

    /// Calls the adapter's `duplex`.
    fn duplex(&self, bytes: usize) -> (Transport, Transport);

    /// Returns one end of a `duplex` as a transport, and a blocking reader and writer for the other end. Dropping the writer ends the input
    /// of the transport.
    fn duplex_with_bytes(&self, bytes: usize) -> (Transport, Box<dyn Read + Send>, Box<dyn Write + Send>);

    /// Connects to an address.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that is not ready is closed.
    fn reach(&self, place: Place) -> BoxFuture<'static, Result<Transport, Error>>;

    /// Listens on an address.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, no listener remains.
    fn listen(&self, place: Place) -> BoxFuture<'static, Result<Listener, Error>>;

    /// Calls the adapter's `http_listen_with`.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, nothing listens.
    fn http_listen(
        &self,
        address: String,
        service: HttpService,
        limits: ConnectionLimits,
    ) -> BoxFuture<'static, Result<HttpListener, Error>>;

    /// Calls the adapter's `tesseron_listen`.
    ///
    /// # Cancel safety
    /// Cancel safe if the adapter's function is.
    fn tesseron_listen(&self, options: TesseronOptions) -> BoxFuture<'static, Result<TesseronListener, tesseron::TesseronError>>;

    /// Calls the adapter's `tesseron_dial`.
    ///
    /// # Cancel safety
    /// Cancel safe if the adapter's function is.
    fn tesseron_dial(
        &self,
        instance: &Instance,
        code: Option<ClaimCode>,
    ) -> BoxFuture<'static, Result<TesseronTransport, tesseron::TesseronError>>;
}

/// An address to listen on, or to connect to.
#[derive(Clone, Debug)]
pub enum Place {
    /// A TCP address.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A listener of either kind.
pub struct Listener {
    /// The address of the listener, in the form that [`Place`] takes.
    pub address: String,
    /// Accepts the next connection.
    pub accept: Box<dyn Fn() -> BoxFuture<'static, Result<Accepted, Error>> + Send + Sync>,
}

/// A connection that was accepted.
pub struct Accepted {
    /// The connection.
    pub transport: Transport,
    /// The addresses of its ends, first ours; `None` on a Unix socket.
    pub ends: Option<[SocketAddr; 2]>,
}

/// A connection.
pub struct Link {
    /// The handle of the other end.
    pub peer: Peer,
    /// Resolves at the end of the connection. Dropping it ends the connection.
    pub end: BoxFuture<'static, Result<CloseReason, Error>>,
}

/// Converts the types of an adapter into [`Transport`], [`Link`] and [`Listener`].
#[macro_export]
macro_rules! boxed {
    (link $connection:expr) => {{
        let connection = $connection;
        $crate::adapter::Link { peer: connection.peer(), end: Box::pin(connection) }
    }};
    (pair $pair:expr) => {{
        let (one, other) = $pair;
        (Box::new(one) as $crate::adapter::Transport, Box::new(other) as $crate::adapter::Transport)
    }};
    (listener $address:expr, $listener:expr) => {
        $crate::boxed!(accepting $address, $listener, |listener| listener.accept().await.map(|accepted| (accepted, None)))
    };
    (tcp_listener $address:expr, $listener:expr) => {
        $crate::boxed!(accepting $address, $listener, |listener| {
            listener.accept_with_ends().await.map(|(accepted, ends)| (accepted, Some(ends)))
        })
    };
    (accepting $address:expr, $listener:expr, |$shared:ident| $accepted:expr) => {{
        let address = $address.to_string();
        let listener = std::sync::Arc::new($listener);
        let accept = move || -> endpoint::BoxFuture<'static, Result<$crate::adapter::Accepted, _>> {
            let $shared = std::sync::Arc::clone(&listener);
            Box::pin(async move {
                let (transport, ends) = $accepted?;
                Ok($crate::adapter::Accepted { transport: Box::new(transport), ends })
            })
        };
        $crate::adapter::Listener { address, accept: Box::new(accept) }
    }};
}

/// Waits for the first of two futures; if both are ready, returns the value of `one`.
///
/// # Cancel safety
/// Cancel safe if both futures are; dropping it drops both.
pub async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(value),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await
}

/// Runs `future` as a task and waits for it. A panic of the task is resumed here.
///
/// # Cancel safety
/// Not cancel safe: if the future is dropped, the task goes on, and its value is lost.
pub async fn task<T: Send + 'static>(runtime: &dyn Runtime, future: impl Future<Output = T> + Send + 'static) -> T {
    start(runtime, future).await
}

/// Starts `future` as a task, and returns a future of its value.
pub fn start<T: Send + 'static>(runtime: &dyn Runtime, future: impl Future<Output = T> + Send + 'static) -> Started<T> {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
    let filled = Arc::clone(&slot);
    let mut future = Box::pin(future);
    runtime.spawn(Box::pin(async move {
        let value = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await;
        fill(&filled, value);
    }));
    Started(slot)
}

/// Starts `job` as a blocking task, and returns a future of its value.
pub fn start_blocking<T: Send + 'static>(runtime: &dyn Runtime, job: impl FnOnce() -> T + Send + 'static) -> Started<T> {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
    let filled = Arc::clone(&slot);
    runtime.spawn_blocking(Box::new(move || fill(&filled, catch_unwind(AssertUnwindSafe(job)))));
    Started(slot)
}

/// Starts `job` on a new thread outside the runtime, and returns a future of its value. The thread does not delay the end of the program. A
/// blocking task of a runtime would delay it, for example while the task waits for the keyboard.
pub fn start_thread<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Started<T> {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
    let filled = Arc::clone(&slot);
    thread::spawn(move || fill(&filled, catch_unwind(AssertUnwindSafe(job))));
    Started(slot)
}

/// Yields to other tasks once.
///
/// # Cancel safety
/// Cancel safe: nothing is lost.
pub async fn turn() {
    let mut is_first = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut is_first) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn fill<T>(slot: &Mutex<Slot<T>>, value: std::thread::Result<T>) {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    slot.value = Some(value);
    let waker = slot.waker.take();
    drop(slot);
    waker.into_iter().for_each(Waker::wake);
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

/// A future of the value of a running task or job. A panic of the task or job is resumed where this future is polled. If the runtime drops
/// the task, this future is never ready.
///
/// # Cancel safety
/// Not cancel safe: if it is dropped, the task continues and its value is lost.
pub struct Started<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    value: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}

impl<T> Future for Started<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.value.take() {
            Some(Ok(value)) => Poll::Ready(value),
            Some(Err(panic)) => {
                drop(slot);
                resume_unwind(panic)
            }
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: the program `call` had threads whose waiter was never woken if they panicked, for example while a person was asked.
    #[test]
    fn a_panic_of_a_thread_wakes_its_waiter() {
        let waited = catch_unwind(AssertUnwindSafe(|| block_on(start_thread(|| -> () { panic!("at work") }))));
        assert_eq!(waited.unwrap_err().downcast_ref(), Some(&"at work"));
    }
}
