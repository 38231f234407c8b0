//! The programs `gateway` and `tools --tesseron` as child processes, a home directory that they share, and an MCP client of the gateway.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::program;

use tests::scratch::Scratch;
use tests::until::{PATIENCE, until};

/// Makes the commands that start the programs of the runtime of these tests.
pub(crate) struct Programs;

impl Programs {
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        for variable in ["TESSERON_TOOL_SURFACE", "TESSERON_RESUME_TTL_MS"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a program to its end, with an empty stdin.
    pub(crate) fn run(&self, name: &str, flags: &[&str]) -> Ended {
        let mut command = self.command(name);
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut program = Program::start(command);
        let out = Lines::of(program.child.stdout.take().expect("a pipe"));
        let status = program.wait().code();
        Ended { status, out: out.all(), err: program.err.all() }
    }
}

/// A running program, which is killed at the end of its test.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) err: Lines,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a program that starts");
        let err = Lines::of(child.stderr.take().expect("a pipe"));
        Self { child, err }
    }

    /// Starts a program whose stderr has no reader, so that each write to it fails.
    pub(crate) fn with_unread_stderr(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a program that starts");
        drop(child.stderr.take());
        Self { child, err: Lines::of(io::empty()) }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Waits for the end of the program, which is noticed by the end of its stderr. If stderr has no reader, the caller must have waited
    /// for another stream to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        assert!(self.err.ends_within(PATIENCE), "it hangs: {}", self.err.seen());
        self.child.wait().expect("a child")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Checks that there is just one line on stderr, with these words in it, and nothing on stdout.
    pub(crate) fn complained(&self, status: i32, words: &str) {
        assert_eq!((self.status, self.out.as_str(), self.err.lines().count()), (Some(status), "", 1), "{self:?}");
        assert!(self.err.contains(words), "{words:?} in {self:?}");
    }
}

/// An output stream of a program, line by line.
pub(crate) struct Lines {
    coming: Receiver<String>,
    seen: RefCell<Vec<String>>,
}

impl Lines {
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, coming) = channel();
        thread::spawn(move || {
            let _ = BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        Self { coming, seen: RefCell::default() }
    }

    /// Waits for the line with this number, counted from 0, of those that contain `what`.
    pub(crate) fn nth(&self, what: &str, number: usize) -> String {
        let mut seen = self.seen.borrow_mut();
        loop {
            if let Some(line) = seen.iter().filter(|line| line.contains(what)).nth(number) {
                return line.clone();
            }
            match self.coming.recv_timeout(PATIENCE) {
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with {what:?}: {seen:?}"),
            }
        }
    }

    /// Waits for the end of the stream. Returns `false` if it has not ended within `span`.
    pub(crate) fn ends_within(&self, span: Duration) -> bool {
        let (mut seen, end) = (self.seen.borrow_mut(), Instant::now() + span);
        loop {
            match self.coming.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => seen.push(line),
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        }
    }

    /// The text so far.
    pub(crate) fn seen(&self) -> String {
        self.seen.borrow_mut().extend(self.coming.try_iter());
        self.seen.borrow().join("\n")
    }

    /// The whole text of a program that has ended.
    pub(crate) fn all(&self) -> String {
        self.seen.borrow_mut().extend(self.coming.iter());
        self.seen.borrow().join("\n")
    }
}

/// A home directory for one test, which is removed at the end of the test.
pub(crate) struct Home(pub(crate) Scratch);

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self(Scratch::new("home"));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(home.instances());
        made.expect("a folder");
        home
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    pub(crate) fn instances(&self) -> PathBuf {
        self.0.join(".tesseron/instances")
    }

    /// The names of all files in the folder of the manifests.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.instances()).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// All manifests, without unfinished files.
    pub(crate) fn manifests(&self) -> Vec<Value> {
        let names = self.names().into_iter().filter(|name| name.ends_with(".json"));
        let read = names.map(|name| fs::read(self.instances().join(name)).expect("a manifest"));
        read.map(|written| serde_json::from_slice(&written).expect("JSON")).collect()
    }

    /// The manifest of the only app.
    pub(crate) fn manifest(&self) -> Value {
        let [manifest] = <[_; 1]>::try_from(self.manifests()).expect("one manifest");
        manifest
    }

    /// Waits until the only app is not claimed, and returns its claim code.
    pub(crate) fn next_code(&self) -> String {
        until("there is a new code", || {
            let claim = self.manifests().pop()?["hostMintedClaim"].clone();
            claim["boundAgent"].is_null().then(|| claim["code"].as_str().expect("a code").to_owned())
        })
    }

    /// Writes a manifest, and returns its path.
    pub(crate) fn put(&self, id: &str, manifest: &str) -> PathBuf {
        let path = self.instances().join(format!("{id}.json"));
        fs::write(&path, manifest).expect("a file");
        path
    }
}

/// `tools --tesseron`.
pub(crate) struct App(pub(crate) Program);

impl App {
    pub(crate) fn start<A: AsRef<OsStr>>(programs: &Programs, home: &Home, flags: impl IntoIterator<Item = A>) -> Self {
        let mut command = programs.command("tools");
        command.args(["--tesseron", "--home", home.path()]).args(flags).stdin(Stdio::null()).stdout(Stdio::null());
        let app = Self(Program::start(command));
        app.0.err.nth("listening on", 0);
        app
    }

    /// The claim code with this number, counted from 0, of those that the app has printed.
    pub(crate) fn code(&self, number: usize) -> String {
        let line = self.0.err.nth("claim code", number);
        line.rsplit(' ').next().expect("a code").to_owned()
    }
}

/// An MCP client, and the gateway that it has started.
pub(crate) struct Agent {
    pub(crate) gateway: Program,
    pub(crate) input: Option<ChildStdin>,
    coming: Receiver<(Instant, Value)>,
    /// The messages of the gateway, in order.
    pub(crate) received: Vec<(Instant, Value)>,
    next: u64,
}

/// A position in the messages that an agent has received.
#[derive(Clone, Copy)]
pub(crate) struct Mark(pub(crate) usize);

impl Agent {
    /// Starts an agent that supports every input request.
    pub(crate) fn start(programs: &Programs, home: &Home, flags: &[&str]) -> Self {
        Self::with(programs, home, flags, &json!({ "sampling": {}, "elicitation": {} }))
    }

    pub(crate) fn with(programs: &Programs, home: &Home, flags: &[&str], capabilities: &Value) -> Self {
        let mut command = programs.command("gateway");
        command.args(["--home", home.path()]).args(flags);
        Self::of(command, capabilities)
    }

    /// Starts a gateway with `command`, and makes the handshake as its client.
    pub(crate) fn of(mut command: Command, capabilities: &Value) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::on(Program::start(command), capabilities)
    }

    /// Makes the handshake as the client of a running gateway.
    pub(crate) fn on(mut gateway: Program, capabilities: &Value) -> Self {
        let input = gateway.child.stdin.take();
        let out = gateway.child.stdout.take().expect("a pipe");
        let (sender, coming) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            let parsed = lines.map(|line| serde_json::from_str(&line).unwrap_or_else(|_| json!({ "not JSON": line })));
            let _ = parsed.map(|message| (Instant::now(), message)).into_iter().try_for_each(|message| sender.send(message));
        });
        let mut agent = Self { gateway, input, coming, received: Vec::new(), next: 1 };
        agent.greet(capabilities);
        agent
    }

    /// Makes the handshake.
    pub(crate) fn greet(&mut self, capabilities: &Value) {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "agent", "version": "1" },
        });
        let response = self.ask("initialize", &params);
        assert_eq!(response["result"]["serverInfo"]["name"], "tesseron", "{response}");
        self.send_message(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    pub(crate) fn send_message(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("a gateway that listens");
        writeln!(input, "{message}").expect("a gateway that reads");
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send_message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool. The progress token is the request id.
    pub(crate) fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        let token = self.next;
        self.send("tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": token } }))
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.send_call(tool, arguments);
        self.result(id)
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        self.send_message(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    }

    /// The current position.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.received.len())
    }

    /// Waits for a message for which `fits` is true, at the position `from` or later. Returns the first one, with its position.
    pub(crate) fn wait(&mut self, Mark(from): Mark, what: &str, fits: impl Fn(&Value) -> bool) -> (usize, Value) {
        let mut at = from;
        loop {
            while let Some((_, message)) = self.received.get(at) {
                assert!(message.get("not JSON").is_none(), "stdout carries only JSON: {message}");
                if fits(message) {
                    return (at, message.clone());
                }
                at += 1;
            }
            match self.coming.recv_timeout(PATIENCE) {
                Ok(message) => self.received.push(message),
                Err(_) => panic!("{what} did not come; {:?}; stderr: {}", self.received, self.gateway.err.seen()),
            }
        }
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.wait(Mark(0), &format!("the answer to {id}"), |message| message["id"] == id && message.get("method").is_none()).1
    }

    /// The result of a call, which may be that of a failed tool.
    pub(crate) fn result(&mut self, id: u64) -> Value {
        let answer = self.answer(id);
        assert!(answer["result"]["content"].is_array(), "{answer}");
        answer["result"].clone()
    }

    /// Waits for a request or a notification of the gateway.
    pub(crate) fn message(&mut self, from: Mark, method: &str) -> Value {
        self.wait(from, method, |message| message["method"] == method).1
    }

    pub(crate) fn reply(&mut self, asked: &Value, result: &Value) {
        self.send_message(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }));
    }

    /// The updates of a call so far, with their times.
    pub(crate) fn updates(&self, id: u64) -> Vec<(Instant, Value)> {
        let ours = |message: &Value| message["method"] == "notifications/progress" && message["params"]["progressToken"] == id;
        self.received.iter().filter(|(_, message)| ours(message)).map(|(at, message)| (*at, message["params"].clone())).collect()
    }

    /// Waits until a call has reported `count` updates.
    pub(crate) fn until_updates(&mut self, id: u64, count: usize) {
        let mut from = Mark(0);
        for _ in 0..count {
            let ours = |message: &Value| message["method"] == "notifications/progress" && message["params"]["progressToken"] == id;
            from = Mark(self.wait(from, "an update", ours).0 + 1);
        }
    }

    pub(crate) fn claim(&mut self, code: &str) -> Value {
        self.call("tesseron__claim_session", &json!({ "code": code }))
    }

    /// Claims an app, which must succeed. Returns the text of the result.
    pub(crate) fn claimed(&mut self, code: &str) -> String {
        let result = self.claim(code);
        assert!(!is_error(&result), "{result}");
        text(&result)
    }

    /// The text of the list of pending claims.
    pub(crate) fn pending(&mut self) -> String {
        text(&self.call("tesseron__list_pending_claims", &json!({})))
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().expect("a list").clone();
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Waits until a tool is listed or, if `listed` is `false`, until it is not listed. The tools are listed again after each notification
    /// of a change.
    pub(crate) fn until_listed(&mut self, mut from: Mark, tool: &str, listed: bool) {
        while self.tools().iter().any(|name| name == tool) != listed {
            let changed = |message: &Value| message["method"] == "notifications/tools/list_changed";
            from = Mark(self.wait(from, "notifications/tools/list_changed", changed).0 + 1);
        }
    }

    /// Waits for the end of the gateway. Returns `false` if it has not ended within `span`.
    pub(crate) fn ends_within(&mut self, span: Duration) -> bool {
        let end = Instant::now() + span;
        loop {
            match self.coming.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) => self.received.push(message),
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        }
    }

    /// Closes the input of the gateway. Returns its exit status and its remaining output.
    pub(crate) fn leave(mut self) -> Ended {
        drop(self.input.take());
        let before = self.received.len();
        assert!(self.ends_within(PATIENCE), "it hangs: {}", self.gateway.err.seen());
        let status = self.gateway.wait().code();
        let out = self.received[before..].iter().map(|(_, message)| message.to_string()).collect::<Vec<_>>().join("\n");
        Ended { status, out, err: self.gateway.err.all() }
    }
}

pub(crate) fn is_error(result: &Value) -> bool {
    result["isError"] == true
}

/// The blocks of text of a result, one after the other.
pub(crate) fn text(result: &Value) -> String {
    blocks(result).join("\n")
}

pub(crate) fn blocks(result: &Value) -> Vec<String> {
    let content = result["content"].as_array().expect("blocks");
    content.iter().map(|block| block["text"].as_str().expect("text").to_owned()).collect()
}

/// The JSON value in the text of a result.
pub(crate) fn value(result: &Value) -> Value {
    assert!(!is_error(result), "{result}");
    serde_json::from_str(&text(result)).expect("JSON")
}

/// Waits until an audit file has at least `lines` lines, and returns all of them.
pub(crate) fn audit(path: &Path, lines: usize) -> Vec<Value> {
    until(&format!("{lines} lines in {}", path.display()), || {
        let written = fs::read_to_string(path).unwrap_or_default();
        let whole: Vec<_> = written.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
        (whole.len() >= lines).then(|| whole.into_iter().map(|line| serde_json::from_str(line).expect("a line")).collect())
    })
}

/// A relay of bytes between a gateway and an app, which can be cut.
pub(crate) struct Relay {
    pub(crate) address: String,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// A relay to an app, by the address in its manifest.
    pub(crate) fn to(url: &str) -> Self {
        let target = url.trim_start_matches("ws://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&streams);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&target) else { continue };
                let both = || Some((near.try_clone().ok()?, far.try_clone().ok()?));
                for (mut from, mut to) in [both(), both().map(|(near, far)| (far, near))].into_iter().flatten() {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                known.lock().unwrap_or_else(PoisonError::into_inner).extend([near, far]);
            }
        });
        Self { address, streams }
    }

    /// Cuts every connection. New ones can be made.
    pub(crate) fn cut(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The processor time of a process, in ticks of 10 ms. `None` if the system does not provide it.
pub(crate) fn processor_time(program: &Program) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.child.id())).ok()?;
    // The name in brackets may contain any character. Of the fields after it, counted from 0, 11 is the time in user mode, and 12 that in
    // system mode.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}
