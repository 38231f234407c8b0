//! The answer of a handler, by a future that runs in a task or stays on one thread.

use std::sync::Arc;

use super::elsewhere;
use super::handler::{Handler, States};
use super::start::Start;
use crate::context::Context;
use crate::state::ServedCall;
use crate::tool_error::Result;
use engine::{BoxFuture, LocalBoxFuture, local_task};
use protocol_core::dialect::Reply;
use protocol_core::error::RpcError;

/// Why a handler whose future is not `Send` did not run.
pub(super) const NO_LOCAL: &str = "the future of this handler is not `Send`, and the runtime of the server did not run it: it runs none \
                                   (see `Runtime::spawn_local`), or it is shutting down";

/// The future of a handler, or what makes one that stays on the thread where it is made.
pub(crate) enum Answer<T> {
    Shared(BoxFuture<'static, Result<T>>),
    Local(Box<dyn FnOnce() -> LocalBoxFuture<'static, Result<T>> + Send>),
}

impl<T: 'static> Answer<T> {
    /// Calls a handler.
    pub(crate) fn shared<M, A, H, Fut>(handler: Arc<H>, context: Context, states: States, arguments: A) -> Self
    where
        M: 'static,
        A: Send + 'static,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        Self::Shared(Box::pin(async move { handler.call(&context, &states, arguments)?.await }))
    }

    /// Calls a handler whose future is not `Send`, on the thread that will run it.
    pub(crate) fn local<M, A, H, Fut>(handler: Arc<H>, context: Context, states: States, arguments: A) -> Self
    where
        M: 'static,
        A: Send + 'static,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<T>> + 'static,
    {
        Self::Local(Box::new(move || Box::pin(async move { handler.call(&context, &states, arguments)?.await })))
    }

    /// Begins to answer a request. `into_reply` converts the result of the handler.
    pub(crate) fn start(self, served: Arc<ServedCall>, into_reply: impl FnOnce(Result<T>) -> Reply + Send + 'static) -> Start {
        match self {
            Self::Shared(future) => Start::task(served, async move { into_reply(future.await) }),
            Self::Local(make) => {
                let refusal = Reply::Error(RpcError::fixed(RpcError::INTERNAL, NO_LOCAL));
                Start::Local(local_task(served, move || async move { into_reply(make().await) }, refusal))
            }
        }
    }

    /// The answer as a part of another future that serves `served`.
    pub(crate) fn within(self, served: &Arc<ServedCall>) -> BoxFuture<'static, Result<T>>
    where
        T: Send,
    {
        match self {
            Self::Shared(future) => future,
            Self::Local(make) => {
                let refusal = RpcError::fixed(RpcError::INTERNAL, NO_LOCAL);
                Box::pin(elsewhere::local(served, make, refusal.into()))
            }
        }
    }
}
