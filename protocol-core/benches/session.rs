//! Benchmarks of a session, each with a *floor* for comparison: the time in which serde_json parses the same bytes, in the same run.
//!
//! `parse` is the floor: serde_json checks the syntax of a frame, and borrows the members of the envelope from it. `session` is the whole
//! work of a session: it reads and checks the frame, finds its call, and returns an event; for a request it also writes the response.
//! Compare `session` with `parse` of the same run, and not with `session` of another run. In the group `round trip`, `session` is the work
//! of both ends, and its floor is `parse of both frames`.

use std::hint::black_box;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use protocol_core::{
    CallTimeouts, Config, Event, Identity, Instant, Invoke, Json, Lane, Op, Progress, RateWindow, Reply, Session, ToolOutput,
};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// The floor of a frame: parses the frame with serde_json alone. The length is returned so that the compiler keeps the parse.
fn parse(frame: &[u8]) -> usize {
    let envelope: Envelope<'_> = serde_json::from_slice(black_box(frame)).unwrap();
    let length = |raw: Option<&RawValue>| raw.map_or(0, |raw| raw.get().len());
    envelope.jsonrpc.len()
        + envelope.method.map_or(0, str::len)
        + length(envelope.id)
        + length(envelope.params)
        + length(envelope.result)
}

fn ready_pair() -> (Session, Session) {
    let mut config = Config::mcp_server(Identity::new("server", "1"));
    config.progress.window = RateWindow::UNLIMITED;
    let now = Instant::ZERO;
    let mut client = Session::new(Config::mcp_client(Identity::new("client", "1")), now);
    let mut server = Session::new(config, now);
    for _ in 0..4 {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
    }
    while client.poll_event().is_some() || server.poll_event().is_some() {}
    assert!(client.is_ready() && server.is_ready());
    (client, server)
}

fn carry(from: &mut Session, to: &mut Session) {
    while let Some(out) = from.poll_transmit() {
        to.handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).unwrap();
    }
}

fn call() -> Invoke {
    Invoke::new(
        Op::CallTool,
        Json::parse(r#"{"name":"long_running","arguments":{"steps":20,"step_ms":100,"label":"a label"}}"#).unwrap(),
    )
}

/// A frame as an adapter makes it: a part of a read buffer, so that a slice of it costs no allocation.
fn frame(text: &str) -> Bytes {
    let mut buffer = BytesMut::from(text.as_bytes());
    buffer.extend_from_slice(b"\n");
    buffer.split_to(text.len()).freeze()
}

fn request(criterion: &mut Criterion) {
    // Each id has seven digits, the first of which is 1, since a number in JSON must not begin with 0.
    let text = |id: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id:07},"method":"tools/call","params":{{"name":"long_running","arguments":{{"steps":20,"step_ms":100}},"_meta":{{"progressToken":12345}}}}}}"#
        )
        .replace(r#""id":0"#, r#""id":1"#)
    };
    let mut group = criterion.benchmark_group("request");
    group.throughput(Throughput::Elements(1));
    let bytes = text(1);
    group.bench_function("parse", |bench| bench.iter(|| parse(bytes.as_bytes())));
    let (_, mut server) = ready_pair();
    let mut id = 0;
    group.bench_function("session", |bench| {
        bench.iter_batched(
            || {
                id += 1;
                frame(&text(id % 1_000_000))
            },
            |frame| {
                server.handle_frame(frame, Lane::CHANNEL, Instant::ZERO).unwrap();
                let event = server.poll_event();
                // Ends the call, so that the table of calls does not grow.
                if let Some(Event::Request { id, .. }) = &event {
                    server.respond(*id, Reply::Raw(Json::empty_object()), Instant::ZERO).unwrap();
                    black_box(server.poll_transmit());
                }
                event
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn response(criterion: &mut Criterion) {
    let text = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{{\"steps\":20,\"done\":true}}"}}],"structuredContent":{{"steps":20,"done":true}}}}}}"#
        )
    };
    let mut group = criterion.benchmark_group("response");
    group.throughput(Throughput::Elements(1));
    let bytes = text("12345");
    group.bench_function("parse", |bench| bench.iter(|| parse(bytes.as_bytes())));
    group.bench_function("session", |bench| {
        bench.iter_batched_ref(
            || {
                // A session for each iteration: the setup and the measured closure cannot both borrow one session.
                let (mut client, _) = ready_pair();
                let id = client.invoke(call(), Instant::ZERO).unwrap();
                client.poll_transmit().unwrap();
                let frame = frame(&text(id.to_string().trim_start_matches("out-")));
                (client, frame)
            },
            |(client, frame)| {
                client.handle_frame(frame.clone(), Lane::CHANNEL, Instant::ZERO).unwrap();
                client.poll_event()
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn progress(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("progress");
    group.throughput(Throughput::Elements(1));
    // The handshake has the id 1. So the call has the id 2, which is also its progress token.
    let text = |value: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":2,"progress":{value},"total":100000000,"message":"step of many steps"}}}}"#
        )
    };
    let bytes = text(1);
    group.bench_function("parse", |bench| bench.iter(|| parse(bytes.as_bytes())));
    let (mut client, _) = ready_pair();
    let timeouts = CallTimeouts::NONE
        .with_idle(Some(Duration::from_secs(60)))
        .with_max_total(Some(Duration::from_secs(600)))
        .with_reset_on_progress(true);
    client.invoke(call().with_timeouts(timeouts), Instant::ZERO).unwrap();
    client.poll_transmit().unwrap();
    let mut value = 0;
    group.bench_function("session", |bench| {
        bench.iter_batched(
            || {
                value += 1;
                (value, frame(&text(value)))
            },
            |(now, frame)| {
                client.handle_frame(frame, Lane::CHANNEL, Instant::from_micros(now)).unwrap();
                let event = client.poll_event();
                assert!(matches!(event, Some(Event::Progress { .. })));
                event
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("round trip");
    group.throughput(Throughput::Elements(1));
    let (mut client, mut server) = ready_pair();
    let call = call();
    let output = ToolOutput::structured(Json::parse(r#"{"steps":20,"notified":true,"done":true}"#).unwrap());
    let mut trip = |updates: u64| {
        client.invoke(call.clone(), Instant::ZERO).unwrap();
        carry(&mut client, &mut server);
        let Some(Event::Request { id, .. }) = server.poll_event() else { panic!("a request") };
        for step in 1..=updates {
            server.progress(id, Progress::step(step, updates), Instant::ZERO).unwrap();
        }
        server.respond(id, Reply::Tool(output.clone()), Instant::ZERO).unwrap();
        carry(&mut server, &mut client);
        let mut events = 0;
        while client.poll_event().is_some() {
            events += 1;
        }
        assert_eq!(events, updates + 1);
    };
    group.bench_function("session", |bench| bench.iter(|| trip(0)));
    group.throughput(Throughput::Elements(101));
    group.bench_function("session, 100 updates", |bench| bench.iter(|| trip(100)));
    let request = r#"{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"long_running","arguments":{"steps":20,"step_ms":100,"label":"a label"},"_meta":{"progressToken":12345}}}"#;
    let response = r#"{"jsonrpc":"2.0","id":12345,"result":{"content":[{"type":"text","text":"{\"steps\":20,\"notified\":true,\"done\":true}"}],"structuredContent":{"steps":20,"notified":true,"done":true}}}"#;
    group.throughput(Throughput::Elements(1));
    group.bench_function("parse of both frames", |bench| bench.iter(|| parse(request.as_bytes()) + parse(response.as_bytes())));
    group.finish();
}

criterion_group!(benches, request, response, progress, round_trip);
criterion_main!(benches);
