//! Prompts: templates of messages for a model, which a user chooses by name.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::Answer;
use super::completion::Completers;
use super::handler::{Handler, Needs, States};
use super::hook::Hooks;
use super::typed::Arguments;
use crate::context::Context;
use crate::prompt_output::PromptOutput;
use crate::service::about::{About, about_builders, write_words};
use crate::text_shape::{TextField, TextShape};
use crate::tool_error::{Result, ToolError};
use protocol_core::config::RateWindow;
use protocol_core::dialect::{Completion, CompletionRequest, Reply};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::json::write::Object;
use protocol_core::session::ServeOptions;

type Run = dyn Fn(Context, States, BTreeMap<String, String>) -> Answer<PromptOutput> + Send + Sync;

/// What a [`Refused`](super::Refused) calls a prompt.
pub(super) const KIND: &str = "prompt";

/// A prompt, to be registered with [`Service::prompt`](crate::Service::prompt). Its handler may run for long: with its [`Context`] it can
/// report progress and be cancelled, like the handler of a tool.
#[derive(Clone)]
pub struct Prompt {
    pub(crate) name: String,
    about: About,
    arguments: Vec<PromptArgument>,
    /// The reason for which the prompt cannot be registered.
    refusal: Option<String>,
    pub(crate) options: ServeOptions,
    /// The states that the handler takes.
    pub(crate) needs_states: Needs,
    /// The hooks of the services that it was merged from.
    pub(crate) hooks: Hooks,
    pub(crate) completers: Completers,
    handler: Arc<Run>,
}

#[derive(Clone, Debug)]
struct PromptArgument {
    name: String,
    title: Option<String>,
    description: Option<String>,
    required: bool,
}

impl PromptArgument {
    fn write(&self, object: &mut Object<'_>) {
        object.string("name", &self.name);
        write_words(object, self.title.as_deref(), self.description.as_deref());
        object.boolean("required", self.required);
    }

    fn of_field(field: TextField<'_>) -> Self {
        Self { name: field.name.into(), title: field.title, description: field.description, required: field.required }
    }
}

impl Prompt {
    /// A prompt without arguments; [`Prompt::argument`] adds some.
    pub fn new<M, H, Fut>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, BTreeMap<String, String>, Fut>,
        Fut: Future<Output = Result<PromptOutput>> + Send + 'static,
    {
        let (needs, handler) = (Needs::of(handler.needs()), Arc::new(handler));
        Self::build(name.into(), needs, move |context, states, arguments| {
            Answer::shared(Arc::clone(&handler), context, states, arguments)
        })
    }

    /// As [`Prompt::new`], but the future of the handler need not be `Send`; see [`Tool::local`](crate::Tool::local).
    pub fn local<M, H, Fut>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, BTreeMap<String, String>, Fut>,
        Fut: Future<Output = Result<PromptOutput>> + 'static,
    {
        let (needs, handler) = (Needs::of(handler.needs()), Arc::new(handler));
        Self::build(name.into(), needs, move |context, states, arguments| {
            Answer::local(Arc::clone(&handler), context, states, arguments)
        })
    }

    /// A prompt whose arguments are the fields of a struct. The doc comment of a field is the description of its argument; an `Option` is
    /// an argument that is not required.
    ///
    /// On the wire every argument is a string. If the field has another type, the string is parsed as JSON, so `"3"` is a number and
    /// `"true"` a boolean. Arguments are checked against the schema of the type before the handler runs; the error for arguments that are
    /// not valid is -32602 and names up to five wrong arguments with their errors.
    ///
    /// ```
    /// use endpoint::{Context, Prompt, PromptMessage, PromptOutput};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Review {
    ///     /// The text to be reviewed
    ///     text: String,
    ///     /// The maximum number of remarks
    ///     remarks: Option<u8>,
    /// }
    ///
    /// let review = Prompt::typed("review", async |_: Context, given: Review| {
    ///     let max = given.remarks.unwrap_or(5);
    ///     Ok(PromptOutput::new([PromptMessage::user(format!("Make at most {max} remarks on this text: {}", given.text))]))
    /// });
    /// # drop(review);
    /// ```
    pub fn typed<M, A, H, Fut>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        A: Arguments,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<PromptOutput>> + Send + 'static,
    {
        let shape = TextShape::of::<A>();
        let (arguments, refusal) = (shape.fields().map(PromptArgument::of_field).collect(), shape.refusal());
        let needs = Needs::of(handler.needs());
        let parts = Arc::new((shape, handler));
        let prompt = Self::build(name.into(), needs, move |context, states, arguments| {
            let parts = Arc::clone(&parts);
            Answer::Shared(Box::pin(async move {
                let (shape, handler) = &*parts;
                match shape.read(arguments) {
                    Ok(arguments) => handler.call(&context, &states, arguments)?.await,
                    Err(errors) => Err(RpcError::invalid_params(errors).into()),
                }
            }))
        });
        Self { arguments, refusal, ..prompt }
    }

    fn build(
        name: String,
        needs_states: Needs,
        handler: impl Fn(Context, States, BTreeMap<String, String>) -> Answer<PromptOutput> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            about: About::default(),
            arguments: Vec::new(),
            refusal: None,
            options: ServeOptions::default(),
            needs_states,
            hooks: Hooks::default(),
            completers: Completers::default(),
            handler: Arc::new(handler),
        }
    }

    about_builders!(about);

    /// Adds an argument. If it is `required`, a request without it is answered with the error -32602, and the handler does not run.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>, required: bool) -> Self {
        let (name, description) = (name.into(), Some(description.into()));
        self.arguments.push(PromptArgument { name, title: None, description, required });
        self
    }

    /// Sets the handler that completes an argument (MCP `completion/complete`), instead of
    /// [`Service::completion`](crate::Service::completion). A prompt without this argument is refused when it is registered.
    #[must_use]
    pub fn complete<M, H, Fut>(mut self, argument: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        self.completers.add(argument.into(), handler, &mut self.needs_states);
        self
    }

    /// Sets the time limit of a call, counted from the receipt of its request. Overrides the session's default
    /// ([`Timeouts::serve`](protocol_core::Timeouts::serve)).
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options = self.options.with_deadline(deadline);
        self
    }

    /// Sets the rate at which a call may send progress. Overrides the session's default.
    #[must_use]
    pub fn rate_window(mut self, window: RateWindow) -> Self {
        self.options = self.options.with_window(window);
        self
    }

    /// The reason for which the prompt cannot be registered.
    pub(crate) fn refusal(&self) -> Option<String> {
        let arguments = || self.arguments.iter().map(|argument| &*argument.name);
        self.refusal.clone().or_else(|| self.completers.refusal("argument", arguments()))
    }

    pub(crate) fn describe(&self) -> Json {
        Object::value(|object| {
            object.string("name", &self.name);
            self.about.write_words(object);
            if !self.arguments.is_empty() {
                object.array("arguments", &self.arguments, |out, argument| Object::write(out, |object| argument.write(object)));
            }
            self.about.write_rest(object);
        })
    }

    /// Calls the handler, or returns the error if an argument is not a string, or a required one is missing.
    pub(crate) fn answer(
        &self,
        context: Context,
        states: States,
        arguments: Option<&Json>,
    ) -> Result<Answer<PromptOutput>, RpcError> {
        let arguments: BTreeMap<String, String> = match arguments {
            None => BTreeMap::new(),
            Some(given) => given
                .decode::<Option<BTreeMap<String, String>>>()
                .map_err(|_| RpcError::invalid_params("the arguments of a prompt are an object of strings"))?
                .unwrap_or_default(),
        };
        if let Some(missing) = self.arguments.iter().find(|argument| argument.required && !arguments.contains_key(&argument.name)) {
            let message = format!("missing argument {:?} of prompt {:?}", missing.name, self.name);
            return Err(RpcError::invalid_params(message));
        }
        Ok((self.handler)(context, states, arguments))
    }

    /// Converts what the handler returned into the reply.
    pub(crate) fn into_reply(output: Result<PromptOutput>) -> Reply {
        let encoded = output.and_then(|output| Ok(Json::encode(&output)?));
        encoded.map_or_else(ToolError::into_error_reply, Reply::Raw)
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt").field("name", &self.name).finish_non_exhaustive()
    }
}
