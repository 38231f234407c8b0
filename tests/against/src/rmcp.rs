//! The SDK rmcp, over its own transports, in the rows of the example `bench`.

mod program;
mod rmcp_tools;

use std::future::Future;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use program::{Begun, begun, stragglers};
use programs::tokio::Tokio;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, ClientRequest, ContentBlock, JsonObject, ProgressNotificationParam,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestHandle, RunningService};
use rmcp::transport::{TokioChildProcess, stdio, stdio_pipes};
use rmcp::{ClientHandler, Peer, RoleClient, RoleServer, ServiceExt};
use rmcp_tools::Server;
use serde_json::json;
use tests::speed::values::{bytes_seen, echo_arguments, long_text_call, object};
use tests::speed::{About, Caller, Carried, Contender, EchoTool, Kind, Leave, Listener, Over, Program, Row, Updates};

const VERSION: &str = "rmcp 3.11.0";

fn main() -> ExitCode {
    Program::new().with::<Rmcp<false>>().with::<Rmcp<true>>().main()
}

/// rmcp; if `PIPES`, with its transport for pipes instead of the default one for standard input and output.
struct Rmcp<const PIPES: bool>;

/// Receives progress.
#[derive(Clone, Default)]
struct Hearing(Arc<Mutex<Listener>>);

impl Hearing {
    fn with<T>(&self, what: impl FnOnce(&mut Listener) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientHandler for Hearing {
    fn on_progress(
        &self,
        update: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send {
        self.with(|listener| listener.hear(update.progress));
        std::future::ready(())
    }
}

type Client = RunningService<RoleClient, Hearing>;
type Serving = RunningService<RoleServer, Server>;

#[derive(Clone)]
struct Calling {
    peer: Peer<RoleClient>,
    hearing: Hearing,
    /// Kept because dropping them ends the connection.
    _services: Arc<(Client, Option<Serving>)>,
}

impl Calling {
    fn of(client: Client, server: Option<Serving>) -> Self {
        Self { peer: client.peer().clone(), hearing: client.service().clone(), _services: Arc::new((client, server)) }
    }

    /// Calls a tool, and returns the text of its result.
    async fn text(&self, tool: &'static str, arguments: JsonObject) -> String {
        let response = self.peer.call_tool_once(params(tool, arguments)).await.expect("a response");
        let CallToolResponse::Complete(result) = response else { panic!("a result") };
        let Some(ContentBlock::Text(text)) = result.content.into_iter().next() else { panic!("a text") };
        text.text
    }

    async fn send(&self, tool: &'static str, arguments: JsonObject) -> RequestHandle<RoleClient> {
        let request = CallToolRequest::new(params(tool, arguments));
        let request = ClientRequest::CallToolRequest(request);
        self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await.expect("a connection")
    }
}

fn params(tool: &'static str, arguments: JsonObject) -> CallToolRequestParams {
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

impl<const PIPES: bool> Contender for Rmcp<PIPES> {
    type Runtime = Tokio;
    type Caller = Calling;

    fn about() -> About {
        let name = if PIPES { format!("{VERSION}, its pipes") } else { VERSION.into() };
        About { name, runtime: "tokio".into(), kind: Kind::Other }
    }

    fn has(row: Row) -> bool {
        !PIPES || row.over == Over::ChildStdio
    }

    async fn duplex(_: &Tokio, room: usize) -> Calling {
        let (one, other) = tokio::io::duplex(room);
        let server = tokio::spawn(Server.serve(other));
        let client = Hearing::default().serve(one).await.expect("a handshake");
        Calling::of(client, Some(server.await.expect("a server").expect("a handshake")))
    }

    async fn child(_: &Tokio, command: Command) -> Calling {
        let child = TokioChildProcess::new(tokio::process::Command::from(command)).expect("a child");
        Calling::of(Hearing::default().serve(child).await.expect("a handshake"), None)
    }

    async fn serve(_: &Tokio) {
        let server = if PIPES { Server.serve(stdio_pipes()).await } else { Server.serve(stdio()).await };
        let _ = server.expect("a handshake").waiting().await;
    }
}

/// A call that does not end by itself, in the form that the planned end requires: a cancel, or a drop of the future.
enum Hanging {
    Cancel(Box<RequestHandle<RoleClient>>),
    Drop(#[allow(dead_code, reason = "held for its drop")] Begun),
}

impl Caller for Calling {
    type Hanging = Hanging;

    async fn echo(&self, text: &str, tool: EchoTool) -> usize {
        self.text(tool.name(), echo_arguments(tool, text)).await.len()
    }

    async fn carry(&self, carried: Carried, bytes: usize) -> usize {
        let (tool, arguments) = long_text_call(carried, bytes);
        bytes_seen(carried, &self.text(tool, arguments).await)
    }

    async fn report(&self, count: u64) -> Updates {
        self.hearing.with(|listener| *listener = Listener::of(count));
        let handle = self.send("report", object("count", json!(count))).await;
        handle.await_response().await.expect("a result");
        self.hearing.with(Listener::answered);
        stragglers(|| self.hearing.with(|listener| listener.updates())).await
    }

    async fn hang(&self, leave: Leave) -> Hanging {
        match leave {
            Leave::Cancel => Hanging::Cancel(Box::new(self.send("hang", JsonObject::new()).await)),
            Leave::Drop => {
                let peer = self.peer.clone();
                Hanging::Drop(begun(async move { drop(peer.call_tool_once(params("hang", JsonObject::new())).await) }).await)
            }
        }
    }

    async fn cancel(calls: Vec<Hanging>) {
        let cancels = calls.into_iter().map(async |call| {
            if let Hanging::Cancel(handle) = call {
                handle.cancel(None).await.expect("a connection");
            }
        });
        join_all(cancels).await;
    }
}
