//! A service: what a callee has to offer, by name.

mod completion;
mod prompt;
mod resource;
mod tool;

pub use prompt::{Prompt, PromptMessage, PromptOutput};
pub use protocol_core::dialect::{Completion, CompletionOf, CompletionRequest};
pub use resource::{Resource, ResourceContents, ResourceTemplate, ResourceUri};
pub use tool::{Tool, ToolError};

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use self::completion::Completer;
use self::tool::{Handler, InPlace};
use crate::context::Context;
use crate::schema::Unchecked;
use crate::state::Invocation;
use engine::BoxFuture;
use engine::Task;
use protocol_core::config::Config;
use protocol_core::dialect::{
    CallTool, Custom, GetPrompt, Identity, List, NotFound, Notice, Page, Reply, Request, Subscribe, Unsubscribe, tesseron,
};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::ServeOptions;
use protocol_core::tesseron::AppId;

/// Tools, prompts and resources by name. Any number of endpoints can share one service.
///
/// A second registration under a name replaces the first. Lists are sorted by name (resources by uri)
/// and handed out page by page.
///
/// ```
/// use protocol_core::Identity;
/// use endpoint::{Service, Tool};
///
/// let service = Service::new(Identity::new("greeter", "1.0"))
///     .instructions("Greets whoever asks.")
///     .tool(Tool::new("greet", async |_, ()| Ok("hello")));
/// # let _ = service;
/// ```
pub struct Service {
    config: Config,
    page_size: usize,
    /// Each with what the peer is told of it.
    tools: BTreeMap<String, (Tool, Json)>,
    prompts: BTreeMap<String, (Prompt, Json)>,
    resources: BTreeMap<String, (Resource, Json)>,
    templates: BTreeMap<String, (ResourceTemplate, Json)>,
    completer: Option<Completer>,
    methods: BTreeMap<String, Method>,
    notifications: BTreeMap<String, Notified>,
}

type Notified = Box<dyn Fn(Option<Json>) + Send + Sync>;
type Method = Arc<dyn Fn(Context, Json) -> BoxFuture<'static, Result<Json, ToolError>> + Send + Sync>;

/// A tool whose arguments would not be checked as their schema says, since the feature `validate` is off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool `{tool}`: {}", Unchecked(.rule))]
#[non_exhaustive]
pub struct SchemaUnchecked {
    /// The name of the tool.
    pub tool: String,
    /// The place of the rule in the schema of the arguments, as a JSON pointer; its last part is the keyword.
    pub rule: String,
}

/// A schema, known at run time only, that is no JSON Schema of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema of tool `{tool}` {reason}")]
#[non_exhaustive]
pub struct SchemaInvalid {
    /// The name of the tool.
    pub tool: String,
    /// The fault of the schema, as the end of a sentence about it.
    pub reason: String,
}

/// The start of the work that a request asks for.
pub(crate) enum Start<'a> {
    Reply(Reply),
    /// A [`Task`] that owes the answer.
    Task(BoxFuture<'static, ()>),
    /// To be run as far as it comes before it costs a task.
    Inline(&'a InPlace, Context, Json),
    Blocking(Box<dyn FnOnce() -> Reply + Send>),
}

impl Start<'_> {
    fn task(invocation: &Arc<Invocation>, future: impl Future<Output = Reply> + Send + 'static) -> Self {
        Self::Task(Box::pin(Task::new(Arc::clone(invocation), future)))
    }
}

impl Service {
    /// A service that offers nothing yet.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            config: Config::mcp_server(identity),
            page_size: 100,
            tools: BTreeMap::new(),
            prompts: BTreeMap::new(),
            resources: BTreeMap::new(),
            templates: BTreeMap::new(),
            completer: None,
            methods: BTreeMap::new(),
            notifications: BTreeMap::new(),
        }
    }

    /// Sets the description of the whole service, for the model of the client.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.config.instructions = Some(text.into());
        self
    }

    /// Adds a tool.
    ///
    /// # Panics
    /// If the schema of its arguments has a rule that nothing would check, which can only be without the feature `validate`.
    /// [`Service::try_tool`] returns that as an error.
    #[must_use]
    #[track_caller]
    #[allow(clippy::panic, reason = "misuse that shows when the program starts, and never later")]
    pub fn tool(self, tool: Tool) -> Self {
        match self.try_tool(tool) {
            Ok(service) => service,
            Err(unchecked) => panic!("{unchecked}"),
        }
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`SchemaUnchecked`] if the schema of its arguments has a rule that nothing would check. With the feature `validate`, which is on by
    /// default, every rule is checked but `format`, which JSON Schema 2020-12 takes for a remark, and this never fails.
    pub fn try_tool(mut self, tool: Tool) -> Result<Self, SchemaUnchecked> {
        if let Some(rule) = tool.unchecked() {
            return Err(SchemaUnchecked { tool: tool.name, rule });
        }
        let told = tool.describe();
        self.tools.insert(tool.name.clone(), (tool, told));
        Ok(self)
    }

    /// Adds a prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        let told = prompt.describe();
        self.prompts.insert(prompt.name.clone(), (prompt, told));
        self
    }

    /// Adds a resource. A uri that is registered goes before a template that it follows.
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Self {
        let told = resource.describe();
        self.resources.insert(resource.uri.clone(), (resource, told));
        self
    }

    /// Adds resources by a template. Of several templates that a uri follows the first in their order counts.
    #[must_use]
    pub fn resource_template(mut self, template: ResourceTemplate) -> Self {
        let told = template.describe();
        self.templates.insert(template.template.clone(), (template, told));
        self
    }

    /// Completes arguments of the prompts and variables of the templates that are registered.
    #[must_use]
    pub fn completion<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Context, CompletionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Completion, ToolError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.completer = Some(Arc::new(move |context, request| {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler(context, request).await })
        }));
        self
    }

    /// Serves a method that the protocol does not have. The handler is given the parameters exactly as they came, an object, and gives the
    /// exact result, which on MCP is an object, too. A method of the protocol keeps its meaning.
    #[must_use]
    pub fn method<F, Fut>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Context, Json) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Json, ToolError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let start = move |context, params| -> BoxFuture<'static, Result<Json, ToolError>> {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler(context, params).await })
        };
        self.methods.insert(name.into(), Arc::new(start));
        self
    }

    /// Hears a notification that the protocol does not have. The handler is given its parameters exactly as they came; it is called in the
    /// turn of the endpoint, so it must return soon.
    #[must_use]
    pub fn notification(mut self, name: impl Into<String>, handler: impl Fn(Option<Json>) + Send + Sync + 'static) -> Self {
        self.notifications.insert(name.into(), Box::new(handler));
        self
    }

    /// Sets the number of entries of a list in one page, at least 1. 100 by default.
    #[must_use]
    pub fn page_size(mut self, size: usize) -> Self {
        self.page_size = size.max(1);
        self
    }

    /// Changes deadlines, limits, rate windows and whatever else a session is told at its birth. Which capabilities are declared
    /// follows from what is registered, except for logging.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Tells the handler of a notification, if it has one.
    pub(crate) fn tell(&self, notice: Notice) {
        if let Notice::Custom { method, params } = notice
            && let Some(handler) = self.notifications.get(&*method)
        {
            handler(params);
        }
    }

    /// The configuration of a session that serves this.
    pub(crate) fn config(&self) -> Config {
        let mut config = self.config.clone();
        let offers = &mut config.capabilities;
        offers.tools = !self.tools.is_empty();
        offers.tools_list_changed = false;
        offers.prompts = !self.prompts.is_empty();
        offers.prompts_list_changed = false;
        offers.resources = !self.resources.is_empty() || !self.templates.is_empty();
        offers.resources_subscribe = self.resources.values().any(|(resource, _)| resource.subscribable);
        offers.resources_list_changed = false;
        offers.completions = self.completer.is_some();
        config.custom_methods.extend(self.methods.keys().cloned());
        config.custom_notifications.extend(self.notifications.keys().cloned());
        config
    }

    /// The configuration of a session that serves this as the app `id` of Tesseron: tools are its actions, and resources are known
    /// by their uris. Its name is the title of the service, or the name if it has none.
    ///
    /// Deadlines, limits and depth are those of the service; a call has 60 s where nothing is said, and rates of progress are those of
    /// Tesseron.
    #[must_use]
    pub fn app(&self, id: &AppId, app: tesseron::App) -> Config {
        let own = self.config();
        let timeout = own.timeouts.serve;
        let name = own.identity.title.clone().unwrap_or_else(|| own.identity.name.clone());
        let actions = self.tools.values().map(|(tool, told)| tesseron::action(told, tool.options.deadline.or(timeout)));
        let resources = self.resources.values().map(|(resource, told)| tesseron::resource(told, resource.subscribable));
        let mut config = Config::tesseron_app(id, name, app.with_manifest(actions, resources));
        config.identity.version = own.identity.version;
        config.instructions = own.instructions;
        config.capabilities.resources_subscribe = own.capabilities.resources_subscribe;
        config.limits = own.limits;
        config.custom_methods = own.custom_methods;
        config.custom_notifications = own.custom_notifications;
        config.depth = own.depth;
        config.progress.partial_on_progress = own.progress.partial_on_progress;
        let serve = timeout.or(config.timeouts.serve);
        config.timeouts = own.timeouts;
        config.timeouts.serve = serve;
        config
    }

    /// Decides what a request sets going. Runs no code of the user.
    pub(crate) fn start(&self, invocation: &Arc<Invocation>, request: Request) -> Start<'_> {
        let started = match request {
            Request::CallTool(call) => return self.call_tool(invocation, call),
            Request::GetPrompt(prompt) => self.get_prompt(invocation, prompt),
            Request::ReadResource(read) => return self.read_resource(invocation, &read.uri()),
            Request::Subscribe(subscribe) => self.subscribe(invocation, &subscribe),
            Request::Unsubscribe(unsubscribe) => return leave(invocation, &unsubscribe),
            Request::Complete(complete) => self.complete(invocation, complete.into_completion()),
            Request::ListTools(list) => page("tools", told(&self.tools), self.page_size, &list),
            Request::ListPrompts(list) => page("prompts", told(&self.prompts), self.page_size, &list),
            Request::ListResources(list) => page("resources", told(&self.resources), self.page_size, &list),
            Request::ListResourceTemplates(list) => page("resourceTemplates", told(&self.templates), self.page_size, &list),
            Request::Custom(request) => self.custom(invocation, request),
            _ => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found")),
        };
        started.unwrap_or_else(|error| Start::Reply(Reply::Error(error)))
    }

    fn call_tool(&self, invocation: &Arc<Invocation>, call: CallTool) -> Start<'_> {
        let name = call.name();
        let Some((tool, _)) = self.tools.get(&*name) else {
            return Start::Reply(Reply::NotFound(NotFound::Tool(Text::from(&*name))));
        };
        drop(name);
        configure(invocation, tool.options);
        let arguments = call.into_arguments().unwrap_or_else(Json::empty_object);
        let invocation = Arc::clone(invocation);
        match &tool.handler {
            Handler::Task { in_place, .. } if tool.inline => Start::Inline(&**in_place, Context::new(invocation), arguments),
            Handler::Task { start, .. } => Start::Task(start(invocation, arguments)),
            Handler::Blocking(run) => {
                let context = Context::new(invocation);
                let run = Arc::clone(run);
                Start::Blocking(Box::new(move || run(context, arguments)))
            }
        }
    }

    fn get_prompt(&self, invocation: &Arc<Invocation>, request: GetPrompt) -> Result<Start<'static>, RpcError> {
        let name = request.name();
        let Some((prompt, _)) = self.prompts.get(&*name) else {
            return Err(RpcError::invalid_params(format!("unknown prompt {name:?}")));
        };
        drop(name);
        let future = prompt.start(Context::new(Arc::clone(invocation)), request.into_arguments())?;
        configure(invocation, prompt.options);
        Ok(Start::task(invocation, future))
    }

    fn read_resource(&self, invocation: &Arc<Invocation>, uri: &str) -> Start<'static> {
        let context = Context::new(Arc::clone(invocation));
        if let Some((resource, _)) = self.resources.get(uri) {
            return Start::task(invocation, resource.start(context));
        }
        let followed = self.templates.values().find_map(|(template, _)| template.matches(uri).map(|uri| (template, uri)));
        match followed {
            Some((template, uri)) => Start::task(invocation, template.start(context, uri)),
            None => unknown(uri),
        }
    }

    fn subscribe(&self, invocation: &Arc<Invocation>, request: &Subscribe) -> Result<Start<'static>, RpcError> {
        let uri = request.uri();
        if !self.resources.get(&*uri).is_some_and(|(resource, _)| resource.subscribable) {
            return Ok(unknown(&uri));
        }
        let subscription = request.subscription().map(|name| Text::from(&*name));
        invocation.subscribe(subscription, Text::from(&*uri)).map(|()| Start::Reply(Reply::Done))
    }

    fn custom(&self, invocation: &Arc<Invocation>, request: Custom) -> Result<Start<'static>, RpcError> {
        let Some(method) = self.methods.get(request.method()) else {
            return Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found"));
        };
        let (method, context) = (Arc::clone(method), Context::new(Arc::clone(invocation)));
        let answer = async move { method(context, request.into_params()).await.map_or_else(ToolError::into_reply, Reply::Raw) };
        Ok(Start::task(invocation, answer))
    }

    fn complete(&self, invocation: &Arc<Invocation>, request: CompletionRequest) -> Result<Start<'static>, RpcError> {
        let Some(completer) = &self.completer else {
            return Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "completion is not offered"));
        };
        match &request.of {
            CompletionOf::Prompt(name) if !self.prompts.contains_key(name) => {
                return Err(RpcError::invalid_params(format!("unknown prompt {name:?}")));
            }
            CompletionOf::Resource(uri) if !self.templates.contains_key(uri) && !self.resources.contains_key(uri) => {
                return Err(RpcError::invalid_params(format!("unknown resource {uri:?}")));
            }
            _ => {}
        }
        let context = Context::new(Arc::clone(invocation));
        Ok(Start::task(invocation, completion::start(Arc::clone(completer), context, request)))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("identity", &self.config.identity)
            .field("tools", &self.tools.keys())
            .field("prompts", &self.prompts.keys())
            .field("resources", &self.resources.keys())
            .field("resource_templates", &self.templates.keys())
            .field("methods", &self.methods.keys())
            .finish_non_exhaustive()
    }
}

/// Ending a subscription that does not exist is a success.
fn leave(invocation: &Invocation, request: &Unsubscribe) -> Start<'static> {
    match (request.uri(), request.subscription()) {
        (Some(uri), _) => invocation.unsubscribe(|_, of| **of == *uri),
        (None, Some(subscription)) => invocation.unsubscribe(|name, _| **name == *subscription),
        (None, None) => {}
    }
    Start::Reply(Reply::Done)
}

fn unknown(uri: &str) -> Start<'static> {
    Start::Reply(Reply::NotFound(NotFound::Resource(uri.into())))
}

fn configure(invocation: &Invocation, options: ServeOptions) {
    if options != ServeOptions::default() {
        // One that was cancelled meanwhile needs no deadline.
        let _ = invocation.configure(options);
    }
}

fn told<T>(entries: &BTreeMap<String, (T, Json)>) -> Vec<&Json> {
    entries.values().map(|(_, told)| told).collect()
}

/// One page of a list.
///
/// A cursor names the list and the place where the page begins. It means nothing to the peer; one that we did not
/// make is told from one that we did, and refused.
fn page(list: &str, entries: Vec<&Json>, size: usize, request: &List) -> Result<Start<'static>, RpcError> {
    let from = match request.cursor() {
        None => 0,
        Some(cursor) => begin(list, &cursor)
            .filter(|from| *from < entries.len() && from.checked_rem(size) == Some(0))
            .ok_or_else(|| RpcError::fixed(RpcError::INVALID_PARAMS, "invalid cursor"))?,
    };
    let to = from.saturating_add(size).min(entries.len());
    let items = entries.get(from..to).unwrap_or_default().iter().copied().cloned();
    let page = Page::last(items);
    let page = if to < entries.len() { page.followed_by(format!("{list}:{to}")) } else { page };
    Ok(Start::Reply(Reply::Page(page)))
}

fn begin(list: &str, cursor: &str) -> Option<usize> {
    let place = cursor.strip_prefix(list)?.strip_prefix(':')?;
    let from: usize = place.parse().ok()?;
    // `+5` and `05` parse, too, but we never wrote them; neither did we write 0.
    (from > 0 && from.to_string() == place).then_some(from)
}
