//! The example `notebook_client` of `sansmcp`, by rmcp. Its lines are counted by `notebook` in `tests`.

#![allow(deprecated, reason = "2026-07-28 deprecates sampling, and still has it")]

use std::time::Duration;

use futures::StreamExt;
use indicatif::ProgressBar;
use rmcp::handler::client::progress::ProgressDispatcher;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientRequest, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, GetPromptRequestParams, Implementation, ProgressNotificationParam, ReadResourceRequestParams, ResourceContents,
    SamplingMessage, ServerResult,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Value, json};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The user and the model of this client, who have one answer each.
#[derive(Clone, Default)]
struct Canned {
    progress: ProgressDispatcher,
}

impl ClientHandler for Canned {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().enable_sampling().build();
        ClientConfig::new(capabilities, Implementation::new("notebook_client", "1.0"))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = params else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        println!("{message}");
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "words": 2 })))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        for message in params.messages {
            for block in message.content.into_vec() {
                println!("{}", block.as_text().map(|text| text.text.as_str()).unwrap_or_default());
            }
        }
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("buy bread"), "canned".into()))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.handle_notification(params).await;
    }
}

/// A server that is connected again when its connection is lost.
struct Notebook {
    server: String,
    connection: RunningService<RoleClient, Canned>,
}

impl Notebook {
    async fn connect(server: String) -> Result<Self> {
        let mut pause = Duration::from_millis(100);
        loop {
            match open(&server).await {
                Ok(connection) => return Ok(Self { server, connection }),
                Err(error) if pause > Duration::from_secs(1) => return Err(error),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
    }

    /// Calls a tool, as often as its connection is lost.
    async fn call(&mut self, tool: &'static str, arguments: Value, cancels: bool) -> Result<String> {
        loop {
            match self.call_once(tool, arguments.clone(), cancels).await {
                Err(ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                    *self = Self::connect(self.server.clone()).await?;
                }
                ended => {
                    let content = ended?.content;
                    let texts = content.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str());
                    return Ok(texts.collect::<Vec<_>>().join("\n"));
                }
            }
        }
    }

    /// Calls a tool, with a bar. Cancels the call at its first progress if `cancels` is `true`.
    async fn call_once(&self, tool: &'static str, arguments: Value, cancels: bool) -> Result<CallToolResult, ServiceError> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let request = CallToolRequest::new(CallToolRequestParams::new(tool).with_arguments(arguments));
        let mut options = PeerRequestOptions::with_timeout(Duration::from_secs(5)); // since the last progress
        options.reset_timeout_on_progress = true;
        options.max_total_timeout = Some(Duration::from_secs(600));
        let request = ClientRequest::CallToolRequest(request);
        let handle = self.connection.send_cancellable_request(request, options).await?;
        let mut updates = self.connection.service().progress.subscribe(handle.progress_token.clone()).await;
        let (id, peer) = (handle.id.clone(), handle.peer.clone());
        let response = handle.await_response();
        tokio::pin!(response);
        let bar = ProgressBar::no_length();
        let response = loop {
            tokio::select! {
                Some(progress) = updates.next() => {
                    bar.set_length(progress.total.unwrap_or_default() as u64);
                    bar.set_position(progress.progress as u64);
                    if cancels {
                        let reason = Some("that is enough".to_owned());
                        peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason.clone())).await?;
                        break Err(ServiceError::Cancelled { reason });
                    }
                }
                response = &mut response => break response,
            }
        };
        bar.finish_and_clear();
        match response? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }
}

async fn open(server: &str) -> Result<RunningService<RoleClient, Canned>> {
    if server.starts_with("http") {
        let config = StreamableHttpClientTransportConfig::with_uri(server).auth_header("a-secret");
        return Ok(Canned::default().serve(StreamableHttpClientTransport::from_config(config)).await?);
    }
    let child = TokioChildProcess::new(tokio::process::Command::new(server))?;
    Ok(Canned::default().serve(child).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut notebook = Notebook::connect(std::env::args().nth(1).ok_or("usage: notebook_client PROGRAM|URL")?).await?;
    for (title, text) in [("shop", "buy two loaves of bread"), ("sport", "run"), ("tea", "drink tea")] {
        println!("{}", notebook.call("write", json!({ "title": title, "text": text }), false).await?);
    }
    println!("{}", notebook.call("count_words", json!({}), false).await?);
    if let Err(error) = notebook.call("count_words", json!({}), true).await {
        println!("{error}");
    }
    println!("{}", notebook.call("shorten", json!({ "title": "shop" }), false).await?);

    let titles = notebook.connection.complete_prompt_simple("review", "title", "s").await?;
    println!("{}", json!(titles));
    let title = json!({ "title": "shop" }).as_object().cloned().unwrap_or_default();
    let prompt = notebook.connection.get_prompt(GetPromptRequestParams::new("review").with_arguments(title)).await?;
    println!("{}", json!(prompt.messages[0].content.as_text().map(|text| &text.text)));
    let note = notebook.connection.read_resource(ReadResourceRequestParams::new("note://shop")).await?;
    if let ResourceContents::TextResourceContents { text, .. } = &note.contents[0] {
        println!("{}", json!(text));
    }

    notebook.connection.close().await?; // as if the server had died
    println!("{}", notebook.call("write", json!({ "title": "late", "text": "again" }), false).await?);
    Ok(())
}
