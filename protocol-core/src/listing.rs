//! The tools, prompts and resources that a server describes, without handlers.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::dialect::{Capabilities, CompletionOf, List, NotFound, Op, Page, Reply, Request};
use crate::error::RpcError;
use crate::json::write::Object;
use crate::json::{Json, Text};

/// The descriptions of the tools, prompts and resources of a server with an event loop of its own. It answers the requests for lists, and
/// refuses the requests that name nothing of these.
///
/// The owner of the session handles the requests that it knows, and answers each other request by [`Self::reply`], so that no call is left
/// open:
///
/// ```
/// use protocol_core::listing::Listing;
/// use protocol_core::{Config, Event, Identity, Instant, Json, Lane, Reply, Request, Session, ToolOutput};
///
/// let schema = Json::parse(r#"{"type":"object"}"#)?;
/// let listing = Listing::new().tool("greet", "Says hello", &schema)?;
/// let mut config = Config::mcp_server(Identity::new("greeter", "1.0"));
/// listing.declare(&mut config.capabilities);
/// let mut session = Session::new(config, Instant::ZERO);
/// while let Some(event) = session.poll_event() {
///     let Event::Request { id, request, .. } = event else { continue };
///     let reply = match &request {
///         Request::CallTool(call) if call.name() == "greet" => Reply::Tool(ToolOutput::text("hello")),
///         other => listing.reply(other),
///     };
///     let _ = session.respond(id, reply, Instant::ZERO); // an error means that the call has already ended
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A list is one page, in the order of names. Descriptions are sent as they were added.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    tools: BTreeMap<String, Json>,
    prompts: BTreeMap<String, Json>,
    resources: BTreeMap<String, Json>,
    templates: BTreeMap<String, Json>,
}

/// The reason why a description was not added to a [`Listing`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListingError {
    /// The operation does not request a list.
    #[error("the operation requests no list")]
    NoList,
    /// The member that identifies the entry, `name`, `uri` or `uriTemplate`, is missing or no string.
    #[error("`{0}` is missing or no string")]
    Unnamed(&'static str),
    /// The `inputSchema` of a tool is no object with `"type": "object"`, which MCP demands.
    #[error("the `inputSchema` of the tool {0:?} is no object with \"type\": \"object\"")]
    Schema(String),
    /// The list has an entry with this name or URI already.
    #[error("{0:?} is in the list already")]
    Repeated(String),
}

impl Listing {
    /// A listing without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self { tools: BTreeMap::new(), prompts: BTreeMap::new(), resources: BTreeMap::new(), templates: BTreeMap::new() }
    }

    /// Adds a tool with this name, description for the model, and JSON Schema of the arguments. [`Self::entry`] adds one with further
    /// members.
    ///
    /// # Errors
    /// If the schema is no object with `"type": "object"`, or if there is a tool of this name.
    pub fn tool(self, name: &str, description: &str, schema: &Json) -> Result<Self, ListingError> {
        let entry = Object::value(|tool| {
            tool.string("name", name);
            tool.string("description", description);
            tool.json("inputSchema", schema);
        });
        self.entry(Op::ListTools, entry)
    }

    /// Adds an entry of the list that `list` requests, as the protocol describes it: for [`Op::ListTools`] an object with `name`,
    /// `description`, `inputSchema` and so on.
    ///
    /// # Errors
    /// If `list` requests no list, if the entry has no name, URI or template of a URI, if a tool has no schema, or if the list has an entry
    /// of this name already.
    pub fn entry(mut self, list: Op, entry: Json) -> Result<Self, ListingError> {
        let (entries, key) = match list {
            Op::ListTools => (&mut self.tools, "name"),
            Op::ListPrompts => (&mut self.prompts, "name"),
            Op::ListResources => (&mut self.resources, "uri"),
            Op::ListResourceTemplates => (&mut self.templates, "uriTemplate"),
            _ => return Err(ListingError::NoList),
        };
        let name = entry.member(key).and_then(|name| name.as_text()).ok_or(ListingError::Unnamed(key))?;
        let name = String::from(name.as_str());
        let is_schema = |schema: &Json| schema.member("type").is_some_and(|kind| kind.as_str() == r#""object""#);
        if list == Op::ListTools && !entry.member("inputSchema").as_ref().is_some_and(is_schema) {
            return Err(ListingError::Schema(name));
        }
        if entries.contains_key(&name) {
            return Err(ListingError::Repeated(name));
        }
        entries.insert(name, entry);
        Ok(self)
    }

    /// Sets the capabilities of a server to have tools, prompts and resources: each if there is an entry. Other capabilities stay as they
    /// are.
    pub fn declare(&self, capabilities: &mut Capabilities) {
        capabilities.tools = !self.tools.is_empty();
        capabilities.prompts = !self.prompts.is_empty();
        capabilities.resources = !self.resources.is_empty() || !self.templates.is_empty();
    }

    /// The reply to a request that the owner of the session does not handle itself: a list, or a refusal. The refusal of a request for an
    /// entry that is listed is an internal error, since the owner should have handled it. The end of a subscription is confirmed.
    #[must_use]
    pub fn reply(&self, request: &Request) -> Reply {
        match request {
            Request::ListTools(list) => page(list, &self.tools),
            Request::ListPrompts(list) => page(list, &self.prompts),
            Request::ListResources(list) => page(list, &self.resources),
            Request::ListResourceTemplates(list) => page(list, &self.templates),
            Request::CallTool(call) => match self.tools.get(&*call.name()) {
                None => Reply::NotFound(NotFound::Tool(Text::from(&*call.name()))),
                Some(_) => unhandled(&call.name()),
            },
            Request::GetPrompt(prompt) => match self.prompts.get(&*prompt.name()) {
                None => unknown_prompt(&prompt.name()),
                Some(_) => unhandled(&prompt.name()),
            },
            Request::ReadResource(read) => self.resource(&read.uri()),
            Request::Subscribe(subscribe) => self.resource(&subscribe.uri()),
            Request::Unsubscribe(_) => Reply::Done,
            Request::Complete(complete) => match &complete.completion().of {
                CompletionOf::Prompt(name) if !self.prompts.contains_key(name) => unknown_prompt(name),
                _ => Reply::Error(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "completion is not offered")),
            },
            _ => Reply::Error(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found")),
        }
    }

    fn resource(&self, uri: &str) -> Reply {
        // Whether a template matches the URI only the owner can tell.
        if self.resources.contains_key(uri) { unhandled(uri) } else { Reply::NotFound(NotFound::Resource(uri.into())) }
    }
}

fn page(list: &List, entries: &BTreeMap<String, Json>) -> Reply {
    match list.cursor() {
        None => Reply::Page(Page::last(entries.values().cloned())),
        Some(_) => Reply::Error(RpcError::fixed(RpcError::INVALID_PARAMS, "invalid cursor")),
    }
}

fn unknown_prompt(name: &str) -> Reply {
    Reply::Error(RpcError::invalid_params(alloc::format!("unknown prompt {name:?}")))
}

fn unhandled(name: &str) -> Reply {
    Reply::Error(RpcError::internal(alloc::format!("{name:?} is listed, but nothing handles it")))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{Config, Event, Identity, Instant, Lane, Session};

    fn json(text: &'static str) -> Json {
        Json::parse(text).unwrap()
    }

    fn listing() -> Listing {
        let listing = Listing::new().tool("greet", "Says hello", &json(r#"{"type":"object"}"#)).unwrap();
        let listing = listing.entry(Op::ListTools, json(r#"{"name":"area","inputSchema":{"type":"object"},"title":"A"}"#)).unwrap();
        let listing = listing.entry(Op::ListPrompts, json(r#"{"name":"ask"}"#)).unwrap();
        let listing = listing.entry(Op::ListResources, json(r#"{"uri":"u:a","name":"a"}"#)).unwrap();
        listing.entry(Op::ListResourceTemplates, json(r#"{"uriTemplate":"u:{b}","name":"b"}"#)).unwrap()
    }

    /// The result or the code of the error with which a session answers the request, the owner of which handles none itself.
    fn answer(method: &str, params: &str) -> String {
        let listing = listing();
        let mut config = Config::mcp_server(Identity::new("server", "1"));
        listing.declare(&mut config.capabilities);
        (config.capabilities.completions, config.capabilities.resources_subscribe) = (true, true);
        config.custom_methods.push("own/method".into());
        let mut session = Session::new(config, Instant::ZERO);
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
        let request = alloc::format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{params}}}"#);
        let frames = [hello, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &request];
        for frame in frames {
            session.handle_frame(String::from(frame).into_bytes().into(), Lane::CHANNEL, Instant::ZERO).unwrap();
        }
        while let Some(event) = session.poll_event() {
            if let Event::Request { id, request, .. } = event {
                session.respond(id, listing.reply(&request), Instant::ZERO).unwrap();
            }
        }
        let frames: Vec<_> = core::iter::from_fn(|| session.poll_transmit()).collect();
        let reply = Json::parse(frames.last().unwrap().frame.clone()).unwrap();
        let error = || reply.member("error").unwrap().member("code").unwrap();
        String::from(reply.member("result").unwrap_or_else(error).as_str())
    }

    #[test]
    fn lists_have_all_entries_and_every_other_request_gets_an_answer() {
        let tools = r#"{"tools":[{"name":"area","inputSchema":{"type":"object"},"title":"A"},{"name":"greet","description":"Says hello","inputSchema":{"type":"object"}}]}"#;
        for (method, params, expected) in [
            ("tools/list", "{}", tools),
            ("tools/list", r#"{"cursor":"tools:2"}"#, "-32602"),
            ("prompts/list", "{}", r#"{"prompts":[{"name":"ask"}]}"#),
            ("resources/list", "{}", r#"{"resources":[{"uri":"u:a","name":"a"}]}"#),
            ("resources/templates/list", "{}", r#"{"resourceTemplates":[{"uriTemplate":"u:{b}","name":"b"}]}"#),
            ("tools/call", r#"{"name":"other"}"#, "-32602"),
            ("tools/call", r#"{"name":"greet"}"#, "-32603"),
            ("prompts/get", r#"{"name":"other"}"#, "-32602"),
            ("prompts/get", r#"{"name":"ask"}"#, "-32603"),
            ("resources/read", r#"{"uri":"u:c"}"#, "-32002"),
            ("resources/read", r#"{"uri":"u:a"}"#, "-32603"),
            ("resources/subscribe", r#"{"uri":"u:c"}"#, "-32002"),
            ("resources/unsubscribe", r#"{"uri":"u:a"}"#, "{}"),
            ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"other"},"argument":{"name":"a","value":""}}"#, "-32602"),
            ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"ask"},"argument":{"name":"a","value":""}}"#, "-32601"),
            ("own/method", "{}", "-32601"),
        ] {
            assert_eq!(answer(method, params), expected, "{method} {params}");
        }
    }

    #[test]
    fn an_entry_that_clients_could_not_use_is_refused() {
        let refused = |list, text| listing().entry(list, json(text)).unwrap_err();
        assert_eq!(refused(Op::CallTool, "{}"), ListingError::NoList);
        assert_eq!(refused(Op::ListPrompts, r#"{"name":7}"#), ListingError::Unnamed("name"));
        assert_eq!(refused(Op::ListResources, r#"{"name":"a"}"#), ListingError::Unnamed("uri"));
        assert_eq!(refused(Op::ListPrompts, r#"{"name":"ask"}"#), ListingError::Repeated("ask".into()));
        for text in [r#"{"name":"a"}"#, r#"{"name":"a","inputSchema":[]}"#, r#"{"name":"a","inputSchema":{"type":"array"}}"#] {
            assert_eq!(refused(Op::ListTools, text), ListingError::Schema("a".into()), "{text}");
        }
    }
}
