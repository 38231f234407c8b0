//! The part of a caller that answers input requests: with its model, its user, its browser and its roots.

use core::fmt;
use std::sync::Arc;

use crate::context::Context;
use crate::peer::{Call, Peer};
use crate::state::ServedInput;
use engine::BoxFuture;
use protocol_core::dialect::{
    Capabilities, Custom, Elicit, ElicitResult, InputRequest, InputResponse, LogRecord, Notification, OpenUrl, OpenUrlResult,
    Reply, Sample, SampleResult,
};
use protocol_core::error::{RpcError, Unreadable};
use protocol_core::json::Json;
use protocol_core::session::{Invoke, InvokeError, OutboundId};

/// Answers the input requests of the peer, and receives its log records and notifications.
///
/// Every input request is answered by a separate task, so an answer may take as long as a person needs. If the request is cancelled, the
/// future of its answer is dropped. If the future panics, the request is answered with an internal error. Input requests that
/// [`Client::capabilities`] does not declare are refused without a call of these methods.
pub trait Client: Send + Sync + 'static {
    /// The capabilities to declare, for the methods below that are implemented. Fields for servers are ignored. Called once, when the
    /// endpoint is made. Default: none.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Asks a model. By default, answers that sampling is not offered.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: the future is dropped at an await point if the request is cancelled. No answer is sent then.
    fn sample(&self, asked: InputContext, sample: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        let _ = (asked, sample);
        refuse("sampling is not offered")
    }

    /// Asks the user to fill in a form. A form without fields asks for yes or no. By default, answers that elicitation is not offered.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: the future is dropped at an await point if the request is cancelled. No answer is sent then.
    fn elicit(&self, asked: InputContext, form: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        let _ = (asked, form);
        refuse("elicitation is not offered")
    }

    /// Asks the user whether to open a URL, and opens it if they agree. An implementation must not fetch anything from the URL before they
    /// agree (MCP, client/elicitation, "Safe URL Handling"). Declines by default.
    ///
    /// An implementation answers as soon as the user has agreed or declined. If the server notifies the client later that the user has
    /// finished at the URL, [`Client::notification`] receives a [`Notification::ElicitationComplete`]. A notification with an unknown id must be
    /// ignored.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: the future is dropped at an await point if the request is cancelled. No answer is sent then.
    fn open_url(&self, asked: InputContext, open: OpenUrl) -> BoxFuture<'static, Result<OpenUrlResult, RpcError>> {
        let _ = (asked, open);
        Box::pin(core::future::ready(Ok(OpenUrlResult::Decline)))
    }

    /// Lists the folders to work in, as an array of `{uri, name?}`. By default, answers that roots are not offered.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe: the future is dropped at an await point if the request is cancelled. No answer is sent then.
    fn roots(&self, asked: InputContext) -> BoxFuture<'static, Result<Json, RpcError>> {
        let _ = asked;
        refuse("roots are not offered")
    }

    /// The methods that [`Client::request`] serves, in addition to those of the protocol. Called once, when the endpoint is made. Default:
    /// none.
    fn methods(&self) -> Vec<String> {
        Vec::new()
    }

    /// Serves a request for one of [`Client::methods`]. `params` are its parameters, byte for byte. By default, answers that the method
    /// does not exist.
    ///
    /// # Cancel safety
    /// An implementation must be cancel safe, like every handler: the future is dropped at an await point if the endpoint is dropped, or if
    /// the future runs for longer than [`handler_grace`](protocol_core::Timeouts::handler_grace) after its call was cancelled.
    fn request(&self, context: Context, method: &str, params: Json) -> BoxFuture<'static, Result<Json, RpcError>> {
        let _ = (context, method, params);
        refuse("method not found")
    }

    /// Receives a log record of the peer. Called in the order of arrival by the task that drives the endpoint, so it must not block.
    fn log(&self, record: LogRecord) {
        let _ = record;
    }

    /// Is told of a frame of the peer that is no message and ends no call, such as a line of text that a server prints to its standard
    /// output. Called in the order of arrival by the task that drives the endpoint, so it must not block.
    fn unreadable(&self, frame: &Unreadable) {
        let _ = frame;
    }

    /// Receives a notification of the peer that belongs to no call. Called in the order of arrival by the task that drives the endpoint, so
    /// it must not block.
    fn notification(&self, notification: Notification) {
        let _ = notification;
    }
}

/// A client that declares no capabilities.
impl Client for () {}

fn refuse<T: Send + 'static>(message: &'static str) -> BoxFuture<'static, Result<T, RpcError>> {
    Box::pin(core::future::ready(Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, message))))
}

/// The handle of a [`Client`] on an input request: the call that the request belongs to, and the peer that made it. Cloneable.
#[derive(Clone)]
pub struct InputContext {
    input_request: Arc<ServedInput>,
}

impl InputContext {
    pub(crate) fn new(input_request: Arc<ServedInput>) -> Self {
        Self { input_request }
    }

    /// The outbound call that the input request belongs to; `None` if no call was in flight. If the request names no call and did not come
    /// on the stream of a call, as on MCP over pipes, this is the newest of the calls in flight that have the greatest sampling depth.
    #[must_use]
    pub fn parent(&self) -> Option<OutboundId> {
        self.input_request.parent
    }

    /// The sampling depth: at least that of the call and, for a sampling request, at least one more.
    #[must_use]
    pub fn depth(&self) -> u8 {
        self.input_request.depth
    }

    /// Starts a call as part of the answer. The call has the sampling depth of the input request.
    ///
    /// # Errors
    /// [`InvokeError`], which returns the call: as for [`Peer::call`], or if the input request is no longer open.
    pub fn call(&self, mut call: Invoke) -> Result<Call, InvokeError> {
        call.parent = Some(self.input_request.key);
        self.peer().call(call)
    }

    /// Starts the call of a tool as part of the answer. `arguments` is an object.
    ///
    /// # Errors
    /// As for [`InputContext::call`].
    pub fn call_tool(&self, name: &str, arguments: Json) -> Result<Call, InvokeError> {
        self.call(Invoke::call_tool(name, arguments))
    }

    /// The peer that made the input request.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::new(Arc::clone(&self.input_request.shared))
    }
}

impl fmt::Debug for InputContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputContext")
            .field("key", &self.input_request.key)
            .field("parent", &self.input_request.parent)
            .field("depth", &self.input_request.depth)
            .finish_non_exhaustive()
    }
}

/// Serves a request of the peer. The client's code runs only when the future is polled.
pub(crate) async fn serve(client: Arc<dyn Client>, context: Context, request: Custom) -> Reply {
    let method = String::from(request.method());
    client.request(context, &method, request.into_params()).await.map_or_else(Reply::Error, Reply::Raw)
}

/// Answers an input request. The client's code runs only when the future is polled.
pub(crate) async fn answer(client: Arc<dyn Client>, asked: InputContext, ask: InputRequest) -> InputResponse {
    let answer = match ask {
        InputRequest::Sample(sample) => client.sample(asked, *sample).await.map(InputResponse::Sample),
        InputRequest::Elicit(form) => client.elicit(asked, form).await.map(InputResponse::Elicit),
        InputRequest::OpenUrl(open) => client.open_url(asked, *open).await.map(InputResponse::OpenUrl),
        InputRequest::Confirm { message } => {
            client.elicit(asked, Elicit::new(message, empty_form())).await.map(InputResponse::Elicit)
        }
        InputRequest::Roots => client.roots(asked).await.map(InputResponse::Roots),
        _ => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found")),
    };
    answer.unwrap_or_else(InputResponse::Refused)
}

fn empty_form() -> Json {
    Json::parse(r#"{"type":"object","properties":{},"required":[]}"#).unwrap_or_default()
}
