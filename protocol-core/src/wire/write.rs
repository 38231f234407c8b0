//! Writing frames, which contain no line feeds.

use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};

use super::WireId;
use crate::byte_queue::{ByteQueue, LONG, MAX_UNUSED_FRAMES};
use crate::error::RpcError;
use crate::json::Json;
use crate::json::write::{Object, push_json, write_integer};

/// Room in bytes for an envelope and small parameters, so that the buffer does not grow while most frames are written.
const ENVELOPE: usize = 128;

/// Writes frames, and stores the bytes of queued short frames, one after the other, in a buffer that is used again and again. Here a frame
/// is *long* if its hint is more than [`Self::SHARING`], and otherwise *short*; a hint is the expected length of the parameters or of the
/// result. A short frame is written directly after the queued frames, so that queueing it copies nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameBuffer {
    /// The queued short frames, followed by the frame that was written last, if that is short.
    short: ByteQueue,
    /// The number of bytes of `short` that are queued.
    queued: usize,
    /// The frame that was written last, if it is long.
    long: Vec<u8>,
    /// The memory shared by short frames that are taken one by one.
    block: BytesMut,
    /// The last frame with memory of at least [`LONG`] bytes that was taken, kept to use its memory again.
    sent: Option<SentFrame>,
}

/// A frame that was taken. Its memory is used for the next frame of [`LONG`] bytes or more, if every other reference to the taken frame was
/// dropped by then.
#[derive(Clone, Debug)]
struct SentFrame {
    frame: Bytes,
    /// The capacity of the memory of `frame`, in bytes.
    capacity: usize,
    /// The number of shorter frames that were written after `frame` was taken.
    unused_for: u8,
}

/// The frame that was written last. Queue, take or discard it before another frame is written: writing discards a frame that was
/// neither queued nor taken.
#[derive(Debug)]
#[must_use]
pub(crate) struct WrittenFrame {
    length: usize,
    /// `true` if the frame is in [`FrameBuffer::long`], `false` if it is in [`FrameBuffer::short`].
    is_long: bool,
    /// `true` if the frame is a response with an error.
    is_error: bool,
}

impl WrittenFrame {
    /// The length of the frame in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns `true` if the frame is a response with an error.
    pub(crate) fn is_error(&self) -> bool {
        self.is_error
    }
}

/// The place of the bytes of a queued frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueuedFrame {
    /// The bytes are in the [`FrameBuffer`], after those of the frames that were queued before. The number is the length of the frame in
    /// bytes.
    InBuffer(usize),
    /// The frame has memory of its own, since it is longer than [`FrameBuffer::SHARING`], is for a lane other than the channel, or was
    /// taken before it was queued.
    Separate(Bytes),
}

impl QueuedFrame {
    /// The length of the frame in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InBuffer(length) => *length,
            Self::Separate(frame) => frame.len(),
        }
    }
}

impl FrameBuffer {
    /// The size in bytes of the memory that short frames share ([`Self::block`]). A taken frame keeps alive no more than this.
    const BLOCK: usize = 2048;
    /// The length in bytes up to which a frame is queued in the shared buffer.
    const SHARING: usize = 1024;

    /// Returns the one frame that `write` writes into a new buffer.
    pub(crate) fn single(write: impl FnOnce(&mut Self) -> WrittenFrame) -> Bytes {
        let mut frames = Self::default();
        let frame = write(&mut frames);
        frames.take(frame)
    }

    /// Queues the frame that was written last.
    pub(crate) fn queue(&mut self, frame: WrittenFrame) -> QueuedFrame {
        if frame.length > Self::SHARING {
            return QueuedFrame::Separate(self.take(frame));
        }
        // The frame is shorter than its hint.
        if frame.is_long {
            self.short.buffer().append(&mut self.long);
            self.long = Vec::new();
        }
        self.queued = self.queued.saturating_add(frame.length);
        QueuedFrame::InBuffer(frame.length)
    }

    /// Takes the frame that was written last, without queueing it.
    pub(crate) fn take(&mut self, frame: WrittenFrame) -> Bytes {
        if frame.is_long {
            let capacity = self.long.capacity();
            let frame = Bytes::from(core::mem::take(&mut self.long));
            if capacity >= LONG {
                self.sent = Some(SentFrame { frame: frame.clone(), capacity, unused_for: 0 });
            }
            return frame;
        }
        // If the frame is alone and fills half of the buffer or more, the buffer itself is returned.
        if self.queued == 0 && frame.length >= self.short.capacity() / 2 {
            return self.short.take();
        }
        let taken = Bytes::copy_from_slice(self.short.as_slice().get(self.queued..).unwrap_or_default());
        self.short.truncate(self.queued);
        taken
    }

    /// Frees the memory that is kept for the next frame of [`LONG`] bytes or more.
    pub(crate) fn release_memory(&mut self) {
        self.sent = None;
    }

    /// Prepares memory for a frame of about `length` bytes: uses that of the frame in `sent`, if that frame has been dropped and the memory
    /// is neither too small nor much too large.
    fn reuse(&mut self, length: usize) {
        /// The maximum factor by which memory may be larger than its frame, since a frame keeps all of its memory alive until it is
        /// dropped.
        const MAX_FACTOR: usize = 8;
        let Some(sent) = &mut self.sent else { return };
        if length < LONG {
            sent.unused_for = sent.unused_for.saturating_add(1);
            if sent.unused_for >= MAX_UNUSED_FRAMES {
                self.sent = None;
            }
        } else if sent.capacity >= length && sent.capacity / MAX_FACTOR <= length {
            let memory = self.sent.take().and_then(|sent| sent.frame.try_into_mut().ok());
            if let Some(mut memory) = memory {
                memory.clear();
                self.long = memory.into();
            }
        }
    }

    /// A frame without bytes. It stands for a message that cannot be written.
    pub(crate) fn no_frame(&mut self) -> WrittenFrame {
        self.discard_unqueued();
        WrittenFrame { length: 0, is_long: false, is_error: false }
    }

    /// Discards the frame that was written last, and frees its memory.
    pub(crate) fn discard(&mut self, _: WrittenFrame) {
        self.discard_unqueued();
    }

    /// Discards a frame that was neither queued nor taken.
    fn discard_unqueued(&mut self) {
        self.short.truncate(self.queued);
        if !self.long.is_empty() {
            self.long = Vec::new();
        }
    }

    /// The first `length` queued bytes. Pass the length of the first frame to get the first frame.
    pub(crate) fn first(&self, length: usize) -> &[u8] {
        self.short.first(length)
    }

    /// Drops the first `length` queued bytes, which were sent or withdrawn.
    pub(crate) fn drop_front(&mut self, length: usize) {
        self.queued = self.queued.saturating_sub(length);
        self.short.advance(length);
    }

    /// Takes the first `length` queued bytes as a frame of its own.
    #[inline]
    pub(crate) fn take_front(&mut self, length: usize) -> Bytes {
        // If all frames of the block were dropped, its memory is used again.
        if self.block.capacity() < length && !self.block.try_reclaim(Self::BLOCK) {
            self.block = BytesMut::with_capacity(Self::BLOCK);
        }
        self.block.extend_from_slice(self.short.first(length));
        self.drop_front(length);
        self.block.split().freeze()
    }

    /// Drops some of the queued frames. `frames` gives, in order, the length of each frame in the buffer, and `true` if the frame stays.
    pub(crate) fn retain(&mut self, frames: impl Iterator<Item = (usize, bool)>) {
        let mut queued: usize = 0;
        self.short.retain(frames.inspect(|(length, stays)| {
            if *stays {
                queued = queued.saturating_add(*length);
            }
        }));
        self.queued = queued;
    }

    /// Writes a request of ours. `params` writes the whole object of the parameters; `hint` is its expected length in bytes.
    pub(crate) fn request(&mut self, id: u64, method: &str, hint: usize, params: impl FnOnce(&mut Vec<u8>)) -> WrittenFrame {
        self.frame(hint, |object| {
            object.integer("id", id);
            object.string("method", method);
            params(object.member("params"));
        })
    }

    /// Writes a notification. `params`, if it is given, writes the whole object of the parameters; `hint` is its expected length in bytes.
    pub(crate) fn notification(&mut self, method: &str, hint: usize, params: Option<impl FnOnce(&mut Vec<u8>)>) -> WrittenFrame {
        self.frame(hint, |object| {
            object.string("method", method);
            if let Some(params) = params {
                params(object.member("params"));
            }
        })
    }

    /// Writes a notification; `members` writes the members of its parameters.
    pub(crate) fn notify(&mut self, method: &'static str, members: impl FnOnce(&mut Object<'_>)) -> WrittenFrame {
        self.frame(64, |object| {
            object.word("method", method);
            object.object("params", members);
        })
    }

    /// Writes a notification with the parameters `params`.
    pub(crate) fn notify_verbatim(&mut self, method: &str, params: Option<&Json>) -> WrittenFrame {
        let hint = params.map_or(0, |params| params.as_bytes().len());
        self.notification(method, hint, params.map(|params| |out: &mut Vec<u8>| push_json(out, params.as_bytes())))
    }

    /// Writes a response with a result. `result` writes the whole value; `hint` is its expected length in bytes.
    pub(crate) fn response(&mut self, id: &WireId, hint: usize, result: impl FnOnce(&mut Vec<u8>)) -> WrittenFrame {
        self.frame(hint, |object| {
            id.write(object.member("id"));
            result(object.member("result"));
        })
    }

    /// Writes a response with an error. `id` is `None` if the id of the request could not be read; the response then has no id.
    pub(crate) fn error(&mut self, id: Option<&WireId>, error: &RpcError) -> WrittenFrame {
        let data = error.data.as_ref().map_or(0, |data| data.as_bytes().len());
        let frame = self.frame(error.message.len().saturating_add(data), |object| {
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
        WrittenFrame { is_error: true, ..frame }
    }

    fn frame(&mut self, hint: usize, members: impl FnOnce(&mut Object<'_>)) -> WrittenFrame {
        self.discard_unqueued();
        let is_long = hint > Self::SHARING;
        if self.sent.is_some() {
            self.reuse(hint.saturating_add(ENVELOPE));
        }
        let out = if is_long { &mut self.long } else { self.short.buffer() };
        let start = out.len();
        out.reserve(ENVELOPE.saturating_add(hint));
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
        Object::finish(out, members);
        WrittenFrame { length: out.len().saturating_sub(start), is_long, is_error: false }
    }

    /// Writes `text` as a frame.
    #[cfg(test)]
    pub(crate) fn frame_of(&mut self, text: &str) -> WrittenFrame {
        self.discard_unqueued();
        self.short.buffer().extend_from_slice(text.as_bytes());
        WrittenFrame { length: text.len(), is_long: false, is_error: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_queue::KEPT_CAPACITY;
    use crate::json::write::{write_number, write_string};
    use alloc::collections::VecDeque;

    fn text(frame: &Bytes) -> &str {
        core::str::from_utf8(frame).unwrap()
    }

    fn written(write: impl FnOnce(&mut FrameBuffer) -> WrittenFrame) -> alloc::string::String {
        text(&FrameBuffer::single(write)).into()
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

    /// A regression: the bytes of a discarded frame stayed in the buffer if the next frame, with a hint of another size, was written to the
    /// other buffer.
    #[test]
    fn regression_the_bytes_of_a_discarded_frame_do_not_stay_in_a_buffer() {
        // The hint and the length of a result.
        let shapes = [(0, 10), (10_000, 10), (0, 10_000), (10_000, 10_000)];
        for (unqueued, (hint, length)) in shapes.iter().flat_map(|unqueued| shapes.map(|queued| (*unqueued, queued))) {
            let other = "y".repeat(length);
            let write_unqueued = |frames: &mut FrameBuffer, number: i64| {
                let discarded = frames.response(&WireId::Int(9), unqueued.0, |out| out.resize(out.len() + unqueued.1, b'z'));
                if number % 2 == 0 {
                    frames.discard(discarded);
                }
            };
            let mut frames = FrameBuffer::default();
            let mut queued = VecDeque::new();
            for number in 0..50 {
                write_unqueued(&mut frames, number);
                let frame = frames.response(&WireId::Int(number), hint, |out| out.extend_from_slice(other.as_bytes()));
                let frame = frames.queue(frame);
                assert_eq!(matches!(frame, QueuedFrame::Separate(_)), length > FrameBuffer::SHARING);
                queued.push_back((number, frame));
                write_unqueued(&mut frames, number);
                if number % 3 == 0 {
                    continue;
                }
                let (first, frame) = queued.pop_front().unwrap();
                let taken = match frame {
                    QueuedFrame::InBuffer(length) if number % 2 == 0 => frames.take_front(length),
                    QueuedFrame::InBuffer(length) => {
                        let taken = Bytes::copy_from_slice(frames.first(length));
                        frames.drop_front(length);
                        taken
                    }
                    QueuedFrame::Separate(frame) => frame,
                };
                assert_eq!(text(&taken), alloc::format!(r#"{{"jsonrpc":"2.0","id":{first},"result":{other}}}"#));
            }
        }
    }

    #[test]
    fn regression_the_buffers_do_not_keep_the_memory_of_a_large_frame_that_is_queued_or_discarded() {
        const LARGE: usize = 5 << 20;
        for (hint, waiting) in [(0, 0), (0, 3), (LARGE, 0), (LARGE, 3)] {
            let mut frames = FrameBuffer::default();
            for _ in 0..waiting {
                let frame = frames.frame_of("waiting");
                let _ = frames.queue(frame);
            }
            let large =
                |frames: &mut FrameBuffer| frames.response(&WireId::Int(1), hint, |out| out.resize(out.len() + LARGE, b'1'));
            let memory = |frames: &FrameBuffer| frames.short.capacity() + frames.long.capacity();
            for _ in 0..3 {
                let frame = large(&mut frames);
                frames.discard(frame);
                assert!(memory(&frames) <= 4 * KEPT_CAPACITY, "{} bytes are kept after a discarded frame", memory(&frames));
                let frame = large(&mut frames);
                assert!(matches!(frames.queue(frame), QueuedFrame::Separate(frame) if frame.len() > LARGE));
                assert!(memory(&frames) <= 4 * KEPT_CAPACITY, "{} bytes are kept after it", memory(&frames));
                let _ = large(&mut frames);
                let frame = frames.frame_of("short");
                let _ = frames.queue(frame);
                assert!(memory(&frames) <= 4 * KEPT_CAPACITY, "{} bytes are kept beside a short one", memory(&frames));
            }
        }
    }

    #[test]
    fn the_memory_of_a_long_frame_is_used_again_once_the_frame_is_dropped_and_freed_after_many_short_frames() {
        const LARGE: usize = 1 << 20;
        let mut frames = FrameBuffer::default();
        let write = |frames: &mut FrameBuffer, length: usize| {
            let frame = frames.response(&WireId::Int(1), length, |out| out.resize(out.len() + length, b'1'));
            frames.take(frame)
        };
        let address = write(&mut frames, LARGE).as_ptr();
        for length in [LARGE, LARGE / 2, LARGE] {
            assert_eq!(write(&mut frames, length).as_ptr(), address);
        }
        assert_ne!(write(&mut frames, LARGE / 16).as_ptr(), address, "the short frame would keep too much memory alive");
        let waiting = write(&mut frames, LARGE);
        assert_ne!(write(&mut frames, LARGE).as_ptr(), waiting.as_ptr(), "the frame in it is not written yet");
        for _ in 0..MAX_UNUSED_FRAMES {
            assert!(frames.sent.is_some());
            let _ = write(&mut frames, 10);
        }
        assert!(frames.sent.is_none());
        let _ = write(&mut frames, LARGE);
        frames.release_memory();
        assert!(frames.sent.is_none());
    }

    #[test]
    fn frames_between_others_can_be_dropped_and_the_frame_written_last_stays() {
        let mut frames = FrameBuffer::default();
        for text in ["a", "bb", "ccc", "dddd"] {
            let frame = frames.frame_of(text);
            assert_eq!(frames.queue(frame), QueuedFrame::InBuffer(text.len()));
        }
        frames.drop_front(1);
        let last = frames.frame_of("last");
        frames.retain([(2, false), (3, true), (4, false)].into_iter());
        assert_eq!(frames.queue(last), QueuedFrame::InBuffer(4));
        assert_eq!(frames.first(7), b"ccclast");
        frames.drop_front(7);
        assert_eq!((frames.first(1), frames.queued), (b"".as_slice(), 0));
    }

    #[test]
    fn frames_that_are_taken_one_by_one_share_blocks() {
        let mut frames = FrameBuffer::default();
        let mut written = |length: usize| {
            let text = [b"\"".as_slice(), &alloc::vec![b'x'; length], b"\""].concat();
            let frame = frames.response(&WireId::Int(1), text.len(), |out| out.extend_from_slice(&text));
            match frames.queue(frame) {
                QueuedFrame::InBuffer(length) => frames.take_front(length),
                QueuedFrame::Separate(frame) => frame,
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
        // A frame that is taken when all frames before it were dropped needs no new memory.
        let first = (0..100).map(|_| written(100).as_ptr()).min().unwrap();
        let again = (0..1_000).filter(|_| written(100).as_ptr() == first).count();
        assert!(again > 10, "{again}");
        assert!(frames.short.capacity() <= 2 * FrameBuffer::SHARING + ENVELOPE);
    }

    #[test]
    fn g13_payload_bytes_are_written_unchanged_except_line_breaks_between_tokens() {
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
                    assert_eq!(core::str::from_utf8(&out).unwrap(), serde_json::to_string(&text).unwrap());
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
    fn numbers_are_written_in_their_shortest_form_and_read_back_equal() {
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
        // Every group of four digits in both positions, and a sample of the numbers with up to eight digits.
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
