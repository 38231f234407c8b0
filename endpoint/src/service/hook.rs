//! Hooks: code around the handlers of a service.

use core::any::type_name;
use core::fmt;
use core::task::{Context as TaskContext, Poll};
use std::sync::Arc;
use std::task::Waker;

use super::answer::Answer;
use super::handler::{Need, Needs, Parameter, States};
use super::start::{InPlace, Start};
use crate::context::Context;
use crate::prompt_output::PromptOutput;
use crate::resource_contents::ResourceContents;
use crate::state::ServedCall;
use crate::tool_error::{Result, ToolError};
use engine::BoxFuture;
use protocol_core::dialect::{Completion, Reply, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};

/// What a handler serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HandlerKind {
    /// Calls of a tool; on Tesseron, invocations of an action.
    Tool,
    /// Requests for a prompt.
    Prompt,
    /// Requests to read a resource.
    Resource,
    /// Requests to complete an argument of a prompt or a variable of a resource template.
    Completion,
    /// Requests of a method that the protocol does not have.
    Method,
}

impl HandlerKind {
    /// The kind in one word: `tool`, `prompt`, `resource`, `completion` or `method`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Completion => "completion",
            Self::Method => "method",
        }
    }
}

impl fmt::Display for HandlerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request on its way to a handler, as a hook sees it. Clones share the arguments.
#[derive(Clone, Debug)]
pub struct HookRequest {
    kind: HandlerKind,
    name: Text,
    arguments: Json,
    context: Context,
}

impl HookRequest {
    /// What the handler serves.
    #[must_use]
    pub const fn kind(&self) -> HandlerKind {
        self.kind
    }

    /// The name of the tool, prompt or method; the URI of the resource that is read; for a completion, the name of the prompt or the URI of
    /// the template.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The arguments as the peer sent them: they are checked after the hooks, before the handler runs. The parameters of a method;
    /// `{"argument": .., "value": .., "context": {..}}` for a completion; `null` for a resource, and if there are none.
    #[must_use]
    pub const fn arguments(&self) -> &Json {
        &self.arguments
    }

    /// The context that the handler gets: the caller, extensions, the [principal](Context::principal), the clock. A hook may use it as a
    /// handler does, for example to ask the user.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The request with other arguments. A resource has none: its handler fails with those that are not `null`.
    #[must_use]
    pub fn with_arguments(mut self, arguments: Json) -> Self {
        self.arguments = arguments;
        self
    }

    /// The request with one more value in its [`Context::extensions`], which later hooks and the handler see. It replaces an earlier value
    /// of the same type. A [`Principal`](crate::Principal) that is set in this way is not that of the HTTP session, or of the sealed state
    /// of a call: these keep the one that the transport attached.
    #[must_use]
    pub fn with_extension<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let extensions = self.context.extensions().clone().with(value);
        self.context = self.context.with_extensions(extensions);
        self
    }
}

/// What a handler or a hook has answered with, by the kind of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookResponse {
    /// The result of a tool. It may be a failure that a model reads ([`ToolOutput::is_error`]).
    Tool(ToolOutput),
    /// The result of a prompt.
    Prompt(PromptOutput),
    /// The contents of a resource. URI and type that were not set are set after the hooks.
    Resource(Vec<ResourceContents>),
    /// The result of a completion.
    Completion(Completion),
    /// The result of a method.
    Method(Json),
}

impl HookResponse {
    const fn kind(&self) -> HandlerKind {
        match self {
            Self::Tool(_) => HandlerKind::Tool,
            Self::Prompt(_) => HandlerKind::Prompt,
            Self::Resource(_) => HandlerKind::Resource,
            Self::Completion(_) => HandlerKind::Completion,
            Self::Method(_) => HandlerKind::Method,
        }
    }
}

/// The result of a handler, which hooks get as a [`HookResponse`].
pub(crate) trait Answered: Into<HookResponse> + Send + 'static {
    /// The kind of the handler.
    const KIND: HandlerKind;

    /// The result in `response`, if it is of this kind.
    fn take(response: HookResponse) -> Result<Self, HookResponse>;
}

macro_rules! responses {
    ($($kind:ident($type:ty),)*) => {$(
        impl From<$type> for HookResponse {
            fn from(answered: $type) -> Self {
                Self::$kind(answered)
            }
        }

        impl Answered for $type {
            const KIND: HandlerKind = HandlerKind::$kind;

            fn take(response: HookResponse) -> Result<Self, HookResponse> {
                match response {
                    HookResponse::$kind(answered) => Ok(answered),
                    other => Err(other),
                }
            }
        }
    )*};
}

responses! {
    Tool(ToolOutput),
    Prompt(PromptOutput),
    Resource(Vec<ResourceContents>),
    Completion(Completion),
    Method(Json),
}

impl From<ResourceContents> for HookResponse {
    fn from(contents: ResourceContents) -> Self {
        Self::Resource(Vec::from([contents]))
    }
}

/// What is left of the way to the handler: the hooks that were registered later, and the handler itself.
pub struct Next {
    chain: Arc<Chain>,
    /// The number of hooks that the request has passed.
    passed: usize,
}

struct Chain {
    hooks: Hooked,
    handler: Box<RunHandler>,
    served: Arc<ServedCall>,
}

type RunHandler = dyn Fn(Context, Json) -> BoxFuture<'static, Result<HookResponse>> + Send + Sync;

impl Next {
    /// Runs what is left of the way to the handler, and returns the answer. The error is that of the handler, as it returned it
    /// ([`ToolError::source_as`]), or of a later hook.
    ///
    /// A hook may call this method again, with the same or other arguments: then the handler runs once more. It may drop the future, which
    /// drops the handler, or not call the method at all. If the handler panics, so does the future.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future drops the handler.
    pub fn run(&self, request: HookRequest) -> BoxFuture<'static, Result<HookResponse>> {
        let Chain { hooks, handler, served } = &*self.chain;
        if !Arc::ptr_eq(request.context.served(), served) {
            let error = RpcError::fixed(RpcError::INTERNAL, "a hook has passed on the request of another call");
            return Box::pin(core::future::ready(Err(error.into())));
        }
        let Some(hook) = hooks.get(self.passed) else { return handler(request.context, request.arguments) };
        let next = Self { chain: Arc::clone(&self.chain), passed: self.passed.saturating_add(1) };
        (hook.run)(hook.needs_states.states(&hooks.states), request, next)
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("served", &self.chain.served).field("passed", &self.passed).finish_non_exhaustive()
    }
}

/// A hook with settings, to be registered with [`Service::around`](crate::Service::around). A hook without settings is a function:
/// `async fn(HookRequest, Next) -> Result<HookResponse>`.
///
/// ```
/// use std::time::Duration;
///
/// use endpoint::{Hook, HookRequest, HookResponse, Next, Result, Service};
///
/// /// Ends a handler that runs for too long.
/// struct Within(Duration);
///
/// impl Hook for Within {
///     async fn call(&self, request: HookRequest, next: Next) -> Result<HookResponse> {
///         let context = request.context().clone();
///         context.with_timeout(next.run(request), self.0).await?
///     }
/// }
///
/// let service = Service::new("images", "1.0").around(Within(Duration::from_secs(10)));
/// # drop(service);
/// ```
pub trait Hook: Send + Sync + 'static {
    /// Answers a request: by [`Next::run`], by a response of its own, or by an error, which is answered as an error of the handler.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe, like every handler: the future is dropped at an await point if the handler would be.
    fn call(&self, request: HookRequest, next: Next) -> impl Future<Output = Result<HookResponse>> + Send;
}

/// What [`Service::around`](crate::Service::around) takes: a [`Hook`], or a function that takes up to eight of [`Context`] and
/// [`State`](crate::State), and then a [`HookRequest`] and a [`Next`]. The compiler finds `M`, the types of the other parameters. It is
/// implemented for all of these, and not to be implemented by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    note = "a hook is `async fn(HookRequest, Next) -> Result<HookResponse>`, with any number of `Context` and `State<T>` before these two",
    note = "a hook with settings is a type that implements `Hook`"
)]
pub trait Around<M>: Sized {
    #[doc(hidden)]
    fn install(self) -> Installed;
}

/// A hook of a service.
#[derive(Clone)]
#[allow(unnameable_types, reason = "only hidden methods return it")]
pub struct Installed {
    pub(crate) name: &'static str,
    /// The states that the hook takes.
    pub(crate) needs_states: Needs,
    run: Arc<RunHook>,
}

type RunHook = dyn Fn(&States, HookRequest, Next) -> BoxFuture<'static, Result<HookResponse>> + Send + Sync;

impl fmt::Debug for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// That a type is a [`Hook`], and no function.
#[derive(Debug)]
#[allow(unnameable_types, reason = "it only tells implementations of a trait apart")]
pub struct WithSettings;

impl<H: Hook> Around<WithSettings> for H {
    fn install(self) -> Installed {
        let hook = Arc::new(self);
        let run = move |_: &States, request, next| -> BoxFuture<'static, Result<HookResponse>> {
            let hook = Arc::clone(&hook);
            Box::pin(async move { hook.call(request, next).await })
        };
        Installed { name: type_name::<H>(), needs_states: Needs::of(Vec::new()), run: Arc::new(run) }
    }
}

macro_rules! hooks {
    ($($P:ident)*) => {
        impl<F, Fut, $($P,)*> Around<($($P,)*)> for F
        where
            F: Fn($($P,)* HookRequest, Next) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<HookResponse>> + Send + 'static,
            $($P: Parameter,)*
        {
            fn install(self) -> Installed {
                let needs: &[Option<Need>] = &[$($P::need(),)*];
                let needs_states = Needs::of(needs.iter().copied().flatten().collect());
                #[allow(unused_variables, reason = "a hook without other parameters takes no states")]
                let run = move |states: &States, request: HookRequest, next| -> BoxFuture<'static, Result<HookResponse>> {
                    let call = || Result::Ok(self($($P::make(&request.context, states)?,)* request, next));
                    match call() {
                        Ok(future) => Box::pin(future),
                        Err(error) => Box::pin(core::future::ready(Err(error))),
                    }
                };
                Installed { name: type_name::<F>(), needs_states, run: Arc::new(run) }
            }
        }
    };
}

hooks!();
hooks!(P1);
hooks!(P1 P2);
hooks!(P1 P2 P3);
hooks!(P1 P2 P3 P4);
hooks!(P1 P2 P3 P4 P5);
hooks!(P1 P2 P3 P4 P5 P6);
hooks!(P1 P2 P3 P4 P5 P6 P7);
hooks!(P1 P2 P3 P4 P5 P6 P7 P8);

/// The hooks of a service, or those that an entry has brought from the services that it was merged from. The first is the outermost.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Option<Arc<Vec<Installed>>>);

impl Hooks {
    pub(crate) fn push(&mut self, hook: Installed) {
        Arc::make_mut(self.0.get_or_insert_default()).push(hook);
    }

    pub(crate) fn iter(&self) -> core::slice::Iter<'_, Installed> {
        self.0.as_deref().map(Vec::as_slice).unwrap_or_default().iter()
    }

    /// Puts the hooks of the service that an entry leaves, which has these states, around those that the entry has already.
    pub(crate) fn keep(&mut self, service: &Self, states: &States) {
        if service.0.is_none() {
            return;
        }
        let kept = service.iter().cloned().map(|mut hook| {
            hook.needs_states.keep(states);
            hook
        });
        self.0 = Some(Arc::new(kept.chain(self.iter().cloned()).collect()));
    }

    /// These hooks around those of an entry. `None` if there are neither.
    #[inline]
    pub(crate) fn with(&self, entry: &Self, states: &States) -> Option<Hooked> {
        if self.0.is_none() && entry.0.is_none() {
            return None;
        }
        Some(Hooked { service: self.clone(), entry: entry.clone(), states: states.clone() })
    }
}

/// The hooks around an entry.
pub(crate) struct Hooked {
    service: Hooks,
    entry: Hooks,
    /// The states of the service.
    states: States,
}

/// A request that is to pass hooks.
pub(crate) struct Passing<H, I> {
    pub(crate) name: Text,
    pub(crate) arguments: Json,
    /// Calls the handler.
    pub(crate) handler: H,
    /// Converts the answer into the reply.
    pub(crate) into_reply: I,
}

impl Hooked {
    fn get(&self, at: usize) -> Option<&Installed> {
        self.service.iter().chain(self.entry.iter()).nth(at)
    }

    /// Begins a request whose hooks and handler run in a task.
    pub(crate) fn start<T, H, I>(self, served: &Arc<ServedCall>, passing: Passing<H, I>) -> Start
    where
        T: Answered,
        H: Fn(Context, Json) -> Result<Answer<T>> + Send + Sync + 'static,
        I: FnOnce(Result<T>) -> Reply + Send + 'static,
    {
        let Passing { name, arguments, handler, into_reply } = passing;
        let next = self.next(served, handler);
        let request = HookRequest { kind: T::KIND, name, arguments, context: Context::new(Arc::clone(served)) };
        Start::task(Arc::clone(served), async move { into_reply(next.run(request).await.and_then(answered)) })
    }

    /// Begins a call of a tool whose hooks and handler are polled once in place.
    pub(crate) fn start_in_place<H>(self, served: &Arc<ServedCall>, name: Text, arguments: Json, handler: H) -> Start
    where
        H: Fn(Context, Json) -> Result<Answer<ToolOutput>> + Send + Sync + 'static,
    {
        let next = self.next(served, handler);
        let run: Arc<InPlace> = Arc::new(move |context, _, arguments| {
            let request = HookRequest { kind: HandlerKind::Tool, name: name.clone(), arguments, context };
            let mut running = next.run(request);
            match running.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(response) => Ok(response.and_then(answered)),
                Poll::Pending => Err(Box::pin(async move { running.await.and_then(answered) })),
            }
        });
        Start::Inline(run, Context::new(Arc::clone(served)), States::default(), arguments)
    }

    fn next<T: Answered>(
        self,
        served: &Arc<ServedCall>,
        handler: impl Fn(Context, Json) -> Result<Answer<T>> + Send + Sync + 'static,
    ) -> Next {
        let run = move |context: Context, arguments| -> BoxFuture<'static, Result<HookResponse>> {
            let served = Arc::clone(context.served());
            match handler(context, arguments) {
                Ok(answer) => {
                    let answer = answer.within(&served);
                    Box::pin(async move { answer.await.map(Into::into) })
                }
                Err(error) => Box::pin(core::future::ready(Err(error))),
            }
        };
        Next { chain: Arc::new(Chain { hooks: self, handler: Box::new(run), served: Arc::clone(served) }), passed: 0 }
    }
}

/// The answer that hooks have let through.
fn answered<T: Answered>(response: HookResponse) -> Result<T> {
    T::take(response).map_err(|other| {
        let error = format!("a hook has answered a request for a {} with the result of a {}", T::KIND, other.kind());
        ToolError::Rpc(RpcError::internal(error))
    })
}
