//! What an app's listener, its task and its channels share: the state machine of its claim, and the files that show it.

use core::task::{Context, Poll, Waker};
use std::boxed::Box;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use bytes::Bytes;

#[cfg(feature = "websocket")]
use crate::claims::Offer;
#[cfg(unix)]
use crate::claims::UnixChannel;
use crate::claims::{Agent, BindRefused, ClaimCode, Host, HostChannel, HostGate, HostStep};
use crate::net::Error;
use crate::net::instance::Manifest;
use crate::net::{Address, Sockets, TesseronTransport};
use adapter_io::Error as TransportError;
use engine::{Runtime, wake_all};
use protocol_core::time::Instant;

/// Diallers that are heard at once before they are let in. One more is turned away.
const DIALLERS: usize = 64;

/// Random bytes of the system. After a failure they are not random, and nothing that was made of them may be used.
#[derive(Default)]
pub(super) struct Random(Option<getrandom::Error>);

impl Random {
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        if self.0.is_none() {
            self.0 = getrandom::fill(bytes).err();
        }
    }

    /// Whether all of it was random.
    pub(super) fn check(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), |error| Err(Error::Random(error.into())))
    }
}

/// What the time is.
pub(super) trait Clocks: Send + Sync {
    fn now(&self) -> Instant;
    fn epoch_ms(&self) -> u64;
}

impl<S: Sockets> Clocks for S {
    fn now(&self) -> Instant {
        Runtime::now(self)
    }

    fn epoch_ms(&self) -> u64 {
        Sockets::epoch_ms(self)
    }
}

/// The host of an app, shared.
pub(super) struct Shared {
    clocks: Box<dyn Clocks>,
    address: Address,
    state: Mutex<State>,
}

/// Everything under the lock. No transport is dropped under it: its seat takes the lock.
struct State {
    host: Host,
    manifest: Manifest,
    /// The file of the Unix socket: dropping it removes it.
    socket: Option<Box<dyn Send>>,
    /// The claim has changed since the manifest was last written.
    unpublished: bool,
    /// Let in and not yet taken.
    accepted: VecDeque<TesseronTransport>,
    /// What has gone wrong and was not yet told.
    trouble: Option<Error>,
    /// The last code that was given to be shown.
    shown: Option<ClaimCode>,
    /// Diallers that are not yet let in.
    diallers: usize,
    /// Nobody is let in any longer.
    over: bool,
    /// The task that hears diallers.
    task: Option<Waker>,
    /// Who waits for a channel, or for a code.
    waiting: Vec<Waker>,
}

impl State {
    /// Writes the manifest if it is out of date. What goes wrong is told by the listener, and tried again with the next change.
    fn publish(&mut self) {
        self.unpublished |= self.host.poll_claim().is_some();
        if self.unpublished && !self.over {
            match self.manifest.publish(self.host.claim()) {
                Ok(()) => self.unpublished = false,
                Err(error) => self.trouble = Some(error),
            }
        }
    }

    /// Lets nobody in any longer, and takes away what shows the app.
    fn end(&mut self) {
        self.over = true;
        self.manifest.remove();
        self.socket = None;
    }
}

/// Wakers that are kept, at most: those of waits that were given up are among them.
const WAITING: usize = 1024;

/// Has `waker` woken with the next change. No code of a waker runs under the lock.
fn wait(mut state: MutexGuard<'_, State>, waker: Waker) {
    let too_many = if state.waiting.len() < WAITING { Vec::new() } else { core::mem::take(&mut state.waiting) };
    let known = state.waiting.iter().any(|waiting| waiting.will_wake(&waker));
    let spare = if known {
        Some(waker)
    } else {
        state.waiting.push(waker);
        None
    };
    drop(state);
    drop(spare);
    wake_all(too_many);
}

/// What the task that hears diallers has to look at.
pub(super) struct Attention {
    due: Option<Instant>,
    troubled: bool,
}

impl Attention {
    /// When the claim is to be refreshed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether nobody is heard until what has gone wrong was told.
    pub(super) fn is_troubled(&self) -> bool {
        self.troubled
    }
}

impl Shared {
    /// Writes the first manifest.
    pub(super) fn new(
        clocks: Box<dyn Clocks>,
        host: Host,
        manifest: Manifest,
        socket: Option<Box<dyn Send>>,
    ) -> Result<Arc<Self>, Error> {
        let address = manifest.address().clone();
        let mut state = State {
            host,
            manifest,
            socket,
            unpublished: true,
            accepted: VecDeque::new(),
            trouble: None,
            shown: None,
            diallers: 0,
            over: false,
            task: None,
            waiting: Vec::new(),
        };
        state.publish();
        state.trouble.take().map_or_else(|| Ok(Arc::new(Self { clocks, address, state: Mutex::new(state) })), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Changes something, shows it and wakes whoever may wait for it.
    fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = self.clocks.now();
        let mut state = self.lock();
        let value = change(&mut state, now);
        state.publish();
        let (task, waiting) = (state.task.take(), core::mem::take(&mut state.waiting));
        drop(state);
        wake_all(task.into_iter().chain(waiting));
        value
    }

    /// The claim is to be refreshed.
    pub(super) fn refresh(&self) {
        let epoch_ms = self.clocks.epoch_ms();
        self.change(|state, now| state.host.handle_timeout(now, epoch_ms));
    }

    /// Judges an upgrade; whoever is let in has the place.
    #[cfg(feature = "websocket")]
    pub(super) fn answer_upgrade(self: &Arc<Self>, offer: &Offer) -> Result<Seat, BindRefused> {
        let channel = self.change(|state, now| state.host.answer_upgrade(offer, now))?;
        Ok(Seat::new(self, channel))
    }

    /// Takes a new connection on a Unix socket.
    #[cfg(unix)]
    pub(super) fn accept_unix(&self) -> Result<UnixChannel, BindRefused> {
        self.change(|state, now| state.host.accept_unix(now))
    }

    /// Has a gate that is not open yet look at a frame: it may bind.
    #[cfg(unix)]
    pub(super) fn knock(&self, gate: &mut HostGate, frame: Bytes) -> HostStep {
        self.change(|state, now| gate.handle_frame(frame, &mut state.host, now))
    }

    /// Says who is at the other end of a channel.
    pub(super) fn name_agent(&self, channel: HostChannel, agent: Agent) {
        self.change(|state, _| state.host.handle_agent(channel, agent));
    }

    pub(super) fn claim_code(&self) -> Option<ClaimCode> {
        self.lock().host.claim().map(|claim| claim.code.clone())
    }

    /// What the task has to look at; nothing once it is over. Wakes the task when that changes.
    pub(super) fn attention(&self, cx: &Context<'_>) -> Option<Attention> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let before = state.task.replace(waker);
        let attention = (!state.over).then(|| Attention { due: state.host.poll_timeout(), troubled: state.trouble.is_some() });
        drop(state);
        drop(before);
        attention
    }

    /// A connection could not be accepted.
    pub(super) fn on_accept_failed(&self, error: io::Error) {
        let error = Error::from(TransportError::accepting_on(&self.address)(error));
        self.change(|state, _| state.trouble = Some(error));
    }

    /// Makes room for one more dialler, if there may be one.
    pub(super) fn hear(self: &Arc<Self>) -> Option<Dialler> {
        let mut state = self.lock();
        if state.diallers >= DIALLERS {
            return None;
        }
        state.diallers = state.diallers.saturating_add(1);
        Some(Dialler(Arc::clone(self)))
    }

    /// Has somebody take this channel.
    pub(super) fn let_in(&self, transport: TesseronTransport) {
        let turned_away = self.change(|state, _| {
            if state.over {
                return Some(transport);
            }
            state.accepted.push_back(transport);
            None
        });
        drop(turned_away);
    }

    fn leave(&self, channel: HostChannel) {
        let epoch_ms = self.clocks.epoch_ms();
        self.change(|state, now| {
            let mut random = Random::default();
            state.host.handle_closed(channel, now, epoch_ms, &mut |bytes| random.fill(bytes));
            if let Err(error) = random.check() {
                // A code that can be guessed must not be shown.
                state.trouble = Some(error);
                state.end();
            }
        });
    }

    /// The next channel that was let in.
    pub(super) fn poll_accept(&self, cx: &Context<'_>) -> Poll<Result<TesseronTransport, Error>> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if let Some(error) = state.trouble.take() {
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

    /// The next code that is to be shown.
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

    /// It is over.
    pub(super) fn close(&self) {
        let waiting_at_the_door = self.change(|state, _| {
            state.end();
            core::mem::take(&mut state.accepted)
        });
        drop(waiting_at_the_door);
    }
}

/// One that is heard and not yet let in.
pub(super) struct Dialler(Arc<Shared>);

impl Dialler {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Dialler {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.diallers = state.diallers.saturating_sub(1);
    }
}

/// The place of the one channel that an app has. Dropping it frees the place.
pub(super) struct Seat {
    shared: Arc<Shared>,
    channel: HostChannel,
}

impl Seat {
    pub(super) fn new(shared: &Arc<Shared>, channel: HostChannel) -> Self {
        Self { shared: Arc::clone(shared), channel }
    }

    pub(super) fn channel(&self) -> HostChannel {
        self.channel
    }

    /// Has the gate look at a frame. It is open already, so nothing changes but what it says.
    pub(super) fn pass(&self, gate: &mut HostGate, frame: Bytes) -> HostStep {
        let now = self.shared.clocks.now();
        gate.handle_frame(frame, &mut self.shared.lock().host, now)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.leave(self.channel);
    }
}
