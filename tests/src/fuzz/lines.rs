//! Line framing: the frames do not depend on the way in which bytes are split into reads, and they are those of a simple implementation.

use bytes::{Buf, BufMut, Bytes};
use protocol_core::FrameSink as _;
use protocol_core::lines::{LineDecoder, LineEncoder};

use testkit::Rng;

/// Byte 0: the maximum length of a frame. Byte 1: the way in which the rest is split. The rest: the input.
pub fn lines(data: &[u8]) {
    let ([limit, seed], input) = super::head(data);
    let limit = if limit < 128 { usize::from(limit) } else { 1 << (limit % 24) };
    let expected = reference_frames(input, limit);
    let mut rng = Rng::new(seed.into());
    for way in 0..5 {
        let frames = decode(input, limit, |left| match way {
            0 => left,
            1 => 1,
            _ => {
                let most = 1 << rng.below(13);
                1 + rng.below(most)
            }
        });
        assert!(frames == expected, "split in way {way}: {frames:?} instead of {expected:?}");
    }
    encode(&expected, &mut rng);
    give_back(&expected, &mut rng);
}

/// A simple implementation of line framing: a line ends before a line feed or at the end of input; a byte order mark before the line and a
/// carriage return after it are not part of the frame; a blank line is skipped, unless it is too long; a line that is too long is cut to
/// one byte more than the limit.
fn reference_frames(input: &[u8], limit: usize) -> Vec<Bytes> {
    let lines = input.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    let is_blank = |line: &[u8]| line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    let kept = lines.filter(|line| line.len() > limit || !is_blank(line));
    kept.map(|line| Bytes::copy_from_slice(&line[..line.len().min(limit + 1)])).collect()
}

fn decode(mut input: &[u8], limit: usize, mut step: impl FnMut(usize) -> usize) -> Vec<Bytes> {
    let mut decoder = LineDecoder::new(limit);
    let mut frames = Vec::new();
    while !input.is_empty() {
        let (piece, rest) = input.split_at(step(input.len()).min(input.len()));
        let taken = match piece.len() % 3 {
            0 => {
                decoder.feed(piece);
                piece.len()
            }
            1 => {
                let mut space = decoder.space();
                let count = piece.len().min(space.remaining_mut());
                space.put_slice(&piece[..count]);
                count
            }
            _ => {
                let mut taken = 0;
                decoder.read_with(|space| {
                    taken = piece.len().min(space.len());
                    // The decoder must not read the bytes after the first `taken`.
                    space.fill(b'\n');
                    space[..taken].copy_from_slice(&piece[..taken]);
                    taken
                });
                taken
            }
        };
        assert!(taken > 0, "there is always room");
        input = if taken == piece.len() { rest } else { &input[taken..] };
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    frames.extend(decoder.finish());
    assert_eq!(decoder.finish(), None);
    frames
}

/// Checks that an encoder writes each frame and a line feed, for any number of bytes taken at once.
fn encode(frames: &[Bytes], rng: &mut Rng) {
    let mut encoder = LineEncoder::new();
    let (mut written, mut expected) = (Vec::new(), Vec::new());
    let mut take = |encoder: &mut LineEncoder, most: usize| {
        let count = encoder.chunk().len().min(most);
        written.extend_from_slice(&encoder.chunk()[..count]);
        encoder.advance(count);
    };
    let mut gathered = LineEncoder::new();
    for frame in frames {
        // A frame is gathered in a second encoder, or pushed after those that were gathered.
        match rng.below(4) {
            0 => gathered.push(frame.clone()),
            1 => gathered.push_slice(frame),
            way => {
                encoder.append(&mut gathered);
                if way == 2 { encoder.push(frame.clone()) } else { encoder.push_slice(frame) }
            }
        }
        expected.extend_from_slice(frame);
        expected.push(b'\n');
        take(&mut encoder, rng.below(2 * frame.len() + 2));
    }
    encoder.append(&mut gathered);
    while encoder.has_remaining() {
        take(&mut encoder, 1 + rng.below(4096));
    }
    assert!(written == expected, "frames are written in order and unchanged");
}

/// Checks that an encoder returns each unwritten frame, among them those that it took from a second encoder.
fn give_back(frames: &[Bytes], rng: &mut Rng) {
    let (mut encoder, mut gathered) = (LineEncoder::new(), LineEncoder::new());
    let mut expected = frames.iter();
    for frame in frames {
        if rng.below(2) == 0 {
            gathered.push(frame.clone())
        } else {
            gathered.push_slice(frame)
        }
        if rng.below(3) == 0 {
            encoder.append(&mut gathered);
        }
        for _ in 0..rng.below(3) {
            let Some(back) = encoder.next_frame() else { break };
            assert!(expected.next() == Some(&back), "frames are returned in order and unchanged");
        }
    }
    encoder.append(&mut gathered);
    assert!(expected.all(|frame| encoder.next_frame().as_ref() == Some(frame)), "frames are returned in order and unchanged");
    assert_eq!((encoder.next_frame(), encoder.remaining()), (None, 0));
}
