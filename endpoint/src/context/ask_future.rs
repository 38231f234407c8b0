//! The future of an input request of a handler.

use core::fmt;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ask_failed::AskFailed;
use crate::state::rounds::{AskPlace, Asking, RoundStep, RoundWait, is_in_effect};
use crate::state::{AlarmWait, AnswerWait, ServedCall};
use protocol_core::dialect::{InputRequest, InputResponse};
use protocol_core::json::{Json, Text};

/// An input request to the caller: a future that resolves to the answer. The input request is sent when the future is first polled.
///
/// If the caller made a handshake, the input request is sent as a JSON-RPC request while the call runs. In MCP 2026-07-28 it ends the
/// request of the call instead, as soon as the handler is pending and no effect is under way, and the handler is dropped. When the caller
/// sends its request again with the answer, the handler runs again from its first line, and every input request that was answered before
/// resolves at once. Everything else that the handler does is repeated, except for effects in [`Context::once`](super::Context::once).
///
/// # Cancel safety
/// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
#[must_use = "an input request is sent when it is awaited"]
pub struct AskFuture<T> {
    stage: Stage,
    read: Option<Read<T>>,
    /// The place of the answer in the log of this call, if the handler keeps only a part of the answer.
    place: Option<(Arc<ServedCall>, AskPlace)>,
}

/// Converts the answer into the value of the future. Also returns the part of the answer to record in the log, if only a part is kept.
type Read<T> = Box<dyn FnOnce(Given) -> (T, Option<Json>) + Send>;

/// The answer to an input request.
enum Given {
    InputResponse(Result<InputResponse, AskFailed>),
    /// The part of the answer that the handler has kept in an earlier run.
    Kept(Json),
}

enum Stage {
    New {
        served: Arc<ServedCall>,
        ask: InputRequest,
        key: Option<Text>,
        within: Option<Duration>,
        /// `true` if only a part of the answer is recorded in the log.
        is_kept: bool,
    },
    /// The input request cannot be sent.
    Failed(AskFailed),
    /// The input request was sent. The alarm ends the time for its answer, if there is a limit.
    Sent(AnswerWait, Option<AlarmWait>),
    /// The input request will be sent in the round that ends the request of the call.
    InRound(RoundWait),
    Done,
}

impl<T> AskFuture<T> {
    pub(super) fn new(
        served: &Arc<ServedCall>,
        ask: Result<InputRequest, AskFailed>,
        read: impl FnOnce(Result<InputResponse, AskFailed>) -> T + Send + 'static,
    ) -> Self {
        let stage = match ask {
            Ok(ask) => Stage::New { served: Arc::clone(served), ask, key: None, within: None, is_kept: false },
            Err(failed) => Stage::Failed(failed),
        };
        let read = move |given| match given {
            Given::InputResponse(answer) => (read(answer), None),
            Given::Kept(_) => (read(Err(AskFailed::Mismatch(String::from("only a part of it was kept")))), None),
        };
        Self { stage, read: Some(Box::new(read)), place: None }
    }

    /// Sets the name of the answer on the wire in MCP 2026-07-28, for people who read the frames. Input requests that are open at the same
    /// time need different names. Default: `input-1`, `input-2` and so on.
    pub fn key(mut self, name: impl Into<Text>) -> Self {
        if let Stage::New { key, .. } = &mut self.stage {
            *key = Some(name.into());
        }
        self
    }

    /// Fails with [`AskFailed::TimedOut`] if the answer takes longer than `limit`, counted from the first poll of this future. In MCP
    /// 2026-07-28 the limit is checked when the retry arrives, in whole seconds.
    pub fn within(mut self, limit: Duration) -> Self {
        if let Stage::New { within, .. } = &mut self.stage {
            *within = Some(limit);
        }
        self
    }

    /// Sends the input request. If the caller is asked in rounds, finds the answer in the log, or adds the input request to the next round.
    fn begin(
        served: &Arc<ServedCall>,
        ask: InputRequest,
        key: Option<Text>,
        within: Option<Duration>,
        is_kept: bool,
    ) -> Result<Begun, AskFailed> {
        if is_in_effect(&**served) {
            return Err(AskFailed::Invalid(String::from("it was made within an effect of `once`")));
        }
        if served.asks_in_rounds() {
            return Ok(match served.ask_in_round(Asking::new(ask, key, within, is_kept))? {
                RoundStep::InputResponse(place, answer) => Begun::Answered(place, answer),
                RoundStep::Kept(kept) => Begun::Kept(kept),
                RoundStep::Wait(place, wait) => Begun::InRound(place, wait),
            });
        }
        let alarm = within.map(|within| served.alarm(within));
        served.ask(ask).map(|wait| Begun::Sent(Stage::Sent(wait, alarm)))
    }
}

/// The result of the first poll: the answer from the log, or the wait for an answer.
enum Begun {
    Answered(AskPlace, Box<InputResponse>),
    Kept(Json),
    InRound(AskPlace, RoundWait),
    Sent(Stage),
}

impl<A: 'static> AskFuture<Result<A, AskFailed>> {
    /// Keeps only a part of the answer: `reduce` makes the value that this future resolves to, and that value is recorded in the log of the
    /// call instead of the whole answer. A long answer would fill the state of the call, which has at most 16 KiB, although the handler
    /// needs only a part of it. In a later run, the recorded value is returned, and `reduce` is not called.
    ///
    /// ```
    /// # use endpoint::{Context, ToolError};
    /// # use protocol_core::Sample;
    /// # async fn handler(context: Context) -> Result<(), ToolError> {
    /// let summary = context.sample(Sample::new("Summarise the book."));
    /// let line = summary.keep(|sampled| sampled.text.lines().next().unwrap_or_default().to_owned()).await?;
    /// # drop(line);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future also fails with [`AskFailed::Mismatch`] if the recorded value cannot be read as a `U`.
    pub fn keep<U>(self, reduce: impl FnOnce(A) -> U + Send + 'static) -> AskFuture<Result<U, AskFailed>>
    where
        U: Serialize + DeserializeOwned + 'static,
    {
        let Self { mut stage, read, place } = self;
        if let Stage::New { is_kept, .. } = &mut stage {
            *is_kept = true;
        }
        let read = read.map(|read| -> Read<Result<U, AskFailed>> {
            Box::new(move |given| match given {
                Given::Kept(kept) => (kept.decode().map_err(|error| AskFailed::Mismatch(error.to_string())), None),
                given => match read(given).0 {
                    Ok(answer) => {
                        let reduced = reduce(answer);
                        let kept = Json::encode(&reduced).ok();
                        (Ok(reduced), kept)
                    }
                    Err(failed) => (Err(failed), None),
                },
            })
        });
        AskFuture { stage, read, place }
    }
}

impl<T> Future for AskFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        let this = self.get_mut();
        let given = loop {
            match &mut this.stage {
                Stage::New { .. } => {
                    let Stage::New { served, ask, key, within, is_kept } = core::mem::replace(&mut this.stage, Stage::Done) else {
                        continue;
                    };
                    let place = |place| is_kept.then_some((Arc::clone(&served), place));
                    match Self::begin(&served, ask, key, within, is_kept) {
                        Ok(Begun::Sent(stage)) => this.stage = stage,
                        Ok(Begun::InRound(at, wait)) => (this.stage, this.place) = (Stage::InRound(wait), place(at)),
                        Ok(Begun::Answered(at, answer)) => {
                            this.place = place(at);
                            break Given::InputResponse(Ok(*answer));
                        }
                        Ok(Begun::Kept(kept)) => break Given::Kept(kept),
                        Err(failed) => break Given::InputResponse(Err(failed)),
                    }
                }
                Stage::Failed(failed) => break Given::InputResponse(Err(failed.clone())),
                Stage::Sent(wait, alarm) => {
                    if let Poll::Ready(answer) = Pin::new(wait).poll(cx) {
                        break Given::InputResponse(answer);
                    }
                    match alarm.as_mut().map(|alarm| Pin::new(alarm).poll(cx)) {
                        Some(Poll::Ready(_)) => break Given::InputResponse(Err(AskFailed::TimedOut)),
                        Some(Poll::Pending) | None => return Poll::Pending,
                    }
                }
                Stage::InRound(wait) => match Pin::new(wait).poll(cx) {
                    Poll::Ready(failed) => break Given::InputResponse(Err(failed)),
                    Poll::Pending => return Poll::Pending,
                },
                // A future must not be polled after its end. If it is, this future stays pending instead of panicking.
                Stage::Done => return Poll::Pending,
            }
        };
        this.stage = Stage::Done;
        let Some(read) = this.read.take() else { return Poll::Pending };
        let (value, kept) = read(given);
        if let (Some((served, place)), Some(kept)) = (this.place.take(), kept) {
            served.keep_answer(&place, kept);
        }
        Poll::Ready(value)
    }
}

// The parts that are pinned are `Unpin`, and `T` is only returned.
impl<T> Unpin for AskFuture<T> {}

impl<T> fmt::Debug for AskFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::New { .. } => "new",
            Stage::Failed(_) => "failed",
            Stage::Sent(..) => "sent",
            Stage::InRound(_) => "in a round",
            Stage::Done => "done",
        };
        f.debug_struct("AskFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
