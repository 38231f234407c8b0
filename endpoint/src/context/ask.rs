//! Input requests of a handler to its caller: model, user, browser, roots.

use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::Context;
use crate::peer::Peer;
use crate::schema::{Shape, flat};
use crate::state::AskFailed;
use protocol_core::dialect::{Answer, Ask, Consent, Elicit, Elicited, Notice, OpenUrl, Sample, Sampled};
use protocol_core::json::{Json, Text};
use protocol_core::session::Refused;

impl Context {
    /// Asks the caller's model.
    ///
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost.
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
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost.
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
    ///
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost.
    pub async fn confirm(&self, message: impl Into<String>) -> bool {
        matches!(self.invocation.ask(Ask::Confirm { message: message.into() }).await, Ok(Answer::Confirm(true)))
    }

    /// Asks the caller's user to fill a form. `None` when the user said no or closed the form.
    ///
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost.
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
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost.
    ///
    /// # Errors
    /// As for [`Context::elicit`]; [`AskFailed::Invalid`] names the first field of `T` that has no place in a form or, without the
    /// feature `validate`, a rule that is not checked then; [`AskFailed::Mismatch`] when what was filled in is no `T`.
    pub async fn elicit_typed<T: DeserializeOwned + JsonSchema>(&self, message: impl Into<String>) -> Result<Option<T>, AskFailed> {
        let shape = flat::<T>().and_then(Shape::checked).map_err(AskFailed::Invalid)?;
        let Some(content) = self.elicit(Elicit::new(message, shape.schema().clone())).await? else { return Ok(None) };
        shape.read(&content).map(Some).map_err(AskFailed::Mismatch)
    }

    /// An address for the user to open, with an id that no other has, in no run of the server. The id is no secret.
    #[must_use]
    pub fn new_url(&self, message: impl Into<String>, url: impl Into<String>) -> OpenUrl {
        static RUN: OnceLock<u64> = OnceLock::new();
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let run = RUN.get_or_init(|| RandomState::new().hash_one(0));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        OpenUrl::new(message, url).with_id(format!("{run:016x}-{number}"))
    }

    /// Asks the caller's user to open an address, where they do what must not pass through the caller: sign in, pay, give a password.
    /// `url` is absolute; see [`OpenUrl::url`]. It goes out under an id of its own; [`Context::open_url`] takes one that is known.
    ///
    /// [`Consent::Accept`] means that the user agreed to open it, and nothing of what they do there: that the server hears by itself.
    ///
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost; the user may have
    /// opened the address.
    ///
    /// # Errors
    /// [`AskFailed`]. [`AskFailed::NoUrlElicitation`] and, for an address that is not proper, [`AskFailed::Invalid`] before anything is
    /// sent.
    pub async fn elicit_url(&self, message: impl Into<String>, url: impl Into<String>) -> Result<Consent, AskFailed> {
        self.open_url(self.new_url(message, url)).await
    }

    /// Asks the caller's user to open an address whose id is known here, so that [`Context::complete_url`] can tell later that it is done.
    ///
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost; the user may have
    /// opened the address.
    ///
    /// # Errors
    /// As for [`Context::elicit_url`]; [`AskFailed::Invalid`] also for an id that is empty.
    pub async fn open_url(&self, open: OpenUrl) -> Result<Consent, AskFailed> {
        match self.invocation.ask(open.into()).await? {
            Answer::OpenUrl(consent) => Ok(consent),
            _ => Err(AskFailed::Mismatch(String::from("it is no answer about an address"))),
        }
    }

    /// Tells the caller that the user has done what the address with this id was opened for, also once the invocation is over.
    ///
    /// # Errors
    /// [`Refused`]: nothing was sent. [`Refused::Unsupported`] where the protocol has no such news.
    pub fn complete_url(&self, id: impl Into<Text>) -> Result<(), Refused> {
        Peer::new(Arc::clone(&self.invocation.shared)).notify(Notice::ElicitationComplete { id: id.into() })
    }

    /// Asks the caller for the folders that it works in: the array of `{uri, name?}`.
    ///
    /// # Cancel safety
    /// Not cancel safe: the question is taken back, and an answer that is on its way, or has come, is lost.
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
