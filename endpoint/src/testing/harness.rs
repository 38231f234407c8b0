//! One call of a service, from its request to the end of its handler.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::Endpoint;
use crate::peer::{Peer, get_prompt};
use crate::service::Service;
use crate::state::{CallOutcome, Counters};
use crate::testing::Executor;
use crate::testing::pipe::{Pipe, drive, pipe};
use protocol_core::Lane;
use protocol_core::config::{CallTimeouts, Config};
use protocol_core::dialect::{Answer, Ask, Identity, LogRecord, Op, Progress};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{Event, Invoke, InvokeError, OutboundId, Outcome, Session};
use protocol_core::time::Instant;

/// Runs one call of a service in virtual time, and plays its caller.
///
/// The caller offers sampling, elicitation by form and by URL, and roots, asks for progress, and never gives up by itself.
///
/// Neither `Send` nor `Sync`: answers may come from a closure that is neither, as everything runs on the thread of the test.
pub struct Harness {
    service: Arc<Service>,
    config: Config,
    observed: bool,
    answers: VecDeque<Answer>,
    answer: Option<Box<Answerer>>,
    cancel: Option<When>,
    disconnect: Option<When>,
    limit: Duration,
}

type Answerer = dyn FnMut(&Ask) -> Option<Answer>;

#[derive(Clone, Copy, Debug)]
enum When {
    After(Duration),
    Updates(usize),
}

/// All that was seen of one call. Times count from its request.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Run {
    /// The outcome for its caller, and its time. `None` if the call never ended: the handler waits for something that will not come.
    pub done: Option<(Duration, CallOutcome)>,
    /// Why it was not even made.
    pub refused: Option<InvokeError>,
    /// The time at which its handler ended; it may go on after the call has ended.
    pub ended: Option<Duration>,
    /// Every update that its caller accepted.
    pub progress: Vec<(Duration, Progress)>,
    /// Every log record.
    pub logs: Vec<(Duration, LogRecord)>,
    /// Everything that it asked of its caller.
    pub asks: Vec<(Duration, Ask)>,
    /// Everything that it deposited.
    pub checkpoints: Vec<(Duration, Json)>,
    /// The counters of its endpoint.
    pub counters: Counters,
}

impl Harness {
    /// A caller of `service`.
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
            limit: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Changes what the caller is: its capabilities, its revision, its clocks.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// The caller does not ask for progress.
    #[must_use]
    pub fn unobserved(mut self) -> Self {
        self.observed = false;
        self
    }

    /// The caller's answer to the next question that has none yet. Questions beyond the last answer are refused.
    #[must_use]
    pub fn answer(mut self, answer: Answer) -> Self {
        self.answers.push_back(answer);
        self
    }

    /// Decides the caller's answers one by one; `None` leaves a question open. Answers given by [`Harness::answer`] go first.
    #[must_use]
    pub fn answer_with(mut self, answer: impl FnMut(&Ask) -> Option<Answer> + 'static) -> Self {
        self.answer = Some(Box::new(answer));
        self
    }

    /// The caller cancels so long after its request.
    #[must_use]
    pub fn cancel_after(mut self, span: Duration) -> Self {
        self.cancel = Some(When::After(span));
        self
    }

    /// The caller cancels as soon as it has accepted so many updates.
    #[must_use]
    pub fn cancel_after_updates(mut self, updates: usize) -> Self {
        self.cancel = Some(When::Updates(updates));
        self
    }

    /// The caller ends its side of the channel so long after its request.
    #[must_use]
    pub fn disconnect_after(mut self, span: Duration) -> Self {
        self.disconnect = Some(When::After(span));
        self
    }

    /// Sets the virtual time that a run may take. 24 hours by default.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Calls a tool. `arguments` is an object.
    #[must_use]
    pub fn call_tool(self, name: &str, arguments: Json) -> Run {
        self.invoke(Invoke::call_tool(name, arguments))
    }

    /// Gets a prompt.
    #[must_use]
    pub fn get_prompt(self, name: &str, arguments: &BTreeMap<String, String>) -> Run {
        self.invoke(get_prompt(name, arguments))
    }

    /// Makes any request of a caller.
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
                let mut play = Play {
                    executor,
                    peer,
                    client,
                    pipe: Some(near),
                    id,
                    start,
                    answers: self.answers,
                    answer: self.answer,
                    cancel: self.cancel,
                    disconnect: self.disconnect,
                    run,
                };
                play.play(start.saturating_add(self.limit));
                run = play.end();
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

/// A run under way.
struct Play {
    executor: Executor,
    peer: Peer,
    client: Session,
    /// `None` once the caller has ended its side.
    pipe: Option<Pipe>,
    id: OutboundId,
    start: Instant,
    answers: VecDeque<Answer>,
    answer: Option<Box<Answerer>>,
    cancel: Option<When>,
    disconnect: Option<When>,
    run: Run,
}

impl Play {
    /// Lets everything happen that can, then moves time to what comes next, until the call and its handler have ended.
    fn play(&mut self, until: Instant) {
        let mut began = false;
        loop {
            while self.executor.run_until_stalled() | self.exchange() {}
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
                When::After(span) => Some(self.start.saturating_add(span)),
                When::Updates(_) => None,
            });
            let next = planned.chain(self.executor.next_alarm()).chain(self.client.poll_timeout()).min();
            let Some(next) = next.filter(|at| *at <= until) else { return };
            self.executor.advance_to(next);
            self.client.handle_timeout(next);
        }
    }

    /// Does what the caller does now. Returns `true` if anything happened.
    fn exchange(&mut self) -> bool {
        let now = self.executor.now();
        let mut any = self.act(now);
        while let Some(frame) = self.pipe.as_mut().and_then(Pipe::try_recv) {
            any = true;
            // Events are polled after each frame, so there is always room.
            let _ = self.client.handle_frame(frame, Lane::CHANNEL, now);
            while let Some(event) = self.client.poll_event() {
                self.note(event, now);
            }
            self.act(now);
        }
        while let Some(event) = self.client.poll_event() {
            any = true;
            self.note(event, now);
        }
        while let Some(transmit) = self.client.poll_transmit() {
            any = true;
            if let Some(pipe) = &mut self.pipe {
                // A server that is gone shows by the end of what it sends.
                let _ = pipe.send(transmit.frame);
            }
        }
        any
    }

    /// Cancels and disconnects, when it is time.
    fn act(&mut self, now: Instant) -> bool {
        let (elapsed, updates) = (self.elapsed(), self.run.progress.len());
        let is_due = |when: &mut Option<When>| {
            let due = match when {
                None => false,
                Some(When::After(span)) => elapsed >= *span,
                Some(When::Updates(wanted)) => updates >= *wanted,
            };
            if due {
                *when = None;
            }
            due
        };
        let cancels = is_due(&mut self.cancel);
        if cancels {
            // One that has ended needs no cancel.
            let _ = self.client.cancel(self.id, Some("the harness was told to"), now);
        }
        let disconnects = is_due(&mut self.disconnect);
        if disconnects {
            if let Some(pipe) = &mut self.pipe {
                pipe.end();
            }
            self.client.handle_end(protocol_core::session::TransportEnd::Failed, now);
        }
        cancels || disconnects
    }

    fn note(&mut self, event: Event, now: Instant) {
        let at = self.elapsed();
        match event {
            Event::Progress { progress, .. } => self.run.progress.push((at, progress)),
            Event::Log(record) => self.run.logs.push((at, record)),
            Event::InputRequested { key, ask, .. } => {
                let answer = match (self.answers.pop_front(), &mut self.answer) {
                    (Some(answer), _) => Some(answer),
                    (None, Some(decide)) => decide(&ask),
                    (None, None) => Some(Answer::Refused(RpcError::fixed(RpcError::USER_REJECTED, "no answer was planned"))),
                };
                self.run.asks.push((at, ask));
                if let Some(answer) = answer {
                    // It is open: it has just been asked.
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
    /// The outcome for its caller; `None` if the call never ended, or was not made.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.done.as_ref().map(|(_, done)| &done.outcome)
    }

    /// The result object, `null` if there is none.
    #[must_use]
    pub fn result(&self) -> Json {
        match self.outcome() {
            Some(Outcome::Result(result)) => result.clone(),
            _ => Json::null(),
        }
    }

    /// The structured content of a tool's result.
    #[must_use]
    pub fn structured(&self) -> Option<Json> {
        self.result().member("structuredContent")
    }

    /// The text blocks of a tool's result, one below the other.
    #[must_use]
    pub fn text(&self) -> String {
        #[derive(Deserialize)]
        struct Block {
            text: Option<String>,
        }
        let blocks: Vec<Block> = self.result().member("content").and_then(|content| content.decode().ok()).unwrap_or_default();
        blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n")
    }

    /// Returns `true` if the result is a tool's failure.
    #[must_use]
    pub fn is_tool_error(&self) -> bool {
        self.result().member("isError").is_some_and(|is_error| is_error.as_str() == "true")
    }

    /// The error that the call was answered with.
    #[must_use]
    pub fn error(&self) -> Option<&RpcError> {
        match self.outcome() {
            Some(Outcome::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// The values of all updates, in order.
    #[must_use]
    pub fn values(&self) -> Vec<f64> {
        self.progress.iter().filter_map(|(_, progress)| progress.value).collect()
    }
}
