//! A sink for frames that are written together.

use bytes::Bytes;

/// The maximum number of frames that one call of [`FrameSink::fill`] pushes.
const FRAMES_AT_ONCE: usize = 64;
/// The number of bytes in a sink at which no further frame is pushed.
const BYTES_AT_ONCE: usize = 32 * 1024;

/// A sink for frames that are written together, in the order in which they are pushed.
/// [`Session::poll_transmits`](crate::Session::poll_transmits) fills a sink. For transports of lines the sink is a
/// [`LineEncoder`](crate::lines::LineEncoder).
pub trait FrameSink {
    /// Adds a frame, which contains no line feed.
    fn push(&mut self, frame: Bytes);

    /// Adds a copy of a frame, which contains no line feed.
    fn push_slice(&mut self, frame: &[u8]) {
        self.push(Bytes::copy_from_slice(frame));
    }

    /// The number of bytes in the sink.
    fn buffered_bytes(&self) -> usize;

    /// Calls `push_next` repeatedly. `push_next` must push one frame and return `true`, or return `false` if no frame is left. Stops when
    /// no frame is left, when 64 frames were pushed, or when the sink holds 32 KiB. Returns `true` if there may be more frames.
    fn fill(&mut self, mut push_next: impl FnMut(&mut Self) -> bool) -> bool
    where
        Self: Sized,
    {
        for _ in 0..FRAMES_AT_ONCE {
            if !push_next(self) {
                return false;
            }
            if self.buffered_bytes() >= BYTES_AT_ONCE {
                break;
            }
        }
        true
    }
}
