use core::marker::PhantomData;
use core::task::{Context, Poll, ready};
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};

use protocol_core::FrameSink as _;
use protocol_core::drive::FrameIo;
use protocol_core::limits::Limits;
use protocol_core::lines::{LineDecoder, LineEncoder};
use protocol_core::session::Transmit;

/// While more bytes than this wait to be written, no further frame is accepted.
const MAX_WAITING_BYTES: usize = 64 * 1024;
/// The maximum number of buffers of one vectored write.
const MAX_PIECES: usize = 64;
/// The maximum number of successive reads that complete no frame before the task yields.
const MAX_READS_IN_A_ROW: usize = 32;

/// The way in which a runtime reads bytes from a reader `R` and writes bytes to a writer `W`.
pub trait ByteIo<R, W> {
    /// Reads into `into`, with [`LineDecoder::space`] or [`LineDecoder::read_with`]. Returns the number of bytes, which is zero at the end.
    fn poll_read(reader: &mut R, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>>;

    /// Writes `pieces` in order, or only the first bytes of them. Returns the number of bytes, which is zero if `writer` accepts no more.
    fn poll_write(writer: &mut W, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Flushes all bytes that were written.
    fn poll_flush(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Closes the write direction. Afterwards the writer of [`Halves`] is dropped.
    fn poll_close(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A type with the reader and the writer of a [`LineIo`]: [`Halves`], [`Whole`], or a type of your own.
pub trait ReaderWriter {
    /// The type of the reader.
    type Reader;
    /// The type of the writer.
    type Writer;

    /// The reader.
    fn reader(&mut self) -> &mut Self::Reader;

    /// The writer; `None` after [`ReaderWriter::end_writer`].
    fn writer(&mut self) -> Option<&mut Self::Writer>;

    /// Notes that the write direction was closed ([`ByteIo::poll_close`]). Drops the writer if its write direction ends only when the
    /// writer is dropped.
    fn end_writer(&mut self);
}

/// A reader and a writer that are two values, such as two pipes.
#[derive(Debug)]
pub struct Halves<R, W> {
    reader: R,
    /// `None` once the write direction is closed, since some pipes end only when they are dropped.
    writer: Option<W>,
}

impl<R, W> ReaderWriter for Halves<R, W> {
    type Reader = R;
    type Writer = W;

    fn reader(&mut self) -> &mut R {
        &mut self.reader
    }

    fn writer(&mut self) -> Option<&mut W> {
        self.writer.as_mut()
    }

    fn end_writer(&mut self) {
        self.writer = None;
    }
}

/// One stream that is both read and written, such as a socket. Unlike two halves of a stream, it needs no lock.
///
/// Shutting the stream down must end its write direction. If only dropping the stream ends that direction, split it and use [`Halves`].
#[derive(Debug)]
pub struct Whole<S> {
    stream: S,
    is_shut: bool,
}

impl<S> ReaderWriter for Whole<S> {
    type Reader = S;
    type Writer = S;

    fn reader(&mut self) -> &mut S {
        &mut self.stream
    }

    fn writer(&mut self) -> Option<&mut S> {
        (!self.is_shut).then_some(&mut self.stream)
    }

    fn end_writer(&mut self) {
        self.is_shut = true;
    }
}

/// A transport of frames over a stream of bytes, one frame in each line. `S` has the reader and the writer ([`ReaderWriter`]), and `B`
/// implements reading and writing for a runtime.
///
/// Frames are collected, so that one write can contain many of them.
#[derive(Debug)]
pub struct LineIo<B, S> {
    stream: S,
    decoder: LineDecoder,
    encoder: LineEncoder,
    /// `true` once the read direction has ended.
    ended: bool,
    sends_anywhere: bool,
    bytes: PhantomData<fn() -> B>,
}

impl<B: ByteIo<R, W>, R, W> LineIo<B, Halves<R, W>> {
    /// A transport of a reader and a writer.
    pub fn new(reader: R, writer: W) -> Self {
        Self::of(Halves { reader, writer: Some(writer) })
    }
}

impl<B: ByteIo<S, S>, S> LineIo<B, Whole<S>> {
    /// A transport of one stream that is both read and written, such as a socket or an encrypted stream. Shutting it down must end its
    /// write direction; see [`Whole`].
    pub fn whole(stream: S) -> Self {
        Self::of(Whole { stream, is_shut: false })
    }
}

impl<B: ByteIo<S::Reader, S::Writer>, S: ReaderWriter> LineIo<B, S> {
    /// A transport of any type with a reader and a writer.
    pub fn of(stream: S) -> Self {
        let decoder = LineDecoder::new(Limits::default().frame_bytes);
        Self { stream, decoder, encoder: LineEncoder::new(), ended: false, sends_anywhere: false, bytes: PhantomData }
    }

    /// Allows writing and flushing on any thread, also outside of the task that reads ([`FrameIo::sends_anywhere`]).
    #[must_use]
    pub fn sending_anywhere(mut self) -> Self {
        self.sends_anywhere = true;
        self
    }

    /// Writes until at most `max` bytes wait to be written.
    #[inline]
    fn poll_write_down_to(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<()>> {
        // Mostly the bytes are few enough already.
        if self.encoder.remaining() <= max { Poll::Ready(Ok(())) } else { self.poll_write_some(cx, max) }
    }

    #[inline(never)]
    fn poll_write_some(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<()>> {
        while self.encoder.remaining() > max {
            let Some(writer) = self.stream.writer() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            let chunk = self.encoder.chunk();
            // Nearly always there is only one buffer; then the array for several is not filled.
            let written = if chunk.len() == self.encoder.remaining() {
                ready!(B::poll_write(writer, cx, &[IoSlice::new(chunk)]))?
            } else {
                let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
                let count = self.encoder.chunks_vectored(&mut pieces);
                ready!(B::poll_write(writer, cx, pieces.get(..count).unwrap_or_default()))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.encoder.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<B: ByteIo<S::Reader, S::Writer>, S: ReaderWriter> FrameIo for LineIo<B, S> {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        for _ in 0..MAX_READS_IN_A_ROW {
            if let Some(frame) = self.decoder.next_frame() {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            if ready!(B::poll_read(self.stream.reader(), cx, &mut self.decoder))? == 0 {
                self.ended = true;
                return Poll::Ready(Ok(self.decoder.finish()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_down_to(cx, MAX_WAITING_BYTES)
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        self.encoder.push(transmit.frame);
        Ok(())
    }

    fn start_sends(&mut self, frames: &mut LineEncoder) -> io::Result<()> {
        self.encoder.append(frames);
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_down_to(cx, 0))?;
        self.stream.writer().map_or(Poll::Ready(Ok(())), |writer| B::poll_flush(writer, cx))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writer) = self.stream.writer() else { return Poll::Ready(Ok(())) };
        let shut = ready!(B::poll_close(writer, cx));
        self.stream.end_writer();
        // The peer may have closed the connection first, which is no error.
        Poll::Ready(shut.or_else(|error| if error.kind() == io::ErrorKind::NotConnected { Ok(()) } else { Err(error) }))
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.decoder.set_limit(bytes);
    }

    fn release_memory(&mut self) {
        self.decoder.release_memory();
    }

    fn sends_anywhere(&self) -> bool {
        self.sends_anywhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// The input of a reader, piece by piece. At a `None`, the read is pending once.
    type Pieces = VecDeque<Option<&'static [u8]>>;

    #[derive(Default)]
    struct Sink {
        taken: Vec<u8>,
        /// The number of bytes that one write accepts; zero for a writer that accepts no more.
        step: usize,
        close_error: Option<io::ErrorKind>,
    }

    #[derive(Debug)]
    struct Memory;

    impl ByteIo<Pieces, Sink> for Memory {
        fn poll_read(reader: &mut Pieces, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>> {
            match reader.pop_front() {
                Some(Some(piece)) => {
                    into.feed(piece);
                    Poll::Ready(Ok(piece.len()))
                }
                Some(None) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(Ok(0)),
            }
        }

        fn poll_write(writer: &mut Sink, _cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
            let count = writer.step.min(pieces[0].len());
            writer.taken.extend_from_slice(&pieces[0][..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(_writer: &mut Sink, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(writer: &mut Sink, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(writer.close_error.map_or(Ok(()), |kind| Err(kind.into())))
        }
    }

    fn io(pieces: &[Option<&'static [u8]>], writer: Sink) -> LineIo<Memory, Halves<Pieces, Sink>> {
        LineIo::new(pieces.iter().copied().collect(), writer)
    }

    fn cx() -> Context<'static> {
        Context::from_waker(core::task::Waker::noop())
    }

    #[test]
    fn frames_are_read_as_they_are_completed_and_the_last_needs_no_line_feed() {
        let mut io = io(&[Some(b"{\"a\":"), None, Some(b"1}\n{}"), Some(b"\nlast")], Sink::default());
        assert!(io.poll_recv(&mut cx()).is_pending());
        for expected in [Some("{\"a\":1}"), Some("{}"), Some("last"), None, None] {
            let Poll::Ready(Ok(frame)) = io.poll_recv(&mut cx()) else { panic!("all bytes were read") };
            assert_eq!(frame.as_deref(), expected.map(str::as_bytes));
        }
    }

    #[test]
    fn a_flood_without_a_line_feed_does_not_block_other_tasks() {
        let mut io = io(&[Some(b"x".as_slice()); MAX_READS_IN_A_ROW + 1], Sink::default());
        assert!(io.poll_recv(&mut cx()).is_pending());
        assert_eq!(io.stream.reader.len(), 1);
    }

    /// If the task were not woken then, a long line over a socket that stays readable would never be read to its end, since nothing else
    /// wakes the task.
    #[test]
    fn after_the_maximum_number_of_reads_the_task_is_woken_to_continue() {
        #[derive(Default)]
        struct Wakes(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Wakes {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let wakes = std::sync::Arc::new(Wakes::default());
        let waker = core::task::Waker::from(std::sync::Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut pieces = vec![Some(b"x".as_slice()); MAX_READS_IN_A_ROW];
        pieces.push(Some(b"y\n"));
        let mut io = io(&pieces, Sink::default());
        assert!(io.poll_recv(&mut cx).is_pending());
        assert_eq!(wakes.0.load(std::sync::atomic::Ordering::Relaxed), 1);
        let Poll::Ready(Ok(Some(frame))) = io.poll_recv(&mut cx) else { panic!("the rest was read") };
        assert_eq!(frame.len(), MAX_READS_IN_A_ROW + 1);
    }

    #[test]
    fn frames_are_collected_until_more_than_64_kib_are_queued() {
        let mut io = io(&[], Sink { step: usize::MAX, ..Sink::default() });
        let mut collected = 0;
        while io.stream.writer.as_ref().is_some_and(|writer| writer.taken.is_empty()) {
            io.start_send(Transmit::new(Bytes::from_static(&[b' '; 1023]))).unwrap();
            collected += 1;
            assert!(io.poll_ready(&mut cx()).is_ready());
        }
        assert_eq!(collected, 65);
    }

    #[test]
    fn a_writer_that_takes_a_byte_at_a_time_gets_every_frame() {
        let mut io = io(&[], Sink { step: 1, ..Sink::default() });
        for frame in ["{}", "[]"] {
            io.start_send(Transmit::new(Bytes::from_static(frame.as_bytes()))).unwrap();
        }
        assert!(matches!(io.poll_flush(&mut cx()), Poll::Ready(Ok(()))));
        assert_eq!(io.stream.writer.as_ref().unwrap().taken, b"{}\n[]\n");
    }

    #[test]
    fn a_writer_that_accepts_no_more_bytes_is_an_error() {
        let mut io = io(&[], Sink::default());
        io.start_send(Transmit::new(Bytes::from_static(b"{}"))).unwrap();
        let Poll::Ready(Err(error)) = io.poll_flush(&mut cx()) else { panic!("nothing was taken") };
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn a_stream_is_still_read_but_not_written_after_its_write_direction_was_closed() {
        /// A reader and a writer in one.
        struct Both(Pieces, Sink);
        impl ByteIo<Both, Both> for Memory {
            fn poll_read(both: &mut Both, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>> {
                Self::poll_read(&mut both.0, cx, into)
            }
            fn poll_write(both: &mut Both, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
                Self::poll_write(&mut both.1, cx, pieces)
            }
            fn poll_flush(both: &mut Both, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_flush(&mut both.1, cx)
            }
            fn poll_close(both: &mut Both, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_close(&mut both.1, cx)
            }
        }
        let pieces = [Some(b"{}\n".as_slice()), Some(b"[]\n")].into_iter().collect();
        let mut io: LineIo<Memory, Whole<Both>> = LineIo::whole(Both(pieces, Sink { step: 9, ..Sink::default() }));
        io.start_send(Transmit::new(Bytes::from_static(b"{}"))).unwrap();
        assert!(matches!(io.poll_flush(&mut cx()), Poll::Ready(Ok(()))));
        for _ in 0..2 {
            assert!(matches!(io.poll_close(&mut cx()), Poll::Ready(Ok(()))));
        }
        for expected in ["{}", "[]"] {
            assert!(matches!(io.poll_recv(&mut cx()), Poll::Ready(Ok(Some(frame))) if frame == expected));
        }
        io.start_send(Transmit::new(Bytes::from_static(b"{}"))).unwrap();
        let Poll::Ready(Err(error)) = io.poll_flush(&mut cx()) else { panic!("the write direction was closed") };
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert_eq!(io.stream.stream.1.taken, b"{}\n");
    }

    #[test]
    fn closing_twice_or_after_the_peer_is_not_an_error() {
        let gone = Sink { close_error: Some(io::ErrorKind::NotConnected), ..Sink::default() };
        let mut io = io(&[], gone);
        for _ in 0..2 {
            assert!(matches!(io.poll_close(&mut cx()), Poll::Ready(Ok(()))));
        }
        assert!(io.stream.writer().is_none());
    }
}
