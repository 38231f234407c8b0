//! The error of a handler, and its reply.

use std::borrow::Cow;
use std::string::ToString as _;

use crate::ask_failed::AskFailed;
use protocol_core::dialect::{NotFound, Reply, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::{JsonError, Text};

/// The error of a handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// A failure, in words. A failed tool answers with a result that has `isError`, so that the model can read the message and try
    /// something else. An action on Tesseron, and any handler that serves no tool, such as that of a prompt or a resource, answers with an
    /// internal error.
    #[error("{0}")]
    Failed(Text),
    /// The handler ended early, usually because its call was cancelled. If the call was cancelled, its exchange has ended already, and
    /// nothing more is sent; otherwise the call fails with the message "cancelled".
    #[error("cancelled")]
    Cancelled,
    /// An input request failed. Handled as [`ToolError::Failed`], except that the error of an action on Tesseron has the code of the
    /// failure, or -32603 if Tesseron has no code for it.
    #[error("{0}")]
    Ask(AskFailed),
    /// The effect with this name was claimed in the [`OnceStore`](crate::OnceStore) and has no outcome: it may have happened or not, and is
    /// not run again. Handled as [`ToolError::Failed`].
    #[error("it is not known whether {0:?} has happened")]
    OutcomeUnknown(Text),
    /// The tool or resource does not exist. Answered with the error that the protocol has for it.
    #[error("not found")]
    NotFound(NotFound),
    /// A JSON-RPC error, sent as it is. Clients show it to people rather than to the model.
    #[error("{0}")]
    Rpc(RpcError),
}

impl ToolError {
    /// A [`ToolError::Failed`] with this message.
    #[must_use]
    pub fn failed(message: impl Into<Text>) -> Self {
        Self::Failed(message.into())
    }

    /// A [`ToolError::NotFound`] for the resource `uri`.
    #[must_use]
    pub fn resource_not_found(uri: &str) -> Self {
        Self::NotFound(NotFound::Resource(uri.into()))
    }

    /// Converts the return value of a tool's handler into its reply: a failure is a result with `isError`.
    pub(crate) fn tool_reply(result: Result<ToolOutput, Self>) -> Reply {
        match result {
            Ok(output) => Reply::Tool(output),
            Err(Self::Failed(message)) => Reply::Tool(ToolOutput::error(message)),
            Err(Self::Cancelled) => Reply::Tool(ToolOutput::error(Text::from_static("cancelled"))),
            Err(unknown @ Self::OutcomeUnknown(_)) => Reply::Tool(ToolOutput::error(unknown.to_string())),
            Err(Self::Ask(failed)) => {
                let mut output = ToolOutput::error(failed.to_string());
                output.rpc_error = Some(Box::new(failed.fault()));
                Reply::Tool(output)
            }
            Err(Self::NotFound(what)) => Reply::NotFound(what),
            Err(Self::Rpc(error)) => Reply::Error(error),
        }
    }

    /// Converts the error of a handler that serves no tool (a prompt, a resource, a completion, a method) into its reply: a failure is a
    /// JSON-RPC error, not a result as for tools.
    pub(crate) fn into_error_reply(self) -> Reply {
        Reply::Error(match self {
            Self::Failed(message) => RpcError::internal(message),
            Self::Ask(failed) => RpcError::internal(failed.to_string()),
            Self::OutcomeUnknown(_) => RpcError::internal(self.to_string()),
            Self::Cancelled => RpcError::fixed(RpcError::INTERNAL, "cancelled"),
            Self::NotFound(what) => return Reply::NotFound(what),
            Self::Rpc(error) => error,
        })
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self::Failed(message.into())
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self::Failed(message.into())
    }
}

impl From<Cow<'_, str>> for ToolError {
    fn from(message: Cow<'_, str>) -> Self {
        Self::Failed(message.into_owned().into())
    }
}

impl From<RpcError> for ToolError {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl From<AskFailed> for ToolError {
    fn from(failed: AskFailed) -> Self {
        match failed {
            AskFailed::Cancelled(_) => Self::Cancelled,
            failed => Self::Ask(failed),
        }
    }
}

impl From<JsonError> for ToolError {
    fn from(error: JsonError) -> Self {
        Self::Failed(error.to_string().into())
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string().into())
    }
}
