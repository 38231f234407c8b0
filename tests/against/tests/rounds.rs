//! rmcp and this project in MCP 2026-07-28, where an input request ends the request and its answer comes with another one: each as the server
//! of the other, in one process.

#![allow(deprecated, reason = "2026-07-28 deprecates sampling, and still has it")]

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use endpoint::{BoxFuture, CallOutcome, Client, InputContext};
use programs::tools::{Options, service};
use protocol_core::mcp::Era;
use protocol_core::{
    Capabilities, Config, Consent, Elicit, Elicited, Identity, Invalid, Json, OpenUrl, Outcome, RpcError, Sample, Sampled,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock, CreateMessageRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorCode, ErrorData, Implementation, InputRequest, InputRequests, InputRequiredResult, ProtocolVersion, SamplingMessage,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RunningService, ServiceError};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

// ---- A client of rmcp, a server of ours ----

/// A client of rmcp. Its user gives `action` as each answer, and Ada as their name.
#[derive(Clone)]
struct Answering {
    capabilities: Value,
    action: ElicitationAction,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Answering {
    fn new(capabilities: Value, action: ElicitationAction) -> Self {
        Self { capabilities, action, asked: Arc::default() }
    }

    /// A client that can answer everything, and whose user agrees.
    fn agreeable() -> Self {
        Self::new(json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}}), ElicitationAction::Accept)
    }

    fn note(&self, question: String) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(question);
    }

    /// Starts `tools`, and finds it by a probe.
    async fn meet(self) -> (RunningService<RoleClient, Self>, adapter_tokio::Connection) {
        let (one, other) = tokio::io::duplex(1 << 16);
        let serving = adapter_tokio::serve(Arc::new(service(&Options::default())), adapter_tokio::LineIo::whole(other));
        let mode = ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
        let client = self.serve_with_lifecycle(one, mode).await.expect("a server");
        assert_eq!(client.peer().peer_info().expect("a server").protocol_version, ProtocolVersion::V_2026_07_28);
        (client, serving)
    }

    /// The structured result of a call, or its texts.
    async fn call(self, tool: &'static str, arguments: Value) -> Result<Value, ServiceError> {
        let (client, _serving) = self.meet().await;
        let params = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().cloned().expect("an object"));
        let result = client.call_tool(params).await?;
        assert_ne!(result.is_error, Some(true), "{result:?}");
        let texts = || result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.clone()).collect();
        Ok(result.structured_content.clone().unwrap_or_else(|| Value::String(texts())))
    }
}

impl ClientHandler for Answering {
    fn get_info(&self) -> ClientConfig {
        let capabilities: ClientCapabilities = serde_json::from_value(self.capabilities.clone()).expect("capabilities");
        ClientConfig::new(capabilities, Implementation::new("rmcp", "3.11.0"))
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

#[tokio::test]
async fn a_client_of_rmcp_answers_for_its_model() {
    let client = Answering::agreeable();
    let summary = client.clone().call("summarise", json!({"text": "Once there were two foxes."})).await.unwrap();
    assert_eq!(summary, "In short: two foxes.");
    assert_eq!(*client.asked.lock().unwrap(), ["400 tokens"]);
}

#[tokio::test]
async fn a_client_of_rmcp_confirms_or_declines() {
    for (action, expected) in [
        (ElicitationAction::Accept, json!({"deleted": "old.txt"})),
        (ElicitationAction::Decline, json!({"cancelled": true})),
        (ElicitationAction::Cancel, json!({"cancelled": true})),
    ] {
        let client = Answering { action, ..Answering::agreeable() };
        assert_eq!(client.clone().call("delete", json!({"name": "old.txt"})).await.unwrap(), expected);
        assert_eq!(*client.asked.lock().unwrap(), ["Delete old.txt?"]);
    }
}

#[tokio::test]
async fn a_client_of_rmcp_fills_in_a_form() {
    let renamed = Answering::agreeable().call("rename", json!({"name": "old.txt"})).await.unwrap();
    assert_eq!(renamed, json!({"renamed": {"from": "old.txt", "to": "Ada"}}));
}

#[tokio::test]
async fn a_client_of_rmcp_opens_an_address() {
    let client = Answering::agreeable();
    assert_eq!(client.clone().call("connect", json!({})).await.unwrap(), json!({"decided": "accept"}));
    assert_eq!(*client.asked.lock().unwrap(), ["https://example.com/connect"]);
}

#[tokio::test]
async fn a_client_of_rmcp_answers_three_rounds() {
    let client = Answering::agreeable();
    let survey = client.clone().call("survey", json!({"topic": "foxes"})).await.unwrap();
    let expected = json!({"participant": "Ada", "number": 1, "opinion": "In short: two foxes.", "publish": true});
    assert_eq!(survey, expected);
    assert_eq!(client.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_client_of_rmcp_that_declared_nothing_gets_the_error_for_it() {
    let client = Answering::new(json!({}), ElicitationAction::Accept);
    let Err(ServiceError::McpError(error)) = client.call("rename", json!({"name": "old.txt"})).await else { panic!("no error") };
    assert_eq!(error.code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY);
    let data = error.data.expect("data");
    assert!(data["requiredCapabilities"]["elicitation"].is_object(), "{data}");
}

// ---- A client of ours, a server of rmcp ----

/// A server of rmcp.
struct Asking;

/// Characters that a client must return as they are.
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

/// A client of ours, whose user is Ada or declines, and whose model likes everything.
struct Person {
    declines: bool,
}

impl Client for Person {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.sampling, capabilities.elicitation, capabilities.elicitation_url) = (true, true, true);
        capabilities
    }

    fn sample(&self, _: InputContext, sample: Sample) -> BoxFuture<'static, Result<Sampled, RpcError>> {
        Box::pin(ready(Ok(Sampled::new(format!("{} It is good.", sample.prompt), "canned"))))
    }

    fn elicit(&self, _: InputContext, _: Elicit) -> BoxFuture<'static, Result<Elicited, RpcError>> {
        let content = Json::encode(&json!({"name": "Ada"})).expect("JSON");
        Box::pin(ready(Ok(if self.declines { Elicited::Decline } else { Elicited::Accept(content) })))
    }

    fn open_url(&self, _: InputContext, _: OpenUrl) -> BoxFuture<'static, Result<Consent, RpcError>> {
        Box::pin(ready(Ok(if self.declines { Consent::Decline } else { Consent::Accept })))
    }
}

/// The outcome of a call to the server of rmcp, which is found by a probe.
async fn ask_rmcp(client: Arc<dyn Client>, tool: &str) -> CallOutcome {
    let (one, other) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move { Asking.serve(other).await.expect("a client").waiting().await });
    let mut config = Config::mcp_client(Identity::new("against", "0.0.0"));
    config.era = Era::Auto;
    let connection = adapter_tokio::connect(client, config, adapter_tokio::LineIo::whole(one));
    let outcome = connection.peer().call_tool(tool, Json::empty_object()).expect("a server").await;
    drop(connection);
    serving.abort();
    outcome
}

async fn text(client: Person, tool: &str) -> String {
    ask_rmcp(Arc::new(client), tool).await.tool().expect("a result").text().to_owned()
}

#[tokio::test]
async fn a_server_of_rmcp_is_answered_and_its_state_comes_back_as_it_was() {
    assert_eq!(text(Person { declines: false }, "ask").await, "accept Ada, accept");
    assert_eq!(text(Person { declines: true }, "ask").await, "decline nothing, decline");
}

#[tokio::test]
async fn a_server_of_rmcp_is_answered_in_two_rounds() {
    assert_eq!(text(Person { declines: false }, "interview").await, "Ada: What do you think of Ada? It is good.");
}

#[tokio::test]
async fn a_server_of_rmcp_that_wants_nothing_but_a_retry_gets_it() {
    assert_eq!(text(Person { declines: false }, "later").await, "with 0 answers");
}

#[tokio::test]
async fn a_server_of_rmcp_that_asks_forever_is_given_up() {
    let outcome = ask_rmcp(Arc::new(Person { declines: false }), "endless").await.outcome;
    assert!(matches!(outcome, Outcome::Invalid(Invalid::TooManyRounds)), "{outcome:?}");
}

#[tokio::test]
async fn a_server_of_rmcp_that_asks_for_what_was_not_declared_is_given_up() {
    let outcome = ask_rmcp(Arc::new(()), "ask").await.outcome;
    assert!(matches!(outcome, Outcome::Invalid(_)), "{outcome:?}");
}
