//! One invocation that we serve, as its handler sees it: what is inside a [`Context`](crate::Context).

use core::fmt;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::alarms::{AlarmKey, Alarmed};
use super::diagnose::{self, Answered, Span};
use super::serve_slot::InputSlot;
use super::{AskFailed, Shared, State};
use crate::extensions::Extensions;
use engine::{AbortHandle, End, TaskOwner, park};
use protocol_core::dialect::{Answer, Ask, Caller, LogRecord, Progress, Reply};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::{
    AskError, CancelReason, CheckpointError, InboundId, InputFailed, InputKey, NotLive, ProgressError, Reported, ServeOptions,
};

pub(crate) struct Invocation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: InboundId,
    pub(crate) depth: u8,
    pub(crate) observed: bool,
    /// The values that the transport attached to what brought it.
    pub(crate) extensions: Extensions,
    pub(crate) caller: Caller,
    /// Set once, under the lock, when it is cancelled. Read without it.
    pub(crate) why: OnceLock<CancelReason>,
    pub(crate) span: Span,
    abort: AbortHandle,
}

impl Invocation {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: InboundId,
        depth: u8,
        observed: bool,
        caller: Caller,
        extensions: Extensions,
    ) -> Self {
        Self {
            shared,
            id,
            depth,
            observed,
            caller,
            extensions,
            why: OnceLock::new(),
            span: Span::default(),
            abort: AbortHandle::default(),
        }
    }

    pub(crate) fn progress(&self, update: Progress) -> Result<Reported, ProgressError> {
        let reported = self.shared.verb(|state, now, after| {
            let reported = state.session.progress(self.id, update, now);
            match &reported {
                Ok(Reported::Sent) => after.output(),
                // What is kept goes out by a deadline, which the lock notes by itself.
                Ok(_) | Err(ProgressError::NotLive) => {}
                Err(_) => state.counters.progress_refused = state.counters.progress_refused.saturating_add(1),
            }
            reported
        });
        reported.inspect_err(|error| diagnose::progress_refused(self, *error))
    }

    /// `None`: a value that has no JSON.
    pub(crate) fn checkpoint(&self, partial: Option<Json>) -> Result<(), CheckpointError> {
        let taken = self.shared.verb(|state, now, after| {
            let taken = match partial {
                None => Err(CheckpointError::NotAnObject),
                Some(partial) => {
                    let copy = state.checkpoints.is_some().then(|| partial.clone());
                    let taken = state.session.checkpoint(self.id, partial);
                    if let (Ok(()), Some(copy), Some(kept)) = (&taken, copy, &mut state.checkpoints) {
                        kept.push((now, copy));
                    }
                    taken
                }
            };
            match taken {
                // It may ride on progress at once.
                Ok(()) => after.output(),
                Err(CheckpointError::NotLive) => {}
                Err(_) => state.counters.values_refused = state.counters.values_refused.saturating_add(1),
            }
            taken
        });
        taken.inspect_err(|error| match error {
            CheckpointError::NotLive => {}
            error => diagnose::value_refused(self, error),
        })
    }

    /// `None`: data that has no JSON.
    pub(crate) fn log(&self, record: Option<LogRecord>) {
        let Some(record) = record else {
            self.shared.look(|state| state.counters.values_refused = state.counters.values_refused.saturating_add(1));
            return diagnose::value_refused(self, "a log record that has no JSON");
        };
        self.shared.verb(|state, now, after| {
            // An invocation that is over logs nothing; what was dropped is counted by the session.
            if state.session.log(Some(self.id), record, now).is_ok() {
                after.output();
            }
        });
    }

    pub(crate) fn configure(&self, options: ServeOptions) -> Result<(), NotLive> {
        self.shared.verb(|state, now, after| {
            let configured = state.session.configure(self.id, options, now);
            if configured.is_ok() {
                after.output();
            }
            configured
        })
    }

    /// From now on the peer hears of every new value of `uri`, under the name of the subscription; where it gives it none, under that
    /// of the resource.
    pub(crate) fn subscribe(&self, name: Option<Text>, uri: Text) -> Result<(), RpcError> {
        self.shared.look(|state| {
            let most = state.session.config().limits.in_flight;
            state.subscriptions.subscribe(name, uri, most)
        })
    }

    /// From now on the peer hears no more of those of its subscriptions that are meant, told by their name and the uri of their resource.
    pub(crate) fn unsubscribe(&self, is_meant: impl Fn(&Text, &Text) -> bool) {
        self.shared.look(|state| state.subscriptions.unsubscribe(is_meant));
    }

    /// Ends the invocation for the session and for everybody who waits on it. The second time it does nothing.
    pub(crate) fn respond(&self, reply: Reply) {
        let answered = Answered::of(&reply);
        let (sent, ended) = self.shared.verb(|state, now, after| {
            // A cancelled one gives NotLive and has its place freed: the wire was free long before.
            let sent = state.session.respond(self.id, reply, now);
            let alarms = &mut state.alarms;
            let ended = state.serves.end(&self.id, |slot| {
                if let Some(key) = slot.grace {
                    drop(alarms.clear(key));
                }
                slot.waits.take()
            });
            // Once the session is closed, the driver may be waiting for just this handler.
            if sent.is_ok() || (ended.is_some() && state.session.is_closed()) {
                after.output_alone(state.serves.is_empty());
            }
            (sent, ended)
        });
        let Some(waits) = ended else { return };
        // Also where the driver's waker has panicked: tasks that wait are woken by the drop.
        drop(waits);
        diagnose::settled(self, answered, sent);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.why.get().is_some()
    }

    pub(crate) fn cancelled(self: &Arc<Self>) -> CancelledWait {
        CancelledWait { invocation: Arc::clone(self), place: None }
    }

    pub(crate) fn alarm(&self, after: Duration) -> AlarmWait {
        AlarmWait { shared: Arc::clone(&self.shared), span: after, key: None }
    }

    /// Asks the caller something and waits for what comes back.
    pub(crate) async fn ask(self: &Arc<Self>, ask: Ask) -> Result<Answer, AskFailed> {
        let unsupported = match ask {
            Ask::Sample(_) => AskFailed::NoSampling,
            Ask::OpenUrl(_) => AskFailed::NoUrlElicitation,
            Ask::Roots => AskFailed::NoRoots,
            _ => AskFailed::NoElicitation,
        };
        let asked = self.shared.verb(|state, now, after| {
            let key = state.session.request_input(self.id, ask, now)?;
            after.output();
            match state.serves.get_mut(&self.id) {
                Some(slot) => slot.waits.get_or_insert_default().inputs.push((key, InputSlot::default())),
                None => return Err(AskError::NotLive),
            }
            Ok(key)
        });
        let key = asked.map_err(|error| match error {
            AskError::NotLive => self.over(),
            AskError::Unsupported => unsupported,
            AskError::TooDeep { depth, max } => AskFailed::TooDeep { depth, max },
            AskError::Invalid(why) => AskFailed::Invalid(why),
            AskError::TooLarge => AskFailed::Invalid("longer than a frame may be".into()),
            AskError::Full => AskFailed::Busy,
            // The peer has ended its side.
            _ => AskFailed::Lost,
        })?;
        let answer = AnswerWait { invocation: Arc::clone(self), key }.await?;
        answer.map_err(|failed| match failed {
            InputFailed::Refused(error) => AskFailed::Refused(error),
            InputFailed::Invalid(why) => AskFailed::Mismatch(String::from(&*why)),
            InputFailed::TimedOut => AskFailed::TimedOut,
            _ => AskFailed::Lost,
        })
    }

    fn over(&self) -> AskFailed {
        self.why.get().map_or(AskFailed::Over, |why| AskFailed::Cancelled(why.clone()))
    }
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("id", &self.id).field("cancelled", &self.why.get()).finish_non_exhaustive()
    }
}

impl TaskOwner for Invocation {
    type Output = Reply;

    fn abort_handle(&self) -> &AbortHandle {
        &self.abort
    }

    fn enter(&self) -> impl Sized + '_ {
        self.span.enter()
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        diagnose::panicked(&self.span, panic);
    }

    fn settle(&self, end: End<Reply>) {
        let reply = match end {
            End::Value(reply) => reply,
            End::Panicked => {
                self.shared.look(|state| state.counters.panics = state.counters.panics.saturating_add(1));
                Reply::Error(RpcError::fixed(RpcError::INTERNAL, "internal error: the handler panicked"))
            }
            End::Dropped => {
                Reply::Error(RpcError::fixed(RpcError::INTERNAL, "internal error: the handler ended without an answer"))
            }
        };
        self.respond(reply);
    }
}

/// Why an invocation was stopped, in words.
pub(crate) const fn stopped(why: &CancelReason) -> &'static str {
    match why {
        CancelReason::Peer(_) => "the caller cancelled the call",
        CancelReason::Deadline => "the call's deadline has passed",
        CancelReason::Disconnected => "the connection has ended",
        _ => "this end is closing",
    }
}

/// Waits for the cancellation of an invocation; for ever if it ends otherwise.
#[derive(Debug)]
pub(crate) struct CancelledWait {
    invocation: Arc<Invocation>,
    place: Option<u64>,
}

impl Future for CancelledWait {
    type Output = CancelReason;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<CancelReason> {
        let this = self.get_mut();
        let mut spare = None;
        loop {
            if let Some(why) = this.invocation.why.get() {
                return Poll::Ready(why.clone());
            }
            let parked = this.invocation.shared.look(|state| match state.serves.get_mut(&this.invocation.id) {
                // Cancelled between the look above and this one.
                Some(_) if this.invocation.is_cancelled() => false,
                Some(slot) => slot.waits.get_or_insert_default().on_cancel.park(&mut this.place, cx.waker(), &mut spare),
                None => true,
            });
            if parked {
                return Poll::Pending;
            }
            if spare.is_none() {
                spare = Some(cx.waker().clone());
            }
        }
    }
}

impl Drop for CancelledWait {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker =
            self.invocation.shared.look(|state| state.serves.get_mut(&self.invocation.id)?.waits.as_mut()?.on_cancel.leave(place));
        drop(waker);
    }
}

/// Waits for a span of time, counted from its first poll. False when it did not pass: the endpoint has no driver any longer,
/// so it is not counted.
pub(crate) struct AlarmWait {
    shared: Arc<Shared>,
    span: Duration,
    key: Option<AlarmKey>,
}

impl Future for AlarmWait {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<bool> {
        let this = self.get_mut();
        let mut spare: Option<Waker> = None;
        loop {
            let parked = this.shared.verb(|state, now, _| {
                if state.driver_gone {
                    return Err(false);
                }
                let key = match this.key {
                    Some(key) => key,
                    None if this.span.is_zero() => return Err(true),
                    None => *this.key.insert(state.alarms.set(now.saturating_add(this.span), Alarmed::Sleeper(None))),
                };
                match state.alarms.sleeper(key) {
                    Some(place) => Ok(park(place, cx.waker(), &mut spare)),
                    None => Err(true),
                }
            });
            match parked {
                Err(rang) => return Poll::Ready(rang),
                Ok(true) => return Poll::Pending,
                Ok(false) => spare = Some(cx.waker().clone()),
            }
        }
    }
}

impl Drop for AlarmWait {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let alarm = self.shared.look(|state| state.alarms.clear(key));
        drop(alarm);
    }
}

/// Waits for the answer to one question. Dropped before it came, the question is taken back.
struct AnswerWait {
    invocation: Arc<Invocation>,
    key: InputKey,
}

impl AnswerWait {
    /// The place of the input request among those of its call; `None` once it is over.
    fn place<'a>(&self, state: &'a mut State) -> Option<(&'a mut Vec<(InputKey, InputSlot)>, usize)> {
        let inputs = &mut state.serves.get_mut(&self.invocation.id)?.waits.as_mut()?.inputs;
        let at = inputs.iter().position(|(key, _)| *key == self.key)?;
        Some((inputs, at))
    }
}

impl Future for AnswerWait {
    type Output = Result<Result<Answer, InputFailed>, AskFailed>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut spare = None;
        loop {
            let parked = self.invocation.shared.look(|state| {
                let (inputs, at) = self.place(state).ok_or(None)?;
                let (_, input) = inputs.get_mut(at).ok_or(None)?;
                if input.answer.is_some() {
                    return Err(Some(inputs.swap_remove(at).1));
                }
                if self.invocation.is_cancelled() {
                    return Err(None);
                }
                Ok(park(&mut input.waker, cx.waker(), &mut spare))
            });
            match parked {
                Err(Some(InputSlot { answer: Some(answer), .. })) => return Poll::Ready(Ok(answer)),
                Err(_) => return Poll::Ready(Err(self.invocation.over())),
                Ok(true) => return Poll::Pending,
                Ok(false) => spare = Some(cx.waker().clone()),
            }
        }
    }
}

impl Drop for AnswerWait {
    fn drop(&mut self) {
        let slot = self.invocation.shared.verb(|state, now, after| {
            let (inputs, at) = self.place(state)?;
            let slot = inputs.swap_remove(at);
            if state.session.abandon_input(self.key, now).is_ok() {
                after.output();
            }
            Some(slot)
        });
        drop(slot);
    }
}
