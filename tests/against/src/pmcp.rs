//! pmcp in the rows of the example `bench`. Its client has no transport for a child process or for a pair in memory, so this file has one:
//! `Lines`, which works like pmcp's transport for standard input and output. A server in a child process uses pmcp's own transport.

mod program;

use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pmcp::server::cancellation::RequestHandlerExtra;
use pmcp::server::progress::{ProgressReporter, ServerProgressReporter};
use pmcp::shared::{AdvancedMiddleware, EnhancedMiddlewareChain, MiddlewareContext, StdioTransport, Transport, TransportMessage};
use pmcp::types::notifications::ProgressToken;
use pmcp::types::protocol::RequestMeta;
use pmcp::types::{ClientCapabilities, Content, JSONRPCNotification};
use pmcp::{Client, ClientBuilder, Server, ToolHandler};
use program::{Begun, begun, stragglers};
use programs::tokio::Tokio;
use serde_json::{Map, Value, json};
use tests::speed::values::{bytes_seen, echo_arguments, long_text_call, tool_text};
use tests::speed::{About, Caller, Carried, Contender, EchoTool, HandlerCount, Kind, Leave, Listener, Program, Row, Updates, What};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

const VERSION: &str = "pmcp 2.23.0";

fn main() -> ExitCode {
    Program::new().with::<Pmcp>().main()
}

struct Pmcp;

/// A tool that returns a text.
struct Text(&'static str);
struct Report;
struct Hang;

#[async_trait]
impl ToolHandler for Text {
    async fn handle(&self, arguments: Value, _: RequestHandlerExtra) -> pmcp::Result<Value> {
        let Value::Object(arguments) = arguments else { panic!("arguments") };
        Ok(tool_text(self.0, arguments).expect("a known tool").into())
    }
}

#[async_trait]
impl ToolHandler for Report {
    /// Reports without the rate limit of pmcp's reporter, which is one update in 100 ms. The queue of pmcp drops updates beyond 100, so
    /// this handler yields after each update.
    async fn handle(&self, arguments: Value, extra: RequestHandlerExtra) -> pmcp::Result<Value> {
        let count = arguments.get("count").and_then(Value::as_u64).unwrap_or_default();
        let token = extra.request_meta.as_ref().and_then(|meta| meta.get("progressToken")?.as_i64()).expect("a token");
        let sink = extra.log_sink.clone().expect("a queue");
        let reporter = ServerProgressReporter::with_rate_limit(ProgressToken::Number(token), sink, Duration::ZERO);
        for step in 1..=count {
            reporter.report_progress(step as f64, Some(count as f64), None).await?;
            tokio::task::yield_now().await;
        }
        Ok(Value::Null)
    }
}

#[async_trait]
impl ToolHandler for Hang {
    async fn handle(&self, _: Value, extra: RequestHandlerExtra) -> pmcp::Result<Value> {
        let _count = HandlerCount::begin();
        extra.cancelled().await;
        Ok(Value::Null)
    }
}

fn server() -> Server {
    let mut server = Server::builder().name("speed").version("1").tool("report", Report).tool("hang", Hang);
    for name in ["echo", "echo-in-a-task", "echo-nested", "text", "take"] {
        server = server.tool(name, Text(name));
    }
    server.build().expect("a server")
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Lines over any stream. Like [`StdioTransport`], it writes and flushes each line separately.
struct Lines {
    stream: BufReader<Box<dyn Stream>>,
    /// The part of a line that was read by a call of `receive` whose future was then dropped.
    partial: Vec<u8>,
    /// The other end, if it is a child.
    _child: Option<tokio::process::Child>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl Lines {
    fn new(stream: impl Stream + 'static, child: Option<tokio::process::Child>) -> Self {
        Self { stream: BufReader::new(Box::new(stream)), partial: Vec::new(), _child: child }
    }
}

#[async_trait]
impl Transport for Lines {
    async fn send(&mut self, message: TransportMessage) -> pmcp::Result<()> {
        let bytes = StdioTransport::serialize_message(&message)?;
        self.stream.write_all(&bytes).await?;
        self.stream.write_all(b"\n").await?;
        Ok(self.stream.flush().await?)
    }

    async fn receive(&mut self) -> pmcp::Result<TransportMessage> {
        if self.stream.read_until(b'\n', &mut self.partial).await? == 0 {
            return Err(pmcp::error::TransportError::ConnectionClosed.into());
        }
        let mut line = std::mem::take(&mut self.partial);
        line.pop();
        StdioTransport::parse_message(&line)
    }

    async fn close(&mut self) -> pmcp::Result<()> {
        Ok(self.stream.shutdown().await?)
    }
}

/// Receives progress as a middleware, since the client of pmcp has no other way to pass it on.
#[derive(Clone, Default)]
struct ProgressMiddleware(Arc<Mutex<Listener>>);

impl ProgressMiddleware {
    fn with<T>(&self, what: impl FnOnce(&mut Listener) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl AdvancedMiddleware for ProgressMiddleware {
    async fn on_notification_with_context(
        &self,
        notification: &mut JSONRPCNotification,
        _: &MiddlewareContext,
    ) -> pmcp::Result<()> {
        if let Some(value) = notification.params.as_ref().and_then(|params| params.get("progress")?.as_f64()) {
            self.with(|listener| listener.hear(value));
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Calling {
    client: Arc<Client<Lines>>,
    progress: ProgressMiddleware,
}

impl Calling {
    async fn over(lines: Lines) -> Self {
        let progress = ProgressMiddleware::default();
        let mut chain = EnhancedMiddlewareChain::new();
        chain.add(Arc::new(progress.clone()));
        let mut client = ClientBuilder::new(lines).middleware_chain(chain).build();
        client.initialize(ClientCapabilities::minimal()).await.expect("a handshake");
        Self { client: Arc::new(client), progress }
    }

    /// Calls a tool, and returns the text of its result. pmcp sends a string as JSON, within quotes.
    async fn text(&self, tool: &str, arguments: Map<String, Value>) -> String {
        let result = self.client.call_tool(tool.into(), arguments.into()).await.expect("a result");
        let Some(Content::Text { text }) = result.content.into_iter().next() else { panic!("a text") };
        serde_json::from_str(&text).expect("a JSON string")
    }
}

impl Contender for Pmcp {
    type Runtime = Tokio;
    type Caller = Calling;

    fn about() -> About {
        About { name: VERSION.into(), runtime: "tokio".into(), kind: Kind::Other }
    }

    /// Leaves out the memory of one more call in flight: a server of pmcp serves one request at a time.
    fn has(row: Row) -> bool {
        row.what != What::Call
    }

    async fn duplex(_: &Tokio, room: usize) -> Calling {
        let (one, other) = tokio::io::duplex(room);
        tokio::spawn(server().run(Lines::new(other, None)));
        Calling::over(Lines::new(one, None)).await
    }

    async fn child(_: &Tokio, command: Command) -> Calling {
        let mut command = tokio::process::Command::from(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("a child");
        let (reader, writer) = child.stdout.take().zip(child.stdin.take()).expect("its pipes");
        Calling::over(Lines::new(tokio::io::join(reader, writer), Some(child))).await
    }

    async fn serve(_: &Tokio) {
        let _ = server().run_stdio().await;
    }
}

impl Caller for Calling {
    type Hanging = Begun;

    async fn echo(&self, text: &str, tool: EchoTool) -> usize {
        self.text(tool.name(), echo_arguments(tool, text)).await.len()
    }

    async fn carry(&self, carried: Carried, bytes: usize) -> usize {
        let (tool, arguments) = long_text_call(carried, bytes);
        bytes_seen(carried, &self.text(tool, arguments).await)
    }

    async fn report(&self, count: u64) -> Updates {
        self.progress.with(|listener| *listener = Listener::of(count));
        let meta = RequestMeta::new().with_progress_token(ProgressToken::Number(1));
        self.client.call_tool_with_meta("report".into(), json!({ "count": count }), meta).await.expect("a result");
        self.progress.with(Listener::answered);
        stragglers(|| self.progress.with(|listener| listener.updates())).await
    }

    async fn hang(&self, _: Leave) -> Begun {
        let client = Arc::clone(&self.client);
        begun(async move { drop(client.call_tool("hang".into(), json!({})).await) }).await
    }

    /// Calls cannot be cancelled, since their ids are not public.
    async fn cancel(calls: Vec<Begun>) {
        drop(calls);
    }
}
