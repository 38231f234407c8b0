//! Replies to requests of the peer.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;

use super::{Blocks, Content, InputRound, Page};
use crate::error::RpcError;
use crate::json::{Json, JsonError, Text};

/// The reply to an inbound call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The exact `result`. On MCP it must be an object.
    Raw(Json),
    /// A tool's output, which the session writes in the form of its protocol.
    Tool(ToolOutput),
    /// Success without a value. For a call of a tool, the output is empty. Requests whose results must have other members, such as those
    /// for lists, need another reply.
    Done,
    /// A round of input requests, which ends the exchange. If the round cannot be sent, the session sends an internal error instead. To get
    /// the reason, and let the call go on, use [`crate::Session::finish_round`].
    Input(Box<InputRound>),
    /// The contents of a resource, an array of `{uri, mimeType?, text | blob}`, which the session writes in the form of its protocol.
    Contents(Json),
    /// A page of the requested list.
    Page(Page),
    /// The values that an argument may have.
    Completion(Completion),
    /// The tool or the resource does not exist.
    NotFound(NotFound),
    /// A JSON-RPC error.
    Error(RpcError),
}

/// The values that an argument may have: the answer to a [`CompletionRequest`](super::CompletionRequest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The values, the best first. At most 100 are sent; if there are more, `hasMore` is set in the frame.
    pub values: Vec<String>,
    /// The total number of values, if it is known.
    pub total: Option<u64>,
    /// `true` if there are more values than these.
    pub has_more: bool,
}

impl Completion {
    /// A completion with these values, of which there are no more.
    pub fn all<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), total: None, has_more: false }
    }

    /// Reads the result of [`Op::Complete`](super::Op::Complete).
    ///
    /// # Errors
    /// [`JsonError`] if it has no list of strings as its values, or a total that is no number.
    pub fn read(result: &Json) -> Result<Self, JsonError> {
        #[derive(Deserialize)]
        struct Completed {
            completion: Values,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Values {
            values: Vec<String>,
            total: Option<u64>,
            has_more: Option<bool>,
        }
        let Values { values, total, has_more } = result.decode::<Completed>()?.completion;
        Ok(Self { values, total, has_more: has_more.unwrap_or_default() })
    }

    /// Sets the total number of values.
    #[must_use]
    pub const fn with_total(mut self, total: u64) -> Self {
        self.total = Some(total);
        self
    }

    /// Sets [`Completion::has_more`].
    #[must_use]
    pub const fn with_more(mut self) -> Self {
        self.has_more = true;
        self
    }
}

/// The tool or the resource that does not exist, by its name or URI as the peer wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotFound {
    /// The name of a tool.
    Tool(Text),
    /// The URI of a resource.
    Resource(Text),
}

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The content for the model, in order.
    pub content: Blocks,
    /// The structured content, for programs (MCP 2025-06-18 and later). On Tesseron, the output of the action.
    pub structured: Option<Json>,
    /// `true` if the tool failed. On MCP a failed tool returns a result, not a JSON-RPC error, so that the model can read the result and
    /// try again.
    pub is_error: bool,
    /// The JSON-RPC error to send on Tesseron if the tool failed. If it is `None`, an internal error is sent, with the text of the
    /// content as its message, and the structured content as its data.
    pub rpc_error: Option<Box<RpcError>>,
    /// The members of `_meta`, by their keys: for programs, which need not know them. Not sent on Tesseron.
    pub meta: BTreeMap<String, Json>,
}

impl ToolOutput {
    /// An output of one block of text.
    #[must_use]
    pub fn text(text: impl Into<Text>) -> Self {
        Self { content: Content::Text(text.into()).into(), ..Self::default() }
    }

    /// An output of several blocks, in order.
    #[must_use]
    pub fn blocks(content: impl IntoIterator<Item = Content>) -> Self {
        Self { content: content.into_iter().collect(), ..Self::default() }
    }

    /// An output of structured content, which is repeated as one block of text for clients that read only text.
    #[must_use]
    pub fn structured(value: Json) -> Self {
        let mut output = Self::text(value.clone().into_text());
        output.structured = Some(value);
        output
    }

    /// Adds a member of `_meta`, for programs that know its `key`, such as `com.example/cost`. A key that is there is replaced.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Json>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Returns `true` if the content only repeats the structured content as text.
    pub(crate) fn repeats_structured(&self) -> bool {
        matches!((&*self.content, &self.structured), ([Content::Text(text)], Some(value)) if text.as_bytes() == value.as_bytes())
    }

    /// The output of a tool that failed, with a message for the model.
    #[must_use]
    pub fn error(message: impl Into<Text>) -> Self {
        let mut output = Self::text(message);
        output.is_error = true;
        output
    }

    /// The output of a tool that failed, with a JSON-RPC error for Tesseron. On MCP the model gets the message of the error.
    #[must_use]
    pub fn rpc_error(error: RpcError) -> Self {
        let mut output = Self::error(error.message.clone());
        output.rpc_error = Some(Box::new(error));
        output
    }
}
