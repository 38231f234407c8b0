//! A server with all that a server has: three tools, of which one takes long, and one asks its user and their model; a state that all share;
//! resources by a template, and a prompt, whose arguments are completed. `notebook_server` serves standard input and output, and
//! `notebook_server ADDRESS` serves callers with a token over HTTP, behind a layer of axum. `tests/against/src/notebook_server.rs` is the same
//! server by rmcp.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use sansmcp::http::{HostOriginLayer, HttpService};
use sansmcp::prelude::*;
use sansmcp::tokio::TokioRuntime;
use sansmcp::{Principal, Sample};

/// The notes of all callers, by their titles.
#[derive(Default)]
struct Notes(Mutex<BTreeMap<String, String>>);

impl Notes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, title: &str) -> Option<String> {
        self.lock().get(title).cloned()
    }
}

/// Writes a note
#[tool]
async fn write(
    context: Context,
    State(notes): State<Notes>,
    /// The title of the note
    title: String,
    /// The text of the note
    text: String,
) -> String {
    let author = context.extensions().get::<Principal>().map_or("somebody", Principal::as_str);
    let message = format!("{author} wrote {title}");
    notes.lock().insert(title, text);
    message
}

/// Counts the words of all notes
#[tool(read_only)]
async fn count_words(context: Context, State(notes): State<Notes>) -> Result<String> {
    let texts: Vec<_> = notes.lock().values().cloned().collect();
    let mut words = 0;
    for (done, text) in (1..).zip(&texts) {
        context.sleep(Duration::from_millis(50)).await?; // the work; ends early if the call is cancelled
        words += text.split_whitespace().count();
        context.step(done, texts.len() as u64);
    }
    Ok(format!("{words} words"))
}

#[args]
struct Length {
    /// The most words that are wanted
    words: u32,
}

/// Shortens a note
#[tool]
async fn shorten(
    context: Context,
    State(notes): State<Notes>,
    /// The title of the note
    title: String,
) -> Result<String> {
    let text = notes.text(&title).ok_or("there is no such note")?;
    let Some(Length { words }) = context.elicit_typed("How long may it be?").await? else {
        return Ok(format!("{title} is as it was"));
    };
    let short = context.sample(Sample::new(format!("Say this in {words} words: {text}"))).await?;
    notes.lock().insert(title.clone(), short.text);
    Ok(format!("{title} is shorter"))
}

/// A note by its title
#[resource("note://{title}", mime_type = "text/plain")]
async fn note(
    State(notes): State<Notes>,
    uri: ResourceUri,
    /// The title of the note
    #[complete(titles)]
    title: String,
) -> Result<String> {
    notes.text(&title).ok_or_else(|| ToolError::resource_not_found(&uri.uri))
}

/// Asks for a review of a note
#[prompt]
async fn review(
    State(notes): State<Notes>,
    /// The title of the note
    #[complete(titles)]
    title: String,
) -> Result<String> {
    let text = notes.text(&title).ok_or("there is no such note")?;
    Ok(format!("Review this note: {text}"))
}

async fn titles(State(notes): State<Notes>, asked: CompletionRequest) -> Result<Completion> {
    Ok(Completion::all(notes.lock().keys().filter(|title| title.starts_with(&asked.value)).cloned()))
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let user = match header.and_then(|value| value.strip_prefix("Bearer ")) {
        Some("a-secret") => "Alice", // a real layer verifies the token
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(Principal::new(user));
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let service = Service::new("notebook", "1.0")
        .state(Notes::default())
        .tools([write(), count_words(), shorten()])
        .resource_template(note())
        .prompt(review());
    let Some(address) = std::env::args().nth(1) else {
        return sansmcp::tokio::serve(service, sansmcp::tokio::stdio()).await;
    };
    let mcp = HttpService::new(service.into(), Arc::new(TokioRuntime::start()));
    let router = Router::new().route_service("/mcp", mcp).layer(from_fn(authenticate)).layer(HostOriginLayer::loopback());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}
