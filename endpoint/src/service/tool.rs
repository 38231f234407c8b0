//! A tool: a name, typed arguments, a handler.

use core::fmt;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::borrow::Cow;
use std::string::{String, ToString as _};
use std::sync::Arc;
use std::task::Waker;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Cancelled, Context, TimeoutError};
use crate::schema::{Output, Shape};
use crate::service::SchemaInvalid;
use crate::state::{AskFailed, Invocation};
use engine::BoxFuture;
use engine::Task;
use protocol_core::config::RateWindow;
use protocol_core::dialect::{NotFound, OpenUrl, Reply, ToolOutput, tesseron};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, JsonError, Text};
use protocol_core::session::ServeOptions;

/// A tool to be registered with [`Service::tool`](crate::Service::tool).
///
/// The arguments are checked against the schema of their type before the handler runs. What fails is a result that says
/// which field is wrong and how, so that the model can try again. Arguments that are missing or `null` are read as `{}`; a struct of
/// named fields takes no others; `()` takes none at all.
///
/// Without the feature `validate`, types, required and unknown members, choices, bounds of numbers and lengths of lists are checked; a
/// schema with other rules, such as `pattern` or `uniqueItems`, is refused when the tool is registered ([`Service::try_tool`]).
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
///         return Err(ToolError::from("a width is not negative"));
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
    title: Option<String>,
    description: Option<String>,
    hints: Hints,
    input: Arc<Shape>,
    output: Option<Json>,
    pub(crate) options: ServeOptions,
    pub(crate) inline: bool,
    pub(crate) handler: Handler,
}

/// The promises of a tool to clients that trust the server (MCP `annotations`).
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hints {
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destructive_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_world_hint: Option<bool>,
}

impl Hints {
    const fn is_empty(&self) -> bool {
        self.read_only_hint.is_none()
            && self.destructive_hint.is_none()
            && self.idempotent_hint.is_none()
            && self.open_world_hint.is_none()
    }
}

/// The way in which a tool runs.
#[derive(Clone)]
pub(crate) enum Handler {
    Task {
        /// A task that owes the answer. Nothing begins before it is polled.
        start: Arc<dyn Fn(Arc<Invocation>, Json) -> BoxFuture<'static, ()> + Send + Sync>,
        /// For one that is marked inline: most of those have ended at once, and what only a task needs is not made for them.
        in_place: Arc<InPlace>,
    },
    Blocking(Arc<dyn Fn(Context, Json) -> Reply + Send + Sync>),
}

/// Runs a handler where it stands until it waits for something; then gives what is left, to be polled again.
pub(crate) type InPlace = dyn Fn(Context, Json) -> Result<Reply, BoxFuture<'static, Reply>> + Send + Sync;

impl Tool {
    /// A tool with typed arguments and a typed result.
    ///
    /// The result becomes structured content and the same JSON as one block of text; one whose JSON is no object is the member
    /// `result` of one. `()` becomes no content at all.
    pub fn new<A, R, F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + Send + 'static,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let output = Arc::new(Output::of::<R>());
        let told = output.schema().cloned();
        Self::task(name, told, handler, move |value| typed(&output, value))
    }

    /// A tool with typed arguments that shapes its result itself: several blocks of content, or none of it structured.
    pub fn with_output<A, F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        Self::task(name, None, handler, ToolError::settle)
    }

    /// Like [`Tool::new`], for a handler that blocks its thread. It runs on the runtime's blocking threads. A cancelled one is told
    /// ([`Context::is_cancelled`]); it cannot be dropped.
    pub fn blocking<A, R, F>(name: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + Send + 'static,
        F: Fn(Context, A) -> Result<R, ToolError> + Send + Sync + 'static,
    {
        let output = Output::of::<R>();
        let told = output.schema().cloned();
        let input = Arc::new(Shape::arguments::<A>());
        let read = Arc::clone(&input);
        let run = move |context: Context, arguments: Json| match read.read(&arguments) {
            Ok(arguments) => typed(&output, handler(context, arguments)),
            Err(violations) => invalid(&violations),
        };
        Self::build(name.into(), input, told, Handler::Blocking(Arc::new(run)))
    }

    /// A tool whose schema is known at run time only, as one that is read from a file or passed on from elsewhere. The handler is given the
    /// arguments as JSON, checked against `schema`, and shapes its result itself. `schema` is sent to the peer word for word.
    ///
    /// ```
    /// use endpoint::{Context, Tool};
    /// use protocol_core::{Json, ToolOutput};
    ///
    /// let schema = Json::parse(r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#)?;
    /// let weather = Tool::raw("weather", schema, async |_: Context, arguments: Json| {
    ///     let city = arguments.member("city").and_then(|city| city.as_text()).unwrap_or_default();
    ///     Ok(ToolOutput::text(format!("It rains in {}", &*city)))
    /// })?;
    /// # drop(weather);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SchemaInvalid`] if `schema` is no JSON Schema of an object (`"type": "object"`); its subschemas are looked at with the feature
    /// `validate` alone. A schema with rules that are not checked is refused when the tool is registered
    /// ([`Service::try_tool`](crate::Service::try_tool)).
    pub fn raw<F, Fut>(name: impl Into<String>, schema: Json, handler: F) -> Result<Self, SchemaInvalid>
    where
        F: Fn(Context, Json) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let name = name.into();
        match Shape::raw(schema) {
            Ok(input) => Ok(Self::task_of(name, input, Shape::check, None, handler, ToolError::settle)),
            Err(reason) => Err(SchemaInvalid { tool: name, reason }),
        }
    }

    fn task<A, R, F, Fut, S>(name: impl Into<String>, told: Option<Json>, handler: F, shape: S) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: 'static,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
        S: Fn(Result<R, ToolError>) -> Reply + Send + Sync + 'static,
    {
        Self::task_of(name.into(), Shape::arguments::<A>(), Shape::read::<A>, told, handler, shape)
    }

    /// A tool whose arguments `read` checks and reads, and whose result `shape` makes the reply of.
    fn task_of<A, R, F, Fut, S>(
        name: String,
        input: Shape,
        read: fn(&Shape, &Json) -> Result<A, String>,
        told: Option<Json>,
        handler: F,
        shape: S,
    ) -> Self
    where
        A: Send + 'static,
        R: 'static,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
        S: Fn(Result<R, ToolError>) -> Reply + Send + Sync + 'static,
    {
        let input = Arc::new(input);
        let parts = Arc::new((Arc::clone(&input), handler, shape));
        let later = Arc::clone(&parts);
        let start = move |invocation: Arc<Invocation>, arguments: Json| -> BoxFuture<'static, ()> {
            let parts = Arc::clone(&later);
            let context = Context::new(Arc::clone(&invocation));
            Box::pin(Task::new(invocation, async move {
                let (input, handler, shape) = &*parts;
                match read(input, &arguments) {
                    Ok(arguments) => shape(handler(context, arguments).await),
                    Err(violations) => invalid(&violations),
                }
            }))
        };
        let in_place = move |context: Context, arguments: Json| -> Result<Reply, BoxFuture<'static, Reply>> {
            let (input, handler, shape) = &*parts;
            let arguments = match read(input, &arguments) {
                Ok(arguments) => arguments,
                Err(violations) => return Ok(invalid(&violations)),
            };
            let mut future = Box::pin(handler(context, arguments));
            // Whatever registers this waker is polled again, with a real one, as soon as there is a task.
            match future.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(value) => {
                    // With all that it holds, so that its cleanup runs before code of the result, as after an `await`.
                    drop(future);
                    Ok(shape(value))
                }
                Poll::Pending => {
                    let parts = Arc::clone(&parts);
                    Err(Box::pin(async move {
                        let (_, _, shape) = &*parts;
                        shape(future.await)
                    }))
                }
            }
        };
        Self::build(name, input, told, Handler::Task { start: Arc::new(start), in_place: Arc::new(in_place) })
    }

    fn build(name: String, input: Arc<Shape>, output: Option<Json>, handler: Handler) -> Self {
        Self {
            name,
            title: None,
            description: None,
            hints: Hints::default(),
            input,
            output,
            options: ServeOptions::default(),
            inline: false,
            handler,
        }
    }

    /// The name that people see.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description, for the model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// It changes nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.hints.read_only_hint = Some(true);
        self
    }

    /// Says whether its changes may destroy something. Clients assume so unless told otherwise.
    #[must_use]
    pub fn destructive(mut self, destructive: bool) -> Self {
        self.hints.destructive_hint = Some(destructive);
        self
    }

    /// Doing it twice is the same as doing it once.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.hints.idempotent_hint = Some(true);
        self
    }

    /// Says whether it reaches beyond this program, the web for one. Clients assume so unless told otherwise.
    #[must_use]
    pub fn open_world(mut self, open_world: bool) -> Self {
        self.hints.open_world_hint = Some(open_world);
        self
    }

    /// Sets the time limit of a call, from its receipt, in place of the session's.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options = self.options.with_deadline(deadline);
        self
    }

    /// Sets the rate at which a call may report progress, in place of the session's.
    #[must_use]
    pub fn rate_window(mut self, window: RateWindow) -> Self {
        self.options = self.options.with_window(window);
        self
    }

    /// The handler is quick: it is polled once in place, by the task that reads from the channel, and costs a task only if it then
    /// waits for something. One that is slow holds everything up. Without effect on a [`Tool::blocking`] one.
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// The place in the schema of its arguments of the first rule that nothing checks.
    pub(crate) fn unchecked(&self) -> Option<String> {
        self.input.unchecked()
    }

    /// As the peer is told.
    pub(crate) fn describe(&self) -> Json {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Description<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            title: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
            input_schema: serde_json::Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            output_schema: Option<serde_json::Value>,
            #[serde(skip_serializing_if = "Hints::is_empty")]
            annotations: Hints,
        }
        let value = |json: &Json| json.decode().unwrap_or_default();
        let description = Description {
            name: &self.name,
            title: self.title.as_deref(),
            description: self.description.as_deref(),
            input_schema: value(self.input.schema()),
            output_schema: self.output.as_ref().map(value),
            annotations: self.hints,
        };
        Json::encode(&description).unwrap_or_default()
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

fn typed<R: Serialize>(output: &Output, value: Result<R, ToolError>) -> Reply {
    let shaped = value.and_then(|value| {
        let no_json = |error: JsonError| ToolError::Rpc(RpcError::internal(format!("the result {error}")));
        output.shape(&value).map_err(no_json)
    });
    ToolError::settle(shaped)
}

fn invalid(violations: &str) -> Reply {
    #[derive(Serialize)]
    struct Issue<'a> {
        message: &'a str,
    }
    let error = RpcError::new(tesseron::code::INPUT_VALIDATION, format!("invalid arguments: {violations}"));
    let issues = Json::encode(&[Issue { message: violations }]).ok();
    Reply::Tool(ToolOutput::fault(RpcError { data: issues.map(Box::new), ..error }))
}

/// Why a handler brought no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool failed, and this says how. A tool's failure is a result, so that the model can read it and try otherwise; a prompt's
    /// or a resource's is an internal error.
    #[error("{0}")]
    Failed(Text),
    /// The handler stopped since it was told to. Nothing is sent then; a handler that was not told fails with it.
    #[error("cancelled")]
    Cancelled,
    /// A question to the caller failed. As [`ToolError::Failed`], with a number where the protocol sends one (Tesseron).
    #[error("{0}")]
    Ask(AskFailed),
    /// There is no such thing.
    #[error("not found")]
    NotFound(NotFound),
    /// A protocol error, which clients show to people rather than to models.
    #[error("{0}")]
    Rpc(RpcError),
}

impl ToolError {
    /// A failure that says how.
    #[must_use]
    pub fn failed(message: impl Into<Text>) -> Self {
        Self::Failed(message.into())
    }

    /// There is no such resource.
    #[must_use]
    pub fn resource_not_found(uri: &str) -> Self {
        Self::NotFound(NotFound::Resource(uri.into()))
    }

    /// The call cannot be served before the user has opened these addresses: an error that clients show to people, who may call again
    /// afterwards.
    ///
    /// If the caller of `context` does not open addresses, a tool's failure that says so ([`AskFailed::NoUrlElicitation`]); if one of
    /// them is not proper, or there is none, [`AskFailed::Invalid`].
    #[must_use]
    pub fn urls_required(context: &Context, urls: impl IntoIterator<Item = OpenUrl>) -> Self {
        if !context.capabilities().elicitation_url {
            return Self::Ask(AskFailed::NoUrlElicitation);
        }
        let urls: Vec<_> = urls.into_iter().collect();
        match urls.iter().find_map(|open| open.check().err()) {
            Some(why) => Self::Ask(AskFailed::Invalid(why)),
            None if urls.is_empty() => Self::Ask(AskFailed::Invalid(String::from("there is no address to open"))),
            None => Self::Rpc(RpcError::url_elicitation_required(&urls)),
        }
    }

    fn settle(result: Result<ToolOutput, Self>) -> Reply {
        match result {
            Ok(output) => Reply::Tool(output),
            Err(Self::Failed(message)) => Reply::Tool(ToolOutput::error(message)),
            Err(Self::Cancelled) => Reply::Tool(ToolOutput::error(Text::from_static("cancelled"))),
            Err(Self::Ask(failed)) => {
                let mut output = ToolOutput::error(failed.to_string());
                output.fault = Some(Box::new(failed.fault()));
                Reply::Tool(output)
            }
            Err(Self::NotFound(what)) => Reply::NotFound(what),
            Err(Self::Rpc(error)) => Reply::Error(error),
        }
    }

    /// The answer to what is no call of a tool.
    pub(crate) fn into_reply(self) -> Reply {
        Reply::Error(match self {
            Self::Failed(message) => RpcError::internal(message),
            Self::Ask(failed) => RpcError::internal(failed.to_string()),
            Self::Cancelled => RpcError::fixed(RpcError::INTERNAL, "cancelled"),
            Self::NotFound(what) => return Reply::NotFound(what),
            Self::Rpc(error) => error,
        })
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self::Failed(message.into())
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self::Failed(message.into())
    }
}

impl From<Cow<'_, str>> for ToolError {
    fn from(message: Cow<'_, str>) -> Self {
        Self::Failed(message.into_owned().into())
    }
}

impl From<RpcError> for ToolError {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl From<Cancelled> for ToolError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<AskFailed> for ToolError {
    fn from(failed: AskFailed) -> Self {
        match failed {
            AskFailed::Cancelled(_) => Self::Cancelled,
            failed => Self::Ask(failed),
        }
    }
}

impl From<TimeoutError> for ToolError {
    fn from(error: TimeoutError) -> Self {
        match error {
            TimeoutError::Elapsed => Self::Failed(Text::from_static("a step took too long")),
            TimeoutError::Cancelled(_) | TimeoutError::TimedOut => Self::Cancelled,
        }
    }
}

impl From<JsonError> for ToolError {
    fn from(error: JsonError) -> Self {
        Self::Failed(error.to_string().into())
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string().into())
    }
}
