//! Calls with large results and large arguments, through two endpoints over a pair of pipes in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use endpoint::{Call, CallOutcome, Context, Peer, Service, Tool};
use protocol_core::{Config, Identity, Json, Text, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use programs::adapter::{Adapter, Link};

/// The sizes of the payloads in bytes.
pub const SIZES: [usize; 4] = [1 << 10, 64 << 10, 1 << 20, 15 << 20];

/// The payload of a call, and the way in which its receiver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A result of one block of text, which the caller does not decode.
    Result,
    /// A result of one block of text, which the caller reads.
    ResultRead,
    /// A result of one block of text whose lines end in a line feed, which is an escape in JSON; the caller reads it.
    LinesRead,
    /// A typed result of [`Tool::new`] that is a string, read as a string.
    TypedString,
    /// A typed result of [`Tool::new`] that is a struct with a string, read as a struct.
    TypedStruct,
    /// Arguments with a string, which the tool takes as JSON.
    Arguments,
    /// Arguments with a string, which the tool takes as a struct.
    ArgumentsRead,
    /// Arguments with a string of lines, which the tool takes as a struct.
    LinesTaken,
    /// Arguments with a string in a nested struct, which the tool takes as a struct.
    NestedTaken,
}

impl Payload {
    /// All of them, with the name of each.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Result, "result"),
        (Self::ResultRead, "result-read"),
        (Self::LinesRead, "result-lines-read"),
        (Self::TypedString, "typed-string-read"),
        (Self::TypedStruct, "typed-struct-read"),
        (Self::Arguments, "arguments"),
        (Self::ArgumentsRead, "arguments-read"),
        (Self::LinesTaken, "arguments-lines-read"),
        (Self::NestedTaken, "arguments-nested-read"),
    ];

    const fn has_lines(self) -> bool {
        matches!(self, Self::LinesRead | Self::LinesTaken)
    }
}

/// A text of `bytes` bytes. If it has lines, each has 75 bytes and ends in a line feed. Each text is made once, and kept.
#[must_use]
pub fn long_text(has_lines: bool, bytes: usize) -> &'static str {
    static MADE: Mutex<BTreeMap<(bool, usize), &'static str>> = Mutex::new(BTreeMap::new());
    let make = || {
        let line = if has_lines {
            "the quick brown fox jumps over the lazy dog, again and again, line by line\n"
        } else {
            "the quick brown fox "
        };
        let text: String = line.chars().cycle().take(bytes).collect();
        &*text.leak()
    };
    MADE.lock().unwrap_or_else(PoisonError::into_inner).entry((has_lines, bytes)).or_insert_with(make)
}

/// The arguments of a tool that returns a long text.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub(super) struct LongText {
    pub lines: bool,
    pub bytes: usize,
}

impl LongText {
    pub(super) fn text(&self) -> &'static str {
        long_text(self.lines, self.bytes)
    }
}

/// A text in a struct.
#[derive(Deserialize, JsonSchema, Serialize)]
pub(super) struct Note<T> {
    pub text: T,
}

#[derive(Deserialize, JsonSchema, Serialize)]
pub(super) struct Place<T> {
    pub line: u32,
    pub note: Note<T>,
}

/// A text in a struct that is nested in two others.
#[derive(Deserialize, JsonSchema, Serialize)]
pub(super) struct Nested<T> {
    pub at: Place<T>,
}

impl<T> Nested<T> {
    pub(super) const fn of(text: T) -> Self {
        Self { at: Place { line: 7, note: Note { text } } }
    }
}

fn service() -> Service {
    let whole = async |_: Context, wanted: LongText| Ok(ToolOutput::text(Text::from_static(wanted.text())));
    let string = async |_: Context, wanted: LongText| Ok(wanted.text());
    let note = async |_: Context, wanted: LongText| Ok(Note { text: wanted.text() });
    let given = async |_: Context, given: Json| Ok(size(given.as_bytes().len()));
    let taken = async |_: Context, note: Note<String>| Ok(size(note.text.len()));
    let nested = async |_: Context, nested: Nested<String>| Ok(size(nested.at.note.text.len()));
    let schema = Json::parse(
        r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}"#,
    );
    let given = Tool::from_schema("given", schema.expect("a schema"), given).expect("the schema of an object");
    Service::new("payload", "1")
        .tool(Tool::with_content("result", whole).inline())
        .tool(Tool::new("string", string).inline())
        .tool(Tool::new("note", note).inline())
        .tool(given.inline())
        .tool(Tool::with_content("taken", taken).inline())
        .tool(Tool::with_content("nested", nested).inline())
}

fn size(bytes: usize) -> ToolOutput {
    ToolOutput::text(bytes.to_string())
}

/// Two endpoints that are connected.
pub struct Payloads {
    peer: Peer,
    /// Kept because dropping them ends the connection.
    _links: [Link; 2],
}

impl Payloads {
    /// Connects two endpoints by pipes of 64 KiB.
    pub async fn connect<A: Adapter>(adapter: &A) -> Self {
        let (one, other) = adapter.duplex(64 * 1024);
        let client = adapter.connect(Arc::new(()), Config::mcp_client(Identity::new("payload", "1")), one);
        let server = adapter.serve(Arc::new(service()), other);
        let peer = client.peer.clone();
        peer.ready().await.expect("a handshake");
        Self { peer, _links: [client, server] }
    }

    /// Makes one call with a payload of `size` bytes of text. Fails with the error of the call.
    pub async fn pass(&self, payload: Payload, size: usize) -> Result<(), String> {
        let wanted = LongText { lines: payload.has_lines(), bytes: size };
        let text = wanted.text();
        let read = match payload {
            Payload::Result => self.call("result", &wanted)?.await.result().map_err(shown)?.as_bytes().len(),
            Payload::ResultRead | Payload::LinesRead => self.call("result", &wanted)?.await.tool().map_err(shown)?.text().len(),
            Payload::TypedString => self.call("string", &wanted)?.await.tool_as::<String>().map_err(shown)?.len(),
            Payload::TypedStruct => self.call("note", &wanted)?.await.tool_as::<Note<String>>().map_err(shown)?.text.len(),
            Payload::Arguments => counted(self.call("given", &Note { text })?.await)?,
            Payload::ArgumentsRead | Payload::LinesTaken => counted(self.call("taken", &Note { text })?.await)?,
            Payload::NestedTaken => counted(self.call("nested", &Nested::of(text))?.await)?,
        };
        assert!(read >= size, "{read} of {size} bytes arrived");
        Ok(())
    }

    fn call(&self, tool: &str, arguments: &impl Serialize) -> Result<Call, String> {
        self.peer.call_tool_with(tool, arguments).map_err(shown)
    }
}

fn shown(error: impl ToString) -> String {
    error.to_string()
}

/// The number that a tool answered with.
fn counted(outcome: CallOutcome) -> Result<usize, String> {
    outcome.tool().map_err(shown)?.text().parse().map_err(shown)
}
