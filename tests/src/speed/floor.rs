//! The floor: the same messages without an SDK.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use endpoint::Runtime;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::contender::{About, Caller, Contender, HandlerCount, Kind, Leave, Listener, Updates};
use super::payload::LongText;
use super::row::{Carried, EchoTool, Row};
use programs::adapter::Adapter;

/// The contender that sends the same messages without an SDK, so that it has only the cost of the bytes, the JSON and the runtime.
///
/// A loop reads the available bytes, parses each line as an envelope whose members are borrowed from the buffer, and writes all results at
/// once; ids are correlated through a map of one-shot channels. There is no handshake, and there are no limits, deadlines or rules.
#[derive(Debug)]
pub struct Floor<P>(PhantomData<fn() -> P>);

/// A stream of bytes of a runtime, without framing.
pub trait Pipe: Send + 'static {
    /// Reads available bytes; 0 at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes as many bytes as the stream accepts.
    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>>;

    /// Flushes all written bytes.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// The pipes of a runtime.
pub trait Pipes: 'static {
    /// The runtime.
    type Runtime: Adapter;

    /// A pair in memory that holds `bytes` bytes each way.
    fn pipes(bytes: usize) -> (Box<dyn Pipe>, Box<dyn Pipe>);

    /// Standard input and output of this process.
    fn own_pipes() -> Box<dyn Pipe>;

    /// The standard input and output of a child process.
    ///
    /// # Errors
    /// If the process cannot be started.
    fn child_pipes(command: Command) -> io::Result<Box<dyn Pipe>>;
}

impl<P: Pipes> Contender for Floor<P> {
    type Runtime = P::Runtime;
    type Caller = Calling;

    fn about() -> About {
        let runtime = <P::Runtime as Adapter>::NAME.trim_start_matches("adapter-");
        About::here(&format!("floor on {runtime}"), runtime, Kind::Floor)
    }

    fn has(row: Row) -> bool {
        row.is_measured_here()
    }

    async fn duplex(adapter: &P::Runtime, room: usize) -> Calling {
        let (one, other) = P::pipes(room);
        adapter.runtime().spawn(Box::pin(Loop::new(other, Server::new(adapter)).run()));
        Calling::over(adapter, one)
    }

    async fn child(adapter: &P::Runtime, command: Command) -> Calling {
        Calling::over(adapter, P::child_pipes(command).expect("a child"))
    }

    async fn serve(adapter: &P::Runtime) {
        Loop::new(P::own_pipes(), Server::new(adapter)).run().await;
    }
}

/// An end that reads lines and writes output.
trait End {
    /// Handles one line, and adds its results to the output.
    fn take(&mut self, line: &[u8], output: &mut Vec<u8>);

    /// Adds the queued messages of other tasks to the output, and keeps `waker`, to be woken for the next ones.
    fn gather(&mut self, output: &mut Vec<u8>, waker: &Waker);
}

/// Queued messages of other tasks than the loop.
#[derive(Default)]
struct Outbox {
    output: Vec<u8>,
    /// The waker of the loop, which writes the output.
    writer: Option<Waker>,
}

impl Outbox {
    /// Moves the queued messages to `output`, and keeps `waker`, to be woken for the next ones.
    fn gather(&mut self, output: &mut Vec<u8>, waker: &Waker) {
        if output.is_empty() {
            std::mem::swap(output, &mut self.output);
        } else {
            output.append(&mut self.output);
        }
        if !self.writer.as_ref().is_some_and(|writer| writer.will_wake(waker)) {
            self.writer = Some(waker.clone());
        }
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loop of one end, which reads and writes its pipe.
struct Loop<E> {
    pipe: Box<dyn Pipe>,
    end: E,
    /// The buffer of bytes to be read. It grows if a line does not fit.
    read: Vec<u8>,
    /// The number of bytes in `read` that were read and not yet handled.
    filled: usize,
    /// The number of bytes of the last, partial line that were searched for a line feed.
    searched: usize,
    output: Vec<u8>,
    written: usize,
    unflushed: bool,
}

impl<E: End> Loop<E> {
    fn new(pipe: Box<dyn Pipe>, end: E) -> Self {
        Self { pipe, end, read: vec![0; 64 * 1024], filled: 0, searched: 0, output: Vec::new(), written: 0, unflushed: false }
    }

    /// Runs until the end of the input.
    async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut moved = false;
            match self.pipe.poll_read(cx, &mut self.read[self.filled..]) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(count)) => {
                    self.filled += count;
                    self.take_lines();
                    moved = true;
                }
                Poll::Pending => {}
            }
            self.end.gather(&mut self.output, cx.waker());
            while self.written < self.output.len() {
                match self.pipe.poll_write(cx, &self.output[self.written..]) {
                    Poll::Ready(Ok(count)) => self.written += count,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
                (moved, self.unflushed) = (true, true);
            }
            if self.written == self.output.len() {
                self.output.clear();
                self.written = 0;
                if self.unflushed && self.pipe.poll_flush(cx).is_ready() {
                    self.unflushed = false;
                }
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn take_lines(&mut self) {
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.read[from + self.searched..self.filled]) {
            let to = from + self.searched + length;
            self.end.take(&self.read[from..to], &mut self.output);
            (from, self.searched) = (to + 1, 0);
        }
        if from > 0 {
            self.read.copy_within(from..self.filled, 0);
            self.filled -= from;
        }
        self.searched = self.filled;
        if self.filled == self.read.len() {
            self.read.resize(2 * self.filled, 0);
        }
    }
}

/// Any message, with members that are slices of the buffer.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Request<T> {
    jsonrpc: &'static str,
    id: u64,
    method: &'static str,
    params: T,
}

#[derive(Serialize)]
struct Notification<T> {
    jsonrpc: &'static str,
    method: &'static str,
    params: T,
}

#[derive(Serialize)]
struct Response<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: T,
}

#[derive(Deserialize, Serialize)]
struct ToolCall<'a, T, K> {
    name: &'a str,
    arguments: T,
    #[serde(rename = "_meta")]
    meta: Meta<K>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<K> {
    progress_token: K,
}

#[derive(Deserialize, Serialize)]
struct Echo<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize, Serialize)]
struct Place<'a> {
    line: u32,
    #[serde(borrow)]
    note: Echo<'a>,
}

#[derive(Deserialize, Serialize)]
struct Nested<'a> {
    #[serde(borrow)]
    at: Place<'a>,
}

#[derive(Deserialize, Serialize)]
struct Report {
    count: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress<K, N> {
    progress_token: K,
    progress: N,
    total: Option<N>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<K> {
    request_id: K,
}

#[derive(Deserialize, Serialize)]
struct ToolResult<T> {
    content: T,
}

#[derive(Deserialize, Serialize)]
struct Text<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

const VERSION: &str = "2.0";
const CALL: &str = "tools/call";
const PROGRESS: &str = "notifications/progress";
const CANCELLED: &str = "notifications/cancelled";

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> T {
    serde_json::from_str(params.map_or("null", RawValue::get)).expect("the right shape")
}

fn write(output: &mut Vec<u8>, message: &impl Serialize) {
    serde_json::to_writer(&mut *output, message).expect("JSON");
    output.push(b'\n');
}

fn write_text(output: &mut Vec<u8>, id: &RawValue, text: &str) {
    let content = [Text { r#type: "text", text: text.into() }];
    write(output, &Response { jsonrpc: VERSION, id, result: ToolResult { content } });
}

/// The end that serves. It answers in place, unless the handler is to be a task of its own.
struct Server {
    /// The handlers that never return, by the id of their request.
    hanging: HashMap<String, HandlerCount>,
    runtime: Arc<dyn Runtime>,
    /// The responses of tasks.
    outbox: Arc<Mutex<Outbox>>,
}

impl Server {
    fn new<A: Adapter>(adapter: &A) -> Self {
        Self { hanging: HashMap::new(), runtime: adapter.runtime(), outbox: Arc::default() }
    }

    /// Starts a handler as a task, which returns `text`.
    fn spawn(&self, id: &RawValue, text: String) {
        let (id, outbox) = (id.to_owned(), Arc::clone(&self.outbox));
        self.runtime.spawn(Box::pin(async move {
            let writer = {
                let mut outbox = locked(&outbox);
                write_text(&mut outbox.output, &id, &text);
                outbox.writer.take()
            };
            writer.into_iter().for_each(Waker::wake);
        }));
    }
}

impl End for Server {
    fn take(&mut self, line: &[u8], output: &mut Vec<u8>) {
        let Envelope { id, method, params, .. } = serde_json::from_slice(line).expect("a message");
        match (id, method) {
            (Some(id), Some(CALL)) => {
                let call: ToolCall<'_, &RawValue, &RawValue> = read(params);
                match call.name {
                    "echo" => {
                        let Echo { text } = read(Some(call.arguments));
                        write_text(output, id, &text);
                    }
                    "echo-in-a-task" => {
                        let Echo { text } = read(Some(call.arguments));
                        self.spawn(id, text.into_owned());
                    }
                    "echo-nested" => {
                        let Nested { at } = read(Some(call.arguments));
                        self.spawn(id, at.note.text.into_owned());
                    }
                    "text" => {
                        let wanted: LongText = read(Some(call.arguments));
                        // Makes a string, as the tools of the other contenders do.
                        let text = String::from(wanted.text());
                        write_text(output, id, &text);
                    }
                    "take" => {
                        let Echo { text } = read(Some(call.arguments));
                        write_text(output, id, &text.into_owned().len().to_string());
                    }
                    "report" => {
                        let Report { count } = read(Some(call.arguments));
                        for step in 1..=count {
                            let params = Progress { progress_token: call.meta.progress_token, progress: step, total: Some(count) };
                            write(output, &Notification { jsonrpc: VERSION, method: PROGRESS, params });
                        }
                        write(output, &Response { jsonrpc: VERSION, id, result: ToolResult { content: [(); 0] } });
                    }
                    _ => drop(self.hanging.insert(id.get().into(), HandlerCount::begin())),
                }
            }
            (None, Some(CANCELLED)) => {
                let Cancelled { request_id } = read::<Cancelled<&RawValue>>(params);
                self.hanging.remove(request_id.get());
            }
            _ => {}
        }
    }

    fn gather(&mut self, output: &mut Vec<u8>, waker: &Waker) {
        locked(&self.outbox).gather(output, waker);
    }
}

/// The calling end.
#[derive(Clone, Default)]
pub struct Calling(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    last: u64,
    /// The calls that wait for a response, by id, which is also the progress token.
    waiting: HashMap<u64, Waiting>,
    outbox: Outbox,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    /// `true` if the caller reads the text of the result.
    is_read: bool,
    updates: Option<mpsc::UnboundedSender<f64>>,
}

/// A result.
enum Answer {
    /// The number of bytes of a result that the caller does not read.
    Unread(usize),
    /// The text of a result.
    Text(String),
}

impl Answer {
    fn len(&self) -> usize {
        match self {
            Self::Unread(bytes) => *bytes,
            Self::Text(text) => text.len(),
        }
    }
}

impl Calling {
    fn over<A: Adapter>(adapter: &A, pipe: Box<dyn Pipe>) -> Self {
        let calling = Self::default();
        adapter.runtime().spawn(Box::pin(Loop::new(pipe, calling.clone()).run()));
        calling
    }

    /// Queues messages, and wakes the writer if it waits.
    fn say<T>(&self, say: impl FnOnce(&mut State) -> T) -> T {
        let (value, writer) = {
            let mut state = locked(&self.0);
            (say(&mut state), state.outbox.writer.take())
        };
        writer.into_iter().for_each(Waker::wake);
        value
    }

    fn call(
        &self,
        name: &str,
        arguments: impl Serialize,
        is_read: bool,
        updates: Option<mpsc::UnboundedSender<f64>>,
    ) -> PendingCall {
        let (answer, answered) = oneshot::channel();
        let id = self.say(|state| {
            state.last += 1;
            let id = state.last;
            state.waiting.insert(id, Waiting { answer, is_read, updates });
            let params = ToolCall { name, arguments, meta: Meta { progress_token: id } };
            write(&mut state.outbox.output, &Request { jsonrpc: VERSION, id, method: CALL, params });
            id
        });
        PendingCall { calling: self.clone(), id, answered }
    }
}

impl End for Calling {
    fn take(&mut self, line: &[u8], _: &mut Vec<u8>) {
        let Envelope { id, method, params, result } = serde_json::from_slice(line).expect("a message");
        match (id, method) {
            (Some(id), None) => {
                let waiting = id.get().parse().ok().and_then(|id: u64| locked(&self.0).waiting.remove(&id));
                if let (Some(waiting), Some(result)) = (waiting, result) {
                    let answer = if waiting.is_read {
                        let ToolResult { content: [Text { text, .. }] } = read(Some(result));
                        Answer::Text(text.into_owned())
                    } else {
                        Answer::Unread(result.get().len())
                    };
                    let _ = waiting.answer.send(answer);
                }
            }
            (None, Some(PROGRESS)) => {
                let Progress { progress_token, progress, .. } = read::<Progress<u64, f64>>(params);
                if let Some(updates) = locked(&self.0).waiting.get(&progress_token).and_then(|waiting| waiting.updates.as_ref()) {
                    let _ = updates.send(progress);
                }
            }
            _ => {}
        }
    }

    fn gather(&mut self, output: &mut Vec<u8>, waker: &Waker) {
        locked(&self.0).outbox.gather(output, waker);
    }
}

/// A call. Dropping this cancels the call, unless its answer was received.
pub struct PendingCall {
    calling: Calling,
    id: u64,
    answered: oneshot::Receiver<Answer>,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.answered.is_terminated() {
            return;
        }
        self.calling.say(|state| {
            state.waiting.remove(&self.id);
            let params = Cancelled { request_id: self.id };
            write(&mut state.outbox.output, &Notification { jsonrpc: VERSION, method: CANCELLED, params });
        });
    }
}

impl PendingCall {
    async fn answer(&mut self) -> Answer {
        (&mut self.answered).await.expect("an answer")
    }
}

impl Caller for Calling {
    type Hanging = PendingCall;

    async fn echo(&self, text: &str, tool: EchoTool) -> usize {
        let echo = Echo { text: text.into() };
        let mut call = match tool {
            EchoTool::Inline | EchoTool::Task => self.call(tool.name(), echo, true, None),
            EchoTool::Nested => self.call(tool.name(), Nested { at: Place { line: 7, note: echo } }, true, None),
        };
        call.answer().await.len()
    }

    async fn carry(&self, carried: Carried, bytes: usize) -> usize {
        let wanted = LongText { lines: carried.has_lines(), bytes };
        let is_read = carried != Carried::Result;
        let mut call = match carried {
            Carried::Result | Carried::ResultRead | Carried::LinesRead => self.call("text", wanted, is_read, None),
            Carried::Arguments | Carried::LinesTaken => self.call("take", Echo { text: wanted.text().into() }, is_read, None),
        };
        match (carried, call.answer().await) {
            (Carried::Arguments | Carried::LinesTaken, Answer::Text(text)) => text.parse().expect("a number"),
            (_, answer) => answer.len(),
        }
    }

    async fn report(&self, count: u64) -> Updates {
        let mut listener = Listener::of(count);
        let (sender, mut updates) = mpsc::unbounded_channel();
        let mut call = self.call("report", Report { count }, false, Some(sender));
        while let Some(update) = updates.recv().await {
            listener.hear(update);
        }
        call.answer().await;
        listener.updates()
    }

    async fn hang(&self, _: Leave) -> PendingCall {
        self.call("hang", serde_json::Map::new(), false, None)
    }

    async fn cancel(calls: Vec<PendingCall>) {
        drop(calls);
    }
}
