//! A client of Streamable HTTP. Each request has a connection of its own, which can be closed without affecting other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::{Fault, MAX_LINE_BYTES, MAX_READ_BYTES};

/// The maximum number of parts that are queued for the scenario. If the queue is full, no more is read from the server.
const WAITING: usize = 64;

/// A part of a response.
#[derive(Debug)]
pub(super) enum Part {
    Head(StatusCode, HeaderMap),
    /// A message, with the newest event id of its stream when the message came.
    Message(Bytes, Option<String>),
    End,
    Broken(Fault),
}

/// A server, and the HTTP exchanges with it.
#[derive(Debug)]
pub(super) struct Server {
    uri: Uri,
    address: String,
    sender: Sender<(usize, Part)>,
    receiver: Receiver<(usize, Part)>,
    exchanges: Vec<AbortHandle>,
    /// The number of bytes of all bodies that were read.
    bytes_read: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn new(url: &str) -> Result<Self, Fault> {
        let invalid = |why: &str| Fault::Died(format!("{url} {why}"));
        let uri: Uri = url.parse().map_err(|_| invalid("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid("does not begin with http://"));
        }
        let host = uri.host().ok_or_else(|| invalid("has no host"))?;
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        let (sender, receiver) = channel(WAITING);
        Ok(Self { uri, address, sender, receiver, exchanges: Vec::new(), bytes_read: Arc::default() })
    }

    /// Checks that the server accepts a connection.
    pub(super) async fn knock(&self, until: Instant) -> Result<(), Fault> {
        self.connect(until).await.map(drop)
    }

    /// Opens a connection, and sends nothing.
    pub(super) async fn connect(&self, until: Instant) -> Result<TcpStream, Fault> {
        connect(&self.address, until).await
    }

    pub(super) fn host(&self) -> &str {
        &self.address
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }

    /// Sends an HTTP request on a connection that must be open before `until`. Returns the number of its exchange.
    pub(super) fn send(
        &mut self,
        method: Method,
        headers: &[(String, String)],
        body: Bytes,
        until: Instant,
    ) -> Result<usize, Fault> {
        let mut request = Request::builder().method(method).uri(self.path()).header(HOST, &self.address);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| Fault::Wrong(format!("the request cannot be written: {error}")))?;
        let number = self.exchanges.len();
        let (sender, bytes_read, address) = (self.sender.clone(), Arc::clone(&self.bytes_read), self.address.clone());
        let task = tokio::spawn(async move {
            let last = match exchange(&address, request, number, &sender, &bytes_read, until).await {
                Ok(()) => Part::End,
                Err(fault) => Part::Broken(fault),
            };
            // Fails after the end of the scenario, when nothing receives parts any more.
            let _ = sender.send((number, last)).await;
        });
        self.exchanges.push(task.abort_handle());
        Ok(number)
    }

    /// Closes the connection of an exchange.
    pub(super) fn close(&self, exchange: usize) {
        if let Some(task) = self.exchanges.get(exchange) {
            task.abort();
        }
    }

    /// Waits for a part of any response. Returns `None` if none comes before `until`.
    pub(super) async fn next(&mut self, until: Instant) -> Option<(usize, Part)> {
        timeout_at(until, self.receiver.recv()).await.ok().flatten()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.exchanges {
            task.abort();
        }
    }
}

/// The headers of a POST.
pub(super) fn content_headers() -> Vec<(String, String)> {
    let pair = |name: hyper::header::HeaderName, value: &str| (name.as_str().to_owned(), value.to_owned());
    vec![pair(CONTENT_TYPE, "application/json"), pair(ACCEPT, "application/json, text/event-stream")]
}

async fn connect(address: &str, until: Instant) -> Result<TcpStream, Fault> {
    match timeout_at(until, TcpStream::connect(address)).await {
        Err(_) => Err(Fault::Silent(format!("{address} did not accept a connection"))),
        Ok(Err(error)) => Err(Fault::Died(format!("{address} cannot be reached: {error}"))),
        Ok(Ok(socket)) => Ok(socket),
    }
}

async fn exchange(
    address: &str,
    request: Request<Full<Bytes>>,
    number: usize,
    sender: &Sender<(usize, Part)>,
    bytes_read: &AtomicUsize,
    until: Instant,
) -> Result<(), Fault> {
    let broken = |error: hyper::Error| Fault::Died(format!("the connection of HTTP broke: {error}"));
    let socket = connect(address, until).await?;
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(broken)?;
    let answered = async {
        let response = client.send_request(request).await.map_err(broken)?;
        read_response(response, number, sender, bytes_read).await
    };
    // The future of the connection has to be polled for the response to arrive. If that future ends without an error, the rest of the
    // response is still read.
    tokio::select! {
        done = answered => done,
        Err(error) = connection => Err(broken(error)),
    }
}

async fn read_response(
    response: Response<Incoming>,
    number: usize,
    sender: &Sender<(usize, Part)>,
    bytes_read: &AtomicUsize,
) -> Result<(), Fault> {
    let (head, mut body) = response.into_parts();
    let is_stream = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let _ = sender.send((number, Part::Head(head.status, head.headers))).await;
    let mut buffer = BytesMut::new();
    let mut events = Events::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::Died(format!("the response broke off: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes_read.fetch_add(data.len(), Ordering::Relaxed) + data.len() > MAX_READ_BYTES {
            return Err(Fault::Flooded(format!("it wrote more than {} MiB", MAX_READ_BYTES >> 20)));
        }
        buffer.extend_from_slice(data);
        if is_stream {
            for (message, id) in events.read(&mut buffer) {
                let _ = sender.send((number, Part::Message(message, id))).await;
            }
        }
        if buffer.len() + events.data.len() > MAX_LINE_BYTES {
            return Err(Fault::Flooded(format!("it wrote a message of more than {} MiB", MAX_LINE_BYTES >> 20)));
        }
    }
    if !is_stream && !buffer.is_empty() {
        let _ = sender.send((number, Part::Message(buffer.freeze(), None))).await;
    }
    Ok(())
}

/// The parser of an event stream, with the incomplete event.
#[derive(Debug, Default)]
struct Events {
    data: BytesMut,
    id: Option<String>,
    /// The number of bytes at the beginning of the buffer that were searched and contain no line end.
    scanned: usize,
}

impl Events {
    /// Takes all complete lines. Returns the data of the events that end in these lines, each with the newest event id.
    fn read(&mut self, buffer: &mut BytesMut) -> Vec<(Bytes, Option<String>)> {
        let mut events = Vec::new();
        while let Some(at) = buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(self.scanned + at + 1);
            self.scanned = 0;
            let line = line.trim_ascii_end();
            if let Some(data) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.extend_from_slice(b"\n");
                }
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            } else if let Some(id) = line.strip_prefix(b"id:") {
                self.id = Some(String::from_utf8_lossy(id.trim_ascii_start()).into_owned());
            } else if line.is_empty() && !self.data.is_empty() {
                events.push((self.data.split().freeze(), self.id.clone()));
            }
        }
        self.scanned = buffer.len();
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_several_lines_that_arrives_in_pieces_is_read() {
        let mut events = Events::default();
        let mut buffer = BytesMut::from(&b": keep\r\nid: 1\r\ndata: {\"a\":\r\nda"[..]);
        assert!(events.read(&mut buffer).is_empty());
        buffer.extend_from_slice(b"ta:1}\n\nid: 2\ndata:\n\ndata: 2\n\n");
        let read = events.read(&mut buffer);
        let read = read.iter().map(|(data, id)| (&data[..], id.as_deref())).collect::<Vec<_>>();
        assert_eq!(read, [(&b"{\"a\":\n1}"[..], Some("1")), (b"2", Some("2"))]);
    }
}
