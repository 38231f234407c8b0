//! What a developer can see: spans and events of the endpoint, and what a session counts.
//!
//! These tests have a program of their own. Each listens on its own thread, and while there is only one listener, a span that a thread
//! without one is the first to reach is switched off for all.

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
    Sampled, Violation,
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

// ---- A subscriber that remembers ----

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
    references: usize,
    entered: usize,
}

#[derive(Clone, Debug)]
struct Told {
    level: Level,
    target: &'static str,
    fields: Fields,
    /// The span that it belongs to, as an index.
    span: Option<usize>,
}

impl Told {
    fn says(&self, what: &str) -> bool {
        self.fields.get("message") == what
    }
}

#[derive(Default)]
struct Memory {
    spans: Vec<Span>,
    events: Vec<Told>,
    /// The spans that are entered, on the one thread that there is.
    stack: Vec<usize>,
}

/// Remembers everything. Cloning shares it.
#[derive(Clone, Default)]
struct Listener {
    memory: Arc<Mutex<Memory>>,
    /// Whom it asks on each occasion how things stand, to meet a lock that is held.
    nosy: Arc<Mutex<Vec<Peer>>>,
}

impl Listener {
    fn note<T>(&self, note: impl FnOnce(&mut Memory) -> T) -> T {
        for peer in self.nosy.lock().unwrap().iter() {
            let _ = peer.stats();
        }
        note(&mut self.memory.lock().unwrap())
    }

    fn spans(&self, name: &str) -> Vec<Span> {
        self.memory.lock().unwrap().spans.iter().filter(|span| span.name == name).cloned().collect()
    }

    /// Every event with this message.
    fn told(&self, message: &str) -> Vec<Told> {
        self.memory.lock().unwrap().events.iter().filter(|told| told.says(message)).cloned().collect()
    }

    /// The one event with this message.
    #[track_caller]
    fn heard(&self, message: &str) -> Told {
        match &self.told(message)[..] {
            [told] => told.clone(),
            all => panic!("{message:?} was told {} times among {:?}", all.len(), self.memory.lock().unwrap().events),
        }
    }

    fn span_of(&self, told: &Told) -> Option<Span> {
        told.span.map(|index| self.memory.lock().unwrap().spans[index].clone())
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64()).unwrap() - 1
}

impl Subscriber for Listener {
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
            memory.events.push(Told { level, target, fields, span });
        });
    }

    fn enter(&self, span: &Id) {
        self.note(|memory| {
            memory.stack.push(index(span));
            memory.spans[index(span)].entered += 1;
        });
    }

    fn exit(&self, span: &Id) {
        self.note(|memory| assert_eq!(memory.stack.pop(), Some(index(span)), "the last entered is left first"));
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

// ---- Two ends that are listened to ----

struct World {
    listener: Listener,
    executor: Executor,
    caller: Peer,
    callee: Peer,
    _listening: tracing::subscriber::DefaultGuard,
}

fn world(service: Service, client: impl Client) -> World {
    let listener = Listener::default();
    let listening = tracing::subscriber::set_default(listener.clone());
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service), executor.runtime());
    let client = Endpoint::client(Arc::new(client), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
    let (caller, callee) = (client.peer(), server.peer());
    connect(&executor, server, client);
    World { listener, executor, caller, callee, _listening: listening }
}

fn service() -> Service {
    Service::new(Identity::new("service", "1"))
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
fn a_call_and_the_invocation_that_serves_it_have_a_span_each_from_its_beginning_to_its_end() {
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
        let spans = world.listener.spans(name);
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((span.level, span.references, span.entered > 0), (Level::INFO, 0, is_entered), "{span:?}");
        assert_eq!((span.fields.get("op"), span.fields.get("name"), span.fields.get("depth")), ("CallTool", "echo", "0"));
    }
    assert_eq!(world.listener.spans("call")[0].fields.get("id"), id);
    assert!(world.listener.spans("invocation")[0].fields.get("id").starts_with("in-"));
    let ended = world.listener.heard("call ended");
    assert_eq!((ended.level, ended.target, ended.fields.get("outcome")), (Level::DEBUG, "protocol_core", "result"));
    assert_eq!(world.listener.span_of(&ended).unwrap().name, "call");
    let answered = world.listener.heard("answered");
    assert_eq!((answered.level, answered.fields.get("answer")), (Level::DEBUG, "result"));
    assert_eq!(world.listener.span_of(&answered).unwrap().name, "invocation");
}

#[test]
fn the_span_of_an_invocation_names_the_trace_that_its_caller_belongs_to() {
    let world = world(service().tool(Tool::new("echo", async |_: Context, (): ()| Ok(()))), ());
    let meta = Json::parse(r#"{"traceparent":"00-1-2-01","tracestate":"a=b","baggage":"k=v"}"#).unwrap();
    world.wait(world.caller.call(Invoke::call_tool("echo", Json::empty_object()).with_meta(meta)).unwrap());
    world.wait(world.call("echo"));
    let spans = world.listener.spans("invocation");
    for (name, value) in [("traceparent", "00-1-2-01"), ("tracestate", "a=b"), ("baggage", "k=v")] {
        assert_eq!((spans[0].fields.get(name), spans[1].fields.get(name)), (value, ""), "{name}");
    }
}

#[test]
fn what_a_handler_tells_itself_lies_in_the_span_of_its_invocation_and_nothing_else_does() {
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
    for told in world.listener.told("before").into_iter().chain(world.listener.told("after")) {
        let span = world.listener.span_of(&told).expect("a span");
        assert_eq!((span.name, span.fields.get("name")), ("invocation", told.fields.get("name")));
    }
    assert_eq!(world.listener.heard("outside").span, None);
}

/// Answers a sampling by calling the tool `inner` on its behalf.
struct Agent;

impl Client for Agent {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.sampling = true;
        capabilities
    }

    fn sample(&self, asked: InputContext, _: Sample) -> BoxFuture<'static, Result<Sampled, RpcError>> {
        Box::pin(async move {
            let call = asked.call_tool("inner", Json::empty_object()).map_err(|error| RpcError::internal(error.to_string()))?;
            tracing::info!("answering");
            call.await;
            Ok(Sampled::new("so", "m"))
        })
    }
}

#[test]
fn spans_tell_how_deep_sampling_is_nested_and_a_question_has_one_too() {
    let outer = Tool::new("outer", async |context: Context, (): ()| Ok(context.sample(Sample::new("?")).await?.text));
    let inner = Tool::new("inner", async |_: Context, (): ()| Ok(()));
    let world = world(service().tool(outer).tool(inner), Agent);
    let call = world.call("outer");
    let id = call.id().to_string();
    world.wait(call);
    for name in ["call", "invocation"] {
        let depths: Vec<_> = world.listener.spans(name).iter().map(|span| span.fields.clone()).collect();
        let depths: Vec<_> = depths.iter().map(|fields| (fields.get("name"), fields.get("depth"))).collect();
        assert_eq!(depths, [("outer", "0"), ("inner", "1")], "{name}");
    }
    let questions = world.listener.spans("question");
    let [question] = &questions[..] else { panic!("{questions:?}") };
    let fields = &question.fields;
    assert_eq!((fields.get("ask"), fields.get("depth"), fields.get("parent")), ("sample", "1", id.as_str()));
    let answering = world.listener.heard("answering");
    assert_eq!(world.listener.span_of(&answering).unwrap().name, "question");
}

#[test]
fn progress_and_values_that_are_refused_are_warned_of_with_the_reason() {
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
    let refused = world.listener.heard("progress refused");
    assert_eq!((refused.level, refused.fields.get("error")), (Level::WARN, "progress must be a finite number"));
    let span = world.listener.span_of(&refused).expect("a span");
    assert_eq!((span.fields.get("name"), span.fields.get("id")), ("bad", refused.fields.get("id")));
    let values: Vec<_> = world.listener.told("value refused").iter().map(|told| told.fields.get("error").to_owned()).collect();
    assert_eq!(values, ["a checkpoint must be a JSON object", "a log record that has no JSON"]);
}

#[test]
fn a_cancel_is_told_with_its_reason_and_what_comes_after_it_is_told_as_late() {
    let slow = Tool::new("slow", async |context: Context, (): ()| {
        context.cancelled().await;
        context.count(1, 2);
        Ok(())
    });
    let world = world(service().tool(slow), ());
    let call = world.call("slow");
    world.executor.run_for(ms(10));
    call.cancel(Some("no\nlonger wanted"));
    world.wait(call);
    world.executor.run_until_stalled();
    let cancelled = world.listener.heard("cancelled");
    assert_eq!((cancelled.level, cancelled.fields.get("why")), (Level::DEBUG, "the caller cancelled the call"));
    assert_eq!(cancelled.fields.get("reason"), r#""no\nlonger wanted""#, "a peer breaks no lines in a log");
    let late = world.listener.heard("late answer dropped");
    assert_eq!((late.level, late.fields.get("answer")), (Level::DEBUG, "result"));
    for told in [&cancelled, &late] {
        assert_eq!(world.listener.span_of(told).expect("a span").fields.get("name"), "slow");
    }
    assert_eq!(world.listener.told("progress refused").len(), 0, "one that comes too late is nobody's fault");
    assert_eq!(world.listener.heard("call ended").fields.get("outcome"), "cancelled");
}

#[test]
fn a_handler_that_is_given_up_after_its_grace_is_warned_of() {
    let world = world(service().tool(stuck().deadline(ms(100))), ());
    world.wait(world.call("stuck"));
    assert_eq!(world.listener.heard("cancelled").fields.get("why"), "the call's deadline has passed");
    assert_eq!(world.listener.told("given up while it was still running").len(), 0);
    world.executor.run_for(ms(5000));
    let given_up = world.listener.heard("given up while it was still running");
    assert_eq!(given_up.level, Level::WARN);
    assert_eq!(world.listener.span_of(&given_up).expect("a span").fields.get("name"), "stuck");
    assert_eq!(world.listener.heard("late answer dropped").fields.get("answer"), "error");
}

/// Panics over every log record.
struct Nervous;

impl Client for Nervous {
    fn log(&self, _: LogRecord) {
        panic!("a record");
    }
}

#[test]
fn panics_of_handlers_blocking_ones_and_clients_are_errors_with_their_message() {
    let panics = Tool::new("panics", async |_: Context, (): ()| -> Result<(), ToolError> { panic!("planned: {}", 1) });
    let blocks = Tool::blocking("blocks", |_: Context, (): ()| -> Result<(), ToolError> { panic!("planned") });
    let logs = Tool::new("logs", async |context: Context, (): ()| {
        context.log(LogLevel::Error, "x");
        Ok(())
    });
    let world = world(service().tool(panics).tool(blocks).tool(logs), Nervous);
    for (name, message) in [("panics", "planned: 1"), ("blocks", "planned"), ("logs", "a record")] {
        world.wait(world.call(name));
        let told = world.listener.told("panicked");
        let last = told.last().expect("it is told");
        assert_eq!((last.level, last.fields.get("panic")), (Level::ERROR, message));
        let span = world.listener.span_of(last).map(|span| span.fields.get("name").to_owned());
        assert_eq!(span, (name != "logs").then(|| name.to_owned()));
    }
    assert_eq!(world.listener.told("panicked").len(), 3);
}

/// A server whose client is the test.
fn served(service: Service) -> (Listener, tracing::subscriber::DefaultGuard, Executor, Pipe) {
    let listener = Listener::default();
    let listening = tracing::subscriber::set_default(listener.clone());
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
    (listener, listening, executor, near)
}

#[test]
fn a_rule_that_the_peer_breaks_is_warned_of_by_its_name() {
    let (listener, _listening, executor, mut near) = served(service().tool(stuck()));
    near.send(result(99).into()).unwrap();
    executor.run_until_stalled();
    let told = listener.heard("the peer broke a rule");
    assert_eq!((told.level, told.fields.get("rule")), (Level::WARN, Violation::UnknownResponse.as_str()));
}

#[test]
fn the_end_is_told_with_its_reason() {
    let world = world(service().tool(stuck()), ());
    world.executor.run_until_stalled();
    world.caller.close(Close::Now);
    world.executor.run_for(ms(1));
    let told: Vec<_> =
        world.listener.told("closed").iter().map(|told| (told.level, told.fields.get("reason").to_owned())).collect();
    assert_eq!(told, [(Level::INFO, "closed by this end".to_owned()), (Level::INFO, "the peer ended the connection".to_owned())]);
    drop(world);
    let (listener, _listening, executor, _near) = served(service());
    // The driver goes, and its endpoint with it.
    executor.shutdown();
    let failed = listener.heard("closed");
    assert_eq!((failed.level, failed.fields.get("reason")), (Level::WARN, "the transport failed"));
}

#[test]
fn a_handshake_that_the_peer_refuses_is_warned_of_with_its_error() {
    let listener = Listener::default();
    let _listening = tracing::subscriber::set_default(listener.clone());
    let executor = Executor::new();
    let client = Endpoint::client(Arc::new(()), client_config(), executor.runtime());
    let peer = client.peer();
    let (mut near, far) = pipe();
    let mut driver = protocol_core::drive::Driver::new(client, far, executor.timer());
    executor.spawn(async move { while let Ok(Some(_)) = driver.next_event().await {} });
    near.send(testkit::scripted::error(1, -32000, "not today").into()).unwrap();
    executor.run_until_stalled();
    let told = listener.heard("the peer refused the handshake");
    assert_eq!((told.level, told.fields.get("code"), told.fields.get("error")), (Level::WARN, "-32000", "not today"));
    assert_eq!(peer.refusal(), Some(RpcError::new(-32000, "not today")));
}

#[test]
fn words_of_the_peer_are_told_only_up_to_a_bound() {
    let (listener, _listening, executor, mut near) = served(service().tool(stuck()));
    let name = "é".repeat(10_000);
    near.send(testkit::scripted::request(1, "tools/call", &format!(r#"{{"name":"{name}"}}"#)).into()).unwrap();
    executor.run_until_stalled();
    assert_eq!(listener.spans("invocation")[0].fields.get("name"), "é".repeat(200));
}

#[test]
fn a_subscriber_that_looks_at_the_peers_on_every_occasion_meets_no_lock() {
    let (tell, done) = channel();
    // Whoever meets the lock waits for ever, so it is a thread that nobody has to wait for.
    thread::spawn(move || {
        let outer = Tool::new("outer", async |context: Context, (): ()| {
            context.count(1, 2);
            context.percent(f64::INFINITY);
            context.log(LogLevel::Error, "x");
            context.checkpoint(&1);
            Ok(context.sample(Sample::new("?")).await?.text)
        });
        let inner = Tool::new("inner", async |_: Context, (): ()| -> Result<(), ToolError> { panic!("planned") });
        let world = world(service().tool(outer).tool(inner).tool(stuck().deadline(ms(10))), Agent);
        world.listener.nosy.lock().unwrap().extend([world.caller.clone(), world.callee.clone()]);
        world.wait(world.call("outer"));
        world.wait(world.call("stuck"));
        drop(world.call("stuck"));
        world.call("stuck").detach();
        world.executor.run_for(ms(10_000));
        world.callee.close(Close::Now);
        world.executor.run_for(ms(10_000));
        world.caller.call_tool("late", Json::empty_object()).unwrap_err();
        let open: Vec<_> = world.listener.memory.lock().unwrap().spans.iter().filter(|span| span.references > 0).cloned().collect();
        world.listener.nosy.lock().unwrap().clear();
        tell.send(open).unwrap();
    });
    let open = done.recv_timeout(Duration::from_secs(30)).expect("it meets no lock");
    assert!(open.is_empty(), "every span has been closed: {open:?}");
}

// ---- What a session counts ----

#[test]
fn frames_and_bytes_are_counted_in_both_directions() {
    let mut server = Scripted::server(server_config());
    let before = server.session.stats();
    let frame = call_tool(1, true);
    let id = server.frame(&frame).request();
    server.report(id, Progress::count(1, 2));
    server.respond(id);
    let sent: usize = server.sent().iter().map(String::len).sum();
    let after = server.session.stats();
    assert_eq!((after.frames_in - before.frames_in, after.bytes_in - before.bytes_in), (1, frame.len() as u64));
    assert_eq!((after.frames_out - before.frames_out, after.bytes_out - before.bytes_out), (2, sent as u64));
}

#[test]
fn violations_are_counted_by_their_rule() {
    let mut client = Scripted::client(client_config());
    client.frame(&result(99)).frame(&result(98)).frame("{");
    let stats = client.session.stats();
    assert_eq!((stats.violations(Violation::UnknownResponse), stats.violations(Violation::NotJson)), (2, 1));
    let total: u64 = Violation::ALL.iter().map(|rule| stats.violations(*rule)).sum();
    assert_eq!(total, 3, "and under no other rule");
}

#[test]
fn progress_is_counted_where_it_is_merged_left_out_or_dropped() {
    let mut server = Scripted::server(with(server_config(), |config| config.progress.window = RateWindow::new(1, ms(1000))));
    let id = server.receive_call(1);
    for value in [1, 2, 3, 4, 4] {
        server.report(id, Progress::count(value, 10));
    }
    let unobserved = {
        server.frame(&call_tool(2, false));
        server.request()
    };
    server.report(unobserved, Progress::count(1, 2));
    let stats = server.session.stats();
    assert_eq!((stats.progress_coalesced, stats.progress_left_out), (2, 2), "3 into 2, 4 into 3; 4 again and one without a token");

    let mut client = Scripted::client(client_config());
    client.call();
    client.drain().frame(&progress(2, 5.0)).frame(&progress(2, 5.0)).frame(&progress(2, 4.0)).frame(&progress(77, 1.0));
    assert_eq!(client.session.stats().progress_dropped, 3);
}

#[test]
fn what_comes_after_the_end_of_its_call_is_counted_as_late() {
    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.drain();
    client.session.cancel(call, None, client.now).unwrap();
    client.frame(&progress(2, 1.0)).frame(&result(2));
    let stats = client.session.stats();
    assert_eq!((stats.late_frames, stats.violations(Violation::UnknownResponse)), (2, 0));
}

#[test]
fn open_exchanges_are_counted_on_both_sides() {
    let open = |end: &Scripted| (end.session.stats().exchanges_out, end.session.stats().exchanges_in);
    let mut client = Scripted::new(client_config());
    assert_eq!(open(&client), (1, 0), "the handshake");
    client.call();
    assert_eq!((open(&client), client.session.stats().outbound_calls), ((1, 0), 1), "a call that is held is none yet");

    let mut client = Scripted::client(client_config());
    assert_eq!(open(&client), (0, 0));
    let (one, _two) = (client.call(), client.call());
    client.drain().frame(&testkit::scripted::request(5, "roots/list", "{}"));
    assert_eq!(open(&client), (2, 1));
    client.session.cancel(one, None, client.now).unwrap();
    assert_eq!(open(&client).0, 1);

    let mut server = Scripted::server(server_config());
    let (one, _two) = (server.receive_call(1), server.receive_call(2));
    server.ask(one, protocol_core::Ask::Roots);
    assert_eq!(open(&server), (1, 2));
    server.frame(&cancelled(2));
    assert_eq!((open(&server), server.session.stats().orphans), ((1, 1), 1), "a cancelled one gets no response");
    server.respond(one);
    assert_eq!(open(&server), (0, 0));
}

#[test]
fn an_invoke_that_is_refused_opens_nothing() {
    let world = world(service().tool(stuck()), ());
    world.executor.run_until_stalled();
    world.caller.close(Close::Now);
    world.caller.call(Invoke::list_tools(None)).unwrap_err();
    let spans = world.listener.spans("call");
    assert!(spans.iter().all(|span| span.references == 0), "{spans:?}");
    assert_eq!(world.caller.stats().exchanges_out, 0);
    assert_eq!(world.listener.told("call ended").len(), 0);
}

#[test]
fn invocations_that_are_over_at_once_have_a_span_each() {
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
    let spans = world.listener.spans("invocation");
    let names: Vec<_> = spans.iter().map(|span| (span.fields.get("name"), span.references)).collect();
    assert_eq!(names, [("one", 0), ("two", 0), ("one", 0)]);
    let within: Vec<_> = world.listener.told("within").iter().map(|told| told.span).collect();
    let answered: Vec<_> = world.listener.told("answered").iter().map(|told| told.span).collect();
    assert_eq!(within, answered);
    assert!(within[0] < within[1] && within[1] < within[2]);
}
