//! Handlers whose futures are not `Send`, and so stay on one thread.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::Answer;
use super::handler::{Handler, Needs, States};
use super::tool::{Tool, Way, invalid, typed};
use crate::context::Context;
use crate::schema::{Output, Shape};
use crate::tool_error::Result;
use protocol_core::json::Json;

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
        let answer = move |context: Context, states: States, arguments: Json| {
            let parts = Arc::clone(&parts);
            Answer::Local(Box::new(move || {
                Box::pin(async move {
                    let (input, handler, output) = &*parts;
                    match input.read(&arguments) {
                        Ok(arguments) => typed(output, handler.call(&context, &states, arguments)?.await),
                        Err(errors) => Ok(invalid(&errors)),
                    }
                })
            }))
        };
        Self::build(name.into(), input, output_schema, needs, Way::Local(Arc::new(answer)))
    }
}
