//! The end of a call of ours.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::schema::Output;
use protocol_core::dialect::{Progress, ToolResult};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, JsonError};
use protocol_core::session::{InvokeError, Outcome};

/// The outcome of a call, and what the peer reported before it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallOutcome {
    /// The outcome.
    pub outcome: Outcome,
    /// The partial result of a call that failed, if the peer gave one.
    pub partial: Option<Json>,
    /// The last progress that was accepted.
    pub last: Option<Box<Progress>>,
}

impl CallOutcome {
    pub(crate) fn new(outcome: Outcome, partial: Option<Json>, last: Option<Box<Progress>>) -> Self {
        Self { outcome, partial, last }
    }

    /// The result object, or why there is none.
    ///
    /// # Errors
    /// [`CallError`] for every outcome but [`Outcome::Result`].
    pub fn result(self) -> Result<Json, CallError> {
        match self.outcome {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err(CallError::Rpc(error)),
            outcome => Err(CallError::Ended(outcome)),
        }
    }
}

impl CallOutcome {
    /// The result of a tool, which may say that the tool failed ([`ToolResult::is_error`]), or why there is none.
    ///
    /// # Errors
    /// [`CallError`] as for [`CallOutcome::result`], or if the result is not that of a tool.
    pub fn tool(self) -> Result<ToolResult, CallError> {
        let result = self.result()?;
        ToolResult::read(&result).ok_or_else(|| CallError::Unreadable(String::from("it is not the result of a tool")))
    }

    /// The result of a tool as a type: its structured content; where there is none, its text, read as JSON or as the string that it is. A
    /// type that is no object, as a number, is read from the member `result`, which is where [`Tool::new`](crate::Tool::new) puts it.
    ///
    /// # Errors
    /// [`CallError::ToolFailed`] if the tool failed, [`CallError::Unreadable`] if the result is no `T`, else as for [`CallOutcome::result`].
    pub fn tool_as<T: DeserializeOwned + JsonSchema>(self) -> Result<T, CallError> {
        let result = self.tool()?;
        if result.is_error {
            return Err(CallError::ToolFailed(Box::new(result)));
        }
        Ok(Output::of::<T>().read(&result)?)
    }
}

/// Why a call brought no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not made.
    #[error("not sent: {0}")]
    NotSent(#[from] InvokeError),
    /// The peer answered with an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// The tool ran and failed; its text says how.
    #[error("the tool failed: {}", .0.text())]
    ToolFailed(Box<ToolResult>),
    /// It ended without an answer: cancelled, timed out, lost, invalid.
    #[error("{}", ended(.0))]
    Ended(Outcome),
    /// It was not made: the arguments have no JSON.
    #[error("not sent, since its arguments are no JSON: {0}")]
    Unwritable(String),
    /// The answer came and has not the shape that the protocol gives it.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

impl From<JsonError> for CallError {
    fn from(error: JsonError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

const fn ended(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Cancelled => "the call was cancelled",
        Outcome::TimedOut(_) => "the call timed out",
        Outcome::Lost => "the connection ended before the call did",
        Outcome::Result(_) | Outcome::Error(_) => "the call ended",
        _ => "the call could not be made or its answer could not be read",
    }
}
