//! What a handler asks of its caller: model, user, roots.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::context::{Context, stopped};
use crate::schema::{Shape, flat};
use protocol_core::dialect::{Answer, Ask, Elicit, Elicited, Sample, Sampled, depth_data, tesseron};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::Why;

impl Context {
    /// Asks the caller's model.
    ///
    /// # Errors
    /// [`AskFailed`]. [`AskFailed::NoSampling`] and [`AskFailed::TooDeep`] before anything is sent.
    pub async fn sample(&self, sample: Sample) -> Result<Sampled, AskFailed> {
        match self.invocation.ask(sample.into()).await? {
            Answer::Sample(sampled) => Ok(sampled),
            _ => Err(AskFailed::Mismatch(String::from("it is no model's answer"))),
        }
    }

    /// Asks the caller's model for a `T`. The schema of `T` goes along with the question, the answer's text is read as JSON (a
    /// fence of Markdown around it is passed over) and checked against the schema.
    ///
    /// # Errors
    /// As for [`Context::sample`]; [`AskFailed::Mismatch`], code -32005, when the answer is no `T`.
    pub async fn sample_typed<T: DeserializeOwned + JsonSchema>(&self, prompt: impl Into<String>) -> Result<T, AskFailed> {
        let shape = Shape::of::<T>();
        let mut sample = Sample::new(prompt);
        sample.schema = Some(shape.schema().clone());
        let sampled = self.sample(sample).await?;
        let answer = Json::parse(unfenced(&sampled.text).as_bytes().to_vec())
            .map_err(|_| AskFailed::Mismatch(String::from("its text is no JSON")))?;
        shape.read(&answer).map_err(AskFailed::Mismatch)
    }

    /// Asks the caller's user for a yes. Everything else is a no: a no, a closed form, a caller that cannot ask, one that refuses,
    /// an invocation that is over.
    pub async fn confirm(&self, message: impl Into<String>) -> bool {
        matches!(self.invocation.ask(Ask::Confirm { message: message.into() }).await, Ok(Answer::Confirm(true)))
    }

    /// Asks the caller's user to fill a form. `None` when the user said no or closed the form.
    ///
    /// # Errors
    /// [`AskFailed`]. [`AskFailed::NoElicitation`] before anything is sent, and [`AskFailed::Invalid`] for a form that is no flat
    /// object of primitives.
    pub async fn elicit(&self, form: Elicit) -> Result<Option<Json>, AskFailed> {
        match self.invocation.ask(Ask::Elicit(form)).await? {
            Answer::Elicit(Elicited::Accept(content)) => Ok(Some(content)),
            Answer::Elicit(Elicited::Decline | Elicited::Cancel) => Ok(None),
            _ => Err(AskFailed::Mismatch(String::from("it is no answer to a form"))),
        }
    }

    /// Asks the caller's user for a `T`: a struct whose fields are text, numbers, booleans and choices (enums of plain names), or
    /// options of these. The form is made from the schema of `T`, and what the user filled in is checked against it.
    ///
    /// # Errors
    /// As for [`Context::elicit`]; [`AskFailed::Invalid`] names the first field of `T` that has no place in a form;
    /// [`AskFailed::Mismatch`] when what was filled in is no `T`.
    pub async fn elicit_typed<T: DeserializeOwned + JsonSchema>(&self, message: impl Into<String>) -> Result<Option<T>, AskFailed> {
        let shape = flat::<T>().map_err(AskFailed::Invalid)?;
        let Some(content) = self.elicit(Elicit::new(message, shape.schema().clone())).await? else { return Ok(None) };
        shape.read(&content).map(Some).map_err(AskFailed::Mismatch)
    }

    /// Asks the caller for the folders that it works in: the array of `{uri, name?}`.
    ///
    /// # Errors
    /// [`AskFailed`]. [`AskFailed::NoRoots`] before anything is sent.
    pub async fn roots(&self) -> Result<Json, AskFailed> {
        match self.invocation.ask(Ask::Roots).await? {
            Answer::Roots(roots) => Ok(roots),
            _ => Err(AskFailed::Mismatch(String::from("it is no list of roots"))),
        }
    }
}

/// Why a question to the caller brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskFailed {
    /// The caller did not declare that it samples. Nothing was sent.
    #[error("the caller does not offer sampling")]
    NoSampling,
    /// The caller did not declare that it elicits. Nothing was sent.
    #[error("the caller does not offer elicitation")]
    NoElicitation,
    /// The caller did not declare roots. Nothing was sent.
    #[error("the caller does not offer roots")]
    NoRoots,
    /// Sampling would be nested too deep. Nothing was sent.
    #[error("sampling would be nested {depth} deep, {max} is the most")]
    TooDeep {
        /// As deep as it would be.
        depth: u8,
        /// As deep as it may be.
        max: u8,
    },
    /// The question has a shape that the protocol forbids. Nothing was sent.
    #[error("the question is not valid: {0}")]
    Invalid(String),
    /// Too many questions are open, or too much output waits. Nothing was sent.
    #[error("too many questions are open")]
    Busy,
    /// The caller answered with an error.
    #[error("the caller refused: {0}")]
    Refused(RpcError),
    /// The answer is not of the shape that was asked for.
    #[error("the answer does not fit: {0}")]
    Mismatch(String),
    /// Nobody answered in time.
    #[error("the caller did not answer in time")]
    TimedOut,
    /// The connection ended before the answer came.
    #[error("the connection ended before the caller answered")]
    Lost,
    /// The invocation was cancelled meanwhile.
    #[error("{}", stopped(.0))]
    Cancelled(Why),
    /// The invocation has ended: its handler has returned.
    #[error("the call is over")]
    Over,
}

impl AskFailed {
    /// The number that programs know it by: the caller's own for [`AskFailed::Refused`], -32006 and -32007 for a capability that
    /// is missing, -32005 for an answer that does not fit.
    #[must_use]
    pub const fn code(&self) -> i64 {
        match self {
            Self::NoSampling => -32006,
            Self::NoElicitation => -32007,
            Self::NoRoots => RpcError::METHOD_NOT_FOUND,
            Self::TooDeep { .. } => RpcError::TOO_DEEP,
            Self::Invalid(_) => RpcError::INVALID_PARAMS,
            Self::Busy => RpcError::BUSY,
            Self::Refused(error) => error.code,
            Self::Mismatch(_) => -32005,
            Self::TimedOut | Self::Lost => RpcError::INTERNAL,
            Self::Cancelled(_) | Self::Over => RpcError::CANCELLED,
        }
    }
}

impl AskFailed {
    /// The error that a protocol sends whose failures are errors (Tesseron, errors page). What the caller said goes back as it is.
    pub(crate) fn fault(&self) -> RpcError {
        let code = match self {
            Self::Refused(error) => return error.clone(),
            Self::TooDeep { .. } => tesseron::code::SAMPLING_TOO_DEEP,
            Self::NoRoots | Self::Busy | Self::Over | Self::Cancelled(_) => RpcError::INTERNAL,
            failed => failed.code(),
        };
        let error = RpcError::new(code, std::string::ToString::to_string(self));
        match self {
            Self::TooDeep { depth, max } => error.with_data(depth_data(*depth, *max)),
            _ => error,
        }
    }
}

/// The text inside a Markdown fence, if the whole is one: models like to put JSON into one.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")).and_then(|rest| rest.split_once('\n'));
    inside.map_or(text, |(_language, inside)| inside.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_around_the_answer_is_passed_over() {
        assert_eq!(unfenced(" {\"a\":1}\n"), "{\"a\":1}");
        assert_eq!(unfenced("```json\n{\"a\":1}\n```"), "{\"a\":1}");
        assert_eq!(unfenced("```\n[1]\n```\n"), "[1]");
        assert_eq!(unfenced("```"), "```");
        assert_eq!(unfenced("\"``` text\""), "\"``` text\"");
    }
}
