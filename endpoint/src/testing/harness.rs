//! The harness: one call of a service, from its request to the end of its handler.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::Endpoint;
use crate::peer::{Peer, get_prompt};
use crate::service::Service;
use crate::state::{CallOutcome, Counters, polls};
use crate::testing::Executor;
use crate::testing::pipe::{Pipe, drive, pipe};
use protocol_core::Lane;
use protocol_core::config::{CallTimeouts, Config};
use protocol_core::dialect::{Identity, InputRequest, InputResponse, LogRecord, Op, Progress};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{Event, Invoke, InvokeError, OutboundId, Outcome, Session};
use protocol_core::time::Instant;

/// Runs one call of a service in virtual time, with a simulated caller.
///
/// By default the caller offers sampling, elicitation by form and by URL, and roots; it asks for progress, has no timeout, and answers each
/// input request with an error.
///
/// Neither `Send` nor `Sync`, since everything runs on the thread of the test.
pub struct Harness {
    service: Arc<Service>,
    config: Config,
    /// `true` if the caller asks for progress.
    observed: bool,
    answers: VecDeque<InputResponse>,
    answer: Option<Box<Answerer>>,
    cancel: Option<Trigger>,
    disconnect: Option<Trigger>,
    interruption: Option<(usize, Interruption)>,
    limit: Duration,
}

/// A way to interrupt a handler at one of its awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The caller cancels the call.
    Cancel,
    /// The runtime drops the handler.
    Drop,
}

/// The maximum number of polls of tasks, the driver's included, without a change of the time. The harness panics if a run needs more.
const MAX_POLLS: usize = 100_000;

type Answerer = dyn FnMut(&InputRequest) -> Option<InputResponse>;

/// The moment at which the caller cancels the call or disconnects.
#[derive(Clone, Copy, Debug)]
enum Trigger {
    /// This time has passed since the request.
    After(Duration),
    /// The caller has accepted this many progress updates.
    Updates(usize),
}

/// Everything that was observed of one call. Times are counted from its request.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Run {
    /// The outcome that the caller got, and its time. `None` if the call did not end within [`Harness::limit`], or was refused, or if its
    /// handler was dropped by [`every_drop_point`](super::every_drop_point).
    pub done: Option<(Duration, CallOutcome)>,
    /// The error, if the caller's own session refused to make the call.
    pub refused: Option<InvokeError>,
    /// The number of polls that left the handler suspended. An await that is ready at once does not count.
    pub awaits: usize,
    /// The time at which the handler ended, which may be after the end of the call. `None` if it did not end within [`Harness::limit`], or
    /// if the call was refused.
    pub ended: Option<Duration>,
    /// The progress updates that the caller accepted, in order.
    pub progress: Vec<(Duration, Progress)>,
    /// The log records that the caller received, in order.
    pub logs: Vec<(Duration, LogRecord)>,
    /// The input requests that the caller received, in order.
    pub asks: Vec<(Duration, InputRequest)>,
    /// The checkpoints that the handler stored, in order.
    pub checkpoints: Vec<(Duration, Json)>,
    /// The counters of the server's endpoint.
    pub counters: Counters,
}

impl Harness {
    /// A harness for one call of `service`.
    #[must_use]
    pub fn new(service: impl Into<Arc<Service>>) -> Self {
        let mut config = Config::mcp_client(Identity::new("harness", "1"));
        config.capabilities.sampling = true;
        config.capabilities.elicitation = true;
        config.capabilities.elicitation_url = true;
        config.capabilities.roots = true;
        config.timeouts.call = CallTimeouts::NONE;
        Self {
            service: service.into(),
            config,
            observed: true,
            answers: VecDeque::new(),
            answer: None,
            cancel: None,
            disconnect: None,
            interruption: None,
            limit: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Changes the configuration of the caller: its capabilities, its protocol revision, its timeouts.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Makes the caller not ask for progress.
    #[must_use]
    pub fn unobserved(mut self) -> Self {
        self.observed = false;
        self
    }

    /// Adds the answer to the next input request that has none yet. An input request without a planned answer gets an error, unless
    /// [`Harness::answer_with`] has set a closure.
    #[must_use]
    pub fn answer(mut self, answer: InputResponse) -> Self {
        self.answers.push_back(answer);
        self
    }

    /// Sets a closure that answers input requests, after all answers of [`Harness::answer`] are used. If it returns `None`, the input
    /// request stays open.
    #[must_use]
    pub fn answer_with(mut self, answer: impl FnMut(&InputRequest) -> Option<InputResponse> + 'static) -> Self {
        self.answer = Some(Box::new(answer));
        self
    }

    /// Makes the caller cancel the call when `span` has passed since its request.
    #[must_use]
    pub fn cancel_after(mut self, span: Duration) -> Self {
        self.cancel = Some(Trigger::After(span));
        self
    }

    /// Makes the caller cancel the call as soon as it has accepted `updates` progress updates.
    #[must_use]
    pub fn cancel_after_updates(mut self, updates: usize) -> Self {
        self.cancel = Some(Trigger::Updates(updates));
        self
    }

    /// Makes the caller end its side of the channel when `span` has passed since its request. If the call has not ended, it is lost.
    #[must_use]
    pub fn disconnect_after(mut self, span: Duration) -> Self {
        self.disconnect = Some(Trigger::After(span));
        self
    }

    /// Interrupts the handler at its await number `at`, counted from 1.
    pub(super) fn interrupt(mut self, at: usize, how: Interruption) -> Self {
        self.interruption = Some((at, how));
        self
    }

    /// Sets the maximum virtual time of a run. Default: 24 hours.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Calls a tool. `arguments` is an object.
    ///
    /// # Panics
    /// If the handler wakes itself without end: after 100 000 polls without a change of the time. The other methods that make a call panic
    /// in this case, too.
    #[must_use]
    pub fn call_tool(self, name: &str, arguments: Json) -> Run {
        self.invoke(Invoke::call_tool(name, arguments))
    }

    /// Gets a prompt.
    #[must_use]
    pub fn get_prompt(self, name: &str, arguments: &BTreeMap<String, String>) -> Run {
        self.invoke(get_prompt(name, arguments))
    }

    /// Makes a request of any kind.
    #[must_use]
    pub fn request(self, op: Op, params: Json) -> Run {
        self.invoke(Invoke::new(op, params))
    }

    fn invoke(self, mut invoke: Invoke) -> Run {
        let executor = Executor::new();
        let (near, far) = pipe();
        let server = Endpoint::server(self.service, executor.runtime());
        let peer = server.peer();
        peer.record_checkpoints();
        drive(&executor, server, far);

        invoke.progress = self.observed;
        let mut client = Session::new(self.config, executor.now());
        let start = executor.now();
        let mut run = Run::default();
        match client.invoke(invoke, start) {
            Ok(id) => {
                let mut active = ActiveRun {
                    executor,
                    peer,
                    client,
                    pipe: near,
                    id,
                    start,
                    answers: self.answers,
                    answer: self.answer,
                    cancel: self.cancel,
                    disconnect: self.disconnect,
                    interruption: self.interruption,
                    polled: polls::count(),
                    run,
                };
                active.run_until(start.saturating_add(self.limit));
                run = active.end();
            }
            Err(refused) => {
                executor.shutdown();
                run.refused = Some(refused);
            }
        }
        run
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("service", &self.service).finish_non_exhaustive()
    }
}

/// The state of a run that has not ended.
struct ActiveRun {
    executor: Executor,
    peer: Peer,
    client: Session,
    /// The caller's end of the channel.
    pipe: Pipe,
    id: OutboundId,
    start: Instant,
    answers: VecDeque<InputResponse>,
    answer: Option<Box<Answerer>>,
    cancel: Option<Trigger>,
    disconnect: Option<Trigger>,
    interruption: Option<(usize, Interruption)>,
    /// The number of polls of handlers, as it was last read.
    polled: usize,
    run: Run,
}

impl ActiveRun {
    /// Runs all tasks until they wait, then moves the time to the next deadline, and so on. Returns when the call and its handler have
    /// ended, when there is no deadline up to `until`, or when the handler was dropped by [`Interruption::Drop`].
    fn run_until(&mut self, until: Instant) {
        let mut began = false;
        loop {
            if self.run_until_stalled() {
                return;
            }
            let runs = self.peer.running() > 0;
            began |= runs;
            if !runs && (began || self.run.done.is_some()) {
                let elapsed = self.elapsed();
                self.run.ended.get_or_insert(elapsed);
                if self.run.done.is_some() {
                    return;
                }
            }
            let planned = [self.cancel, self.disconnect].into_iter().filter_map(|when| match when? {
                Trigger::After(span) => Some(self.start.saturating_add(span)),
                Trigger::Updates(_) => None,
            });
            let next = planned.chain(self.executor.next_timer()).chain(self.client.poll_timeout()).min();
            let Some(next) = next.filter(|at| *at <= until) else { return };
            self.executor.advance_to(next);
            self.client.handle_timeout(next);
        }
    }

    /// Runs the tasks and the caller until all of them wait, without moving the time. Returns `true` if the handler was dropped by
    /// [`Interruption::Drop`].
    fn run_until_stalled(&mut self) -> bool {
        let mut polls = 0_usize;
        loop {
            if !self.executor.run_next() {
                if self.step() {
                    continue;
                }
                return false;
            }
            polls = polls.saturating_add(1);
            assert!(polls < MAX_POLLS, "the handler wakes itself without end: {polls} polls while time stands still");
            let before = core::mem::replace(&mut self.polled, polls::count());
            if self.polled == before || self.peer.running() == 0 {
                continue;
            }
            self.run.awaits = self.run.awaits.saturating_add(1);
            match self.interruption {
                Some((at, Interruption::Cancel)) if at == self.run.awaits => {
                    // Fails if the call has ended. Then no cancel is needed.
                    let _ = self.client.cancel(self.id, Some("at an await"), self.executor.now());
                }
                Some((at, Interruption::Drop)) if at == self.run.awaits => {
                    self.executor.shutdown();
                    self.run.ended = Some(self.elapsed());
                    return true;
                }
                _ => {}
            }
        }
    }

    /// Runs the caller: its triggers, its frames and its events. Returns `true` if anything happened.
    fn step(&mut self) -> bool {
        let now = self.executor.now();
        let mut any = self.act(now);
        while let Some(frame) = self.pipe.try_recv() {
            any = true;
            // Cannot fail: events are polled after each frame, so there is always room for those of the next.
            let _ = self.client.handle_frame(frame, Lane::CHANNEL, now);
            while let Some(event) = self.client.poll_event() {
                self.handle_event(event, now);
            }
            self.act(now);
        }
        while let Some(event) = self.client.poll_event() {
            any = true;
            self.handle_event(event, now);
        }
        while let Some(transmit) = self.client.poll_transmit() {
            any = true;
            // Fails if the caller has disconnected, or if the server's end of the pipe was dropped. Then the frame is lost.
            let _ = self.pipe.send(transmit.frame);
        }
        any
    }

    /// Cancels the call if the trigger for it is due, then disconnects if the trigger for that is due. Returns `true` if one of them was.
    fn act(&mut self, now: Instant) -> bool {
        let (elapsed, updates) = (self.elapsed(), self.run.progress.len());
        let is_due = |when: &mut Option<Trigger>| {
            let due = match when {
                None => false,
                Some(Trigger::After(span)) => elapsed >= *span,
                Some(Trigger::Updates(wanted)) => updates >= *wanted,
            };
            if due {
                *when = None;
            }
            due
        };
        let cancels = is_due(&mut self.cancel);
        if cancels {
            // Fails if the call has ended.
            let _ = self.client.cancel(self.id, Some("the harness was told to"), now);
        }
        let disconnects = is_due(&mut self.disconnect);
        if disconnects {
            self.pipe.end();
            self.client.handle_end(protocol_core::session::TransportEnd::Failed, now);
        }
        cancels || disconnects
    }

    /// Records what an event reports, and answers an input request.
    fn handle_event(&mut self, event: Event, now: Instant) {
        let at = self.elapsed();
        match event {
            Event::Progress { progress, .. } => self.run.progress.push((at, progress)),
            Event::Log(record) => self.run.logs.push((at, record)),
            Event::InputRequested { key, ask, .. } => {
                let answer = match (self.answers.pop_front(), &mut self.answer) {
                    (Some(answer), _) => Some(answer),
                    (None, Some(decide)) => decide(&ask),
                    (None, None) => Some(InputResponse::Refused(RpcError::fixed(RpcError::USER_REJECTED, "no answer was planned"))),
                };
                self.run.asks.push((at, ask));
                if let Some(answer) = answer {
                    // Cannot fail: the input request has just arrived.
                    let _ = self.client.provide_input(key, answer, now);
                }
            }
            Event::Done { outcome, partial, last, .. } => self.run.done = Some((at, CallOutcome::new(outcome, partial, last))),
            _ => {}
        }
    }

    fn elapsed(&self) -> Duration {
        self.executor.now().saturating_duration_since(self.start)
    }

    fn end(mut self) -> Run {
        let since = |at: Instant| at.saturating_duration_since(self.start);
        self.run.checkpoints = self.peer.checkpoints().into_iter().map(|(at, json)| (since(at), json)).collect();
        self.run.counters = self.peer.counters();
        self.executor.shutdown();
        self.run
    }
}

impl Run {
    /// The outcome that the caller got; `None` if the call did not end, or was refused.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.done.as_ref().map(|(_, done)| &done.outcome)
    }

    /// The result object, or `null` if there is none.
    #[must_use]
    pub fn result(&self) -> Json {
        match self.outcome() {
            Some(Outcome::Result(result)) => result.clone(),
            _ => Json::null(),
        }
    }

    /// The structured content of a tool's result; `None` if there is none.
    #[must_use]
    pub fn structured(&self) -> Option<Json> {
        self.result().member("structuredContent")
    }

    /// The text blocks of a tool's result, joined by line feeds.
    #[must_use]
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct Block {
            text: Option<String>,
        }
        let blocks: Vec<Block> = self.result().member("content").and_then(|content| content.decode().ok()).unwrap_or_default();
        blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n")
    }

    /// Returns `true` if the result has `isError`.
    #[must_use]
    pub fn is_tool_error(&self) -> bool {
        self.result().member("isError").is_some_and(|is_error| is_error.as_str() == "true")
    }

    /// The JSON-RPC error that the call was answered with; `None` if it was not answered with an error.
    #[must_use]
    pub fn error(&self) -> Option<&RpcError> {
        match self.outcome() {
            Some(Outcome::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The values of the progress updates that have one, in order.
    #[must_use]
    pub fn values(&self) -> Vec<f64> {
        self.progress.iter().filter_map(|(_, progress)| progress.value).collect()
    }
}
