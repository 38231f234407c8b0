//! How fast an adapter is, and how much memory it takes: what the bench `adapters` prints for each of them.

use std::env;
use std::future::poll_fn;
use std::process::Command;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use protocol_core::endpoint::{Context, Peer, Service, Tool, ToolError};
use protocol_core::{Close, Config, Identity, Json, Progress, RateWindow};

use crate::adapter::{Adapter, Link, start};

/// Tells the child that it is one, and of which adapter.
const SERVE: &str = "SPEED_SERVE";
/// Calls in flight at once.
const TOGETHER: usize = 256;
/// Bytes that the pair in memory holds.
const ROOM: usize = 64 * 1024;

/// What is measured with a peer at the other end of something.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Round trips per second, one call at a time.
    pub one_at_a_time: f64,
    /// Round trips per second, 256 calls at a time.
    pub together: f64,
    /// Progress notifications that arrive, per second.
    pub progress: f64,
}

fn identity() -> Identity {
    Identity::new("speed", "1")
}

fn client() -> Config {
    Config::mcp_client(identity())
}

fn nothing() -> Json {
    Json::parse("{}").unwrap_or_default()
}

fn service() -> Arc<Service> {
    let report = async |context: Context, ()| {
        let mut value = 0.0;
        while !context.is_cancelled() {
            for _ in 0..32 {
                value += 1.0;
                context.progress(Progress::value(value));
            }
            yield_now().await;
        }
        Err::<(), _>(ToolError::Cancelled)
    };
    Arc::new(
        Service::new(identity())
            .tool(Tool::new("greet", async |_: Context, ()| Ok("hello")))
            .tool(Tool::new("report", report).rate_window(RateWindow::UNLIMITED))
            .tool(Tool::new("hold", async |context: Context, ()| {
                context.cancelled().await;
                Err::<(), _>(ToolError::Cancelled)
            })),
    )
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Serves on standard input and output if this process is the child of another one that measures. Then its program ends here.
pub fn serve_if_child<A: Adapter>() -> bool {
    let is_child = env::var(SERVE).is_ok_and(|name| name == A::NAME);
    if is_child {
        A::run(None, |adapter| async move { drop(adapter.serve(service(), adapter.stdio()).end.await) });
    }
    is_child
}

/// Both ends in this process, on a runtime with as many threads as suit it.
pub fn over_duplex<A: Adapter>(span: Duration) -> Speed {
    A::run(None, |adapter| async move {
        let (one, other) = adapter.duplex(ROOM);
        let _serving = adapter.serve(service(), one);
        measure(&adapter, adapter.connect(Arc::new(()), client(), other), span).await
    })
}

/// The other end in a process of its own.
///
/// # Panics
/// If this program does not start again.
pub fn over_child_stdio<A: Adapter>(span: Duration) -> Speed {
    A::run(None, |adapter| async move {
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command.env(SERVE, A::NAME);
        let (child, _) = adapter.child(command).expect("a child");
        measure(&adapter, adapter.connect(Arc::new(()), client(), child), span).await
    })
}

/// The caller is a task too: the future that a runtime blocks on is woken in another way than tasks.
async fn measure<A: Adapter>(adapter: &A, Link { peer, end }: Link, span: Duration) -> Speed {
    let caller = peer.clone();
    let speed = start(&*adapter.runtime(), async move {
        caller.ready().await.expect("a handshake");
        round_trips(&caller, 1, span / 4).await;
        Speed {
            one_at_a_time: round_trips(&caller, 1, span).await,
            together: round_trips(&caller, TOGETHER, span).await,
            progress: notifications(&caller, span).await,
        }
    })
    .await;
    peer.close(Close::Now);
    let _ = end.await;
    speed
}

async fn round_trips(peer: &Peer, together: usize, span: Duration) -> f64 {
    let (begin, mut done) = (Instant::now(), 0);
    while begin.elapsed() < span {
        let calls: Vec<_> = (0..together).map(|_| peer.call_tool("greet", nothing()).expect("a call")).collect();
        for call in calls {
            call.await.result().expect("a result");
            done += 1;
        }
    }
    f64::from(done) / begin.elapsed().as_secs_f64()
}

/// What is merged on the way does not count.
async fn notifications(peer: &Peer, span: Duration) -> f64 {
    let before = peer.stats().frames_in;
    let begin = Instant::now();
    let mut call = peer.call_tool("report", nothing()).expect("a call");
    while begin.elapsed() < span && call.next_progress().await.is_some() {}
    let arrived = peer.stats().frames_in - before;
    arrived as f64 / begin.elapsed().as_secs_f64()
}

/// Opens so many connections in memory, all on this thread, makes so many calls that do not end on each, and closes everything.
pub fn hold<A: Adapter>(connections: usize, calls: usize) {
    A::run(Some(1), |adapter| async move {
        let service = service();
        let mut held = Vec::new();
        for _ in 0..connections {
            let (one, other) = adapter.duplex(4096);
            let (serving, calling) = (adapter.serve(Arc::clone(&service), one), adapter.connect(Arc::new(()), client(), other));
            // One call, so that every buffer has been of use.
            calling.peer.call_tool("greet", nothing()).expect("a call").await.result().expect("a result");
            let open: Vec<_> = (0..calls).map(|_| calling.peer.call_tool("hold", nothing()).expect("a call")).collect();
            while serving.peer.stats().serves < calls {
                yield_now().await;
            }
            held.push((serving, calling, open));
        }
    });
}
