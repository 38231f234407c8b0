//! What a handler asks of its caller: model, user, roots.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::Context;
use crate::schema::{Shape, flat};
use crate::state::AskFailed;
use protocol_core::dialect::{Answer, Ask, Elicit, Elicited, Sample, Sampled};
use protocol_core::json::Json;

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
    /// As for [`Context::sample`]; [`AskFailed::Mismatch`], code -32005, when the answer is no `T`; without the feature `validate`,
    /// [`AskFailed::Invalid`] for a schema with a rule that is not checked then.
    pub async fn sample_typed<T: DeserializeOwned + JsonSchema>(&self, prompt: impl Into<String>) -> Result<T, AskFailed> {
        let shape = Shape::of::<T>().checked().map_err(AskFailed::Invalid)?;
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
    /// As for [`Context::elicit`]; [`AskFailed::Invalid`] names the first field of `T` that has no place in a form or, without the
    /// feature `validate`, a rule that is not checked then; [`AskFailed::Mismatch`] when what was filled in is no `T`.
    pub async fn elicit_typed<T: DeserializeOwned + JsonSchema>(&self, message: impl Into<String>) -> Result<Option<T>, AskFailed> {
        let shape = flat::<T>().and_then(Shape::checked).map_err(AskFailed::Invalid)?;
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
