use core::task::{Context, Poll};
use std::io;

/// Reads bytes from a stream `S` and writes bytes to it, on one runtime.
pub trait StreamIo<S> {
    /// Reads into the beginning of `into`. Returns the number of bytes, which is zero at the end of the stream.
    fn poll_read(stream: &mut S, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes from the beginning of `from`. Returns the number of bytes, which is zero if `stream` accepts no more.
    fn poll_write(stream: &mut S, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>>;

    /// Flushes all bytes that were written.
    fn poll_flush(stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Closes the write direction.
    fn poll_close(stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
