//! Handlers whose futures are not `Send`, and so stay on one thread.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handler::{Handler, Needs, States};
use super::start::Start;
use super::tool::{Tool, Way, invalid, typed};
use crate::context::Context;
use crate::schema::{Output, Shape};
use crate::state::ServedCall;
use crate::tool_error::Result;
use engine::{BoxFuture, LocalBoxFuture, local_task};
use protocol_core::dialect::Reply;
use protocol_core::error::RpcError;
use protocol_core::json::Json;

/// The future of a handler, or what makes one that stays on the thread where it is made.
pub(crate) enum Answer<T> {
    Shared(BoxFuture<'static, Result<T>>),
    Local(Box<dyn FnOnce() -> LocalBoxFuture<'static, Result<T>> + Send>),
}

impl<T: 'static> Answer<T> {
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
            Self::Local(make) => start(served, move || async move { into_reply(make().await) }),
        }
    }
}

/// An answer by a future that `make` makes on the thread that runs it.
fn start<F: Future<Output = Reply> + 'static>(served: Arc<ServedCall>, make: impl FnOnce() -> F + Send + 'static) -> Start {
    let why = "the future of this handler is not `Send`, and the runtime of the server did not run it: it runs none (see \
               `Runtime::spawn_local`), or it is shutting down";
    Start::Local(local_task(served, make, Reply::Error(RpcError::fixed(RpcError::INTERNAL, why))))
}

impl Tool {
    /// A tool as [`Tool::new`] makes it, but the future of the handler need not be `Send`: it may hold an `Rc` or a guard of a `RefCell`
    /// across an `.await`, and stays on one thread. The handler itself is `Send` and `Sync`; a value that is not, such as the handle of a
    /// browser, may be in a `thread_local!` of that thread.
    ///
    /// The tool needs a runtime that runs such futures: [`LocalRuntime`](engine::LocalRuntime) adds them to any other. On a runtime that
    /// runs none, a call is answered with the error -32603, which says so. [`Tool::inline`] has no effect.
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// use endpoint::{Context, Tool};
    /// use protocol_core::Progress;
    ///
    /// let tool = Tool::local("count", async |context: Context, ()| {
    ///     let seen = Rc::new(7);
    ///     context.progress(Progress::step(1, 2));
    ///     core::future::ready(()).await;
    ///     Ok(*seen)
    /// });
    /// # drop(tool);
    /// ```
    pub fn local<M, A, R, H, Fut>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<R>> + 'static,
    {
        let (output, input, needs) = (Output::of::<R>(), Shape::arguments::<A>(), Needs::of(handler.needs()));
        let output_schema = output.schema().cloned();
        let parts = Arc::new((Arc::clone(&input), handler, output));
        let begin = move |served: Arc<ServedCall>, states: States, arguments: Json| {
            let (parts, context) = (Arc::clone(&parts), Context::new(Arc::clone(&served)));
            start(served, move || async move {
                let (input, handler, output) = &*parts;
                match input.read(&arguments) {
                    Ok(arguments) => match handler.call(&context, &states, arguments) {
                        Ok(future) => typed(output, future.await),
                        Err(error) => typed::<R>(output, Err(error)),
                    },
                    Err(errors) => invalid(&errors),
                }
            })
        };
        Self::build(name.into(), input, output_schema, needs, Way::Local(Arc::new(begin)))
    }
}
