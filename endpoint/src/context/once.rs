//! Effects of a handler, which are not repeated when the handler runs again.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use crate::state::rounds::{EffectKey, run_effect};
use crate::tool_error::ToolError;

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
        run_effect(self.served(), name, false, effect).await
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
        run_effect(self.served(), name, true, effect).await
    }
}
