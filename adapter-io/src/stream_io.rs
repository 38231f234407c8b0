use core::task::{Context, Poll};
use std::io;

/// Reading bytes from an `S` and writing bytes to it, on one runtime.
pub trait StreamIo<S> {
    /// Reads into the beginning of `into` and says how much; zero at the end.
    fn poll_read(stream: &mut S, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes from the beginning of `from` and says how much; zero if `stream` takes no more.
    fn poll_write(stream: &mut S, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>>;

    /// Everything written has left.
    fn poll_flush(stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends our direction.
    fn poll_close(stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
