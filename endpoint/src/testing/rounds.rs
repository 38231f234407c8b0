//! Runs of a handler in every way in which its input requests can be answered.

use std::sync::Arc;

use bytes::Bytes;

use super::executor::Executor;
use crate::{Endpoint, SealKeys, Service};
use protocol_core::config::{CallTimeouts, Config};
use protocol_core::dialect::{Identity, InputRequest, InputResponse};
use protocol_core::drive::Machine as _;
use protocol_core::json::Json;
use protocol_core::mcp::Era;
use protocol_core::session::{Event, Invoke, Lane, Outcome, RouteKind, Session};

/// The maximum number of steps of a call. Each step carries frames, or moves the time. A call that needs more is taken to have no end.
const MAX_STEPS: usize = 100_000;

/// The runs of [`every_round`], which all ended in the same way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rounds {
    /// The outcome of the run with a handshake.
    pub outcome: Outcome,
    /// The number of rounds of input requests in MCP 2026-07-28.
    pub rounds: usize,
}

/// Runs a tool's handler in each way in which its input requests can be answered, and compares the outcomes. Needs the feature `seal`.
/// There are three ways:
///
/// * with a handshake;
/// * in MCP 2026-07-28 with one process;
/// * in MCP 2026-07-28 with a new process for each request.
///
/// After each run in MCP 2026-07-28, each request of the run is sent once more, to a new process of its own, which must reply with the same
/// input requests or the same result. The handler must return equal results for equal answers.
///
/// `service` makes the service of one process; its keys are replaced. `answer` answers an input request, and must give equal answers to
/// equal input requests.
///
/// # Panics
/// If the outcomes of two ways differ (the message has both); if a repeated request gets a different reply; if the call does not end; if
/// the handler makes no input request.
///
/// ```
/// use endpoint::testing::every_round;
/// use endpoint::{Context, Service, Tool, ToolError};
/// use protocol_core::{InputResponse, ElicitResult, Json};
///
/// let delete = || Service::new("files", "1").tool(Tool::new("delete", async |context: Context, ()| {
///     let sure = context.confirm("Delete?").await && context.confirm("Sure?").await;
///     Ok::<_, ToolError>(if sure { "deleted" } else { "kept" })
/// }));
/// let agree = |_: &_| InputResponse::Elicit(ElicitResult::Accept(Json::empty_object()));
/// assert_eq!(every_round(delete, "delete", &Json::empty_object(), agree).rounds, 2);
/// ```
#[track_caller]
pub fn every_round(
    service: impl Fn() -> Service,
    name: &str,
    arguments: &Json,
    mut answer: impl FnMut(&InputRequest) -> InputResponse,
) -> Rounds {
    let keys = SealKeys::new([0x5e; 32]);
    let service = || service().seal_keys(keys.clone());
    let call = || Invoke::call_tool(name, arguments.clone());
    // Over a handshake a call has no retries, so the way to serve them has no effect.
    let mut legacy = Pair::new(&service, Era::Legacy, Way::Together);
    let outcome = legacy.run(call(), &mut answer);
    assert!(outcome.is_some(), "over a handshake, the call does not end");
    let outcome = outcome.unwrap_or(Outcome::Lost);
    let mut rounds = 0;
    for (way, label) in [(Way::Together, "in one process"), (Way::Spread, "with a new process for each request")] {
        let mut pair = Pair::new(&service, Era::Modern, way);
        let end = pair.run(call(), &mut answer);
        assert_eq!(end.as_ref().map(common), Some(common(&outcome)), "without a handshake, {label}, the call ends differently");
        rounds = pair.exchanges.len().saturating_sub(1);
        assert!(rounds > 0, "the handler asks for nothing");
        for (at, (request, response)) in pair.exchanges.iter().enumerate() {
            let again = Process::new(service()).serve(request.clone());
            assert_eq!(unsealed(&again), unsealed(response), "request {at} is answered differently when it is sent again");
        }
    }
    Rounds { outcome, rounds }
}

/// An outcome as text, without the members of a result that only MCP 2026-07-28 has.
fn common(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Result(result) => format!("result {}", without(result, &["resultType", "_meta"])),
        other => format!("{other:?}"),
    }
}

/// The result or the error of a response as text, without the sealed state, which is random.
fn unsealed(response: &Bytes) -> String {
    let response = Json::parse(response.clone()).unwrap_or_default();
    match response.member("result") {
        Some(result) => without(&result, &["requestState"]),
        None => without(&response, &["id"]),
    }
}

/// An object as text, without the named members.
fn without(object: &Json, names: &[&str]) -> String {
    let mut value: serde_json::Value = object.decode().unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| !names.contains(&&**name));
    }
    value.to_string()
}

/// A way to serve the retries of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In one process.
    Together,
    /// In a new process for each request.
    Spread,
}

/// A simulated process that serves a service.
struct Process {
    endpoint: Endpoint,
    executor: Executor,
}

impl Process {
    fn new(service: Service) -> Self {
        let executor = Executor::new();
        let service = service.configure(|config| config.era = Era::Auto);
        Self { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor }
    }

    fn take(&mut self, frame: Bytes) {
        let now = self.executor.now();
        assert!(self.endpoint.handle_frame(frame, now).is_ok(), "the endpoint takes frames");
    }

    /// The frames that the process sends before it waits for time to pass, or for the caller.
    fn frames(&mut self) -> Vec<Bytes> {
        while self.endpoint.poll_event().is_some() {}
        self.executor.run_until_stalled();
        core::iter::from_fn(|| self.endpoint.poll_transmit()).map(|out| out.frame).collect()
    }

    /// Moves the time to the next deadline of the process. Returns `false` if there is none.
    fn wait(&mut self) -> bool {
        let deadline = [self.executor.next_timer(), self.endpoint.poll_timeout()].into_iter().flatten().min();
        let Some(at) = deadline else { return false };
        self.executor.advance_to(at);
        self.endpoint.handle_timeout(at);
        true
    }

    /// The response to one request; empty if there is none.
    fn serve(mut self, request: Bytes) -> Bytes {
        self.take(request);
        for _ in 0..MAX_STEPS {
            if let Some(response) = self.frames().into_iter().find(is_response) {
                return response;
            }
            if !self.wait() {
                break;
            }
        }
        Bytes::new()
    }
}

fn is_response(frame: &Bytes) -> bool {
    Json::parse(frame.clone()).is_ok_and(|frame| frame.member("method").is_none())
}

/// A caller and the process that serves it.
struct Pair<'a, S> {
    service: &'a S,
    way: Way,
    caller: Session,
    process: Process,
    /// The requests of the call, each with its response.
    exchanges: Vec<(Bytes, Bytes)>,
}

impl<'a, S: Fn() -> Service> Pair<'a, S> {
    fn new(service: &'a S, era: Era, way: Way) -> Self {
        let mut config = Config::mcp_client(Identity::new("caller", "1"));
        (config.capabilities.sampling, config.capabilities.roots) = (true, true);
        (config.capabilities.elicitation, config.capabilities.elicitation_url) = (true, true);
        (config.timeouts.call, config.list_changes, config.era) = (CallTimeouts::NONE, false, era);
        let process = Process::new(service());
        let caller = Session::new(config, process.executor.now());
        Self { service, way, caller, process, exchanges: Vec::new() }
    }

    /// Makes the call, and returns its outcome; `None` if it does not end.
    fn run(&mut self, call: Invoke, answer: &mut impl FnMut(&InputRequest) -> InputResponse) -> Option<Outcome> {
        let mut call = Some(call);
        for _ in 0..MAX_STEPS {
            let mut moved = self.carry(call.is_none());
            if let Some(call) = call.take_if(|_| self.caller.is_ready()) {
                let now = self.process.executor.now();
                assert!(self.caller.invoke(call, now).is_ok(), "the caller makes the call");
                moved = true;
            }
            while let Some(event) = self.caller.poll_event() {
                let now = self.process.executor.now();
                match event {
                    Event::InputRequested { key, ask, .. } => {
                        let _ = self.caller.provide_input(key, answer(&ask), now);
                        moved = true;
                    }
                    Event::Done { outcome, .. } => return Some(outcome),
                    _ => {}
                }
            }
            if !moved && !self.wait() {
                break;
            }
        }
        None
    }

    /// Carries frames in both directions. Returns `false` if there is none. Records the requests of the caller if `is_calling`: if the call
    /// has been made.
    fn carry(&mut self, is_calling: bool) -> bool {
        let mut moved = false;
        while let Some(out) = self.caller.poll_transmit() {
            moved = true;
            if is_calling && matches!(out.route.kind, RouteKind::Request(_)) {
                if self.way == Way::Spread {
                    self.process = Process::new((self.service)());
                }
                self.exchanges.push((out.frame.clone(), Bytes::new()));
            }
            self.process.take(out.frame);
        }
        for frame in self.process.frames() {
            moved = true;
            if is_response(&frame)
                && let Some((_, response)) = self.exchanges.last_mut()
            {
                *response = frame.clone();
            }
            let now = self.process.executor.now();
            assert!(self.caller.handle_frame(frame, Lane::CHANNEL, now).is_ok(), "the caller takes frames");
        }
        moved
    }

    /// Expires the next deadline of each end. Returns `false` if there is none.
    fn wait(&mut self) -> bool {
        let moved = self.process.wait();
        // After a round without input requests, a caller waits for a moment before it sends its retry.
        match self.caller.poll_timeout() {
            Some(at) => {
                self.caller.handle_timeout(at.max(self.process.executor.now()));
                true
            }
            None => moved,
        }
    }
}
