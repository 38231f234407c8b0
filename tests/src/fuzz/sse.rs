//! Server-sent events: the items of a stream do not depend on the way in which the stream is split, and they follow the standard.

use bytes::Bytes;
use protocol_core::http::sse::{DecodeError, Decoder, DecoderLimits, Encoder, Item};
use protocol_core::{FrameSink as _, Text};

use testkit::Rng;

/// The items, each with the last event id after it, and the error at which the stream ended.
type Read = (Vec<(Item, Option<String>)>, Option<DecodeError>);

/// Byte 0: the limits on an event and on an id. Byte 1: the seed of the random choices. The rest: the stream.
pub fn sse(data: &[u8]) {
    let ([limit, seed], stream) = super::head(data);
    let mut limits = DecoderLimits::default();
    limits.event_bytes = if limit < 128 { usize::from(limit) } else { 1 << (limit % 24) };
    limits.id_bytes = usize::from(limit % 32);
    let expected = reference_items(stream, limits);
    let mut rng = Rng::new(seed.into());
    // The stream in one piece, in single bytes, and in random pieces.
    for way in 0..5 {
        let read = decode(stream, limits, |left| match way {
            0 => left,
            1 => 1,
            _ => {
                let most = 1 << rng.below(13);
                1 + rng.below(most)
            }
        });
        assert!(read == expected, "split in way {way}: {read:?} instead of {expected:?}");
    }
    encode(stream, &mut rng);
}

fn decode(mut stream: &[u8], limits: DecoderLimits, mut step: impl FnMut(usize) -> usize) -> Read {
    let mut decoder = Decoder::new(limits);
    let mut items = Vec::new();
    while !stream.is_empty() {
        let (piece, rest) = stream.split_at(step(stream.len()).min(stream.len()));
        decoder.feed(Bytes::copy_from_slice(piece));
        stream = rest;
        loop {
            match decoder.next_item() {
                Ok(Some(item)) => items.push((item, decoder.last_event_id().map(str::to_owned))),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_item(), Err(error), "a failed stream returns the same error again");
                    return (items, Some(error));
                }
            }
        }
    }
    (items, None)
}

/// The complete lines of a stream, each without its end, and the length of the rest.
fn lines(stream: &[u8]) -> (Vec<&[u8]>, usize) {
    let (mut lines, mut rest) = (Vec::new(), stream);
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.push(&rest[..end]);
        rest = rest[end..].strip_prefix(b"\r\n").unwrap_or_else(|| &rest[end + 1..]);
    }
    (lines, rest.len())
}

/// The items of a whole stream, by a second, simple decoder.
fn reference_items(stream: &[u8], limits: DecoderLimits) -> Read {
    let mut items = Vec::new();
    let (mut name, mut data, mut id) = (String::new(), None::<Vec<u8>>, None::<String>);
    let mut last: Option<String> = None;
    let (lines, rest) = lines(stream);
    // The longest line: the longest data, with a byte order mark and the name of the field before them.
    let longest = limits.event_bytes + "\u{feff}data: ".len();
    for (at, line) in lines.into_iter().enumerate() {
        if line.len() > longest {
            return (items, Some(DecodeError::EventTooLong));
        }
        let line = line.strip_prefix("\u{feff}".as_bytes()).filter(|_| at == 0).unwrap_or(line);
        let Ok(line) = core::str::from_utf8(line) else { return (items, Some(DecodeError::NotText)) };
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.starts_with(':') => items.push((Item::Comment, last.clone())),
            "" => {
                let has_id = id.is_some();
                last = id.take().map_or(last, |id| (!id.is_empty()).then_some(id));
                let name = core::mem::take(&mut name);
                let item = match data.take() {
                    Some(data) => Some(event(&name, data)),
                    None => has_id.then_some(Item::Id),
                };
                items.extend(item.map(|item| (item, last.clone())));
            }
            "data" => {
                let joined = match data.take() {
                    Some(before) => [&before[..], b"\n", value.as_bytes()].concat(),
                    None => value.into(),
                };
                if joined.len() > limits.event_bytes {
                    return (items, Some(DecodeError::EventTooLong));
                }
                data = Some(joined);
            }
            "event" | "id" if value.len() > limits.id_bytes && (field == "event" || !value.contains('\0')) => {
                return (items, Some(DecodeError::IdTooLong));
            }
            "event" => name = value.to_owned(),
            "id" if !value.contains('\0') => id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.chars().all(|digit| digit.is_ascii_digit()) => {
                let millis = value.parse::<u64>().unwrap_or(u64::MAX).min(300_000);
                items.push((Item::Retry(core::time::Duration::from_millis(millis)), last.clone()));
            }
            _ => {}
        }
    }
    let is_too_long = rest > longest;
    (items, is_too_long.then_some(DecodeError::EventTooLong))
}

/// The item for an event with this name and these data. The event is decoded, since its type cannot be constructed outside of its crate.
fn event(name: &str, data: Vec<u8>) -> Item {
    let mut decoder = Decoder::new(DecoderLimits::default());
    decoder.feed("data\n\n".into());
    let Ok(Some(Item::Event(mut event))) = decoder.next_item() else { panic!("an event") };
    (event.name, event.data) = (Text::from(name), data.into());
    Item::Event(event)
}

/// Checks that frames are the same after they were encoded and decoded, except that all line ends have become line feeds.
fn encode(stream: &[u8], rng: &mut Rng) {
    let Ok(text) = core::str::from_utf8(stream) else { return };
    let frames: Vec<_> = text.split('\0').collect();
    let mut encoder = Encoder::new();
    for frame in &frames {
        if rng.below(2) == 0 {
            encoder.push(Bytes::copy_from_slice(frame.as_bytes()));
        } else {
            encoder.push_slice(frame.as_bytes());
        }
    }
    let mut written = Vec::new();
    while let Some(chunk) = encoder.next_chunk() {
        assert!(!chunk.is_empty(), "a chunk has bytes");
        written.extend_from_slice(&chunk);
    }
    let (items, error) = decode(&written, DecoderLimits::default(), |left| left);
    let data = |(item, _): (Item, Option<String>)| match item {
        Item::Event(event) => event.data,
        item => panic!("an encoder writes only events: {item:?}"),
    };
    let expected: Vec<_> = frames.iter().map(|frame| Bytes::from(frame.replace("\r\n", "\n").replace('\r', "\n"))).collect();
    assert_eq!((items.into_iter().map(data).collect::<Vec<_>>(), error), (expected, None));
}
