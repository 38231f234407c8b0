//! Effects of a handler that are not repeated when it runs again.

use core::fmt;
use core::future::poll_fn;
use core::pin::pin;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::rounds::{EffectMark, EffectStep, Outcome, is_in_effect};
use crate::service::ToolError;
use crate::state::{SealWait, ServedCall};
use protocol_core::error::RpcError;
use protocol_core::json::Json;

/// The key of an effect ([`Context::once`]): 43 letters, digits, `-` and `_`. An effect passes it as the idempotency key to the service that it
/// calls. The key is the same each time that the handler of one call runs the effect, in every process.
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
    /// **The effect runs at most once if the caller sends each request of the call once. It may run again if the caller repeats the first
    /// request, sends a state twice or sends an older state, if a response is lost, or if the process crashes.** So `effect` gets a key, for
    /// the service that it calls. The key is the same after an older state and after a lost response, but not after a repeated first request;
    /// use [`Context::once_sealed`] for that.
    ///
    /// Effects with the same name are distinguished by their order. `effect` must not make an input request or run another effect. While an
    /// effect is under way, the input requests of the handler wait for its end. A cancelled handler with an effect under way may go on for
    /// 30 s.
    ///
    /// If the caller made a handshake, a handler runs only once, and so does the effect.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the effect may have happened, and nothing is recorded.
    ///
    /// # Errors
    /// The error of `effect`; [`ToolError::Failed`] if its value cannot be serialized, if it is run within another effect, if another effect
    /// of this name is under way, or if the runtime has no random bytes for its key. [`ToolError::Cancelled`] once the call is over.
    pub async fn once<T, F, Fut>(&self, name: &str, effect: F) -> Result<T, ToolError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, ToolError>>,
    {
        self.effect(name, false, effect).await
    }

    /// Runs an effect as [`once`](Self::once) does, but never in the first request of a call in MCP 2026-07-28, whose key would differ if the
    /// caller repeated that request. The first request ends before the effect, with a state and no input request. The caller sends its request
    /// again with the state, without asking its user, and the effect runs in that retry, with the key of the state.
    ///
    /// # Cancel safety
    /// Not cancel safe, as [`once`](Self::once).
    ///
    /// # Errors
    /// As for [`once`](Self::once).
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
        let (served, key, nth) = loop {
            let served = self.served();
            match served.begin_effect(name, must_be_sealed) {
                None => return Err(ToolError::Cancelled),
                Some(EffectStep::Busy) => return Err(ToolError::failed(format!("the effect {name:?} is under way"))),
                Some(EffectStep::NoKey) => return Err(ToolError::failed("there are no random bytes for the key of an effect")),
                Some(EffectStep::NeedsRound) if served.is_blocking() => {
                    return Err(ToolError::failed("a blocking handler cannot wait for a sealed key in MCP 2026-07-28"));
                }
                Some(EffectStep::NeedsRound) => {
                    if !SealWait::new(served).await {
                        return Err(ToolError::Cancelled);
                    }
                }
                Some(EffectStep::Done(outcome)) => return Ok(outcome.into_result()?.decode()?),
                Some(EffectStep::Run { key, nth }) => break (served, EffectKey(key), nth),
            }
        };
        // No round ends while an effect is under way, so the handler serves the same call until its end.
        let mut running = Running { served, name, nth, outcome: None };
        let mut future = pin!(effect(key));
        let value = poll_fn(|cx| {
            let _marked = EffectMark::set(&**served);
            future.as_mut().poll(cx)
        })
        .await;
        let recorded = value.and_then(|value| Ok((Json::encode(&value)?, value)));
        running.outcome = Some(match &recorded {
            Ok((json, _)) => Outcome::Value(json.clone()),
            Err(error) => Outcome::of_error(error),
        });
        recorded.map(|(_, value)| value)
    }
}

/// An effect under way. Dropping it records the outcome.
struct Running<'a> {
    served: &'a ServedCall,
    name: &'a str,
    nth: u32,
    outcome: Option<Outcome>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.served.end_effect(self.name, self.nth, self.outcome.take());
    }
}

impl Outcome {
    /// Records the error of an effect.
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
