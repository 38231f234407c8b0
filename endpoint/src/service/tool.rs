//! A tool: a name, typed arguments, a handler.

use core::fmt;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::string::String;
use std::sync::Arc;
use std::task::Waker;

use serde::Serialize;

use crate::ask_failed::AskFailed;
use crate::context::Context;
use crate::schema::{Output, Shape};
use crate::service::Refused;
use crate::service::about::{About, about_builders};
use crate::service::answer::Answer;
use crate::service::elsewhere;
use crate::service::handler::{Handler, Needs, States};
use crate::service::hook::Hooks;
use crate::service::start::{InPlace, Pending, Start};
use crate::service::typed::{Arguments, Returns};
use crate::state::ServedCall;
use crate::tool_error::{Result, ToolError};
use protocol_core::config::RateWindow;
use protocol_core::dialect::{Capabilities, Reply, ToolOutput, tesseron};
use protocol_core::error::RpcError;
use protocol_core::http::header::ParamHeaders;
use protocol_core::json::write::Object;
use protocol_core::json::{Json, JsonError};
use protocol_core::mcp::tool_schema_fault;
use protocol_core::session::ServeOptions;

/// What a [`Refused`] calls a tool.
pub(super) const KIND: &str = "tool";

/// A tool, to be registered with [`Service::tool`](crate::Service::tool): a name, typed arguments and a handler.
///
/// Arguments are checked against the schema of their type before the handler runs. If they are not valid, the caller gets a result with
/// `isError` (on Tesseron the error -32004) that names up to five wrong fields with their errors, so that the model can try again. Missing
/// arguments and `null` are read as `{}`. A struct with named fields accepts no other members; `()` accepts none at all.
///
/// Arguments are an object, so their type is a struct with named fields, a map, `()`, an enum all of whose variants are read from objects,
/// or an `Option` of these, which is `None` if the arguments are missing, or empty although there is a required one. A tool with any other
/// type, such as a number, a list, a tuple or an enum of names, is refused when it is registered: make the type a field of a struct.
///
/// Without the feature `validate` the keywords of schemas that are derived are checked: types, required and unknown members, choices
/// (`enum`, `anyOf`, `oneOf`, `not`), ranges of numbers, lengths of lists and strings, unique elements, and integers as keys. A tool whose
/// schema has another keyword, such as `pattern`, is refused when it is registered ([`Service::try_tool`]).
///
/// [`Service::try_tool`]: crate::Service::try_tool
///
/// ```
/// use endpoint::{Context, Tool, ToolError};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Area { width: f64, height: f64 }
/// #[derive(serde::Serialize, schemars::JsonSchema)]
/// struct Size { area: f64 }
///
/// let tool = Tool::new("area", async |_context: Context, given: Area| {
///     if given.width < 0.0 {
///         return Err(ToolError::from("the width must not be negative"));
///     }
///     Ok(Size { area: given.width * given.height })
/// })
/// .description("The area of a rectangle")
/// .read_only();
/// # let _ = tool;
/// ```
#[derive(Clone)]
pub struct Tool {
    pub(crate) name: String,
    about: About,
    hints: Hints,
    input: Arc<Shape>,
    output: Option<Json>,
    /// The arguments that a client also sends as HTTP headers; `None` if there are none.
    headers: Option<Arc<ParamHeaders>>,
    pub(crate) options: ServeOptions,
    needs: Capabilities,
    inline: bool,
    /// The states that the handler takes.
    pub(crate) needs_states: Needs,
    /// The hooks of the services that the tool was merged from.
    pub(crate) hooks: Hooks,
    handler: Way,
}

/// The hints of a tool about its behaviour, for clients that trust the server (MCP `annotations`).
#[derive(Clone, Copy, Debug, Default)]
struct Hints {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
}

impl Hints {
    const fn members(self) -> [(&'static str, Option<bool>); 4] {
        [
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ]
    }
}

/// The handler, in each way in which it is started.
#[derive(Clone)]
pub(super) enum Way {
    Task {
        start: Arc<StartTask>,
        /// Runs the handler of a tool that is marked inline. Most of these handlers end in their first poll, so a task is allocated only
        /// for a handler that is pending after it.
        in_place: Arc<InPlace>,
    },
    /// The future of the handler stays on one thread.
    Local(Arc<RunLocal>),
    Blocking(Arc<RunBlocking>),
}

/// A tool's handler, ready to be started.
pub(crate) enum Run {
    Task(Arc<StartTask>),
    InPlace(Arc<InPlace>),
    Local(Arc<RunLocal>),
    Blocking(Arc<RunBlocking>),
}

impl Run {
    /// Begins to answer a call.
    pub(crate) fn start(self, served: Arc<ServedCall>, states: States, arguments: Json) -> Start {
        match self {
            Self::Task(start) => start(served, states, arguments),
            Self::InPlace(run) => Start::Inline(run, Context::new(served), states, arguments),
            Self::Local(run) => run(Context::new(Arc::clone(&served)), states, arguments).start(served, ToolError::tool_reply),
            Self::Blocking(run) => {
                let context = Context::new(served);
                Start::Blocking(Box::new(move || ToolError::tool_reply(run(context, states, arguments))))
            }
        }
    }
}

/// Makes the task that runs the handler and answers the call. The handler starts when the task is first polled.
pub(crate) type StartTask = dyn Fn(Arc<ServedCall>, States, Json) -> Start + Send + Sync;

/// Makes the future of a handler on the thread that runs it.
pub(crate) type RunLocal = dyn Fn(Context, States, Json) -> Answer<ToolOutput> + Send + Sync;

/// Runs a blocking handler to its end.
pub(crate) type RunBlocking = dyn Fn(Context, States, Json) -> Result<ToolOutput> + Send + Sync;

impl Tool {
    /// A tool with typed arguments and a typed result.
    ///
    /// The result is sent as structured content, and once more as a block of text with the same JSON. Structured content must be an object
    /// (MCP, server/tools, "Structured Content"), so a result of another type is wrapped: `7` becomes `{"result":7}`. A string is sent as
    /// text only, and `()` has no content. If the schema of `R` allows any value, only an object is sent as structured content, and any
    /// other value as text. The text is left out if the result would exceed the frame limit with it.
    ///
    /// The schemas of `A` and `R` are made once in a process and used for all tools with these types, so a [`JsonSchema`](schemars::JsonSchema) must not depend
    /// on anything that changes. For a schema that is known only at run time, use [`Tool::from_schema`].
    pub fn new<M, A, R, H, Fut>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        A: Arguments,
        R: Returns,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<R>> + Send + 'static,
    {
        let output = Output::of::<R>();
        let output_schema = output.schema().cloned();
        Self::task(name, output_schema, handler, move |value| typed(&output, value))
    }

    /// A tool with typed arguments whose handler builds its [`ToolOutput`] itself: several blocks of content, or no structured content.
    pub fn with_content<M, A, H, Fut>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        A: Arguments,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<ToolOutput>> + Send + 'static,
    {
        Self::task(name, None, handler, core::convert::identity)
    }

    /// A tool as [`Tool::new`] makes it, with a handler that may block. The handler runs on one of the runtime's threads for blocking code.
    /// If the call is cancelled, the handler can notice it ([`Context::is_cancelled`]), but it cannot be stopped from outside. In MCP
    /// 2026-07-28 the input requests of a blocking handler fail ([`AskFailed::Invalid`](crate::AskFailed::Invalid)): the answer comes with
    /// another request, and a blocking handler cannot be interrupted until that request.
    pub fn blocking<M, A, R, H>(name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        A: Arguments,
        R: Returns,
        H: Handler<M, A, Result<R>>,
    {
        let output = Output::of::<R>();
        let output_schema = output.schema().cloned();
        let input = Shape::arguments::<A>();
        let read = Arc::clone(&input);
        let needs = Needs::of(handler.needs());
        let run = move |context: Context, states: States, arguments: Json| match read.read(&arguments) {
            Ok(arguments) => typed(&output, handler.call(&context, &states, arguments)?),
            Err(errors) => Ok(invalid(&errors)),
        };
        Self::build(name.into(), input, output_schema, needs, Way::Blocking(Arc::new(run)))
    }

    /// A tool whose schema is known only at run time, for example because it is read from a file. The handler takes the arguments as JSON,
    /// checked against `schema`, and builds its [`ToolOutput`] itself. `schema` is sent to the peer byte for byte.
    ///
    /// ```
    /// use endpoint::{Context, Tool};
    /// use protocol_core::{Json, ToolOutput};
    ///
    /// let schema = Json::parse(r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#)?;
    /// let weather = Tool::from_schema("weather", schema, async |_: Context, arguments: Json| {
    ///     let city = arguments.member("city").and_then(|city| city.as_text()).unwrap_or_default();
    ///     Ok(ToolOutput::text(format!("It rains in {}", &*city)))
    /// })?;
    /// # drop(weather);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`] if `schema` is not a JSON Schema with `"type": "object"`, has a member in `properties` that is not an object (the
    /// official TypeScript client refuses a whole list with such a schema), or has an `x-mcp-header` that is not allowed. Its subschemas
    /// are validated only with the feature `validate`. Without it, a schema with a keyword that cannot be checked is refused when the tool
    /// is registered ([`Service::try_tool`](crate::Service::try_tool)).
    pub fn from_schema<M, H, Fut>(name: impl Into<String>, schema: Json, handler: H) -> Result<Self, Refused>
    where
        M: 'static,
        H: Handler<M, Json, Fut>,
        Fut: Future<Output = Result<ToolOutput>> + Send + 'static,
    {
        let name = name.into();
        let allowed = ParamHeaders::of_schema(&schema).map_err(|error| format!("has an annotation that is not allowed: {error}"));
        match allowed.and_then(|_| Shape::raw(schema)) {
            Ok(input) => Ok(Self::task_of(name, Arc::new(input), Shape::check, None, handler, core::convert::identity)),
            Err(fault) => Err(Refused { kind: KIND, name, reason: format!("the schema {fault}") }),
        }
    }

    fn task<M, A, R, H, Fut, I>(name: impl Into<String>, output_schema: Option<Json>, handler: H, into_output: I) -> Self
    where
        M: 'static,
        A: Arguments,
        R: 'static,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<R>> + Send + 'static,
        I: Fn(Result<R>) -> Result<ToolOutput> + Send + Sync + 'static,
    {
        Self::task_of(name.into(), Shape::arguments::<A>(), Shape::read::<A>, output_schema, handler, into_output)
    }

    /// Builds a tool. `read` checks and decodes the arguments; `into_output` converts the result of the handler.
    fn task_of<M, A, R, H, Fut, I>(
        name: String,
        input: Arc<Shape>,
        read: fn(&Shape, &Json) -> Result<A, String>,
        output_schema: Option<Json>,
        handler: H,
        into_output: I,
    ) -> Self
    where
        M: 'static,
        A: Send + 'static,
        R: 'static,
        H: Handler<M, A, Fut>,
        Fut: Future<Output = Result<R>> + Send + 'static,
        I: Fn(Result<R>) -> Result<ToolOutput> + Send + Sync + 'static,
    {
        let needs = Needs::of(handler.needs());
        let parts = Arc::new((Arc::clone(&input), handler, into_output));
        let parts_of_task = Arc::clone(&parts);
        let start = move |served: Arc<ServedCall>, states: States, arguments: Json| {
            let parts = Arc::clone(&parts_of_task);
            let context = Context::new(Arc::clone(&served));
            Start::task(served, async move {
                let (input, handler, into_output) = &*parts;
                ToolError::tool_reply(match read(input, &arguments) {
                    Ok(arguments) => match handler.call(&context, &states, arguments) {
                        Ok(future) => into_output(future.await),
                        Err(error) => Err(error),
                    },
                    Err(errors) => Ok(invalid(&errors)),
                })
            })
        };
        let in_place = move |context: Context, states: States, arguments: Json| -> Result<Result<ToolOutput>, Pending> {
            let (input, handler, into_output) = &*parts;
            let arguments = match read(input, &arguments) {
                Ok(arguments) => arguments,
                Err(errors) => return Ok(Ok(invalid(&errors))),
            };
            let mut future = match handler.call(&context, &states, arguments) {
                Ok(future) => Box::pin(future),
                Err(error) => return Ok(Err(error)),
            };
            // The no-op waker loses no wake: a pending future is polled again, with a real waker, as soon as it is in a task.
            match future.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(value) => {
                    // As after an `await`, the future is dropped before the result is serialized.
                    drop(future);
                    Ok(into_output(value))
                }
                Poll::Pending => {
                    let parts = Arc::clone(&parts);
                    Err(Box::pin(async move {
                        let (_, _, into_output) = &*parts;
                        into_output(future.await)
                    }))
                }
            }
        };
        Self::build(name, input, output_schema, needs, Way::Task { start: Arc::new(start), in_place: Arc::new(in_place) })
    }

    pub(super) fn build(name: String, input: Arc<Shape>, output: Option<Json>, needs_states: Needs, handler: Way) -> Self {
        let headers = ParamHeaders::of_schema(input.schema()).ok().filter(|headers| !headers.is_empty()).map(Arc::new);
        Self {
            name,
            about: About::default(),
            hints: Hints::default(),
            input,
            output,
            headers,
            options: ServeOptions::default(),
            needs: Capabilities::default(),
            inline: false,
            needs_states,
            hooks: Hooks::default(),
            handler,
        }
    }

    about_builders!(about);

    /// Sets the JSON Schema of the structured content ([`ToolOutput::structured`]) of a tool whose handler builds its [`ToolOutput`] itself.
    /// `schema` is sent to the peer byte for byte. What the handler returns is not checked against it here, but clients do: they take a
    /// result without structured content, or with other content than the schema says, for an error.
    ///
    /// # Errors
    /// [`Refused`] if `schema` is not a JSON Schema with `"type": "object"`, as for [`Tool::from_schema`]; and if the tool has a schema of
    /// its result already, which the type of the result gives.
    pub fn output_schema(mut self, schema: Json) -> Result<Self, Refused> {
        let fault = match self.output {
            Some(_) => Some(String::from("the schema of the result is given already, by its type or by an earlier call")),
            None => tool_schema_fault(schema.as_bytes()).map(|fault| format!("the schema of the result {fault}")),
        };
        match fault {
            Some(reason) => Err(Refused { kind: KIND, name: self.name, reason }),
            None => {
                self.output = Some(schema);
                Ok(self)
            }
        }
    }

    /// Marks the tool as read-only (MCP `readOnlyHint`): it does not modify its environment.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.hints.read_only = Some(true);
        self
    }

    /// Sets whether the tool may destroy something, rather than only add to it (MCP `destructiveHint`). Clients assume `true` by default.
    #[must_use]
    pub fn destructive(mut self, destructive: bool) -> Self {
        self.hints.destructive = Some(destructive);
        self
    }

    /// Marks the tool as idempotent (MCP `idempotentHint`): calling it again with the same arguments has no further effect.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.hints.idempotent = Some(true);
        self
    }

    /// Sets whether the tool interacts with the outside world, such as the web (MCP `openWorldHint`). Clients assume `true` by default.
    #[must_use]
    pub fn open_world(mut self, open_world: bool) -> Self {
        self.hints.open_world = Some(open_world);
        self
    }

    /// Sets the capabilities that a caller must have declared: sampling, elicitation, roots. Capabilities that only a server can have are
    /// ignored. If the caller lacks one of them, its call is refused before the handler runs: in MCP 2026-07-28 with the error -32021,
    /// otherwise as if the handler had returned the [`AskFailed`](crate::AskFailed) for the missing capability ([`AskFailed::NoSampling`]
    /// and so on).
    #[must_use]
    pub fn needs(mut self, capabilities: Capabilities) -> Self {
        self.needs = capabilities;
        self
    }

    /// The reply to a caller that has the capabilities `has`, if it lacks one that the tool needs.
    pub(crate) fn refuse_without(&self, has: Capabilities, is_stateless: bool) -> Option<Reply> {
        let needs = self.needs;
        let failed = match () {
            () if needs.sampling && !has.sampling => AskFailed::NoSampling,
            () if needs.sampling_tools && !has.sampling_tools => AskFailed::NoSampling,
            () if needs.elicitation && !has.elicitation => AskFailed::NoElicitation,
            () if needs.elicitation_url && !has.elicitation_url => AskFailed::NoUrlElicitation,
            () if needs.roots && !has.roots => AskFailed::NoRoots,
            () => return None,
        };
        Some(match is_stateless {
            true => Reply::Error(failed.missing(&needs)),
            false => ToolError::tool_reply(Err(ToolError::Ask(failed))),
        })
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

    /// Runs the handler without a task of its own: the task that drives the endpoint polls it once, and moves it to a new task only if it
    /// is still pending. For quick handlers; a slow one delays everything else on the connection. No effect on [`Tool::blocking`].
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// The handler, with the way in which it is to be run.
    pub(crate) fn run(&self) -> Run {
        match &self.handler {
            Way::Task { in_place, .. } if self.is_inline() => Run::InPlace(Arc::clone(in_place)),
            Way::Task { start, .. } => Run::Task(Arc::clone(start)),
            Way::Local(run) => Run::Local(Arc::clone(run)),
            Way::Blocking(run) => Run::Blocking(Arc::clone(run)),
        }
    }

    /// Calls the handler within the hooks around it, each time that the returned function is called.
    pub(crate) fn run_within(&self, states: States) -> impl Fn(Context, Json) -> Result<Answer<ToolOutput>> + Send + Sync + use<> {
        let way = self.handler.clone();
        move |context: Context, arguments| {
            let states = states.clone();
            Ok(match &way {
                Way::Task { in_place, .. } => Answer::Shared(match in_place(context, states, arguments) {
                    Ok(output) => Box::pin(core::future::ready(output)),
                    Err(pending) => pending,
                }),
                Way::Local(run) => run(context, states, arguments),
                Way::Blocking(run) => {
                    let (run, served) = (Arc::clone(run), Arc::clone(context.served()));
                    served.note_blocking();
                    Answer::Shared(Box::pin(elsewhere::blocking(&served, move || run(context, states, arguments))))
                }
            })
        }
    }

    /// Returns `true` if the handler is to be polled once in place.
    pub(crate) const fn is_inline(&self) -> bool {
        self.inline && matches!(self.handler, Way::Task { .. })
    }

    pub(crate) fn param_headers(&self) -> Option<&Arc<ParamHeaders>> {
        self.headers.as_ref()
    }

    /// The reason for which the tool cannot be registered.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.input.refusal()
    }

    /// The tool as `tools/list` describes it.
    pub(crate) fn describe(&self) -> Json {
        Object::value(|object| {
            object.string("name", &self.name);
            self.about.write_words(object);
            object.json("inputSchema", self.input.schema());
            if let Some(output) = &self.output {
                object.json("outputSchema", output);
            }
            let hints = self.hints.members();
            if hints.iter().any(|(_, hint)| hint.is_some()) {
                object.object("annotations", |object| {
                    for (name, hint) in hints {
                        if let Some(hint) = hint {
                            object.boolean(name, hint);
                        }
                    }
                });
            }
            self.about.write_rest(object);
        })
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The output for the typed result of a handler.
pub(super) fn typed<R: Serialize + 'static>(output: &Output, value: Result<R>) -> Result<ToolOutput> {
    let not_serializable = |error: JsonError| ToolError::Rpc(RpcError::internal(format!("the result cannot be sent: {error}")));
    output.to_tool_output(value?).map_err(not_serializable)
}

/// The output of a call whose arguments are not valid.
pub(super) fn invalid(errors: &str) -> ToolOutput {
    #[derive(Serialize)]
    struct Issue<'a> {
        message: &'a str,
    }
    let mut error = RpcError::new(tesseron::code::INPUT_VALIDATION, format!("invalid arguments: {errors}"));
    error.data = Json::encode(&[Issue { message: errors }]).ok().map(Box::new);
    // The error is sent on Tesseron. MCP gets a result with its message.
    ToolOutput::rpc_error(error)
}
