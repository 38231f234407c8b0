//! The side that answers what callees ask while they serve: model, user, browser, roots.

use core::fmt;
use std::sync::Arc;

use crate::context::Context;
use crate::peer::{Call, Peer};
use crate::state::Question;
use engine::BoxFuture;
use protocol_core::dialect::{
    Answer, Ask, Capabilities, Consent, Custom, Elicit, Elicited, LogRecord, Notice, OpenUrl, Reply, Sample, Sampled,
};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{Invoke, InvokeError, OutboundId};

/// Answers what the peer asks, and hears its news.
///
/// Every question is answered by a task of its own, so an answer may take its time: a person may be asked. A question that is no
/// longer wanted drops its future. One that panics is answered with an internal error.
///
/// Input requests that [`Client::capabilities`] does not declare are refused before they come here.
pub trait Client: Send + Sync + 'static {
    /// The capabilities that the methods below really have. Only the client's half counts. Read once, when the endpoint is made.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Asks a model. Refuses by default.
    ///
    /// # Cancel safety
    /// The future must be ready to be dropped at any await, as it is when the question is no longer wanted; nothing is answered then.
    fn sample(&self, asked: InputContext, sample: Sample) -> BoxFuture<'static, Result<Sampled, RpcError>> {
        let _ = (asked, sample);
        refuse("sampling is not offered")
    }

    /// Asks the user to fill a form; one without fields asks for yes or no. Refuses by default.
    ///
    /// # Cancel safety
    /// The future must be ready to be dropped at any await, as it is when the question is no longer wanted; nothing is answered then.
    fn elicit(&self, asked: InputContext, form: Elicit) -> BoxFuture<'static, Result<Elicited, RpcError>> {
        let _ = (asked, form);
        refuse("elicitation is not offered")
    }

    /// Asks the user whether to open an address, and opens it once they agree; nothing of it may be fetched before. Declines by default.
    ///
    /// The answer does not wait for the user, who may take long. A server may tell of the end:
    /// [`Notice::ElicitationComplete`] goes to [`Client::notice`], and with an id that is not awaited it means nothing.
    ///
    /// # Cancel safety
    /// The future must be ready to be dropped at any await, as it is when the question is no longer wanted; nothing is answered
    /// then.
    fn open_url(&self, asked: InputContext, open: OpenUrl) -> BoxFuture<'static, Result<Consent, RpcError>> {
        let _ = (asked, open);
        Box::pin(core::future::ready(Ok(Consent::Decline)))
    }

    /// Lists the folders to work in: the array of `{uri, name?}`. Refuses by default.
    ///
    /// # Cancel safety
    /// The future must be ready to be dropped at any await, as it is when the question is no longer wanted; nothing is answered then.
    fn roots(&self, asked: InputContext) -> BoxFuture<'static, Result<Json, RpcError>> {
        let _ = asked;
        refuse("roots are not offered")
    }

    /// The methods beside those of the protocol that [`Client::request`] serves. None by default. Read once, when the endpoint is made.
    fn methods(&self) -> Vec<String> {
        Vec::new()
    }

    /// Serves a request of one of [`Client::methods`], with its parameters exactly as they came. Refuses by default.
    ///
    /// # Cancel safety
    /// The future must be ready to be dropped at any await, as that of every handler: it is when the connection is dropped, and when
    /// it goes on for longer than [`handler_grace`](protocol_core::Timeouts::handler_grace) after `context` was told to stop.
    fn request(&self, context: Context, method: &str, params: Json) -> BoxFuture<'static, Result<Json, RpcError>> {
        let _ = (context, method, params);
        refuse("method not found")
    }

    /// A log record of the peer. Called in order, by the driver: it must not block.
    fn log(&self, record: LogRecord) {
        let _ = record;
    }

    /// News of the peer. Called in order, by the driver: it must not block.
    fn notice(&self, notice: Notice) {
        let _ = notice;
    }
}

/// A client that answers nothing.
impl Client for () {}

fn refuse<T: Send + 'static>(message: &'static str) -> BoxFuture<'static, Result<T, RpcError>> {
    Box::pin(core::future::ready(Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, message))))
}

/// The origin of an input request. Cloneable.
#[derive(Clone)]
pub struct InputContext {
    question: Arc<Question>,
}

impl InputContext {
    pub(crate) fn new(question: Arc<Question>) -> Self {
        Self { question }
    }

    /// The call of ours on whose behalf the peer asks, as far as that is known.
    #[must_use]
    pub fn parent(&self) -> Option<OutboundId> {
        self.question.parent
    }

    /// For sampling, how deep it is nested: 1 and up. Otherwise the depth of its call.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.question.depth
    }

    /// Starts a call on behalf of the question, so that sampling depth counts itself.
    ///
    /// # Errors
    /// [`InvokeError`] with the call, as for [`Peer::call`]; also when the question is no longer open.
    pub fn call(&self, mut call: Invoke) -> Result<Call, InvokeError> {
        call.parent = Some(self.question.key);
        self.peer().call(call)
    }

    /// Starts a tool on behalf of the question. `arguments` is an object.
    ///
    /// # Errors
    /// As for [`InputContext::call`].
    pub fn call_tool(&self, name: &str, arguments: Json) -> Result<Call, InvokeError> {
        self.call(Invoke::call_tool(name, arguments))
    }

    /// The peer that asks.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::new(Arc::clone(&self.question.shared))
    }
}

impl fmt::Debug for InputContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputContext")
            .field("key", &self.question.key)
            .field("parent", &self.question.parent)
            .field("depth", &self.question.depth)
            .finish_non_exhaustive()
    }
}

/// Serves a request of the peer. The client's own code runs in its polls.
pub(crate) async fn serve(client: Arc<dyn Client>, context: Context, request: Custom) -> Reply {
    let method = String::from(request.method());
    client.request(context, &method, request.into_params()).await.map_or_else(Reply::Error, Reply::Raw)
}

/// Answers `ask`. The client's own code runs in its polls.
pub(crate) async fn answer(client: Arc<dyn Client>, asked: InputContext, ask: Ask) -> Answer {
    let answer = match ask {
        Ask::Sample(sample) => client.sample(asked, *sample).await.map(Answer::Sample),
        Ask::Elicit(form) => client.elicit(asked, form).await.map(Answer::Elicit),
        Ask::OpenUrl(open) => client.open_url(asked, *open).await.map(Answer::OpenUrl),
        Ask::Confirm { message } => client.elicit(asked, Elicit::new(message, empty_form())).await.map(Answer::Elicit),
        Ask::Roots => client.roots(asked).await.map(Answer::Roots),
        _ => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found")),
    };
    answer.unwrap_or_else(Answer::Refused)
}

fn empty_form() -> Json {
    Json::parse(r#"{"type":"object","properties":{},"required":[]}"#).unwrap_or_default()
}
