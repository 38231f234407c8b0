//! Rounds of input requests (MCP 2026-07-28) between rmcp and this project: each as the server of the other, in one process.

mod peers;

use std::sync::Arc;

use endpoint::{CallOutcome, Client};
use peers::{Answering, Asking, Person};
use programs::tools::{Options, service};
use protocol_core::mcp::Era;
use protocol_core::{Config, Identity, Invalid, Json, Outcome};
use rmcp::model::{ElicitationAction, ErrorCode, ProtocolVersion};
use rmcp::service::ServiceError;
use rmcp::{ClientLifecycleMode, ClientServiceExt, ServiceExt};
use serde_json::{Value, json};

// ---- A client of rmcp, a server of ours ----

/// Calls a tool of the program `tools`. Returns the structured content of the result, or its texts if it has none. The client probes for
/// the revision.
async fn call(client: &Answering, tool: &'static str, arguments: Value) -> Result<Value, ServiceError> {
    let (client_end, server_end) = tokio::io::duplex(1 << 16);
    let _serving = adapter_tokio::start(service(&Options::default()), adapter_tokio::LineIo::whole(server_end));
    let mode = ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
    let connected = client.clone().serve_with_lifecycle(client_end, mode).await.expect("a server");
    assert_eq!(connected.peer().peer_info().expect("a server").protocol_version, ProtocolVersion::V_2026_07_28);
    Answering::call(&connected, tool, arguments).await
}

#[tokio::test]
async fn a_client_of_rmcp_answers_a_sampling_request() {
    let client = Answering::agreeable();
    let summary = call(&client.clone(), "summarise", json!({"text": "Once there were two foxes."})).await.unwrap();
    assert_eq!(summary, "In short: two foxes.");
    assert_eq!(*client.asked.lock().unwrap(), ["400 tokens"]);
}

#[tokio::test]
async fn a_client_of_rmcp_accepts_declines_or_cancels_a_confirmation() {
    for (action, expected) in [
        (ElicitationAction::Accept, json!({"deleted": "old.txt"})),
        (ElicitationAction::Decline, json!({"cancelled": true})),
        (ElicitationAction::Cancel, json!({"cancelled": true})),
    ] {
        let client = Answering { action, ..Answering::agreeable() };
        assert_eq!(call(&client.clone(), "delete", json!({"name": "old.txt"})).await.unwrap(), expected);
        assert_eq!(*client.asked.lock().unwrap(), ["Delete old.txt?"]);
    }
}

#[tokio::test]
async fn a_client_of_rmcp_fills_in_a_form() {
    let renamed = call(&Answering::agreeable(), "rename", json!({"name": "old.txt"})).await.unwrap();
    assert_eq!(renamed, json!({"renamed": {"from": "old.txt", "to": "Ada"}}));
}

#[tokio::test]
async fn a_client_of_rmcp_opens_a_url() {
    let client = Answering::agreeable();
    assert_eq!(call(&client.clone(), "connect", json!({})).await.unwrap(), json!({"decided": "accept"}));
    assert_eq!(*client.asked.lock().unwrap(), ["https://example.com/connect"]);
}

#[tokio::test]
async fn a_client_of_rmcp_answers_three_rounds() {
    let client = Answering::agreeable();
    let survey = call(&client.clone(), "survey", json!({"topic": "foxes"})).await.unwrap();
    let expected = json!({"participant": "Ada", "number": 1, "opinion": "In short: two foxes.", "publish": true});
    assert_eq!(survey, expected);
    assert_eq!(client.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_client_of_rmcp_without_capabilities_gets_the_error_for_a_missing_capability() {
    let client = Answering::new(json!({}), ElicitationAction::Accept);
    let Err(ServiceError::McpError(error)) = call(&client, "rename", json!({"name": "old.txt"})).await else { panic!("no error") };
    assert_eq!(error.code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY);
    let data = error.data.expect("data");
    assert!(data["requiredCapabilities"]["elicitation"].is_object(), "{data}");
}

// ---- A client of ours, a server of rmcp ----

/// Calls a tool of the server of rmcp, and returns the outcome. The client probes for the revision.
async fn ask_rmcp(client: Arc<dyn Client>, tool: &str) -> CallOutcome {
    let (client_end, server_end) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move { Asking.serve(server_end).await.expect("a client").waiting().await });
    let mut config = Config::mcp_client(Identity::new("against", "0.0.0"));
    config.era = Era::Auto;
    let connection = adapter_tokio::connect(client, config, adapter_tokio::LineIo::whole(client_end));
    let outcome = connection.peer().call_tool(tool, Json::empty_object()).expect("a server").await;
    drop(connection);
    serving.abort();
    outcome
}

async fn text(client: Person, tool: &str) -> String {
    ask_rmcp(Arc::new(client), tool).await.tool().expect("a result").text().to_string()
}

#[tokio::test]
async fn a_client_of_ours_answers_rmcp_and_returns_the_state_unchanged() {
    assert_eq!(text(Person { declines: false }, "ask").await, "accept Ada, accept");
    assert_eq!(text(Person { declines: true }, "ask").await, "decline nothing, decline");
}

#[tokio::test]
async fn a_client_of_ours_answers_rmcp_in_two_rounds() {
    assert_eq!(text(Person { declines: false }, "interview").await, "Ada: What do you think of Ada? It is good.");
}

#[tokio::test]
async fn a_client_of_ours_retries_after_a_round_of_rmcp_without_an_input_request() {
    assert_eq!(text(Person { declines: false }, "later").await, "with 0 answers");
}

#[tokio::test]
async fn a_call_ends_as_invalid_after_too_many_rounds_of_rmcp() {
    let outcome = ask_rmcp(Arc::new(Person { declines: false }), "endless").await.outcome;
    assert!(matches!(outcome, Outcome::Invalid(Invalid::TooManyRounds)), "{outcome:?}");
}

#[tokio::test]
async fn a_call_ends_as_invalid_if_rmcp_asks_for_a_capability_that_was_not_declared() {
    let outcome = ask_rmcp(Arc::new(()), "ask").await.outcome;
    assert!(matches!(outcome, Outcome::Invalid(_)), "{outcome:?}");
}
