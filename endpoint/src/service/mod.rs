//! A service: the tools, prompts and resources of a callee, by name.

mod about;
mod answer;
mod catalog;
mod completion;
mod elsewhere;
mod handler;
mod hook;
mod local;
mod prompt;
mod refused;
mod resource;
mod start;
mod tool;
mod typed;
mod updates;

pub use crate::prompt_output::{PromptMessage, PromptOutput};
pub use crate::resource_contents::ResourceContents;
pub use catalog::Catalog;
pub use handler::{Handler, Parameter, Reader, State};
pub use hook::{Around, HandlerKind, Hook, HookRequest, HookResponse, Next};
pub use prompt::Prompt;
pub use protocol_core::dialect::{Completion, CompletionOf, CompletionRequest};
pub use refused::Refused;
pub use resource::{Resource, ResourceTemplate, ResourceUri};
pub(crate) use start::{PendingReply, Start};
pub use tool::Tool;
pub use typed::{Arguments, Returns};
pub use updates::{UpdateError, Updates};

use core::any::type_name;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use self::answer::Answer;
pub(crate) use self::catalog::WatcherGuard;
use self::catalog::{Audience, Entries, Insert};
use self::completion::{Completer, hook_arguments};
use self::handler::{Needs, States};
use self::hook::{Hooked, Hooks, Passing};
use crate::context::Context;
use crate::state::rounds::{OnceStore, RoundSetup, SealKeys, Sealer};
use crate::state::{EffectSetup, ServedCall, Shared};
use crate::tool_error::{Result, ToolError};
use engine::BoxFuture;
use engine::Runtime;
use protocol_core::config::Config;
use protocol_core::dialect::{
    CallTool, Capabilities, Custom, GetPrompt, Icon, Identity, List, NotFound, Notification, Page, Protocol, Reply, Request,
    Subscribe, SubscriptionFilter, Unsubscribe, tesseron,
};
use protocol_core::error::RpcError;
use protocol_core::http::header::ParamHeaders;
use protocol_core::json::{Json, Text};
use protocol_core::mcp::Era;
use protocol_core::session::ServeOptions;
use protocol_core::tesseron::AppId;

/// Tools, prompts and resources by name. Any number of endpoints can share one service.
///
/// Lists are sorted by name, resources by URI, and sent page by page.
///
/// ```
/// use endpoint::{Context, Service, Tool};
///
/// let service = Service::new("greeter", "1.0")
///     .instructions("Greets whoever asks.")
///     .tool(Tool::new("greet", async |_: Context, ()| Ok("hello")));
/// # let _ = service;
/// ```
pub struct Service {
    config: Config,
    /// The configuration that was made last for an MCP endpoint, for later endpoints to share.
    shared_config: Mutex<Option<protocol_core::Arc<Config>>>,
    page_size: usize,
    catalog: Catalog,
    states: States,
    hooks: Hooks,
    /// `true` if [`Service::catalog`] was called: then the lists may change while sessions run.
    is_changeable: bool,
    /// `true` if [`Service::updates`] was called: then sessions are notified of changes.
    has_updates: bool,
    completer: Option<Completer>,
    sealer: Arc<Sealer>,
    version: String,
    effects: EffectSetup,
    methods: BTreeMap<String, Method>,
    notifications: BTreeMap<String, NotificationHandler>,
}

type NotificationHandler = Box<dyn Fn(Option<Json>) + Send + Sync>;

/// A method that the protocol does not have.
struct Method {
    /// The states that the handler takes.
    needs_states: Needs,
    /// The hooks of the services that the method was merged from.
    hooks: Hooks,
    run: Arc<RunMethod>,
}

type RunMethod = dyn Fn(Context, States, Json) -> BoxFuture<'static, Result<Json>> + Send + Sync;

impl Service {
    /// A service that offers nothing yet, with its name and version.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            config: Config::mcp_server(Identity::new(name, version)),
            shared_config: Mutex::default(),
            page_size: 100,
            catalog: Catalog::default(),
            states: States::default(),
            hooks: Hooks::default(),
            is_changeable: false,
            has_updates: false,
            completer: None,
            sealer: Arc::new(Sealer::default()),
            version: String::new(),
            effects: EffectSetup::default(),
            methods: BTreeMap::new(),
            notifications: BTreeMap::new(),
        }
    }

    /// Sets the name that is shown to people (MCP `title`).
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.config.identity.title = Some(title.into());
        self
    }

    /// Sets the address of a page about the service, for people (MCP 2025-11-25 and later).
    #[must_use]
    pub fn website(mut self, url: impl Into<String>) -> Self {
        self.config.identity.website = Some(url.into());
        self
    }

    /// Adds an icon. Several are the same icon in other forms (MCP 2025-11-25 and later).
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Self {
        self.config.identity.icons.push(icon);
        self
    }

    /// Adds a member of `_meta` to the answer with which the service introduces itself, for programs that know its `key`, such as
    /// `com.example/region`. A key that is there is replaced.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.config.meta.insert(key.into(), value.into());
        self
    }

    /// Sets the description of the whole service, which the client's model reads (MCP `instructions`).
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.config.instructions = Some(text.into());
        self
    }

    /// Adds a value that handlers share: those that take a [`State<T>`](State) get it. One of each type; types of your own tell values
    /// apart. It does not matter if the handlers are added before or after it.
    ///
    /// # Panics
    /// If the service has a value of this type already, or is shared already, which its [`config`](Self::config) does.
    #[must_use]
    #[track_caller]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        let reason = "the service has one of this type already: a handler could not tell them apart";
        let refused = |name: &str| Refused { kind: "state", name: name.into(), reason: reason.into() };
        registered(match self.catalog.is_shared() {
            true => Err(Refused { kind: "state", name: type_name::<T>().into(), reason: "the service is shared already".into() }),
            false => self.states.add(value).map_err(refused),
        });
        self
    }

    /// Puts a hook around every request that reaches a handler: of a tool, prompt, resource, completion or method, of this service and of
    /// those that are [merged](Self::merge) into it. The hook that was registered first is the outermost. It does not matter if the handlers
    /// are added before or after it.
    ///
    /// A hook sees what is asked for and by whom ([`HookRequest`]). It passes the request on by [`Next::run`], with or without changes, once,
    /// several times or not at all, and returns the answer: that of the handler or its own. An error that it returns is answered as an error
    /// of the handler: [`ToolError::failed`] is a result of a tool that a model reads, an [`RpcError`] is sent as it is. A hook that panics,
    /// or never returns, is a handler that does.
    ///
    /// Arguments are checked after the hooks. Requests that reach no handler pass no hook: those for lists and subscriptions, for a name
    /// that the service does not have, and those of a caller that lacks a capability which a tool [needs](Tool::needs). In MCP 2026-07-28 a
    /// handler that has asked its caller runs again for each retry, and its hooks with it ([`Context::is_repeat`]).
    ///
    /// ```
    /// use endpoint::{HookRequest, HookResponse, Next, Result, Service, State, ToolError};
    ///
    /// struct Closed(Vec<String>);
    ///
    /// async fn open_only(State(closed): State<Closed>, request: HookRequest, next: Next) -> Result<HookResponse> {
    ///     if closed.0.iter().any(|name| name == request.name()) {
    ///         return Err(ToolError::failed("this tool is closed today"));
    ///     }
    ///     next.run(request).await
    /// }
    ///
    /// let service = Service::new("images", "1.0").state(Closed(vec!["resize".into()])).around(open_only);
    /// # drop(service);
    /// ```
    ///
    /// # Panics
    /// If the service is shared already, which its [`config`](Self::config) does.
    #[must_use]
    #[track_caller]
    pub fn around<M, H: Around<M>>(mut self, hook: H) -> Self {
        let hook = hook.install();
        if self.catalog.is_shared() {
            let reason = "the service is shared already".into();
            return registered(Err(Refused { kind: "hook", name: hook.name.into(), reason }));
        }
        self.hooks.push(hook);
        self
    }

    /// Checks that each handler gets the states that it takes. This is checked when the service is first shared, that is when its
    /// [`config`](Self::config) or an endpoint is made; with this method a program learns it as an error.
    ///
    /// # Errors
    /// [`Refused`] for the first handler that takes a [`State`] that the service does not have.
    pub fn check(&self) -> Result<(), Refused> {
        self.check_own()?;
        self.catalog.check(&self.states)
    }

    /// Checks the hooks, and the handlers that are not in the catalog.
    fn check_own(&self) -> Result<(), Refused> {
        let mut hooks = self.hooks.iter();
        hooks.try_for_each(|hook| catalog::check_states(&self.states, "hook", hook.name, &hook.needs_states))?;
        if let Some(completer) = &self.completer {
            catalog::check_states(&self.states, "completion", "completion", &completer.needs_states)?;
        }
        let mut methods = self.methods.iter();
        methods.try_for_each(|(name, method)| catalog::check_states(&self.states, "method", name, &method.needs_states))
    }

    /// Checks the handlers, once: from now on, the catalog checks what is added for the states that the service has now.
    #[track_caller]
    pub(crate) fn share(&self) {
        if !self.catalog.is_shared() {
            registered(self.check_own().and_then(|()| self.catalog.share(&self.states)));
        }
    }

    /// Adds a tool.
    ///
    /// # Panics
    /// If the tool is refused. [`Service::try_tool`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn tool(self, tool: Tool) -> Self {
        registered(self.try_tool(tool))
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`Refused`] if there is a tool of its name already, if its arguments are not an object ([`Tool`]), or if their schema has a keyword
    /// that cannot be checked. The last
    /// never happens with the feature `validate`: then every keyword is checked except `format`, which is only an annotation in JSON Schema
    /// 2020-12.
    pub fn try_tool(self, tool: Tool) -> Result<Self, Refused> {
        self.catalog.insert_tool(tool, Insert::New)?;
        Ok(self)
    }

    /// Adds tools: those of a module, which a function returns, or those that a program has made in a loop.
    ///
    /// ```
    /// use endpoint::{Context, Result, Service, Tool};
    ///
    /// async fn resize(_: Context, (): ()) -> Result<String> {
    ///     Ok("done".into())
    /// }
    ///
    /// fn tools() -> [Tool; 2] {
    ///     [Tool::new("shrink", resize), Tool::new("grow", resize)]
    /// }
    ///
    /// let service = Service::new("images", "1.0").tools(tools());
    /// # drop(service);
    /// ```
    ///
    /// # Panics
    /// If one of them is refused. [`Service::try_tool`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let mut tools = tools.into_iter();
        registered(tools.try_for_each(|tool| self.catalog.insert_tool(tool, Insert::New)).map(|()| self))
    }

    /// Adds a prompt.
    ///
    /// # Panics
    /// If the prompt is refused. [`Service::try_prompt`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn prompt(self, prompt: Prompt) -> Self {
        registered(self.try_prompt(prompt))
    }

    /// Adds a prompt.
    ///
    /// # Errors
    /// [`Refused`] as for [`Service::try_tool`], and if it completes an argument that it does not have. Only the schema of a
    /// [`Prompt::typed`] can be refused.
    pub fn try_prompt(self, prompt: Prompt) -> Result<Self, Refused> {
        self.catalog.insert_prompt(prompt, Insert::New)?;
        Ok(self)
    }

    /// Adds a resource. It takes precedence over a template that matches its URI.
    ///
    /// # Panics
    /// If there is a resource with its URI already.
    #[must_use]
    #[track_caller]
    pub fn resource(self, resource: Resource) -> Self {
        let inserted = self.catalog.insert_resource(resource, Insert::New);
        registered(inserted.map(|()| self))
    }

    /// Adds resources by a template. If several templates match a URI, the first in alphabetical order is used.
    ///
    /// # Panics
    /// If there is this template already, or if it completes a variable that it does not have.
    #[must_use]
    #[track_caller]
    pub fn resource_template(self, template: ResourceTemplate) -> Self {
        let inserted = self.catalog.insert_resource_template(template, Insert::New);
        registered(inserted.map(|()| self))
    }

    /// Adds the tools, prompts, resources, methods and notifications of another service. `prefix` is put before the names of its tools and
    /// prompts, for example `images_`; URIs and methods keep theirs. Handlers keep the states of their service and its
    /// [hooks](Self::around), inside those of this service, and prompts and templates its [`completion`](Self::completion), if it has one,
    /// which is asked by the name without the prefix. Everything else of `other` is left out: instructions, configuration, keys, stores.
    ///
    /// ```
    /// use endpoint::{Context, Service, Tool};
    ///
    /// let images = Service::new("images", "1.0").tool(Tool::new("resize", async |_: Context, ()| Ok("done")));
    /// let texts = Service::new("texts", "1.0").tool(Tool::new("count", async |_: Context, ()| Ok("done")));
    /// let all = Service::new("all", "1.0").merge("images_", images).merge("texts_", texts);
    /// # drop(all);
    /// ```
    ///
    /// # Panics
    /// If the merge is refused. [`Service::try_merge`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn merge(self, prefix: &str, other: Self) -> Self {
        registered(self.try_merge(prefix, other))
    }

    /// Adds the tools, prompts and resources of another service, as [`Service::merge`] does.
    ///
    /// # Errors
    /// [`Refused`] if both services have something of the same name, the prefix included, if `other` lacks a state that one of its handlers
    /// takes, or if it has a [`catalog`](Self::catalog) or [`updates`](Self::updates), whose later changes would be lost.
    pub fn try_merge(mut self, prefix: &str, other: Self) -> Result<Self, Refused> {
        other.check()?;
        let theirs = other.config.identity.name;
        if other.is_changeable {
            let reason = "it has a catalog, whose changes would be lost: take the catalog of the service that it is merged into";
            return Err(Refused { kind: "service", name: theirs, reason: reason.into() });
        }
        if other.has_updates {
            let reason = "it has a handle for updates, which would reach nobody: take that of the service that it is merged into";
            return Err(Refused { kind: "service", name: theirs, reason: reason.into() });
        }
        let ours = self.config.identity.name.clone();
        let both = |name: &str| {
            let was = String::from(name);
            let (theirs, ours) = (&theirs, &ours);
            move |refused: Refused| {
                let kind = refused.kind;
                let reason =
                    format!("{was:?} of the service {theirs:?} would have this name, but {ours:?} has a {kind} of this name");
                Refused { reason, ..refused }
            }
        };
        let entries = other.catalog.take();
        for (name, (mut tool, _)) in entries.tools {
            tool.needs_states.keep(&other.states);
            tool.hooks.keep(&other.hooks, &other.states);
            tool.name = format!("{prefix}{name}");
            self.catalog.insert_tool(tool, Insert::New).map_err(both(&name))?;
        }
        for (name, (mut prompt, _)) in entries.prompts {
            prompt.needs_states.keep(&other.states);
            prompt.hooks.keep(&other.hooks, &other.states);
            prompt.name = format!("{prefix}{name}");
            prompt.completers.keep(other.completer.as_ref(), &other.states, &name);
            self.catalog.insert_prompt(prompt, Insert::New).map_err(both(&name))?;
        }
        for (uri, (mut resource, _)) in entries.resources {
            resource.needs_states.keep(&other.states);
            resource.hooks.keep(&other.hooks, &other.states);
            self.catalog.insert_resource(resource, Insert::New).map_err(both(&uri))?;
        }
        for (uri, (mut template, _)) in entries.templates {
            template.needs_states.keep(&other.states);
            template.hooks.keep(&other.hooks, &other.states);
            template.completers.keep(other.completer.as_ref(), &other.states, &uri);
            self.catalog.insert_resource_template(template, Insert::New).map_err(both(&uri))?;
        }
        for (name, mut method) in other.methods {
            if self.methods.contains_key(&name) {
                return Err(both(&name)(Refused::duplicate("method", name.clone())));
            }
            method.needs_states.keep(&other.states);
            method.hooks.keep(&other.hooks, &other.states);
            self.methods.insert(name, method);
        }
        for (name, handler) in other.notifications {
            if self.notifications.contains_key(&name) {
                return Err(both(&name)(Refused::duplicate("notification", name.clone())));
            }
            self.notifications.insert(name, handler);
        }
        Ok(self)
    }

    /// Returns the handle that adds and removes tools, prompts and resources while this service is served. Call this method before the
    /// first session begins: only sessions that begin later declare all three lists, even if they are empty, and that they may change (MCP
    /// `listChanged`).
    pub fn catalog(&mut self) -> Catalog {
        self.is_changeable = true;
        self.catalog.clone()
    }

    /// Returns the handle that notifies the peers of all sessions of changes: of resources that they have subscribed to, and of lists. Call
    /// this method before the first session begins: only sessions that begin later are notified, and declare that the lists which the
    /// service has may change (MCP `listChanged`).
    pub fn updates(&mut self) -> Updates {
        self.has_updates = true;
        Updates::new(self.catalog.clone())
    }

    /// Sets the handler that completes the arguments of registered prompts and the variables of registered resource templates (MCP
    /// `completion/complete`) for which [`Prompt::complete`] and [`ResourceTemplate::complete`] set none.
    #[must_use]
    pub fn completion<M, H, Fut>(mut self, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        self.completer = Some(Completer::new(handler));
        self
    }

    /// As [`Service::completion`], but the future of the handler need not be `Send`; see [`Tool::local`].
    #[must_use]
    pub fn completion_local<M, H, Fut>(mut self, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + 'static,
    {
        self.completer = Some(Completer::local(handler));
        self
    }

    /// Adds a method that the protocol does not have. The handler takes the parameters, which are an object, byte for byte, and returns the
    /// result, which on MCP must be an object. Methods of the protocol cannot be replaced.
    ///
    /// # Panics
    /// If there is a method of this name already.
    #[must_use]
    #[track_caller]
    pub fn method<M, H, Fut>(mut self, name: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, Json, Fut>,
        Fut: Future<Output = Result<Json>> + Send + 'static,
    {
        let name = name.into();
        if self.methods.contains_key(&name) {
            return registered(Err(Refused::duplicate("method", name)));
        }
        let (needs_states, handler) = (Needs::of(handler.needs()), Arc::new(handler));
        let run = move |context, states, params| -> BoxFuture<'static, Result<Json>> {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler.call(&context, &states, params)?.await })
        };
        self.methods.insert(name, Method { needs_states, hooks: Hooks::default(), run: Arc::new(run) });
        self
    }

    /// Adds the handler of a notification that the protocol does not have. The handler takes the parameters byte for byte. It is called by
    /// the task that drives the endpoint, so it must not block.
    ///
    /// # Panics
    /// If there is a handler of a notification of this name already.
    #[must_use]
    #[track_caller]
    pub fn notification(mut self, name: impl Into<String>, handler: impl Fn(Option<Json>) + Send + Sync + 'static) -> Self {
        let name = name.into();
        if self.notifications.contains_key(&name) {
            return registered(Err(Refused::duplicate("notification", name)));
        }
        self.notifications.insert(name, Box::new(handler));
        self
    }

    /// Sets the keys that seal the states of calls between two rounds of input requests (MCP 2026-07-28). Any process with these keys can
    /// serve the retries. Default: a random key; then only this service in this process can serve them.
    #[must_use]
    pub fn seal_keys(mut self, keys: SealKeys) -> Self {
        self.sealer = Arc::new(Sealer::with(keys));
        self
    }

    /// Sets the version of the handlers. The state of a call between two rounds is valid for this version alone: a retry with a state of
    /// another version is refused, and the caller starts again. Change the version when a handler can no longer go on from an older state.
    /// Default: empty.
    #[must_use]
    pub fn handlers_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the store in which the effects of handlers are claimed before they begin ([`Context::once`]). Without a store, an effect may
    /// run again if a request is repeated.
    #[must_use]
    pub fn once_store(mut self, store: Arc<dyn OnceStore>) -> Self {
        self.effects.store = Some(store);
        self
    }

    /// Sets the function that reads the key with which a caller of MCP 2026-07-28 marks repetitions of one request, for example the header
    /// `Idempotency-Key` in [`Context::extensions`] or a member of [`Context::meta`]. Requests with the same key, principal, method, name
    /// and parameters are one call, as long as name and [version](Self::handlers_version) of the service are the same: their effects have
    /// the same keys ([`EffectKey`](crate::EffectKey)), and run once if there is a [`once_store`](Self::once_store). If the function
    /// returns `None`, or is not set, each request that is not a retry is a call of its own.
    #[must_use]
    pub fn call_key(mut self, read: impl Fn(&Context) -> Option<String> + Send + Sync + 'static) -> Self {
        self.effects.call_key = Some(Arc::new(move |served| read(&Context::new(Arc::clone(served)))));
        self
    }

    /// The store of effects, and the function that reads the keys of calls.
    pub(crate) fn effects(&self) -> EffectSetup {
        self.effects.clone()
    }

    /// Sets the maximum number of entries in one page of a list; 0 counts as 1. Default: 100.
    #[must_use]
    pub fn page_size(mut self, size: usize) -> Self {
        self.page_size = size.max(1);
        self
    }

    /// Changes the configuration of future sessions: deadlines, limits, rate windows and more. Except for logging, its capabilities are
    /// ignored, since they follow from the registered entries.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// The keys and names to seal states with. `None` if the service speaks only revisions with a handshake, or if states cannot be sealed
    /// on this runtime.
    pub(crate) fn round_setup(&self, runtime: &dyn Runtime) -> Option<RoundSetup> {
        let setup = || RoundSetup {
            sealer: Arc::clone(&self.sealer),
            service: self.config.identity.name.as_str().into(),
            version: self.version.as_str().into(),
        };
        (self.config.era != Era::Legacy && self.sealer.is_able(runtime)).then(setup)
    }

    /// Calls the handler of a notification, if there is one.
    pub(crate) fn notified(&self, notification: Notification) {
        if let Notification::Custom { method, params } = notification
            && let Some(handler) = self.notifications.get(&*method)
        {
            handler(params);
        }
    }

    /// The configuration of an MCP session that serves this service, with capabilities for the kinds of entries that are registered now, or
    /// for all kinds after [`Service::catalog`] was called.
    ///
    /// # Panics
    /// If a handler takes a [`State`] that the service does not have. [`Service::check`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn config(&self) -> Config {
        self.share();
        let mut config = self.config.clone();
        config.capabilities = self.capabilities(&self.catalog.entries());
        config.custom_methods.extend(self.methods.keys().cloned());
        config.custom_notifications.extend(self.notifications.keys().cloned());
        config
    }

    /// The capabilities of the configuration, with those that follow from the entries.
    fn capabilities(&self, entries: &Entries) -> Capabilities {
        let (mut offers, may_change) = (self.config.capabilities, self.is_changeable);
        offers.tools = may_change || !entries.tools.is_empty();
        offers.prompts = may_change || !entries.prompts.is_empty();
        offers.resources = may_change || !entries.resources.is_empty() || !entries.templates.is_empty();
        offers.resources_subscribe = may_change || entries.has_subscribable();
        offers.tools_list_changed = may_change || (self.has_updates && offers.tools);
        offers.prompts_list_changed = may_change || (self.has_updates && offers.prompts);
        offers.resources_list_changed = may_change || (self.has_updates && offers.resources);
        offers.completions = self.completes(entries);
        offers
    }

    /// The configuration that [`Service::config`] returns, shared by all endpoints that are made while it does not change.
    pub(crate) fn shared_config(&self) -> protocol_core::Arc<Config> {
        let config = self.config();
        let mut shared = self.shared_config.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some(same) if **same == config => protocol_core::Arc::clone(same),
            _ => protocol_core::Arc::clone(shared.insert(config.into())),
        }
    }

    /// The arguments of a tool that HTTP headers repeat (`x-mcp-header`); `None` if there are none, or there is no such tool.
    #[must_use]
    pub fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let entries = self.catalog.entries();
        entries.tools.get(tool).and_then(|(tool, _)| tool.param_headers()).cloned()
    }

    /// The configuration of a session that serves this service as the Tesseron app `id`: tools become its actions, and the names of its
    /// resources are their URIs. The name of the app is the title of the service, or its name if it has no title.
    ///
    /// Deadlines, limits and the maximum sampling depth are those of the service; the rate of progress is that of Tesseron. A call for
    /// which no deadline is set has 60 s.
    #[must_use]
    pub fn app(&self, id: &AppId, app: tesseron::App) -> Config {
        let own = self.config();
        let timeout = own.timeouts.serve;
        let name = own.identity.title.clone().unwrap_or_else(|| own.identity.name.clone());
        let entries = self.catalog.entries();
        let app = app.with_manifest(entries.actions(timeout), entries.manifest_resources());
        drop(entries);
        let mut config = Config::tesseron_app(id, name, app);
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

    /// Adds `session` to the sessions whose peers are notified of changes, until the guard is dropped. `None` if there is no handle that
    /// notifies them.
    pub(crate) fn watch(&self, session: &Arc<Shared>) -> Option<WatcherGuard> {
        (self.is_changeable || self.has_updates).then(|| {
            let audience = session.with_state(|state| match state.session.config().protocol {
                Protocol::Tesseron(_) => Audience::Gateway { timeout: self.config.timeouts.serve },
                _ => Audience::Client,
            });
            self.catalog.watch(session, audience, self.is_changeable)
        })
    }

    /// Decides how a request is answered. Runs no code of the application.
    pub(crate) fn start(&self, served: &Arc<ServedCall>, request: Request) -> Start {
        let started = match request {
            Request::CallTool(call) => return self.call_tool(served, call),
            Request::GetPrompt(prompt) => self.get_prompt(served, prompt),
            Request::ReadResource(read) => return self.read_resource(served, &read.uri()),
            Request::Subscribe(subscribe) => self.subscribe(served, &subscribe),
            Request::Unsubscribe(request) => return unsubscribe(served, &request),
            Request::Listen(listen) => return self.listen(served, listen.filter()),
            Request::Complete(complete) => self.complete(served, complete.into_completion()),
            Request::ListTools(list) => self.page("tools", &self.catalog.entries().tools, &list),
            Request::ListPrompts(list) => self.page("prompts", &self.catalog.entries().prompts, &list),
            Request::ListResources(list) => self.page("resources", &self.catalog.entries().resources, &list),
            Request::ListResourceTemplates(list) => self.page("resourceTemplates", &self.catalog.entries().templates, &list),
            Request::Custom(request) => self.custom(served, request),
            _ => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found")),
        };
        started.unwrap_or_else(|error| Start::Reply(Reply::Error(error)))
    }

    fn call_tool(&self, served: &Arc<ServedCall>, call: CallTool) -> Start {
        let entries = self.catalog.entries();
        let name = call.name();
        let Some((tool, _)) = entries.tools.get(&*name) else {
            return Start::Reply(Reply::NotFound(NotFound::Tool(Text::from(&*name))));
        };
        drop(name);
        if let Some(refusal) = tool.refuse_without(served.capabilities(), served.is_stateless()) {
            return Start::Reply(refusal);
        }
        if let Some(hooks) = self.hooks.with(&tool.hooks, &self.states) {
            return self.call_hooked(hooks, served, tool, call);
        }
        let (options, run, states) = (tool.options, tool.run(), tool.needs_states.states(&self.states).clone());
        drop(entries);
        configure(served, options);
        run.start(Arc::clone(served), states, call.into_arguments().unwrap_or_else(Json::null))
    }

    // A function of its own, so that a call without hooks does not pay for its size.
    #[cold]
    fn call_hooked(&self, hooks: Hooked, served: &Arc<ServedCall>, tool: &Tool, call: CallTool) -> Start {
        configure(served, tool.options);
        let (name, arguments) = (Text::from(&*tool.name), call.into_arguments().unwrap_or_else(Json::null));
        let handler = tool.run_within(tool.needs_states.states(&self.states).clone());
        match tool.is_inline() {
            true => hooks.start_in_place(served, name, arguments, handler),
            false => hooks.start(served, Passing { name, arguments, handler, into_reply: ToolError::tool_reply }),
        }
    }

    fn get_prompt(&self, served: &Arc<ServedCall>, request: GetPrompt) -> Result<Start, RpcError> {
        let entries = self.catalog.entries();
        let name = request.name();
        let Some((prompt, _)) = entries.prompts.get(&*name) else {
            return Err(RpcError::invalid_params(format!("unknown prompt {name:?}")));
        };
        drop(name);
        let (states, options) = (prompt.needs_states.states(&self.states).clone(), prompt.options);
        let start = if let Some(hooks) = self.hooks.with(&prompt.hooks, &self.states) {
            let (prompt, arguments) = (prompt.clone(), request.into_arguments().unwrap_or_else(Json::null));
            let name = Text::from(&*prompt.name);
            let handler = move |context, arguments: Json| Ok(prompt.answer(context, states.clone(), Some(&arguments))?);
            hooks.start(served, Passing { name, arguments, handler, into_reply: Prompt::into_reply })
        } else {
            let answer = prompt.answer(Context::new(Arc::clone(served)), states, request.into_arguments().as_ref())?;
            answer.start(Arc::clone(served), Prompt::into_reply)
        };
        drop(entries);
        configure(served, options);
        Ok(start)
    }

    fn read_resource(&self, served: &Arc<ServedCall>, uri: &str) -> Start {
        let entries = self.catalog.entries();
        let matched = || entries.templates.values().find_map(|(template, _)| Some((template, template.matches(uri)?)));
        let reading = match entries.resources.get(uri) {
            Some((resource, _)) => resource.reading(&self.states),
            None => match matched() {
                Some((template, uri)) => template.reading(&self.states, uri),
                None => return unknown(uri),
            },
        };
        let Some(hooks) = self.hooks.with(reading.hooks, &self.states) else { return reading.start(Arc::clone(served)) };
        let (handler, into_reply) = (reading.run_within(), reading.conversion());
        hooks.start(served, Passing { name: uri.into(), arguments: Json::null(), handler, into_reply })
    }

    fn subscribe(&self, served: &Arc<ServedCall>, request: &Subscribe) -> Result<Start, RpcError> {
        let uri = request.uri();
        if !self.catalog.entries().is_subscribable(&uri) {
            return Ok(unknown(&uri));
        }
        let subscription = request.subscription().map(|name| Text::from(&*name));
        served.subscribe(subscription, Text::from(&*uri)).map(|()| Start::Reply(Reply::Done))
    }

    /// Opens a subscription. It ends when its caller cancels it or the session ends. Kinds of changes that the service does not announce
    /// are left out; if no kind is left, the subscription ends at once, since it could never send anything.
    fn listen(&self, served: &Arc<ServedCall>, wanted: &SubscriptionFilter) -> Start {
        let entries = self.catalog.entries();
        let offers = self.capabilities(&entries);
        let mut offered = SubscriptionFilter::default();
        (offered.tools, offered.prompts, offered.resources) =
            (offers.tools_list_changed, offers.prompts_list_changed, offers.resources_list_changed);
        offered.uris = wanted.uris.iter().filter(|uri| entries.is_subscribable(uri)).cloned().collect();
        drop(entries);
        served.accept_subscription(&offered);
        if wanted.and(&offered).is_empty() {
            return Start::Reply(Reply::Done);
        }
        let context = Context::new(Arc::clone(served));
        Start::task(Arc::clone(served), async move {
            context.cancelled().await;
            Reply::Done
        })
    }

    fn custom(&self, served: &Arc<ServedCall>, request: Custom) -> Result<Start, RpcError> {
        let Some(method) = self.methods.get(request.method()) else {
            return Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found"));
        };
        let (run, states) = (Arc::clone(&method.run), method.needs_states.states(&self.states).clone());
        let into_reply = |result: Result<Json>| result.map_or_else(ToolError::into_error_reply, Reply::Raw);
        if let Some(hooks) = self.hooks.with(&method.hooks, &self.states) {
            let name = Text::from(request.method());
            let handler = move |context, params| Ok(Answer::Shared(run(context, states.clone(), params)));
            return Ok(hooks.start(served, Passing { name, arguments: request.into_params(), handler, into_reply }));
        }
        let context = Context::new(Arc::clone(served));
        let answer = async move { into_reply(run(context, states, request.into_params()).await) };
        Ok(Start::task(Arc::clone(served), answer))
    }

    /// Returns `true` if there is a handler of completions.
    fn completes(&self, entries: &Entries) -> bool {
        self.completer.is_some()
            || entries.prompts.values().any(|(prompt, _)| !prompt.completers.is_empty())
            || entries.templates.values().any(|(template, _)| !template.completers.is_empty())
    }

    fn complete(&self, served: &Arc<ServedCall>, request: CompletionRequest) -> Result<Start, RpcError> {
        let entries = self.catalog.entries();
        let (own, states, (hooks, name), request) = match &request.of {
            CompletionOf::Prompt(name) => match entries.prompts.get(name) {
                Some((prompt, _)) => {
                    let (completer, request) = prompt.completers.of(request);
                    (completer, prompt.needs_states.states(&self.states), (&prompt.hooks, &*prompt.name), request)
                }
                None => return Err(RpcError::invalid_params(format!("unknown prompt {name:?}"))),
            },
            CompletionOf::Resource(uri) => match (entries.templates.get(uri), entries.resources.get(uri)) {
                (Some((template, _)), _) => {
                    let (completer, request) = template.completers.of(request);
                    (completer, template.needs_states.states(&self.states), (&template.hooks, &*template.template), request)
                }
                (None, Some((resource, _))) => (None, &self.states, (&resource.hooks, &*resource.uri), request),
                (None, None) => return Err(RpcError::invalid_params(format!("unknown resource {uri:?}"))),
            },
        };
        let own = own.map(|own| (own, states));
        let Some((completer, states)) = own.or_else(|| Some((self.completer.as_ref()?, &self.states))) else {
            return match self.completes(&entries) {
                true => Ok(Start::Reply(Reply::Completion(Completion::default()))),
                false => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "completion is not offered")),
            };
        };
        if let Some(hooks) = self.hooks.with(hooks, &self.states) {
            let (name, arguments) = (Text::from(name), hook_arguments(&request));
            let handler = completer.run_within(states, request.of);
            return Ok(hooks.start(served, Passing { name, arguments, handler, into_reply: Completer::into_reply }));
        }
        let answer = completer.answer(Context::new(Arc::clone(served)), states, request);
        Ok(answer.start(Arc::clone(served), Completer::into_reply))
    }

    /// One page of a list.
    ///
    /// A cursor is the name of the list and the index of the first entry of the page, opaque to the peer. A cursor that this service cannot
    /// have made is refused. If the list has become shorter than the index, the page is empty; the peer was notified of the change, and
    /// starts again.
    fn page<T>(&self, list: &str, entries: &BTreeMap<String, (T, Json)>, request: &List) -> Result<Start, RpcError> {
        let (size, length) = (self.page_size, entries.len());
        let from = match request.cursor() {
            None => 0,
            Some(cursor) => page_start(list, &cursor)
                .filter(|from| (*from < length || self.is_changeable) && from.checked_rem(size) == Some(0))
                .ok_or_else(|| RpcError::fixed(RpcError::INVALID_PARAMS, "invalid cursor"))?,
        };
        let page = Page::last(entries.values().skip(from).take(size).map(|(_, description)| description.clone()));
        let to = from.saturating_add(size);
        let page = if to < length { page.followed_by(format!("{list}:{to}")) } else { page };
        Ok(Start::Reply(Reply::Page(page)))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("identity", &self.config.identity)
            .field("catalog", &self.catalog)
            .field("methods", &self.methods.keys())
            .finish_non_exhaustive()
    }
}

#[track_caller]
#[allow(clippy::panic, reason = "misuse that shows as soon as the program starts")]
fn registered<T>(registered: Result<T, Refused>) -> T {
    match registered {
        Ok(registered) => registered,
        Err(refused) => panic!("{refused}"),
    }
}

/// Ends a subscription. The reply is a success even if the subscription does not exist.
fn unsubscribe(served: &ServedCall, request: &Unsubscribe) -> Start {
    match (request.uri(), request.subscription()) {
        (Some(uri), _) => served.unsubscribe(|_, of| **of == *uri),
        (None, Some(subscription)) => served.unsubscribe(|name, _| **name == *subscription),
        (None, None) => {}
    }
    Start::Reply(Reply::Done)
}

fn unknown(uri: &str) -> Start {
    Start::Reply(Reply::NotFound(NotFound::Resource(uri.into())))
}

fn configure(served: &ServedCall, options: ServeOptions) {
    if options != ServeOptions::default() {
        // This fails if the call was cancelled in the meantime. Then no deadline is needed.
        let _ = served.configure(options);
    }
}

/// The index in a cursor of `list`.
fn page_start(list: &str, cursor: &str) -> Option<usize> {
    let index = cursor.strip_prefix(list)?.strip_prefix(':')?;
    let from: usize = index.parse().ok()?;
    // `+5`, `05` and `0` parse, but `page` never writes them.
    (from > 0 && from.to_string() == index).then_some(from)
}
