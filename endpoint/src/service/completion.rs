//! Completion of the arguments of prompts and the variables of resource templates.

use std::sync::Arc;

use super::handler::{Handler, Needs, States};
use crate::context::Context;
use crate::tool_error::{Result, ToolError};
use engine::BoxFuture;
use protocol_core::dialect::{Completion, CompletionOf, CompletionRequest, Reply};

/// The handler of completions.
#[derive(Clone)]
pub(crate) struct Completer {
    /// The states that the handler takes.
    pub(crate) needs_states: Needs,
    /// The name of the prompt in the service that it was merged from.
    name: Option<String>,
    run: Arc<dyn Fn(Context, States, CompletionRequest) -> BoxFuture<'static, Result<Completion>> + Send + Sync>,
}

impl Completer {
    pub(crate) fn new<M, H, Fut>(handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        let (needs_states, handler) = (Needs::of(handler.needs()), Arc::new(handler));
        let run = move |context, states, request| -> BoxFuture<'static, Result<Completion>> {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler.call(&context, &states, request)?.await })
        };
        Self { needs_states, name: None, run: Arc::new(run) }
    }

    /// The completer of a prompt or a template that leaves the service with these states.
    pub(crate) fn kept(&self, states: &States, name: &str) -> Self {
        let mut kept = Self { name: Some(name.into()), ..self.clone() };
        kept.needs_states.keep(states);
        kept
    }

    pub(crate) fn start(
        &self,
        context: Context,
        service: &States,
        mut request: CompletionRequest,
    ) -> impl Future<Output = Reply> + use<> {
        if let (Some(name), CompletionOf::Prompt(asked)) = (&self.name, &mut request.of) {
            asked.clone_from(name);
        }
        let (run, states) = (Arc::clone(&self.run), self.needs_states.states(service).clone());
        async move { run(context, states, request).await.map_or_else(ToolError::into_error_reply, Reply::Completion) }
    }
}
