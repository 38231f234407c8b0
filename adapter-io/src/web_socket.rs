use core::marker::PhantomData;
use core::task::{Context, Poll, ready};
use std::io::{self, Read, Write};

use bytes::Bytes;
use tungstenite::Message;
use tungstenite::error::{Error, ProtocolError};
use tungstenite::protocol::frame::Utf8Bytes;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext};

use crate::StreamIo;
use protocol_core::drive::FrameIo;
use protocol_core::limits::Limits;
use protocol_core::session::Transmit;

/// While more bytes than this wait to be written, no further frame is accepted.
const MAX_WAITING_BYTES: usize = 64 * 1024;
/// The size of the read buffer, in bytes, which an idle connection keeps.
const READ_BYTES: usize = 16 * 1024;
/// The maximum number of successive reads, and of successive messages that are not frames, before the task yields.
const MAX_IN_A_ROW: usize = 32;
/// The maximum number of pings that are read before their answers are written.
const MAX_PINGS: usize = 1024;
/// The maximum length of a message in bytes, whatever the frame limit is: memory for a whole message is reserved as soon as its header has
/// arrived.
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// The close frame of an orderly end.
const GOODBYE: CloseFrame = close_frame(CloseCode::Normal, "the session is over");

const fn close_frame(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: Utf8Bytes::from_static(reason) }
}

/// A transport of frames over a WebSocket, one frame in each message. `S` is its stream, and `B` implements reading and writing for a
/// runtime.
///
/// Frames are sent as text messages, without fragments and without compression. Text and binary messages are accepted, and pings are
/// answered. A close frame of the peer, with any code, ends the connection, and so does the end of the stream. Frames that are sent after
/// that are dropped.
///
/// Closing the transport sends a close frame and does not wait for the answer. The code is 1000, or the one for the error of the peer: 1002
/// for broken framing, 1007 for text that is not UTF-8, 1009 for a message over the frame limit. If the peer has closed first, its close
/// frame was already answered, and no other one is sent.
///
/// Instead of a message over the frame limit, the session receives one frame of zeros that is one byte longer than the limit, and then the
/// end of input. So the session closes with the same reason as on every other transport. With a frame limit of 1 GiB or more, a message
/// over 1 GiB is an error instead.
#[derive(Debug)]
pub struct WebSocket<B, S> {
    stream: S,
    context: WebSocketContext,
    limit: usize,
    /// `true` once the read direction has ended.
    ended: bool,
    /// The number of pings since the last flush.
    pings: usize,
    /// `true` if the last write could not be completed.
    blocked: bool,
    /// `true` once the transport has tried to write the close frame.
    closing: bool,
    /// The close frame to send.
    goodbye: CloseFrame,
    io: PhantomData<fn() -> B>,
}

impl<B: StreamIo<S>, S> WebSocket<B, S> {
    /// The server's end of `stream`, after the HTTP upgrade. `read` has the bytes that were read together with the upgrade request and
    /// follow it.
    pub fn server(stream: S, read: Vec<u8>) -> Self {
        Self::new(stream, Role::Server, read)
    }

    /// The client's end of `stream`, after the HTTP upgrade. `read` has the bytes that were read together with the upgrade response and
    /// follow it.
    pub fn client(stream: S, read: Vec<u8>) -> Self {
        Self::new(stream, Role::Client, read)
    }

    fn new(stream: S, role: Role, read: Vec<u8>) -> Self {
        // The write buffer of the library has no maximum, since frames are accepted only while it holds at most `MAX_WAITING_BYTES`.
        let config = WebSocketConfig::default().read_buffer_size(READ_BYTES).write_buffer_size(MAX_WAITING_BYTES);
        let context = WebSocketContext::from_partially_read(read, role, Some(config));
        let mut socket = Self {
            stream,
            context,
            limit: 0,
            ended: false,
            pings: 0,
            blocked: false,
            closing: false,
            goodbye: GOODBYE,
            io: PhantomData,
        };
        socket.set_frame_limit(Limits::default().frame_bytes);
        socket
    }

    /// Calls the library with the stream. Returns `Pending` if the stream is pending.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut WebSocketContext, &mut NonBlocking<'_, '_, B, S>) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        let mut stream = NonBlocking { stream: &mut self.stream, cx: Some(cx), reads: MAX_IN_A_ROW, io: PhantomData };
        match work(&mut self.context, &mut stream) {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }
}

/// A stream during one call of the library, with the blocking traits `Read` and `Write`: instead of blocking, they fail with `WouldBlock`
/// when the stream is pending.
struct NonBlocking<'a, 'b, B, S> {
    stream: &'a mut S,
    /// `None` if there is no task to wake. Then the stream is not used, and every operation fails with `WouldBlock`.
    cx: Option<&'a mut Context<'b>>,
    /// The number of reads that remain.
    reads: usize,
    io: PhantomData<fn() -> B>,
}

impl<'b, B: StreamIo<S>, S> NonBlocking<'_, 'b, B, S> {
    /// Polls the stream once. If it is pending, fails with `WouldBlock`.
    fn attempt<T>(&mut self, poll: impl FnOnce(&mut S, &mut Context<'b>) -> Poll<io::Result<T>>) -> io::Result<T> {
        match self.cx.as_deref_mut().map_or(Poll::Pending, |cx| poll(self.stream, cx)) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<B: StreamIo<S>, S> Read for NonBlocking<'_, '_, B, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.reads;
        self.reads = left.saturating_sub(1);
        self.attempt(|stream, cx| {
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            B::poll_read(stream, cx, into)
        })
    }
}

impl<B: StreamIo<S>, S> Write for NonBlocking<'_, '_, B, S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.attempt(|stream, cx| B::poll_write(stream, cx, from))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(|stream, cx| B::poll_flush(stream, cx))
    }
}

/// Returns `true` for an error that is an ordinary end of the connection.
fn is_end(error: &Error) -> bool {
    matches!(error, Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))
}

/// The close frame to send after `error`, if the peer has violated the WebSocket protocol or has sent a message that is too long.
fn close_frame_after(error: &Error) -> Option<CloseFrame> {
    match error {
        Error::Protocol(_) => Some(close_frame(CloseCode::Protocol, "the framing is broken")),
        Error::Utf8(_) => Some(close_frame(CloseCode::Invalid, "the text is not UTF-8")),
        Error::Capacity(_) => Some(close_frame(CloseCode::Size, "the message is too long")),
        _ => None,
    }
}

fn into_io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl<B: StreamIo<S>, S> FrameIo for WebSocket<B, S> {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        for _ in 0..MAX_IN_A_ROW {
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            if self.pings >= MAX_PINGS {
                ready!(self.poll_flush(cx))?;
            }
            match ready!(self.poll(cx, |context, stream| context.read(stream))) {
                Ok(Message::Text(text)) => return Poll::Ready(Ok(Some(text.into()))),
                Ok(Message::Binary(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Ok(Message::Ping(_)) => self.pings = self.pings.saturating_add(1),
                Ok(Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Close(_)) => self.ended = true,
                Err(error) if is_end(&error) => {
                    self.ended = true;
                    return Poll::Ready(Ok(None));
                }
                Err(error) => {
                    self.ended = true;
                    if let Some(goodbye) = close_frame_after(&error) {
                        self.goodbye = goodbye;
                    }
                    return Poll::Ready(match error {
                        Error::Capacity(_) if self.limit < MAX_MESSAGE_BYTES => {
                            Ok(Some(vec![0; self.limit.saturating_add(1)].into()))
                        }
                        error => Err(into_io_error(error)),
                    });
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.blocked { self.poll_flush(cx) } else { Poll::Ready(Ok(())) }
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        if !self.context.can_write() {
            return Ok(());
        }
        let text = Utf8Bytes::try_from(transmit.frame).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let mut stream = NonBlocking::<B, S> { stream: &mut self.stream, cx: None, reads: 0, io: PhantomData };
        match self.context.write(&mut stream, Message::Text(text)) {
            // The library has put the message into its buffer although it reports an error.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
            result => result.map_err(into_io_error)?,
        }
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.poll(cx, |context, stream| context.flush(stream)));
        self.blocked = false;
        self.pings = 0;
        Poll::Ready(flushed.or_else(|error| if self.ended || is_end(&error) { Ok(()) } else { Err(into_io_error(error)) }))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            self.closing = true;
            // Only the bytes that can be written without waiting are written, so that a peer that does not read cannot delay the end.
            let goodbye = self.goodbye.clone();
            let _ = self.poll(cx, |context, stream| context.close(stream, Some(goodbye)));
        }
        let shut = ready!(B::poll_close(&mut self.stream, cx));
        // The peer may have closed the connection first.
        Poll::Ready(shut.or_else(|error| if error.kind() == io::ErrorKind::NotConnected { Ok(()) } else { Err(error) }))
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.limit = bytes;
        let max = Some(bytes.min(MAX_MESSAGE_BYTES));
        self.context.set_config(|config| {
            config.max_message_size = max;
            config.max_frame_size = max;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::task::Waker;
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// A stream in memory, whose other end is the test.
    #[derive(Debug, Default)]
    struct Wire {
        /// The pieces to read. Reads are pending if there is none.
        incoming: VecDeque<Vec<u8>>,
        /// `true` if the stream ends after the last piece.
        ends: bool,
        /// The number of reads that returned bytes.
        reads: usize,
        written: Vec<u8>,
        /// The number of writes that took bytes.
        writes: usize,
        /// The number of bytes that are accepted before writes are pending.
        room: usize,
        closed: bool,
    }

    #[derive(Debug)]
    struct Memory;

    impl StreamIo<Wire> for Memory {
        fn poll_read(wire: &mut Wire, _cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
            let Some(mut piece) = wire.incoming.pop_front() else {
                return if wire.ends { Poll::Ready(Ok(0)) } else { Poll::Pending };
            };
            wire.reads += 1;
            let count = piece.len().min(into.len());
            into[..count].copy_from_slice(&piece[..count]);
            if count < piece.len() {
                wire.incoming.push_front(piece.split_off(count));
            }
            Poll::Ready(Ok(count))
        }

        fn poll_write(wire: &mut Wire, _cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
            let count = from.len().min(wire.room);
            wire.room -= count;
            wire.written.extend_from_slice(&from[..count]);
            wire.writes += usize::from(count > 0);
            if count == 0 { Poll::Pending } else { Poll::Ready(Ok(count)) }
        }

        fn poll_flush(_wire: &mut Wire, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(wire: &mut Wire, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            wire.closed = true;
            Poll::Ready(Ok(()))
        }
    }

    // The first byte of a whole message. In the tests, 0x01 begins a text message of several fragments, 0x00 goes on, and 0x80 ends it.
    const TEXT: u8 = 0x81;
    const BINARY: u8 = 0x82;
    const CLOSE: u8 = 0x88;
    const PING: u8 = 0x89;
    const PONG: u8 = 0x8a;

    /// A message as a client sends it, with a mask of zeros.
    fn masked(first_byte: u8, payload: &[u8]) -> Vec<u8> {
        let mut message = unmasked(first_byte, payload);
        let at = message.len() - payload.len();
        message[1] |= 0x80;
        message.splice(at..at, [0; 4]);
        message
    }

    /// A message as a server sends it.
    fn unmasked(first_byte: u8, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![first_byte];
        match payload.len() {
            length @ ..126 => message.push(length as u8),
            length @ ..65536 => {
                message.push(126);
                message.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                message.push(127);
                message.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        message.extend_from_slice(payload);
        message
    }

    fn server(incoming: impl IntoIterator<Item = Vec<u8>>) -> WebSocket<Memory, Wire> {
        let wire = Wire { incoming: incoming.into_iter().collect(), room: usize::MAX, ..Wire::default() };
        WebSocket::new(wire, Role::Server, Vec::new())
    }

    fn noop() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// All frames that arrive until a read is pending, and the end or the error.
    fn received(socket: &mut WebSocket<Memory, Wire>) -> Vec<String> {
        let mut received = Vec::new();
        while let Poll::Ready(frame) = socket.poll_recv(&mut noop()) {
            match frame {
                Ok(Some(frame)) => received.push(String::from_utf8_lossy(&frame).into_owned()),
                Ok(None) => {
                    received.push("the end".into());
                    break;
                }
                Err(error) => {
                    received.push(format!("{:?}", error.kind()));
                    break;
                }
            }
        }
        received
    }

    fn send(socket: &mut WebSocket<Memory, Wire>, frame: &'static str) {
        assert!(matches!(socket.poll_ready(&mut noop()), Poll::Ready(Ok(()))));
        socket.start_send(Transmit::new(Bytes::from_static(frame.as_bytes()))).unwrap();
    }

    #[test]
    fn text_and_binary_messages_are_frames_however_they_are_fragmented() {
        let mut bytes = masked(TEXT, b"{}");
        bytes.extend(masked(BINARY, b"[1]"));
        // One message in two fragments, with a ping between them.
        bytes.extend(masked(0x01, "\"\u{2603}".as_bytes()));
        bytes.extend(masked(PING, b"still there?"));
        bytes.extend(masked(0x80, b"\""));
        let frames = ["{}", "[1]", "\"\u{2603}\""];
        assert_eq!(received(&mut server([bytes.clone()])), frames);
        assert_eq!(received(&mut server(bytes.iter().map(|byte| vec![*byte]))), frames);
        let mut read_before = WebSocket::<Memory, _>::new(Wire { room: usize::MAX, ..Wire::default() }, Role::Server, bytes);
        assert_eq!(received(&mut read_before), frames, "bytes that were read with the upgrade request");
    }

    #[test]
    fn a_read_takes_sixteen_kibibytes_of_a_long_message() {
        let mut socket = server([masked(TEXT, &[b' '; 64 << 10])]);
        assert_eq!(received(&mut socket).len(), 1);
        // The fifth read takes the last bytes of the message, since its header took some of the room of the first read.
        assert_eq!(socket.stream.reads, 5);
    }

    #[test]
    fn a_ping_is_answered_although_no_frame_is_sent() {
        let mut socket = server([masked(PING, b"hello")]);
        assert!(received(&mut socket).is_empty());
        assert!(received(&mut socket).is_empty());
        assert_eq!(socket.stream.written, unmasked(PONG, b"hello"));
    }

    #[test]
    fn a_peer_that_sends_pings_and_reads_no_pongs_is_no_longer_read_after_a_limit() {
        let mut socket = server(vec![masked(PING, b""); 3 * MAX_PINGS]);
        socket.stream.room = 0;
        for _ in 0..MAX_PINGS {
            assert!(received(&mut socket).is_empty());
        }
        assert_eq!(socket.stream.incoming.len(), 2 * MAX_PINGS);
        socket.stream.room = usize::MAX;
        for _ in 0..MAX_PINGS {
            assert!(received(&mut socket).is_empty());
        }
        assert_eq!(socket.stream.incoming.len(), 0);
    }

    #[test]
    fn frames_are_sent_as_unfragmented_text_messages_in_one_write_when_the_transport_is_flushed() {
        let mut socket = server([]);
        send(&mut socket, "{}");
        send(&mut socket, "[\"\u{e9}\"]");
        assert_eq!(socket.stream.written, b"", "not before it is flushed");
        assert!(matches!(socket.poll_flush(&mut noop()), Poll::Ready(Ok(()))));
        let mut expected = unmasked(TEXT, b"{}");
        expected.extend(unmasked(TEXT, "[\"\u{e9}\"]".as_bytes()));
        assert_eq!((&socket.stream.written, socket.stream.writes), (&expected, 1));
    }

    #[test]
    fn messages_of_a_client_are_masked() {
        let mut socket = WebSocket::<Memory, _>::new(Wire { room: usize::MAX, ..Wire::default() }, Role::Client, Vec::new());
        send(&mut socket, "{}");
        assert!(matches!(socket.poll_flush(&mut noop()), Poll::Ready(Ok(()))));
        let [TEXT, 0x82, a, b, _, _, first, second] = *socket.stream.written else { panic!("{:?}", socket.stream.written) };
        assert_eq!([first ^ a, second ^ b], *b"{}");
    }

    #[test]
    fn a_frame_that_is_not_utf_8_cannot_be_sent() {
        let mut socket = server([]);
        assert_eq!(socket.start_send(Transmit::new(Bytes::from_static(b"\xff"))).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn no_frame_is_accepted_while_too_many_bytes_are_queued() {
        const LONG: &str = match str::from_utf8(&[b'x'; 40 * 1024]) {
            Ok(long) => long,
            Err(_) => "",
        };
        let mut socket = server([]);
        socket.stream.room = 0;
        send(&mut socket, LONG);
        send(&mut socket, LONG);
        assert!(socket.poll_ready(&mut noop()).is_pending());
        socket.stream.room = 1000;
        assert!(socket.poll_ready(&mut noop()).is_pending());
        socket.stream.room = usize::MAX;
        assert!(matches!(socket.poll_ready(&mut noop()), Poll::Ready(Ok(()))));
        assert_eq!(socket.stream.written, [unmasked(TEXT, LONG.as_bytes()), unmasked(TEXT, LONG.as_bytes())].concat());
    }

    #[test]
    fn a_message_over_the_limit_is_the_last_frame_and_closes_with_the_code_for_too_long() {
        let fits = masked(TEXT, b"12345678");
        for too_long in [
            masked(TEXT, b"123456789"),
            // Only the header of a message that would fill the memory.
            vec![TEXT, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            // Each fragment of the message is short enough.
            [masked(0x01, b"12345"), masked(0x80, b"67890")].concat(),
        ] {
            let mut socket = server([fits.clone(), too_long, fits.clone()]);
            socket.set_frame_limit(8);
            assert_eq!(received(&mut socket), ["12345678", "\0\0\0\0\0\0\0\0\0", "the end"]);
            assert!(matches!(socket.poll_close(&mut noop()), Poll::Ready(Ok(()))));
            assert_eq!(socket.stream.written, close(1009, "the message is too long"));
        }
    }

    #[test]
    fn a_message_has_a_maximum_length_whatever_the_frame_limit_is() {
        let mut socket = server([vec![TEXT, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]]);
        socket.set_frame_limit(usize::MAX);
        assert_eq!(received(&mut socket), ["InvalidData"]);
    }

    #[test]
    fn a_close_with_any_code_is_answered_and_ends_the_input() {
        for payload in [&b""[..], b"\x03\xe8bye", b"\x03\xe9", b"\x0f\xa0own", b"\x03\xed"] {
            let mut socket = server([masked(TEXT, b"{}"), masked(CLOSE, payload), masked(TEXT, b"late")]);
            assert_eq!(received(&mut socket), ["{}", "the end"]);
            // The peer does not read any more, so the frame is dropped without an error.
            send(&mut socket, "[]");
            assert!(matches!(socket.poll_flush(&mut noop()), Poll::Ready(Ok(()))));
            assert_eq!(socket.stream.written[0], CLOSE, "{payload:?}");
            let written = socket.stream.written.len();
            assert!(matches!(socket.poll_close(&mut noop()), Poll::Ready(Ok(()))));
            assert_eq!((socket.stream.written.len(), socket.stream.closed), (written, true), "once");
        }
    }

    #[test]
    fn a_stream_that_ends_without_a_close_is_the_end_of_input() {
        for bytes in [vec![], masked(TEXT, b"{}")[..5].to_vec()] {
            let mut socket = server([bytes].into_iter().filter(|bytes| !bytes.is_empty()));
            socket.stream.ends = true;
            assert_eq!(received(&mut socket), ["the end"]);
            assert_eq!(received(&mut socket), ["the end"]);
        }
    }

    #[test]
    fn a_breach_of_the_protocol_is_an_error_and_our_close_has_its_code() {
        let (framing, text) = (close(1002, "the framing is broken"), close(1007, "the text is not UTF-8"));
        for (bytes, close) in [
            (unmasked(TEXT, b"{}"), &framing),
            (masked(0xc1, b"compressed"), &framing),
            (masked(0x83, b"reserved"), &framing),
            (masked(0x80, b"continues nothing"), &framing),
            (masked(PING, &[0; 126]), &framing),
            (masked(TEXT, b"\xff"), &text),
            ([masked(0x01, b"\xe2"), masked(0x80, b"x")].concat(), &text),
        ] {
            let mut socket = server([bytes, masked(TEXT, b"{}")]);
            assert_eq!(received(&mut socket), ["InvalidData"]);
            assert_eq!(received(&mut socket), ["the end"]);
            assert!(matches!(socket.poll_close(&mut noop()), Poll::Ready(Ok(()))));
            assert_eq!((&socket.stream.written, socket.stream.closed), (close, true));
        }
    }

    /// The close frame that this end sends as a server.
    fn close(code: u16, reason: &str) -> Vec<u8> {
        unmasked(CLOSE, &[&code.to_be_bytes(), reason.as_bytes()].concat())
    }

    #[test]
    fn our_close_has_code_1000_and_a_reason_and_follows_all_frames() {
        let mut socket = server([]);
        send(&mut socket, "{}");
        assert!(matches!(socket.poll_close(&mut noop()), Poll::Ready(Ok(()))));
        let expected = [unmasked(TEXT, b"{}"), unmasked(CLOSE, b"\x03\xe8the session is over")].concat();
        assert_eq!((&socket.stream.written, socket.stream.closed), (&expected, true));
        assert!(matches!(socket.poll_close(&mut noop()), Poll::Ready(Ok(()))));
        assert_eq!(socket.stream.written, expected);
    }

    #[test]
    fn closing_does_not_wait_for_a_peer_that_does_not_read() {
        let mut socket = server([]);
        socket.stream.room = 0;
        send(&mut socket, "{}");
        assert!(matches!(socket.poll_close(&mut noop()), Poll::Ready(Ok(()))));
        assert!(socket.stream.closed);
    }

    #[test]
    fn a_flood_of_messages_does_not_block_other_tasks() {
        struct Woken(AtomicUsize);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let fragment = vec![masked(0x00, b""); 1000].concat();
        for flood in [vec![masked(PING, b"x"); 1000].concat(), [masked(0x01, b""), fragment].concat()] {
            let mut socket = server(flood.chunks(6).map(<[u8]>::to_vec));
            let woken = Arc::new(Woken(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&woken));
            assert!(socket.poll_recv(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), 1);
            assert!(socket.stream.incoming.len() > 900);
        }
    }
}
