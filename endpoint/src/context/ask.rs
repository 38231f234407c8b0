//! Input requests of a handler: to the model, the user and the browser of its caller, and for the caller's roots.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{AskFuture, Context};
use crate::ask_failed::AskFailed;
use crate::peer::Peer;
use crate::schema::{Shape, flat};
use crate::tool_error::ToolError;
use protocol_core::dialect::{
    Elicit, ElicitResult, InputRequest, InputResponse, Notification, OpenUrl, OpenUrlResult, Sample, SampleResult,
};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::SendError;

impl Context {
    /// Asks the caller's model for a message (MCP `sampling/createMessage`).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
    ///
    /// # Errors
    /// [`AskFailed`]; [`AskFailed::NoSampling`] and [`AskFailed::TooDeep`] before anything is sent.
    pub fn sample(&self, sample: Sample) -> AskFuture<Result<SampleResult, AskFailed>> {
        AskFuture::new(self.served(), Ok(sample.into()), sampled)
    }

    /// Asks the caller's model for a value of type `T`. The input request includes the schema of `T`. The text of the answer is parsed as
    /// JSON, without the Markdown fence that models often put around it, and checked against the schema.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
    ///
    /// # Errors
    /// As for [`Context::sample`]; [`AskFailed::Mismatch`], code -32005, if the answer is not a valid `T`; [`AskFailed::Invalid`] if the
    /// schema of `T` has a keyword that cannot be checked without the feature `validate`.
    pub fn sample_typed<T: DeserializeOwned + JsonSchema>(&self, prompt: impl Into<String>) -> AskFuture<Result<T, AskFailed>> {
        let shape = match Shape::of::<T>().checked() {
            Ok(shape) => shape,
            Err(why) => return self.unasked(AskFailed::Invalid(why)),
        };
        let mut sample = Sample::new(prompt);
        sample.schema = Some(shape.schema().clone());
        AskFuture::new(self.served(), Ok(sample.into()), move |answer| {
            let sampled = sampled(answer)?;
            let answer = Json::parse(unfenced(&sampled.text).as_bytes().to_vec())
                .map_err(|_| AskFailed::Mismatch(String::from("its text is no JSON")))?;
            shape.read(&answer).map_err(AskFailed::Mismatch)
        })
    }

    /// A future that resolves to `failed`, without sending anything.
    fn unasked<T>(&self, failed: AskFailed) -> AskFuture<Result<T, AskFailed>> {
        AskFuture::new(self.served(), Err(failed), |answer| Err(answer.err().unwrap_or(AskFailed::Over)))
    }

    /// Asks the caller's user to confirm something. Returns `true` only if the user agreed. Everything else is `false`, such as a user who
    /// declined or closed the form, a caller that does not offer elicitation, and every [`AskFailed`].
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
    pub fn confirm(&self, message: impl Into<String>) -> AskFuture<bool> {
        let ask = InputRequest::Confirm { message: message.into() };
        AskFuture::new(self.served(), Ok(ask), |answer| matches!(answer, Ok(InputResponse::Confirm(true))))
    }

    /// Asks the caller's user to fill in a form (MCP `elicitation/create`). Returns `None` if the user declined or closed the form.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
    ///
    /// # Errors
    /// [`AskFailed`]; before anything is sent, [`AskFailed::NoElicitation`], and [`AskFailed::Invalid`] for a form whose schema is not a
    /// flat object of primitive types.
    pub fn elicit(&self, form: Elicit) -> AskFuture<Result<Option<Json>, AskFailed>> {
        AskFuture::new(self.served(), Ok(InputRequest::Elicit(form)), elicited)
    }

    /// Asks the caller's user to fill in a form for a `T`: a struct whose fields are strings, numbers, booleans, choices (enums without
    /// data), or `Option`s of these. The form is made from the schema of `T`, and the answer is checked against it. Returns `None` if the
    /// user declined or closed the form.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
    ///
    /// # Errors
    /// As for [`Context::elicit`]; [`AskFailed::Invalid`] names the first field of `T` that a form cannot have, or a keyword that cannot be
    /// checked without the feature `validate`; [`AskFailed::Mismatch`] if the answer is not a valid `T`.
    pub fn elicit_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        message: impl Into<String>,
    ) -> AskFuture<Result<Option<T>, AskFailed>> {
        let shape = match flat::<T>().and_then(Shape::checked) {
            Ok(shape) => shape,
            Err(why) => return self.unasked(AskFailed::Invalid(why)),
        };
        let form = Elicit::new(message, shape.schema().clone());
        AskFuture::new(self.served(), Ok(InputRequest::Elicit(form)), move |answer| {
            let Some(content) = elicited(answer)? else { return Ok(None) };
            shape.read(&content).map(Some).map_err(AskFailed::Mismatch)
        })
    }

    /// Makes a request to open `url`, with a new id. The id consists of 16 random bytes of the runtime, so that it is unique across runs of
    /// the server; without random bytes ([`Runtime::fill_random`](crate::Runtime::fill_random)) it is a counter, unique in this run only.
    /// The id is not a secret.
    #[must_use]
    pub fn new_url(&self, message: impl Into<String>, url: impl Into<String>) -> OpenUrl {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut random = [0; 16];
        let id = match self.served().shared.runtime().fill_random(&mut random) {
            Ok(()) => format!("{:032x}", u128::from_ne_bytes(random)),
            Err(_) => NEXT.fetch_add(1, Ordering::Relaxed).to_string(),
        };
        OpenUrl::new(message, url).with_id(id)
    }

    /// Asks the caller's user to open a URL (MCP elicitation in URL mode), for steps that must not pass through the caller: signing in,
    /// paying, entering a password. `url` is absolute; see [`OpenUrl::url`]. The input request gets a new id; use [`Context::open_url`] to
    /// choose it.
    ///
    /// [`OpenUrlResult::Accept`] means that the user agreed to open the URL. It does not mean that they have signed in or paid there: the
    /// server has to find that out itself.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost. The user may have
    /// opened the URL.
    ///
    /// # Errors
    /// [`AskFailed`]; before anything is sent, [`AskFailed::NoUrlElicitation`], and [`AskFailed::Invalid`] for a URL that
    /// [`OpenUrl::check`] refuses.
    pub fn elicit_url(&self, message: impl Into<String>, url: impl Into<String>) -> AskFuture<Result<OpenUrlResult, AskFailed>> {
        self.open_url(self.new_url(message, url))
    }

    /// Asks the caller's user to open a URL. `open` has the id that is passed to [`Context::complete_url`] later.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost. The user may have
    /// opened the URL.
    ///
    /// # Errors
    /// As for [`Context::elicit_url`]; [`AskFailed::Invalid`] also for an empty id.
    pub fn open_url(&self, open: OpenUrl) -> AskFuture<Result<OpenUrlResult, AskFailed>> {
        AskFuture::new(self.served(), Ok(open.into()), |answer| match answer? {
            InputResponse::OpenUrl(consent) => Ok(consent),
            _ => Err(AskFailed::Mismatch(String::from("it is not an answer to a request to open a URL"))),
        })
    }

    /// Notifies the caller that the user has finished at the URL with this id (MCP `notifications/elicitation/complete`). May be used after
    /// the end of the call.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent. [`SendError::Unsupported`] if the protocol, or the revision of the call, has no such notification.
    pub fn complete_url(&self, id: impl Into<Text>) -> Result<(), SendError> {
        if self.served().is_stateless() {
            return Err(SendError::Unsupported);
        }
        Peer::new(Arc::clone(&self.served().shared)).notify(Notification::ElicitationComplete { id: id.into() })
    }

    /// Asks the caller for the folders that it works in (MCP `roots/list`): an array of `{uri, name?}`.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the input request, and an answer that has arrived already is lost.
    ///
    /// # Errors
    /// [`AskFailed`]; [`AskFailed::NoRoots`] before anything is sent.
    pub fn roots(&self) -> AskFuture<Result<Json, AskFailed>> {
        AskFuture::new(self.served(), Ok(InputRequest::Roots), |answer| match answer? {
            InputResponse::Roots(roots) => Ok(roots),
            _ => Err(AskFailed::Mismatch(String::from("it is no list of roots"))),
        })
    }
}

impl ToolError {
    /// The error -32042, URL elicitation required (MCP, client/elicitation): the user has to open `urls` before the call can be served. The
    /// client shows them to the user, and may call again afterwards.
    ///
    /// If the caller of `context` does not support elicitation by URL, this is a [`ToolError::Ask`] with [`AskFailed::NoUrlElicitation`]
    /// instead. If `urls` is empty or one of them is not valid, it is a [`ToolError::Ask`] with [`AskFailed::Invalid`]. MCP 2026-07-28 does
    /// not have the error -32042: there this is a [`ToolError::Failed`] that names the URLs.
    #[must_use]
    pub fn urls_required(context: &Context, urls: impl IntoIterator<Item = OpenUrl>) -> Self {
        if !context.capabilities().elicitation_url {
            return Self::Ask(AskFailed::NoUrlElicitation);
        }
        let urls: Vec<_> = urls.into_iter().collect();
        match urls.iter().find_map(|open| open.check().err()) {
            Some(why) => Self::Ask(AskFailed::Invalid(why)),
            None if urls.is_empty() => Self::Ask(AskFailed::Invalid(String::from("there is no address to open"))),
            None if context.caller().is_stateless() => {
                let urls: Vec<_> = urls.iter().map(|open| format!("{} ({})", open.url, open.message)).collect();
                Self::failed(format!("addresses that must be opened first: {}", urls.join(", ")))
            }
            None => Self::Rpc(RpcError::url_elicitation_required(&urls)),
        }
    }
}

fn sampled(answer: Result<InputResponse, AskFailed>) -> Result<SampleResult, AskFailed> {
    match answer? {
        InputResponse::Sample(sampled) => Ok(sampled),
        _ => Err(AskFailed::Mismatch(String::from("it is not an answer to a sampling request"))),
    }
}

fn elicited(answer: Result<InputResponse, AskFailed>) -> Result<Option<Json>, AskFailed> {
    match answer? {
        InputResponse::Elicit(ElicitResult::Accept(content)) => Ok(Some(content)),
        InputResponse::Elicit(ElicitResult::Decline | ElicitResult::Cancel) => Ok(None),
        _ => Err(AskFailed::Mismatch(String::from("it is no answer to a form"))),
    }
}

/// Removes a Markdown fence around the whole text: models often put one around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")).and_then(|rest| rest.split_once('\n'));
    inside.map_or(text, |(_language, inside)| inside.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_markdown_fence_around_the_answer_is_removed() {
        assert_eq!(unfenced(" {\"a\":1}\n"), "{\"a\":1}");
        assert_eq!(unfenced("```json\n{\"a\":1}\n```"), "{\"a\":1}");
        assert_eq!(unfenced("```\n[1]\n```\n"), "[1]");
        assert_eq!(unfenced("```"), "```");
        assert_eq!(unfenced("\"``` text\""), "\"``` text\"");
    }
}
