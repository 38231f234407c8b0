//! The example `notebook_server` of `sansmcp`, by rmcp, as short as its macros make it. Its lines are counted by `notebook` in `tests`. It
//! asks its user and their model only after a handshake: for 2026-07-28 its tool would have to return a round, and to begin again.

#![allow(deprecated, reason = "2026-07-28 deprecates sampling, and still has it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, CreateMessageRequestParams, ErrorData, Implementation,
    ListResourceTemplatesResult, PaginatedRequestParams, ProgressNotificationParam, PromptMessage, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, ResourceTemplate, Role, SamplingMessage, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::{ElicitationError, RequestContext};
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{
    RoleServer, ServerHandler, ServiceExt, elicit_safe, prompt, prompt_handler, prompt_router, tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The notes of all callers, by their titles.
#[derive(Clone, Default)]
struct Notebook(Arc<Mutex<BTreeMap<String, String>>>);

/// The caller.
#[derive(Clone)]
struct User(&'static str);

#[derive(Deserialize, JsonSchema)]
struct Note {
    /// The title of the note
    title: String,
    /// The text of the note
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Title {
    /// The title of the note
    title: String,
}

#[derive(Deserialize, JsonSchema)]
struct Length {
    /// The most words that are wanted
    words: u32,
}

elicit_safe!(Length);

impl Notebook {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, title: &str) -> Option<String> {
        self.lock().get(title).cloned()
    }
}

#[tool_router]
impl Notebook {
    /// Writes a note
    #[tool]
    async fn write(&self, Parameters(Note { title, text }): Parameters<Note>, context: RequestContext<RoleServer>) -> String {
        let head = context.extensions.get::<Parts>();
        let author = head.and_then(|head| head.extensions.get::<User>()).map_or("somebody", |user| user.0);
        let message = format!("{author} wrote {title}");
        self.lock().insert(title, text);
        message
    }

    /// Counts the words of all notes
    #[tool(annotations(read_only_hint = true))]
    async fn count_words(&self, context: RequestContext<RoleServer>) -> Result<String, String> {
        let texts: Vec<_> = self.lock().values().cloned().collect();
        let mut words = 0;
        for (done, text) in (1..).zip(&texts) {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(50)) => {} // the work
                () = context.ct.cancelled() => return Err("cancelled".into()),
            }
            words += text.split_whitespace().count();
            if let Some(token) = context.meta.get_progress_token() {
                let update = ProgressNotificationParam::new(token, f64::from(done)).with_total(texts.len() as f64);
                context.peer.notify_progress(update).await.map_err(|error| error.to_string())?;
            }
        }
        Ok(format!("{words} words"))
    }

    /// Shortens a note
    #[tool]
    async fn shorten(
        &self,
        Parameters(Title { title }): Parameters<Title>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, String> {
        let text = self.text(&title).ok_or("there is no such note")?;
        let words = match context.peer.elicit::<Length>("How long may it be?").await {
            Ok(Some(Length { words })) => words,
            Ok(None) | Err(ElicitationError::UserDeclined | ElicitationError::UserCancelled) => {
                return Ok(format!("{title} is as it was"));
            }
            Err(error) => return Err(error.to_string()),
        };
        let prompt = SamplingMessage::user_text(format!("Say this in {words} words: {text}"));
        let params = CreateMessageRequestParams::new(vec![prompt], 1024);
        let short = context.peer.create_message(params).await.map_err(|error| error.to_string())?;
        let blocks = short.message.content.into_vec();
        let texts = blocks.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str());
        let short = texts.collect::<Vec<_>>().join("\n");
        self.lock().insert(title.clone(), short);
        Ok(format!("{title} is shorter"))
    }
}

#[prompt_router]
impl Notebook {
    /// Asks for a review of a note
    #[prompt]
    async fn review(&self, Parameters(Title { title }): Parameters<Title>) -> Result<Vec<PromptMessage>, ErrorData> {
        let text = self.text(&title).ok_or_else(|| ErrorData::internal_error("there is no such note", None))?;
        Ok(vec![PromptMessage::new_text(Role::User, format!("Review this note: {text}"))])
    }
}

#[tool_handler]
#[prompt_handler]
impl ServerHandler for Notebook {
    fn get_info(&self) -> ServerConfig {
        let offers = ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().enable_completions();
        ServerConfig::new(offers.build()).with_server_info(Implementation::new("notebook", "1.0"))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("note://{title}", "note");
        let template = template.with_description("A note by its title").with_mime_type("text/plain");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = request.uri.strip_prefix("note://").and_then(|title| self.text(title));
        let text = text.ok_or_else(|| ErrorData::resource_not_found("no such note", Some(json!({ "uri": request.uri }))))?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn complete(&self, request: CompleteRequestParams, _: RequestContext<RoleServer>) -> Result<CompleteResult, ErrorData> {
        let notes = self.lock();
        let titles = notes.keys().filter(|title| title.starts_with(&request.argument.value)).take(CompletionInfo::MAX_VALUES);
        let titles = CompletionInfo::with_all_values(titles.cloned().collect());
        Ok(CompleteResult::new(titles.map_err(|error| ErrorData::internal_error(error, None))?))
    }
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let user = match header.and_then(|value| value.strip_prefix("Bearer ")) {
        Some("a-secret") => User("Alice"), // a real layer verifies the token
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let notebook = Notebook::default();
    let Some(address) = std::env::args().nth(1) else {
        notebook.serve(stdio()).await?.waiting().await?;
        return Ok(());
    };
    let sessions = LocalSessionManager::default().into();
    let mcp = StreamableHttpService::new(move || Ok(notebook.clone()), sessions, StreamableHttpServerConfig::default());
    let router = Router::new().route_service("/mcp", mcp).layer(from_fn(authenticate));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}
