//! The ways in which a request is answered.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::sync::Arc;

use super::handler::States;
use crate::context::Context;
use crate::state::ServedCall;
use crate::tool_error::{Result, ToolError};
use engine::{BoxFuture, MakeLocal, Task};
use protocol_core::dialect::{Reply, ToolOutput};
use protocol_core::json::Json;

/// The way in which a request will be answered.
pub(crate) enum Start {
    /// At once.
    Reply(Reply),
    /// By a [`Task`].
    Task(BoxFuture<'static, ()>),
    /// By a handler that is polled once in place, and becomes a [`Task`] if it is pending.
    Inline(Arc<InPlace>, Context, States, Json),
    /// By a task whose future stays on one thread.
    Local(MakeLocal),
    /// By a blocking job.
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
}

impl Start {
    /// An answer by a task that runs `future`.
    pub(crate) fn task(served: Arc<ServedCall>, future: impl Future<Output = Reply> + Send + 'static) -> Self {
        Self::Task(Box::pin(Task::new(served, future)))
    }
}

/// Checks the arguments and polls the handler once. Returns its result, or the future to poll again if it is pending.
pub(crate) type InPlace = dyn Fn(Context, States, Json) -> Result<Result<ToolOutput>, Pending> + Send + Sync;

/// The future of a handler of a tool that was polled in place, and is pending.
pub(crate) type Pending = BoxFuture<'static, Result<ToolOutput>>;

/// The reply of a tool whose handler was pending.
pub(crate) struct PendingReply(pub(crate) Pending);

impl Future for PendingReply {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Reply> {
        self.0.as_mut().poll(cx).map(ToolError::tool_reply)
    }
}
