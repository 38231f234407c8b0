//! Completion of the arguments of prompts and the variables of resource templates.

use std::sync::Arc;

use super::handler::{Handler, Need, States};
use crate::context::Context;
use crate::tool_error::{Result, ToolError};
use engine::BoxFuture;
use protocol_core::dialect::{Completion, CompletionRequest, Reply};

/// The handler of completions.
#[derive(Clone)]
pub(crate) struct Completer {
    /// The types of the states that the handler takes.
    pub(crate) needs_states: Vec<Need>,
    run: Arc<dyn Fn(Context, States, CompletionRequest) -> BoxFuture<'static, Result<Completion>> + Send + Sync>,
}

impl Completer {
    pub(crate) fn new<M, H, Fut>(handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        let (needs_states, handler) = (handler.needs(), Arc::new(handler));
        let run = move |context, states, request| -> BoxFuture<'static, Result<Completion>> {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler.call(&context, &states, request)?.await })
        };
        Self { needs_states, run: Arc::new(run) }
    }

    pub(crate) fn start(
        &self,
        context: Context,
        states: &States,
        request: CompletionRequest,
    ) -> impl Future<Output = Reply> + use<> {
        let (run, states) = (Arc::clone(&self.run), states.clone());
        async move { run(context, states, request).await.map_or_else(ToolError::into_error_reply, Reply::Completion) }
    }
}
