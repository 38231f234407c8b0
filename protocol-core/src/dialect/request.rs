//! Requests of the peer. Each operation has a type, whose accessors read the parameters. The operations that list something share one type.
//!
//! A request stores the JSON of its parameters, and the ranges of the members that accessors read. The members were found and checked while
//! the frame was read, so no accessor fails. An accessor copies text only if the text has escapes.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use bytes::Bytes;

use super::{Op, Retry, SubscriptionFilter};
use crate::json::cursor::{IndexedObject, Span};
use crate::json::read::{self, Kind};
use crate::json::{Json, Payload, Text};

/// A request of the peer, in the terms that both protocols share.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Run a tool; on Tesseron an action.
    CallTool(CallTool),
    /// List the tools.
    ListTools(List),
    /// Get a prompt.
    GetPrompt(GetPrompt),
    /// List the prompts.
    ListPrompts(List),
    /// Read a resource.
    ReadResource(ReadResource),
    /// List the resources.
    ListResources(List),
    /// List the resource templates.
    ListResourceTemplates(List),
    /// Subscribe to changes of a resource.
    Subscribe(Subscribe),
    /// End a subscription.
    Unsubscribe(Unsubscribe),
    /// Complete an argument.
    Complete(Complete),
    /// Listen for notifications, until the subscription ends (MCP 2026-07-28).
    Listen(Listen),
    /// A method outside the protocol.
    Custom(Custom),
}

impl Request {
    /// The kind of the request.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::CallTool(_) => Op::CallTool,
            Self::ListTools(_) => Op::ListTools,
            Self::GetPrompt(_) => Op::GetPrompt,
            Self::ListPrompts(_) => Op::ListPrompts,
            Self::ReadResource(_) => Op::ReadResource,
            Self::ListResources(_) => Op::ListResources,
            Self::ListResourceTemplates(_) => Op::ListResourceTemplates,
            Self::Subscribe(_) => Op::Subscribe,
            Self::Unsubscribe(_) => Op::Unsubscribe,
            Self::Complete(_) => Op::Complete,
            Self::Listen(_) => Op::Listen,
            Self::Custom(_) => Op::Custom,
        }
    }

    fn spans(&self) -> &ParamSpans {
        match self {
            Self::CallTool(request) => &request.0,
            Self::GetPrompt(request) => &request.0,
            Self::ReadResource(request) => &request.0,
            Self::Subscribe(request) => &request.0,
            Self::Unsubscribe(request) => &request.0,
            Self::ListTools(list) | Self::ListPrompts(list) | Self::ListResources(list) | Self::ListResourceTemplates(list) => {
                &list.0
            }
            Self::Complete(request) => &request.spans,
            Self::Listen(request) => &request.spans,
            Self::Custom(request) => &request.spans,
        }
    }

    /// The parameters exactly as they arrived, unknown members and `_meta` included: an object. `{}` if the peer sent none.
    #[must_use]
    pub fn params(&self) -> &Json {
        &self.spans().json
    }

    /// The answers to an earlier round of input requests. `None` if the request does not have the members of a retry (MCP 2026-07-28).
    #[must_use]
    pub fn retry(&self) -> Option<&Retry> {
        self.spans().retry.as_deref()
    }

    /// The name of the tool or prompt, or the URI of the resource, for logs. `None` for any other request, and for the end of a
    /// subscription on Tesseron.
    #[must_use]
    pub fn target(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::CallTool(request) => Some(request.name()),
            Self::GetPrompt(request) => Some(request.name()),
            Self::ReadResource(request) => Some(request.uri()),
            Self::Subscribe(request) => Some(request.uri()),
            Self::Unsubscribe(request) => request.uri(),
            _ => None,
        }
    }
}

/// The JSON of the parameters of a request, and the ranges of the members that accessors return.
#[derive(Clone)]
struct ParamSpans {
    json: Json,
    /// The name, the URI or the cursor in the request.
    target: Span,
    /// The arguments, or the name of a subscription.
    extra: Span,
    /// The answers of a retry. Boxed, since most requests are not retries.
    retry: Option<Box<Retry>>,
}

impl ParamSpans {
    fn text(&self, span: Span) -> Option<Cow<'_, str>> {
        if span.is_empty() { None } else { read::string(span.cut(self.json.as_bytes())) }
    }

    fn part(&self, span: Span) -> Option<Json> {
        if span.is_empty() { None } else { Some(self.json.part(span.cut(self.json.as_bytes()))) }
    }
}

impl PartialEq for ParamSpans {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for ParamSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq)]
        pub struct $name(ParamSpans);

        impl $name {
            /// The parameters exactly as they arrived, unknown members and `_meta` included: an object.
            #[must_use]
            pub fn params(&self) -> &Json {
                &self.0.json
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

requests! {
    /// A request to run a tool.
    CallTool;
    /// A request for a prompt.
    GetPrompt;
    /// A request for one page of a list.
    List;
    /// A request to read a resource.
    ReadResource;
    /// A request to subscribe to changes of a resource.
    Subscribe;
    /// A request to end a subscription.
    Unsubscribe;
}

macro_rules! named {
    ($($name:ident)*) => {$(
        impl $name {
            /// The name of the tool or the prompt.
            #[must_use]
            pub fn name(&self) -> Cow<'_, str> {
                self.0.text(self.0.target).unwrap_or_default()
            }

            /// The arguments: any JSON, as a slice of the frame. `None` if they are missing or `null`.
            #[must_use]
            pub fn arguments(&self) -> Option<Json> {
                self.0.part(self.0.extra)
            }

            /// Returns the arguments and drops the rest of the request, so that only the arguments still refer to the frame.
            #[must_use]
            pub fn into_arguments(self) -> Option<Json> {
                let ParamSpans { json, extra, .. } = self.0;
                (!extra.is_empty()).then(|| json.into_part(extra))
            }
        }
    )*};
}

named!(CallTool GetPrompt);

impl List {
    /// The cursor of the requested page, which an earlier page named; `None` for the first page.
    #[must_use]
    pub fn cursor(&self) -> Option<Cow<'_, str>> {
        self.0.text(self.0.target)
    }
}

impl ReadResource {
    /// The URI of the resource, which on Tesseron is its name.
    #[must_use]
    pub fn uri(&self) -> Cow<'_, str> {
        self.0.text(self.0.target).unwrap_or_default()
    }
}

impl Subscribe {
    /// The URI of the resource, which on Tesseron is its name.
    #[must_use]
    pub fn uri(&self) -> Cow<'_, str> {
        self.0.text(self.0.target).unwrap_or_default()
    }

    /// The name that the peer gives the subscription (Tesseron). `None` on MCP.
    #[must_use]
    pub fn subscription(&self) -> Option<Cow<'_, str>> {
        self.0.text(self.0.extra)
    }
}

impl Unsubscribe {
    /// The URI of the resource (MCP). `None` on Tesseron, where the request has only the name of the subscription.
    #[must_use]
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        self.0.text(self.0.target)
    }

    /// The name that the peer gave the subscription (Tesseron). `None` on MCP.
    #[must_use]
    pub fn subscription(&self) -> Option<Cow<'_, str>> {
        self.0.text(self.0.extra)
    }
}

/// A request to complete an argument.
#[derive(Clone, PartialEq)]
pub struct Complete {
    spans: ParamSpans,
    completion: Box<CompletionRequest>,
}

impl Complete {
    /// The parameters exactly as they arrived, unknown members and `_meta` included: an object.
    #[must_use]
    pub fn params(&self) -> &Json {
        &self.spans.json
    }

    /// The argument to complete.
    #[must_use]
    pub fn completion(&self) -> &CompletionRequest {
        &self.completion
    }

    /// Takes the argument to complete out of the request.
    #[must_use]
    pub fn into_completion(self) -> CompletionRequest {
        *self.completion
    }
}

impl fmt::Debug for Complete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.fmt(f)
    }
}

/// A request for notifications, until the subscription ends (MCP 2026-07-28, Subscriptions).
#[derive(Clone, PartialEq)]
pub struct Listen {
    spans: ParamSpans,
    filter: Box<SubscriptionFilter>,
}

impl Listen {
    /// The parameters exactly as they arrived, unknown members and `_meta` included: an object.
    #[must_use]
    pub fn params(&self) -> &Json {
        &self.spans.json
    }

    /// The kinds of notifications that the caller subscribes to.
    #[must_use]
    pub fn filter(&self) -> &SubscriptionFilter {
        &self.filter
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.fmt(f)
    }
}

/// A request of a method outside the protocol, which [`Config::custom_methods`](crate::Config::custom_methods) lists.
#[derive(Clone, PartialEq)]
pub struct Custom {
    spans: ParamSpans,
    method: Box<str>,
}

impl Custom {
    /// The method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The parameters exactly as they arrived: an object. `{}` if the peer sent none.
    #[must_use]
    pub fn params(&self) -> &Json {
        &self.spans.json
    }

    /// Takes the parameters out of the request.
    #[must_use]
    pub fn into_params(self) -> Json {
        self.spans.json
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Custom").field(&self.method).field(&self.spans).finish()
    }
}

/// A request for the values that an argument may have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The prompt or the resource that the argument belongs to.
    pub of: CompletionOf,
    /// The argument's name.
    pub argument: String,
    /// The text that the user has typed so far.
    pub value: String,
    /// The values of the arguments that already have one, by name (MCP 2025-06-18 and later).
    pub context: BTreeMap<String, String>,
}

impl CompletionRequest {
    /// A request for the values of an argument. `value` is the text that the user has typed so far.
    #[must_use]
    pub fn new(of: CompletionOf, argument: impl Into<String>, value: impl Into<String>) -> Self {
        Self { of, argument: argument.into(), value: value.into(), context: BTreeMap::new() }
    }
}

/// The prompt or the resource whose argument is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionOf {
    /// The prompt of this name.
    Prompt(String),
    /// The resource or resource template with this URI.
    Resource(String),
}

/// A request that was read, and whose parameters are still a part of the frame.
#[derive(Debug)]
pub(crate) struct RawParams {
    op: Op,
    json: Payload,
    target: Span,
    extra: Span,
    addition: Option<Box<Addition>>,
}

/// A value that is stored in addition to the JSON of the parameters. No request has more than one.
#[derive(Debug)]
enum Addition {
    Completion(Box<CompletionRequest>),
    Filter(Box<SubscriptionFilter>),
    Method(Box<str>),
    Retry(Box<Retry>),
}

/// The name of a member of parameters, and the type that the protocol demands for its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    name: &'static str,
    demand: Demand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Text,
    Optional,
    Any,
    None,
}

impl Member {
    /// A member that must be present and be text.
    pub(crate) const fn text(name: &'static str) -> Self {
        Self { name, demand: Demand::Text }
    }

    /// A member that must be text, unless it is `null` or missing.
    pub(crate) const fn optional(name: &'static str) -> Self {
        Self { name, demand: Demand::Optional }
    }

    /// A member of any type; `null` counts as missing.
    pub(crate) const fn any(name: &'static str) -> Self {
        Self { name, demand: Demand::Any }
    }

    /// A placeholder, for an operation that has fewer members.
    pub(crate) const fn none() -> Self {
        Self { name: "", demand: Demand::None }
    }

    /// Checks the type of the value at `span`, and returns `span`, or an empty range if the value counts as missing. The contents of a
    /// string are not checked: a string with an unpaired surrogate is later read as empty if text is mandatory, and as missing otherwise.
    #[inline]
    fn check(self, text: &[u8], span: Span) -> Result<Span, Text> {
        let first = span.cut(text).first();
        match (self.demand, first) {
            (Demand::Text | Demand::Optional, Some(b'"')) => Ok(span),
            // Only `null` begins with `n`.
            (Demand::Any | Demand::Optional, None | Some(b'n')) | (Demand::None, _) => Ok(Span::default()),
            (Demand::Any, Some(_)) => Ok(span),
            _ => Err(self.wrong()),
        }
    }

    #[cold]
    fn wrong(self) -> Text {
        match self.demand {
            Demand::Optional => alloc::format!("invalid {}", self.name).into(),
            _ => alloc::format!("`{}` is missing or no string", self.name).into(),
        }
    }
}

impl RawParams {
    /// Reads a request for `op` with the parameters `given`, if there are any. `json` makes the payload of the parameters. The error
    /// describes the fault.
    #[inline]
    pub(crate) fn read(
        op: Op,
        json: impl Fn(&IndexedObject<'_>) -> Payload,
        given: Option<&IndexedObject<'_>>,
        [target, extra]: &'static [Member; 2],
    ) -> Result<Self, Text> {
        let Some(indexed) = given else {
            let nothing = |member: &Member| member.check(b"", Span::default());
            let (target, extra) = (nothing(target)?, nothing(extra)?);
            return Ok(Self { op, json: Payload::Own(Json::empty_object()), target, extra, addition: None });
        };
        let text = indexed.text();
        let [at_target, at_extra] = match indexed.spans([target.name, extra.name]) {
            Some(spans) => spans,
            None => look_for(text, [target, extra])?,
        };
        Ok(Self {
            op,
            json: json(indexed),
            target: target.check(text, at_target)?,
            extra: extra.check(text, at_extra)?,
            addition: None,
        })
    }

    /// A request of a method outside the protocol.
    pub(crate) fn custom(method: &str, params: Json) -> Self {
        let addition = Some(Box::new(Addition::Method(method.into())));
        Self { op: Op::Custom, json: Payload::Own(params), target: Span::default(), extra: Span::default(), addition }
    }

    /// Adds the argument to complete.
    pub(crate) fn with_completion(self, completion: CompletionRequest) -> Self {
        Self { addition: Some(Box::new(Addition::Completion(Box::new(completion)))), ..self }
    }

    /// Adds the answers to an earlier round.
    pub(crate) fn with_retry(self, retry: Box<Retry>) -> Self {
        Self { addition: Some(Box::new(Addition::Retry(retry))), ..self }
    }

    /// Adds the kinds of notifications that the caller subscribes to.
    pub(crate) fn with_filter(self, filter: SubscriptionFilter) -> Self {
        Self { addition: Some(Box::new(Addition::Filter(Box::new(filter)))), ..self }
    }

    /// Cuts the request out of `frame`, which must be the frame that was read.
    #[inline]
    pub(crate) fn cut(self, frame: Bytes) -> Request {
        let Self { op, json, target, extra, mut addition } = self;
        let retry =
            addition.take_if(|addition| matches!(**addition, Addition::Retry(_))).and_then(|addition| addition.into_retry());
        let spans = ParamSpans { json: json.cut(frame), target, extra, retry };
        match op {
            Op::CallTool => Request::CallTool(CallTool(spans)),
            Op::ListTools => Request::ListTools(List(spans)),
            Op::GetPrompt => Request::GetPrompt(GetPrompt(spans)),
            Op::ListPrompts => Request::ListPrompts(List(spans)),
            Op::ReadResource => Request::ReadResource(ReadResource(spans)),
            Op::ListResources => Request::ListResources(List(spans)),
            Op::ListResourceTemplates => Request::ListResourceTemplates(List(spans)),
            Op::Subscribe => Request::Subscribe(Subscribe(spans)),
            Op::Unsubscribe => Request::Unsubscribe(Unsubscribe(spans)),
            _ => with_addition(spans, addition),
        }
    }
}

impl Addition {
    fn into_retry(self) -> Option<Box<Retry>> {
        if let Self::Retry(retry) = self { Some(retry) } else { None }
    }
}

#[cold]
fn with_addition(spans: ParamSpans, addition: Option<Box<Addition>>) -> Request {
    match addition.map(|addition| *addition) {
        Some(Addition::Filter(filter)) => Request::Listen(Listen { spans, filter }),
        Some(Addition::Completion(completion)) => Request::Complete(Complete { spans, completion }),
        Some(Addition::Method(method)) => Request::Custom(Custom { spans, method }),
        // Unreachable: every dialect adds the value that these kinds of requests need.
        Some(Addition::Retry(_)) | None => Request::Custom(Custom { spans, method: Box::default() }),
    }
}

/// Finds members by a second pass over the text. This is needed for parameters with many members, with an escape in a name, or with a
/// repeated member. Of a repeated member the last value is used, apart from values that count as missing.
#[cold]
fn look_for(text: &[u8], members: [&Member; 2]) -> Result<[Span; 2], Text> {
    if u32::try_from(text.len()).is_err() {
        return Err(Text::from_static("parameters of 4 GiB or more are not read"));
    }
    let mut spans = [Span::default(); 2];
    read::for_each_key(text, |key, value| {
        for (span, member) in spans.iter_mut().zip(members) {
            // A `null` that counts as missing does not replace an earlier value.
            let counts = member.demand == Demand::Text || value != b"null";
            if counts && member.demand != Demand::None && key.is(member.name) {
                let from = value.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
                *span = Span::new(from, from.wrapping_add(value.len()));
            }
        }
    });
    Ok(spans)
}

/// Reads the filter of a subscription, which may have at most `limit` resources. The error describes the fault.
pub(crate) fn read_filter(params: &[u8], limit: usize) -> Result<SubscriptionFilter, Text> {
    let wanted = read::member(params, "notifications").filter(|value| Kind::of(value) == Kind::Object);
    let wanted = wanted.ok_or_else(|| Text::from_static("`notifications` is missing or no object"))?;
    let mut filter = SubscriptionFilter::default();
    let mut wrong = None;
    read::for_each_member(wanted, |name, value| {
        if value == b"null" {
            // Counts as absent.
            return;
        }
        let flag = match name {
            "toolsListChanged" => &mut filter.tools,
            "promptsListChanged" => &mut filter.prompts,
            "resourcesListChanged" => &mut filter.resources,
            "resourceSubscriptions" => {
                let uris: Option<_> =
                    read::elements(value).into_iter().map(|uri| read::string(uri).map(|uri| Text::from(&*uri))).collect();
                match uris {
                    Some(uris) if Kind::of(value) == Kind::Array => filter.uris = uris,
                    _ => wrong = Some("`resourceSubscriptions` must be an array of strings"),
                }
                return;
            }
            _ => return,
        };
        match value {
            b"true" => *flag = true,
            b"false" => *flag = false,
            _ => wrong = Some("`toolsListChanged`, `promptsListChanged` and `resourcesListChanged` must be booleans"),
        }
    });
    match wrong {
        Some(why) => Err(Text::from_static(why)),
        None if filter.uris.len() > limit => Err(Text::from_static("too many resources in one subscription")),
        None => Ok(filter),
    }
}

/// Reads a completion request of MCP. The error describes the fault.
pub(crate) fn read_completion(params: &[u8]) -> Result<CompletionRequest, Text> {
    let object = |of: &[u8], name: &str| read::member(of, name).filter(|value| Kind::of(value) == Kind::Object).map(<[u8]>::to_vec);
    let text = |of: &[u8], name: &str| read::member(of, name).and_then(read::string).map(Cow::into_owned);
    let missing = |what: &'static str| Text::from(alloc::format!("invalid completion request: `{what}` is missing or no string"));
    let no_object = |what: &str| Text::from(alloc::format!("invalid completion request: `{what}` is missing or no object"));
    let of = object(params, "ref").ok_or_else(|| no_object("ref"))?;
    let of = match text(&of, "type").as_deref() {
        Some("ref/prompt") => CompletionOf::Prompt(text(&of, "name").ok_or_else(|| missing("ref.name"))?),
        Some("ref/resource") => CompletionOf::Resource(text(&of, "uri").ok_or_else(|| missing("ref.uri"))?),
        _ => return Err(Text::from_static("invalid completion request: `ref.type` is unknown")),
    };
    let argument = object(params, "argument").ok_or_else(|| no_object("argument"))?;
    let name = text(&argument, "name").ok_or_else(|| missing("argument.name"))?;
    let value = text(&argument, "value").ok_or_else(|| missing("argument.value"))?;
    let mut context = BTreeMap::new();
    let mut is_valid = true;
    if let Some(given) = object(params, "context").and_then(|context| object(&context, "arguments")) {
        read::for_each_member(&given, |name, value| match read::string(value) {
            Some(value) => drop(context.insert(String::from(name), value.into_owned())),
            // `null` counts as absent.
            None => is_valid &= value == b"null",
        });
    }
    if !is_valid {
        return Err(Text::from_static("invalid completion request: `context.arguments` has a value that is no string"));
    }
    Ok(CompletionRequest { of, argument: name, value, context })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::cursor::Cursor;
    use crate::json::cursor::Members;

    const MEMBERS: &[Member; 2] = &[Member::text("name"), Member::any("arguments")];

    /// Reads a request with the parameters `text` from a frame.
    fn request(text: &str, op: Op, members: &'static [Member; 2]) -> Result<Request, Text> {
        let frame = alloc::format!(r#"{{"params":{text}}}"#);
        let mut all = Members::at(Cursor::new(frame.as_bytes(), 9)).unwrap();
        all.next_key().unwrap().unwrap();
        let mut indexed = IndexedObject::default();
        all.index(&mut indexed).unwrap();
        let json = |_: &IndexedObject<'_>| Payload::Own(Json::parse(String::from(text)).unwrap());
        Ok(RawParams::read(op, json, Some(&indexed), members)?.cut(Bytes::new()))
    }

    fn tool(text: &str) -> Result<CallTool, Text> {
        request(text, Op::CallTool, MEMBERS).map(|request| match request {
            Request::CallTool(tool) => tool,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_name_and_arguments_are_found_in_any_order_and_spelling() {
        let cases = [
            (r#"{"name":"a","arguments":{"x":[1]}}"#, "a", Some(r#"{"x":[1]}"#)),
            (r#"{ "arguments" : [ ] , "_meta":{}, "name" : "\u0061\"" }"#, "a\"", Some("[ ]")),
            (r#"{"name":"a","arguments":null}"#, "a", None),
            (r#"{"name":"a"}"#, "a", None),
            (r#"{"name":"","":1}"#, "", None),
            (r#"{"name":"a","name":"b","arguments":1,"arguments":2}"#, "b", Some("2")),
            (r#"{"name":"a","arguments":1,"arguments":null}"#, "a", Some("1")),
            (r#"{"n\u0061me":"a","argument\u0073":1}"#, "a", Some("1")),
            (r#"{"a":1,"b":2,"c":3,"d":4,"name":"a","arguments":{}}"#, "a", Some("{}")),
        ];
        for (text, name, arguments) in cases {
            let request = tool(text).unwrap();
            assert_eq!(request.name(), name, "{text}");
            assert_eq!(request.arguments().as_ref().map(Json::as_str), arguments, "{text}");
            assert_eq!(request.params().as_str(), text, "verbatim");
            assert_eq!(request.into_arguments().as_ref().map(Json::as_str), arguments, "{text}");
        }
    }

    #[test]
    fn the_error_names_a_demanded_member_that_is_missing_or_of_another_type() {
        for text in ["{}", r#"{"name":7}"#, r#"{"uri":"a"}"#, r#"{"name":"a","name":null}"#] {
            assert_eq!(tool(text).unwrap_err().as_str(), "`name` is missing or no string", "{text}");
        }
        assert_eq!(tool(r#"{"name":"\ud800"}"#).unwrap().name(), "", "half a surrogate pair is no text");
        let members = const { &[Member::optional("cursor"), Member::none()] };
        let list = |text| request(text, Op::ListTools, members);
        assert_eq!(list(r#"{"cursor":7}"#).unwrap_err().as_str(), "invalid cursor");
        for (text, expected) in [("{}", None), (r#"{"cursor":null}"#, None), (r#"{"cursor":""}"#, Some("")), (r#"{"":1}"#, None)] {
            let Request::ListTools(list) = list(text).unwrap() else { panic!("{text}") };
            assert_eq!(list.cursor().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_completion_is_read_for_prompts_and_for_resources() {
        let prompt = br#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"},"_meta":{}}"#;
        assert_eq!(read_completion(prompt).unwrap(), CompletionRequest::new(CompletionOf::Prompt("p".into()), "a", "x"));
        let resource = br#"{"ref":{"type":"ref/resource","uri":"u://{a}"},"argument":{"name":"a","value":""},"context":{"arguments":{"b":"c"}}}"#;
        let request = read_completion(resource).unwrap();
        assert_eq!(request.of, CompletionOf::Resource("u://{a}".into()));
        assert_eq!(request.context.get("b").map(String::as_str), Some("c"));
        for (text, part) in [
            ("{}", "`ref` is missing"),
            (r#"{"ref":{"type":"ref/other"}}"#, "`ref.type`"),
            (r#"{"ref":{"type":"ref/prompt"}}"#, "`ref.name`"),
            (r#"{"ref":{"type":"ref/resource","uri":1}}"#, "`ref.uri`"),
            (r#"{"ref":{"type":"ref/prompt","name":"p"}}"#, "`argument` is missing"),
            (r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a"}}"#, "`argument.value`"),
            (
                r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{"b":1}}}"#,
                "`context.arguments`",
            ),
        ] {
            let why = read_completion(text.as_bytes()).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
