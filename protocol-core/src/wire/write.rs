//! Writing frames, without line feeds.

use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};

use super::WireId;
use crate::byte_queue::ByteQueue;
use crate::error::RpcError;
use crate::json::Json;
use crate::json::write::{Object, push_json, write_integer};

/// Room for an envelope and small parameters, so that most frames are written without growing.
const ENVELOPE: usize = 128;

/// The memory of queued frames: one after the other in a buffer that is used again. Each
/// is written behind those that are kept already, so keeping it copies nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    /// Those that are kept, and behind them the one that was written last.
    short: ByteQueue,
    /// The number of bytes of `short` that are queued.
    kept: usize,
    /// A long one that was written last. It is kept by itself.
    long: Vec<u8>,
    /// The block that frames which leave one by one are cut from; they share it with their neighbours.
    block: BytesMut,
}

/// The frame that was written last. It is kept or taken before another is written, or thrown away by that.
#[derive(Debug)]
#[must_use]
pub(crate) struct Draft {
    length: usize,
    /// It is in [`Frames::long`].
    is_long: bool,
    /// It is a response with an error.
    is_error: bool,
}

impl Draft {
    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Says whether it is a response with an error.
    pub(crate) fn is_error(&self) -> bool {
        self.is_error
    }
}

/// The place of a queued frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Behind those that were kept before, and so long.
    Queued(usize),
    /// By itself, since it is long.
    Apart(Bytes),
}

impl Kept {
    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Queued(length) => *length,
            Self::Apart(frame) => frame.len(),
        }
    }
}

impl Frames {
    /// A frame that is kept, once it has left, keeps its block: so many bytes at the most beside its own.
    const BLOCK: usize = 2048;
    /// A longer frame lies by itself.
    const SHARING: usize = 1024;

    /// The frame that `write` writes, by itself.
    pub(crate) fn alone(write: impl FnOnce(&mut Self) -> Draft) -> Bytes {
        let mut frames = Self::default();
        let frame = write(&mut frames);
        frames.take(frame)
    }

    /// Keeps the frame that was written last.
    pub(crate) fn keep(&mut self, frame: Draft) -> Kept {
        if frame.length > Self::SHARING {
            return Kept::Apart(self.take(frame));
        }
        if frame.is_long {
            self.short.behind().append(&mut self.long);
            self.long = Vec::new();
        }
        self.kept = self.kept.saturating_add(frame.length);
        Kept::Queued(frame.length)
    }

    /// The frame that was written last, by itself.
    pub(crate) fn take(&mut self, frame: Draft) -> Bytes {
        if frame.is_long {
            return core::mem::take(&mut self.long).into();
        }
        // One that is most of the memory takes it along.
        if self.kept == 0 && frame.length >= self.short.capacity() / 2 {
            return self.short.take();
        }
        let taken = Bytes::copy_from_slice(self.short.as_slice().get(self.kept..).unwrap_or_default());
        self.short.truncate(self.kept);
        taken
    }

    /// No frame at all.
    pub(crate) fn none(&mut self) -> Draft {
        self.forget();
        Draft { length: 0, is_long: false, is_error: false }
    }

    /// The frame that was written last is not wanted, and must not lie in memory until the next is written.
    pub(crate) fn throw_away(&mut self, _: Draft) {
        self.forget();
    }

    /// Forgets what was written and neither kept nor taken.
    fn forget(&mut self) {
        self.short.truncate(self.kept);
        if !self.long.is_empty() {
            self.long = Vec::new();
        }
    }

    /// The first `length` bytes of what is kept, which must be so many: a frame, if those before it have left.
    pub(crate) fn first(&self, length: usize) -> &[u8] {
        self.short.first(length)
    }

    /// They have left, or were to.
    pub(crate) fn leave(&mut self, length: usize) {
        self.kept = self.kept.saturating_sub(length);
        self.short.advance(length);
    }

    /// They leave, as a frame of its own.
    #[inline]
    pub(crate) fn cut(&mut self, length: usize) -> Bytes {
        // A block whose frames are all gone serves again.
        if self.block.capacity() < length && !self.block.try_reclaim(Self::BLOCK) {
            self.block = BytesMut::with_capacity(Self::BLOCK);
        }
        self.block.extend_from_slice(self.short.first(length));
        self.leave(length);
        self.block.split().freeze()
    }

    /// Drops frames amid the others. `frames` says of each that was kept behind others, from the first on, how long it is and whether it
    /// stays.
    pub(crate) fn retain(&mut self, frames: impl Iterator<Item = (usize, bool)>) {
        let mut kept: usize = 0;
        self.short.retain(frames.inspect(|(length, stays)| {
            if *stays {
                kept = kept.saturating_add(*length);
            }
        }));
        self.kept = kept;
    }

    /// A frame with a request of ours. `params` writes the whole object.
    pub(crate) fn request(&mut self, id: u64, method: &str, hint: usize, params: impl FnOnce(&mut Vec<u8>)) -> Draft {
        self.frame(hint, |object| {
            object.integer("id", id);
            object.string("method", method);
            params(object.member("params"));
        })
    }

    /// A frame with a notification. `params`, if there are any, writes the whole object.
    pub(crate) fn notification(&mut self, method: &str, hint: usize, params: Option<impl FnOnce(&mut Vec<u8>)>) -> Draft {
        self.frame(hint, |object| {
            object.string("method", method);
            if let Some(params) = params {
                params(object.member("params"));
            }
        })
    }

    /// A frame with a notification whose parameters `members` writes.
    pub(crate) fn notify(&mut self, method: &'static str, members: impl FnOnce(&mut Object<'_>)) -> Draft {
        self.frame(64, |object| {
            object.word("method", method);
            object.object("params", members);
        })
    }

    /// A frame with a notification whose parameters are there already.
    pub(crate) fn notify_as_it_is(&mut self, method: &str, params: Option<&Json>) -> Draft {
        let hint = params.map_or(0, |params| params.as_bytes().len());
        self.notification(method, hint, params.map(|params| |out: &mut Vec<u8>| push_json(out, params.as_bytes())))
    }

    /// A frame with a result. `result` writes the whole value.
    pub(crate) fn response(&mut self, id: &WireId, hint: usize, result: impl FnOnce(&mut Vec<u8>)) -> Draft {
        self.frame(hint, |object| {
            id.write(object.member("id"));
            result(object.member("result"));
        })
    }

    /// A frame with an error. Without an id where the peer's could not be read.
    pub(crate) fn error(&mut self, id: Option<&WireId>, error: &RpcError) -> Draft {
        let data = error.data.as_ref().map_or(0, |data| data.as_bytes().len());
        let draft = self.frame(error.message.len().saturating_add(data), |object| {
            if let Some(id) = id {
                id.write(object.member("id"));
            }
            object.object("error", |object| {
                write_integer(object.member("code"), error.code);
                object.string("message", &error.message);
                if let Some(data) = &error.data {
                    object.json("data", data);
                }
            });
        });
        Draft { is_error: true, ..draft }
    }

    fn frame(&mut self, hint: usize, members: impl FnOnce(&mut Object<'_>)) -> Draft {
        self.forget();
        let is_long = hint > Self::SHARING;
        let out = if is_long { &mut self.long } else { self.short.behind() };
        let start = out.len();
        out.reserve(ENVELOPE.saturating_add(hint));
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
        Object::go_on(out, members);
        Draft { length: out.len().saturating_sub(start), is_long, is_error: false }
    }

    /// A frame that is none, as long as the caller likes.
    #[cfg(test)]
    pub(crate) fn as_it_is(&mut self, text: &str) -> Draft {
        self.forget();
        self.short.behind().extend_from_slice(text.as_bytes());
        Draft { length: text.len(), is_long: false, is_error: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_queue::KEPT;
    use crate::json::write::{write_number, write_string};
    use alloc::collections::VecDeque;

    fn text(frame: &Bytes) -> &str {
        core::str::from_utf8(frame).unwrap()
    }

    fn written(write: impl FnOnce(&mut Frames) -> Draft) -> alloc::string::String {
        text(&Frames::alone(write)).into()
    }

    #[test]
    fn frames_have_the_members_of_their_kind_and_no_other() {
        let params = |out: &mut Vec<u8>| push_json(out, b"{\"a\":1}");
        assert_eq!(
            written(|frames| frames.request(7, "a/b", 0, params)),
            r#"{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"a":1}}"#
        );
        assert_eq!(
            written(|frames| frames.notification("n", 0, Some(params))),
            r#"{"jsonrpc":"2.0","method":"n","params":{"a":1}}"#
        );
        assert_eq!(written(|frames| frames.notification("n", 0, None::<fn(&mut Vec<u8>)>)), r#"{"jsonrpc":"2.0","method":"n"}"#);
        assert_eq!(
            written(|frames| frames.response(&WireId::Str("1".into()), 0, params)),
            r#"{"jsonrpc":"2.0","id":"1","result":{"a":1}}"#
        );
        let failure = RpcError::new(-1, "a \"b\"\n").with_data(Json::parse("[ 1 ]").unwrap());
        assert_eq!(
            written(|frames| frames.error(Some(&WireId::Int(-3)), &failure)),
            r#"{"jsonrpc":"2.0","id":-3,"error":{"code":-1,"message":"a \"b\"\n","data":[ 1 ]}}"#
        );
        assert_eq!(
            written(|frames| frames.error(None, &RpcError::fixed(1, ""))),
            r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#
        );
    }

    /// If one frame had a long hint and another a short one, the bytes of the discarded one stayed in the other's place.
    #[test]
    fn regression_a_frame_that_is_not_kept_leaves_no_trace_whatever_it_was_taken_for() {
        let shapes = [(0, 10), (10_000, 10), (0, 10_000), (10_000, 10_000)];
        for (unkept, (hint, length)) in shapes.iter().flat_map(|unkept| shapes.map(|kept| (*unkept, kept))) {
            let other = "y".repeat(length);
            let give_up = |frames: &mut Frames, number: i64| {
                let given_up = frames.response(&WireId::Int(9), unkept.0, |out| out.resize(out.len() + unkept.1, b'z'));
                if number % 2 == 0 {
                    frames.throw_away(given_up);
                }
            };
            let mut frames = Frames::default();
            let mut kept = VecDeque::new();
            for number in 0..50 {
                give_up(&mut frames, number);
                let frame = frames.response(&WireId::Int(number), hint, |out| out.extend_from_slice(other.as_bytes()));
                let frame = frames.keep(frame);
                assert_eq!(matches!(frame, Kept::Apart(_)), length > Frames::SHARING);
                kept.push_back((number, frame));
                give_up(&mut frames, number);
                if number % 3 == 0 {
                    continue;
                }
                let (first, frame) = kept.pop_front().unwrap();
                let left = match frame {
                    Kept::Queued(length) if number % 2 == 0 => frames.cut(length),
                    Kept::Queued(length) => {
                        let left = Bytes::copy_from_slice(frames.first(length));
                        frames.leave(length);
                        left
                    }
                    Kept::Apart(frame) => frame,
                };
                assert_eq!(text(&left), alloc::format!(r#"{{"jsonrpc":"2.0","id":{first},"result":{other}}}"#));
            }
        }
    }

    #[test]
    fn regression_a_large_frame_takes_its_memory_with_it_whether_it_is_kept_or_not() {
        const LARGE: usize = 5 << 20;
        for (hint, waiting) in [(0, 0), (0, 3), (LARGE, 0), (LARGE, 3)] {
            let mut frames = Frames::default();
            for _ in 0..waiting {
                let frame = frames.as_it_is("waiting");
                let _ = frames.keep(frame);
            }
            let large = |frames: &mut Frames| frames.response(&WireId::Int(1), hint, |out| out.resize(out.len() + LARGE, b'1'));
            let memory = |frames: &Frames| frames.short.capacity() + frames.long.capacity();
            for _ in 0..3 {
                let frame = large(&mut frames);
                frames.throw_away(frame);
                assert!(memory(&frames) <= 4 * KEPT, "{} bytes are kept for nothing", memory(&frames));
                let frame = large(&mut frames);
                assert!(matches!(frames.keep(frame), Kept::Apart(frame) if frame.len() > LARGE));
                assert!(memory(&frames) <= 4 * KEPT, "{} bytes are kept behind it", memory(&frames));
                let _ = large(&mut frames);
                let frame = frames.as_it_is("short");
                let _ = frames.keep(frame);
                assert!(memory(&frames) <= 4 * KEPT, "{} bytes are kept beside a short one", memory(&frames));
            }
        }
    }

    #[test]
    fn frames_amid_the_others_are_dropped_and_what_was_written_last_stays() {
        let mut frames = Frames::default();
        for text in ["a", "bb", "ccc", "dddd"] {
            let frame = frames.as_it_is(text);
            assert_eq!(frames.keep(frame), Kept::Queued(text.len()));
        }
        frames.leave(1);
        let last = frames.as_it_is("last");
        frames.retain([(2, false), (3, true), (4, false)].into_iter());
        assert_eq!(frames.keep(last), Kept::Queued(4));
        assert_eq!(frames.first(7), b"ccclast");
        frames.leave(7);
        assert_eq!((frames.first(1), frames.kept), (b"".as_slice(), 0));
    }

    #[test]
    fn frames_that_leave_one_by_one_share_blocks() {
        let mut frames = Frames::default();
        let mut written = |length: usize| {
            let text = [b"\"".as_slice(), &alloc::vec![b'x'; length], b"\""].concat();
            let frame = frames.response(&WireId::Int(1), text.len(), |out| out.extend_from_slice(&text));
            match frames.keep(frame) {
                Kept::Queued(length) => frames.cut(length),
                Kept::Apart(frame) => frame,
            }
        };
        let all: Vec<Bytes> = (0..400).map(|step| written(step * 3)).collect();
        for (step, frame) in all.iter().enumerate() {
            assert!(text(frame).ends_with(&alloc::format!("\"{}\"}}", "x".repeat(step * 3))), "{step}");
        }
        let ends_at = |frame: &Bytes| frame.as_ptr_range().end;
        let neighbours = all.windows(2).filter(|pair| ends_at(&pair[0]) == pair[1].as_ptr()).count();
        assert!(neighbours > 100, "{neighbours}");
        drop(all);
        // One that leaves when all before it are gone takes no memory.
        let first = (0..100).map(|_| written(100).as_ptr()).min().unwrap();
        let again = (0..1_000).filter(|_| written(100).as_ptr() == first).count();
        assert!(again > 10, "{again}");
        assert!(frames.short.capacity() <= 2 * Frames::SHARING + ENVELOPE);
    }

    #[test]
    fn g13_payload_bytes_cross_unchanged_except_line_breaks_between_tokens() {
        let mut out = Vec::new();
        push_json(&mut out, b"{\r\n\t\"a\" : 1.50e+3,\n\"b\":\"\\n\\u00e9\"}");
        assert_eq!(out, b"{  \t\"a\" : 1.50e+3, \"b\":\"\\n\\u00e9\"}");
    }

    #[test]
    fn text_is_written_as_serde_json_writes_it() {
        let specials = ['"', '\\', '\n', '\r', '\t', '\u{8}', '\u{c}', '\0', '\u{1f}', '\u{7f}', '\u{e9}', '\u{1f600}'];
        for length in 0..20 {
            for (place, next) in (0..length).flat_map(|place| (0..length).map(move |next| (place, next))) {
                for (special, other) in specials.iter().zip(specials.iter().cycle().skip(3)) {
                    let mut text = alloc::vec!['x'; length];
                    (text[place], text[next]) = (*special, *other);
                    let text: alloc::string::String = text.into_iter().collect();
                    let mut out = Vec::new();
                    write_string(&mut out, &text);
                    let read: alloc::string::String = serde_json::from_slice(&out).unwrap();
                    assert_eq!(read, text);
                    let expected = serde_json::to_string(&text).unwrap().replace("\\b", "\\u0008").replace("\\f", "\\u000c");
                    assert_eq!(core::str::from_utf8(&out).unwrap(), expected);
                }
            }
        }
    }

    #[test]
    fn members_are_separated_however_long_their_names_are() {
        for names in [["a", "b"], ["a", "a name that is too long for being written at once"]] {
            for names in [names, [names[1], names[0]]] {
                let mut out = Vec::new();
                Object::write(&mut out, |object| names.iter().for_each(|name| object.boolean(name, true)));
                assert_eq!(text(&out.into()), alloc::format!(r#"{{"{}":true,"{}":true}}"#, names[0], names[1]));
            }
        }
    }

    #[test]
    fn numbers_are_written_the_way_people_count() {
        let shown = |number: f64| {
            let mut out = Vec::new();
            write_number(&mut out, number);
            alloc::string::String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(3.0), "3");
        assert_eq!(shown(-3.0), "-3");
        assert_eq!(shown(0.1 + 0.2), "0.30000000000000004");
        assert_eq!(shown(1e12), "1000000000000");
        assert_eq!(shown(1e300), "1e300");
        assert_eq!(shown(5e-324), "5e-324");
        let powers = (0..19).flat_map(|power| [10_i64.pow(power) - 1, 10_i64.pow(power), -10_i64.pow(power)]);
        // Every group of four digits, and the eight digits that numbers here and there have.
        let many = (0..10_000).chain((0..10_000).map(|number| number * 10_000)).chain((0..100_000_000).step_by(9_973));
        for number in powers.chain([i64::MIN, i64::MAX]).chain(many) {
            let mut out = Vec::new();
            write_integer(&mut out, number);
            assert_eq!(alloc::string::String::from_utf8(out).unwrap(), alloc::format!("{number}"));
        }
        for number in [f64::MAX, f64::MIN_POSITIVE, 1.0 / 3.0, 9_007_199_254_740_993.0, 123_456.789] {
            assert_eq!(shown(number).parse::<f64>().unwrap(), number);
        }
    }
}
