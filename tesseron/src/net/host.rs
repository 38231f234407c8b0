//! The state that an app's listener, its accepting task and its channels share: the claim, the manifest, and accepted channels.

use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::boxed::Box;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use bytes::Bytes;

#[cfg(unix)]
use crate::claims::UnixChannel;
use crate::claims::{Agent, Arrival, ClaimCode, Host, HostChannel, HostGate, HostStep, Peer, Place};
#[cfg(feature = "websocket")]
use crate::claims::{Offer, UpgradeGate, UpgradeStep};
use crate::net::TesseronError;
use crate::net::channel::ChannelGuard;
use crate::net::instance::Manifest;
use crate::net::{Address, Sockets, TesseronTransport};
use adapter_io::Error as TransportError;
use engine::{Runtime, wake_all};
use protocol_core::time::Instant;

/// Random bytes of the runtime. After an error ([`Random::check`]) they are not random, and must not be used.
pub(super) struct Random<'a> {
    runtime: &'a dyn Sources,
    error: Option<io::Error>,
}

impl<'a> Random<'a> {
    pub(super) fn of(runtime: &'a dyn Sources) -> Self {
        Self { runtime, error: None }
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        if self.error.is_none() {
            self.error = self.runtime.fill_random(bytes).err();
        }
    }

    /// Returns an error if not all bytes were random.
    pub(super) fn check(self) -> Result<(), TesseronError> {
        self.error.map_or(Ok(()), |error| Err(TesseronError::Random(error)))
    }
}

/// The clocks that a host reads, and its random bytes.
pub(super) trait Sources: Send + Sync {
    fn now(&self) -> Instant;
    fn epoch_ms(&self) -> u64;
    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()>;
}

impl<S: Sockets> Sources for S {
    fn now(&self) -> Instant {
        Runtime::now(self)
    }

    fn epoch_ms(&self) -> u64 {
        Sockets::epoch_ms(self)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        Runtime::fill_random(self, bytes)
    }
}

/// The host of an app, shared by its listener, its accepting task and its channels.
pub(super) struct Shared {
    sources: Box<dyn Sources>,
    address: Address,
    state: Mutex<State>,
}

/// The locked state. No transport may be dropped while the lock is held, since dropping its [`ChannelGuard`] takes the lock.
struct State {
    host: Host,
    manifest: Manifest,
    /// The file of the Unix socket. Dropping this removes the file.
    socket: Option<Box<dyn Send>>,
    /// `true` if the claim has changed since the manifest was last written.
    unpublished: bool,
    /// Channels that [`Shared::poll_accept`] has not yet returned.
    accepted: VecDeque<TesseronTransport>,
    /// An error that [`Shared::poll_accept`] has not yet returned.
    error_to_report: Option<TesseronError>,
    /// The last code that [`Shared::poll_code`] has returned.
    shown: Option<ClaimCode>,
    /// Connections that are not accepted as channels yet.
    diallers: BTreeMap<Place, Dialling>,
    /// `true` once no more connections are accepted.
    over: bool,
    /// The waker of the accepting task.
    task: Option<Waker>,
    /// The wakers of tasks that wait for a channel, or for a code.
    waiting: Vec<Waker>,
}

/// A connection that is not accepted as a channel yet.
#[derive(Default)]
struct Dialling {
    /// `true` once the connection must be closed to make room for another one.
    is_evicted: bool,
    /// The waker of the task of the connection.
    task: Option<Waker>,
}

impl State {
    /// Writes the manifest if it is out of date. An error is stored for the listener to return, and the next change of the state tries
    /// again.
    fn publish(&mut self) {
        self.unpublished |= self.host.poll_claim().is_some();
        if self.unpublished && !self.over {
            match self.manifest.publish(self.host.claim()) {
                Ok(()) => self.unpublished = false,
                Err(error) => self.error_to_report = Some(error),
            }
        }
    }

    /// Stops accepting connections, and removes the manifest and the socket file.
    fn end(&mut self) {
        self.over = true;
        self.manifest.remove();
        self.socket = None;
    }
}

/// The maximum length of [`State::waiting`], which may contain wakers of tasks that no longer wait.
const MAX_WAITING: usize = 1024;

/// Stores `waker`, which the next change of the state wakes. If [`MAX_WAITING`] wakers are stored already, wakes and removes them. The lock
/// is released before code of a waker runs.
fn wait(mut state: MutexGuard<'_, State>, waker: Waker) {
    let too_many = if state.waiting.len() < MAX_WAITING { Vec::new() } else { core::mem::take(&mut state.waiting) };
    let is_stored = state.waiting.iter().any(|waiting| waiting.will_wake(&waker));
    let spare = if is_stored {
        Some(waker)
    } else {
        state.waiting.push(waker);
        None
    };
    drop(state);
    drop(spare);
    wake_all(too_many);
}

/// The part of the state that the accepting task uses.
pub(super) struct AcceptState {
    due: Option<Instant>,
    has_error: bool,
}

impl AcceptState {
    /// The time at which the claim must be refreshed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns `true` while there is an error that the listener has not returned. During that time no connection is accepted.
    pub(super) fn has_error(&self) -> bool {
        self.has_error
    }
}

impl Shared {
    /// Creates the state, and writes the first manifest. Returns an error if the manifest cannot be written.
    pub(super) fn new(
        sources: Box<dyn Sources>,
        host: Host,
        manifest: Manifest,
        socket: Option<Box<dyn Send>>,
    ) -> Result<Arc<Self>, TesseronError> {
        let address = manifest.address().clone();
        let mut state = State {
            host,
            manifest,
            socket,
            unpublished: true,
            accepted: VecDeque::new(),
            error_to_report: None,
            shown: None,
            diallers: BTreeMap::new(),
            over: false,
            task: None,
            waiting: Vec::new(),
        };
        state.publish();
        state.error_to_report.take().map_or_else(|| Ok(Arc::new(Self { sources, address, state: Mutex::new(state) })), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Changes the state, updates the manifest and wakes the waiting tasks.
    fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = self.sources.now();
        let mut state = self.lock();
        let value = change(&mut state, now);
        state.publish();
        let (task, waiting) = (state.task.take(), core::mem::take(&mut state.waiting));
        drop(state);
        wake_all(task.into_iter().chain(waiting));
        value
    }

    /// Refreshes the claim.
    pub(super) fn refresh(&self) {
        let epoch_ms = self.sources.epoch_ms();
        self.change(|state, now| state.host.handle_timeout(now, epoch_ms));
    }

    /// Passes an upgrade request to its gate.
    #[cfg(feature = "websocket")]
    pub(super) fn handle_upgrade(&self, gate: &mut UpgradeGate, offer: Offer) -> UpgradeStep {
        self.change(|state, now| gate.handle_upgrade(offer, &mut state.host, now))
    }

    /// Handles the deadline of an upgrade gate.
    #[cfg(feature = "websocket")]
    pub(super) fn handle_upgrade_timeout(&self, gate: &mut UpgradeGate) -> UpgradeStep {
        self.change(|state, now| gate.handle_timeout(&mut state.host, now))
    }

    /// Passes a frame to a gate that is not open yet. The frame may bind the channel.
    #[cfg(unix)]
    pub(super) fn handle_bind(&self, gate: &mut HostGate, frame: Bytes) -> HostStep {
        self.change(|state, now| gate.handle_frame(frame, &mut state.host, now))
    }

    /// Handles a deadline of a gate that is not open yet.
    #[cfg(unix)]
    pub(super) fn handle_bind_timeout(&self, gate: &mut HostGate) -> HostStep {
        self.change(|state, now| gate.handle_timeout(&mut state.host, now))
    }

    /// Stores the agent of a channel.
    pub(super) fn name_agent(&self, channel: HostChannel, agent: Agent) {
        self.change(|state, _| state.host.handle_agent(channel, agent));
    }

    pub(super) fn claim_code(&self) -> Option<ClaimCode> {
        self.lock().host.claim().map(|claim| claim.code.clone())
    }

    /// The part of the state for the accepting task; `None` once the host is closed. The next change of the state wakes the task.
    pub(super) fn accept_state(&self, cx: &Context<'_>) -> Option<AcceptState> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let before = state.task.replace(waker);
        let accept_state =
            (!state.over).then(|| AcceptState { due: state.host.poll_timeout(), has_error: state.error_to_report.is_some() });
        drop(state);
        drop(before);
        accept_state
    }

    /// Handles an error of accepting a connection.
    pub(super) fn on_accept_failed(&self, error: io::Error) {
        let error = TesseronError::from(TransportError::accepting_on(&self.address)(error));
        self.change(|state, _| state.error_to_report = Some(error));
    }

    /// Adds a connection to the backlog, and marks the connection that it evicts from there, if any. `None` if the new one is refused.
    pub(super) fn arrive(self: &Arc<Self>, peer: Peer) -> Option<Dialler> {
        let mut state = self.lock();
        let Arrival { place, evicted, .. } = state.host.accept(peer).ok()?;
        state.diallers.insert(place, Dialling::default());
        let evicted = evicted.and_then(|place| state.diallers.get_mut(&place));
        let task = evicted.and_then(|evicted| {
            evicted.is_evicted = true;
            evicted.task.take()
        });
        drop(state);
        wake_all(task);
        Some(Dialler { shared: Arc::clone(self), place })
    }

    /// Queues a channel for [`Self::poll_accept`], or drops it if the host is closed.
    pub(super) fn queue_channel(&self, transport: TesseronTransport) {
        let rejected = self.change(|state, _| {
            if state.over {
                return Some(transport);
            }
            state.accepted.push_back(transport);
            None
        });
        drop(rejected);
    }

    /// Frees the app after its channel has ended.
    fn free_app(&self, channel: HostChannel) {
        let epoch_ms = self.sources.epoch_ms();
        self.change(|state, now| {
            let mut random = Random::of(&*self.sources);
            state.host.handle_closed(channel, now, epoch_ms, &mut |bytes| random.fill(bytes));
            if let Err(error) = random.check() {
                // A code that was not made from random bytes must not be shown.
                state.error_to_report = Some(error);
                state.end();
            }
        });
    }

    /// The next accepted channel.
    pub(super) fn poll_accept(&self, cx: &Context<'_>) -> Poll<Result<TesseronTransport, TesseronError>> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if let Some(error) = state.error_to_report.take() {
            // The accepting task has waited for the error to be returned.
            let task = state.task.take();
            drop(state);
            task.into_iter().for_each(Waker::wake);
            return Poll::Ready(Err(error));
        }
        if let Some(transport) = state.accepted.pop_front() {
            return Poll::Ready(Ok(transport));
        }
        if state.over {
            return Poll::Ready(Err(TransportError::accepting_on(&self.address)(io::ErrorKind::NotConnected.into()).into()));
        }
        wait(state, waker);
        Poll::Pending
    }

    /// The next code to show.
    pub(super) fn poll_code(&self, cx: &Context<'_>) -> Poll<Option<ClaimCode>> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let code = state.host.claim().filter(|_| !state.over).map(|claim| claim.code.clone());
        let Some(code) = code else { return Poll::Ready(None) };
        if state.shown.as_ref().is_some_and(|shown| shown.matches(&code)) {
            wait(state, waker);
            return Poll::Pending;
        }
        state.shown = Some(code.clone());
        Poll::Ready(Some(code))
    }

    /// Closes the host: no more connections are accepted, and the manifest is removed.
    pub(super) fn close(&self) {
        let never_accepted = self.change(|state, _| {
            state.end();
            core::mem::take(&mut state.accepted)
        });
        drop(never_accepted);
    }
}

/// A connection in the backlog. Dropping this removes the connection from the backlog.
pub(super) struct Dialler {
    shared: Arc<Shared>,
    place: Place,
}

impl Dialler {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The gate of a TCP connection, which expects the upgrade to a WebSocket.
    #[cfg(feature = "websocket")]
    pub(super) fn accept_web_socket(&self) -> UpgradeGate {
        let now = self.shared.sources.now();
        self.shared.lock().host.accept_web_socket(self.place, now)
    }

    /// Accepts a connection on a Unix socket.
    #[cfg(unix)]
    pub(super) fn accept_unix(&self) -> UnixChannel {
        self.shared.change(|state, now| state.host.accept_unix(self.place, now))
    }

    /// Waits for `future`; returns `None` if the connection has to make room for another one before `future` is ready.
    pub(super) async fn unless_evicted<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| if self.is_evicted(cx) { Poll::Ready(None) } else { future.as_mut().poll(cx).map(Some) }).await
    }

    fn is_evicted(&self, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.shared.lock();
        let Some(dialling) = state.diallers.get_mut(&self.place) else { return true };
        let before = dialling.task.replace(waker);
        let is_evicted = dialling.is_evicted;
        drop(state);
        drop(before);
        is_evicted
    }
}

impl Drop for Dialler {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.host.leave(self.place);
        let gone = state.diallers.remove(&self.place);
        drop(state);
        drop(gone);
    }
}

/// The guard of a channel of this host.
struct Guard {
    shared: Arc<Shared>,
    channel: HostChannel,
}

/// Guards `channel`: see [`ChannelGuard`].
pub(super) fn guard(shared: &Arc<Shared>, channel: HostChannel) -> Box<dyn ChannelGuard> {
    Box::new(Guard { shared: Arc::clone(shared), channel })
}

impl ChannelGuard for Guard {
    fn channel(&self) -> HostChannel {
        self.channel
    }

    fn pass(&self, gate: &mut HostGate, frame: Bytes) -> HostStep {
        let now = self.shared.sources.now();
        gate.handle_frame(frame, &mut self.shared.lock().host, now)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.free_app(self.channel);
    }
}
