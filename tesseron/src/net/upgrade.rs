//! The upgrade of a TCP connection to a WebSocket, at both ends.

use core::future::poll_fn;
use std::format;
use std::io;
use std::string::{String, ToString as _};
use std::vec::Vec;

use tungstenite::handshake::client::{self, generate_key};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{self, Request, create_response, write_response};
use tungstenite::http::{HeaderValue, StatusCode};

use crate::claims::{BindRefused, ClaimCode, Offer, SUBPROTOCOL};
use crate::net::LoopbackUrl;
use crate::net::error::Failed;
use adapter_io::{StreamIo, WebSocket};

/// The maximum length of the head of a request or of an answer, in bytes.
const MAX_HEAD: usize = 8 * 1024;
/// The number of bytes of one read.
const READ_BYTES: usize = 1024;

const PROTOCOL: &str = "Sec-WebSocket-Protocol";

fn invalid(why: impl Into<std::boxed::Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads the head of a request or of an answer, and returns it with the bytes that were read after it.
async fn read_head<B: StreamIo<S>, S, H: TryParse>(stream: &mut S) -> io::Result<(H, Vec<u8>)> {
    let mut read = Vec::new();
    let mut piece = [0; READ_BYTES];
    while read.len() < MAX_HEAD {
        let count = poll_fn(|cx| B::poll_read(stream, cx, &mut piece)).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some((length, head)) = H::try_parse(&read).map_err(invalid)? {
            return Ok((head, read.get(length..).unwrap_or_default().to_vec()));
        }
    }
    Err(invalid("the head is too long"))
}

/// Writes all of `bytes`.
async fn write<B: StreamIo<S>, S>(stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = poll_fn(|cx| B::poll_write(stream, cx, bytes)).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(count..).unwrap_or_default();
    }
    poll_fn(|cx| B::poll_flush(stream, cx)).await
}

/// A valid upgrade request. Its offer is not checked yet.
pub(super) struct UpgradeRequest {
    offer: Offer,
    /// The answer to send if the gateway is accepted.
    answer: server::Response,
    /// The bytes that were read after the request.
    after: Vec<u8>,
}

impl UpgradeRequest {
    pub(super) fn offer(&self) -> Offer {
        self.offer.clone()
    }
}

/// Reads the upgrade request at the app's end. Returns an error for a request that is not an upgrade, or that has an origin. The other end
/// gets no answer then.
pub(super) async fn read<B: StreamIo<S>, S>(stream: &mut S) -> io::Result<UpgradeRequest> {
    let (request, after) = read_head::<B, S, Request>(stream).await?;
    // Only browsers send an origin, and a web page must not act as a gateway.
    if request.headers().contains_key("Origin") {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // `create_response` also checks the request. The claim code is checked later, so that no code is spent on a request that cannot be
    // upgraded.
    let mut answer = create_response(&request).map_err(invalid)?;
    answer.headers_mut().insert(PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let offer = Offer::parse(request.headers().get_all(PROTOCOL).iter().filter_map(|value| value.to_str().ok()));
    Ok(UpgradeRequest { offer, answer, after })
}

/// Accepts a gateway: sends the answer.
pub(super) async fn accept<B: StreamIo<S>, S>(mut stream: S, request: UpgradeRequest) -> io::Result<WebSocket<B, S>> {
    let mut head = Vec::new();
    write_response(&mut head, &request.answer).map_err(invalid)?;
    write::<B, S>(&mut stream, &head).await?;
    Ok(WebSocket::server(stream, request.after))
}

/// Refuses a gateway: sends the reason. If the reason has no HTTP status, sends nothing and returns an error.
pub(super) async fn refuse<B: StreamIo<S>, S>(stream: &mut S, refused: BindRefused) -> io::Result<()> {
    let status = refused.http_status().ok_or(io::ErrorKind::PermissionDenied)?;
    let why = refused.to_string();
    let answer = server::Response::builder()
        .status(status)
        .header("Connection", "close")
        .header("Content-Type", "text/plain; charset=utf-8")
        .header("Content-Length", why.len());
    let mut message = Vec::new();
    write_response(&mut message, &answer.body(()).map_err(invalid)?).map_err(invalid)?;
    message.extend_from_slice(why.as_bytes());
    write::<B, S>(stream, &message).await
}

/// At the gateway's end: requests the upgrade of a connected stream, and reads the answer.
pub(super) async fn request_upgrade<B: StreamIo<S>, S>(
    mut stream: S,
    url: &LoopbackUrl,
    code: Option<&ClaimCode>,
) -> Result<WebSocket<B, S>, Failed> {
    let key = generate_key();
    write::<B, S>(&mut stream, request(url, &key, code).as_bytes()).await?;
    let (answer, after) = read_head::<B, S, client::Response>(&mut stream).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status().as_u16();
        let why = read_reason::<B, S>(&mut stream, &answer, after).await;
        return Err(Failed::Refused(status, BindRefused::from_answer(status, &why)));
    }
    if !upgrades(&answer, &key) {
        return Err(invalid("the answer is no upgrade to a WebSocket of Tesseron").into());
    }
    Ok(WebSocket::client(stream, after))
}

/// The maximum length of the reason in a refusal, in bytes. Each [`BindRefused`] that an app of this crate sends is shorter.
const MAX_REASON: usize = 256;

/// Reads the reason in a refusal; empty if it cannot be read, or is longer than [`MAX_REASON`].
async fn read_reason<B: StreamIo<S>, S>(stream: &mut S, answer: &client::Response, mut read: Vec<u8>) -> String {
    let length = answer.headers().get("Content-Length").and_then(|length| length.to_str().ok()?.parse().ok());
    let Some(length) = length.filter(|length| *length <= MAX_REASON) else { return String::new() };
    let mut piece = [0; MAX_REASON];
    while read.len() < length {
        match poll_fn(|cx| B::poll_read(stream, cx, &mut piece)).await {
            Ok(count @ 1..) => read.extend_from_slice(piece.get(..count).unwrap_or_default()),
            _ => return String::new(),
        }
    }
    read.truncate(length);
    String::from_utf8(read).unwrap_or_default()
}

fn request(url: &LoopbackUrl, key: &str, code: Option<&ClaimCode>) -> String {
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {key}\r\n{PROTOCOL}: {}\r\n\r\n",
        url.target(),
        url.authority(),
        Offer::header(code),
    )
}

fn upgrades(answer: &client::Response, key: &str) -> bool {
    let headers = answer.headers();
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header("Upgrade").eq_ignore_ascii_case("websocket")
        && header("Connection").split(',').any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
        && header("Sec-WebSocket-Accept") == derive_accept_key(key.as_bytes())
        && header(PROTOCOL) == SUBPROTOCOL
        // No extension was offered, so none may be selected.
        && !headers.contains_key("Sec-WebSocket-Extensions")
}
