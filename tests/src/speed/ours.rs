//! This project, through an adapter.

use std::marker::PhantomData;
use std::process::Command;
use std::sync::{Arc, Mutex};

use endpoint::{Call, Context, Peer, Service, Tool, ToolError};
use protocol_core::{Config, Identity, RateWindow, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contender::{About, Caller, Contender, Kind, Leave, Listener, Running, Updates};
use programs::adapter::{Adapter, Link};

/// This project, through an adapter: a [`Service`] and a [`Peer`].
#[derive(Debug)]
pub struct Ours<A>(PhantomData<fn() -> A>);

#[derive(Deserialize, JsonSchema, Serialize)]
struct Echo<T> {
    text: T,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct Report {
    count: u64,
}

fn identity() -> Identity {
    Identity::new("speed", "1")
}

fn service() -> Arc<Service> {
    let echo = async |_: Context, Echo { text }: Echo<String>| Ok(ToolOutput::text(text));
    let report = async |context: Context, Report { count }: Report| {
        for step in 1..=count {
            context.count(step, count);
        }
        Ok(())
    };
    let hang = async |context: Context, ()| {
        let _running = Running::begin();
        context.cancelled().await;
        Err::<(), _>(ToolError::Cancelled)
    };
    Arc::new(
        Service::new(identity())
            .tool(Tool::with_output("echo", echo).inline())
            .tool(Tool::with_output("echo-in-a-task", echo))
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
    async fn of(links: Vec<Link>) -> Self {
        let peer = links.first().expect("the calling end").peer.clone();
        peer.ready().await.expect("a handshake");
        Self { peer, _links: Arc::new(Mutex::new(links)) }
    }

    fn call(&self, tool: &str, arguments: &impl Serialize) -> Call {
        self.peer.call_tool_with(tool, arguments).expect("room for a call")
    }
}

impl<A: Adapter> Contender for Ours<A> {
    type Runtime = A;
    type Caller = Calling;

    fn about() -> About {
        About::here(A::NAME, A::NAME.trim_start_matches("adapter-"), Kind::Ours)
    }

    async fn duplex(adapter: &A, room: usize) -> Calling {
        let (one, other) = adapter.duplex(room);
        Calling::of(vec![adapter.connect(Arc::new(()), Config::mcp_client(identity()), one), adapter.serve(service(), other)]).await
    }

    async fn child(adapter: &A, command: Command) -> Calling {
        let (transport, _) = adapter.child(command).expect("a child");
        Calling::of(vec![adapter.connect(Arc::new(()), Config::mcp_client(identity()), transport)]).await
    }

    async fn serve(adapter: &A) {
        let _ = adapter.serve(service(), adapter.stdio()).end.await;
    }
}

impl Caller for Calling {
    type Held = Call;

    async fn echo(&self, text: &str, spawned: bool) {
        let tool = if spawned { "echo-in-a-task" } else { "echo" };
        self.call(tool, &Echo { text }).await.result().expect("a result");
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
