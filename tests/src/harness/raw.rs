//! Scripted peers of Tesseron that write HTTP, frames of a WebSocket and lines as bytes. They block, so each needs a thread of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tesseron::net::Address;

/// The time limit of a read.
const PATIENCE: Duration = Duration::from_secs(20);

/// The key of the example in the specification of WebSockets.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// The answer of a server to [`KEY`].
pub(crate) const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The first byte of a message that has one fragment: a text message here, and messages of other kinds below.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;

/// One end of a TCP connection.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a stream");
        Self(stream)
    }

    /// Connects to an app.
    pub(crate) fn connect(address: &Address) -> Self {
        let Address::WebSocket(url) = address else { panic!("{address} is of no WebSocket") };
        Self::over(TcpStream::connect(&url.addresses()[..]).expect("an app"))
    }

    /// Connects to an app and asks for an upgrade, as [`upgrade`] does.
    pub(crate) fn dial(address: &Address, protocols: &str) -> Self {
        let mut raw = Self::connect(address);
        raw.write(upgrade(protocols).as_bytes());
        raw
    }

    /// Writes bytes as they are. A closed connection is no error here.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Fills `into`. Returns `false` if the connection ends or the time limit is over first.
    fn read(&mut self, into: &mut [u8]) -> bool {
        self.0.read_exact(into).is_ok()
    }

    /// The head of the next HTTP message; `None` if the connection ends without one.
    pub(crate) fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !self.read(&mut byte) {
                assert!(head.is_empty(), "{}", String::from_utf8_lossy(&head));
                return None;
            }
            head.extend(byte);
        }
        Some(String::from_utf8(head).expect("text"))
    }

    /// Reads until the end of the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("a regular end");
        String::from_utf8(rest).expect("text")
    }

    /// The status of the next HTTP response; `None` if the connection ends without one.
    pub(crate) fn status(&mut self) -> Option<u16> {
        let head = self.head()?;
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|status| status.parse().ok());
        Some(status.unwrap_or_else(|| panic!("{head}")))
    }

    /// Sends a message with a mask, as a client must. The mask is all zeros, so that the payload is sent as it is.
    pub(crate) fn send(&mut self, kind: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).ok().filter(|length| *length < 126).expect("a short message");
        self.write(&[&[kind, 0x80 | length, 0, 0, 0, 0], payload].concat());
    }

    /// The next message of a server, as its first byte and its payload; `None` at the end of the connection.
    pub(crate) fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        if !self.read(&mut head) {
            return None;
        }
        let [kind, length] = head;
        let length = match length {
            0..=125 => length.into(),
            126 => {
                let mut length = [0; 2];
                assert!(self.read(&mut length));
                u16::from_be_bytes(length).into()
            }
            _ => panic!("the message is masked, or longer than any here"),
        };
        let mut payload = vec![0; length];
        assert!(self.read(&mut payload));
        Some((kind, payload))
    }
}

/// A request to upgrade. It offers these subprotocols, separated by commas (none if `protocols` is empty), and compression, as the
/// reference implementation does.
pub(crate) fn upgrade(protocols: &str) -> String {
    let protocols = if protocols.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {protocols}\r\n") };
    format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n{protocols}\r\n"
    )
}

/// A short message as a server sends it.
pub(crate) fn unmasked(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, u8::try_from(payload.len()).expect("a short message")], payload].concat()
}
