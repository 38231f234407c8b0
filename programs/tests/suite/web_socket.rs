//! The close frames of an app for a peer that violates a rule of WebSockets, read from the bytes of a TCP connection.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::children::{App, Home, Programs};
use tests::until::PATIENCE;

/// The first byte of a text frame that is not fragmented.
const TEXT: u8 = 0x81;
/// The first byte of a close frame.
const CLOSE: u8 = 0x88;

/// A gateway that writes and reads the bytes of its connection to an app.
struct Raw(TcpStream);

impl Raw {
    /// Upgrades a connection to the app of `home`, with the claim code of the app.
    fn dial(app: &App, home: &Home) -> Self {
        let url = home.manifest()["transport"]["url"].as_str().expect("a URL").to_owned();
        let address = url.trim_start_matches("ws://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).expect("an app");
        stream.set_read_timeout(Some(PATIENCE)).expect("a stream");
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: tesseron-gateway,tesseron-bind.{}\r\n\r\n",
            app.code(0)
        );
        stream.write_all(request.as_bytes()).expect("an app that reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        Self(stream)
    }

    /// Reads messages up to the close frame, and returns its code.
    fn close_code(&mut self) -> u16 {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).expect("a close before the end");
            let [kind, length] = head;
            let length = match length {
                126 => {
                    let mut length = [0; 2];
                    self.0.read_exact(&mut length).expect("a length");
                    u16::from_be_bytes(length).into()
                }
                length => usize::from(length),
            };
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).expect("a payload");
            if kind == CLOSE {
                return u16::from_be_bytes([payload[0], payload[1]]);
            }
        }
    }
}

/// A message as a client must send it: masked, here by zeros.
fn masked(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).ok().filter(|length| *length < 126).expect("a short message");
    [&[kind, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

#[test]
fn the_close_frame_of_an_app_has_the_code_for_the_violation_of_its_peer() {
    let over_the_limit = [&[TEXT, 0xff][..], &((16_u64 << 20) + 1).to_be_bytes(), &[0; 4]].concat();
    for (bytes, code) in [
        // Not masked.
        (vec![TEXT, 2, b'{', b'}'], 1002),
        (masked(0x83, b"of a reserved kind"), 1002),
        // Not UTF-8.
        (masked(TEXT, b"\"\xff\""), 1007),
        (over_the_limit, 1009),
    ] {
        let home = Home::new();
        let app = App::start(&Programs, &home, ["--ws"]);
        let mut raw = Raw::dial(&app, &home);
        raw.0.write_all(&bytes).expect("an app that reads");
        assert_eq!(raw.close_code(), code, "{bytes:?}");
    }
}
