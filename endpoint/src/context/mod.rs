//! The handle through which a handler uses its call.

mod ask;
mod ask_future;
mod once;
mod subrange;

pub use ask_future::AskFuture;
pub use subrange::Subrange;

use core::fmt;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;

use crate::cancelled::{Cancelled, TimeoutError};
use crate::extensions::{Extensions, Principal};
use crate::state::ServedCall;
use protocol_core::dialect::{Caller, Capabilities, Identity, Level, LogRecord, Progress};
use protocol_core::json::{Json, Text};
use protocol_core::session::{CancelReason, CheckpointError, NotLive, ProgressError, Reported, ServeOptions};

/// The handle through which a handler uses its call: it reports progress, logs, asks the caller, and returns whether the call was
/// cancelled. `Clone + Send + Sync`.
///
/// Here *the call* is the inbound call. With rounds (MCP 2026-07-28), each request of *the caller's call* is an inbound call of its own.
///
/// A context may outlive the handler. After the end of the call, progress and log records are dropped, and input requests fail with
/// [`AskFailed`](crate::AskFailed).
#[derive(Clone)]
pub struct Context {
    served: Arc<ServedCall>,
    /// The extensions with those that hooks have added; empty if they have added none.
    changed: Extensions,
}

impl Context {
    pub(crate) fn new(served: Arc<ServedCall>) -> Self {
        Self { served, changed: Extensions::new() }
    }

    /// The same context with these extensions, which are not empty.
    pub(crate) fn with_extensions(&self, extensions: Extensions) -> Self {
        Self { served: Arc::clone(&self.served), changed: extensions }
    }

    /// The inbound call that the handler serves.
    pub(crate) fn served(&self) -> &Arc<ServedCall> {
        &self.served
    }

    /// The values that the transport attached to the frame of the request, such as the head of an HTTP request, and those that
    /// [hooks](crate::Service::around) have added. Without hooks it is empty on transports with only one lane, such as stdio.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        if self.changed.is_empty() { &self.served().extensions } else { &self.changed }
    }

    /// The name of the authenticated caller; `None` if the transport, or a hook, attached none to the request.
    #[must_use]
    pub fn principal(&self) -> Option<&Principal> {
        self.extensions().get()
    }

    /// Reports progress. This method never fails and never waits. An update that is not valid ([`ProgressError`]) is dropped and counted in
    /// [`Counters::progress_refused`](crate::Counters::progress_refused). An update that the caller did not ask for, or that comes after
    /// the end of the call, is dropped.
    pub fn progress(&self, update: Progress) {
        let _ = self.try_progress(update);
    }

    /// Reports progress, and returns what became of the update: it was sent, kept for later, or left out.
    ///
    /// # Errors
    /// [`ProgressError`] if the update is not valid or the call is over. Nothing is sent then.
    pub fn try_progress(&self, update: Progress) -> Result<Reported, ProgressError> {
        self.served().progress(update)
    }

    /// Reports progress as a percentage, 0 to 100.
    pub fn percent(&self, percent: f64) {
        self.progress(Progress::percent(percent));
    }

    /// Reports `current` of `total`.
    pub fn step(&self, current: u64, total: u64) {
        self.progress(Progress::step(current, total));
    }

    /// Reports a message without a value, for work whose extent is not known.
    pub fn message(&self, message: impl Into<Text>) {
        self.progress(Progress::message(message));
    }

    /// Returns `true` if the caller asked for progress. If it did not, reports are dropped.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.served().observed
    }

    /// Returns `true` once the handler should stop: the caller cancelled the call, its deadline has passed, the connection has ended,
    /// this end is closing, or a newer request of the caller's call has replaced this call. The value that the handler returns is not sent.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.served().is_cancelled()
    }

    /// Returns `true` once the call has ended with a round (MCP 2026-07-28), so that the caller's call goes on with a retry. A handler that
    /// is dropped in this state runs again from its first line for the retry. A guard that reports the end of the caller's call when it is
    /// dropped must check this method, and report nothing if the method returns `true`.
    #[must_use]
    pub fn will_run_again(&self) -> bool {
        self.served().has_ended_in_round()
    }

    /// Returns `true` if this run of the handler repeats an earlier one: it serves a retry, with the answers to an earlier round of input
    /// requests (MCP 2026-07-28). What is to happen once for each call of the caller, such as counting it, is done in runs for which this
    /// returns `false`.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.served().is_repeat()
    }

    /// Waits until the call is cancelled (see [`is_cancelled`](Self::is_cancelled)), and returns the reason. Never resolves if the handler
    /// ends first.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    pub async fn cancelled(&self) -> CancelReason {
        self.served().cancelled().await
    }

    /// Returns a handle with which code can only check whether the call was cancelled, or wait for its cancellation.
    #[must_use]
    pub fn cancellation(&self) -> Cancellation {
        Cancellation { served: Arc::clone(self.served()) }
    }

    /// Waits for `span`, on the clock of the endpoint, which is virtual under test.
    ///
    /// # Cancel safety
    /// Cancel safe: only the time that has passed is lost. Called again, it waits for the whole span.
    ///
    /// # Errors
    /// [`Cancelled`] as soon as the call is cancelled; immediately, if it was cancelled before.
    pub async fn sleep(&self, span: Duration) -> Result<(), Cancelled> {
        match self.wait(core::future::pending::<core::convert::Infallible>(), span).await {
            Ok(never) => match never {},
            Err(WaitEnd::Elapsed) => Ok(()),
            Err(WaitEnd::Cancelled(why)) => Err(Cancelled(why)),
        }
    }

    /// Waits for `future`, but no longer than `limit`, and only until the call is cancelled. `future` is dropped before this returns.
    ///
    /// # Cancel safety
    /// As cancel safe as `future`, which is dropped together with this future.
    ///
    /// # Errors
    /// * [`TimeoutError::Elapsed`] if `limit` has passed.
    /// * [`TimeoutError::TimedOut`] if the deadline of the call has passed.
    /// * [`TimeoutError::Cancelled`] if the call was cancelled for another reason.
    ///
    /// The value of `future` takes precedence over a cancellation at the same moment, and a cancellation over `limit`.
    pub async fn with_timeout<F: Future>(&self, future: F, limit: Duration) -> Result<F::Output, TimeoutError> {
        self.wait(future, limit).await.map_err(|end| match end {
            WaitEnd::Elapsed => TimeoutError::Elapsed,
            WaitEnd::Cancelled(CancelReason::Deadline) => TimeoutError::TimedOut,
            WaitEnd::Cancelled(why) => TimeoutError::Cancelled(why),
        })
    }

    async fn wait<F: Future>(&self, future: F, limit: Duration) -> Result<F::Output, WaitEnd> {
        let mut future = pin!(future);
        let mut cancelled = self.served().cancelled();
        let mut alarm = self.served().alarm(limit);
        poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            if let Poll::Ready(why) = Pin::new(&mut cancelled).poll(cx) {
                return Poll::Ready(Err(WaitEnd::Cancelled(why)));
            }
            Pin::new(&mut alarm).poll(cx).map(|elapsed| match self.served().why.get() {
                // The call may have been cancelled at the instant at which the limit passed.
                Some(why) => Err(WaitEnd::Cancelled(why.clone())),
                None if elapsed => Err(WaitEnd::Elapsed),
                // The endpoint is gone, so the alarm can never be due.
                None => Err(WaitEnd::Cancelled(CancelReason::Disconnected)),
            })
        })
        .await
    }

    /// Sends a log record with `data`, any value that can be serialized to JSON. This method never fails and never waits. A value that
    /// cannot be serialized is dropped and counted in [`Counters::values_refused`](crate::Counters::values_refused). A record below the
    /// level that the caller set is dropped, and so is any record after the end of the call. If the queue has no room, older records are
    /// dropped or, if that is not enough, this one.
    pub fn log(&self, level: Level, data: impl Serialize) {
        self.served().log(Json::encode(&data).ok().map(|data| LogRecord::new(level, data)));
    }

    /// Sends a log record as [`log`](Self::log) does, with the name of the part of the program that logs it (MCP `logger`).
    pub fn log_as(&self, level: Level, logger: impl Into<Text>, data: impl Serialize) {
        self.served().log(Json::encode(&data).ok().map(|data| LogRecord::new(level, data).with_logger(logger)));
    }

    /// Stores a checkpoint: what the handler has finished so far, as a value that serializes to a JSON object. If the call times out, fails
    /// or is cancelled, its last checkpoint is sent with the reply, as far as the protocol allows. With
    /// [`ProgressPolicy::partial_on_progress`](protocol_core::ProgressPolicy::partial_on_progress) it is also sent with progress.
    ///
    /// A value that is not an object, or is too large, is dropped and counted in
    /// [`Counters::values_refused`](crate::Counters::values_refused); the previous checkpoint remains.
    pub fn checkpoint(&self, partial: &(impl Serialize + ?Sized)) {
        let _ = self.try_checkpoint(partial);
    }

    /// Stores a checkpoint as [`checkpoint`](Self::checkpoint) does.
    ///
    /// # Errors
    /// [`CheckpointError`] if it was not stored; the previous checkpoint remains.
    pub fn try_checkpoint(&self, partial: &(impl Serialize + ?Sized)) -> Result<(), CheckpointError> {
        self.served().checkpoint(Json::encode(partial).ok())
    }

    /// Changes the deadline of the call, counted from the receipt of its request, and the rate at which it may report progress.
    ///
    /// # Errors
    /// [`NotLive`] if the call is over.
    pub fn configure(&self, options: ServeOptions) -> Result<(), NotLive> {
        self.served().configure(options)
    }

    /// The sampling depth: the number of sampling requests that the call is nested in.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.served().depth()
    }

    /// The caller: the peer's identity and capabilities at the time of the request, and the metadata of the request.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.served().caller
    }

    /// The member `_meta` of the request, byte for byte; see [`Caller::meta`].
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.served().caller.meta()
    }

    /// The identity of the caller. On MCP it is the client, as it named itself in the handshake or, if there was none, in the request. On
    /// Tesseron it is the agent for which the gateway acts, as the gateway named it: the gateway sends no identity of its own.
    #[must_use]
    pub fn client(&self) -> Identity {
        self.served().of_peer(|peer| peer.identity.clone())
    }

    /// The capabilities that the caller offers now: sampling, elicitation by form and by URL, roots.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.served().capabilities()
    }
}

/// The reason for which a wait ended without a value.
enum WaitEnd {
    Elapsed,
    Cancelled(CancelReason),
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.served).finish()
    }
}

/// A handle to check whether a call was cancelled, for code that needs no other part of the [`Context`]. `Clone + Send + Sync`.
#[derive(Clone)]
pub struct Cancellation {
    served: Arc<ServedCall>,
}

impl Cancellation {
    /// Returns `true` once the handler should stop; see [`Context::is_cancelled`].
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.served.is_cancelled()
    }

    /// The reason for which the call was cancelled; `None` if it was not.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.served.why.get().cloned()
    }

    /// Waits until the call is cancelled, and returns the reason. Never resolves if the handler ends first.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    pub async fn cancelled(&self) -> CancelReason {
        self.served.cancelled().await
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancellation").field(&self.reason()).finish()
    }
}
