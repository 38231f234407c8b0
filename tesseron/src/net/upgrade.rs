//! The upgrade of a TCP connection to a WebSocket, at both ends of it.

use core::future::poll_fn;
use std::format;
use std::io;
use std::string::String;
use std::vec::Vec;

use tungstenite::handshake::client::{Response as Answer, generate_key};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, Response, create_response, write_response};
use tungstenite::http::{HeaderValue, StatusCode};

use crate::claims::{BindRefused, ClaimCode, Offer, SUBPROTOCOL};
use crate::net::LoopbackUrl;
use crate::net::dial::Failed;
use adapter_io::{StreamIo, WebSocket};

/// The head of a request or of an answer ends within about so many bytes.
const HEAD: usize = 8 * 1024;
/// Bytes of one read.
const READ: usize = 1024;

const PROTOCOL: &str = "Sec-WebSocket-Protocol";

fn invalid(why: impl Into<std::boxed::Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads a head, and says what came behind it.
async fn read_head<B: StreamIo<S>, S, H: TryParse>(stream: &mut S) -> io::Result<(H, Vec<u8>)> {
    let mut read = Vec::new();
    let mut piece = [0; READ];
    while read.len() < HEAD {
        let count = poll_fn(|cx| B::poll_read(stream, cx, &mut piece)).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some((length, head)) = H::try_parse(&read).map_err(invalid)? {
            return Ok((head, read.get(length..).unwrap_or_default().to_vec()));
        }
    }
    Err(invalid("its head is too long"))
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

/// The app's end. `judge` says who is let in; what it gives is kept with the WebSocket. Whoever does not ask for one gets no answer.
pub(super) async fn accept<B: StreamIo<S>, S, T>(
    mut stream: S,
    judge: impl FnOnce(&Offer) -> Result<T, BindRefused>,
) -> io::Result<(WebSocket<B, S>, T)> {
    let (request, behind) = read_head::<B, S, Request>(&mut stream).await?;
    // Only a page in a browser says where it comes from, and a page is no gateway.
    if request.headers().contains_key("Origin") {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // First of all: nobody's code is spent on what could not be upgraded anyway.
    let mut answer = create_response(&request).map_err(invalid)?;
    let offer = Offer::parse(request.headers().get_all(PROTOCOL).iter().filter_map(|value| value.to_str().ok()));
    let admitted = judge(&offer);
    match &admitted {
        Ok(_) => {
            answer.headers_mut().insert(PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        }
        Err(refused) => answer = refusal(*refused)?,
    }
    let mut head = Vec::new();
    write_response(&mut head, &answer).map_err(invalid)?;
    write::<B, S>(&mut stream, &head).await?;
    let admitted = admitted.map_err(|_| io::ErrorKind::PermissionDenied)?;
    Ok((WebSocket::server(stream, behind), admitted))
}

fn refusal(refused: BindRefused) -> io::Result<Response> {
    let status = refused.http_status().ok_or(io::ErrorKind::PermissionDenied)?;
    let answer = Response::builder().status(status).header("Connection", "close").header("Content-Length", "0");
    answer.body(()).map_err(invalid)
}

/// The gateway's end.
pub(super) async fn dial<B: StreamIo<S>, S>(
    mut stream: S,
    url: &LoopbackUrl,
    code: Option<&ClaimCode>,
) -> Result<WebSocket<B, S>, Failed> {
    let key = generate_key();
    write::<B, S>(&mut stream, request(url, &key, code).as_bytes()).await?;
    let (answer, behind) = read_head::<B, S, Answer>(&mut stream).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Failed::Refused(answer.status().as_u16()));
    }
    if !upgrades(&answer, &key) {
        return Err(invalid("its answer is no upgrade to a WebSocket of Tesseron").into());
    }
    Ok(WebSocket::client(stream, behind))
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

fn upgrades(answer: &Answer, key: &str) -> bool {
    let headers = answer.headers();
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header("Upgrade").eq_ignore_ascii_case("websocket")
        && header("Connection").split(',').any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
        && header("Sec-WebSocket-Accept") == derive_accept_key(key.as_bytes())
        && header(PROTOCOL) == SUBPROTOCOL
        // None was offered.
        && !headers.contains_key("Sec-WebSocket-Extensions")
}
