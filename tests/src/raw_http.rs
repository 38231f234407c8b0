//! A client of HTTP/1.1 on a blocking socket, one exchange at a time, for programs that put load on a server.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// The revision of MCP in sessions with a handshake.
const VERSION: &str = "2025-11-25";

/// An error of any kind.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// A server process, which is killed when this is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts a program that prints the address on which it listens.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        let address = address.trim().parse().map_err(|_| format!("{program} prints no address"))?;
        Ok(Self { child, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The bytes of memory that the process occupies.
    pub(crate) fn memory(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.ok_or("the system does not tell the memory of a process")? * 1024.0)
    }

    /// Opens a connection, on which a read waits for a minute at most.
    pub(crate) fn connect(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(stream)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request: its method, its header fields and its body.
pub(crate) struct Request {
    method: &'static str,
    fields: String,
    body: String,
}

impl Request {
    /// A call without a handshake.
    pub(crate) fn call(id: usize, tool: &str) -> Self {
        Self::modern(id, "tools/call", tool, json!({"name": tool}))
    }

    /// A call with arguments, without a handshake.
    pub(crate) fn call_with(id: usize, tool: &str, arguments: &Value) -> Self {
        Self::modern(id, "tools/call", tool, json!({"name": tool, "arguments": arguments}))
    }

    /// A subscription to the list of tools.
    pub(crate) fn listen(id: usize) -> Self {
        Self::modern(id, "subscriptions/listen", "", json!({"notifications": {"toolsListChanged": true}}))
    }

    /// A request without a handshake. An empty `name` leaves out the header `Mcp-Name`.
    pub(crate) fn modern(id: usize, method: &'static str, name: &str, mut params: Value) -> Self {
        params["_meta"] = json!({
            "progressToken": id,
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let name = if name.is_empty() { String::new() } else { format!("Mcp-Name: {name}\r\n") };
        Self {
            method: "POST",
            fields: format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}"),
            body: json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        }
    }

    /// A message within a session with a handshake.
    pub(crate) fn legacy(session: &str, message: &Value) -> Self {
        Self { method: "POST", fields: Self::session_fields(session), body: message.to_string() }
    }

    pub(crate) fn delete(session: &str) -> Self {
        Self { method: "DELETE", fields: Self::session_fields(session), body: String::new() }
    }

    /// A request for the stream of a session, beginning with the event after the one with the id `last`.
    pub(crate) fn get(session: &str, last: &str) -> Self {
        let fields = Self::session_fields(session) + &format!("Last-Event-ID: {last}\r\n");
        Self { method: "GET", fields, body: String::new() }
    }

    fn session_fields(session: &str) -> String {
        format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {VERSION}\r\n")
    }

    /// The bytes to send.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { method, fields, body } = self;
        let common = "Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        format!("{method} /mcp HTTP/1.1\r\n{common}{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

/// Sends the first half of a request.
pub(crate) fn send_half(stream: &mut TcpStream, request: &Request) -> Result<(), Failure> {
    let bytes = request.bytes();
    Ok(stream.write_all(&bytes[..bytes.len() / 2])?)
}

/// Opens a session, and returns its id.
pub(crate) fn open_session(stream: &mut TcpStream) -> Result<String, Failure> {
    let info = json!({"name": "soak", "version": "1"});
    let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let request = Request { method: "POST", fields: String::new(), body: hello.to_string() };
    let opened = Exchange::send(stream, &request)?.finish()?;
    opened.expect(200)?;
    let id = opened.session.ok_or("no session id")?;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    Exchange::send(stream, &Request::legacy(&id, &ready))?.finish()?.expect(202)?;
    Ok(id)
}

/// Opens a subscription, and waits for its acknowledgement. The subscription lives as long as the connection.
pub(crate) fn open_subscription(stream: &mut TcpStream, id: usize) -> Result<(), Failure> {
    let mut exchange = Exchange::send(stream, &Request::listen(id))?;
    exchange.expect_status(200)?;
    exchange.next_line_with("subscriptions/acknowledged")?;
    Ok(())
}

/// An HTTP exchange: a request that was sent, and its response as far as it was read.
pub(crate) struct Exchange<'a> {
    reader: BufReader<&'a mut TcpStream>,
    /// The status of the response; 0 until its head was read.
    status: u16,
    session: Option<String>,
    /// The length of the body; `None` if the body is sent in chunks.
    length: Option<usize>,
}

/// A response that was read to its end.
pub(crate) struct Response {
    status: u16,
    session: Option<String>,
    pub(crate) body: String,
}

impl<'a> Exchange<'a> {
    /// The response to a request that was already sent.
    pub(crate) fn sent(stream: &'a mut TcpStream) -> Self {
        Self { reader: BufReader::new(stream), status: 0, session: None, length: None }
    }

    pub(crate) fn send(stream: &'a mut TcpStream, request: &Request) -> Result<Self, Failure> {
        stream.write_all(&request.bytes())?;
        Ok(Self::sent(stream))
    }

    /// Reads the head, and checks its status.
    pub(crate) fn expect_status(&mut self, wanted: u16) -> Result<(), Failure> {
        self.read_head()?;
        if self.status == wanted { Ok(()) } else { Err(format!("status {}, not {wanted}", self.status).into()) }
    }

    fn read_head(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        self.status = line.split(' ').nth(1).ok_or_else(|| format!("no status in {line:?}"))?.parse()?;
        // A response without a header field about its length has no body.
        self.length = Some(0);
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { return Ok(()) };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => self.length = Some(value.parse()?),
                "transfer-encoding" => self.length = None,
                "mcp-session-id" => self.session = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    /// Reads lines of the response, including its head if it was not read, until one contains `words`. Returns this line.
    pub(crate) fn next_line_with(&mut self, words: &str) -> Result<String, Failure> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(format!("the response ends before {words}").into());
            }
            if line.contains(words) {
                return Ok(line);
            }
        }
    }

    /// Reads the response to its end.
    pub(crate) fn finish(mut self) -> Result<Response, Failure> {
        if self.status == 0 {
            self.read_head()?;
        }
        let mut body = Vec::new();
        match self.length {
            Some(length) => {
                body.resize(length, 0);
                self.reader.read_exact(&mut body)?;
            }
            None => loop {
                let mut size = String::new();
                self.reader.read_line(&mut size)?;
                let size = usize::from_str_radix(size.trim(), 16)?;
                let mut chunk = vec![0; size + 2];
                self.reader.read_exact(&mut chunk)?;
                body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            },
        }
        Ok(Response { status: self.status, session: self.session, body: String::from_utf8(body)? })
    }
}

impl Response {
    pub(crate) fn expect(&self, status: u16) -> Result<(), Failure> {
        if self.status == status { Ok(()) } else { Err(format!("status {}, not {status}: {}", self.status, self.body).into()) }
    }

    /// The last JSON-RPC message in the body, which is JSON or a stream of events.
    pub(crate) fn message(&self) -> Result<Value, Failure> {
        let lines = self
            .body
            .lines()
            .rev()
            .filter_map(|line| line.strip_prefix("data: ").or_else(|| line.starts_with('{').then_some(line)));
        let text = lines.into_iter().next().ok_or("no message")?;
        Ok(serde_json::from_str(text)?)
    }

    /// The structured content of the result of a tool.
    pub(crate) fn structured(&self) -> Result<Value, Failure> {
        Ok(self.message()?["result"]["structuredContent"].clone())
    }
}
