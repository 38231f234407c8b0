//! The error of a handler, and its reply.

use core::fmt::{self, Debug, Display, Write as _};
use std::error::Error;
use std::sync::Arc;

use crate::ask_failed::AskFailed;
use crate::cancelled::{Cancelled, TimeoutError};
use protocol_core::dialect::{NotFound, Reply, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::Text;

/// The result of a handler, and of anything else that fails with words for people: every error converts into a [`ToolError`] by `?`.
pub type Result<T, E = ToolError> = core::result::Result<T, E>;

/// The error of a handler.
///
/// Every error converts into it by `?`, and so do [`anyhow::Error`](https://docs.rs/anyhow), `&str` and `String`. The errors of this crate
/// that have a variant here keep their meaning: [`AskFailed`], [`Cancelled`], [`TimeoutError`] and [`RpcError`]. Any other error becomes a
/// [`ToolError::Failed`], whose text is that of the error and of its sources, separated by `: `. [`AskFailed`] and the cancels keep their
/// meaning as a source of another error, too, such as one of `anyhow` with a context. An `anyhow::Error` that was made of them and has no
/// context hides them: it becomes a failure.
///
/// ```
/// use endpoint::{Context, Tool, ToolError};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Read { path: String }
///
/// let read = Tool::new("read", async |_: Context, Read { path }: Read| {
///     let text = std::fs::read_to_string(path)?; // an `io::Error`
///     let number: u64 = text.trim().parse()?; // a `ParseIntError`
///     Ok::<_, ToolError>(number)
/// });
/// # drop(read);
/// ```
///
/// So that one conversion can serve all errors, this type is not an [`Error`] itself. It converts into a `Box<dyn Error>` by `?`; where
/// another error is needed, take its text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolError {
    /// A failure, in words. A failed tool answers with a result that has `isError`, so that the model can read the message and try
    /// something else. An action on Tesseron, and any handler that serves no tool, such as that of a prompt or a resource, answers with an
    /// internal error.
    Failed(Failure),
    /// The handler ended early, usually because its call was cancelled. If the call was cancelled, its exchange has ended already, and
    /// nothing more is sent; otherwise the call fails with the message "cancelled".
    Cancelled,
    /// An input request failed. Handled as [`ToolError::Failed`], except that the error of an action on Tesseron has the code of the
    /// failure, or -32603 if Tesseron has no code for it.
    Ask(AskFailed),
    /// The effect with this name was claimed in the [`OnceStore`](crate::OnceStore) and has no outcome: it may have happened or not, and is
    /// not run again. Handled as [`ToolError::Failed`].
    OutcomeUnknown(Text),
    /// The tool or resource does not exist. Answered with the error that the protocol has for it.
    NotFound(NotFound),
    /// A JSON-RPC error, sent as it is. Clients show it to people rather than to the model.
    Rpc(RpcError),
}

/// The message of a [`ToolError::Failed`], with the error that it was made from, if there is one. Equal if the messages are.
#[derive(Clone)]
pub struct Failure {
    text: Text,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ToolError {
    /// A [`ToolError::Failed`] with this message.
    #[must_use]
    pub fn failed(message: impl Display) -> Self {
        Self::Failed(Failure { text: message.to_string().into(), source: None })
    }

    /// A [`ToolError::NotFound`] for the resource `uri`.
    #[must_use]
    pub fn resource_not_found(uri: &str) -> Self {
        Self::NotFound(NotFound::Resource(uri.into()))
    }

    /// The error of type `E` that a [`ToolError::Failed`] was made from, or the first of its sources that has this type.
    ///
    /// `None` if the error had passed through [`anyhow::Error`](https://docs.rs/anyhow), which hides the type, and in a handler that runs
    /// again for the outcome of an effect that failed earlier ([`Context::once`](crate::Context::once)): only the text is recorded.
    #[must_use]
    pub fn source_as<E: Error + 'static>(&self) -> Option<&E> {
        let Self::Failed(Failure { source: Some(source), .. }) = self else { return None };
        chain(&**source).find_map(|error| error.downcast_ref())
    }

    /// Converts the return value of a tool's handler into its reply: a failure is a result with `isError`.
    pub(crate) fn tool_reply(result: Result<ToolOutput>) -> Reply {
        match result {
            Ok(output) => Reply::Tool(output),
            Err(Self::Failed(failure)) => Reply::Tool(ToolOutput::error(failure.text)),
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
            Self::Failed(failure) => RpcError::internal(failure.text),
            Self::Ask(failed) => RpcError::internal(failed.to_string()),
            Self::OutcomeUnknown(_) => RpcError::internal(self.to_string()),
            Self::Cancelled => RpcError::fixed(RpcError::INTERNAL, "cancelled"),
            Self::NotFound(what) => return Reply::NotFound(what),
            Self::Rpc(error) => error,
        })
    }

    fn of_error(error: Box<dyn Error + Send + Sync>) -> Self {
        let specific = error.downcast::<Cancelled>().map(|_| Self::Cancelled);
        let specific = specific.or_else(|error| error.downcast::<AskFailed>().map(|failed| Self::of_ask(*failed)));
        let specific = specific.or_else(|error| error.downcast::<RpcError>().map(|error| Self::Rpc(*error)));
        let specific = specific.or_else(|error| error.downcast::<TimeoutError>().map(|error| Self::of_timeout(*error)));
        let specific = specific.or_else(|error| {
            let found = chain(&*error).skip(1).find_map(Self::of_source);
            found.ok_or(error)
        });
        specific.unwrap_or_else(|error| Self::Failed(Failure { text: text_of(&*error).into(), source: Some(Arc::from(error)) }))
    }

    /// A cancel or an input request that has failed and is the source of another error. Its meaning counts more than the words around it:
    /// what was cancelled has not failed.
    fn of_source(error: &(dyn Error + 'static)) -> Option<Self> {
        if error.is::<Cancelled>() {
            return Some(Self::Cancelled);
        }
        let ended = |error: &TimeoutError| *error != TimeoutError::Elapsed;
        let cancelled = error.downcast_ref::<TimeoutError>().is_some_and(ended);
        cancelled.then_some(Self::Cancelled).or_else(|| error.downcast_ref::<AskFailed>().cloned().map(Self::of_ask))
    }

    fn of_ask(failed: AskFailed) -> Self {
        match failed {
            AskFailed::Cancelled(_) => Self::Cancelled,
            failed => Self::Ask(failed),
        }
    }

    fn of_timeout(error: TimeoutError) -> Self {
        match error {
            TimeoutError::Elapsed => Self::Failed(Failure { text: Text::from_static("a step took too long"), source: None }),
            TimeoutError::Cancelled(_) | TimeoutError::TimedOut => Self::Cancelled,
        }
    }
}

/// The maximum number of errors of a chain that are looked at. A longer chain is cut.
const MAX_CHAIN: usize = 16;

/// `error` and its sources.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    core::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| error.source()).take(MAX_CHAIN)
}

/// The texts of `error` and its sources. A source whose text the error above it has put at its own end is not repeated.
fn text_of(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for source in chain(error).skip(1) {
        let source = source.to_string();
        if !text.ends_with(&source) {
            let _ = write!(text, ": {source}");
        }
    }
    text
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::of_error(error.into())
    }
}

/// For a `main` that fails with any error. [`anyhow::Error::msg`](https://docs.rs/anyhow) converts into that of anyhow.
impl From<ToolError> for Box<dyn Error> {
    fn from(error: ToolError) -> Self {
        error.to_string().into()
    }
}

impl Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => Display::fmt(failure, f),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Ask(failed) => Display::fmt(failed, f),
            Self::OutcomeUnknown(name) => write!(f, "it is not known whether {name:?} has happened"),
            Self::NotFound(_) => f.write_str("not found"),
            Self::Rpc(error) => Display::fmt(error, f),
        }
    }
}

impl Failure {
    /// The message.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(self.text(), f)
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Failure {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use protocol_core::session::CancelReason;

    /// An error with a source.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    fn outer(text: &'static str) -> ToolError {
        Outer { text, source: io::Error::other("the disk is full") }.into()
    }

    #[test]
    fn every_error_converts_and_those_with_a_variant_keep_their_meaning() {
        let cases: [(ToolError, ToolError); 14] = [
            ("no ink".into(), ToolError::failed("no ink")),
            (String::from("no ink").into(), ToolError::failed("no ink")),
            (outer("not saved"), ToolError::failed("not saved: the disk is full")),
            (outer("not saved: the disk is full"), ToolError::failed("not saved: the disk is full")),
            (anyhow::Error::msg("why").context("what").into(), ToolError::failed("what: why")),
            (Cancelled(CancelReason::Deadline).into(), ToolError::Cancelled),
            (AskFailed::Cancelled(CancelReason::Deadline).into(), ToolError::Cancelled),
            (AskFailed::Busy.into(), ToolError::Ask(AskFailed::Busy)),
            (anyhow::Error::new(AskFailed::Busy).context("not asked").into(), ToolError::Ask(AskFailed::Busy)),
            (anyhow::Error::new(Cancelled(CancelReason::Deadline)).context("not saved").into(), ToolError::Cancelled),
            (anyhow::Error::new(TimeoutError::TimedOut).context("not saved").into(), ToolError::Cancelled),
            (TimeoutError::TimedOut.into(), ToolError::Cancelled),
            (TimeoutError::Elapsed.into(), ToolError::failed("a step took too long")),
            (RpcError::invalid_params("x").into(), ToolError::Rpc(RpcError::invalid_params("x"))),
        ];
        for (error, expected) in cases {
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn the_error_that_a_failure_was_made_from_is_found_with_its_sources_but_not_behind_anyhow() {
        let error = outer("not saved");
        assert_eq!(error.source_as::<Outer>().map(|outer| outer.text), Some("not saved"));
        assert!(error.source_as::<io::Error>().is_some());
        assert!(error.source_as::<core::fmt::Error>().is_none());
        let hidden = ToolError::from(anyhow::Error::new(io::Error::other("the disk is full")));
        assert_eq!((hidden.to_string().as_str(), hidden.source_as::<io::Error>().is_none()), ("the disk is full", true));
        assert!(ToolError::failed("x").source_as::<io::Error>().is_none());
    }
}
