//! The service in virtual time, with clients that poll, stop polling, and disconnect.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;

use bytes::Bytes;
use endpoint::testing::Executor;
use endpoint::{Context, Resource, ResourceContents, Service, Tool, ToolError};
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame};
use protocol_core::mcp::Era;
use protocol_core::{Close, Identity, Json, Progress, ToolOutput};
use tesseron::bridge::{BridgeConfig, BridgeEvent, Leg};
use tesseron::legs::{BridgeLeg, SharedBridge};
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::{
    Allowed, Guard, HostOriginLayer, HttpBody, HttpFuture, HttpServerConfig, HttpService, Principal, ResponseStream, TimedRuntime,
};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The body of a request, in pieces; `Err` is a connection that breaks.
struct Pieces(VecDeque<Result<&'static str, ()>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = ();

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        Poll::Ready(self.0.pop_front().map(|piece| piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

/// A body that must not be read.
struct Unread;

impl Body for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body is read");
    }
}

/// A whole body.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::data(text))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0.as_ref().map_or(0, |text| text.len() as u64))
    }
}

/// Counts and flags that the handlers set.
#[derive(Default)]
struct Seen {
    cancelled: AtomicUsize,
    cleaned: AtomicBool,
    steps: AtomicUsize,
}

/// A service on an executor in virtual time, and what its handlers have counted.
struct Bench {
    executor: Executor,
    service: HttpService,
    seen: Arc<Seen>,
}

/// A client with one request, and the part of the response that it has received.
struct Client {
    future: Option<Pin<Box<HttpFuture<Whole>>>>,
    response: Option<Response<HttpBody>>,
    received: String,
    has_ended: bool,
}

/// Header fields: names and values.
type Fields<'a> = &'a [(&'a str, &'a str)];

fn service(seen: &Arc<Seen>) -> Service {
    Service::new("server", "1")
        .tool(Tool::new("quick", async |_: Context, (): ()| Ok("done")).inline())
        .tool(Tool::new("task", async |_: Context, (): ()| Ok("done")))
        .tool(Tool::new("nap", async |context: Context, (): ()| {
            context.sleep(ms(1000)).await?;
            Ok("rested")
        }))
        .tool(Tool::new("whoami", async |context: Context, (): ()| {
            let parts = context.extensions().get::<Parts>();
            let header = parts.and_then(|parts| parts.headers.get("x-name")).and_then(|value| value.to_str().ok());
            Ok(header.unwrap_or("nobody").to_owned())
        }))
        .tool(counting_tool("wait", seen, async |seen, context| {
            context.cancelled().await;
            seen.cancelled.fetch_add(1, Ordering::Relaxed);
            // Handlers clean up within their grace.
            for _ in 0..3 {
                yield_now().await;
            }
            seen.cleaned.store(true, Ordering::Relaxed);
            Err(ToolError::failed("cancelled"))
        }))
        .tool(counting_tool("count", seen, async |seen, context| {
            for step in 1..=3 {
                context.progress(Progress::step(step, 3));
                context.sleep(ms(200)).await?;
                seen.steps.fetch_add(1, Ordering::Relaxed);
            }
            Ok("counted")
        }))
        .tool(counting_tool("flood", seen, async |seen, context| {
            let text = "x".repeat(1000);
            for step in 1..=2000 {
                context.progress(Progress::step(step, 2000).with_message(text.as_str()));
                context.sleep(ms(200)).await?;
                seen.steps.fetch_add(1, Ordering::Relaxed);
            }
            Ok("flooded")
        }))
}

/// A tool whose handler gets `seen`, to count its steps, its cancel and its cleanup.
fn counting_tool<F, Fut>(name: &str, seen: &Arc<Seen>, handler: F) -> Tool
where
    F: Fn(Arc<Seen>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<&'static str, ToolError>> + Send + 'static,
{
    let seen = Arc::clone(seen);
    Tool::new(name, move |context: Context, (): ()| handler(Arc::clone(&seen), context))
}

/// Lets other tasks run.
async fn yield_now() {
    let mut has_yielded = false;
    core::future::poll_fn(|cx| {
        if core::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HttpServerConfig)) -> Self {
        let seen = Arc::<Seen>::default();
        Self::serving(service(&seen), seen, change)
    }

    fn serving(service: Service, seen: Arc<Seen>, change: impl FnOnce(&mut HttpServerConfig)) -> Self {
        let executor = Executor::new();
        let runtime: Arc<dyn TimedRuntime> = Arc::new(executor.clone());
        let mut config = HttpServerConfig::default();
        change(&mut config);
        Self { service: HttpService::with_config(Arc::new(service), runtime, config), executor, seen }
    }

    /// Sends a request, and polls its response once.
    fn send(&mut self, method: &str, fields: Fields<'_>, body: &str) -> Client {
        let mut client = self.start(method, fields, body);
        client.poll(&self.executor);
        client
    }

    /// Makes a request whose response is not polled yet.
    fn start(&mut self, method: &str, fields: Fields<'_>, body: &str) -> Client {
        let request = request(method, fields, Whole(Some(Bytes::copy_from_slice(body.as_bytes()))));
        Client { future: Some(Box::pin(self.service.call(request))), response: None, received: String::new(), has_ended: false }
    }

    fn post(&mut self, fields: Fields<'_>, body: &str) -> Client {
        self.send("POST", fields, body)
    }

    /// Opens a session, and returns its id.
    fn open(&mut self) -> String {
        let opened = self.post(&[], INITIALIZE);
        assert_eq!(opened.status(), 200, "{}", opened.received);
        let id = opened.header("mcp-session-id").expect("an id").to_owned();
        let accepted = self.post(&[("mcp-session-id", &id)], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!((accepted.status(), &*accepted.received), (202, ""));
        id
    }

    fn call_in(&mut self, session: &str, id: u32, tool: &str) -> Client {
        let body = call(id, tool, r#""_meta":{"progressToken":1}"#);
        self.post(&[("mcp-session-id", session)], &body)
    }

    /// Calls a tool without a handshake.
    fn call(&mut self, tool: &str) -> Client {
        self.call_with(tool, &[])
    }

    fn call_with(&mut self, tool: &str, fields: Fields<'_>) -> Client {
        let mut client = self.start_call(tool, fields);
        client.poll(&self.executor);
        client
    }

    fn start_call(&mut self, tool: &str, fields: Fields<'_>) -> Client {
        let meta = format!(r#""_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}},"progressToken":1}}"#);
        let usual = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
        let fields: Vec<_> = usual.iter().chain(fields).copied().collect();
        self.start("POST", &fields, &call(7, tool, &meta))
    }

    fn run(&self, millis: u64) {
        self.executor.run_for(ms(millis));
    }
}

/// The numbers of sessions and of HTTP exchanges.
fn counts(bench: &Bench) -> (usize, usize) {
    (bench.service.stats().sessions, bench.service.stats().exchanges)
}

fn call(id: u32, tool: &str, meta: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}",{meta}}}}}"#)
}

fn request<B>(method: &str, fields: Fields<'_>, body: B) -> Request<B> {
    let usual = [("host", "localhost"), ("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let mut request = Request::builder().method(method).uri("/mcp");
    for (name, value) in usual.iter().filter(|(name, _)| !fields.iter().any(|(field, _)| field == name)).chain(fields) {
        request = request.header(*name, *value);
    }
    request.body(body).expect("a request")
}

impl Client {
    /// Polls until the response has to wait, and lets all tasks run.
    fn poll(&mut self, executor: &Executor) {
        loop {
            self.poll_only();
            if !executor.run_until_stalled() {
                return;
            }
        }
    }

    fn poll_only(&mut self) {
        self.poll_with(&mut TaskContext::from_waker(Waker::noop()));
    }

    fn poll_with(&mut self, cx: &mut TaskContext<'_>) {
        if let Some(future) = &mut self.future
            && let Poll::Ready(Ok(response)) = future.as_mut().poll(cx)
        {
            (self.response, self.future) = (Some(response), None);
        }
        while let Some(response) = self.response.as_mut().filter(|_| !self.has_ended) {
            match Pin::new(response.body_mut()).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let data = frame.into_data().expect("data");
                    self.received.push_str(core::str::from_utf8(&data).expect("text"));
                }
                Poll::Ready(_) => self.has_ended = true,
                Poll::Pending => return,
            }
        }
    }

    fn status(&self) -> u16 {
        self.response.as_ref().map_or(0, |response| response.status().as_u16())
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.response.as_ref()?.headers().get(name)?.to_str().ok()
    }

    /// The number of events with a message.
    fn events(&self) -> usize {
        self.received.matches("data: {").count()
    }
}

// ---- Both eras ----

#[test]
fn a_session_is_opened_used_and_ended() {
    let mut bench = Bench::new();
    let session = bench.open();
    for (id, tool) in [(1, "quick"), (2, "task")] {
        let called = bench.call_in(&session, id, tool);
        assert_eq!((called.status(), called.header("content-type"), called.has_ended), (200, Some("application/json"), true));
        assert!(called.received.contains("done"), "{}", called.received);
    }
    assert_eq!(counts(&bench), (1, 0));
    let fields = [("mcp-session-id", &*session)];
    assert_eq!(bench.send("DELETE", &fields, "").status(), 204);
    assert_eq!(counts(&bench), (0, 0));
    assert_eq!(bench.call_in(&session, 3, "quick").status(), 404);
}

/// A regression: the id of a session that was opened by a request with a stale id was made of zeros, so that two clients could share it.
#[test]
fn each_session_gets_a_random_id_also_if_the_request_that_opens_it_names_another_session() {
    let mut bench = Bench::new();
    let named: [Fields<'_>; 5] = [
        &[],
        &[("mcp-session-id", "stale")],
        &[("mcp-session-id", "stale")],
        &[("mcp-session-id", "")],
        &[("mcp-session-id", "a"), ("mcp-session-id", "b")],
    ];
    let ids: BTreeSet<_> =
        named.iter().map(|fields| bench.post(fields, INITIALIZE).header("mcp-session-id").expect("an id").to_owned()).collect();
    assert!(ids.len() == named.len() && !ids.contains(&"0".repeat(32)), "{ids:?}");
}

#[test]
fn a_request_without_a_handshake_is_served_within_the_first_poll_of_its_future() {
    let mut bench = Bench::new();
    let mut called = bench.start_call("quick", &[]);
    called.poll_only();
    assert_eq!((called.status(), called.header("mcp-session-id"), called.has_ended), (200, None, true));
    assert!(called.received.contains("done") && called.received.contains("complete"), "{}", called.received);
    assert_eq!(counts(&bench), (0, 0), "nothing is left of it");
    assert!(bench.call("task").received.contains("done"));
    assert_eq!(bench.call("no such handler").status(), 200, "an error of the tool is an answer");
}

#[test]
fn progress_turns_the_response_into_a_stream_of_events() {
    let mut bench = Bench::new();
    let session = bench.open();
    for (is_legacy, event_ids) in [(true, 5), (false, 0)] {
        let mut called = if is_legacy { bench.call_in(&session, 1, "count") } else { bench.call("count") };
        assert_eq!((called.status(), called.header("content-type"), called.events()), (200, Some("text/event-stream"), 1));
        bench.run(200);
        called.poll(&bench.executor);
        assert_eq!((called.events(), called.has_ended), (2, false));
        bench.run(400);
        called.poll(&bench.executor);
        assert_eq!((called.events(), called.has_ended), (4, true), "{}", called.received);
        assert_eq!(called.received.matches("id: ").count(), event_ids, "only the stream of a session can be resumed");
    }
}

#[test]
fn a_call_without_output_becomes_a_stream_at_the_first_keep_alive() {
    let mut bench = Bench::with(|config| config.timeouts.keep_alive = ms(300));
    let mut called = bench.call("nap");
    assert_eq!(called.status(), 0);
    bench.run(700);
    called.poll(&bench.executor);
    assert_eq!((called.status(), called.events()), (200, 0));
    assert!(called.received.starts_with(':'), "a comment: {}", called.received);
    bench.run(300);
    called.poll(&bench.executor);
    assert!(called.has_ended && called.received.contains("rested"), "{}", called.received);
}

#[test]
fn a_server_of_one_era_refuses_the_other() {
    let mut bench = Bench::with(|config| config.era = Era::Modern);
    assert_eq!(bench.call("quick").status(), 200);
    assert_eq!(bench.send("GET", &[], "").status(), 405);
    let mut bench = Bench::with(|config| config.era = Era::Legacy);
    assert_eq!(bench.call("quick").status(), 400, "it names no session");
    bench.open();
}

#[test]
fn calls_of_one_session_run_at_the_same_time() {
    let mut bench = Bench::new();
    let session = bench.open();
    let mut naps: Vec<_> = (1..=3).map(|id| bench.call_in(&session, id, "nap")).collect();
    assert!(bench.call_in(&session, 4, "task").received.contains("done"), "it does not wait for the others");
    bench.run(1000);
    for nap in &mut naps {
        nap.poll(&bench.executor);
        assert!(nap.has_ended && nap.received.contains("rested"), "after the time of one: {}", nap.received);
    }
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_response_that_waits_is_woken_only_when_there_is_something_to_read() {
    let mut bench = Bench::new();
    let session = bench.open();
    let listening = bench.send("GET", &[("mcp-session-id", &session)], "");
    for mut waiting in [bench.start_call("wait", &[]), bench.call_in(&session, 1, "wait"), listening] {
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let poll = |waiting: &mut Client| {
            while {
                waiting.poll_with(&mut TaskContext::from_waker(&waker));
                bench.executor.run_until_stalled()
            } {}
            wakes.0.store(0, Ordering::Relaxed);
            waiting.poll_with(&mut TaskContext::from_waker(&waker));
        };
        poll(&mut waiting);
        for _ in 0..3 {
            let before = waiting.received.len();
            bench.run(14_999);
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "nothing has happened");
            bench.run(1);
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "a comment");
            poll(&mut waiting);
            assert_eq!((waiting.status(), &waiting.received[before..]), (200, ":\n\n"));
        }
    }
}

// ---- Disconnects ----

#[test]
fn a_client_that_disconnects_before_the_head_cancels_a_request_without_a_handshake() {
    let mut bench = Bench::new();
    let called = bench.call("wait");
    assert_eq!(called.status(), 0);
    drop(called);
    bench.run(0);
    assert_eq!(bench.seen.cancelled.load(Ordering::Relaxed), 1);
    assert!(bench.seen.cleaned.load(Ordering::Relaxed), "the handler has its grace");
    assert_eq!(counts(&bench), (0, 0));
}

#[test]
fn a_client_that_disconnects_during_the_stream_cancels_a_request_without_a_handshake() {
    let mut bench = Bench::with(|config| config.timeouts.keep_alive = ms(10));
    let mut called = bench.call("wait");
    bench.run(20);
    called.poll(&bench.executor);
    assert_eq!((called.status(), counts(&bench)), (200, (1, 1)));
    drop(called);
    bench.run(0);
    assert_eq!(bench.seen.cancelled.load(Ordering::Relaxed), 1);
    assert!(bench.seen.cleaned.load(Ordering::Relaxed), "the handler has its grace");
    assert_eq!(counts(&bench), (0, 0));
}

#[test]
fn a_request_in_a_session_goes_on_after_a_disconnect_and_its_stream_can_be_resumed() {
    let mut bench = Bench::new();
    let session = bench.open();
    let called = bench.call_in(&session, 1, "count");
    let first = called.received.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id").to_owned();
    drop(called);
    bench.run(1000);
    assert_eq!(bench.seen.steps.load(Ordering::Relaxed), 3, "it went on");
    let resumed = bench.send("GET", &[("mcp-session-id", &session), ("last-event-id", &first)], "");
    assert!(resumed.has_ended && resumed.received.contains("counted"), "{}", resumed.received);
    assert_eq!(resumed.events(), 4, "three updates and the result");
}

#[test]
fn the_response_of_a_call_that_the_client_has_cancelled_ends_without_a_result() {
    let mut bench = Bench::new();
    let session = bench.open();
    let mut called = bench.call_in(&session, 1, "wait");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(bench.post(&[("mcp-session-id", &session)], cancel).status(), 202);
    called.poll(&bench.executor);
    assert_eq!((called.has_ended, called.events(), bench.seen.cancelled.load(Ordering::Relaxed)), (true, 0, 1));
    assert_eq!(counts(&bench), (1, 0));
}

#[test]
fn a_session_without_requests_ends_after_its_idle_time() {
    let mut bench = Bench::with(|config| config.timeouts.session_idle = ms(5000));
    let session = bench.open();
    bench.run(4999);
    assert_eq!(bench.call_in(&session, 1, "quick").status(), 200);
    bench.run(4999);
    assert_eq!(counts(&bench), (1, 0));
    bench.run(1);
    assert_eq!(counts(&bench), (0, 0));
    assert_eq!(bench.executor.next_timer(), None, "no task waits for a deadline");
    // A later request starts that task again.
    bench.open();
    bench.run(5000);
    assert_eq!(counts(&bench), (0, 0));
}

#[test]
fn sessions_end_with_the_last_handle_of_the_service() {
    let mut bench = Bench::new();
    let session = bench.open();
    let called = bench.call_in(&session, 1, "wait");
    let Bench { executor, service, seen } = bench;
    drop(service);
    executor.run_for(ms(0));
    assert_eq!(seen.cancelled.load(Ordering::Relaxed), 0, "the response is a handle, too");
    drop(called);
    executor.run_for(ms(0));
    assert_eq!(seen.cancelled.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&seen), 1, "the service was dropped with its tools");
}

// ---- Bodies ----

#[test]
fn a_body_in_pieces_is_read_and_one_that_breaks_has_no_effect() {
    let mut bench = Bench::new();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let (head, tail) = body.split_at(40);
    for (pieces, status) in [
        (vec![Ok(head), Ok(""), Ok(tail)], 200),
        (vec![Ok(""), Ok(head), Ok(&tail[..3]), Ok(&tail[3..])], 200),
        (vec![Ok(body), Err(())], 400),
        (vec![Ok(head), Err(())], 400),
        (vec![Ok(head)], 400),
        (vec![], 400),
    ] {
        let request = request("POST", &[], Pieces(pieces.into()));
        let response = bench.executor.block_on(bench.service.call(request)).expect("a response").expect("no error");
        assert_eq!(response.status().as_u16(), status);
    }
    assert_eq!(counts(&bench), (2, 0));
}

#[test]
fn a_body_is_read_up_to_the_limit_and_not_at_all_if_the_head_is_refused() {
    let mut bench = Bench::with(|config| config.limits.body_bytes = 100);
    let long = || (0..).map(|_| Ok::<_, ()>("0123456789"));
    let endless = Pieces(long().take(1000).collect());
    let mut body = Box::pin(bench.service.call(request("POST", &[], endless)));
    let response = bench.executor.block_on(body.as_mut()).expect("a response").expect("no error");
    assert_eq!(response.status().as_u16(), 413);
    for fields in [[("host", "evil.example.com")], [("content-type", "text/plain")], [("accept", "text/html")]] {
        let request = request("POST", &fields, Unread);
        let response = bench.executor.block_on(bench.service.call(request)).expect("a response").expect("no error");
        assert!([403, 415, 406].contains(&response.status().as_u16()));
    }
}

// ---- Budgets ----

/// A body of which only a part ever arrives.
struct Unfinished {
    length: u64,
    arrives: Option<Bytes>,
}

impl Unfinished {
    fn of(length: usize) -> Self {
        Self { length: length as u64, arrives: Some(Bytes::from_static(b"{")) }
    }
}

impl Body for Unfinished {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.arrives.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.length)
    }
}

/// Three connections with unfinished bodies took 1.4 GiB: a request was counted only after its body was read.
#[test]
fn bodies_that_do_not_arrive_are_bounded_in_sum_and_end_after_their_time() {
    let mut bench = Bench::with(|config| config.limits.request_bytes = 10 << 20);
    let mut unfinished: Vec<_> =
        (0..2).map(|_| Box::pin(bench.service.call(request("POST", &[], Unfinished::of(4 << 20))))).collect();
    let mut cx = TaskContext::from_waker(Waker::noop());
    for future in &mut unfinished {
        assert!(future.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!((bench.service.stats().request_bytes, bench.service.stats().exchanges), (8 << 20, 2));
    let refused = bench.service.call(request("POST", &[], Unfinished::of(4 << 20)));
    let response = bench.executor.block_on(refused).expect("a response").expect("no error");
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(bench.service.stats().refused, 1);
    assert_eq!(bench.send("POST", &[], INITIALIZE).status(), 200, "a small request is served");
    bench.run(59_999);
    for future in &mut unfinished {
        assert!(future.as_mut().poll(&mut cx).is_pending());
    }
    bench.run(1);
    for future in &mut unfinished {
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut cx) else { panic!("the body has time") };
        assert_eq!(response.status().as_u16(), 408);
    }
    drop(unfinished);
    assert_eq!((bench.service.stats().request_bytes, bench.service.stats().exchanges), (0, 0));
    let mut long = bench.service.call(request("POST", &[], Unfinished::of((4 << 20) + 1)));
    let Poll::Ready(Ok(response)) = Pin::new(&mut long).poll(&mut cx) else { panic!("it is read") };
    assert_eq!(response.status().as_u16(), 413, "the head names a length that is too long");
}

#[test]
fn calls_beyond_the_limit_are_refused_before_their_body_is_read_and_answers_are_not() {
    let mut bench = Bench::with(|config| config.limits.calls = 2);
    let session = bench.open();
    let (first, second) = (bench.call_in(&session, 1, "wait"), bench.call("wait"));
    assert_eq!((first.status(), second.status(), bench.service.stats().calls), (0, 0, 2));
    let unread = bench.service.call(request("POST", &[], Unread));
    let response = bench.executor.block_on(unread).expect("a response").expect("no error");
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let refused = bench.call_in(&session, 2, "wait");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    assert!(refused.received.contains("too many calls are running"), "{}", refused.received);
    // Answers and cancels are how running calls end.
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(bench.post(&[("mcp-session-id", &session)], cancel).status(), 202);
    bench.run(1);
    assert_eq!(bench.service.stats().calls, 1);
    drop((first, second));
    bench.run(1);
    let stats = bench.service.stats();
    assert_eq!((stats.calls, stats.exchanges, stats.request_bytes, stats.ended_sessions), (0, 0, 0, 0));
}

/// A call that waits for an answer would hang if bodies that do not arrive could keep the answer out.
#[test]
fn in_a_session_an_answer_or_an_end_has_room_when_requests_have_none() {
    let mut bench = Bench::with(|config| config.limits.exchanges = 32);
    let session = bench.open();
    let unfinished: Vec<_> = (0..30).map(|_| bench.service.call(request("POST", &[], Unfinished::of(2)))).collect();
    assert_eq!(bench.call("quick").status(), 503);
    let session = [("mcp-session-id", &*session)];
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    assert_eq!(bench.post(&session, progress).status(), 202);
    assert_eq!(bench.send("GET", &session, "").status(), 503);
    assert_eq!(bench.post(&session, &" ".repeat(1 + (64 << 10))).status(), 503, "it is too long");
    assert_eq!(bench.send("DELETE", &session, "").status(), 204);
    drop(unfinished);
    assert_eq!(counts(&bench), (0, 0));
}

#[test]
fn each_request_of_a_batch_counts_as_a_call() {
    let mut bench = Bench::with(|config| config.limits.calls = 2);
    let opened = bench.post(&[], &INITIALIZE.replace("2025-11-25", "2025-03-26"));
    let id = opened.header("mcp-session-id").expect("an id").to_owned();
    let calls = |count| format!("[{}]", (1..=count).map(|id| call(id, "wait", r#""_meta":{}"#)).collect::<Vec<_>>().join(","));
    assert_eq!(bench.post(&[("mcp-session-id", &id)], &calls(3)).status(), 503);
    let both = bench.post(&[("mcp-session-id", &id)], &calls(2));
    assert_eq!((both.status(), bench.service.stats().calls), (0, 2));
}

/// Over HTTP/2 a client can leave a whole response unread for ever.
#[test]
fn a_whole_response_counts_as_an_exchange_until_its_body_is_taken() {
    let mut bench = Bench::new();
    let body = Whole(Some(Bytes::from_static(INITIALIZE.as_bytes())));
    let response = bench.executor.block_on(bench.service.call(request("POST", &[], body))).expect("no error");
    assert_eq!(counts(&bench), (1, 1));
    drop(response);
    assert_eq!(counts(&bench), (1, 0));
}

/// Clients that disconnected at once left 90 000 handlers that ran on for their grace.
#[test]
fn only_some_handlers_of_clients_that_disconnect_have_a_grace() {
    let running = Arc::new(());
    let held = Arc::clone(&running);
    let deaf = Tool::new("deaf", move |_: Context, (): ()| {
        let held = Arc::clone(&held);
        async move {
            core::future::pending::<()>().await;
            drop(held);
            Ok("never")
        }
    });
    let service = Service::new("server", "1").tool(deaf);
    let mut bench = Bench::serving(service, Arc::default(), |config| config.limits.ended_sessions = 3);
    for _ in 0..50 {
        let client = bench.call("deaf");
        assert_eq!(client.status(), 0);
        drop(client);
        bench.executor.run_until_stalled();
    }
    let stats = bench.service.stats();
    assert_eq!((stats.calls, stats.ended_sessions, stats.exchanges, stats.sessions), (3, 3, 0, 0));
    assert_eq!(Arc::strong_count(&running), 2 + 3);
    bench.run(60_000);
    assert_eq!((bench.service.stats().calls, bench.service.stats().ended_sessions), (0, 0));
    assert_eq!(Arc::strong_count(&running), 2);
}

#[test]
fn subscriptions_beyond_the_limit_are_refused_before_their_body_is_read() {
    let bench = Bench::with(|config| config.limits.subscriptions = 2);
    let fields = [("mcp-method", "subscriptions/listen")];
    let listen = || bench.service.clone().call(request("POST", &fields, Unfinished::of(10)));
    let mut open: Vec<_> = (0..2).map(|_| Box::pin(listen())).collect();
    let mut cx = TaskContext::from_waker(Waker::noop());
    assert!(open.iter_mut().all(|future| future.as_mut().poll(&mut cx).is_pending()));
    let unread = bench.service.clone().call(request("POST", &fields, Unread));
    let response = bench.executor.block_on(unread).expect("a response").expect("no error");
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    drop(open);
    assert!(Box::pin(listen()).as_mut().poll(&mut cx).is_pending());
}

#[test]
fn a_principal_that_takes_its_whole_share_leaves_room_for_others() {
    let mut bench = Bench::with(|config| config.limits.calls = 8);
    let by = |bench: &mut Bench, name: &str| {
        let meta = format!(r#""_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}}}"#);
        let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "wait")];
        let mut request = request("POST", &fields, Whole(Some(call(1, "wait", &meta).into())));
        request.extensions_mut().insert(Principal::new(name));
        let future = Some(Box::pin(bench.service.call(request)));
        let mut client = Client { future, response: None, received: String::new(), has_ended: false };
        client.poll(&bench.executor);
        client
    };
    let greedy: Vec<_> = (0..20).map(|_| by(&mut bench, "greedy")).collect();
    let refused = greedy.iter().filter(|client| client.status() == 429 && client.header("retry-after") == Some("1"));
    assert_eq!((refused.count(), bench.service.stats().calls), (16, 4));
    let other = by(&mut bench, "other");
    assert_eq!((other.status(), bench.service.stats().calls), (0, 5));
}

/// Admits only requests with a token.
struct ByToken;

impl Guard for ByToken {
    fn trusts(&self, _: SocketAddr, _: SocketAddr) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(core::future::ready(false))
    }

    fn admits(&self, token: Option<&str>) -> bool {
        token == Some("right")
    }
}

/// The listener.
#[cfg(feature = "hyper")]
mod look_up {
    use std::io;

    use protocol_core::Instant;

    use super::*;
    use crate::{Acceptor, ConnectionLimits, HttpListener};

    /// A guard whose look-up never ends.
    struct Silent(Arc<()>);

    impl Guard for Silent {
        fn trusts(&self, _: SocketAddr, _: SocketAddr) -> Pin<Box<dyn Future<Output = bool> + Send>> {
            let looking_up = Arc::clone(&self.0);
            Box::pin(async move {
                core::future::pending::<()>().await;
                drop(looking_up);
                true
            })
        }

        fn admits(&self, _: Option<&str>) -> bool {
            false
        }
    }

    /// A socket that accepts one connection, on which nothing happens.
    struct OneConnection(AtomicBool);

    /// The connection.
    struct Nothing;

    impl Acceptor for OneConnection {
        type Io = Nothing;

        async fn accept(&self) -> io::Result<Nothing> {
            if self.0.swap(true, Ordering::Relaxed) {
                core::future::pending::<()>().await;
            }
            Ok(Nothing)
        }

        fn ends(_: &Nothing) -> Option<(SocketAddr, SocketAddr)> {
            Some((([127, 0, 0, 1], 80).into(), ([127, 0, 0, 1], 5000).into()))
        }
    }

    impl hyper::rt::Read for Nothing {
        fn poll_read(self: Pin<&mut Self>, _: &mut TaskContext<'_>, _: hyper::rt::ReadBufCursor<'_>) -> Poll<io::Result<()>> {
            panic!("nothing is read before the look-up has ended")
        }
    }

    impl hyper::rt::Write for Nothing {
        fn poll_write(self: Pin<&mut Self>, _: &mut TaskContext<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            panic!("nothing is written before the look-up has ended")
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The look-up of who has connected came before the limits of the connection: it held its place, and delayed the end of the service.
    #[test]
    fn a_connection_whose_look_up_does_not_end_is_ended_by_its_idle_limit_and_by_the_close_of_the_listener() {
        for closes in [false, true] {
            let bench = Bench::new();
            let looking_up = Arc::new(());
            let service = bench.service.clone().guarded(Silent(Arc::clone(&looking_up)));
            let address = ([127, 0, 0, 1], 80).into();
            let listener =
                HttpListener::start(OneConnection(AtomicBool::new(false)), address, service, ConnectionLimits::default());
            bench.executor.run_until_stalled();
            assert_eq!(Arc::strong_count(&looking_up), 3, "the look-up runs");
            if closes {
                listener.close(ms(5000));
                assert!(bench.executor.block_on(listener.closed()).is_some());
                assert_eq!(bench.executor.now(), Instant::ZERO, "nothing was waited for");
            } else {
                bench.executor.run_for(ms(59_999));
                assert_eq!(Arc::strong_count(&looking_up), 3);
                bench.executor.run_for(ms(1));
            }
            assert_eq!(Arc::strong_count(&looking_up), 2, "the look-up was dropped");
        }
    }
}

/// In the field a stranger ended the session of a gateway's agent with an `initialize`.
#[test]
fn a_request_that_the_guard_does_not_admit_gets_401_before_its_body_is_read() {
    let bench = Bench::new();
    let mut guarded = bench.service.clone().guarded(ByToken);
    for fields in [&[][..], &[("authorization", "Bearer wrong")], &[("authorization", "Basic right")]] {
        let refused = guarded.call(request("POST", fields, Unread));
        let response = bench.executor.block_on(refused).expect("a response").expect("no error");
        assert_eq!((response.status().as_u16(), &response.headers()["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    }
    assert_eq!(bench.service.stats().sessions, 0);
    let body = Whole(Some(Bytes::from_static(INITIALIZE.as_bytes())));
    let admitted = guarded.call(request("POST", &[("authorization", "Bearer right")], body));
    let response = bench.executor.block_on(admitted).expect("a response").expect("no error");
    assert_eq!((response.status().as_u16(), bench.service.stats().sessions), (200, 1));
}

#[test]
fn requests_with_foreign_or_repeated_hosts_or_origins_are_refused() {
    let mut bench = Bench::new();
    for fields in [
        &[("host", "evil.example.com")][..],
        &[("origin", "http://evil.example.com")],
        &[("origin", "http://localhost"), ("origin", "http://localhost")],
        &[("host", "localhost"), ("host", "localhost")],
    ] {
        let refused = bench.call_with("quick", fields);
        assert_eq!(refused.status(), 403, "{fields:?}");
        assert_eq!(refused.header("content-type"), Some("application/json"));
    }
    assert_eq!(bench.call_with("quick", &[("origin", "http://localhost:3000")]).status(), 200);
}

// ---- Back-pressure ----

#[test]
fn progress_for_a_client_that_stops_reading_is_merged_while_its_handler_goes_on() {
    let mut bench = Bench::with(|config| config.limits.output_bytes = 10_000);
    let session = bench.open();
    let both = [bench.call("flood"), bench.call_in(&session, 1, "flood")];
    bench.run(200 * 2000);
    assert_eq!(bench.seen.steps.load(Ordering::Relaxed), 2 * 2000, "deadlines pass without the reader");
    for mut called in both {
        assert_eq!(called.status(), 200);
        called.poll(&bench.executor);
        assert!(called.has_ended && called.received.contains("flooded"));
        assert!(called.events() < 20, "progress was merged: {}", called.events());
    }
}

#[test]
fn a_client_that_stops_reading_a_response_delays_no_other_request_of_its_session() {
    let mut bench = Bench::with(|config| config.limits.output_bytes = 1000);
    let session = bench.open();
    let stopped = bench.call_in(&session, 1, "flood");
    bench.run(5000);
    let called = bench.call_in(&session, 2, "task");
    assert!(called.has_ended && called.received.contains("done"));
    drop(stopped);
}

// ---- Callers ----

#[test]
fn handlers_get_the_head_of_their_own_request() {
    let mut bench = Bench::new();
    let session = bench.open();
    for name in ["ada", "grace"] {
        assert!(bench.call_with("whoami", &[("x-name", name)]).received.contains(name));
        let fields = [("mcp-session-id", &*session), ("x-name", name)];
        assert!(bench.post(&fields, &call(1, "whoami", r#""_meta":{}"#)).received.contains(name));
    }
    assert!(bench.call("whoami").received.contains("nobody"));
}

#[test]
fn a_session_belongs_to_the_principal_that_has_opened_it() {
    let mut bench = Bench::new();
    let send = |bench: &mut Bench, principal: Option<&str>, session: Option<&str>, body: &str| {
        let fields: Vec<_> = session.map(|session| ("mcp-session-id", session)).into_iter().collect();
        let mut request = request("POST", &fields, Whole(Some(Bytes::copy_from_slice(body.as_bytes()))));
        if let Some(name) = principal {
            request.extensions_mut().insert(Principal::new(name));
        }
        bench.executor.block_on(bench.service.call(request)).expect("a response").expect("no error")
    };
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let opened = send(&mut bench, Some("ada"), None, initialize);
    let id = opened.headers()["mcp-session-id"].to_str().expect("text").to_owned();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (principal, status) in [(Some("ada"), 200), (Some("grace"), 404), (None, 404)] {
        assert_eq!(send(&mut bench, principal, Some(&id), ping).status().as_u16(), status, "{principal:?}");
    }
}

#[test]
fn annotated_arguments_must_be_repeated_by_headers() {
    let schema =
        Json::parse(r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#).expect("JSON");
    let tool = Tool::from_schema("regional", schema, async |_: Context, _: Json| Ok(ToolOutput::text("here"))).expect("a schema");
    let mut bench = Bench::serving(Service::new("s", "1").tool(tool), Arc::default(), |_| {});
    let meta = format!(r#""_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}}},"arguments":{{"region":"eu"}}"#);
    let usual = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "regional")];
    for (region, status) in [(Some("eu"), 200), (Some("us"), 400), (None, 400)] {
        let region = region.map(|region| ("mcp-param-region", region));
        let fields: Vec<_> = usual.into_iter().chain(region).collect();
        assert_eq!(bench.post(&fields, &call(1, "regional", &meta)).status(), status, "{region:?}");
    }
}

// ---- Locks and ends ----

/// If a handler were polled under the lock of the service, its own request to the service would wait for this lock for ever.
#[test]
fn a_handler_can_call_its_own_service() {
    let slot = Arc::new(Mutex::new(None::<HttpService>));
    let own = Arc::clone(&slot);
    let nested = Tool::new("nested", move |_: Context, (): ()| {
        let mut service = own.lock().expect("no panic").clone().expect("a service");
        async move {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}}}}}}}"#
            );
            let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "ping")];
            let response = service.call(request("POST", &fields, Whole(Some(body.into())))).await.expect("no error");
            Ok(response.status().to_string())
        }
    });
    let mut bench = Bench::serving(Service::new("s", "1").tool(nested.inline()), Arc::default(), |_| {});
    *slot.lock().expect("no panic") = Some(bench.service.clone());
    let mut called = bench.call("nested");
    called.poll(&bench.executor);
    assert!(called.has_ended, "it did not wait for itself");
    *slot.lock().expect("no panic") = None;
}

#[test]
fn closing_refuses_new_requests_ends_streams_and_lets_earlier_requests_end() {
    let mut bench = Bench::new();
    let (busy, idle) = (bench.open(), bench.open());
    let mut stream = bench.send("GET", &[("mcp-session-id", &idle)], "");
    let mut called = bench.call_in(&busy, 1, "nap");
    let mut modern = bench.call("nap");
    assert_eq!((stream.status(), stream.has_ended), (200, false));
    bench.service.close(ms(5000));
    bench.run(0);
    stream.poll(&bench.executor);
    assert!(stream.has_ended);
    let refused = bench.call("quick");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    assert_eq!(bench.call_in(&idle, 1, "quick").status(), 404);
    bench.run(1000);
    for called in [&mut called, &mut modern] {
        called.poll(&bench.executor);
        assert!(called.has_ended && called.received.contains("rested"), "{}", called.received);
    }
    bench.run(0);
    assert_eq!(counts(&bench), (0, 0));
}

#[test]
fn a_request_that_outlasts_the_grace_gets_the_error_that_the_server_is_closing() {
    let mut bench = Bench::new();
    let session = bench.open();
    let (mut called, mut modern) = (bench.call_in(&session, 1, "wait"), bench.call("wait"));
    bench.service.close(ms(100));
    modern.poll(&bench.executor);
    bench.run(100);
    for called in [&mut called, &mut modern] {
        called.poll(&bench.executor);
        assert!(called.has_ended && called.received.contains("the server is closing"), "{}", called.received);
    }
    bench.run(60_000);
    assert_eq!(counts(&bench), (0, 0));
}

#[test]
fn a_subscription_gets_changes_and_ends_with_its_result_when_the_service_closes() {
    let resource = Resource::new("note://1", "note", async |_: Context| Ok(ResourceContents::text("text")));
    let mut service = Service::new("s", "1").resource(resource);
    let catalog = service.catalog();
    let mut bench = Bench::serving(service, Arc::default(), |_| {});
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}}}}}}}"#
    );
    let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let mut listening = bench.post(&fields, &body);
    assert_eq!((listening.status(), listening.events()), (200, 1), "{}", listening.received);
    assert!(listening.received.contains("acknowledged"), "{}", listening.received);
    catalog.add_tool(Tool::new("new", async |_: Context, (): ()| Ok("new"))).expect("a tool");
    listening.poll(&bench.executor);
    assert!(listening.received.contains("tools/list_changed"), "{}", listening.received);
    bench.service.close(ms(1000));
    listening.poll(&bench.executor);
    assert!(listening.has_ended && listening.received.contains("\"result\""), "{}", listening.received);
    assert_eq!(counts(&bench), (0, 0));
}

/// A regression: the stream of such a subscription stayed open for ever.
#[test]
fn a_subscription_that_can_get_no_notice_ends_at_once_with_its_result() {
    let mut bench = Bench::new();
    for kinds in ["", r#""toolsListChanged":false"#, r#""toolsListChanged":true,"resourceSubscriptions":["note://gone"]"#] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{{"notifications":{{{kinds}}},"_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}}}}}}}"#
        );
        let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
        let listening = bench.post(&fields, &body);
        assert_eq!((listening.status(), listening.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!((listening.events(), listening.has_ended), (2, true), "{}", listening.received);
        let (acknowledged, ended) = listening.received.split_once("\n\n").expect("two events");
        assert!(acknowledged.contains(r#""notifications":{}"#) && ended.contains(r#""result""#), "{}", listening.received);
        assert_eq!(counts(&bench), (0, 0));
    }
}

#[test]
fn a_runtime_that_shuts_down_ends_every_response() {
    let mut bench = Bench::new();
    let session = bench.open();
    let mut waiting = [bench.call_in(&session, 1, "wait"), bench.call("wait")];
    let get_stream = bench.send("GET", &[("mcp-session-id", &session)], "");
    let mut streams = [bench.call_in(&session, 2, "count"), bench.call("count"), get_stream];
    assert_eq!((waiting.each_ref().map(Client::status), streams.each_ref().map(Client::status)), ([0; 2], [200; 3]));
    bench.executor.shutdown();
    for called in &mut waiting {
        called.poll_only();
        assert!(called.has_ended && called.received.contains("\"error\""), "{}", called.received);
    }
    assert_eq!(
        waiting.each_ref().map(Client::status),
        [404, 200],
        "the first session has ended, and the second handler was dropped"
    );
    for stream in &mut streams {
        assert!(!stream.has_ended);
        stream.poll_only();
        assert!(stream.has_ended && !stream.received.contains("counted"), "{}", stream.received);
    }
    assert_eq!(counts(&bench), (0, 0));
}

// ---- The layer ----

#[test]
fn the_layer_lets_this_machine_pass_and_refuses_others_before_the_service_is_called() {
    let mut bench = Bench::with(|config| (config.hosts, config.origins) = (Allowed::Any, Allowed::Any));
    let mut layered = HostOriginLayer::loopback().layer(bench.service.clone());
    for (host, status) in [("localhost", 200), ("evil.example.com", 403)] {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
        let request = request("POST", &[("host", host)], Whole(Some(body.into())));
        let response = bench.executor.block_on(layered.call(request)).expect("a response").expect("no error");
        assert_eq!(response.status().as_u16(), status);
        let mut body = Box::pin(response.into_body());
        let hint = body.size_hint().exact().expect("a length");
        let mut cx = TaskContext::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut cx) else { panic!("a piece") };
        assert_eq!(frame.into_data().expect("data").len() as u64, hint);
        assert!(body.is_end_stream());
    }
    assert_eq!(bench.service.stats().sessions, 1);
    bench.call("quick");
}

// ---- The listener ----

#[cfg(feature = "hyper")]
mod listening {
    use std::io::{self, ErrorKind};

    use hyper::rt::{Read, ReadBufCursor, Write};

    use super::*;
    use crate::{Acceptor, ConnectionLimits, HttpListener};

    /// A listening socket that fails `left` times with an error of this kind, and then waits for ever.
    struct Failing {
        kind: ErrorKind,
        left: AtomicUsize,
    }

    /// The type of a connection that never exists.
    enum Nothing {}

    impl Read for Nothing {
        fn poll_read(self: Pin<&mut Self>, _: &mut TaskContext<'_>, _: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl Write for Nothing {
        fn poll_write(self: Pin<&mut Self>, _: &mut TaskContext<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            match *self {}
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl Acceptor for Arc<Failing> {
        type Io = Nothing;

        async fn accept(&self) -> io::Result<Nothing> {
            if self.left.load(Ordering::Relaxed) == 0 {
                core::future::pending::<()>().await;
            }
            self.left.fetch_sub(1, Ordering::Relaxed);
            Err(self.kind.into())
        }
    }

    #[test]
    fn only_an_error_of_the_listening_socket_delays_the_next_connection() {
        // After each other error the listener waits 100 ms, so only four errors occur in the time of this test.
        for (kind, left) in [(ErrorKind::ConnectionAborted, 0), (ErrorKind::ConnectionReset, 0), (ErrorKind::Other, 6)] {
            let bench = Bench::new();
            let failing = Arc::new(Failing { kind, left: AtomicUsize::new(10) });
            let address = ([127, 0, 0, 1], 80).into();
            let limits = ConnectionLimits::default();
            let listener = HttpListener::start(Arc::clone(&failing), address, bench.service.clone(), limits);
            bench.run(399);
            assert_eq!(failing.left.load(Ordering::Relaxed), left, "{kind}");
            listener.close(ms(0));
            assert!(bench.executor.block_on(listener.closed()).is_some());
            assert_eq!(Arc::strong_count(&failing), 1, "nothing listens any longer");
        }
    }
}

// ---- Responses that end before their calls ----

/// A tool that tries three times to suspend its stream, and pushes to `returned` the success of each attempt.
fn patient(returned: &Arc<Mutex<Vec<bool>>>) -> Tool {
    let returned = Arc::clone(returned);
    Tool::new("patient", move |context: Context, (): ()| {
        let returned = Arc::clone(&returned);
        async move {
            for pause in [100, 400, 400] {
                context.sleep(ms(pause)).await?;
                let stream = context.extensions().get::<ResponseStream>();
                let is_suspended = stream.is_some_and(|stream| stream.suspend().is_ok());
                returned.lock().expect("no panic").push(is_suspended);
            }
            Ok("at last")
        }
    })
}

#[test]
fn a_handler_suspends_its_stream_and_the_client_resumes_it_for_the_result() {
    let returned = Arc::<Mutex<Vec<bool>>>::default();
    let mut bench = Bench::serving(service(&Arc::default()).tool(patient(&returned)), Arc::default(), |_| {});
    let session = bench.open();
    let mut called = bench.call_in(&session, 1, "patient");
    bench.run(100);
    called.poll(&bench.executor);
    assert_eq!((called.status(), called.has_ended, called.events()), (200, true, 0));
    let id = called.received.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id to come back with").to_owned();
    assert!(called.received.ends_with("retry: 1000\n\n"), "{}", called.received);

    let mut resumed = bench.send("GET", &[("mcp-session-id", &session), ("last-event-id", &id)], "");
    bench.run(400);
    resumed.poll(&bench.executor);
    assert_eq!((resumed.has_ended, resumed.events()), (true, 0), "{}", resumed.received);
    // The client is disconnected now, and a stream without a client cannot be suspended.
    bench.run(400);
    assert_eq!(*returned.lock().unwrap(), [true, true, false]);
    let last = bench.send("GET", &[("mcp-session-id", &session), ("last-event-id", &id)], "");
    assert!(last.has_ended && last.received.contains("at last"), "{}", last.received);
}

#[test]
fn a_stream_that_cannot_be_resumed_is_not_suspended() {
    for (resumable, in_session) in [(false, true), (true, false)] {
        let returned = Arc::<Mutex<Vec<bool>>>::default();
        let service = service(&Arc::default()).tool(patient(&returned));
        let mut bench = Bench::serving(service, Arc::default(), |config| config.resumable = resumable);
        let session = bench.open();
        let mut called = if in_session { bench.call_in(&session, 1, "patient") } else { bench.call("patient") };
        for _ in 0..3 {
            bench.run(400);
            called.poll(&bench.executor);
        }
        assert_eq!(*returned.lock().unwrap(), [false; 3]);
        assert!(called.has_ended && called.received.contains("at last"), "{}", called.received);
    }
}

// ---- Machines of the application ----

/// A service whose sessions are the agents' legs of gateways, and these gateways. The service refuses a third session.
fn gateways() -> (Bench, Arc<Mutex<Vec<SharedBridge>>>) {
    let executor = Executor::new();
    let runtime: Arc<dyn TimedRuntime> = Arc::new(executor.clone());
    let opened = Arc::<Mutex<Vec<SharedBridge>>>::default();
    let (bridges, clock) = (Arc::clone(&opened), executor.runtime());
    let open = move || {
        let mut bridges = bridges.lock().expect("no panic");
        let is_refused = bridges.len() >= 2;
        bridges.push(SharedBridge::new(BridgeConfig::new(Identity::new("g", "1"), 0), Box::new(|_| {}), Arc::clone(&clock)));
        (!is_refused).then(|| bridges[bridges.len() - 1].leg(Leg::Agent))
    };
    let mut config = HttpServerConfig::default();
    config.era = Era::Legacy;
    let service = HttpService::with_machines(open, runtime, config);
    (Bench { service, executor, seen: Arc::default() }, opened)
}

#[test]
fn a_gateway_is_served_and_each_reply_goes_out_by_the_http_exchange_of_its_request() {
    let (mut bench, bridges) = gateways();
    let session = bench.open();
    let fields = [("mcp-session-id", &*session)];
    let claim = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tesseron__claim_session","arguments":{"code":"ABCD-EF"}}}"#;
    let mut claiming = bench.post(&fields, claim);
    assert_eq!(claiming.status(), 0, "no app has the code yet");
    let listed = bench.post(&fields, r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#);
    assert!(listed.has_ended && listed.received.contains("tesseron__list_actions"), "{}", listed.received);
    let bridge = bridges.lock().unwrap()[0].clone();
    let claim = bench.executor.block_on(async {
        loop {
            if let BridgeEvent::ClaimWanted { claim, .. } = bridge.next_event().await {
                break claim;
            }
        }
    });
    bridge.refuse_claim(claim.expect("it is wanted"), "no app has this code");
    claiming.poll(&bench.executor);
    assert!(claiming.has_ended && claiming.received.contains("no app has this code"), "{}", claiming.received);
}

#[test]
fn a_call_that_the_agent_of_a_gateway_cancels_ends_its_http_exchange() {
    let (mut bench, bridges) = gateways();
    let session = bench.open();
    let fields = [("mcp-session-id", &*session)];
    let claim = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tesseron__claim_session","arguments":{"code":"ABCD-EF"}}}"#;
    let mut claiming = bench.post(&fields, claim);
    bench.post(&fields, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    claiming.poll(&bench.executor);
    assert!(claiming.has_ended, "no reply comes");
    assert_eq!(counts(&bench), (1, 0));
    assert_eq!(bench.send("DELETE", &fields, "").status(), 204);
    bench.executor.run_until_stalled();
    let bridge = bridges.lock().unwrap()[0].clone();
    let reason = bench.executor.block_on(async {
        loop {
            if let BridgeEvent::AgentClosed(reason) = bridge.next_event().await {
                break reason;
            }
        }
    });
    assert!(reason.is_some() && counts(&bench) == (0, 0));
}

#[test]
fn a_gateway_that_closes_ends_its_session_and_a_refused_session_never_begins() {
    let (mut bench, bridges) = gateways();
    let (one, other) = (bench.open(), bench.open());
    bridges.lock().unwrap()[0].close(Close::Now);
    bench.executor.run_until_stalled();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(bench.post(&[("mcp-session-id", &*one)], ping).status(), 404);
    assert_eq!(bench.post(&[("mcp-session-id", &*other)], ping).status(), 200);
    let refused = bench.post(&[], INITIALIZE);
    assert_eq!((refused.status(), refused.header("mcp-session-id")), (503, None), "{}", refused.received);
    assert_eq!(counts(&bench), (1, 0));
}

#[test]
fn a_session_whose_machine_panics_when_it_is_made_leaves_nothing_behind() {
    let executor = Executor::new();
    let open = || -> Option<BridgeLeg> { panic!("no machine") };
    let service = HttpService::with_machines(open, Arc::new(executor.clone()), HttpServerConfig::default());
    let mut bench = Bench { service, executor, seen: Arc::default() };
    for _ in 0..2 {
        let opened = catch_unwind(AssertUnwindSafe(|| bench.post(&[], INITIALIZE)));
        assert!(opened.is_err());
        bench.executor.run_until_stalled();
        assert_eq!(counts(&bench), (0, 0));
    }
}

// ---- The plain function ----

#[test]
fn a_server_without_tower_passes_bytes_and_gets_the_body_in_pieces() {
    let bench = Bench::new();
    let meta = format!(r#""_meta":{{"{VERSION}":"2026-07-28","{CAPABILITIES}":{{}},"progressToken":1}}"#);
    let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "count")];
    let request = request("POST", &fields, Bytes::from(call(7, "count", &meta)));
    let pieces = bench.executor.block_on(async {
        let mut response = bench.service.respond(request).await;
        assert_eq!(response.status(), 200);
        let mut pieces = Vec::new();
        while let Some(piece) = response.body_mut().next_chunk().await {
            pieces.push(String::from_utf8(piece.to_vec()).expect("text"));
        }
        pieces
    });
    let pieces = pieces.expect("it ends");
    assert!(pieces.len() >= 4 && pieces.concat().contains("counted"), "{pieces:?}");
}
