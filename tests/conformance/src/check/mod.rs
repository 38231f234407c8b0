//! Scenarios of our own for behaviour that the official suite does not test: cancels, progress, invalid frames, back-pressure, and the end
//! of a connection. They run against any MCP server: a command that serves on its standard input and output, or a URL.
//!
//! Each scenario has a server process or an HTTP session of its own, and reads and writes exact frames. If the server exits, hangs or
//! writes without end, only the scenario fails, and the run goes on: every wait has a time limit, and every buffer a bound.

mod http;
mod log;
mod report;
mod scenarios;
mod session;
mod stdio;

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use log::{Direction, Entry, Log};
pub use report::Report;
pub use scenarios::{Level, Scenario, all};
use session::Session;

/// The maximum number of bytes that a scenario reads from a server. A server that writes more has the fault [`Fault::Flooded`].
const MAX_READ_BYTES: usize = 64 << 20;
/// The maximum number of messages that a scenario reads from a server: several times as many as any scenario requests.
const MAX_MESSAGES: usize = 50_000;
/// The maximum length in bytes of one line, or of one message in an HTTP response.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A server under test.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, whose standard input and output are the connection.
    Command(Vec<OsString>),
    /// The address of a server of Streamable HTTP, without TLS.
    Url(String),
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// A revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// 2025-11-25, which begins with a handshake. In the handshake a server may choose an older revision.
    Handshake,
    /// 2026-07-28, whose requests need no handshake.
    Stateless,
}

impl Revision {
    /// All revisions, the oldest first.
    pub const ALL: [Self; 2] = [Self::Handshake, Self::Stateless];

    /// The version string in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }
}

/// A server, and the tests that are run against it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// A call that runs for some seconds, and reports progress more than twice meanwhile. `None` chooses a known tool, if the server has
    /// one.
    pub slow: Option<Call>,
    /// A call that ends at once. `None` chooses a tool without required arguments that is declared as read-only, if the server has one.
    pub quick: Option<Call>,
    /// The longest time for an answer. A scenario may take at most four times as long.
    pub timeout: Duration,
    /// The ids of the scenarios to run; all if empty.
    pub only: Vec<String>,
    /// The revisions to test; all if empty. A revision that the server does not speak is left out, if it speaks another one of them.
    pub revisions: Vec<Revision>,
}

impl Plan {
    /// A plan with all scenarios, and ten seconds for an answer.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { target, slow: None, quick: None, timeout: Duration::from_secs(10), only: Vec::new(), revisions: Vec::new() }
    }
}

/// A fault that ends a scenario: of the server, or of the address and headers that the program was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process has exited, the connection was refused or closed, or the address is not that of a server.
    Died(String),
    /// The server did not answer in time.
    Silent(String),
    /// The server wrote more than a scenario reads.
    Flooded(String),
    /// The server did not read in time.
    Deaf(String),
    /// The server broke a rule of the specification, or a request cannot be written.
    Wrong(String),
}

impl Fault {
    /// The fault in one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Died(_) => "died",
            Self::Silent(_) => "silent",
            Self::Flooded(_) => "flooded",
            Self::Deaf(_) => "deaf",
            Self::Wrong(_) => "wrong",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Died(why) | Self::Silent(why) | Self::Flooded(why) | Self::Deaf(why) | Self::Wrong(why)) = self;
        f.write_str(why)
    }
}

/// The reason why a scenario stops early.
#[derive(Debug)]
enum Stop {
    Fault(Fault),
    /// The scenario cannot be run against this server.
    NotRun(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fault(Fault::Wrong(why.into())))
}

fn not_run<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::NotRun(why.into()))
}

/// The verdict on a server in one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server follows every MUST and SHOULD.
    Passed,
    /// The server breaks a SHOULD.
    Warned(String),
    /// The server breaks a MUST, or has another fault.
    Failed(Fault),
    /// The scenario cannot be run against the server.
    NotRun(String),
}

/// A scenario that was run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The scenario.
    pub scenario: &'static Scenario,
    /// The revision in which the scenario was run.
    pub revision: Revision,
    /// The verdict.
    pub verdict: Verdict,
    /// The frames of both ends.
    pub log: Log,
}

/// The reason why a run is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotRun(String);

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotRun {}

/// Runs the scenarios of a plan, one after the other, and passes each outcome to `each` as soon as it is known.
///
/// Must be called within a runtime of tokio with I/O and time.
///
/// # Cancel safety
/// Cancel safe: dropping the future kills the server process that runs.
///
/// # Errors
/// If the plan names a scenario or a tool that does not exist, if the command cannot be started, or if nothing listens at the URL.
pub async fn run(mut plan: Plan, mut each: impl FnMut(&Outcome)) -> Result<Report, CannotRun> {
    if let Some(unknown) = plan.only.iter().find(|name| all().iter().all(|scenario| scenario.id != **name)) {
        return Err(CannotRun(format!("there is no scenario {unknown}")));
    }
    let mut server = None;
    let mut spoken = Vec::new();
    let mut tools = None;
    for revision in if plan.revisions.is_empty() { Revision::ALL.to_vec() } else { plan.revisions.clone() } {
        let mut session = Session::start(&plan, revision).await.map_err(|fault| CannotRun(fault.to_string()))?;
        let met = meet(&mut session).await;
        session.finish().await;
        if let Ok((name, listed)) = met {
            spoken.push(revision);
            server = server.or(name);
            tools = tools.or(listed);
        }
    }
    if let Some(tools) = &tools {
        choose_tools(&mut plan, tools)?;
    }
    // A server that speaks neither revision is tested nevertheless, and fails.
    if spoken.is_empty() {
        spoken = if plan.revisions.is_empty() { vec![Revision::Handshake] } else { plan.revisions.clone() };
    }
    let mut outcomes = Vec::new();
    for &revision in &spoken {
        for scenario in all() {
            let is_wanted = plan.only.is_empty() || plan.only.iter().any(|name| name == scenario.id);
            if is_wanted && scenario.applies(&plan.target, revision) {
                let outcome = play(&plan, scenario, revision).await;
                each(&outcome);
                outcomes.push(outcome);
            }
        }
    }
    Ok(Report { server, spoken, outcomes })
}

/// Begins a session, and lists the tools. Returns the name of the server, and its tools if it has any.
async fn meet(session: &mut Session<'_>) -> Result<(Option<String>, Option<Vec<Value>>), Stop> {
    let server = session.meet().await?;
    let id = session.request("tools/list", json!({})).await?;
    let tools = session.result(&id).await.ok().and_then(|result| result["tools"].as_array().cloned());
    Ok((server, tools))
}

/// The name and the arguments of each known tool that runs for long. The only one is of `server-everything`, a widely used server.
const KNOWN_SLOW: [(&str, &str); 1] = [("trigger-long-running-operation", r#"{"duration":4,"steps":20}"#)];

/// Chooses the tools that the plan does not name: a slow tool of [`KNOWN_SLOW`], and another tool without required arguments that is
/// declared as read-only.
fn choose_tools(plan: &mut Plan, tools: &[Value]) -> Result<(), CannotRun> {
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    if let Some(call) = [&plan.slow, &plan.quick].into_iter().flatten().find(|call| !has(&call.name)) {
        return Err(CannotRun(format!("the server lists no tool {}", call.name)));
    }
    if plan.slow.is_none() {
        plan.slow = KNOWN_SLOW.into_iter().find(|(name, _)| has(name)).map(|(name, arguments)| Call {
            name: name.to_owned(),
            arguments: serde_json::from_str(arguments).unwrap_or_default(),
        });
    }
    if plan.quick.is_none() {
        let is_harmless = |tool: &&Value| {
            let needs = tool["inputSchema"]["required"].as_array().is_some_and(|required| !required.is_empty());
            tool["annotations"]["readOnlyHint"] == true && !needs && plan.slow.as_ref().is_none_or(|slow| tool["name"] != slow.name)
        };
        let name = tools.iter().find(is_harmless).and_then(|tool| tool["name"].as_str());
        plan.quick = name.map(|name| Call { name: name.to_owned(), arguments: Map::new() });
    }
    Ok(())
}

/// Runs one scenario.
async fn play(plan: &Plan, scenario: &'static Scenario, revision: Revision) -> Outcome {
    let mut session = match Session::start(plan, revision).await {
        Ok(session) => session,
        Err(fault) => return Outcome { scenario, revision, verdict: Verdict::Failed(fault), log: Log::default() },
    };
    let limit = plan.timeout * 4;
    let ended = tokio::time::timeout(limit, (scenario.run)(&mut session)).await;
    let ended =
        ended.unwrap_or_else(|_| Err(Fault::Silent(format!("the scenario was not over after {} s", limit.as_secs_f64())).into()));
    let warnings = session.warnings();
    let verdict = match ended {
        Ok(()) if warnings.is_empty() => Verdict::Passed,
        Ok(()) => Verdict::Warned(warnings),
        Err(Stop::NotRun(why)) => Verdict::NotRun(why),
        Err(Stop::Fault(Fault::Wrong(why))) if scenario.level == Level::Should => Verdict::Warned(why),
        Err(Stop::Fault(fault)) => Verdict::Failed(fault),
    };
    Outcome { scenario, revision, verdict, log: session.finish().await }
}
