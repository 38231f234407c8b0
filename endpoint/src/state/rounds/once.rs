//! Runs effects of a handler, which are not repeated when the handler runs again.

use core::fmt;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::effect_mark::{EffectMark, is_in_effect};
use super::log::{EffectStep, Outcome};
use super::store::{Claim, Lease, OnceStore};
use crate::state::{ServedCall, diagnose};
use crate::tool_error::ToolError;
use protocol_core::error::RpcError;
use protocol_core::json::Json;

/// The key of an effect ([`Context::once`](crate::Context::once)): 43 letters, digits, `-` and `_`. An effect passes it, as the idempotency key, to the remote
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

/// Runs an effect of the handler of `served`, unless its outcome is in the log of the call or in the store, and records its outcome; see
/// [`Context::once`](crate::Context::once) and, for `must_be_sealed`, [`Context::once_sealed`](crate::Context::once_sealed).
pub(crate) async fn run_effect<T, F, Fut>(
    served: &Arc<ServedCall>,
    name: &str,
    must_be_sealed: bool,
    effect: F,
) -> Result<T, ToolError>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(EffectKey) -> Fut,
    Fut: Future<Output = Result<T, ToolError>>,
{
    if is_in_effect(&**served) {
        return Err(ToolError::failed("an effect cannot run within another effect"));
    }
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
        match claim(served, &*store, key.as_str()).await? {
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
async fn claim(served: &Arc<ServedCall>, store: &dyn OnceStore, key: &str) -> Result<Claim, ToolError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let now = served.shared.runtime().unix_time();
        let now = now.ok_or_else(|| ToolError::failed("there is no clock for the lease of an effect"))?;
        let lease = Lease::new(now, now.saturating_add(store.lease()));
        match store.claim(key, lease).await {
            Ok(Claim::Held) => pause_of(served, pause).await?,
            Ok(claim) => return Ok(claim),
            Err(error) => return Err(ToolError::failed(format!("the effect cannot be claimed: {error}"))),
        }
        pause = pause.saturating_mul(2).min(MAX_PAUSE);
    }
}

/// Waits for `span`, unless the call is cancelled.
async fn pause_of(served: &Arc<ServedCall>, span: Duration) -> Result<(), ToolError> {
    let (mut cancelled, mut alarm) = (served.cancelled(), served.alarm(span));
    poll_fn(|cx| {
        if Pin::new(&mut cancelled).poll(cx).is_ready() {
            return Poll::Ready(Err(ToolError::Cancelled));
        }
        // If the endpoint was dropped meanwhile, the call was cancelled.
        Pin::new(&mut alarm).poll(cx).map(|elapsed| if elapsed { Ok(()) } else { Err(ToolError::Cancelled) })
    })
    .await
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
