//! Server-sent events (HTML Living Standard, "Server-sent events"), the form in which a stream of frames is sent over HTTP.
//!
//! An event is a block of lines that a blank line ends. The line `data: TEXT` contains a frame. `event: NAME` names the event. `id: TEXT`
//! identifies the event, so that a client can resume the stream after it. `retry: DIGITS` is the time in milliseconds after which a client
//! may reconnect. A line that begins with a colon is a comment, which only shows that the connection is alive.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::time::Duration;

use bytes::Bytes;

use crate::json::Text;
use crate::session::Lane;
use crate::sink::FrameSink;

/// The byte order mark that may stand at the beginning of a stream.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// The maximum number of bytes before the data in a line of data: the byte order mark, the name of the field, a colon and a space.
const MAX_PREFIX: usize = BYTE_ORDER_MARK.len() + "data: ".len();
/// The longest time that a server can ask a client to wait before the client reconnects.
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);
/// Data that is shorter than 1/`MIN_PART` of its piece of the stream is copied, so that it does not keep the piece alive.
const MIN_PART: usize = 8;
/// The length of a piece in bytes up to which its data is never copied, even if a small part of the piece keeps all of it alive.
const SMALL_PIECE: usize = 4 * 1024;
/// The length in bytes from which a frame without line ends is written from its own memory ([`Encoder::event`]). Other frames are copied
/// into one piece.
const LONG_FRAME: usize = 4 * 1024;

/// The bounds of a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderLimits {
    /// The longest data of one event, in bytes. It also bounds lines of any kind, which may be a few bytes longer. Default: 16 MiB.
    pub event_bytes: usize,
    /// The longest id and the longest name of an event, in bytes. Default: 1024.
    pub id_bytes: usize,
}

impl Default for DecoderLimits {
    fn default() -> Self {
        Self { event_bytes: 16 << 20, id_bytes: 1024 }
    }
}

/// The reason why the rest of a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A line or the data of an event is longer than [`DecoderLimits::event_bytes`].
    #[error("an event is longer than the limit")]
    EventTooLong,
    /// An id or a name is longer than [`DecoderLimits::id_bytes`].
    #[error("the id or the name of an event is longer than the limit")]
    IdTooLong,
    /// A line is not UTF-8.
    #[error("an event is not UTF-8")]
    NotText,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The name; empty if the event has none.
    pub name: Text,
    /// The data: all lines of data, joined by line feeds. It is UTF-8, and may be empty.
    pub data: Bytes,
}

impl Event {
    /// Returns `true` if the data is a frame: the event has no name or the name `message`, and its data is not empty. An event with an id
    /// and empty data only gives a client an id to resume from (Transports 2025-11-25, "Sending Messages to the Server").
    #[must_use]
    pub fn is_message(&self) -> bool {
        (self.name.is_empty() || self.name == "message") && !self.data.is_empty()
    }
}

/// An element of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// A block with data.
    Event(Event),
    /// A block with an id and without data. [`Decoder::last_event_id`] is now this id.
    Id,
    /// A time to wait before reconnecting, at most five minutes.
    Retry(Duration),
    /// A comment.
    Comment,
}

/// Splits a stream of bytes into events. The events do not depend on how the bytes were split into pieces.
///
/// Pass each piece to [`feed`](Self::feed), and call [`next_item`](Self::next_item) until it returns `None`. Data that arrives in one line
/// within one piece is a slice of the piece, or a copy if it is only a small part of a long piece. A decoder holds at most one incomplete
/// event and the piece that was fed last.
///
/// A line ends with a line feed, with a carriage return, or with a carriage return and a line feed. If the stream ends within a block, the
/// block is dropped together with its id, so there is nothing to do at the end of a stream.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: DecoderLimits,
    /// Bytes that are not yet read.
    input: Bytes,
    /// The length of the piece of which `input` is the rest.
    piece_length: usize,
    /// The beginning of the line that `input` continues.
    line: Vec<u8>,
    /// `true` until the first line, which may begin with a byte order mark, is complete.
    is_first_line: bool,
    /// `true` after a carriage return: a line feed that follows belongs to the same line end.
    after_return: bool,
    block: Block,
    last_event_id: Option<Text>,
    error: Option<DecodeError>,
}

/// The fields of an incomplete block.
#[derive(Clone, Debug, Default)]
struct Block {
    name: Text,
    data: Data,
    /// The last id in the block. The inner option is `None` if this id is empty.
    id: Option<Option<Text>>,
}

#[derive(Clone, Debug, Default)]
enum Data {
    #[default]
    None,
    /// One line.
    One(Bytes),
    /// Several lines, joined.
    Many(Vec<u8>),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Many(lines) => lines.len(),
        }
    }

    fn add(&mut self, line: Bytes) {
        *self = match mem::take(self) {
            Self::None => Self::One(line),
            Self::One(first) => {
                let mut lines = Vec::from(first);
                lines.push(b'\n');
                lines.extend_from_slice(&line);
                Self::Many(lines)
            }
            Self::Many(mut lines) => {
                lines.push(b'\n');
                lines.extend_from_slice(&line);
                Self::Many(lines)
            }
        };
    }
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new(limits: DecoderLimits) -> Self {
        Self {
            limits,
            input: Bytes::new(),
            piece_length: 0,
            line: Vec::new(),
            is_first_line: true,
            after_return: false,
            block: Block::default(),
            last_event_id: None,
            error: None,
        }
    }

    /// A decoder at the beginning of a stream that continues another stream, whose last id was `last_event_id`. If the new stream breaks
    /// before its first id, it can be resumed from `last_event_id` again.
    #[must_use]
    pub fn resumed(limits: DecoderLimits, last_event_id: Option<Text>) -> Self {
        Self { last_event_id, ..Self::new(limits) }
    }

    /// Adds a piece of the stream. Take all items of the last piece first; otherwise the rest of that piece is copied.
    pub fn feed(&mut self, piece: Bytes) {
        if self.input.is_empty() {
            self.piece_length = piece.len();
            self.input = piece;
        } else {
            let mut joined = Vec::from(mem::take(&mut self.input));
            joined.extend_from_slice(&piece);
            self.piece_length = joined.len();
            self.input = joined.into();
        }
    }

    /// The id of the last complete block that had an id; `None` if that id was empty. Before the first such block, the id that was passed
    /// to [`resumed`](Self::resumed), or `None`. It changes only in [`next_item`](Self::next_item), together with the item that is
    /// returned.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// The next item; `None` if no further item is complete yet.
    ///
    /// # Errors
    /// [`DecodeError`] once all items before the fault were returned, and then each time.
    pub fn next_item(&mut self) -> Result<Option<Item>, DecodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let next = self.read_item();
        if let Err(error) = next {
            self.error = Some(error);
            self.input = Bytes::new();
            self.line = Vec::new();
            self.block = Block::default();
        }
        next
    }

    fn read_item(&mut self) -> Result<Option<Item>, DecodeError> {
        while let Some(line) = self.next_line()? {
            if let Some(item) = self.read_line(line)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// The next complete line, without its end.
    fn next_line(&mut self) -> Result<Option<Bytes>, DecodeError> {
        if self.after_return && !self.input.is_empty() {
            self.after_return = false;
            if self.input.first() == Some(&b'\n') {
                self.input = self.input.slice(1..);
            }
        }
        let max = self.limits.event_bytes.saturating_add(MAX_PREFIX);
        let Some(end) = find_line_end(&self.input) else {
            // The length is checked here, too, so that a line without an end is not stored without a bound.
            if self.line.len().saturating_add(self.input.len()) > max {
                return Err(DecodeError::EventTooLong);
            }
            self.line.extend_from_slice(&self.input);
            self.input = Bytes::new();
            return Ok(None);
        };
        if self.line.len().saturating_add(end) > max {
            return Err(DecodeError::EventTooLong);
        }
        self.after_return = self.input.get(end) == Some(&b'\r');
        let mut line = if self.line.is_empty() {
            self.input.slice(..end)
        } else {
            let mut line = mem::take(&mut self.line);
            line.extend_from_slice(self.input.get(..end).unwrap_or_default());
            line.into()
        };
        self.input = self.input.slice(end.saturating_add(1)..);
        if mem::take(&mut self.is_first_line) && line.starts_with(&BYTE_ORDER_MARK) {
            line = line.slice(BYTE_ORDER_MARK.len()..);
        }
        Ok(Some(line))
    }

    fn read_line(&mut self, line: Bytes) -> Result<Option<Item>, DecodeError> {
        if line.is_empty() {
            return Ok(self.end_block());
        }
        let text = core::str::from_utf8(&line).map_err(|_| DecodeError::NotText)?;
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => return Ok(Some(Item::Comment)),
            "data" => {
                let is_first = matches!(self.block.data, Data::None);
                let joined = self.block.data.len().saturating_add(usize::from(!is_first)).saturating_add(value.len());
                if joined > self.limits.event_bytes {
                    return Err(DecodeError::EventTooLong);
                }
                let start = line.len().saturating_sub(value.len());
                let value = self.part(&line, start);
                self.block.data.add(value);
            }
            "event" => {
                self.check_length(value)?;
                self.block.name = Text::from(value);
            }
            "id" if !value.contains('\0') => {
                self.check_length(value)?;
                self.block.id = Some((!value.is_empty()).then(|| Text::from(value)));
            }
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                // Parsing fails only for a number beyond 64 bits.
                let wait = value.parse().map_or(MAX_RETRY, Duration::from_millis);
                return Ok(Some(Item::Retry(wait.min(MAX_RETRY))));
            }
            _ => {}
        }
        Ok(None)
    }

    fn check_length(&self, value: &str) -> Result<(), DecodeError> {
        if value.len() > self.limits.id_bytes { Err(DecodeError::IdTooLong) } else { Ok(()) }
    }

    /// The line from `start` on: a slice, or a copy if the slice would keep alive a piece that is much larger.
    fn part(&self, line: &Bytes, start: usize) -> Bytes {
        let part = line.slice(start..);
        let is_small_part = self.piece_length > SMALL_PIECE && part.len().saturating_mul(MIN_PART) < self.piece_length;
        if is_small_part { Bytes::copy_from_slice(&part) } else { part }
    }

    fn end_block(&mut self) -> Option<Item> {
        let Block { name, data, id } = mem::take(&mut self.block);
        let has_id = id.is_some();
        if let Some(id) = id {
            self.last_event_id = id;
        }
        match data {
            Data::None => has_id.then_some(Item::Id),
            Data::One(data) => Some(Item::Event(Event { name, data })),
            Data::Many(data) => Some(Item::Event(Event { name, data: data.into() })),
        }
    }
}

/// Returns the offset of the first line feed or carriage return. Most bytes are checked thirty-two at a time: the `fold` over a block has
/// no early exit, so that the compiler vectorizes it.
fn find_line_end(bytes: &[u8]) -> Option<usize> {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let mut rest = bytes;
    while let Some((block, tail)) = rest.split_first_chunk::<32>() {
        if block.iter().fold(false, |found, byte| found | is_end(byte)) {
            break;
        }
        rest = tail;
    }
    let within = rest.iter().position(is_end)?;
    Some(bytes.len().saturating_sub(rest.len()).saturating_add(within))
}

/// The id of an event, written as `STREAM-NUMBER`. No two events of a session have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct EventId {
    /// The stream of the event.
    pub stream: Lane,
    /// The number of the event on the stream.
    pub number: u64,
}

impl EventId {
    /// The id of event `number` of a stream.
    #[must_use]
    pub const fn new(stream: Lane, number: u64) -> Self {
        Self { stream, number }
    }

    /// Reads an id. `None` for text that is not exactly the form in which an id is written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        fn number<T: core::str::FromStr>(digits: &str) -> Option<T> {
            let is_canonical = digits == "0" || !digits.starts_with(['0', '+']);
            digits.parse().ok().filter(|_| is_canonical)
        }
        let (stream, event) = text.split_once('-')?;
        Some(Self { stream: Lane::new(number(stream)?), number: number(event)? })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream.number(), self.number)
    }
}

/// Joins frames into a stream of events to write.
///
/// As a [`FrameSink`], which [`Session::poll_transmits`](crate::Session::poll_transmits) fills, it writes each frame as an event without an
/// id, as MCP 2026-07-28 demands. Take the bytes with [`next_chunk`](Self::next_chunk). The size of the encoder is not bounded: stop
/// pushing while [`buffered_bytes`](FrameSink::buffered_bytes) is too large.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    /// The pieces that are written first.
    pieces: VecDeque<Bytes>,
    /// The number of bytes in `pieces`.
    in_pieces: usize,
    /// The bytes that are written after `pieces`.
    gathered: Vec<u8>,
}

impl Encoder {
    /// An empty encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a frame as an event. Pass an id if the stream can be resumed after this event.
    pub fn event(&mut self, id: Option<EventId>, frame: Bytes) {
        self.id(id);
        self.gathered.extend_from_slice(b"data: ");
        if frame.len() < LONG_FRAME || find_line_end(&frame).is_some() {
            self.data(&frame);
        } else {
            self.end_gathering();
            self.push_piece(frame);
        }
        self.gathered.extend_from_slice(b"\n\n");
    }

    /// Writes an event with an id and empty data. If the stream breaks before its first frame, a client can resume it from this id
    /// (Transports 2025-11-25). Do not write it for clients of earlier revisions, which would read the empty data as a frame.
    pub fn prime(&mut self, id: EventId) {
        self.id(Some(id));
        self.gathered.extend_from_slice(b"data:\n\n");
    }

    /// Writes the time after which a client should reconnect, rounded up to milliseconds. Write it only on a stream that is about to be
    /// closed: many clients reconnect as soon as they have read it.
    pub fn retry(&mut self, wait: Duration) {
        use alloc::string::ToString as _;
        let millis = wait.as_nanos().div_ceil(1_000_000);
        self.gathered.extend_from_slice(b"retry: ");
        self.gathered.extend_from_slice(millis.to_string().as_bytes());
        self.gathered.extend_from_slice(b"\n\n");
    }

    /// Writes an empty comment, so that proxies do not close a stream without output.
    pub fn comment(&mut self) {
        self.gathered.extend_from_slice(b":\n\n");
    }

    /// The next bytes to write; `None` if there are none.
    #[must_use = "bytes that are taken and not written are lost"]
    pub fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.pieces.pop_front() {
            self.in_pieces = self.in_pieces.saturating_sub(piece.len());
            return Some(piece);
        }
        (!self.gathered.is_empty()).then(|| mem::take(&mut self.gathered).into())
    }

    /// Drops everything that was not taken.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    fn id(&mut self, id: Option<EventId>) {
        use alloc::string::ToString as _;
        if let Some(id) = id {
            self.gathered.extend_from_slice(b"id: ");
            self.gathered.extend_from_slice(id.to_string().as_bytes());
            self.gathered.push(b'\n');
        }
    }

    /// Writes the rest of a line of data. If the text has several lines, each becomes a line of data.
    fn data(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some(end) = find_line_end(rest) {
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            self.gathered.extend_from_slice(line);
            self.gathered.extend_from_slice(b"\ndata: ");
            rest = after.strip_prefix(b"\r\n").or_else(|| after.get(1..)).unwrap_or_default();
        }
        self.gathered.extend_from_slice(rest);
    }

    /// Moves the gathered bytes to the end of `pieces`, so that another piece can follow them.
    fn end_gathering(&mut self) {
        let gathered = mem::take(&mut self.gathered);
        if !gathered.is_empty() {
            self.push_piece(gathered.into());
        }
    }

    fn push_piece(&mut self, piece: Bytes) {
        self.in_pieces = self.in_pieces.saturating_add(piece.len());
        self.pieces.push_back(piece);
    }
}

impl FrameSink for Encoder {
    fn push(&mut self, frame: Bytes) {
        self.event(None, frame);
    }

    fn push_slice(&mut self, frame: &[u8]) {
        self.gathered.extend_from_slice(b"data: ");
        self.data(frame);
        self.gathered.extend_from_slice(b"\n\n");
    }

    fn buffered_bytes(&self) -> usize {
        self.in_pieces.saturating_add(self.gathered.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString as _};
    use alloc::vec;

    const SMALL: DecoderLimits = DecoderLimits { event_bytes: 24, id_bytes: 8 };

    /// The items of `pieces` as text, each followed by `@` and the last id at that point, and the error at which the stream ended.
    fn read<'a>(limits: DecoderLimits, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Option<DecodeError>) {
        let mut decoder = Decoder::new(limits);
        let mut items = Vec::new();
        for piece in pieces {
            decoder.feed(Bytes::copy_from_slice(piece));
            loop {
                match decoder.next_item() {
                    Ok(Some(item)) => {
                        let shown = match item {
                            Item::Event(event) => format!("{}={}", event.name, core::str::from_utf8(&event.data).unwrap()),
                            Item::Id => "id".to_string(),
                            Item::Retry(wait) => format!("retry {}", wait.as_millis()),
                            Item::Comment => ":".to_string(),
                        };
                        items.push(format!("{shown} @{}", decoder.last_event_id().unwrap_or_default()));
                    }
                    Ok(None) => break,
                    Err(error) => return (items, Some(error)),
                }
            }
        }
        (items, None)
    }

    fn items(text: &str) -> Vec<String> {
        let (items, error) = read(DecoderLimits::default(), [text.as_bytes()]);
        assert_eq!(error, None);
        items
    }

    #[test]
    fn a_blank_line_ends_an_event_whose_lines_of_data_are_joined() {
        assert_eq!(items("data: {}\n\n"), ["={} @"]);
        assert_eq!(items("data:{}\ndata: 1\ndata:  2\n\n"), ["={}\n1\n 2 @"], "one space after the colon is dropped");
        assert_eq!(items("data\ndata\n\n"), ["=\n @"], "a line without a colon is a field without a value");
        assert_eq!(items("event: ping\ndata: x\n\ndata: y\n\n"), ["ping=x @", "=y @"], "a name holds for one event");
        assert_eq!(items("event: ping\n\n\n\n"), [""; 0], "a block without data is no event");
        assert_eq!(items("data: {}\n"), [""; 0], "an event that the stream breaks off in is dropped");
        assert_eq!(items("nonsense: 1\nDATA: 2\n data: 3\n\n"), [""; 0], "unknown fields are ignored");
    }

    #[test]
    fn lines_end_with_a_line_feed_a_carriage_return_or_both_and_a_byte_order_mark_at_the_beginning_is_dropped() {
        for end in ["\n", "\r", "\r\n"] {
            let text = format!("\u{feff}data: a{end}data: b{end}{end}:{end}data: c{end}{end}");
            assert_eq!(items(&text), ["=a\nb @", ": @", "=c @"], "{end:?}");
        }
        assert_eq!(items("data: a\r\r\ndata: b\n\r\n"), ["=a @", "=b @"], "mixed");
        assert_eq!(items("data: a\n\n\u{feff}data: b\n\n"), ["=a @"], "a mark later on is a part of the name");
    }

    #[test]
    fn an_id_holds_from_the_end_of_its_block_until_the_next_id_and_an_empty_id_resets_it() {
        assert_eq!(items("id: 1\ndata: a\n\ndata: b\n\nid\n\ndata: c\n\n"), ["=a @1", "=b @1", "id @", "=c @"]);
        assert_eq!(items("id: 1\n\nid:\ndata: a\n\n"), ["id @1", "=a @"]);
        assert_eq!(items("id: 1\n\nid: 2\0\ndata: a\n\n"), ["id @1", "=a @1"], "an id with NUL is ignored");
        assert_eq!(items("id: 1\nid: 2\ndata:\n\n"), ["= @2"], "empty data with an id primes a stream");
        let mut decoder = Decoder::new(DecoderLimits::default());
        decoder.feed("id: 1\ndata: a\n\nid: 2\ndata: b\n".into());
        while decoder.next_item().unwrap().is_some() {}
        assert_eq!(decoder.last_event_id(), Some("1"), "the second event is not complete");
        let resumed = Decoder::resumed(DecoderLimits::default(), Some("1".into()));
        assert_eq!(resumed.last_event_id(), Some("1"));
    }

    #[test]
    fn an_event_is_a_message_if_it_has_data_and_no_name_but_message() {
        let is_message = |name: &str, data: &'static str| Event { name: name.into(), data: data.into() }.is_message();
        assert!(is_message("", "{}") && is_message("message", "{}"));
        assert!(!is_message("endpoint", "/x") && !is_message("", "") && !is_message("Message", "{}"));
    }

    #[test]
    fn a_retry_is_digits_alone_and_at_most_five_minutes() {
        assert_eq!(items("retry: 1500\n"), ["retry 1500 @"], "it needs no blank line");
        assert_eq!(items("retry: 99999999999999999999999\nretry: 300001\n"), ["retry 300000 @", "retry 300000 @"]);
        assert_eq!(items("retry:\nretry: -1\nretry: 1.5\nretry: +1\nretry: 1 \nretry: \u{661}\n"), [""; 0]);
    }

    #[test]
    fn the_result_does_not_depend_on_where_the_stream_is_split() {
        let streams = [
            "\u{feff}id: 1\r\ndata: \u{e4}\r\n\r\n:x\r\rretry: 10\nevent: e\ndata: 1\rdata: 2\n\nid\n\ndata:\n\n",
            "\r\n\rdata: a\r\n\r\n\n\ndata: too long for the limit\n\n",
            "data: 123456789012\ndata: 123456789012\n\n",
            "data: 12345678901\ndata: 123456789012\n\n",
            "id: 1\n\nid: 123456789\n\n",
            "data: ok\n\n: a comment that is longer than any line may be",
        ];
        for stream in streams {
            let bytes = stream.as_bytes();
            let whole = read(SMALL, [bytes]);
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(read(SMALL, pieces), whole, "{stream:?} split at {first} and {second}");
                }
            }
            assert_eq!(read(SMALL, bytes.chunks(1)), whole, "{stream:?} by the byte");
        }
    }

    #[test]
    fn a_piece_that_is_fed_before_the_last_one_was_read_is_added_to_it() {
        let mut decoder = Decoder::new(DecoderLimits::default());
        for piece in ["data: a\n", "\ndata", ": b\n\n"] {
            decoder.feed(piece.into());
        }
        let events: Vec<_> = core::iter::from_fn(|| decoder.next_item().unwrap()).collect();
        let event = |data: &'static str| Item::Event(Event { name: Text::default(), data: data.into() });
        assert_eq!(events, [event("a"), event("b")]);
    }

    #[test]
    fn a_decoder_returns_all_complete_items_before_it_fails_and_then_fails_each_time() {
        let fails = |stream: &[u8], error| {
            assert_eq!(read(SMALL, [&b"data: ok\n\n"[..], stream]), (vec!["=ok @".to_string()], Some(error)), "{stream:?}");
        };
        let passes = |stream: &[u8]| assert_eq!(read(SMALL, [stream]).1, None, "{stream:?}");
        passes(b"data: 123456789012345678901234\n\n");
        fails(b"data: 1234567890123456789012345\n\n", DecodeError::EventTooLong);
        passes(b"data: 12345678901\ndata: 123456789012\n\n");
        fails(b"data: 123456789012\ndata: 123456789012\n\n", DecodeError::EventTooLong);
        fails(&[b'x'; 34], DecodeError::EventTooLong);
        passes(&[b'x'; 33]);
        passes(b"id: 12345678\n\n");
        fails(b"id: 123456789\n\n", DecodeError::IdTooLong);
        fails(b"event: 123456789\n\n", DecodeError::IdTooLong);
        fails(b"data: \xff\n\n", DecodeError::NotText);
        fails(b": \xc3\n\n", DecodeError::NotText);
        let mut decoder = Decoder::new(SMALL);
        decoder.feed(Bytes::from_static(b"\xff\ndata: {}\n\n"));
        for _ in 0..2 {
            assert_eq!(decoder.next_item(), Err(DecodeError::NotText));
        }
        decoder.feed("data: {}\n\n".into());
        assert_eq!(decoder.next_item(), Err(DecodeError::NotText));
    }

    #[test]
    fn data_in_one_line_is_a_slice_of_its_piece_unless_it_is_a_small_part() {
        let mut large = Vec::from(&b"data: {}\n\ndata: "[..]);
        large.resize(large.len() + SMALL_PIECE, b'x');
        large.extend_from_slice(b"\n\n");
        let piece = Bytes::from(large);
        let range = piece.as_ptr_range();
        let mut decoder = Decoder::new(DecoderLimits::default());
        decoder.feed(piece);
        let within: Vec<_> = core::iter::from_fn(|| match decoder.next_item().unwrap()? {
            Item::Event(event) => Some(range.contains(&event.data.as_ptr())),
            item => panic!("{item:?}"),
        })
        .collect();
        assert_eq!(within, [false, true]);
    }

    /// Everything that an encoder has written.
    fn written(encoder: &mut Encoder) -> String {
        let mut all = Vec::new();
        while let Some(chunk) = encoder.next_chunk() {
            assert!(!chunk.is_empty());
            all.extend_from_slice(&chunk);
        }
        assert_eq!(encoder.buffered_bytes(), 0);
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn an_encoder_writes_events_ids_comments_and_times_to_wait() {
        let mut encoder = Encoder::new();
        let id = |number| EventId::new(Lane::new(3), number);
        encoder.prime(id(0));
        encoder.event(Some(id(1)), "{}".into());
        encoder.push("1".into());
        encoder.push_slice(b"2");
        encoder.comment();
        encoder.retry(Duration::from_micros(1_000_001));
        let expected = "id: 3-0\ndata:\n\nid: 3-1\ndata: {}\n\ndata: 1\n\ndata: 2\n\n:\n\nretry: 1001\n\n";
        assert_eq!(encoder.buffered_bytes(), expected.len());
        assert_eq!(written(&mut encoder), expected);
        encoder.comment();
        encoder.clear();
        assert_eq!(encoder.next_chunk(), None);
    }

    #[test]
    fn a_long_frame_is_not_copied_and_is_written_in_order() {
        let mut encoder = Encoder::new();
        let long = Bytes::from(vec![b'x'; LONG_FRAME]);
        let memory = long.as_ptr();
        encoder.push("a".into());
        encoder.push(long.clone());
        encoder.push("b".into());
        let chunks: Vec<_> = core::iter::from_fn(|| encoder.next_chunk()).collect();
        assert_eq!(chunks.len(), 3);
        assert_eq!((&chunks[0][..], &chunks[2][..]), (&b"data: a\n\ndata: "[..], &b"\n\ndata: b\n\n"[..]));
        assert_eq!((chunks[1].as_ptr(), chunks[1].len()), (memory, LONG_FRAME));
    }

    #[test]
    fn an_encoded_frame_is_decoded_with_line_feeds_as_its_line_ends() {
        let long = "y".repeat(LONG_FRAME);
        for frame in ["{}", "", "a\nb", "a\r\nb\rc", "\n", " a", ":", long.as_str(), &format!("{long}\n{long}")] {
            for slice in [false, true] {
                let mut encoder = Encoder::new();
                if slice {
                    encoder.push_slice(frame.as_bytes());
                } else {
                    encoder.push(Bytes::copy_from_slice(frame.as_bytes()));
                }
                let expected = frame.replace("\r\n", "\n").replace('\r', "\n");
                assert_eq!(items(&written(&mut encoder)), [format!("={expected} @")], "{frame:?}");
            }
        }
    }

    #[test]
    fn an_event_id_names_its_stream_and_is_parsed_only_from_the_exact_text_that_is_written() {
        let id = EventId::new(Lane::new(u32::MAX), u64::MAX);
        assert_eq!(EventId::parse(&id.to_string()), Some(id));
        assert_eq!(EventId::parse("0-0"), Some(EventId::new(Lane::CHANNEL, 0)));
        for bad in ["", "1", "1-", "-1", "01-1", "1-01", "+1-1", "1-+1", "1-1-1", " 1-1", "4294967296-0", "1-18446744073709551616"]
        {
            assert_eq!(EventId::parse(bad), None, "{bad:?}");
        }
    }
}
