//! This project, through an adapter.

use std::marker::PhantomData;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use endpoint::{Call, Context, Peer, Service, Tool, ToolError};
use protocol_core::mcp::Era;
use protocol_core::{Config, Identity, RateWindow, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contender::{About, Caller, Contender, HandlerCount, Kind, Leave, Listener, Updates};
use super::payload::{LongText, Nested, Note};
use super::row::{Carried, EchoTool, Over, Row, What};
use programs::adapter::{Adapter, Link};

/// This project, through an adapter: a [`Service`] and a [`Peer`]. With `STATELESS` there is no handshake, and every request names its
/// caller (MCP 2026-07-28).
#[derive(Debug)]
pub struct Ours<A, const STATELESS: bool = false>(PhantomData<fn() -> A>);

#[derive(Deserialize, JsonSchema, Serialize)]
struct Report {
    count: u64,
}

fn identity() -> Identity {
    Identity::new("speed", "1")
}

fn service(era: Era) -> Arc<Service> {
    let inline = async |_: Context, Note { text }: Note<String>| Ok(ToolOutput::text(text));
    let echo = async |_: Context, Note { text }: Note<String>| Ok(text);
    let nested = async |_: Context, nested: Nested<String>| Ok(nested.at.note.text);
    let text = async |_: Context, wanted: LongText| Ok(wanted.text().to_owned());
    let take = async |_: Context, Note { text }: Note<String>| Ok(text.len().to_string());
    let report = async |context: Context, Report { count }: Report| {
        for step in 1..=count {
            context.step(step, count);
        }
        Ok(())
    };
    let hang = async |context: Context, ()| {
        let _count = HandlerCount::begin();
        context.cancelled().await;
        Err::<(), _>(ToolError::Cancelled)
    };
    Arc::new(
        Service::new(identity().name, identity().version)
            .configure(|config| config.era = era)
            .tool(Tool::with_content(EchoTool::Inline.name(), inline).inline())
            .tool(Tool::new(EchoTool::Task.name(), echo))
            .tool(Tool::new(EchoTool::Nested.name(), nested))
            .tool(Tool::new("text", text).inline())
            .tool(Tool::new("take", take).inline())
            .tool(Tool::new("report", report).rate_window(RateWindow::UNLIMITED))
            .tool(Tool::new("hang", hang)),
    )
}

/// The calling end.
#[derive(Clone)]
pub struct Calling {
    peer: Peer,
    /// Kept because dropping them ends the connection.
    _links: Arc<Mutex<Vec<Link>>>,
}

impl Calling {
    /// Waits for the handshake of the calling end, which is the first of `links`.
    async fn of(links: Vec<Link>) -> Self {
        let peer = links.first().expect("the calling end").peer.clone();
        peer.ready().await.expect("a handshake");
        Self { peer, _links: Arc::new(Mutex::new(links)) }
    }

    fn call(&self, tool: &str, arguments: &impl Serialize) -> Call {
        self.peer.call_tool_with(tool, arguments).expect("room for a call")
    }
}

impl<A, const STATELESS: bool> Ours<A, STATELESS> {
    const ERA: Era = if STATELESS { Era::Modern } else { Era::Legacy };

    fn client() -> Config {
        let mut config = Config::mcp_client(identity());
        config.era = Self::ERA;
        config
    }
}

impl<A: Adapter, const STATELESS: bool> Contender for Ours<A, STATELESS> {
    type Runtime = A;
    type Caller = Calling;

    fn about() -> About {
        let name = if STATELESS { format!("{}, stateless", A::NAME) } else { A::NAME.into() };
        About::here(&name, A::NAME.trim_start_matches("adapter-"), Kind::Ours)
    }

    fn has(row: Row) -> bool {
        let is_measured_stateless =
            matches!(row, Row { over: Over::Duplex, what: What::RoundTrips { tool: EchoTool::Inline, .. }, workers: 1 });
        row.is_measured_here() && (!STATELESS || is_measured_stateless)
    }

    async fn duplex(adapter: &A, room: usize) -> Calling {
        let (one, other) = adapter.duplex(room);
        // As in a server, all connections share one service. Its era is that of every connection, since a process runs one contender.
        static SERVICE: OnceLock<Arc<Service>> = OnceLock::new();
        let service = SERVICE.get_or_init(|| service(Self::ERA));
        Calling::of(vec![adapter.connect(Arc::new(()), Self::client(), one), adapter.serve(Arc::clone(service), other)]).await
    }

    async fn child(adapter: &A, command: Command) -> Calling {
        let (transport, _) = adapter.child(command).expect("a child");
        Calling::of(vec![adapter.connect(Arc::new(()), Self::client(), transport)]).await
    }

    async fn serve(adapter: &A) {
        let _ = adapter.serve(service(Self::ERA), adapter.stdio()).end.await;
    }
}

impl Caller for Calling {
    type Hanging = Call;

    async fn echo(&self, text: &str, tool: EchoTool) -> usize {
        let call = match tool {
            EchoTool::Inline | EchoTool::Task => self.call(tool.name(), &Note { text }),
            EchoTool::Nested => self.call(tool.name(), &Nested::of(text)),
        };
        call.await.tool().expect("a result").text().len()
    }

    async fn carry(&self, carried: Carried, bytes: usize) -> usize {
        let wanted = LongText { lines: carried.has_lines(), bytes };
        match carried {
            Carried::Result => self.call("text", &wanted).await.result().expect("a result").as_bytes().len(),
            Carried::ResultRead | Carried::LinesRead => self.call("text", &wanted).await.tool().expect("a result").text().len(),
            Carried::Arguments | Carried::LinesTaken => {
                let outcome = self.call("take", &Note { text: wanted.text() }).await;
                outcome.tool().expect("a result").text().parse().expect("a number")
            }
        }
    }

    async fn report(&self, count: u64) -> Updates {
        let before = self.peer.stats().late_frames;
        let mut listener = Listener::of(count);
        let mut call = self.call("report", &Report { count });
        while let Some(update) = call.next_progress().await {
            listener.hear(update.value.unwrap_or_default());
        }
        listener.answered();
        call.await.result().expect("a result");
        let mut updates = listener.updates();
        // The session drops updates after the response, and counts them.
        let late = self.peer.stats().late_frames - before;
        (updates.late, updates.heard) = (updates.late + late, updates.heard + late);
        updates
    }

    async fn hang(&self, _: Leave) -> Call {
        self.call("hang", &serde_json::Map::new())
    }

    async fn cancel(calls: Vec<Call>) {
        for call in &calls {
            call.cancel(None);
        }
        for call in calls {
            let _ = call.await;
        }
    }
}
