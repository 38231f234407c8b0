use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

/// The bytes at one end of a connection, which a script reads and writes. Reading blocks, so the script needs a thread of its own.
pub struct Wire {
    read: BufReader<Box<dyn Read + Send>>,
    /// `None` once the script has ended its output.
    write: Option<Box<dyn Write + Send>>,
}

/// A writer, and the function that ends its direction of the connection. The function is called when the writer is dropped.
struct Half<W: Write>(W, fn(&W));

impl<W: Write> Write for Half<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write> Drop for Half<W> {
    fn drop(&mut self) {
        (self.1)(&self.0);
    }
}

impl Wire {
    pub(crate) fn new(read: impl Read + Send + 'static, write: impl Write + Send + 'static) -> Self {
        Self { read: BufReader::new(Box::new(read)), write: Some(Box::new(write)) }
    }

    /// The bytes of a TCP connection.
    pub(crate) fn over_tcp(stream: TcpStream) -> Self {
        let reader = stream.try_clone().expect("a second handle");
        Self::new(reader, Half(stream, |stream| drop(stream.shutdown(Shutdown::Write))))
    }

    /// The bytes of a Unix socket.
    pub(crate) fn over_unix(stream: UnixStream) -> Self {
        let reader = stream.try_clone().expect("a second handle");
        Self::new(reader, Half(stream, |stream| drop(stream.shutdown(Shutdown::Write))))
    }

    /// Reads the next message; `None` at the end of the connection. Lines that are not JSON, such as those that a test program prints as a
    /// child process, are ignored.
    pub fn read(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.read.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Ok(message) = serde_json::from_str(&line) {
                return Some(message);
            }
        }
    }

    /// Reads the next message as [`Self::read`] does, but one byte at a time and without its buffer: bytes that `read` has buffered are
    /// skipped.
    pub fn read_slowly(&mut self) -> Option<Value> {
        loop {
            let mut line = Vec::new();
            let mut byte = [0];
            while byte != *b"\n" {
                if self.read.get_mut().read(&mut byte).ok()? == 0 {
                    return None;
                }
                line.extend(byte);
            }
            if let Ok(message) = serde_json::from_slice(&line) {
                return Some(message);
            }
        }
    }

    /// Writes bytes as they are. A closed connection is no error here.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let write = self.write.as_mut().expect("our side is open");
        let _ = write.write_all(bytes).and_then(|()| write.flush());
    }

    /// Writes one message.
    pub fn write(&mut self, message: &Value) {
        self.bytes(format!("{message}\n").as_bytes());
    }

    /// Ends the output of this end.
    pub fn end(&mut self) {
        self.write = None;
    }

    /// Reads all messages until the end of the connection.
    pub fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.read()).collect()
    }

    /// The handshake request of a client.
    #[must_use]
    pub fn hello() -> Value {
        let info = json!({"name": "wire", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": info});
        json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params})
    }

    /// Makes the handshake with a server.
    pub fn as_client(&mut self) {
        self.write(&Self::hello());
        assert_eq!(self.read().expect("an answer")["id"], "hello");
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Makes the handshake with a client.
    pub fn as_server(&mut self) {
        let id = self.read().expect("a request")["id"].clone();
        let info = json!({"name": "wire", "version": "1"});
        self.answer(&id, &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}));
        assert_eq!(self.read().expect("a notification")["method"], "notifications/initialized");
    }

    /// Answers a request.
    pub fn answer(&mut self, id: &Value, result: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Calls a tool.
    pub fn call(&mut self, id: usize, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
}
