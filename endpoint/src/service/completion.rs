//! Completion of the arguments of prompts and the variables of resource templates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::handler::{Handler, Needs, States};
use crate::context::Context;
use crate::tool_error::{Result, ToolError};
use protocol_core::dialect::{Completion, CompletionOf, CompletionRequest, Reply};
use protocol_core::error::RpcError;
use protocol_core::json::Json;

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
        let run = move |context, states, request| Answer::shared(Arc::clone(&handler), context, states, request);
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

    /// Calls the handler. `service` are the states of the service.
    pub(crate) fn answer(&self, context: Context, service: &States, request: CompletionRequest) -> Answer<Completion> {
        (self.run)(context, self.needs_states.states(service).clone(), request)
    }

    /// Calls the handler within the hooks around it, each time that the returned function is called, for what its arguments say of `of`.
    pub(crate) fn run_within(
        &self,
        service: &States,
        of: CompletionOf,
    ) -> impl Fn(Context, Json) -> Result<Answer<Completion>> + Send + Sync + use<> {
        let (completer, states) = (self.clone(), service.clone());
        move |context, arguments| {
            let HookArguments { argument, value, context: given } =
                arguments.decode().map_err(|error| RpcError::internal(format!("a hook has changed the arguments: {error}")))?;
            let mut request = CompletionRequest::new(of.clone(), argument, value);
            request.context = given.into_owned();
            Ok(completer.answer(context, &states, request))
        }
    }

    /// Converts what the handler returned into the reply.
    pub(crate) fn into_reply(completion: Result<Completion>) -> Reply {
        completion.map_or_else(ToolError::into_error_reply, Reply::Completion)
    }
}

/// What is completed, as hooks see it.
#[derive(Serialize, Deserialize)]
struct HookArguments<'a> {
    argument: Cow<'a, str>,
    value: Cow<'a, str>,
    #[serde(default)]
    context: Cow<'a, BTreeMap<String, String>>,
}

/// What is completed, as hooks see it.
pub(crate) fn hook_arguments(request: &CompletionRequest) -> Json {
    let (argument, value) = (Cow::Borrowed(&*request.argument), Cow::Borrowed(&*request.value));
    // Strings always have a JSON form.
    Json::encode(&HookArguments { argument, value, context: Cow::Borrowed(&request.context) }).unwrap_or_else(|_| Json::null())
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
