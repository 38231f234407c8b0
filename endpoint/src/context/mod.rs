//! The handle that a handler has on its call.

mod ask;
mod subrange;

pub use subrange::Subrange;

use core::fmt;
use core::future::poll_fn;
use core::ops::Range;
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;

use crate::extensions::Extensions;
use crate::state::{Invocation, stopped};
use protocol_core::dialect::{Caller, Capabilities, Identity, Level, LogRecord, PeerInfo, Progress};
use protocol_core::json::{Json, Text};
use protocol_core::session::{CancelReason, CheckpointError, NotLive, ProgressError, Reported, ServeOptions};

/// The handler's end of one invocation. `Clone + Send + Sync`.
///
/// It may be kept beyond the handler. When the invocation is over, what would send sends nothing, and what would ask
/// fails with [`AskFailed`](crate::AskFailed).
#[derive(Clone)]
pub struct Context {
    pub(crate) invocation: Arc<Invocation>,
}

impl Context {
    pub(crate) fn new(invocation: Arc<Invocation>) -> Self {
        Self { invocation }
    }

    /// The values that the transport attached to what brought the request; none over a transport of one stream.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.invocation.extensions
    }

    /// Reports progress. It never fails and never waits: an update that makes no sense is counted
    /// ([`Counters::progress_refused`](crate::Counters::progress_refused)) and dropped, and so is one that the caller
    /// did not ask for or that comes when the call is over.
    pub fn progress(&self, update: Progress) {
        let _ = self.try_progress(update);
    }

    /// Reports progress and says what became of the update.
    ///
    /// # Errors
    /// [`ProgressError`]: nothing was sent.
    pub fn try_progress(&self, update: Progress) -> Result<Reported, ProgressError> {
        self.invocation.progress(update)
    }

    /// Reports so many percent, 0 to 100.
    pub fn percent(&self, percent: f64) {
        self.progress(Progress::percent(percent));
    }

    /// Reports `current` of `total`.
    pub fn count(&self, current: u64, total: u64) {
        self.progress(Progress::count(current, total));
    }

    /// Reports what is being done, without saying how far.
    pub fn message(&self, message: impl Into<Text>) {
        self.progress(Progress::message(message));
    }

    /// A part of the whole, from one fraction of it to another (0 to 1): what reports 0 to 1 there moves the invocation from
    /// `range.start` to `range.end`. What goes out is percent.
    #[must_use]
    pub fn subrange(&self, range: Range<f64>) -> Subrange {
        Subrange::new(self.clone(), range)
    }

    /// Returns `true` if the caller asked for progress. Without it reporting is free of cost and effect.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.invocation.observed
    }

    /// Returns `true` once the handler should stop: the caller cancelled, the deadline has passed, the channel has ended. The wire is
    /// free then, and nothing that the handler still returns is sent.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.invocation.is_cancelled()
    }

    /// Waits until the handler shall stop. For ever, if the invocation ends otherwise.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    pub async fn cancelled(&self) -> CancelReason {
        self.invocation.cancelled().await
    }

    /// A handle of only the cancellation, to be handed on.
    #[must_use]
    pub fn cancellation(&self) -> Cancellation {
        Cancellation { invocation: Arc::clone(&self.invocation) }
    }

    /// Waits for `span`, in the endpoint's own time: under test it is virtual.
    ///
    /// # Cancel safety
    /// Cancel safe: only the time that has passed is lost; called again it waits for the whole span.
    ///
    /// # Errors
    /// [`Cancelled`] as soon as the handler shall stop, at once if it shall already.
    pub async fn sleep(&self, span: Duration) -> Result<(), Cancelled> {
        match self.bounded(core::future::pending::<core::convert::Infallible>(), span).await {
            Ok(never) => match never {},
            Err(Bound::Elapsed) => Ok(()),
            Err(Bound::Stopped(why)) => Err(Cancelled(why)),
        }
    }

    /// Waits for `future`, at most for `limit`. Whatever comes first, `future` is dropped before this returns, so a stuck one holds
    /// nothing up.
    ///
    /// # Cancel safety
    /// As cancel safe as `future`, which is dropped with it.
    ///
    /// # Errors
    /// [`TimeoutError::Elapsed`] when the limit has passed; [`TimeoutError::TimedOut`] when the deadline of the whole invocation
    /// has; [`TimeoutError::Cancelled`] when it was cancelled otherwise. A value that is ready at the same moment wins over all of
    /// them, and the end of the invocation over the limit.
    pub async fn with_timeout<F: Future>(&self, future: F, limit: Duration) -> Result<F::Output, TimeoutError> {
        self.bounded(future, limit).await.map_err(|bound| match bound {
            Bound::Elapsed => TimeoutError::Elapsed,
            Bound::Stopped(CancelReason::Deadline) => TimeoutError::TimedOut,
            Bound::Stopped(why) => TimeoutError::Cancelled(why),
        })
    }

    async fn bounded<F: Future>(&self, future: F, limit: Duration) -> Result<F::Output, Bound> {
        let mut future = pin!(future);
        let mut cancelled = self.invocation.cancelled();
        let mut alarm = self.invocation.alarm(limit);
        poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            if let Poll::Ready(why) = Pin::new(&mut cancelled).poll(cx) {
                return Poll::Ready(Err(Bound::Stopped(why)));
            }
            Pin::new(&mut alarm).poll(cx).map(|rang| match self.invocation.why.get() {
                // Both at once.
                Some(why) => Err(Bound::Stopped(why.clone())),
                None if rang => Err(Bound::Elapsed),
                None => Err(Bound::Stopped(CancelReason::Disconnected)),
            })
        })
        .await
    }

    /// Logs `data`, any value that has a JSON form. It never fails and never waits.
    pub fn log(&self, level: Level, data: impl Serialize) {
        self.invocation.log(Json::encode(&data).ok().map(|data| LogRecord { level, logger: None, data }));
    }

    /// Logs `data` in the name of a part of the program.
    pub fn log_as(&self, level: Level, logger: impl Into<Text>, data: impl Serialize) {
        let logger = Some(logger.into());
        self.invocation.log(Json::encode(&data).ok().map(|data| LogRecord { level, logger, data }));
    }

    /// Deposits what is done so far: a value whose JSON is an object. If the invocation is cut short or fails, the last one travels
    /// to the caller where the protocol has a place for it.
    ///
    /// A value that cannot be taken is counted ([`Counters::values_refused`](crate::Counters::values_refused)); the one before it
    /// stays.
    pub fn checkpoint(&self, partial: &(impl Serialize + ?Sized)) {
        let _ = self.try_checkpoint(partial);
    }

    /// Deposits what is done so far and says whether it was taken.
    ///
    /// # Errors
    /// [`CheckpointError`]: the one before it stays.
    pub fn try_checkpoint(&self, partial: &(impl Serialize + ?Sized)) -> Result<(), CheckpointError> {
        self.invocation.checkpoint(Json::encode(partial).ok())
    }

    /// Changes how this invocation is served: its deadline, counted from its receipt, and its rate of progress.
    ///
    /// # Errors
    /// [`NotLive`] when it is over.
    pub fn configure(&self, options: ServeOptions) -> Result<(), NotLive> {
        self.invocation.configure(options)
    }

    /// The number of samplings that the call is nested in.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.invocation.depth
    }

    /// The caller of this request: the peer as it was then, and what came with the request.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.invocation.caller
    }

    /// The `_meta` of the request exactly as it came; `None` if there is nothing in it but what the session reads itself, a progress token
    /// above all.
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.invocation.caller.meta()
    }

    /// The agent that calls: on MCP the client, as it named itself in the handshake.
    #[must_use]
    pub fn agent(&self) -> Identity {
        self.peer().map_or_else(|| Identity::new(String::new(), String::new()), |peer| peer.identity)
    }

    /// The client that the agent lives in. On MCP the same as [`Context::agent`].
    #[must_use]
    pub fn client(&self) -> Identity {
        self.agent()
    }

    /// The capabilities of the caller now: sampling, elicitation by form and by URL, roots.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.peer().map(|peer| peer.capabilities).unwrap_or_default()
    }

    fn peer(&self) -> Option<PeerInfo> {
        self.invocation.shared.look(|state| state.session.peer().cloned())
    }
}

enum Bound {
    Elapsed,
    Stopped(CancelReason),
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.invocation).finish()
    }
}

/// Tells whether an invocation shall stop. `Clone + Send + Sync`, and free of everything else that a [`Context`] can do.
#[derive(Clone)]
pub struct Cancellation {
    invocation: Arc<Invocation>,
}

impl Cancellation {
    /// Returns `true` once the handler should stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.invocation.is_cancelled()
    }

    /// On whose account it shall stop; `None` as long as it need not.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.invocation.why.get().cloned()
    }

    /// Waits until it shall stop. For ever, if it ends otherwise.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    pub async fn cancelled(&self) -> CancelReason {
        self.invocation.cancelled().await
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancellation").field(&self.reason()).finish()
    }
}

/// The handler shall stop, on this account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", stopped(.0))]
pub struct Cancelled(pub CancelReason);

/// Why [`Context::with_timeout`] brought no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutError {
    /// Its own limit has passed; the invocation goes on.
    #[error("the time limit has passed")]
    Elapsed,
    /// The invocation was cancelled.
    #[error("{}", stopped(.0))]
    Cancelled(CancelReason),
    /// The deadline of the invocation has passed.
    #[error("the call's deadline has passed")]
    TimedOut,
}
