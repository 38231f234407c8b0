//! The program whose instructions `scripts/instructions` counts: it handles COUNT messages of one kind, with serde_json alone (`floor`) or
//! with a whole session (`session`).
//!
//! ```text
//! instructions [stateless-]KIND floor|session COUNT
//! ```
//!
//! `stateless-` before a request or a response chooses messages of MCP 2026-07-28: such a request names its caller, and such a result names
//! its server.
//!
//! The preparation is the same for every COUNT. So two runs with different COUNTs differ only by the instructions for the additional
//! messages. The number of instructions depends neither on the time nor on the load of the machine.

use std::hint::black_box;
use std::process::exit;
use std::sync::Arc;

use bytes::Bytes;
use protocol_core::lines::LineDecoder;
use protocol_core::mcp::Era;
use protocol_core::{
    Config, Event, Identity, InboundId, Instant, Invoke, Json, Lane, Op, Progress, RateWindow, Reply, Session, Text, ToolOutput,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The maximum COUNT, and the number of messages that each run is prepared for.
const MOST: u64 = 2_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, how, count] = &arguments[..] else { usage() };
    let (name, era) = kind.strip_prefix("stateless-").map_or((kind.as_str(), Era::Legacy), |name| (name, Era::Modern));
    let Some((_, kind)) = KINDS.into_iter().find(|(other, _)| *other == name) else { usage() };
    if era == Era::Modern && !matches!(kind, Kind::RequestIn | Kind::RequestOut | Kind::ResponseIn | Kind::ResponseOut) {
        usage();
    }
    let Ok(count @ 0..=MOST) = count.parse() else { usage() };
    match how.as_str() {
        "floor" => floor(kind, era, count),
        "session" => session(kind, era, count),
        _ => usage(),
    }
    // Exits without dropping the messages that were prepared and not used, since the drops would be counted.
    exit(0);
}

fn usage() -> ! {
    let kinds = KINDS.map(|(name, _)| name).join("|");
    eprintln!("usage: instructions [stateless-]{kinds} floor|session COUNT, at most {MOST}");
    exit(2)
}

#[derive(Clone, Copy)]
enum Kind {
    RequestIn,
    ResponseIn,
    ProgressIn,
    CancelIn,
    RequestOut,
    ResponseOut,
    ProgressOut,
    Life,
}

const KINDS: [(&str, Kind); 8] = [
    ("request-in", Kind::RequestIn),
    ("response-in", Kind::ResponseIn),
    ("progress-in", Kind::ProgressIn),
    ("cancel-in", Kind::CancelIn),
    ("request-out", Kind::RequestOut),
    ("response-out", Kind::ResponseOut),
    ("progress-out", Kind::ProgressOut),
    // A session instead of a message: made from a shared configuration, with a handshake, one request and its response; then dropped.
    ("life", Kind::Life),
];

const HANDSHAKE: [&str; 2] = [
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"client","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
];

const PARAMS: &str = r#"{"name":"long_running","arguments":{"steps":20,"step_ms":100,"label":"a label"}}"#;
const STRUCTURED: &str = r#"{"steps":20,"notified":true,"done":true}"#;

/// The members of `_meta` by which a stateless request names its caller.
const CALLER: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"instructions","version":"1"},"#;
/// The member `_meta` by which a stateless result names its server.
const SERVER: &str = r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"instructions","version":"1"}}"#;

/// A message as it is on the wire. `number` is the id and the progress token of a request, the id in a response or a cancel, or the value
/// of progress.
fn text(kind: Kind, era: Era, number: u64) -> String {
    let is_stateless = era == Era::Modern;
    let (caller, result_type, server) = if is_stateless { (CALLER, r#""resultType":"complete","#, SERVER) } else { ("", "", "") };
    match kind {
        Kind::RequestIn | Kind::RequestOut | Kind::Life => {
            let params = PARAMS.trim_end_matches('}');
            format!(
                r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}},"_meta":{{{caller}"progressToken":{number}}}}}}}"#
            )
        }
        Kind::ResponseIn | Kind::ResponseOut => {
            let content = STRUCTURED.replace('"', r#"\""#);
            format!(
                r#"{{"jsonrpc":"2.0","id":{number},"result":{{{result_type}"content":[{{"type":"text","text":"{content}"}}],"structuredContent":{STRUCTURED}{server}}}}}"#
            )
        }
        Kind::ProgressIn | Kind::ProgressOut => format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":2,"progress":{number},"total":100000,"message":"a step of many"}}}}"#
        ),
        Kind::CancelIn => format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number},"reason":"no longer wanted"}}}}"#
        ),
    }
}

/// Frames as an adapter makes them: parts of buffers with many frames each.
fn frames_of(texts: impl Iterator<Item = String>) -> Vec<Bytes> {
    let lines: String = texts.map(|text| text + "\n").collect();
    let mut decoder = LineDecoder::new(1 << 20);
    let mut frames = Vec::new();
    for read in lines.as_bytes().chunks(4096) {
        decoder.feed(read);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    frames
}

#[derive(Deserialize, Serialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: &'a str,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

fn envelope(frame: &[u8]) -> Envelope<'_> {
    serde_json::from_slice(frame).unwrap()
}

/// Reads or writes `count` envelopes with serde_json alone: the least that any program must do. The members are borrowed from the frames.
fn floor(kind: Kind, era: Era, count: u64) {
    if let Kind::Life = kind {
        return floor_of_life(count);
    }
    let frames = frames(kind, era);
    let writes = matches!(kind, Kind::RequestOut | Kind::ResponseOut | Kind::ProgressOut);
    let envelopes: Vec<Envelope<'_>> = frames.iter().map(|frame| envelope(frame)).collect();
    for (frame, message) in frames.iter().zip(&envelopes).take(count as usize) {
        if writes {
            black_box(serde_json::to_vec(black_box(message)).unwrap());
        } else {
            black_box(envelope(black_box(frame)));
        }
    }
}

/// Does the work of the floor for `count` whole sessions: for each, reads the envelopes of the three frames that arrive, and writes those
/// of the two that leave.
fn floor_of_life(count: u64) {
    let request = text(Kind::RequestIn, Era::Legacy, 1);
    let (handshake_result, response) = (
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"instructions","version":"1"}}}"#,
        text(Kind::ResponseOut, Era::Legacy, 1),
    );
    let answers = [handshake_result, &response].map(|frame| envelope(frame.as_bytes()));
    for _ in 0..count {
        for frame in HANDSHAKE.into_iter().chain([&*request]) {
            black_box(envelope(black_box(frame.as_bytes())));
        }
        for answer in &answers {
            black_box(serde_json::to_vec(black_box(answer)).unwrap());
        }
    }
}

/// Does the whole work of a session for `count` messages: handles each frame that arrives and polls its event, or makes each message that
/// leaves and polls its frame.
fn session(kind: Kind, era: Era, count: u64) {
    let (mut client, mut server) = ready_pair(era);
    let now = Instant::from_millis(1);
    match kind {
        Kind::RequestIn => take_each(&mut server, frames(kind, era), count),
        Kind::ResponseIn => {
            let ids = (0..MOST).map(|_| {
                client.invoke(call(), now).unwrap();
                number_of(&client.poll_transmit().unwrap().frame)
            });
            let answers = ids.collect::<Vec<_>>().into_iter().map(|id| text(kind, era, id));
            take_each(&mut client, frames_of(answers), count);
        }
        Kind::ProgressIn => {
            client.invoke(call(), now).unwrap();
            assert_eq!(number_of(&client.poll_transmit().unwrap().frame), 2, "the token that the text has");
            take_each(&mut client, frames(kind, era), count);
        }
        Kind::CancelIn => {
            requests(&mut server, era);
            take_each(&mut server, frames(kind, era), count);
        }
        Kind::RequestOut => {
            let call = call();
            for _ in 0..count {
                client.invoke(call.clone(), now).unwrap();
                black_box(client.poll_transmit().unwrap());
            }
        }
        Kind::ResponseOut => {
            let output = ToolOutput::structured(Json::parse(STRUCTURED).unwrap());
            let mut answers =
                requests(&mut server, era).into_iter().map(|id| (id, Reply::Tool(output.clone()))).collect::<Vec<_>>().into_iter();
            for (id, answer) in answers.by_ref().take(count as usize) {
                server.respond(id, answer, now).unwrap();
                black_box(server.poll_transmit().unwrap());
            }
            std::mem::forget(answers);
        }
        Kind::Life => {
            let config = Arc::new(server.config().clone());
            let output = ToolOutput::structured(Json::parse(STRUCTURED).unwrap());
            let frames = HANDSHAKE.map(|text| Bytes::from_static(text.as_bytes()));
            let request = Bytes::from(text(Kind::RequestIn, Era::Legacy, 1));
            for _ in 0..count {
                let mut session = Session::new(Arc::clone(&config), now);
                for frame in frames.iter().chain([&request]) {
                    session.handle_frame(frame.clone(), Lane::CHANNEL, now).unwrap();
                }
                while let Some(event) = session.poll_event() {
                    if let Event::Request { id, .. } = event {
                        session.respond(id, Reply::Tool(output.clone()), now).unwrap();
                    }
                }
                while let Some(out) = session.poll_transmit() {
                    black_box(out);
                }
            }
        }
        Kind::ProgressOut => {
            let id = requests(&mut server, era)[0];
            let words = Text::from_static("a step of many");
            for step in 1..=count {
                server.progress(id, Progress::step(step, 100_000).with_message(words.clone()), now).unwrap();
                black_box(server.poll_transmit().unwrap());
            }
        }
    }
}

fn frames(kind: Kind, era: Era) -> Vec<Bytes> {
    frames_of((1..=MOST).map(|number| text(kind, era, number)))
}

fn take_each(session: &mut Session, frames: Vec<Bytes>, count: u64) {
    let now = Instant::from_millis(2);
    let mut frames = frames.into_iter();
    for frame in frames.by_ref().take(count as usize) {
        session.handle_frame(frame, Lane::CHANNEL, now).unwrap();
        black_box(session.poll_event().unwrap());
    }
    std::mem::forget(frames);
}

/// Passes [`MOST`] requests to the server, and returns the ids of their calls, which stay open.
fn requests(server: &mut Session, era: Era) -> Vec<InboundId> {
    let take = |frame| {
        server.handle_frame(frame, Lane::CHANNEL, Instant::ZERO).unwrap();
        let Some(Event::Request { id, .. }) = server.poll_event() else { panic!("a request") };
        id
    };
    frames(Kind::RequestIn, era).into_iter().map(take).collect()
}

fn number_of(frame: &[u8]) -> u64 {
    envelope(frame).id.unwrap().get().parse().unwrap()
}

fn call() -> Invoke {
    Invoke::new(Op::CallTool, Json::parse(PARAMS).unwrap())
}

/// A client and a server of the era `era`, after the handshake or the probe, with room for all messages and no limit on the rate of
/// progress.
fn ready_pair(era: Era) -> (Session, Session) {
    let identity = || Identity::new("instructions", "1");
    let (mut client, mut server) = (Config::mcp_client(identity()), Config::mcp_server(identity()));
    for config in [&mut client, &mut server] {
        config.era = era;
        config.limits.in_flight = 2 * MOST as usize;
        config.progress.window = RateWindow::UNLIMITED;
    }
    let (mut client, mut server) = (Session::new(client, Instant::ZERO), Session::new(server, Instant::ZERO));
    for _ in 0..2 {
        while let Some(out) = client.poll_transmit() {
            server.handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).unwrap();
        }
        while let Some(out) = server.poll_transmit() {
            client.handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).unwrap();
        }
    }
    while client.poll_event().is_some() || server.poll_event().is_some() {}
    // A server is ready after a handshake, so a server without one never is.
    assert!(client.is_ready() && server.is_ready() == (era == Era::Legacy));
    (client, server)
}
