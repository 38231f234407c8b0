//! Requests of ours, as parts from which a dialect writes the parameters.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use super::{CompletionOf, CompletionRequest, Level, Op};
use crate::json::write::{Object, text_size, write_string, write_text};
use crate::json::{Json, Text, read};

/// A request to send. Its parts are kept as the owner passed them, and serialized when the frame is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) op: Op,
    pub(crate) parts: Parts,
    /// The `_meta` that the owner has passed. Ignored on Tesseron.
    pub(crate) meta: Option<Box<Json>>,
    /// The level of the least severe log record that is wanted for this request alone. Ignored if the request is not stateless.
    pub(crate) log_level: Option<Level>,
}

/// The members of `_meta` that a stateless request has: those that name this end, and the log level. Empty for any other request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp<'a> {
    /// The members that are the same in each request, as JSON, separated by commas.
    pub(crate) caller: &'a [u8],
    /// The level of the least severe log record that is wanted.
    pub(crate) level: Option<Level>,
}

impl Stamp<'_> {
    pub(crate) const EMPTY: Self = Self { caller: &[], level: None };

    /// An upper bound on the length of the members in bytes.
    #[inline]
    pub(crate) const fn size(&self) -> usize {
        Self::size_with(self.caller)
    }

    /// An upper bound on the length of the members in bytes, with any log level.
    #[inline]
    pub(crate) const fn size_with(caller: &[u8]) -> usize {
        /// The length of the member for the log level, at most.
        const LEVEL: usize = 64;
        if caller.is_empty() { 0 } else { caller.len().saturating_add(LEVEL) }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.caller.is_empty()
    }
}

/// The parts of the parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// The exact parameters.
    Exact(Json),
    /// No parameters.
    Nothing,
    /// The name of a tool or a prompt, and the arguments.
    Named { name: Text, arguments: Json },
    /// The URI of a resource, and the name of a subscription (Tesseron).
    Resource { uri: Text, subscription: Option<Text> },
    /// The cursor of a page of a list; `None` for the first page.
    Page(Option<Text>),
    /// The level of the least severe log record that is wanted.
    Level(Level),
    /// An argument to complete.
    Completion(Box<CompletionRequest>),
    /// A method outside the protocol.
    Custom { method: Text, params: Json },
}

impl Outgoing {
    pub(crate) const fn new(op: Op, parts: Parts) -> Self {
        Self { op, parts, meta: None, log_level: None }
    }

    /// Returns `true` if the session can read what it needs from the request. To a stateless peer the session sends no request that sets
    /// the log level, subscribes or unsubscribes. Instead it writes the level into the `_meta` of each request, and the URI into its
    /// `subscriptions/listen`. So a request that sets the level needs a known level, and one that subscribes or unsubscribes needs a URI.
    /// Any other request is valid.
    pub(crate) fn is_valid_stateless(&self) -> bool {
        match self.op {
            Op::SetLogLevel => self.level().is_some(),
            Op::Subscribe | Op::Unsubscribe => self.target().is_some(),
            _ => true,
        }
    }

    /// Returns `true` if the request can be written: its parameters and `_meta` are objects, its arguments are an object or `any_arguments`
    /// is `true`, and it names its method if it is a custom request.
    pub(crate) fn is_proper(&self, any_arguments: bool) -> bool {
        let parts = match &self.parts {
            Parts::Exact(params) => params.is_object() && !matches!(self.op, Op::Custom),
            Parts::Named { arguments, .. } => any_arguments || arguments.is_object(),
            Parts::Custom { params: json, .. } => json.is_object(),
            _ => true,
        };
        parts && self.meta.as_ref().is_none_or(|meta| meta.is_object())
    }

    /// An upper bound on the length of the parameters in bytes, without the members that a session adds.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        /// The length of the names of the members, at most.
        const NAMES: usize = 64;
        let parts = match &self.parts {
            Parts::Exact(params) | Parts::Custom { params, .. } => params.as_bytes().len(),
            Parts::Nothing => 2,
            Parts::Named { name, arguments } => sum(NAMES, [text_size(name.as_bytes()), arguments.as_bytes().len()]),
            Parts::Resource { uri, subscription } => {
                // On Tesseron, a subscription that the owner gave no name gets the URI as its name.
                let subscription =
                    subscription.as_ref().map_or_else(|| text_size(uri.as_bytes()), |name| text_size(name.as_bytes()));
                sum(NAMES, [text_size(uri.as_bytes()), subscription])
            }
            Parts::Page(cursor) => sum(NAMES, [cursor.as_ref().map_or(0, |cursor| text_size(cursor.as_bytes())), 0]),
            Parts::Level(_) => NAMES,
            Parts::Completion(completion) => completion.size(),
        };
        parts.saturating_add(self.meta.as_ref().map_or(0, |meta| meta.as_bytes().len()))
    }

    /// The JSON that the owner passed: the exact parameters, those of a custom request, or the arguments of a tool or a prompt.
    #[inline]
    pub(crate) fn given(&self) -> Option<&Json> {
        match &self.parts {
            Parts::Exact(json) | Parts::Named { arguments: json, .. } | Parts::Custom { params: json, .. } => Some(json),
            _ => None,
        }
    }

    /// An estimate of the length of the parameters in bytes: the length of the JSON that the owner passed, since other members are mostly
    /// short.
    #[inline]
    pub(crate) fn hint(&self) -> usize {
        self.given().map_or(0, |given| given.as_bytes().len())
    }

    /// The level in a request that sets the log level. `None` if there is no such level, and for any other request.
    #[inline]
    pub(crate) fn level(&self) -> Option<Level> {
        match &self.parts {
            Parts::Level(level) => Some(*level),
            Parts::Exact(params) if self.op == Op::SetLogLevel => {
                Level::from_name(&read::string(read::member(params.as_bytes(), "level")?)?)
            }
            _ => None,
        }
    }

    /// The method of a request outside the protocol; `None` for any other request.
    pub(crate) fn custom_method(&self) -> Option<&str> {
        if let Parts::Custom { method, .. } = &self.parts { Some(&**method) } else { None }
    }

    /// The name or the URI in the request; `None` if the request has neither.
    pub(crate) fn target(&self) -> Option<Cow<'_, str>> {
        match &self.parts {
            Parts::Named { name, .. } => Some(Cow::Borrowed(&**name)),
            Parts::Resource { uri, .. } => Some(Cow::Borrowed(&**uri)),
            Parts::Exact(params) => {
                let key = match self.op {
                    Op::CallTool | Op::GetPrompt => "name",
                    Op::ReadResource | Op::Subscribe | Op::Unsubscribe => "uri",
                    _ => return None,
                };
                read::string(read::member(params.as_bytes(), key)?)
            }
            _ => None,
        }
    }
}

fn sum(fixed: usize, parts: [usize; 2]) -> usize {
    parts.into_iter().fold(fixed, usize::saturating_add)
}

impl CompletionRequest {
    fn size(&self) -> usize {
        /// The length of the names of the members, at most.
        const NAMES: usize = 128;
        let (CompletionOf::Prompt(of) | CompletionOf::Resource(of)) = &self.of;
        let context = self.context.iter().map(|(name, value)| sum(4, [text_size(name.as_bytes()), text_size(value.as_bytes())]));
        [text_size(of.as_bytes()), text_size(self.argument.as_bytes()), text_size(self.value.as_bytes())]
            .into_iter()
            .chain(context)
            .fold(NAMES, usize::saturating_add)
    }

    /// Writes the members of the parameters, as they are on MCP.
    pub(crate) fn write(&self, object: &mut Object<'_>) {
        object.object("ref", |object| match &self.of {
            CompletionOf::Prompt(name) => {
                object.word("type", "ref/prompt");
                object.string("name", name);
            }
            CompletionOf::Resource(uri) => {
                object.word("type", "ref/resource");
                object.string("uri", uri);
            }
        });
        object.object("argument", |object| {
            object.string("name", &self.argument);
            object.string("value", &self.value);
        });
        if !self.context.is_empty() {
            object.object("context", |object| {
                let out = object.member("arguments");
                out.push(b'{');
                for (index, (name, value)) in self.context.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_string(out, name);
                    out.push(b':');
                    write_text(out, value.as_bytes());
                }
                out.push(b'}');
            });
        }
    }
}
