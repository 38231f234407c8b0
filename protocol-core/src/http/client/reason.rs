//! The reason of a loss, for people: a fault, the request, and what is known of the response.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use super::types::HttpFault;
use crate::http::head::ResponseHead;
use crate::http::header;
use crate::json::Text;

/// The maximum number of bytes of a body in a reason.
pub(super) const EXCERPT_BYTES: usize = 200;
/// The maximum number of bytes of a content type, an encoding, or the error of a connection in a reason.
const NAME_BYTES: usize = 100;

/// A fault, with the request in whose HTTP exchange it occurred, and the response as far as it had come. Its text is one line. It has
/// neither the address nor a header field of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpReason {
    /// The fault.
    pub fault: HttpFault,
    /// The method of JSON-RPC of the request that was sent, such as `tools/call`; for an HTTP request without such a method, its purpose.
    pub request: Text,
    /// The response; `None` if there was no head of one.
    pub response: Option<HttpExcerpt>,
    /// `true` if the client has tried to resume the stream after the fault, and has given up.
    pub gave_up: bool,
}

impl HttpReason {
    pub(super) fn new(request: Text, fault: HttpFault, response: Option<HttpExcerpt>) -> Self {
        Self { fault, request, response, gave_up: false }
    }
}

impl fmt::Display for HttpReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.request, self.fault)?;
        if let Some(response) = &self.response {
            f.write_str(" (")?;
            if !self.fault.has_status() {
                write!(f, "status {}, ", response.status)?;
            }
            write!(f, "{response})")?;
        }
        f.write_str(if self.gave_up { "; the stream could not be resumed" } else { "" })
    }
}

/// The first of the reasons for which one thing has failed again and again.
#[derive(Debug, Default)]
pub(super) struct FirstReason(Option<Box<HttpReason>>);

impl FirstReason {
    /// Records a reason. Returns `false` if there is an earlier one.
    pub(super) fn note(&mut self, why: &HttpReason) -> bool {
        let is_first = self.0.is_none();
        if is_first {
            self.0 = Some(Box::new(why.clone()));
        }
        is_first
    }

    /// Takes the first reason since the last time.
    pub(super) fn take(&mut self) -> Option<Box<HttpReason>> {
        self.0.take()
    }
}

/// The beginning of a response. Its text is one line, without the status.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpExcerpt {
    /// The status.
    pub status: u16,
    /// The content type, at most 100 bytes of it; `None` if there is none.
    pub media_type: Option<Text>,
    /// The content encoding, such as `gzip`, at most 100 bytes of it; `None` if there is none.
    pub encoding: Option<Text>,
    /// The first bytes of the body that have come, at most 200.
    pub body: bytes::Bytes,
}

impl HttpExcerpt {
    pub(super) fn of(head: &ResponseHead<'_>) -> Self {
        let text = |value: &[u8]| Text::from(visible(value.get(..NAME_BYTES).unwrap_or(value)));
        let media_type = head.headers.get_all(header::CONTENT_TYPE).next().filter(|value| !value.is_empty());
        Self {
            status: head.status,
            media_type: media_type.map(text),
            encoding: header::encoding(&head.headers).map(text),
            body: bytes::Bytes::new(),
        }
    }

    /// Adds a piece of the body. Returns `true` if the excerpt is full.
    pub(super) fn add(&mut self, piece: &[u8]) -> bool {
        let room = EXCERPT_BYTES.saturating_sub(self.body.len());
        if room > 0 && !piece.is_empty() {
            let piece = piece.get(..room).unwrap_or(piece);
            self.body = [&*self.body, piece].concat().into();
        }
        self.body.len() >= EXCERPT_BYTES
    }
}

impl fmt::Display for HttpExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.media_type.as_deref().unwrap_or("no content type"))?;
        if let Some(encoding) = &self.encoding {
            // The bytes of such a body tell a person nothing.
            return write!(f, ", encoding {encoding}");
        }
        match &*self.body {
            [] => f.write_str(", no body"),
            body => {
                let more = if body.len() < EXCERPT_BYTES { "" } else { "..." };
                write!(f, ", \"{}{more}\"", visible(body))
            }
        }
    }
}

/// Bytes as text in one line. Each run of white space becomes one space; control characters, and bytes that are not UTF-8, are escaped.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                letter if letter.is_whitespace() => {
                    if !text.ends_with(' ') && !text.is_empty() {
                        text.push(' ');
                    }
                }
                letter if letter.is_control() => text.extend(letter.escape_default()),
                letter => text.push(letter),
            }
        }
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    if text.ends_with(' ') {
        text.pop();
    }
    text
}

/// Shortens the error of a connection.
pub(super) fn shortened(why: &str) -> Text {
    Text::from(visible(why.as_bytes().get(..2 * NAME_BYTES).unwrap_or(why.as_bytes())))
}
