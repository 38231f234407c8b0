//! Newline framing: one JSON-RPC message on each line, as on stdio, sockets and pipes (`docs/protocols/mcp.md`, "Framing on byte streams").
//!
//! A transport reads into a [`LineDecoder`], which returns frames, and writes from a [`LineEncoder`], which takes frames. Neither of the
//! two does I/O or parses frames: a line that is not JSON is a frame, too, and the session rejects it.
//!
//! ```
//! use bytes::{Buf, BufMut, Bytes};
//! use protocol_core::FrameSink as _;
//! use protocol_core::lines::{LineDecoder, LineEncoder};
//!
//! let mut decoder = LineDecoder::new(1 << 20);
//! decoder.space().put_slice(b"{\"a\":1}\r\n\n{\"b\""); // a transport reads into this space
//! assert_eq!(decoder.next_frame().unwrap(), "{\"a\":1}");
//! assert_eq!(decoder.next_frame(), None); // the line of `{"b"` is not complete
//!
//! let mut encoder = LineEncoder::new();
//! encoder.push(Bytes::from_static(b"{\"c\":3}"));
//! assert_eq!(encoder.chunk(), b"{\"c\":3}\n"); // a transport writes from this
//! ```

use alloc::collections::VecDeque;
use core::mem;

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::byte_queue::{BASE_CAPACITY, ByteQueue, LONG, MAX_UNUSED_FRAMES, QUIET_COUNT};
use crate::sink::FrameSink;

/// The size in bytes up to which a buffer is kept, although a buffer of [`BASE_CAPACITY`] would be enough.
const BASE_KEPT: usize = 2 * BASE_CAPACITY;
/// The size of a read buffer in bytes while reads fill the space that they get.
const BURST: usize = 4 * BASE_CAPACITY;
/// The minimum space for a read, in bytes.
const MIN_ROOM: usize = BASE_CAPACITY / 2;
/// The maximum space for a read of [`LineDecoder::read_with`], in bytes.
const MAX_CLEARED: usize = 64 * 1024;
/// The maximum number of bytes that are removed from a line to get its frame: a byte order mark and a carriage return.
const TRIMMED: usize = BYTE_ORDER_MARK.len() + 1;
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// The length in bytes from which a frame is written from its own memory. Shorter frames are copied into one piece, since copying such a
/// frame costs less than writing one more piece.
const SEPARATE: usize = 4 * 1024;

/// Splits a byte stream into frames.
///
/// A frame is a line, from which the line feed, one carriage return before the line feed, and a byte order mark at the beginning are
/// removed. Blank lines within the limit give no frame. The frames do not depend on how the bytes were split into reads, and no byte is
/// searched twice.
///
/// A line longer than the limit becomes one frame of its first `limit + 1` bytes, as soon as it is certain to be too long; the rest of the
/// line is discarded. The frame may end within a UTF-8 character. A session that gets such a frame by the channel, longer than
/// [`crate::Limits::frame_bytes`], closes with [`crate::CloseReason::FrameTooLarge`].
///
/// Frames are slices of the read buffer. A frame keeps alive either a buffer of a few reads (at most 16 KiB) or no more than eight times
/// its own length: short frames that arrived after a long frame are copied out of the large buffer. The decoder holds the bytes of at most
/// one line, up to the limit, and of one read. It keeps a large buffer for the next long line, until 64 shorter lines were returned or
/// [`LineDecoder::release_memory`] is called.
#[derive(Debug)]
pub struct LineDecoder {
    /// The bytes that were read and not yet returned, followed by `spare` bytes.
    buffer: BytesMut,
    /// The number of bytes at the end of `buffer` that were zeroed for a read, and that the read did not fill.
    spare: usize,
    /// The capacity that the memory of `buffer` was allocated with, including the space of frames that were returned.
    full_capacity: usize,
    /// The number of reads in a row that did not fill their space.
    quiet_reads: u8,
    /// The number of bytes at the beginning of `buffer` that hold no line feed.
    searched: usize,
    limit: usize,
    /// The memory of the last long line. No unread bytes are in it, but the frame of that line may still be a slice of it.
    kept: Option<KeptBuffer>,
    /// `true` while the rest of a line that is too long is discarded.
    discarding: bool,
}

/// The memory of a long line, kept for the next long line.
#[derive(Debug)]
struct KeptBuffer {
    memory: BytesMut,
    /// The capacity of `memory`.
    full_capacity: usize,
    /// The number of shorter lines that were returned after that line.
    unused_for: u8,
}

impl LineDecoder {
    /// A decoder of frames of at most `limit` bytes. It takes no memory before the first read.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            spare: 0,
            full_capacity: 0,
            quiet_reads: QUIET_COUNT,
            searched: 0,
            limit,
            kept: None,
            discarding: false,
        }
    }

    /// Changes the limit, for all lines that were not yet returned.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Space to read into, at least 2 KiB. Before each call, call [`Self::next_frame`] until it returns `None`, so that only the beginning
    /// of one line is left in the buffer. The space grows with that line, so that long lines are read in few large pieces.
    pub fn space(&mut self) -> Limit<&mut BytesMut> {
        self.make_room(MIN_ROOM);
        self.drop_spare();
        let room = self.buffer.capacity().saturating_sub(self.buffer.len());
        (&mut self.buffer).limit(room)
    }

    /// Calls `read` with a slice, whose beginning `read` fills; `read` returns the number of bytes that it has filled. The slice contains
    /// zeros or bytes of an earlier read. It is at most 64 KiB long, so that the space for a long line is not zeroed before it is needed.
    pub fn read_with(&mut self, read: impl FnOnce(&mut [u8]) -> usize) {
        self.make_room(MIN_ROOM);
        let buffered = self.buffered_bytes();
        let room = self.buffer.capacity().saturating_sub(buffered).min(MAX_CLEARED);
        let end = buffered.saturating_add(room);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.spare = self.buffer.len().saturating_sub(buffered);
        let count = read(self.buffer.get_mut(buffered..end).unwrap_or_default());
        self.spare = self.spare.saturating_sub(count.min(room));
    }

    /// Appends a copy of `bytes` that were read elsewhere. Call [`Self::next_frame`] afterwards until it returns `None`.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.drop_spare();
        self.buffer.extend_from_slice(bytes);
    }

    /// Frees the memory that is kept for the next long line. Call this method when a connection has been idle for a while;
    /// [`crate::drive::Driver`] does so through [`crate::drive::FrameIo::release_memory`].
    pub fn release_memory(&mut self) {
        self.kept = None;
        if self.full_capacity > BASE_KEPT && self.buffered_bytes() == 0 {
            (self.buffer, self.spare, self.full_capacity) = (BytesMut::new(), 0, 0);
        }
    }

    /// The number of bytes that were read and not yet returned.
    fn buffered_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.spare)
    }

    fn drop_spare(&mut self) {
        self.buffer.truncate(self.buffered_bytes());
        self.spare = 0;
    }

    #[inline]
    fn make_room(&mut self, least: usize) {
        let buffered = self.buffered_bytes();
        let room = self.buffer.capacity().saturating_sub(buffered);
        // There is no room if the last read has filled its space.
        self.quiet_reads = if room == 0 && self.full_capacity > 0 { 0 } else { self.quiet_reads.saturating_add(1) };
        // Nearly always `false`: there is room, and a buffer of at most `BASE_KEPT` is never too large.
        if room < least || self.full_capacity > BASE_KEPT {
            self.change_buffer(least, buffered, room);
        }
    }

    /// Makes room for `least` bytes, and replaces a buffer that is larger than it needs to be.
    fn change_buffer(&mut self, least: usize, buffered: usize, room: usize) {
        let (max_kept, usual) =
            if self.quiet_reads < QUIET_COUNT { (BURST, BURST.saturating_sub(buffered)) } else { (BASE_KEPT, BASE_CAPACITY) };
        let too_large = self.full_capacity > max_kept && buffered <= BASE_CAPACITY;
        if !too_large && room >= least {
            return;
        }
        self.drop_spare();
        if !too_large && self.buffer.try_reclaim(least) {
            return;
        }
        // Doubles, so that each byte of a long line is copied a constant number of times on average.
        let max = self.limit.saturating_add(TRIMMED).saturating_add(BASE_CAPACITY);
        let wanted = buffered.saturating_add(buffered.max(usual)).min(max).max(buffered.saturating_add(least));
        let (mut memory, full_capacity) = match self.take_kept(wanted) {
            Some(kept) => kept,
            None => (BytesMut::with_capacity(wanted), wanted),
        };
        memory.extend_from_slice(&self.buffer);
        let (mut before, capacity_before) =
            (mem::replace(&mut self.buffer, memory), mem::replace(&mut self.full_capacity, full_capacity));
        if too_large && capacity_before >= LONG {
            before.clear();
            self.kept = Some(KeptBuffer { memory: before, full_capacity: capacity_before, unused_for: 0 });
        }
    }

    /// Returns memory for a long line of `wanted` bytes, if the memory of the last long line is large enough. While the frame of the last
    /// long line is in use, returns new memory of the same size instead, so that the new line is not copied as it grows.
    fn take_kept(&mut self, wanted: usize) -> Option<(BytesMut, usize)> {
        let KeptBuffer { mut memory, full_capacity, .. } = if wanted >= LONG { self.kept.take()? } else { return None };
        let is_free = memory.try_reclaim(full_capacity);
        (full_capacity >= wanted).then(|| (if is_free { memory } else { BytesMut::with_capacity(full_capacity) }, full_capacity))
    }

    /// Counts a line that was returned, and frees the memory of the last long line after enough shorter lines.
    #[cold]
    fn count_unused(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.unused_for = kept.unused_for.saturating_add(1);
            if kept.unused_for >= MAX_UNUSED_FRAMES {
                self.kept = None;
            }
        }
    }

    /// The next frame, or `None` if its line is not complete.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Bytes> {
        // The quick case: nothing was read since the last search. It usually occurs twice for each read: after the last frame of the read,
        // and at the start of the next turn.
        if self.searched == self.buffered_bytes() { None } else { self.search() }
    }

    fn search(&mut self) -> Option<Bytes> {
        loop {
            let Some(found) = find_line_feed(self.buffer.get(self.searched..self.buffered_bytes()).unwrap_or_default()) else {
                return self.unfinished();
            };
            let line = self.buffer.split_to(self.searched.saturating_add(found)).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if self.kept.is_some() {
                self.count_unused();
            }
            if mem::take(&mut self.discarding) {
                continue;
            }
            if let Some(frame) = self.frame(line) {
                return Some(frame);
            }
        }
    }

    /// Returns the frame of a line whose line feed has not arrived, if the line is already too long. The buffer contains no line feed.
    fn unfinished(&mut self) -> Option<Bytes> {
        if self.discarding {
            self.clear();
        }
        self.searched = self.buffered_bytes();
        if self.searched <= self.limit.saturating_add(TRIMMED) {
            return None;
        }
        self.discarding = true;
        self.take_buffered()
    }

    /// Ends the input: returns the last line if it has no line feed, even if it is only a part of a frame.
    pub fn finish(&mut self) -> Option<Bytes> {
        if mem::take(&mut self.discarding) {
            self.clear();
        }
        self.take_buffered()
    }

    fn clear(&mut self) {
        self.buffer.clear();
        self.spare = 0;
    }

    /// Takes all bytes of the buffer as one line, and returns its frame.
    fn take_buffered(&mut self) -> Option<Bytes> {
        self.drop_spare();
        self.searched = 0;
        let line = mem::take(&mut self.buffer).freeze();
        self.frame(line)
    }

    /// Returns the frame of a line, or `None` if it is blank.
    fn frame(&self, mut line: Bytes) -> Option<Bytes> {
        if line.starts_with(&BYTE_ORDER_MARK) {
            line.advance(BYTE_ORDER_MARK.len());
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len().saturating_sub(1));
        }
        if line.len() > self.limit {
            // The length is checked before the blanks: a line that is too long becomes a frame before all of it has arrived, and so before
            // it is known to be blank.
            line.truncate(self.limit.saturating_add(1));
        } else if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            return None;
        }
        let pins_too_much = self.full_capacity > BURST && line.len() < self.full_capacity / 8;
        Some(if pins_too_much { Bytes::copy_from_slice(&line) } else { line })
    }
}

/// Returns the offset of the first line feed. Blocks of 32 bytes are checked in a loop without an early exit, which the compiler
/// vectorizes. In the block with the line feed, and after the last whole block, eight bytes are checked at a time, and the rest singly.
fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    const FEEDS: u64 = u64::from_ne_bytes([b'\n'; 8]);
    let mut rest = bytes;
    while let Some((block, tail)) = rest.split_first_chunk::<32>() {
        if block.iter().fold(false, |found, byte| found | (*byte == b'\n')) {
            break;
        }
        rest = tail;
    }
    let mut within = None;
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        // A byte of `word` is zero where a line feed is. The lowest bit that is set in `found` belongs to the first zero byte; bits above
        // it may be set wrongly.
        let word = u64::from_le_bytes(*eight) ^ FEEDS;
        let found = word.wrapping_sub(ONES) & !word & HIGH;
        if found != 0 {
            within = usize::try_from(found.trailing_zeros() / 8).ok();
            break;
        }
        rest = tail;
    }
    let within = within.or_else(|| rest.iter().position(|byte| *byte == b'\n'))?;
    Some(bytes.len().saturating_sub(rest.len()).saturating_add(within))
}

/// Joins frames into bytes to write, with a line feed after each.
///
/// It is a [`Buf`]: write from [`Buf::chunk`] (or, with the feature `std`, from `chunks_vectored`), then call [`Buf::advance`] with the
/// number of bytes that were written. Short frames are copied into one piece, long frames are not copied. The size of the encoder is not
/// bounded: stop pushing while [`Buf::remaining`] is too large.
#[derive(Debug, Default)]
pub struct LineEncoder {
    /// The pieces that are written first.
    pieces: VecDeque<Bytes>,
    /// The number of bytes in `pieces`.
    in_pieces: usize,
    /// The short frames that are written after `pieces`.
    joined: ByteQueue,
}

impl LineEncoder {
    /// An empty encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves all bytes of `other` to the end of this encoder. If this encoder is empty, the two are swapped and nothing is copied.
    pub fn append(&mut self, other: &mut Self) {
        if !self.has_remaining() {
            mem::swap(self, other);
        } else if other.pieces.is_empty() {
            self.joined.buffer().extend_from_slice(other.joined.as_slice());
            other.joined.advance(usize::MAX);
        } else {
            self.end_joined_piece();
            self.in_pieces = self.in_pieces.saturating_add(mem::take(&mut other.in_pieces));
            self.pieces.append(&mut other.pieces);
            mem::swap(&mut self.joined, &mut other.joined);
        }
    }

    /// Removes and returns the first frame, for transports that send frames and not lines. Of a frame that was partly written, returns the
    /// rest. A short frame is a slice of the piece that it was copied into, and keeps that piece alive.
    pub fn next_frame(&mut self) -> Option<Bytes> {
        self.end_joined_piece();
        let first = self.pieces.front_mut()?;
        let Some(end) = find_line_feed(first) else {
            // The piece is a long frame. Its line feed is the first byte after the piece.
            let frame = self.pieces.pop_front();
            self.in_pieces = self.in_pieces.saturating_sub(frame.as_ref().map_or(0, Bytes::len));
            self.advance(1);
            return frame;
        };
        let frame = first.split_to(end);
        self.in_pieces = self.in_pieces.saturating_sub(end);
        self.advance(1);
        Some(frame)
    }

    /// Moves the joined bytes to the end of `pieces`, so that another piece can follow them.
    fn end_joined_piece(&mut self) {
        let joined = self.joined.take();
        if !joined.is_empty() {
            self.push_piece(joined);
        }
    }

    fn push_piece(&mut self, piece: Bytes) {
        self.in_pieces = self.in_pieces.saturating_add(piece.len());
        self.pieces.push_back(piece);
    }

    /// Drops everything that is not yet written.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.in_pieces = 0;
        self.joined.advance(usize::MAX);
    }
}

impl FrameSink for LineEncoder {
    /// Adds a frame, which must not contain a line feed. Frames of a session contain none.
    fn push(&mut self, frame: Bytes) {
        if frame.len() < SEPARATE {
            return self.push_slice(&frame);
        }
        debug_assert!(find_line_feed(&frame).is_none(), "a frame is one line");
        self.end_joined_piece();
        self.push_piece(frame);
        self.joined.buffer().push(b'\n');
    }

    fn push_slice(&mut self, frame: &[u8]) {
        debug_assert!(find_line_feed(frame).is_none(), "a frame is one line");
        let joined = self.joined.buffer();
        joined.extend_from_slice(frame);
        joined.push(b'\n');
    }

    fn buffered_bytes(&self) -> usize {
        self.remaining()
    }
}

impl Buf for LineEncoder {
    fn remaining(&self) -> usize {
        self.in_pieces.saturating_add(self.joined.as_slice().len())
    }

    fn chunk(&self) -> &[u8] {
        match self.pieces.front() {
            Some(piece) => piece,
            None => self.joined.as_slice(),
        }
    }

    #[cfg(feature = "std")]
    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        let chunks = self.pieces.iter().map(|piece| &**piece).chain([self.joined.as_slice()]).filter(|chunk| !chunk.is_empty());
        let mut filled: usize = 0;
        for (slice, chunk) in slices.iter_mut().zip(chunks) {
            *slice = std::io::IoSlice::new(chunk);
            filled = filled.saturating_add(1);
        }
        filled
    }

    /// Drops the first `count` bytes, at most all.
    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let step = count.min(piece.len());
            count = count.saturating_sub(step);
            self.in_pieces = self.in_pieces.saturating_sub(step);
            piece.advance(step);
            if !piece.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.joined.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_queue::KEPT_CAPACITY;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    const LIMIT: usize = 64;

    /// All frames of `input`, the last line included, when it is read in pieces of `step` bytes.
    fn frames_of(input: &[u8], step: usize) -> Vec<Bytes> {
        let mut decoder = LineDecoder::new(LIMIT);
        let mut frames = Vec::new();
        for piece in input.chunks(step) {
            decoder.feed(piece);
            while let Some(frame) = decoder.next_frame() {
                frames.push(frame);
            }
        }
        frames.extend(decoder.finish());
        assert_eq!(decoder.finish(), None);
        frames
    }

    /// Returns `true` if `frame` is a slice of `memory`, judged by its address.
    fn lies_within(frame: &Bytes, memory: core::ops::Range<*const u8>) -> bool {
        memory.contains(&frame.as_ptr())
    }

    #[test]
    fn lines_are_the_same_frames_for_every_split_into_reads() {
        let input = "{\"a\":1}\n\n\r\n \t\r\n{\"b\":\"\u{e9}\u{1f600}\"}\r\n\u{feff}{\"c\":3}\n\u{feff}\n\u{feff}\r\nx\r\r\nlast"
            .as_bytes();
        let expected = ["{\"a\":1}", "{\"b\":\"\u{e9}\u{1f600}\"}", "{\"c\":3}", "x\r", "last"];
        for step in 1..=input.len() {
            assert_eq!(frames_of(input, step), expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole_and_a_longer_line_is_cut_one_byte_after_the_limit() {
        for length in LIMIT - 2..LIMIT + 20 {
            for (mark, end) in [("", "\n"), ("", "\r\n"), ("\u{feff}", "\n"), ("\u{feff}", "\r\n"), ("", ""), ("\u{feff}", "\r")] {
                let mut input = String::from(mark);
                input.extend(core::iter::repeat_n('y', length));
                input.push_str(end);
                if end.ends_with('\n') {
                    input.push_str("{}\n");
                }
                for step in [1, 2, 3, 7, 64, 65, 200] {
                    let frames = frames_of(input.as_bytes(), step);
                    assert_eq!(frames[0].len(), length.min(LIMIT + 1), "{length} bytes in pieces of {step}, {mark:?} {end:?}");
                    assert_eq!(frames.get(1).is_some_and(|next| next == "{}"), end.ends_with('\n'));
                }
            }
        }
    }

    #[test]
    fn blanks_of_exactly_the_limit_are_still_a_blank_line() {
        let input = [vec![b' '; LIMIT], b"\n{}\n".to_vec()].concat();
        for step in [1, 7, 64, 200] {
            assert_eq!(frames_of(&input, step), ["{}"], "in pieces of {step}");
        }
    }

    #[test]
    fn blanks_over_the_limit_are_a_line_that_is_too_long_and_not_a_blank_line() {
        let mut input = vec![b' '; LIMIT + 50];
        input.extend_from_slice(b"\n1\n");
        for step in 1..=input.len() {
            let frames = frames_of(&input, step);
            assert_eq!(frames.iter().map(Bytes::len).collect::<Vec<_>>(), [LIMIT + 1, 1], "in pieces of {step}");
        }
    }

    #[test]
    fn a_line_that_never_ends_is_reported_once_and_its_memory_is_freed() {
        let mut decoder = LineDecoder::new(100_000);
        let mut reported = 0;
        for _ in 0..10_000 {
            let mut space = decoder.space();
            let room = space.remaining_mut();
            space.put_bytes(b'z', room);
            assert!(decoder.full_capacity <= 100_000 + TRIMMED + BASE_CAPACITY, "{} bytes", decoder.full_capacity);
            while let Some(frame) = decoder.next_frame() {
                assert_eq!(frame.len(), 100_001);
                reported += 1;
            }
        }
        assert_eq!(reported, 1);
        assert!(decoder.full_capacity <= BURST, "{} bytes are kept", decoder.full_capacity);
        assert_eq!(decoder.finish(), None, "the discarded rest is not a line");
        decoder.feed(b"{}\n");
        assert_eq!(decoder.next_frame().unwrap(), "{}");
    }

    #[test]
    fn the_read_buffer_is_small_again_after_a_long_line() {
        let mut decoder = LineDecoder::new(16 << 20);
        let line = vec![b'q'; 5 << 20];
        let mut sent = 0;
        while sent < line.len() {
            let mut space = decoder.space();
            let step = space.remaining_mut().min(line.len() - sent);
            space.put_slice(&line[sent..sent + step]);
            sent += step;
            assert_eq!(decoder.next_frame(), None);
        }
        assert!(decoder.full_capacity >= 5 << 20);
        decoder.feed(b"\n{}");
        assert_eq!(decoder.next_frame().unwrap().len(), 5 << 20);
        assert_eq!(decoder.next_frame(), None);
        decoder.space();
        assert!(decoder.full_capacity <= BURST && decoder.buffer.capacity() <= BURST);
        decoder.feed(b"\n");
        assert_eq!(decoder.next_frame().unwrap(), "{}");
    }

    /// Reads a line of `length` bytes, and returns its frame.
    fn read_long(decoder: &mut LineDecoder, length: usize) -> Bytes {
        let mut left = length;
        while left > 0 {
            let mut space = decoder.space();
            let step = space.remaining_mut().min(left);
            space.put_bytes(b'q', step);
            left -= step;
            assert_eq!(decoder.next_frame(), None);
        }
        decoder.space().put_slice(b"\n");
        let frame = decoder.next_frame().unwrap();
        assert_eq!((frame.len(), decoder.next_frame()), (length, None));
        frame
    }

    #[test]
    fn the_memory_of_a_long_line_is_used_for_the_next_long_line_once_its_frame_is_dropped() {
        let mut decoder = LineDecoder::new(16 << 20);
        let address = read_long(&mut decoder, 3 << 20).as_ptr();
        for length in [3 << 20, 2 << 20, (3 << 20) + 7] {
            assert_eq!(read_long(&mut decoder, length).as_ptr(), address);
        }
        let frame = read_long(&mut decoder, 3 << 20);
        assert_eq!(frame.as_ptr(), address);
        assert_ne!(read_long(&mut decoder, 3 << 20).as_ptr(), address, "the memory is still in use");
        assert!(frame.iter().all(|byte| *byte == b'q'));
    }

    #[test]
    fn the_memory_of_a_long_line_is_freed_after_many_short_ones_or_when_it_is_released() {
        for is_released in [false, true] {
            let mut decoder = LineDecoder::new(16 << 20);
            drop(read_long(&mut decoder, 3 << 20));
            if is_released {
                decoder.release_memory();
                assert!(decoder.kept.is_none() && decoder.full_capacity == 0);
                continue;
            }
            for _ in 0..MAX_UNUSED_FRAMES {
                decoder.space().put_slice(b"{}\n");
                assert!(decoder.kept.is_some());
                assert_eq!(decoder.next_frame().unwrap(), "{}");
            }
            assert!(decoder.kept.is_none());
        }
    }

    #[test]
    fn frames_of_one_read_are_slices_of_the_read_buffer() {
        let mut decoder = LineDecoder::new(LIMIT);
        decoder.space().put_slice(b"{\"a\":1}\n{\"b\":2}\n");
        let memory = decoder.buffer.as_ptr_range();
        let (first, second) = (decoder.next_frame().unwrap(), decoder.next_frame().unwrap());
        assert!(lies_within(&first, memory.clone()) && lies_within(&second, memory));
    }

    #[test]
    fn a_short_frame_after_a_long_one_does_not_keep_its_large_buffer_alive() {
        let mut decoder = LineDecoder::new(1 << 20);
        let mut input = vec![b'l'; 500_000];
        input.extend_from_slice(b"\n{\"short\":1}\n");
        decoder.feed(&input);
        let memory = decoder.buffer.as_ptr_range();
        let (long, short) = (decoder.next_frame().unwrap(), decoder.next_frame().unwrap());
        assert!(lies_within(&long, memory.clone()));
        assert!(!lies_within(&short, memory));
        assert_eq!(short, "{\"short\":1}");
    }

    #[test]
    fn the_read_buffer_is_used_again_once_its_frames_are_dropped() {
        let mut decoder = LineDecoder::new(LIMIT);
        decoder.space();
        let memory = decoder.buffer.as_ptr();
        let memory = memory..memory.wrapping_add(BASE_CAPACITY);
        for _ in 0..10_000 {
            decoder.space().put_slice(b"{\"jsonrpc\":\"2.0\"}\n");
            assert!(lies_within(&decoder.next_frame().unwrap(), memory.clone()));
        }
    }

    #[test]
    fn the_read_buffer_is_larger_in_a_burst_and_small_again_after_it() {
        const LINE: &[u8] = b"{\"jsonrpc\":\"2.0\"}\n";
        let mut decoder = LineDecoder::new(1 << 20);
        let mut kept = Vec::new();
        for expected in [BASE_CAPACITY, BURST, BURST] {
            let mut space = decoder.space();
            let room = space.remaining_mut();
            // At most a part of one line is left of the last read.
            assert!(room > expected - LINE.len() && room <= expected, "{room} bytes");
            space.put_slice(&LINE.repeat(BASE_CAPACITY)[..room]);
            kept.extend(core::iter::from_fn(|| decoder.next_frame()));
        }
        drop(kept);
        for _ in 0..=QUIET_COUNT {
            assert_eq!(decoder.full_capacity, BURST);
            decoder.space().put_slice(b"{}\n");
            while decoder.next_frame().is_some() {}
        }
        assert_eq!(decoder.full_capacity, BASE_CAPACITY);
    }

    #[test]
    fn read_with_passes_zeroed_memory_and_takes_the_bytes_that_were_filled() {
        let mut decoder = LineDecoder::new(LIMIT);
        let mut frames = Vec::new();
        for piece in b"{\"a\":1}\n{\"b\":2}\n".chunks(5).chain([&[] as &[u8]]) {
            decoder.read_with(|into| {
                assert!(into.len() >= MIN_ROOM && into.iter().all(|byte| *byte == 0));
                into[..piece.len()].copy_from_slice(piece);
                piece.len()
            });
            while let Some(frame) = decoder.next_frame() {
                frames.push(frame);
            }
        }
        assert_eq!(frames, ["{\"a\":1}", "{\"b\":2}"]);
        assert_eq!(decoder.finish(), None);
    }

    #[test]
    fn bytes_beyond_the_count_of_a_read_are_not_input() {
        let input = b"{\"first\":1}\n{\"second\":2}\r\n\n{\"third\":[3,3,3]}\n".repeat(3000);
        for pattern in [&[0][..], &[0, 1], &[0, 2], &[0, 0, 1, 0, 2], &[0, 2, 2, 1]] {
            let mut decoder = LineDecoder::new(LIMIT);
            let mut frames = Vec::new();
            for (piece, way) in input.chunks(7).zip(pattern.iter().cycle()) {
                match way {
                    0 => decoder.read_with(|into| {
                        into.fill(b'\n');
                        into[..piece.len()].copy_from_slice(piece);
                        into[piece.len()] = b'x';
                        piece.len()
                    }),
                    1 => decoder.feed(piece),
                    _ => decoder.space().put_slice(piece),
                }
                frames.extend(core::iter::from_fn(|| decoder.next_frame()));
            }
            assert_eq!(frames.len(), 9000, "{pattern:?}");
            for three in frames.chunks(3) {
                assert_eq!(three, ["{\"first\":1}", "{\"second\":2}", "{\"third\":[3,3,3]}"]);
            }
            assert_eq!(decoder.finish(), None);
        }
    }

    /// A regression: a connection that reads little spent more time on zeroing than on reading.
    #[test]
    fn regression_memory_is_cleared_once_and_not_for_each_read() {
        let mut decoder = LineDecoder::new(LIMIT);
        decoder.read_with(|into| {
            into.fill(7);
            0
        });
        decoder.read_with(|into| {
            assert!(into.iter().all(|byte| *byte == 7));
            0
        });
        decoder.space();
        decoder.read_with(|into| {
            assert!(into.iter().all(|byte| *byte == 0), "memory that `space` has returned is cleared again");
            0
        });
    }

    #[test]
    fn the_line_feed_is_found_at_every_offset() {
        for length in 0..100 {
            for at in 0..length {
                let mut bytes = vec![0x8a_u8; length];
                bytes[at] = b'\n';
                assert_eq!(find_line_feed(&bytes), Some(at));
                bytes[length - 1] = b'\n';
                assert_eq!(find_line_feed(&bytes), Some(at));
            }
            assert_eq!(find_line_feed(&vec![0x0b_u8; length]), None);
        }
    }

    /// Takes all bytes out of `encoder`, at most `step` at a time, as a slow transport would.
    fn written(encoder: &mut LineEncoder, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while encoder.has_remaining() {
            let chunk = encoder.chunk();
            let count = chunk.len().min(step);
            assert!(count > 0, "bytes remain, so the chunk must not be empty");
            out.extend_from_slice(&chunk[..count]);
            let before = encoder.remaining();
            encoder.advance(count);
            assert_eq!(encoder.remaining(), before - count);
        }
        out
    }

    #[test]
    fn frames_of_any_length_are_written_in_order_with_a_line_feed_after_each() {
        let lengths = [1, 100, SEPARATE - 1, SEPARATE, 3, 3 * SEPARATE, 2 * SEPARATE, 5];
        for step in [1, 7, 1000, usize::MAX] {
            let mut encoder = LineEncoder::new();
            let mut expected = Vec::new();
            for (name, length) in (b'a'..).zip(lengths) {
                encoder.push(Bytes::from(vec![name; length]));
                expected.resize(expected.len() + length, name);
                expected.push(b'\n');
                // Frames are pushed while others are partly written.
                let part = encoder.chunk().len().min(2);
                let (head, tail) = expected.split_at(part);
                assert_eq!(&encoder.chunk()[..part], head);
                encoder.advance(part);
                expected = tail.to_vec();
            }
            assert_eq!(written(&mut encoder, step), expected);
        }
    }

    #[test]
    fn long_frames_are_not_copied_and_short_ones_are_joined() {
        let mut encoder = LineEncoder::new();
        let long = Bytes::from(vec![b'l'; SEPARATE]);
        encoder.push(Bytes::from_static(b"1"));
        encoder.push(Bytes::from_static(b"2"));
        encoder.push(long.clone());
        encoder.push(Bytes::from_static(b"3"));
        assert_eq!(encoder.chunk(), b"1\n2\n");
        encoder.advance(4);
        assert_eq!(encoder.chunk().as_ptr(), long.as_ptr());
        encoder.advance(SEPARATE);
        assert_eq!(encoder.chunk(), b"\n3\n");
        encoder.advance(usize::MAX);
        assert_eq!(encoder.remaining(), 0);
    }

    #[cfg(feature = "std")]
    #[test]
    fn all_pieces_are_offered_to_one_vectored_write() {
        let mut encoder = LineEncoder::new();
        encoder.push(Bytes::from_static(b"1"));
        encoder.push(Bytes::from(vec![b'l'; SEPARATE]));
        encoder.push(Bytes::from(vec![b'm'; SEPARATE]));
        encoder.advance(1);
        let mut slices = [std::io::IoSlice::new(&[]); 8];
        let count = encoder.chunks_vectored(&mut slices);
        let offered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
        assert_eq!((count, offered), (5, encoder.remaining()));
    }

    #[test]
    fn an_encoder_appends_another_and_returns_frames_in_order() {
        let long = Bytes::from(vec![b'l'; SEPARATE]);
        let all = [Bytes::from_static(b"1"), long.clone(), Bytes::new(), Bytes::from_static(b"22"), long, Bytes::from_static(b"3")];
        for (first, second) in (0..=all.len()).flat_map(|first| (first..=all.len()).map(move |second| (first, second))) {
            let mut encoder = LineEncoder::new();
            for part in [&all[..first], &all[first..second], &all[second..]] {
                let mut other = LineEncoder::new();
                part.iter().for_each(|frame| other.push(frame.clone()));
                let both = encoder.remaining() + other.remaining();
                encoder.append(&mut other);
                assert_eq!((encoder.remaining(), other.remaining()), (both, 0));
                other.push_slice(b"cleared");
                other.clear();
                assert_eq!((other.next_frame(), other.remaining()), (None, 0));
            }
            for frame in &all {
                assert_eq!(encoder.next_frame().as_ref(), Some(frame));
            }
            assert_eq!((encoder.next_frame(), encoder.remaining()), (None, 0));
        }
    }

    /// A regression: written bytes were dropped only when the queue was empty, which never happens for a peer that sends requests as fast
    /// as it reads.
    #[test]
    fn regression_an_encoder_that_is_never_empty_drops_the_written_bytes() {
        let mut encoder = LineEncoder::new();
        let frame = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
        while encoder.remaining() < KEPT_CAPACITY {
            encoder.push(frame.clone());
        }
        let waiting = encoder.remaining();
        for _ in 0..100_000 {
            encoder.push(frame.clone());
            encoder.advance(frame.len() + 1);
        }
        assert_eq!(encoder.remaining(), waiting);
        assert!(encoder.joined.capacity() <= 4 * KEPT_CAPACITY, "{} bytes", encoder.joined.capacity());
        assert!(written(&mut encoder, 4096).chunks(frame.len() + 1).all(|line| line.starts_with(&frame) && line.ends_with(b"\n")));
    }

    #[test]
    fn an_encoder_frees_the_memory_of_a_burst() {
        let mut encoder = LineEncoder::new();
        for _ in 0..10_000 {
            encoder.push(Bytes::from_static(b"0123456789"));
        }
        assert!(encoder.joined.capacity() > 100_000);
        written(&mut encoder, 4096);
        assert!(encoder.joined.capacity() <= KEPT_CAPACITY);
        for _ in 0..QUIET_COUNT {
            assert!(encoder.joined.capacity() > BASE_CAPACITY);
            encoder.push(Bytes::from_static(b"0123456789"));
            written(&mut encoder, 4096);
        }
        assert!(encoder.joined.capacity() <= BASE_CAPACITY);
    }
}
