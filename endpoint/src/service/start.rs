//! The ways in which a request is answered.

use std::sync::Arc;

use super::handler::States;
use crate::context::Context;
use crate::state::ServedCall;
use engine::{BoxFuture, MakeLocal, Task};
use protocol_core::dialect::Reply;
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

/// Checks the arguments and polls the handler once. Returns its reply, or the future to poll again if it is pending.
pub(crate) type InPlace = dyn Fn(Context, States, Json) -> Result<Reply, BoxFuture<'static, Reply>> + Send + Sync;
