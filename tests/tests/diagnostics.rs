//! Diagnostics for developers: the spans and events of an endpoint, and the counters of a session.
//!
//! These tests have a program of their own, in which each test of an endpoint has a subscriber on its own thread. In a program with other
//! tests, a thread without a subscriber could be the first to reach a span, and `tracing` might then switch off the span for all threads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use endpoint::testing::{Executor, Pipe, connect, pipe};
use endpoint::{BoxFuture, Call, Client, Context, Endpoint, InputContext, Peer, Service, Tool, ToolError};
use protocol_core::{
    Capabilities, Close, Config, Identity, Invoke, Json, Level as LogLevel, LogRecord, Progress, RateWindow, RpcError, Sample,
    SampleResult, Violation,
};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, progress, result};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// ---- A subscriber that records ----

/// Fields by name, as text.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

#[derive(Clone, Debug)]
struct Span {
    name: &'static str,
    level: Level,
    fields: Fields,
    /// The number of handles that were not dropped.
    references: usize,
    /// The number of times that the span was entered.
    entered: usize,
}

#[derive(Clone, Debug)]
struct Recorded {
    level: Level,
    target: &'static str,
    fields: Fields,
    /// The index of the span that the event belongs to.
    span: Option<usize>,
}

impl Recorded {
    fn has_message(&self, what: &str) -> bool {
        self.fields.get("message") == what
    }
}

#[derive(Default)]
struct Memory {
    spans: Vec<Span>,
    events: Vec<Recorded>,
    /// The spans that are entered, the innermost last. All of them are on the thread of the test.
    stack: Vec<usize>,
}

/// A subscriber that records all spans and events. Clones share the records.
#[derive(Clone, Default)]
struct Recorder {
    memory: Arc<Mutex<Memory>>,
    /// Peers whose statistics the subscriber reads at each span and event. A read would block if the lock of the peer were held.
    inspected: Arc<Mutex<Vec<Peer>>>,
}

impl Recorder {
    /// Reads the statistics of the inspected peers, and then changes the records.
    fn note<T>(&self, note: impl FnOnce(&mut Memory) -> T) -> T {
        for peer in self.inspected.lock().unwrap().iter() {
            let _ = peer.stats();
        }
        note(&mut self.memory.lock().unwrap())
    }

    fn spans(&self, name: &str) -> Vec<Span> {
        self.memory.lock().unwrap().spans.iter().filter(|span| span.name == name).cloned().collect()
    }

    /// Every event with this message.
    fn recorded(&self, message: &str) -> Vec<Recorded> {
        self.memory.lock().unwrap().events.iter().filter(|recorded| recorded.has_message(message)).cloned().collect()
    }

    /// The one event with this message.
    #[track_caller]
    fn recorded_once(&self, message: &str) -> Recorded {
        match &self.recorded(message)[..] {
            [recorded] => recorded.clone(),
            all => panic!("{message:?} was recorded {} times among {:?}", all.len(), self.memory.lock().unwrap().events),
        }
    }

    fn span_of(&self, recorded: &Recorded) -> Option<Span> {
        recorded.span.map(|index| self.memory.lock().unwrap().spans[index].clone())
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64()).unwrap() - 1
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let metadata = attributes.metadata();
        self.note(|memory| {
            memory.spans.push(Span { name: metadata.name(), level: *metadata.level(), fields, references: 1, entered: 0 });
            Id::from_u64(memory.spans.len() as u64)
        })
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.note(|memory| values.record(&mut memory.spans[index(span)].fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        self.note(|memory| {
            let current = if event.is_contextual() { memory.stack.last().copied() } else { None };
            let span = event.parent().map(index).or(current);
            memory.events.push(Recorded { level, target, fields, span });
        });
    }

    fn enter(&self, span: &Id) {
        self.note(|memory| {
            memory.stack.push(index(span));
            memory.spans[index(span)].entered += 1;
        });
    }

    fn exit(&self, span: &Id) {
        self.note(|memory| assert_eq!(memory.stack.pop(), Some(index(span)), "spans are exited in the reverse order"));
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.note(|memory| memory.spans[index(span)].references += 1);
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        self.note(|memory| {
            let span = &mut memory.spans[index(&span)];
            span.references -= 1;
            span.references == 0
        })
    }
}

// ---- Two ends with a subscriber ----

struct World {
    recorder: Recorder,
    executor: Executor,
    caller: Peer,
    callee: Peer,
    _guard: tracing::subscriber::DefaultGuard,
}

fn world(service: Service, client: impl Client) -> World {
    let recorder = Recorder::default();
    let guard = tracing::subscriber::set_default(recorder.clone());
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service), executor.runtime());
    let client = Endpoint::client(Arc::new(client), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
    let (caller, callee) = (client.peer(), server.peer());
    connect(&executor, server, client);
    World { recorder, executor, caller, callee, _guard: guard }
}

fn service() -> Service {
    Service::new("service", "1")
}

fn stuck() -> Tool {
    Tool::new("stuck", async |_: Context, (): ()| {
        std::future::pending::<()>().await;
        Ok(())
    })
}

impl World {
    fn call(&self, name: &str) -> Call {
        self.caller.call_tool(name, Json::empty_object()).unwrap()
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.executor.block_on(future).expect("it ends")
    }
}

#[test]
fn a_call_and_its_invocation_each_have_a_span_from_beginning_to_end() {
    let world = world(
        service().tool(Tool::new("echo", async |context: Context, (): ()| {
            context.sleep(ms(10)).await?;
            Ok(())
        })),
        (),
    );
    let call = world.call("echo");
    let id = call.id().to_string();
    world.wait(call);
    world.executor.run_until_stalled();
    for (name, is_entered) in [("call", false), ("invocation", true)] {
        let spans = world.recorder.spans(name);
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((span.level, span.references, span.entered > 0), (Level::INFO, 0, is_entered), "{span:?}");
        assert_eq!((span.fields.get("op"), span.fields.get("name"), span.fields.get("depth")), ("CallTool", "echo", "0"));
    }
    assert_eq!(world.recorder.spans("call")[0].fields.get("id"), id);
    assert!(world.recorder.spans("invocation")[0].fields.get("id").starts_with("in-"));
    let ended = world.recorder.recorded_once("call ended");
    assert_eq!((ended.level, ended.target, ended.fields.get("outcome")), (Level::DEBUG, "protocol_core", "result"));
    assert_eq!(world.recorder.span_of(&ended).unwrap().name, "call");
    let answered = world.recorder.recorded_once("answered");
    assert_eq!((answered.level, answered.fields.get("answer")), (Level::DEBUG, "result"));
    assert_eq!(world.recorder.span_of(&answered).unwrap().name, "invocation");
}

#[test]
fn the_span_of_an_invocation_has_the_trace_of_its_caller() {
    let world = world(service().tool(Tool::new("echo", async |_: Context, (): ()| Ok(()))), ());
    let meta = Json::parse(r#"{"traceparent":"00-1-2-01","tracestate":"a=b","baggage":"k=v"}"#).unwrap();
    world.wait(world.caller.call(Invoke::call_tool("echo", Json::empty_object()).with_meta(meta)).unwrap());
    world.wait(world.call("echo"));
    let spans = world.recorder.spans("invocation");
    for (name, value) in [("traceparent", "00-1-2-01"), ("tracestate", "a=b"), ("baggage", "k=v")] {
        assert_eq!((spans[0].fields.get(name), spans[1].fields.get(name)), (value, ""), "{name}");
    }
}

#[test]
fn only_events_of_a_handler_are_recorded_in_the_span_of_its_invocation() {
    let speaks = |name: &'static str| {
        Tool::new(name, move |context: Context, (): ()| async move {
            tracing::info!(name, "before");
            context.sleep(ms(10)).await?;
            tracing::info!(name, "after");
            Ok(())
        })
    };
    let world = world(service().tool(speaks("one")).tool(speaks("two")), ());
    let (one, two) = (world.call("one"), world.call("two"));
    world.wait(async { (one.await, two.await) });
    tracing::info!("outside");
    for recorded in world.recorder.recorded("before").into_iter().chain(world.recorder.recorded("after")) {
        let span = world.recorder.span_of(&recorded).expect("a span");
        assert_eq!((span.name, span.fields.get("name")), ("invocation", recorded.fields.get("name")));
    }
    assert_eq!(world.recorder.recorded_once("outside").span, None);
}

/// Answers a sampling request by calling the tool `inner` on its behalf.
struct Agent;

impl Client for Agent {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.sampling = true;
        capabilities
    }

    fn sample(&self, asked: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        Box::pin(async move {
            let call = asked.call_tool("inner", Json::empty_object()).map_err(|error| RpcError::internal(error.to_string()))?;
            tracing::info!("answering");
            call.await;
            Ok(SampleResult::new("so", "m"))
        })
    }
}

#[test]
fn spans_have_the_sampling_depth_and_an_input_request_has_a_span() {
    let outer = Tool::new("outer", async |context: Context, (): ()| Ok(context.sample(Sample::new("?")).await?.text));
    let inner = Tool::new("inner", async |_: Context, (): ()| Ok(()));
    let world = world(service().tool(outer).tool(inner), Agent);
    let call = world.call("outer");
    let id = call.id().to_string();
    world.wait(call);
    for name in ["call", "invocation"] {
        let depths: Vec<_> = world.recorder.spans(name).iter().map(|span| span.fields.clone()).collect();
        let depths: Vec<_> = depths.iter().map(|fields| (fields.get("name"), fields.get("depth"))).collect();
        assert_eq!(depths, [("outer", "0"), ("inner", "1")], "{name}");
    }
    let input_requests = world.recorder.spans("input_request");
    let [input_request] = &input_requests[..] else { panic!("{input_requests:?}") };
    let fields = &input_request.fields;
    assert_eq!((fields.get("ask"), fields.get("depth"), fields.get("parent")), ("sample", "1", id.as_str()));
    let answering = world.recorder.recorded_once("answering");
    assert_eq!(world.recorder.span_of(&answering).unwrap().name, "input_request");
}

#[test]
fn refused_progress_and_values_are_logged_as_warnings_with_the_reason() {
    let world = world(
        service().tool(Tool::new("bad", async |context: Context, (): ()| {
            context.percent(f64::NAN);
            context.checkpoint(&[1]);
            context.log(LogLevel::Info, BTreeMap::from([((1, 2), 3)]));
            Ok(())
        })),
        (),
    );
    world.wait(world.call("bad"));
    let refused = world.recorder.recorded_once("progress refused");
    assert_eq!((refused.level, refused.fields.get("error")), (Level::WARN, "progress must be a finite number"));
    let span = world.recorder.span_of(&refused).expect("a span");
    assert_eq!((span.fields.get("name"), span.fields.get("id")), ("bad", refused.fields.get("id")));
    let values: Vec<_> =
        world.recorder.recorded("value refused").iter().map(|recorded| recorded.fields.get("error").to_owned()).collect();
    assert_eq!(values, ["a checkpoint must be a JSON object", "a log record that has no JSON"]);
}

#[test]
fn a_cancel_is_logged_with_its_reason_and_a_result_after_it_as_late() {
    let slow = Tool::new("slow", async |context: Context, (): ()| {
        context.cancelled().await;
        context.step(1, 2);
        Ok(())
    });
    let world = world(service().tool(slow), ());
    let call = world.call("slow");
    world.executor.run_for(ms(10));
    call.cancel(Some("no\nlonger wanted"));
    world.wait(call);
    world.executor.run_until_stalled();
    let cancelled = world.recorder.recorded_once("cancelled");
    assert_eq!((cancelled.level, cancelled.fields.get("why")), (Level::DEBUG, "the caller cancelled the call"));
    assert_eq!(
        cancelled.fields.get("reason"),
        r#""no\nlonger wanted""#,
        "the reason is escaped, so that a peer cannot break lines in a log"
    );
    let late = world.recorder.recorded_once("late answer dropped");
    assert_eq!((late.level, late.fields.get("answer")), (Level::DEBUG, "result"));
    for recorded in [&cancelled, &late] {
        assert_eq!(world.recorder.span_of(recorded).expect("a span").fields.get("name"), "slow");
    }
    assert_eq!(world.recorder.recorded("progress refused").len(), 0, "late progress is not an error");
    assert_eq!(world.recorder.recorded_once("call ended").fields.get("outcome"), "cancelled");
}

#[test]
fn a_handler_that_is_dropped_after_its_grace_is_logged_as_a_warning() {
    let world = world(service().tool(stuck().deadline(ms(100))), ());
    world.wait(world.call("stuck"));
    assert_eq!(world.recorder.recorded_once("cancelled").fields.get("why"), "the call's deadline has passed");
    assert_eq!(world.recorder.recorded("abandoned while it was still running").len(), 0);
    world.executor.run_for(ms(5000));
    let abandoned = world.recorder.recorded_once("abandoned while it was still running");
    assert_eq!(abandoned.level, Level::WARN);
    assert_eq!(world.recorder.span_of(&abandoned).expect("a span").fields.get("name"), "stuck");
    assert_eq!(world.recorder.recorded_once("late answer dropped").fields.get("answer"), "error");
}

/// A client that panics at every log record.
struct PanickingClient;

impl Client for PanickingClient {
    fn log(&self, _: LogRecord) {
        panic!("a record");
    }
}

#[test]
fn panics_of_handlers_and_clients_are_logged_as_errors_with_their_message() {
    let panics = Tool::new("panics", async |_: Context, (): ()| -> Result<(), ToolError> { panic!("planned: {}", 1) });
    let blocks = Tool::blocking("blocks", |_: Context, (): ()| -> Result<(), ToolError> { panic!("planned") });
    let logs = Tool::new("logs", async |context: Context, (): ()| {
        context.log(LogLevel::Error, "x");
        Ok(())
    });
    let world = world(service().tool(panics).tool(blocks).tool(logs), PanickingClient);
    for (name, message) in [("panics", "planned: 1"), ("blocks", "planned"), ("logs", "a record")] {
        world.wait(world.call(name));
        let recorded = world.recorder.recorded("panicked");
        let last = recorded.last().expect("the panic is logged");
        assert_eq!((last.level, last.fields.get("panic")), (Level::ERROR, message));
        let span = world.recorder.span_of(last).map(|span| span.fields.get("name").to_owned());
        assert_eq!(span, (name != "logs").then(|| name.to_owned()));
    }
    assert_eq!(world.recorder.recorded("panicked").len(), 3);
}

/// A server whose client is the test.
fn served(service: Service) -> (Recorder, tracing::subscriber::DefaultGuard, Executor, Pipe) {
    let recorder = Recorder::default();
    let guard = tracing::subscriber::set_default(recorder.clone());
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service), executor.runtime());
    let (mut near, far) = pipe();
    let mut driver = protocol_core::drive::Driver::new(server, far, executor.timer());
    executor.spawn(async move { while let Ok(Some(_)) = driver.next_event().await {} });
    for frame in
        [testkit::scripted::initialize(0, "2025-11-25", "{}"), testkit::scripted::notification("notifications/initialized", "{}")]
    {
        near.send(frame.into()).unwrap();
    }
    executor.run_until_stalled();
    (recorder, guard, executor, near)
}

#[test]
fn a_violation_is_logged_as_a_warning_with_the_name_of_its_rule() {
    let (recorder, _guard, executor, mut near) = served(service().tool(stuck()));
    near.send(result(99).into()).unwrap();
    executor.run_until_stalled();
    let recorded = recorder.recorded_once("the peer broke a rule");
    assert_eq!((recorded.level, recorded.fields.get("rule")), (Level::WARN, Violation::UnknownResponse.as_str()));
}

#[test]
fn the_end_of_a_session_is_logged_with_its_reason() {
    let world = world(service().tool(stuck()), ());
    world.executor.run_until_stalled();
    world.caller.close(Close::Now);
    world.executor.run_for(ms(1));
    let recorded: Vec<_> = world
        .recorder
        .recorded("closed")
        .iter()
        .map(|recorded| (recorded.level, recorded.fields.get("reason").to_owned()))
        .collect();
    assert_eq!(
        recorded,
        [(Level::INFO, "closed by this end".to_owned()), (Level::INFO, "the peer ended the connection".to_owned())]
    );
    drop(world);
    let (recorder, _guard, executor, _near) = served(service());
    // The driver is dropped, and its endpoint with it.
    executor.shutdown();
    let failed = recorder.recorded_once("closed");
    assert_eq!((failed.level, failed.fields.get("reason")), (Level::WARN, "the transport failed"));
}

#[test]
fn a_refused_handshake_is_logged_as_a_warning_with_its_error() {
    let recorder = Recorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let executor = Executor::new();
    let client = Endpoint::client(Arc::new(()), client_config(), executor.runtime());
    let peer = client.peer();
    let (mut near, far) = pipe();
    let mut driver = protocol_core::drive::Driver::new(client, far, executor.timer());
    executor.spawn(async move { while let Ok(Some(_)) = driver.next_event().await {} });
    executor.run_until_stalled();
    near.send(testkit::scripted::error(1, -32000, "not today").into()).unwrap();
    executor.run_until_stalled();
    let recorded = recorder.recorded_once("the peer refused the handshake");
    assert_eq!((recorded.level, recorded.fields.get("code"), recorded.fields.get("error")), (Level::WARN, "-32000", "not today"));
    assert_eq!(peer.refusal(), Some(RpcError::new(-32000, "not today")));
}

#[test]
fn texts_of_the_peer_are_logged_only_up_to_a_bound() {
    let (recorder, _guard, executor, mut near) = served(service().tool(stuck()));
    let name = "é".repeat(10_000);
    near.send(testkit::scripted::request(1, "tools/call", &format!(r#"{{"name":"{name}"}}"#)).into()).unwrap();
    executor.run_until_stalled();
    assert_eq!(recorder.spans("invocation")[0].fields.get("name"), "é".repeat(200));
}

#[test]
fn a_subscriber_that_reads_the_statistics_of_peers_never_blocks_on_their_lock() {
    let (sender, done) = channel();
    // A subscriber that blocks on the lock would wait for ever, so it runs in a thread that the test does not join.
    thread::spawn(move || {
        let outer = Tool::new("outer", async |context: Context, (): ()| {
            context.step(1, 2);
            context.percent(f64::INFINITY);
            context.log(LogLevel::Error, "x");
            context.checkpoint(&1);
            Ok(context.sample(Sample::new("?")).await?.text)
        });
        let inner = Tool::new("inner", async |_: Context, (): ()| -> Result<(), ToolError> { panic!("planned") });
        let world = world(service().tool(outer).tool(inner).tool(stuck().deadline(ms(10))), Agent);
        world.recorder.inspected.lock().unwrap().extend([world.caller.clone(), world.callee.clone()]);
        world.wait(world.call("outer"));
        world.wait(world.call("stuck"));
        drop(world.call("stuck"));
        world.call("stuck").detach();
        world.executor.run_for(ms(10_000));
        world.callee.close(Close::Now);
        world.executor.run_for(ms(10_000));
        world.caller.call_tool("late", Json::empty_object()).unwrap_err();
        let open: Vec<_> = world.recorder.memory.lock().unwrap().spans.iter().filter(|span| span.references > 0).cloned().collect();
        world.recorder.inspected.lock().unwrap().clear();
        sender.send(open).unwrap();
    });
    let open = done.recv_timeout(Duration::from_secs(30)).expect("the subscriber blocks on no lock");
    assert!(open.is_empty(), "every span has been closed: {open:?}");
}

#[test]
fn a_refused_call_leaves_no_exchange_and_no_span_open() {
    let world = world(service().tool(stuck()), ());
    world.executor.run_until_stalled();
    world.caller.close(Close::Now);
    world.caller.call(Invoke::list_tools(None)).unwrap_err();
    let spans = world.recorder.spans("call");
    assert!(spans.iter().all(|span| span.references == 0), "{spans:?}");
    assert_eq!(world.caller.stats().exchanges_out, 0);
    assert_eq!(world.recorder.recorded("call ended").len(), 0);
}

#[test]
fn invocations_that_end_in_their_first_poll_have_a_span_each() {
    let quick = |name: &'static str| {
        let tool = Tool::new(name, |_: Context, (): ()| {
            tracing::info!("within");
            std::future::ready(Ok(()))
        });
        tool.inline()
    };
    let world = world(service().tool(quick("one")).tool(quick("two")), ());
    for name in ["one", "two", "one"] {
        world.wait(world.call(name));
    }
    world.executor.run_until_stalled();
    let spans = world.recorder.spans("invocation");
    let names: Vec<_> = spans.iter().map(|span| (span.fields.get("name"), span.references)).collect();
    assert_eq!(names, [("one", 0), ("two", 0), ("one", 0)]);
    let within: Vec<_> = world.recorder.recorded("within").iter().map(|recorded| recorded.span).collect();
    let answered: Vec<_> = world.recorder.recorded("answered").iter().map(|recorded| recorded.span).collect();
    assert_eq!(within, answered);
    assert!(within[0] < within[1] && within[1] < within[2]);
}

// ---- The counters of a session ----

#[test]
fn frames_and_bytes_are_counted_in_both_directions() {
    let mut server = Scripted::server(server_config());
    let before = server.session.stats();
    let frame = call_tool(1, true);
    let id = server.frame(&frame).request();
    server.report(id, Progress::step(1, 2));
    server.respond(id);
    let sent: usize = server.sent().iter().map(String::len).sum();
    let after = server.session.stats();
    assert_eq!((after.frames_in - before.frames_in, after.bytes_in - before.bytes_in), (1, frame.len() as u64));
    assert_eq!((after.frames_out - before.frames_out, after.bytes_out - before.bytes_out), (2, sent as u64));
}

#[test]
fn progress_that_is_merged_or_dropped_is_counted() {
    let mut server = Scripted::server(with(server_config(), |config| config.progress.window = RateWindow::new(1, ms(1000))));
    let id = server.receive_call(1);
    for value in [1, 2, 3, 4, 4] {
        server.report(id, Progress::step(value, 10));
    }
    let unobserved = {
        server.frame(&call_tool(2, false));
        server.request()
    };
    server.report(unobserved, Progress::step(1, 2));
    let stats = server.session.stats();
    assert_eq!(
        (stats.progress_out_merged, stats.progress_out_dropped),
        (2, 2),
        "3 into 2, 4 into 3; 4 again and one without a token"
    );

    let mut client = Scripted::client(client_config());
    client.call();
    client.drain().frame(&progress(2, 5.0)).frame(&progress(2, 5.0)).frame(&progress(2, 4.0)).frame(&progress(77, 1.0));
    assert_eq!(client.session.stats().progress_in_dropped, 3);
}

#[test]
fn open_exchanges_are_counted_on_both_sides() {
    let open = |end: &Scripted| (end.session.stats().exchanges_out, end.session.stats().exchanges_in);
    let mut client = Scripted::new(client_config());
    assert_eq!(open(&client), (1, 0), "the handshake is open");
    client.call();
    assert_eq!((open(&client), client.session.stats().outbound_calls), ((1, 0), 1), "a held call is not an open exchange yet");

    let mut client = Scripted::client(client_config());
    assert_eq!(open(&client), (0, 0));
    let (one, _two) = (client.call(), client.call());
    client.drain().frame(&testkit::scripted::request(5, "roots/list", "{}"));
    assert_eq!(open(&client), (2, 1));
    client.session.cancel(one, None, client.now).unwrap();
    assert_eq!(open(&client).0, 1);

    let mut server = Scripted::server(server_config());
    let (one, _two) = (server.receive_call(1), server.receive_call(2));
    server.ask(one, protocol_core::InputRequest::Roots);
    assert_eq!(open(&server), (1, 2));
    server.frame(&cancelled(2));
    assert_eq!((open(&server), server.session.stats().cancelled_calls), ((1, 1), 1), "a cancelled call gets no response");
    server.respond(one);
    assert_eq!(open(&server), (0, 0));
}
