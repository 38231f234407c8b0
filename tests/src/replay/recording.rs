//! Recorded traffic: the frames of each *hop*, the connections between two programs, as the two ends of the hop sent and received them. The
//! format and the names of the programs are in `tests/traces/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use protocol_core::Instant;
use serde_json::Value;

/// The hops of the recordings: the caller, the callee, and their protocol.
const HOPS: [(&str, &str, Protocol); 6] = [
    ("agent", "gw", Protocol::Mcp),
    ("client", "server", Protocol::Mcp),
    ("gw", "app", Protocol::Tesseron),
    ("rawgw", "app", Protocol::Tesseron),
    ("host", "sdk", Protocol::Tesseron),
    ("host", "tab", Protocol::Tesseron),
];

/// The protocol of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MCP over stdio.
    Mcp,
    /// Tesseron.
    Tesseron,
}

/// One end of one hop of one recording.
#[derive(Clone, Debug)]
pub struct RecordedEnd {
    /// The end and its hop, in the form `gw of gw<->app`.
    pub end: String,
    /// The protocol of the hop.
    pub protocol: Protocol,
    /// `true` if this end is the caller.
    pub calls: bool,
    /// Its connections, one after the other.
    pub channels: Vec<Channel>,
}

/// One connection.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// The last claim code that the app showed before the connection began, if it showed one and the connection is over a Unix socket.
    pub code: Option<String>,
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// `true` if the previous connection may end after the beginning of this one.
    overlaps: bool,
}

/// One event at an end of a connection. It is not a turn of a driver.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The time since the recording began.
    pub at: Instant,
    /// The kind of the turn, with its frame.
    pub what: TurnKind,
}

/// The kind of a turn, from the view of one end.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnKind {
    /// A frame arrived.
    Received(Value),
    /// The end sent a frame.
    Sent(Value),
    /// The peer ended its side, or the connection was cut.
    PeerEnded,
    /// The end closed the connection.
    Ended,
}

/// One line of a recording. `from` and `to` are the programs in its member `dir`; `to` is empty if `dir` names only one.
struct Record {
    from: String,
    to: String,
    at: Instant,
    line: Value,
}

impl Record {
    fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let (from, to) = line["dir"].as_str()?.split_once("->").unwrap_or((line["dir"].as_str()?, ""));
        let micros = line["t_ms"].as_f64()? * 1000.0;
        Some(Self { from: from.to_owned(), to: to.to_owned(), at: Instant::from_micros(micros as u64), line })
    }

    fn event(&self) -> Option<&str> {
        self.line.get("ev")?.as_str()
    }

    /// The kind of the turn at `end`; `None` if the record is no turn, such as the beginning of a connection or a note.
    fn what(&self, end: &str) -> Option<TurnKind> {
        let own = self.from == end;
        match self.event() {
            None => {
                let frame = self.line.get("msg")?.clone();
                Some(if own { TurnKind::Sent(frame) } else { TurnKind::Received(frame) })
            }
            // Neither end has closed a connection that was cut.
            Some("cut") => Some(TurnKind::PeerEnded),
            Some("ws-close" | "fin" | "close" | "stdin-eof" | "exit") => {
                Some(if own { TurnKind::Ended } else { TurnKind::PeerEnded })
            }
            Some(_) => None,
        }
    }
}

/// The names of all recordings, in order, as paths below `tests/traces`.
///
/// # Panics
/// If they cannot be read.
#[must_use]
pub fn names() -> Vec<String> {
    let list = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root().join(folder)).expect("a folder of recordings");
        entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name.ends_with(".jsonl"))
            .map(|name| format!("{folder}{name}"))
            .collect()
    };
    let mut all = [list(""), list("mcp/")].concat();
    all.sort();
    all
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

/// Every end that a recording shows.
///
/// # Panics
/// If there is no such recording, or if it has a line that is not a record.
#[must_use]
pub fn recorded_ends(name: &str) -> Vec<RecordedEnd> {
    let text = fs::read_to_string(root().join(name)).expect("a recording");
    let records: Vec<_> = text.lines().map(|line| Record::parse(line).unwrap_or_else(|| panic!("{name}: {line}"))).collect();
    let mut all = Vec::new();
    for (caller, callee, protocol) in HOPS {
        for (end, calls) in [(caller, true), (callee, false)] {
            let peer = if calls { callee } else { caller };
            let channels = channels(&records, end, peer);
            if !channels.is_empty() {
                all.push(RecordedEnd { end: format!("{end} of {caller}<->{callee}"), protocol, calls, channels });
            }
        }
    }
    all
}

fn channels(records: &[Record], end: &str, peer: &str) -> Vec<Channel> {
    let mut code = None;
    let mut channels = Vec::new();
    let mut channel = Channel::default();
    for record in records {
        if let Some(shown) = record.line.pointer("/msg/hostMintedClaim/code").and_then(Value::as_str) {
            code = Some(shown.to_owned());
        }
        let is_of_hop = [(end, peer), (peer, end)].contains(&(&*record.from, &*record.to));
        if is_of_hop && (record.event() == Some("connect") || begins_anew(record, &channel)) {
            channels.push(std::mem::take(&mut channel));
            channel.code = code.clone().filter(|_| record.line["kind"] == "uds");
            channel.overlaps = record.event().is_some();
        }
        // The recorder (`tap`) cuts only connections between the gateway and the app.
        if is_of_hop || record.from == "tap" && [end, peer].contains(&"gw") && [end, peer].contains(&"app") {
            channel.turns.extend(record.what(end).map(|what| Turn { at: record.at, what }));
        }
    }
    channels.push(channel);
    channels.into_iter().map(tidied).filter(|channel| channel.turns.iter().any(|turn| is_frame(&turn.what))).collect()
}

/// Returns `true` if a connection begins with this record although no record says so. The beginning of a connection within an app (`sdk`)
/// is not recorded, but its handshake is, so a second handshake begins another connection.
fn begins_anew(record: &Record, channel: &Channel) -> bool {
    let greets = |frame: &Value| matches!(frame["method"].as_str(), Some("tesseron/hello" | "tesseron/resume"));
    let before = |turn: &Turn| matches!(&turn.what, TurnKind::Received(frame) | TurnKind::Sent(frame) if greets(frame));
    record.from == "sdk" && record.line.get("msg").is_some_and(greets) && channel.turns.iter().any(before)
}

fn is_frame(what: &TurnKind) -> bool {
    matches!(what, TurnKind::Received(_) | TurnKind::Sent(_))
}

/// Keeps only one of the turns that end the channel: the first or, if the connections overlap, the first after the last frame that was
/// sent. Earlier ones then belong to the previous connection.
fn tidied(mut channel: Channel) -> Channel {
    let last = channel.turns.iter().rposition(|turn| matches!(turn.what, TurnKind::Sent(_))).unwrap_or_default();
    let overlaps = channel.overlaps;
    let mut ended = false;
    let mut index = 0;
    channel.turns.retain(|turn| {
        let keeps = is_frame(&turn.what) || (index > last || !overlaps) && !std::mem::replace(&mut ended, true);
        index += 1;
        keeps
    });
    channel
}
