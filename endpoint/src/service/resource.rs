//! Resources that a client can read, by URI or by URI template.

use core::fmt;
use core::str::FromStr;
use std::borrow::ToOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::about::{About, about_builders};
use super::answer::Answer;
use super::completion::Completers;
use super::handler::{Handler, Needs, Reader, States};
use super::hook::Hooks;
use super::start::Start;
use crate::context::Context;
use crate::resource_contents::ResourceContents;
use crate::state::ServedCall;
use crate::tool_error::{Result, ToolError};
use protocol_core::dialect::{Annotations, Completion, CompletionRequest, Reply};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::json::write::Object;

type Read = dyn Fn(Context, States, ResourceUri) -> Answer<Vec<ResourceContents>> + Send + Sync;

/// What a [`Refused`](super::Refused) calls a resource, and a template.
pub(super) const KIND: &str = "resource";
pub(super) const TEMPLATE_KIND: &str = "resource template";

/// A resource to be registered with [`Service::resource`](crate::Service::resource).
#[derive(Clone)]
pub struct Resource {
    pub(crate) uri: String,
    described: Described,
    pub(crate) subscribable: bool,
    /// The states that the handler takes.
    pub(crate) needs_states: Needs,
    /// The hooks of the services that it was merged from.
    pub(crate) hooks: Hooks,
    read: Arc<Read>,
}

/// A family of resources whose URIs match a template, to be registered with
/// [`Service::resource_template`](crate::Service::resource_template).
///
/// In the template, `{name}` matches one or more characters other than `/`, and `{+name}` one or more characters of any kind. These are the
/// simple and the reserved expansion of RFC 6570; its other expressions are not supported.
#[derive(Clone)]
pub struct ResourceTemplate {
    pub(crate) template: String,
    parts: Vec<Part>,
    described: Described,
    pub(crate) subscribable: bool,
    /// The states that the handler takes.
    pub(crate) needs_states: Needs,
    /// The hooks of the services that it was merged from.
    pub(crate) hooks: Hooks,
    pub(crate) completers: Completers,
    read: Arc<Read>,
}

/// The description of a resource or of a resource template.
#[derive(Clone, Debug, Default)]
struct Described {
    name: String,
    about: About,
    mime_type: Option<String>,
    hints: Option<Annotations>,
}

impl Described {
    /// The description as a list has it. `key` is the name of the member with the URI or the template.
    fn write(&self, key: &'static str, uri: &str) -> Json {
        Object::value(|object| {
            object.string(key, uri);
            object.string("name", &self.name);
            self.about.write_words(object);
            if let Some(mime_type) = &self.mime_type {
                object.string("mimeType", mime_type);
            }
            if let Some(hints) = &self.hints {
                hints.write(object);
            }
            self.about.write_rest(object);
        })
    }
}

/// The URI of the resource to read, as a handler of a [`ResourceTemplate`] takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceUri {
    /// The whole URI, as the peer wrote it.
    pub uri: String,
    /// The values of the template's variables by name, as written in the URI: percent-encoding is not decoded.
    pub variables: BTreeMap<String, String>,
}

impl ResourceUri {
    /// The value of a variable of the template as a `T`. Percent-encoding is not decoded.
    ///
    /// # Errors
    /// [`ToolError::NotFound`] if the value is not a `T`, or if the template has no variable of this name: no such resource exists.
    pub fn variable<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.variables.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| ToolError::resource_not_found(&self.uri))
    }
}

macro_rules! resource_builders {
    () => {
        about_builders!(described.about);

        /// Sets the MIME type of the contents, where [`ResourceContents::with_mime_type`] sets no other.
        #[must_use]
        pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
            self.described.mime_type = Some(mime_type.into());
            self
        }

        /// Sets hints for whom the resource is, and how important it is.
        #[must_use]
        pub fn annotated(mut self, hints: Annotations) -> Self {
            self.described.hints = Some(hints);
            self
        }
    };
}

impl Resource {
    /// As [`Resource::new`], but the future of `read` need not be `Send`; see [`Tool::local`](crate::Tool::local).
    pub fn local<M, F, Fut>(uri: impl Into<String>, name: impl Into<String>, read: F) -> Self
    where
        M: 'static,
        F: Reader<M, Fut>,
        Fut: Future<Output = Result<ResourceContents>> + 'static,
    {
        let (needs_states, read) = (Needs::of(read.needs()), Arc::new(read));
        Self::build(uri.into(), name.into(), needs_states, move |context, states, _| {
            let read = Arc::clone(&read);
            Answer::Local(Box::new(move || {
                Box::pin(async move { read.call(&context, &states)?.await.map(|contents| Vec::from([contents])) })
            }))
        })
    }

    fn build(
        uri: String,
        name: String,
        needs_states: Needs,
        read: impl Fn(Context, States, ResourceUri) -> Answer<Vec<ResourceContents>> + Send + Sync + 'static,
    ) -> Self {
        let described = Described { name, ..Described::default() };
        Self { uri, described, subscribable: false, needs_states, hooks: Hooks::default(), read: Arc::new(read) }
    }

    /// A resource at `uri`. `read` is called for each request to read it.
    pub fn new<M, F, Fut>(uri: impl Into<String>, name: impl Into<String>, read: F) -> Self
    where
        M: 'static,
        F: Reader<M, Fut>,
        Fut: Future<Output = Result<ResourceContents>> + Send + 'static,
    {
        let (needs_states, read) = (Needs::of(read.needs()), Arc::new(read));
        Self::build(uri.into(), name.into(), needs_states, move |context, states, _| {
            let read = Arc::clone(&read);
            Answer::Shared(Box::pin(async move { read.call(&context, &states)?.await.map(|contents| Vec::from([contents])) }))
        })
    }

    resource_builders!();

    /// Lets peers subscribe to the resource. [`Updates::resource`](crate::Updates::resource) notifies the subscribers of all sessions,
    /// and [`Peer::update`](crate::Peer::update) those of one; on Tesseron they also receive the new value.
    #[must_use]
    pub fn subscribable(mut self) -> Self {
        self.subscribable = true;
        self
    }

    pub(crate) fn describe(&self) -> Json {
        self.described.write("uri", &self.uri)
    }

    /// The resource, to be read. `states` are those of the service.
    pub(crate) fn reading<'a>(&'a self, states: &'a States) -> Reading<'a> {
        let states = self.needs_states.states(states);
        let uri = ResourceUri { uri: self.uri.clone(), variables: BTreeMap::new() };
        Reading { hooks: &self.hooks, read: &self.read, described: &self.described, states, uri }
    }
}

impl ResourceTemplate {
    /// Resources at the URIs that match `template`. `read` is called for each request to read one of them, with its URI.
    pub fn new<M, F, Fut>(template: impl Into<String>, name: impl Into<String>, read: F) -> Self
    where
        M: 'static,
        F: Handler<M, ResourceUri, Fut>,
        Fut: Future<Output = Result<ResourceContents>> + Send + 'static,
    {
        let (needs_states, read) = (Needs::of(read.needs()), Arc::new(read));
        Self::build(template.into(), name.into(), needs_states, move |context, states, uri| {
            let read = Arc::clone(&read);
            Answer::Shared(Box::pin(async move { read.call(&context, &states, uri)?.await.map(|contents| Vec::from([contents])) }))
        })
    }

    /// As [`ResourceTemplate::new`], but the future of `read` need not be `Send`; see [`Tool::local`](crate::Tool::local).
    pub fn local<M, F, Fut>(template: impl Into<String>, name: impl Into<String>, read: F) -> Self
    where
        M: 'static,
        F: Handler<M, ResourceUri, Fut>,
        Fut: Future<Output = Result<ResourceContents>> + 'static,
    {
        let (needs_states, read) = (Needs::of(read.needs()), Arc::new(read));
        Self::build(template.into(), name.into(), needs_states, move |context, states, uri| {
            let read = Arc::clone(&read);
            Answer::Local(Box::new(move || {
                Box::pin(async move { read.call(&context, &states, uri)?.await.map(|contents| Vec::from([contents])) })
            }))
        })
    }

    fn build(
        template: String,
        name: String,
        needs_states: Needs,
        read: impl Fn(Context, States, ResourceUri) -> Answer<Vec<ResourceContents>> + Send + Sync + 'static,
    ) -> Self {
        let (parts, described) = (parts(&template), Described { name, ..Described::default() });
        let completers = Completers::default();
        Self {
            parts,
            template,
            described,
            subscribable: false,
            needs_states,
            hooks: Hooks::default(),
            completers,
            read: Arc::new(read),
        }
    }

    resource_builders!();

    /// Sets the handler that completes a variable of the template (MCP `completion/complete`), instead of
    /// [`Service::completion`](crate::Service::completion). A template without this variable is refused when it is registered.
    ///
    /// ```
    /// use endpoint::{Completion, CompletionRequest, Context, ResourceTemplate, ResourceUri, Result};
    ///
    /// async fn days(asked: CompletionRequest) -> Result<Completion> {
    ///     let days = ["monday", "tuesday", "wednesday"];
    ///     Ok(Completion::all(days.into_iter().filter(|day| day.starts_with(&asked.value))))
    /// }
    ///
    /// async fn log(which: ResourceUri) -> Result<endpoint::ResourceContents> {
    ///     Ok(format!("The log of {}", which.variable::<String>("day")?).into())
    /// }
    ///
    /// let logs = ResourceTemplate::new("log://{day}", "logs", log).complete("day", days);
    /// # drop(logs);
    /// ```
    #[must_use]
    pub fn complete<M, H, Fut>(mut self, variable: impl Into<String>, handler: H) -> Self
    where
        M: 'static,
        H: Handler<M, CompletionRequest, Fut>,
        Fut: Future<Output = Result<Completion>> + Send + 'static,
    {
        self.completers.add(variable.into(), handler, &mut self.needs_states);
        self
    }

    /// The reason for which the template cannot be registered.
    pub(super) fn refusal(&self) -> Option<String> {
        self.completers.refusal(
            "variable",
            self.parts.iter().filter_map(|part| match part {
                Part::Variable { name, .. } => Some(&**name),
                Part::Literal(_) => None,
            }),
        )
    }

    /// Lets peers subscribe to each resource that matches the template, on MCP. See [`Resource::subscribable`].
    #[must_use]
    pub fn subscribable(mut self) -> Self {
        self.subscribable = true;
        self
    }

    pub(crate) fn describe(&self) -> Json {
        self.described.write("uriTemplate", &self.template)
    }

    /// Matches `uri` against the template, and returns the URI with the values of the variables. `None` if it does not match.
    pub(crate) fn matches(&self, uri: &str) -> Option<ResourceUri> {
        let mut variables = BTreeMap::new();
        match_uri(&self.parts, uri, &mut variables).then(|| ResourceUri { uri: uri.to_owned(), variables })
    }

    /// A resource of this template, to be read. `states` are those of the service.
    pub(crate) fn reading<'a>(&'a self, states: &'a States, uri: ResourceUri) -> Reading<'a> {
        let states = self.needs_states.states(states);
        Reading { hooks: &self.hooks, read: &self.read, described: &self.described, states, uri }
    }
}

/// A resource that is to be read.
pub(crate) struct Reading<'a> {
    /// The hooks of the services that it was merged from.
    pub(crate) hooks: &'a Hooks,
    read: &'a Arc<Read>,
    described: &'a Described,
    states: &'a States,
    uri: ResourceUri,
}

impl Reading<'_> {
    pub(crate) fn start(self, served: Arc<ServedCall>) -> Start {
        let into_reply = self.conversion();
        self.answer(Context::new(Arc::clone(&served))).start(served, into_reply)
    }

    /// Calls the handler.
    pub(crate) fn answer(self, context: Context) -> Answer<Vec<ResourceContents>> {
        (self.read)(context, self.states.clone(), self.uri)
    }

    /// Calls the handler within the hooks around it, each time that the returned function is called.
    pub(crate) fn run_within(&self) -> impl Fn(Context, Json) -> Result<Answer<Vec<ResourceContents>>> + Send + Sync + use<> {
        let (read, states, uri) = (Arc::clone(self.read), self.states.clone(), self.uri.clone());
        move |context, arguments| match arguments.as_str() {
            "null" => Ok(read(context, states.clone(), uri.clone())),
            _ => Err(RpcError::fixed(RpcError::INTERNAL, "a hook has given arguments to a resource, which has none").into()),
        }
    }

    /// The conversion of what the handler read into a reply.
    pub(crate) fn conversion(&self) -> impl FnOnce(Result<Vec<ResourceContents>>) -> Reply + Send + use<> {
        let (requested, mime_type) = (self.uri.uri.clone(), self.described.mime_type.clone());
        move |contents| {
            let contents = contents.and_then(|mut contents| {
                for one in &mut contents {
                    if one.uri.is_empty() {
                        one.uri.clone_from(&requested);
                    }
                    if one.mime_type.is_none() {
                        one.mime_type.clone_from(&mime_type);
                    }
                }
                Ok(Json::encode(&contents)?)
            });
            contents.map_or_else(ToolError::into_error_reply, Reply::Contents)
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl fmt::Debug for ResourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceTemplate").field("template", &self.template).finish_non_exhaustive()
    }
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable {
        name: String,
        /// `{+name}`: the value may contain slashes.
        takes_slashes: bool,
    },
}

/// Parses a template. Braces that do not enclose a variable are literal text.
fn parts(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        literal.push_str(before);
        match after.split_once('}') {
            Some((name, tail)) if !name.trim_start_matches('+').is_empty() && !name.contains('{') => {
                if !literal.is_empty() {
                    parts.push(Part::Literal(core::mem::take(&mut literal)));
                }
                let (name, takes_slashes) = name.strip_prefix('+').map_or((name, false), |name| (name, true));
                parts.push(Part::Variable { name: name.to_owned(), takes_slashes });
                rest = tail;
            }
            _ => {
                literal.push('{');
                rest = after;
            }
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    parts
}

/// Matches `uri` against `parts`, without backtracking: a variable ends at the first occurrence of the literal that follows it. If that
/// literal is the last part, the variable ends at the occurrence that ends the URI. So the time is linear in the length of the URI, but
/// some URIs do not match although they would with longer values of the variables.
fn match_uri(parts: &[Part], uri: &str, variables: &mut BTreeMap<String, String>) -> bool {
    let mut rest = uri;
    let mut parts = parts.iter();
    while let Some(part) = parts.next() {
        match part {
            Part::Literal(text) => match rest.strip_prefix(text.as_str()) {
                Some(tail) => rest = tail,
                None => return false,
            },
            Part::Variable { name, takes_slashes } => {
                let end = match parts.as_slice() {
                    [] => Some(rest.len()),
                    [Part::Literal(last)] => rest.strip_suffix(last.as_str()).map(str::len),
                    [Part::Literal(next), ..] => rest.find(next.as_str()),
                    // Two variables side by side: the first takes one character.
                    [Part::Variable { .. }, ..] => rest.chars().next().map(char::len_utf8),
                };
                let Some((value, tail)) = end.and_then(|end| rest.split_at_checked(end)) else { return false };
                if value.is_empty() || (!takes_slashes && value.contains('/')) {
                    return false;
                }
                variables.insert(name.clone(), value.to_owned());
                rest = tail;
            }
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        let mut found = BTreeMap::new();
        match_uri(&parts(template), uri, &mut found).then(|| found.into_iter().collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        Some(pairs.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect())
    }

    #[test]
    fn a_uri_matches_literals_and_variables_and_only_a_variable_with_a_plus_takes_slashes() {
        assert_eq!(variables("log://{day}", "log://monday"), pairs(&[("day", "monday")]));
        assert_eq!(variables("log://{day}", "log://a/b"), None);
        assert_eq!(variables("log://{day}", "log://"), None);
        assert_eq!(variables("file:///{+path}", "file:///a/b.txt"), pairs(&[("path", "a/b.txt")]));
        assert_eq!(variables("file:///{+path}.txt", "file:///a.txt/b.txt"), pairs(&[("path", "a.txt/b")]));
        assert_eq!(variables("db://{table}/rows/{id}", "db://users/rows/7"), pairs(&[("id", "7"), ("table", "users")]));
        assert_eq!(variables("db://{table}/rows/{id}", "db://users/rows/7/8"), None);
        assert_eq!(variables("img://{name}x", "img://axbx"), pairs(&[("name", "axb")]));
        assert_eq!(variables("plain://x", "plain://x"), pairs(&[]));
        assert_eq!(variables("odd://{/{}", "odd://{/{}"), pairs(&[]));
    }
}
