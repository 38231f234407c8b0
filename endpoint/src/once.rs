//! Effects of a handler, which are not repeated when the handler runs again.

use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::once_store::{Claim, Lease, OnceStore};
use crate::rounds::{EffectMark, EffectStep, Outcome, is_in_effect};
use crate::service::ToolError;
use crate::state::{ServedCall, diagnose};
use protocol_core::error::RpcError;
use protocol_core::json::Json;

/// The key of an effect ([`Context::once`]): 43 letters, digits, `-` and `_`. An effect passes it, as the idempotency key, to the remote
/// service that it calls. The key is the same each time that the handler of one call runs the effect, in every process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectKey(String);

impl EffectKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Context {
    /// Runs an effect, and records its value or error under `name`: when the handler runs again because its caller has answered an input
    /// request (MCP 2026-07-28), the effect is not run again, and the recorded outcome is returned.
    ///
    /// **Without a store, the effect runs at most once if the caller sends each request of the call once. It may run again if the caller
    /// repeats the first request, sends a state twice or sends an older state, if a response is lost, or if the process crashes.** So
    /// `effect` gets a key, to pass to the remote service that it calls. Every retry of the call gives the effect the same key, but a
    /// repeated first request gives it another one. Where this matters, use [`Context::once_sealed`], which runs no effect in the first
    /// request.
    ///
    /// **With a store ([`Service::once_store`](crate::Service::once_store)) an effect with one key runs at most once, in all processes that
    /// share the store.** It is claimed before it begins. While another request runs it, this method waits for the outcome, at most until
    /// the lease of that claim is over. If no outcome is recorded by then, for example because the process has crashed, the error is
    /// [`ToolError::OutcomeUnknown`]. If the effect was dropped, this method fails with that error without waiting. A repeated first
    /// request still gives the effect another key, unless the caller marks the repetition
    /// ([`Service::call_key`](crate::Service::call_key)).
    ///
    /// Effects with the same name are distinguished by their order. `effect` must not make an input request or run another effect. While an
    /// effect is under way, a round of the handler's input requests waits for the end of the effect. A cancelled handler with an effect
    /// under way may go on for at least 30 s. An effect that fails with [`ToolError::Cancelled`] has no outcome, as if it had been dropped.
    ///
    /// If the caller made a handshake, a handler runs only once, and so does each of its effects.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the effect may have happened, and nothing is recorded.
    ///
    /// # Errors
    /// The error of `effect`. A recorded error is [`ToolError::Rpc`] if the effect failed with that, and otherwise [`ToolError::Failed`]
    /// with the same message. [`ToolError::Failed`] if the value cannot be serialized, or a recorded one cannot be read as a `T`; if the
    /// effect is run within another effect; if another effect of this name is under way; if the runtime has no random bytes for its key, or
    /// no clock for its lease; or if the store fails to claim it. [`ToolError::OutcomeUnknown`] as described above.
    /// [`ToolError::Cancelled`] if the call is over, if a newer request of the call has replaced this one, or if the call is cancelled
    /// while this method waits. An effect that a handler begins after the cancel of its call, within its grace, still runs.
    pub async fn once<T, F, Fut>(&self, name: &str, effect: F) -> Result<T, ToolError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, ToolError>>,
    {
        self.effect(name, false, effect).await
    }

    /// Runs an effect as [`once`](Self::once) does, but never in the first request of a call (MCP 2026-07-28), since a repetition of that
    /// request would have another key. The first request ends before the effect, with a state and no input request. The caller sends its
    /// request again with the state, without asking its user, and the effect runs in that retry, with the key of the state.
    ///
    /// # Cancel safety
    /// Not cancel safe, as [`once`](Self::once).
    ///
    /// # Errors
    /// As for [`once`](Self::once); [`ToolError::Failed`] also if the handler is blocking ([`Tool::blocking`](crate::Tool::blocking)) and
    /// the effect would have to wait for a retry.
    pub async fn once_sealed<T, F, Fut>(&self, name: &str, effect: F) -> Result<T, ToolError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, ToolError>>,
    {
        self.effect(name, true, effect).await
    }

    async fn effect<T, F, Fut>(&self, name: &str, must_be_sealed: bool, effect: F) -> Result<T, ToolError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, ToolError>>,
    {
        if is_in_effect(&**self.served()) {
            return Err(ToolError::failed("an effect cannot run within another effect"));
        }
        let served = self.served();
        let (key, nth) = match served.begin_effect(name, must_be_sealed) {
            None => return Err(ToolError::Cancelled),
            Some(EffectStep::Busy) => return Err(ToolError::failed(format!("the effect {name:?} is under way"))),
            Some(EffectStep::NoKey) => return Err(ToolError::failed("there are no random bytes for the key of an effect")),
            Some(EffectStep::NeedsRound) if served.is_blocking() => {
                return Err(ToolError::failed("a blocking handler cannot wait for a sealed key in MCP 2026-07-28"));
            }
            Some(EffectStep::NeedsRound) => {
                // The handler is dropped here, since its request ends with a round, unless its call is cancelled before.
                served.cancelled().await;
                return Err(ToolError::Cancelled);
            }
            Some(EffectStep::Done(outcome)) => return Ok(outcome.into_result()?.decode()?),
            Some(EffectStep::Run { key, nth }) => (EffectKey(key), nth),
        };
        let mut running = Running { served, name, nth, outcome: None, claimed: None };
        if let Some(store) = served.once_store() {
            match self.claim(&*store, key.as_str()).await? {
                Claim::Granted => running.claimed = Some((store, key.clone())),
                Claim::Recorded(outcome) => {
                    let outcome: Outcome = outcome.decode()?;
                    running.outcome = Some(outcome.clone());
                    return Ok(outcome.into_result()?.decode()?);
                }
                Claim::Held | Claim::Unknown => return Err(ToolError::OutcomeUnknown(name.into())),
            }
        }
        let mut future = pin!(effect(key));
        let value = poll_fn(|cx| {
            let _marked = EffectMark::set(&**served);
            future.as_mut().poll(cx)
        })
        .await;
        if matches!(value, Err(ToolError::Cancelled)) {
            return value;
        }
        let recorded = value.and_then(|value| Ok((Json::encode(&value)?, value)));
        running.outcome = Some(match &recorded {
            Ok((json, _)) => Outcome::Value(json.clone()),
            Err(error) => Outcome::of_error(error),
        });
        if let (Some((store, key)), Some(outcome)) = (running.claimed.clone(), &running.outcome) {
            if let Err(error) = store.record(key.as_str(), Json::encode(outcome).ok()).await {
                diagnose::value_refused(served, error);
            }
            running.claimed = None;
        }
        recorded.map(|(_, value)| value)
    }

    /// Claims an effect in the store. Waits while another claimant holds it.
    async fn claim(&self, store: &dyn OnceStore, key: &str) -> Result<Claim, ToolError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let now = self.served().shared.runtime().unix_time();
            let now = now.ok_or_else(|| ToolError::failed("there is no clock for the lease of an effect"))?;
            let lease = Lease::new(now, now.saturating_add(store.lease()));
            match store.claim(key, lease).await {
                Ok(Claim::Held) => self.sleep(pause).await?,
                Ok(claim) => return Ok(claim),
                Err(error) => return Err(ToolError::failed(format!("the effect cannot be claimed: {error}"))),
            }
            pause = pause.saturating_mul(2).min(MAX_PAUSE);
        }
    }
}

/// The time after which an effect that another claimant holds is claimed again. It doubles each time, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// An effect under way. Dropping it records the outcome.
struct Running<'a> {
    served: &'a ServedCall,
    name: &'a str,
    nth: u32,
    outcome: Option<Outcome>,
    /// The store that has granted its claim, until the outcome is recorded there.
    claimed: Option<(Arc<dyn OnceStore>, EffectKey)>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some((store, key)) = self.claimed.take() {
            let outcome = self.outcome.as_ref().and_then(|outcome| Json::encode(outcome).ok());
            self.served.shared.runtime().spawn(Box::pin(async move {
                // If it fails, the outcome is unknown once the lease is over.
                let _ = store.record(key.as_str(), outcome).await;
            }));
        }
        self.served.end_effect(self.name, self.nth, self.outcome.take());
    }
}

impl Outcome {
    /// The outcome to record for the error of an effect.
    fn of_error(error: &ToolError) -> Self {
        match error {
            ToolError::Rpc(error) => {
                Self::Error { code: error.code, message: error.message.to_string(), data: error.data.as_deref().cloned() }
            }
            other => Self::Failed(other.to_string()),
        }
    }

    /// The value of the effect, or its error.
    fn into_result(self) -> Result<Json, ToolError> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Failed(message) => Err(ToolError::failed(message)),
            Self::Error { code, message, data } => {
                let error = RpcError::new(code, message);
                Err(ToolError::Rpc(match data {
                    Some(data) => error.with_data(data),
                    None => error,
                }))
            }
        }
    }
}
