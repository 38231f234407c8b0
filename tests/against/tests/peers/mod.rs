//! A client of rmcp that answers input requests, a server of rmcp that makes them, and a client of ours that answers them.

#![allow(deprecated, reason = "2026-07-28 deprecates sampling, and still has it")]

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use endpoint::{BoxFuture, Client, InputContext};
use protocol_core::{Capabilities, Elicit, Json, OpenUrl, OpenUrlResult, RpcError, Sample, SampleResult};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock, CreateMessageRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, Implementation, InputRequest, InputRequests, InputRequiredResult, ProgressNotificationParam, SamplingMessage,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService, ServiceError};
use rmcp::{ClientHandler, RoleClient, RoleServer, ServerHandler};
use serde_json::{Value, json};

/// A client of rmcp. It answers each elicitation with `action`, and fills each field of a form with Ada.
#[derive(Clone)]
pub struct Answering {
    pub capabilities: Value,
    pub action: ElicitationAction,
    /// The input requests that it has received, in order.
    pub asked: Arc<Mutex<Vec<String>>>,
    /// The progress values that it has received, in order.
    pub progress: Arc<Mutex<Vec<f64>>>,
}

impl Answering {
    pub fn new(capabilities: Value, action: ElicitationAction) -> Self {
        Self { capabilities, action, asked: Arc::default(), progress: Arc::default() }
    }

    /// A client that declares sampling and elicitation, and accepts every elicitation.
    pub fn agreeable() -> Self {
        Self::new(json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}}), ElicitationAction::Accept)
    }

    /// Calls a tool over a connection of this client. Returns the structured content of the result, or its texts if it has none.
    pub async fn call(
        connected: &RunningService<RoleClient, Self>,
        tool: &'static str,
        arguments: Value,
    ) -> Result<Value, ServiceError> {
        let params = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().cloned().expect("an object"));
        let result = connected.call_tool(params).await?;
        assert_ne!(result.is_error, Some(true), "{result:?}");
        let texts = || result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.clone()).collect();
        Ok(result.structured_content.clone().unwrap_or_else(|| Value::String(texts())))
    }

    fn note(&self, question: String) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(question);
    }
}

impl ClientHandler for Answering {
    fn get_info(&self) -> ClientConfig {
        let capabilities: ClientCapabilities = serde_json::from_value(self.capabilities.clone()).expect("capabilities");
        ClientConfig::new(capabilities, Implementation::new("rmcp", "3.11.0"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).push(params.progress);
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.note(format!("{} tokens", params.max_tokens));
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("In short: two foxes."), "canned".into()))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = match params {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                self.note(message);
                let fields = requested_schema.properties.into_keys();
                Some(fields.map(|field| (field, json!("Ada"))).collect::<serde_json::Map<_, _>>().into())
            }
            ElicitRequestParams::UrlElicitationParams { url, .. } => {
                self.note(url);
                None
            }
            _ => None,
        };
        let mut result = ElicitResult::new(self.action.clone());
        result.content = content.filter(|_| self.action == ElicitationAction::Accept);
        Ok(result)
    }
}

/// A server of rmcp whose tools return rounds of input requests before their result.
pub struct Asking;

/// A state with characters that a client must return unchanged.
const STATE: &str = "a \"state\"\n\twith/every+thing= and Ω";

fn name() -> InputRequest {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Who are you?".into(),
        requested_schema: serde_json::from_value(schema).expect("a schema"),
    }))
}

fn address() -> InputRequest {
    let params = json!({"mode": "url", "message": "Please", "url": "https://example.com/"});
    InputRequest::Elicitation(ElicitRequest::new(serde_json::from_value(params).expect("parameters")))
}

fn opinion(about: &str) -> InputRequest {
    let messages = vec![SamplingMessage::user_text(format!("What do you think of {about}?"))];
    InputRequest::CreateMessage(CreateMessageRequest::new(CreateMessageRequestParams::new(messages, 100)))
}

/// A round with the input requests `asked`, and with a state.
fn round<const N: usize>(asked: [(&str, InputRequest); N], state: &str) -> CallToolResponse {
    let requests: InputRequests = asked.into_iter().map(|(name, request)| (name.to_owned(), request)).collect();
    InputRequiredResult::new((N > 0).then_some(requests), Some(state.into())).into()
}

impl ServerHandler for Asking {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(&self, call: CallToolRequestParams, _: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let state = call.request_state.as_deref().unwrap_or_default();
        let answers = call.input_responses.unwrap_or_default();
        let answer = |name: &str, pointer: &str| {
            answers.get(name).and_then(|answer| answer.pointer(pointer)).and_then(Value::as_str).unwrap_or("nothing").to_owned()
        };
        let done = match (&*call.name, state) {
            ("ask", "") => return Ok(round([("who", name()), ("where", address())], STATE)),
            ("ask", STATE) => {
                format!("{} {}, {}", answer("who", "/action"), answer("who", "/content/name"), answer("where", "/action"))
            }
            ("interview", "") => return Ok(round([("who", name())], "0")),
            ("interview", "0") => {
                let who = answer("who", "/content/name");
                return Ok(round([("opinion", opinion(&who))], &who));
            }
            ("interview", who) => format!("{who}: {}", answer("opinion", "/content/text")),
            ("later", "") => return Ok(round([], "1")),
            ("later", "1") => return Ok(round([], "2")),
            ("later", "2") => format!("with {} answers", answers.len()),
            ("endless", _) => return Ok(round([("who", name())], "again")),
            (_, state) => return Err(ErrorData::invalid_params(format!("the state {state:?} is unknown"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(done)]).into())
    }
}

/// A client of ours. It answers a form with the name Ada, or declines every elicitation if `declines`. It answers sampling with the prompt
/// and a fixed sentence.
pub struct Person {
    pub declines: bool,
}

impl Client for Person {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.sampling, capabilities.elicitation, capabilities.elicitation_url) = (true, true, true);
        capabilities
    }

    fn sample(&self, _: InputContext, sample: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        Box::pin(ready(Ok(SampleResult::new(format!("{} It is good.", sample.prompt), "canned"))))
    }

    fn elicit(&self, _: InputContext, _: Elicit) -> BoxFuture<'static, Result<protocol_core::ElicitResult, RpcError>> {
        let content = Json::encode(&json!({"name": "Ada"})).expect("JSON");
        Box::pin(ready(Ok(if self.declines {
            protocol_core::ElicitResult::Decline
        } else {
            protocol_core::ElicitResult::Accept(content)
        })))
    }

    fn open_url(&self, _: InputContext, _: OpenUrl) -> BoxFuture<'static, Result<OpenUrlResult, RpcError>> {
        Box::pin(ready(Ok(if self.declines { OpenUrlResult::Decline } else { OpenUrlResult::Accept })))
    }
}
