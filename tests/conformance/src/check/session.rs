//! A session with the server under test, which sends exact frames and records every frame that it receives.

use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use protocol_core::Json;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::http::{self, Part, Server};
use super::log::{Direction, Log};
use super::stdio::Process;
use super::{Call, Fault, MAX_MESSAGES, Plan, Revision, Stop, Target, not_run, wrong};

/// The time after which frames that may still come are no longer expected.
const QUIET: Duration = Duration::from_millis(400);
/// The time that a server has to end an HTTP session.
const GOODBYE: Duration = Duration::from_secs(1);

/// A message from the server, or any other text that it sent in place of a message.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) at: Instant,
    pub(super) text: Bytes,
    /// The parsed text, if it is JSON.
    json: Option<Json>,
    method: Option<String>,
    /// The id, unless it is `null`.
    id: Option<Json>,
    has_error: bool,
    has_result: bool,
    /// The HTTP exchange whose response contained the message; `None` over standard output.
    exchange: Option<usize>,
    /// The last event id of the stream when the message came.
    pub(super) event: Option<String>,
}

impl Frame {
    fn new(text: Bytes, exchange: Option<usize>, event: Option<String>) -> Self {
        let json = Json::parse(text.clone()).ok();
        let member = |name: &str| json.as_ref()?.member(name);
        let method = member("method").and_then(|method| method.as_text()).map(|method| method.as_str().to_owned());
        let id = member("id").filter(|id| id.as_str() != "null");
        let (has_error, has_result) = (member("error").is_some(), member("result").is_some());
        Self { at: Instant::now(), text, json, method, id, has_error, has_result, exchange, event }
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The id as it was written, unless it is `null`.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_ref().map(Json::as_str)
    }

    pub(super) fn is_response(&self) -> bool {
        self.method.is_none() && (self.has_error || self.has_result)
    }

    pub(super) fn is_progress(&self) -> bool {
        self.method() == Some("notifications/progress")
    }

    /// Returns `true` for an error without an id, which means that a message could not be read.
    pub(super) fn is_error_without_id(&self) -> bool {
        self.is_response() && self.id.is_none() && self.has_error
    }

    pub(super) fn value(&self) -> Value {
        self.json.as_ref().and_then(|json| json.decode().ok()).unwrap_or_default()
    }

    /// The error code, if this is an error response.
    pub(super) fn code(&self) -> Option<i64> {
        self.value()["error"]["code"].as_i64()
    }

    /// The beginning of the text.
    pub(super) fn short(&self) -> String {
        let text = String::from_utf8_lossy(&self.text[..self.text.len().min(300)]).into_owned();
        if self.text.len() > 300 { text + " .." } else { text }
    }
}

/// An HTTP exchange.
#[derive(Debug, Default)]
struct Exchange {
    /// The id of the JSON-RPC request in its body, if it has one.
    id: Option<String>,
    status: Option<StatusCode>,
    headers: HeaderMap,
    has_ended: bool,
}

/// The server under test: a process, with which frames are exchanged on its pipes, or a server over HTTP.
#[derive(Debug)]
enum Link {
    Process(Box<Process>),
    Http(Server),
}

/// A session with a process of its own, or over HTTP.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) plan: &'a Plan,
    pub(super) revision: Revision,
    link: Link,
    log: Log,
    /// All frames that were received.
    seen: Vec<Frame>,
    exchanges: Vec<Exchange>,
    /// Headers of later requests: those that the server has set, and those that the handshake requires.
    headers: Vec<(String, String)>,
    next_id: u64,
    warnings: Vec<String>,
}

impl<'a> Session<'a> {
    /// Starts the command, or checks that something listens at the URL. Sends no message.
    pub(super) async fn start(plan: &'a Plan, revision: Revision) -> Result<Self, Fault> {
        let link = match &plan.target {
            Target::Command(command) => Link::Process(Box::new(Process::start(command)?)),
            Target::Url(url) => {
                let server = Server::new(url)?;
                server.knock(Instant::now() + plan.timeout).await?;
                Link::Http(server)
            }
        };
        let log = Log::default();
        let (seen, exchanges, headers, warnings) = Default::default();
        Ok(Self { plan, revision, link, log, seen, exchanges, headers, next_id: 1, warnings })
    }

    /// Ends the session and the process. Returns the frames of both ends.
    pub(super) async fn finish(mut self) -> Log {
        if self.headers.iter().any(|(name, _)| name == SESSION_ID) && self.is_http() {
            let until = Instant::now() + GOODBYE;
            if let Ok(number) = self.http(Method::DELETE, &[], Bytes::new()) {
                while Instant::now() < until && !self.exchanges[number].has_ended && self.pump(until).await.is_ok() {}
            }
        }
        if let Link::Process(process) = self.link {
            process.finish().await;
        }
        self.log
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self.link, Link::Http(_))
    }

    pub(super) fn is_stateless(&self) -> bool {
        self.revision == Revision::Stateless
    }

    /// Adds a warning: something that the server should do and does not.
    pub(super) fn warn(&mut self, what: impl Into<String>) {
        self.warnings.push(what.into());
    }

    pub(super) fn warnings(&self) -> String {
        self.warnings.join("; ")
    }

    pub(super) fn note(&mut self, what: &str) {
        self.log.note(what);
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.plan.timeout
    }

    // ---- The handshake

    /// Makes the handshake, if the revision has one.
    pub(super) async fn open(&mut self) -> Result<(), Stop> {
        if self.is_stateless() {
            return Ok(());
        }
        self.handshake(self.revision.name()).await.map(drop)
    }

    /// Makes the handshake; in 2026-07-28, asks for the revisions of the server instead. Returns the name and the version of the server.
    pub(super) async fn meet(&mut self) -> Result<Option<String>, Stop> {
        let result = if self.is_stateless() {
            let id = self.request("server/discover", json!({})).await?;
            let result = self.result(&id).await?;
            let speaks = result["supportedVersions"].as_array().is_some_and(|all| all.contains(&json!(self.revision.name())));
            if !speaks {
                return not_run("the server does not speak the revision");
            }
            result
        } else {
            self.handshake(self.revision.name()).await?
        };
        let info = [&result["serverInfo"], &result["_meta"]["io.modelcontextprotocol/serverInfo"]];
        Ok(info.into_iter().find_map(|info| Some(format!("{} {}", info["name"].as_str()?, info["version"].as_str()?))))
    }

    /// Makes the handshake, and requests this version. Returns the result of `initialize`.
    pub(super) async fn handshake(&mut self, version: &str) -> Result<Value, Stop> {
        let id = self.request("initialize", initialize(version)).await?;
        let result = self.result(&id).await?;
        if self.is_http() {
            let exchange = self.exchanges.iter().find(|exchange| exchange.id.as_deref() == Some(&id));
            let session = exchange.and_then(|exchange| exchange.headers.get(SESSION_ID)?.to_str().ok().map(str::to_owned));
            let chosen = result["protocolVersion"].as_str().unwrap_or_default().to_owned();
            self.headers.push((VERSION.to_owned(), chosen));
            self.headers.extend(session.map(|session| (SESSION_ID.to_owned(), session)));
        }
        self.notify("notifications/initialized", Value::Null).await?;
        Ok(result)
    }

    /// The HTTP session id.
    pub(super) fn session_id(&self) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == SESSION_ID).map(|(_, id)| &**id)
    }

    pub(super) fn forget_session(&mut self) {
        self.headers.retain(|(name, _)| name != SESSION_ID);
    }

    // ---- Sending

    /// The text of a request with this id, or of a notification. `token` is the progress token. The id and the token are JSON.
    pub(super) fn frame(&self, id: Option<&str>, method: &str, params: Value, token: Option<&str>) -> String {
        let mut params = params;
        let mut meta = Map::new();
        if self.is_stateless() && id.is_some() && method != "initialize" {
            meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(self.revision.name()));
            meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), json!({}));
            meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), client());
        }
        if let Some(token) = token {
            meta.insert("progressToken".to_owned(), serde_json::from_str(token).unwrap_or_default());
        }
        if !meta.is_empty() {
            if params.is_null() {
                params = json!({});
            }
            if let Some(own) = params.as_object_mut() {
                own.entry("_meta").or_insert(Value::Object(meta));
            }
        }
        let id = id.map_or_else(String::new, |id| format!(r#""id":{id},"#));
        let params = if params.is_null() { String::new() } else { format!(r#","params":{params}"#) };
        format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}"{params}}}"#)
    }

    pub(super) fn new_id(&mut self) -> String {
        self.next_id += 1;
        self.next_id.to_string()
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<String, Stop> {
        let id = self.new_id();
        let frame = self.frame(Some(&id), method, params, None);
        self.send(&frame).await?;
        Ok(id)
    }

    /// Calls a tool. Returns the id of the call.
    pub(super) async fn call(&mut self, call: &Call, token: Option<&str>) -> Result<String, Stop> {
        let id = self.new_id();
        let frame = self.frame(Some(&id), "tools/call", json!({"name": call.name, "arguments": call.arguments}), token);
        self.send(&frame).await?;
        Ok(id)
    }

    /// Sends a notification. Over HTTP, also waits for the HTTP response.
    pub(super) async fn notify(&mut self, method: &str, params: Value) -> Result<(), Stop> {
        let frame = self.frame(None, method, params, None);
        self.send(&frame).await?;
        if self.is_http() {
            self.response_of(self.exchanges.len() - 1).await?;
        }
        Ok(())
    }

    /// Sends one frame: as a line, or over HTTP as the body of a POST with the headers that the revision requires.
    pub(super) async fn send(&mut self, frame: &str) -> Result<(), Stop> {
        self.send_bytes(frame.as_bytes()).await
    }

    pub(super) async fn send_bytes(&mut self, frame: &[u8]) -> Result<(), Stop> {
        if self.is_http() {
            self.post(frame, &[])?;
            return Ok(());
        }
        let mut line = frame.to_owned();
        line.push(b'\n');
        self.write(&line).await
    }

    /// Writes any bytes to the process.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.log.add(Direction::Sent, bytes);
        let Link::Process(process) = &mut self.link else { return not_run("there is no standard input") };
        let sent = process.send(bytes, self.plan.timeout).await;
        self.noted(sent)
    }

    /// Adds a fault in `sent` to the log, and returns `sent`.
    fn noted(&mut self, sent: Result<(), Fault>) -> Result<(), Stop> {
        if let Err(fault) = &sent {
            self.log.note(&fault.to_string());
        }
        Ok(sent?)
    }

    /// Writes bytes to the process without reading.
    pub(super) async fn write_unread(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.log.add(Direction::Sent, bytes);
        let Link::Process(process) = &mut self.link else { return not_run("there is no standard input") };
        let sent = process.send_unread(bytes, self.plan.timeout).await;
        self.noted(sent)
    }

    /// Sends a frame by POST, with the headers that the revision requires. `headers` are added, and replace those of the same name. Returns
    /// the number of the exchange.
    pub(super) fn post(&mut self, frame: &[u8], headers: &[(&str, &str)]) -> Result<usize, Stop> {
        let mut all = http::content_headers();
        let json = Json::parse(frame.to_vec()).ok();
        let text = |name: &str| Some(json.as_ref()?.member(name)?.as_text()?.as_str().to_owned());
        if self.is_stateless() {
            let params = json.as_ref().and_then(|json| json.member("params"));
            let meta = params.as_ref().and_then(|params| params.member("_meta"));
            let version = meta.and_then(|meta| meta.member("io.modelcontextprotocol/protocolVersion")?.as_text());
            let version = version.map_or_else(|| self.revision.name().to_owned(), |version| version.as_str().to_owned());
            all.push((VERSION.to_owned(), version));
            if let Some(method) = text("method") {
                let name = if method == "resources/read" { "uri" } else { "name" };
                let named = ["tools/call", "prompts/get", "resources/read"].contains(&&*method);
                let name = params.filter(|_| named).and_then(|params| params.member(name)?.as_text());
                all.push(("mcp-method".to_owned(), method));
                all.extend(name.map(|name| ("mcp-name".to_owned(), name.as_str().to_owned())));
            }
        } else {
            all.extend(self.headers.iter().cloned());
        }
        for (name, value) in headers {
            all.retain(|(known, _)| known != name);
            all.push(((*name).to_owned(), (*value).to_owned()));
            self.log.note(&format!("with {name}: {value}"));
        }
        let exchange = self.exchange(Method::POST, &all, Bytes::copy_from_slice(frame))?;
        let id = json.as_ref().filter(|json| json.member("method").is_some()).and_then(|json| json.member("id"));
        self.exchanges[exchange].id = id.map(|id| id.as_str().to_owned());
        Ok(exchange)
    }

    /// Sends an HTTP request with the headers of the session and `headers`. Returns the number of the exchange.
    pub(super) fn http(&mut self, method: Method, headers: &[(&str, &str)], body: Bytes) -> Result<usize, Stop> {
        let mut all = self.headers.clone();
        for (name, value) in headers {
            all.retain(|(known, _)| known != name);
            all.push(((*name).to_owned(), (*value).to_owned()));
            self.log.note(&format!("with {name}: {value}"));
        }
        self.exchange(method, &all, body)
    }

    /// Sends an HTTP request with only these headers. Returns the number of the exchange.
    fn exchange(&mut self, method: Method, headers: &[(String, String)], body: Bytes) -> Result<usize, Stop> {
        let until = self.deadline();
        let Link::Http(server) = &mut self.link else { return not_run("it is not over HTTP") };
        if method == Method::POST {
            self.log.add(Direction::Sent, &body);
        } else {
            self.log.note(&format!("{method} {}", server.path()));
        }
        let number = server.send(method, headers, body, until)?;
        self.exchanges.push(Exchange::default());
        Ok(number)
    }

    /// The server, if it is over HTTP.
    fn server(&self) -> Result<&Server, Stop> {
        let Link::Http(server) = &self.link else { return not_run("it is not over HTTP") };
        Ok(server)
    }

    /// Opens a connection, and writes nothing.
    pub(super) async fn silent_connection(&self) -> Result<tokio::net::TcpStream, Stop> {
        Ok(self.server()?.connect(self.deadline()).await?)
    }

    /// Opens a connection, and writes the first two lines of a POST and then `rest`.
    pub(super) async fn unfinished_post(&self, rest: &[u8]) -> Result<tokio::net::TcpStream, Stop> {
        use tokio::io::AsyncWriteExt;
        let mut socket = self.silent_connection().await?;
        let server = self.server()?;
        let begin = format!("POST {} HTTP/1.1\r\nhost: {}\r\n", server.path(), server.host());
        if socket.write_all(&[begin.as_bytes(), rest].concat()).await.is_err() {
            return Err(Fault::Died("a connection was closed".to_owned()).into());
        }
        Ok(socket)
    }

    /// Cancels a request with a notification; in 2026-07-28 over HTTP, by closing its connection.
    pub(super) async fn cancel(&mut self, id: &str) -> Result<(), Stop> {
        if self.is_http() && self.is_stateless() {
            self.close_exchange_of(id);
            return Ok(());
        }
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        self.notify("notifications/cancelled", json!({"requestId": id, "reason": "no longer wanted"})).await
    }

    /// Closes the connection that a request was sent on.
    pub(super) fn close_exchange_of(&mut self, id: &str) {
        let number = self.exchanges.iter().position(|exchange| exchange.id.as_deref() == Some(id));
        if let (Link::Http(server), Some(number)) = (&self.link, number) {
            server.close(number);
            self.log.note(&format!("closed the connection of the request {id}"));
        }
    }

    // ---- Receiving

    /// Receives one frame, or over HTTP the head or the end of a response. Replies to the frame if it is a request. Returns `false` if
    /// nothing comes before `until`.
    pub(super) async fn pump(&mut self, until: Instant) -> Result<bool, Fault> {
        // Checked here, since a server that writes without end always has another frame.
        if Instant::now() >= until {
            return Ok(false);
        }
        let (text, exchange, event) = match &mut self.link {
            Link::Process(process) => match process.next(until).await {
                Ok(None) => return Ok(false),
                Ok(Some(line)) => (line, None, None),
                Err(fault) => {
                    self.log.note(&fault.to_string());
                    return Err(fault);
                }
            },
            Link::Http(server) => {
                let Some((number, part)) = server.next(until).await else { return Ok(false) };
                let exchange = &mut self.exchanges[number];
                match part {
                    Part::Message(text, event) => (text, Some(number), event),
                    Part::Head(status, headers) => {
                        self.log.note(&format!("HTTP {status}"));
                        (exchange.status, exchange.headers) = (Some(status), headers);
                        return Ok(true);
                    }
                    Part::End => {
                        exchange.has_ended = true;
                        return Ok(true);
                    }
                    Part::Broken(fault) => {
                        self.log.note(&fault.to_string());
                        exchange.has_ended = true;
                        return Err(fault);
                    }
                }
            }
        };
        self.log.add(Direction::Received, &text);
        let frame = Frame::new(text, exchange, event);
        if self.seen.len() >= MAX_MESSAGES {
            return Err(Fault::Flooded(format!("it wrote more than {MAX_MESSAGES} messages")));
        }
        match &frame.json {
            Some(batch) if batch.is_array() => {
                let one = |json: Json| Frame::new(Bytes::copy_from_slice(json.as_bytes()), frame.exchange, frame.event.clone());
                self.seen.extend(batch.elements().map(one));
            }
            _ => {
                let asked = frame.method.clone().zip(frame.id.clone());
                self.seen.push(frame);
                if let Some((method, id)) = asked {
                    self.reply(&method, &id).await?;
                }
            }
        }
        Ok(true)
    }

    /// Answers a request of the server: a ping with a result, any other request with an error.
    async fn reply(&mut self, method: &str, id: &Json) -> Result<(), Fault> {
        let outcome = match method {
            "ping" => r#""result":{}"#,
            _ => r#""error":{"code":-32601,"message":"this client has no such method"}"#,
        };
        let reply = format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id.as_str());
        self.log.add(Direction::Sent, reply.as_bytes());
        let until = self.deadline();
        match &mut self.link {
            Link::Process(process) => process.send(format!("{reply}\n").as_bytes(), self.plan.timeout).await,
            Link::Http(server) => {
                let mut headers = http::content_headers();
                headers.extend(self.headers.iter().cloned());
                server.send(Method::POST, &headers, reply.into(), until)?;
                self.exchanges.push(Exchange::default());
                Ok(())
            }
        }
    }

    /// All frames that were received.
    pub(super) fn seen(&self) -> &[Frame] {
        &self.seen
    }

    /// Receives frames until `found`, which is given all frames that were received so far, returns a value. Returns `None` if `found` has
    /// returned none by `until`.
    pub(super) async fn until<T>(&mut self, until: Instant, found: impl Fn(&[Frame]) -> Option<T>) -> Result<Option<T>, Fault> {
        loop {
            if let Some(found) = found(&self.seen) {
                return Ok(Some(found));
            }
            if !self.pump(until).await? {
                return Ok(None);
            }
        }
    }

    /// Receives all frames that come within `span`.
    pub(super) async fn receive_for(&mut self, span: Duration) -> Result<(), Fault> {
        let until = Instant::now() + span;
        while self.pump(until).await? {}
        Ok(())
    }

    /// Receives all frames that come within [`QUIET`].
    pub(super) async fn quiet(&mut self) -> Result<(), Fault> {
        self.receive_for(QUIET).await
    }

    /// The response to a request, if it was received. Over HTTP, an error without an id counts as the response to the request of its
    /// exchange.
    pub(super) fn response(&self, id: &str) -> Option<Frame> {
        self.response_among(id, 0)
    }

    /// The response to a request, if it is among the frames after the first `first` ones.
    fn response_among(&self, id: &str, first: usize) -> Option<Frame> {
        let own = |frame: &&Frame| match frame.id() {
            Some(other) => is_same(other, id),
            None => {
                let exchange = frame.exchange.and_then(|number| self.exchanges.get(number));
                exchange.is_some_and(|exchange| exchange.id.as_deref() == Some(id))
            }
        };
        self.seen.iter().skip(first).filter(|frame| frame.is_response()).find(own).cloned()
    }

    /// Waits for the response to a request.
    pub(super) async fn answer(&mut self, id: &str) -> Result<Frame, Stop> {
        let until = self.deadline();
        self.answer_by(id, until).await
    }

    /// Waits for the response to a request, at most until `until`.
    pub(super) async fn answer_by(&mut self, id: &str, until: Instant) -> Result<Frame, Stop> {
        let begin = self.seen.len();
        let mut looked = 0;
        loop {
            if let Some(response) = self.response_among(id, looked) {
                return Ok(response);
            }
            looked = self.seen.len();
            let exchange = self.exchanges.iter().find(|exchange| exchange.id.as_deref() == Some(id));
            if let Some(Exchange { status: Some(status), has_ended: true, .. }) = exchange {
                return wrong(format!("the request {id} was answered with HTTP {status} and no response in it"));
            }
            if !self.pump(until).await? {
                let is_ours = |id: &str| id.parse::<u64>().is_ok_and(|id| id <= self.next_id);
                let stray = self.seen[begin..].iter().find(|frame| frame.is_response() && frame.id().is_none_or(|id| !is_ours(id)));
                return match stray {
                    Some(stray) => wrong(format!("no response has the id {id}; there is {}", stray.short())),
                    None => Err(Fault::Silent(format!("the request {id} was not answered")).into()),
                };
            }
        }
    }

    /// Waits for the result of a request.
    pub(super) async fn result(&mut self, id: &str) -> Result<Value, Stop> {
        let response = self.answer(id).await?;
        match response.value() {
            Value::Object(mut members) if members.contains_key("result") => Ok(members.remove("result").unwrap_or_default()),
            _ => wrong(format!("the request {id} was answered with {}", response.short())),
        }
    }

    /// The method of a simple request: a ping, or in 2026-07-28, which has no ping, a request for the list of tools.
    pub(super) fn simple_method(&self) -> &'static str {
        if self.is_stateless() { "tools/list" } else { "ping" }
    }

    /// Sends a simple request, and fails unless the server answers it with a result.
    pub(super) async fn expect_answer(&mut self) -> Result<(), Stop> {
        let id = self.request(self.simple_method(), json!({})).await?;
        self.result(&id).await.map(drop)
    }

    /// Waits for the HTTP response of an exchange; if it is an event stream, only for its head. Returns the response with its messages so
    /// far.
    pub(super) async fn response_of(&mut self, number: usize) -> Result<HttpResponse, Stop> {
        let until = self.deadline();
        loop {
            let exchange = &self.exchanges[number];
            let is_stream =
                exchange.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
            if let Some(status) = exchange.status
                && (exchange.has_ended || is_stream)
            {
                let messages = self.seen.iter().filter(|frame| frame.exchange == Some(number)).cloned().collect();
                return Ok(HttpResponse { status, is_stream, messages });
            }
            if !self.pump(until).await? {
                return Err(Fault::Silent("a request of HTTP was not answered".to_owned()).into());
            }
        }
    }

    /// The times and the values of the progress that was reported with a token, which is JSON.
    pub(super) fn progress(&self, token: &str) -> Vec<(Instant, f64)> {
        let reports = self.seen.iter().filter(|frame| frame.is_progress());
        let with_token = reports.map(|frame| (frame.at, frame.value()["params"].clone()));
        let token = serde_json::from_str::<Value>(token).unwrap_or_default();
        let own = with_token.filter(|(_, params)| params["progressToken"] == token);
        own.map(|(at, params)| (at, params["progress"].as_f64().unwrap_or(f64::NAN))).collect()
    }

    /// Starts the slow call, and waits until it has reported progress twice. Returns its id.
    pub(super) async fn slow_with_progress(&mut self, token: &str) -> Result<String, Stop> {
        let call = self.slow()?;
        let id = self.call(&call, Some(token)).await?;
        let until = self.deadline();
        while self.progress(token).len() < 2 && self.response(&id).is_none() && self.pump(until).await? {}
        if self.progress(token).len() < 2 {
            return not_run(format!("{} does not report progress twice", call.name));
        }
        self.still_running(&id)?;
        Ok(id)
    }

    /// Starts the slow call, and waits for [`QUIET`], so that it runs. Returns its id.
    pub(super) async fn slow_running(&mut self) -> Result<String, Stop> {
        let call = self.slow()?;
        let id = self.call(&call, None).await?;
        self.quiet().await?;
        self.still_running(&id)?;
        Ok(id)
    }

    pub(super) fn still_running(&self, id: &str) -> Result<(), Stop> {
        match self.response(id) {
            Some(response) => not_run(format!("the slow call has ended already: {}", response.short())),
            None => Ok(()),
        }
    }

    pub(super) fn slow(&self) -> Result<Call, Stop> {
        self.plan.slow.clone().ok_or_else(|| Stop::NotRun("no slow tool".to_owned()))
    }

    pub(super) fn quick(&self) -> Result<Call, Stop> {
        self.plan.quick.clone().ok_or_else(|| Stop::NotRun("no quick tool".to_owned()))
    }

    // ---- The process

    pub(super) fn close_stdin(&mut self) {
        self.log.note("closed standard input");
        if let Link::Process(process) = &mut self.link {
            process.close_stdin();
        }
    }

    pub(super) fn close_stdout(&mut self) {
        self.log.note("closed standard output");
        if let Link::Process(process) = &mut self.link {
            process.close_stdout();
        }
    }

    pub(super) fn terminate(&mut self) {
        self.log.note("sent SIGTERM");
        if let Link::Process(process) = &self.link {
            process.terminate();
        }
    }

    /// Reads until the process has exited. Returns `None` if it still runs after `within`.
    pub(super) async fn exit(&mut self, within: Duration) -> Result<Option<ExitStatus>, Fault> {
        let until = Instant::now() + within;
        while matches!(&self.link, Link::Process(process) if process.has_output()) {
            match self.pump(until).await {
                Ok(true) => {}
                Ok(false) | Err(Fault::Died(_)) => break,
                Err(fault) => return Err(fault),
            }
        }
        let Link::Process(process) = &mut self.link else { return Ok(None) };
        let status = process.exit(until).await;
        if let Some(status) = status {
            self.log.note(&format!("the process has exited ({status})"));
        }
        Ok(status)
    }

    /// The bytes after the last complete line.
    pub(super) fn rest(&self) -> &[u8] {
        match &self.link {
            Link::Process(process) => process.rest(),
            Link::Http(_) => &[],
        }
    }
}

/// An HTTP response, with the messages that have come so far.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) is_stream: bool,
    pub(super) messages: Vec<Frame>,
}

const SESSION_ID: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

fn client() -> Value {
    json!({"name": "conformance-check", "version": env!("CARGO_PKG_VERSION")})
}

/// The parameters of `initialize`.
pub(super) fn initialize(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client()})
}

/// Returns `true` if two ids have the same text, or are strings with the same value.
fn is_same(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let is_text = |text: &str| text.starts_with('"');
    one == other || (is_text(one) && is_text(other) && value(one).is_some() && value(one) == value(other))
}
