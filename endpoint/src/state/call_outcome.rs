//! The outcome of an outbound call, and the error of a call without a result.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::schema::Output;
use protocol_core::dialect::{Progress, ToolResult};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, JsonError, Text};
use protocol_core::session::{Invalid, InvokeError, Outcome};

/// The outcome of an outbound call, with its partial result and its last progress.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallOutcome {
    /// The outcome.
    pub outcome: Outcome,
    /// The last checkpoint that the peer has sent, if the call has no whole result.
    pub partial: Option<Json>,
    /// The last progress update that was accepted.
    pub last: Option<Box<Progress>>,
    /// The reason of [`Outcome::Lost`] as text for people, if the transport has given one
    /// ([`Endpoint::handle_lost`](crate::Endpoint::handle_lost)).
    pub why: Option<Text>,
}

impl CallOutcome {
    pub(crate) fn new(outcome: Outcome, partial: Option<Json>, last: Option<Box<Progress>>) -> Self {
        Self { outcome, partial, last, why: None }
    }

    /// Returns the result object.
    ///
    /// # Errors
    /// [`CallError::Rpc`] for [`Outcome::Error`], [`CallError::Lost`] for [`Outcome::Lost`] with a reason, and [`CallError::Ended`] for
    /// every other outcome but [`Outcome::Result`].
    pub fn result(self) -> Result<Json, CallError> {
        match self.outcome {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err(CallError::Rpc(error)),
            outcome => Err(self.why.map_or(CallError::Ended(outcome), CallError::Lost)),
        }
    }
}

impl CallOutcome {
    /// Returns the result of a tool, even if the tool failed ([`ToolResult::is_error`]).
    ///
    /// # Errors
    /// As for [`CallOutcome::result`]; [`CallError::Unreadable`] if the result is not that of a tool.
    pub fn tool(self) -> Result<ToolResult, CallError> {
        let result = self.result()?;
        ToolResult::read(&result).ok_or_else(|| CallError::Unreadable(String::from("it is not the result of a tool")))
    }

    /// Decodes the result of a tool as a `T`. A result that has `isError` is an error.
    ///
    /// A `T` whose schema is that of an object, or allows any value, is decoded from the structured content. Any other `T`, such as a
    /// number, is decoded from the member `result` of the structured content, into which [`Tool::new`](crate::Tool::new) wraps it. Without
    /// structured content, `T` is decoded from the text: as JSON, or as a string. `()` is decoded from any result.
    ///
    /// # Errors
    /// As for [`CallOutcome::result`]; [`CallError::ToolFailed`] if the tool failed; [`CallError::Unreadable`] if the result cannot be
    /// decoded as a `T`.
    pub fn tool_as<T: DeserializeOwned + JsonSchema + 'static>(self) -> Result<T, CallError> {
        // If there is structured content, the text is not read: it repeats that content, and may be long.
        if let Outcome::Result(result) = &self.outcome
            && result.given("isError").is_none_or(|failed| failed.as_str() == "false")
            && let Some(structured) = result.member("structuredContent").filter(Json::is_object)
        {
            return Ok(Output::of::<T>().read_structured(&structured)?);
        }
        let result = self.tool()?;
        if result.is_error {
            return Err(CallError::ToolFailed(Box::new(result)));
        }
        Ok(Output::of::<T>().read(&result)?)
    }
}

/// The error of an outbound call without a result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The call was refused before anything was sent.
    #[error("not sent: {0}")]
    NotSent(#[from] InvokeError),
    /// The peer answered with an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// The result has `isError`: the tool failed, or its arguments were not valid. The text of the result gives the reason.
    #[error("the tool failed: {}", .0.text())]
    ToolFailed(Box<ToolResult>),
    /// The call ended without a valid response: it was cancelled, timed out or was lost; or it was held for the handshake and could not be
    /// sent afterwards; or its response was invalid; or this end did not answer an input request of the call.
    #[error("{}", ended(.0))]
    Ended(Outcome),
    /// The call was lost ([`Outcome::Lost`]) for this reason, which is text for people. A call that was lost without a known reason is
    /// [`Ended`](Self::Ended).
    #[error("the call was lost: {0}")]
    Lost(Text),
    /// The arguments cannot be serialized. Nothing was sent.
    #[error("not sent, since its arguments are no JSON: {0}")]
    Unwritable(String),
    /// The result arrived, but cannot be decoded.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

/// The error of a list of which a page could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{why}")]
pub struct ListFailed<T> {
    /// The items of the pages that were read before.
    pub items: Vec<T>,
    /// The error of the page that failed, or what is wrong with the list.
    #[source]
    pub why: CallError,
}

impl<T> From<ListFailed<T>> for CallError {
    fn from(failed: ListFailed<T>) -> Self {
        failed.why
    }
}

impl From<JsonError> for CallError {
    fn from(error: JsonError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

fn ended(outcome: &Outcome) -> Cow<'static, str> {
    Cow::Borrowed(match outcome {
        Outcome::Invalid(Invalid::Unreadable(frame)) => return Cow::Owned(format!("the answer cannot be read: {frame}")),
        Outcome::Cancelled => "the call was cancelled",
        Outcome::TimedOut(_) => "the call timed out",
        Outcome::Lost => "the connection ended before the call did",
        Outcome::Unanswered(_) => "the peer asked for input, and this end did not answer",
        Outcome::Result(_) | Outcome::Error(_) => "the call ended",
        _ => "the call could not be made or its answer could not be read",
    })
}
