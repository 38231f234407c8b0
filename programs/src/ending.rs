//! The end of `tools`: after the first signal running calls may finish; a second signal ends the program at once.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use endpoint::Peer;
use http_service::HttpListener;
use protocol_core::Close;

use super::interrupts::Interrupts;
use super::status;
use super::watch::HANDLER_GRACE;
use crate::adapter::first;

/// The clients that are served now, and the grace of their calls at the end. A clone is another handle to the same state.
#[derive(Clone)]
pub struct Ending {
    grace: Duration,
    clients: Arc<Mutex<Clients>>,
}

#[derive(Default)]
struct Clients {
    next_key: u64,
    served: BTreeMap<u64, Client>,
    /// `true` once the end has begun; new clients are closed at once.
    begun: bool,
    /// The waker of the task that waits until no client is served.
    waker: Option<Waker>,
}

/// A client that is served, or a listener with all of its clients.
#[derive(Clone)]
pub(crate) enum Client {
    /// The handle of the client.
    Peer(Peer),
    /// A listener for HTTP.
    Http(Arc<HttpListener>),
}

impl From<Peer> for Client {
    fn from(peer: Peer) -> Self {
        Self::Peer(peer)
    }
}

impl From<Arc<HttpListener>> for Client {
    fn from(listener: Arc<HttpListener>) -> Self {
        Self::Http(listener)
    }
}

impl Client {
    fn close(&self, grace: Duration) {
        match self {
            Self::Peer(peer) => peer.close(Close::Graceful { grace }),
            Self::Http(listener) => listener.close(grace),
        }
    }

    /// The number of running calls; 0 for a listener, which does not count them.
    fn running(&self) -> usize {
        match self {
            Self::Peer(peer) => peer.stats().inbound_calls,
            Self::Http(_) => 0,
        }
    }
}

impl Ending {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, clients: Arc::default() }
    }

    /// Registers a client or a listener, which [`Ending::run`] will close, and returns a future that awaits `connection`. The registration
    /// ends with that future. Run the future as a task, so that it continues when `listen` of [`Ending::run`] is dropped.
    ///
    /// # Cancel safety
    /// Not cancel safe: the connection is dropped, and [`Ending::run`] no longer waits for it.
    pub(crate) fn serve<C: Future, P: Into<Client>>(
        &self,
        client: P,
        connection: C,
    ) -> impl Future<Output = C::Output> + use<C, P> {
        let client = client.into();
        let mut clients = self.lock();
        let key = clients.next_key;
        clients.next_key += 1;
        let refused = clients.begun.then(|| client.clone());
        clients.served.insert(key, client);
        drop(clients);
        if let Some(client) = refused {
            client.close(Duration::ZERO);
        }
        let served = Served { ending: self.clone(), key };
        async move {
            let _served = served;
            connection.await
        }
    }

    /// Runs `listen`, which accepts clients, and returns its status if it ends. When the first future of `signals` is ready, no further
    /// clients are accepted, and running calls may finish within the grace. After the grace the remaining calls are cancelled, and their
    /// handlers have a short time to clean up. When a second future of `signals` is ready, this returns at once. `sleep` waits for a span.
    ///
    /// # Cancel safety
    /// Not cancel safe: `listen` is dropped, and the sessions of clients are not closed.
    pub async fn run<T, S>(
        &self,
        listen: impl Future<Output = u8>,
        signals: impl FnMut() -> T,
        sleep: impl FnOnce(Duration) -> S,
    ) -> u8
    where
        T: Future<Output = ()>,
        S: Future<Output = ()>,
    {
        let mut signals = Interrupts::new(signals);
        if let Some(status) = signals.or(listen).await {
            return status;
        }
        self.begin();
        let limit = sleep(self.grace.saturating_add(HANDLER_GRACE));
        signals.or(first(poll_fn(|task| self.poll_no_clients(task)), limit)).await;
        status::OK
    }

    fn begin(&self) {
        let mut clients = self.lock();
        clients.begun = true;
        let served: Vec<Client> = clients.served.values().cloned().collect();
        drop(clients);
        let mut running = 0;
        for client in served {
            running += client.running();
            client.close(self.grace);
        }
        if running > 0 {
            let calls = if running == 1 { "call" } else { "calls" };
            status::say(format_args!(
                "tools: {running} {calls} may finish within {:?}; a second signal ends it at once",
                self.grace
            ));
        }
    }

    fn poll_no_clients(&self, task: &mut Context<'_>) -> Poll<()> {
        let mut clients = self.lock();
        if clients.served.is_empty() {
            return Poll::Ready(());
        }
        clients.waker = Some(task.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of a client that is served. Dropping it ends the registration.
struct Served {
    ending: Ending,
    key: u64,
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut clients = self.ending.lock();
        let client = clients.served.remove(&self.key);
        let waker = if clients.served.is_empty() { clients.waker.take() } else { None };
        drop(clients);
        drop(client);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
