//! The sink that takes the frames which leave together.

use bytes::Bytes;

/// The most frames that are pushed in one go.
const FRAMES_AT_ONCE: usize = 64;
/// No further frame is pushed into a sink that holds so many bytes.
const BYTES_AT_ONCE: usize = 32 * 1024;

/// Takes frames that leave together, in their order: [`LineEncoder`](crate::lines::LineEncoder) for transports of lines, or an encoder of
/// your own. [`Session::poll_transmits`](crate::Session::poll_transmits) fills it.
pub trait FrameSink {
    /// Takes a frame over. There is no line feed in it.
    fn push(&mut self, frame: Bytes);

    /// Takes a copy of a frame, which holds no line feed.
    fn push_slice(&mut self, frame: &[u8]) {
        self.push(Bytes::copy_from_slice(frame));
    }

    /// The number of bytes that it holds.
    fn held(&self) -> usize;

    /// Calls `push_next`, which pushes one frame, until it returns `false` for want of a frame, 64 frames were pushed, or 32 KiB are
    /// held. Returns `true` if there may be more frames.
    fn fill(&mut self, mut push_next: impl FnMut(&mut Self) -> bool) -> bool
    where
        Self: Sized,
    {
        for _ in 0..FRAMES_AT_ONCE {
            if !push_next(self) {
                return false;
            }
            if self.held() >= BYTES_AT_ONCE {
                break;
            }
        }
        true
    }
}
