//! Completion of the arguments of prompts and the variables of resource templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::handler::{Handler, Needs, States};
use super::local::Answer;
use super::start::Start;
use crate::context::Context;
use crate::state::ServedCall;
use crate::tool_error::{Result, ToolError};
use protocol_core::dialect::{Completion, CompletionOf, CompletionRequest, Reply};

/// A handler of completions.
#[derive(Clone)]
pub(crate) struct Completer {
    /// The states that the handler takes.
    pub(crate) needs_states: Needs,
    run: Arc<dyn Fn(Context, States, CompletionRequest) -> Answer<Completion> + Send + Sync>,
}

impl Completer {
    pub(crate) fn new<M, H, Fut>(handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        let (needs_states, handler) = (Needs::of(handler.needs()), Arc::new(handler));
        let run = move |context, states, request| {
            let handler = Arc::clone(&handler);
            Answer::Shared(Box::pin(async move { handler.call(&context, &states, request)?.await }))
        };
        Self { needs_states, run: Arc::new(run) }
    }

    pub(crate) fn local<M, H, Fut>(handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + 'static,
    {
        let (needs_states, handler) = (Needs::of(handler.needs()), Arc::new(handler));
        let run = move |context, states, request| Answer::local(Arc::clone(&handler), context, states, request);
        Self { needs_states, run: Arc::new(run) }
    }

    pub(crate) fn start(&self, served: Arc<ServedCall>, service: &States, request: CompletionRequest) -> Start {
        let answer = (self.run)(Context::new(Arc::clone(&served)), self.needs_states.states(service).clone(), request);
        answer.start(served, |completion| completion.map_or_else(ToolError::into_error_reply, Reply::Completion))
    }
}

/// The completers of one prompt or template.
#[derive(Clone, Default)]
pub(crate) struct Completers {
    /// Those of single arguments, by name. The prompt or template takes their states.
    arguments: BTreeMap<String, Completer>,
    /// The name of the prompt in the service that it was made for, if it was merged into another.
    name: Option<String>,
    /// That of the service that the prompt or template was merged from, and the name of the prompt there.
    service: Option<(Completer, String)>,
}

impl Completers {
    pub(crate) fn add<M, H, Fut>(&mut self, argument: String, handler: H, needs: &mut Needs)
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        let completer = Completer::new(handler);
        needs.add(&completer.needs_states);
        self.arguments.insert(argument, completer);
    }

    /// The reason for which a prompt or template with these arguments or variables cannot have these completers.
    pub(crate) fn refusal<'a>(&self, kind: &str, has: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
        let unknown = self.arguments.keys().find(|name| !has.clone().any(|has| has == **name))?;
        let has: Vec<_> = has.map(|has| format!("`{has}`")).collect();
        let has = if has.is_empty() { String::from("none") } else { has.join(", ") };
        Some(format!("there is no {kind} `{unknown}` to complete, only {has}"))
    }

    /// Keeps the completer `service` of the service that the prompt or template leaves, where it is called `name`.
    pub(crate) fn keep(&mut self, service: Option<&Completer>, states: &States, name: &str) {
        self.name.get_or_insert_with(|| name.into());
        if let (None, Some(service)) = (&self.service, service) {
            let mut kept = service.clone();
            kept.needs_states.keep(states);
            self.service = Some((kept, name.into()));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.service.is_none()
    }

    /// The completer for `request`, and the request as the completer knows it.
    pub(crate) fn of(&self, mut request: CompletionRequest) -> (Option<&Completer>, CompletionRequest) {
        let own = self.arguments.get(&request.argument).map(|completer| (completer, self.name.as_ref()));
        let found = own.or_else(|| self.service.as_ref().map(|(completer, name)| (completer, Some(name))));
        if let (Some((_, Some(name))), CompletionOf::Prompt(asked)) = (found, &mut request.of) {
            asked.clone_from(name);
        }
        (found.map(|(completer, _)| completer), request)
    }
}
