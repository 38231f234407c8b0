//! The program `call`.

use std::env;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::thread;
use std::time::Duration;

use adapter_io::{Error, Exit};
use endpoint::{Call, CallError, CallOutcome, Client, ListFailed, Peer};
use protocol_core::http::{HttpFailure, HttpReason};
use protocol_core::mcp::Era;
use protocol_core::{
    Close, CloseReason, Config, Content, Identity, Invalid, InvokeError, Json, Level, Outcome, Progress, PromptInfo, PromptResult,
    RpcError, SendError, Text, TimeoutKind, ToolInfo, ToolResult,
};
use serde::Deserialize;

use super::addresses::described;
use super::answers::Answers;
use super::arguments::{self, CallOptions, SERVE_TOOLS, Server, StreamServer, Work};
use super::display::{Display, line, one_line, printable};
use super::folder::Folder;
use super::interrupts::Interrupts;
use super::serve::{self, Serving};
use super::status::{self, complain, say};
use crate::adapter::{Link, start_thread};

/// The program that the command line requests.
pub enum Wanted {
    /// The server `tools`.
    Serve(Serving),
    /// A call to a server.
    Call {
        /// The server to call.
        server: Server,
        /// The call to make.
        calling: Box<Calling>,
    },
}

/// Parses the command line of this process.
///
/// # Errors
/// The exit status, after `--help` or an error was printed.
pub fn from_command_line() -> Result<Wanted, u8> {
    let mut line = env::args_os().peekable();
    let program = line.next().unwrap_or_default();
    if line.next_if(|first| first == SERVE_TOOLS).is_some() {
        return serve::read([program].into_iter().chain(line)).map(Wanted::Serve);
    }
    let options = arguments::call([program].into_iter().chain(line))?;
    let (server, calling) = Calling::new(options);
    Ok(Wanted::Call { server, calling: Box::new(calling) })
}

/// The time that a started server may take for its handshake without `--start-timeout`: `npx` may have to download it first.
const CHILD_START: Duration = Duration::from_secs(60);

/// A call to make.
pub struct Calling {
    /// The client that answers the server's input requests.
    pub client: Arc<dyn Client>,
    /// The configuration, with the time limits.
    pub config: Config,
    display: Arc<Display>,
    work: Work,
    cancel_after: Option<u64>,
    log_level: Option<Level>,
    save: Option<PathBuf>,
}

impl Calling {
    fn new(options: CallOptions) -> (Server, Self) {
        let display = Arc::new(Display::on_stderr());
        let mut config = Config::mcp_client(Identity::new("call", env!("CARGO_PKG_VERSION")));
        config.era = options.era;
        // Changes of lists do not matter during one call.
        config.list_changes = false;
        let is_child = matches!(options.server, Server::Stream(StreamServer::Child(_)));
        config.timeouts.handshake = options.start_timeout.or(if is_child { Some(CHILD_START) } else { config.timeouts.handshake });
        if options.idle.is_some() {
            config.timeouts.call.idle = options.idle;
        }
        if options.max_total.is_some() {
            config.timeouts.call.max_total = options.max_total;
        }
        let calling = Self {
            client: Arc::new(Answers::new(Arc::clone(&display), options.forms, options.open_urls, options.samples, options.roots)),
            config,
            display,
            work: options.work,
            cancel_after: options.cancel_after,
            log_level: options.log_level,
            save: options.save,
        };
        (options.server, calling)
    }

    /// Returns a function that tells the person who waits that the call is being resumed.
    pub(super) fn on_resume(&self) -> impl Fn(&HttpReason) + Send + Sync + use<> {
        let display = Arc::clone(&self.display);
        move |why| display.print(&one_line(&format!("call: {why}; trying to go on")))
    }
}

/// Prints the reason why the server cannot be reached, and returns the exit status.
pub fn cannot_reach(error: impl fmt::Display) -> u8 {
    complain("call", error, status::NO_SERVER)
}

/// Makes the call over an open connection, and closes the connection. Returns the exit status. `exit` is that of the server, if it was
/// started for this call.
pub(super) async fn run<F, C>(calling: Calling, link: Link, exit: Exit, interrupts: &mut Interrupts<F, C>) -> u8
where
    F: FnMut() -> C,
    C: Future<Output = ()>,
{
    let Link { peer, mut end } = link;
    let verdict = calling.work(&peer, interrupts).await;
    calling.display.end();
    let ended = leave(&peer, end.as_mut(), &exit, interrupts).await;
    match verdict {
        Verdict::Exit(status) => status,
        Verdict::Lost { why: Some(why), last_progress } => {
            complain("call", format_args!("the call is lost: {why}{last_progress}"), status::NO_SERVER)
        }
        Verdict::Lost { why: None, last_progress } => {
            if let Some(error) = peer.refusal() {
                let (what, hint) = match peer.closed().await {
                    CloseReason::HandshakeRefused => ("the handshake", ""),
                    _ => ("server/discover", LEGACY_HINT),
                };
                let why = match error.code {
                    RpcError::NO_RESPONSE => format!("the server cannot be used: {}{hint}", error.message),
                    _ => format!("the server refused {what}: {}{hint}", explained(&error)),
                };
                return complain("call", why, status::NO_SERVER);
            }
            let ended = match ended {
                Some(ended) => ended,
                None => Ok(peer.closed().await),
            };
            let (why, status) = explained_end(&ended, exit.status());
            complain("call", format_args!("{why}{last_progress}"), status)
        }
    }
}

/// Closes a connection, and waits for its end. Returns the end, unless it takes too long. A server that was started should exit by itself
/// now. If it does not, SIGTERM and then SIGKILL are sent to it and to the processes that it has started. The connection ends when all of
/// them have ended. A signal skips to the next step.
pub(super) async fn leave<F, C>(
    peer: &Peer,
    mut end: Pin<&mut (dyn Future<Output = Result<CloseReason, Error>> + Send)>,
    exit: &Exit,
    interrupts: &mut Interrupts<F, C>,
) -> Option<Result<CloseReason, Error>>
where
    F: FnMut() -> C,
    C: Future<Output = ()>,
{
    // Queued output, such as a cancel, is still written, unless the server does not read it.
    peer.close(Close::Now);
    for (span, step) in [(PATIENCE, Exit::terminate as fn(&_)), (TERMINATION_PATIENCE, Exit::kill), (KILL_PATIENCE, |_| ())] {
        let mut patience = pin!(start_thread(move || thread::sleep(span)));
        let ended = poll_fn(|task| {
            if let Poll::Ready(ended) = end.as_mut().poll(task) {
                return Poll::Ready(Some(ended));
            }
            let is_time = patience.as_mut().poll(task).is_ready() || interrupts.poll_next(task).is_ready();
            if is_time { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        if ended.is_some() || exit.process_id().is_none() {
            return ended;
        }
        step(exit);
    }
    None
}

/// The reason for which the server is lost or cannot be used, and the exit status of `call` for it. `exit` is that of a
/// server that was started, and has exited.
fn explained_end(end: &Result<CloseReason, Error>, exit: Option<ExitStatus>) -> (String, u8) {
    let exit = exit.map(|exit| format!(" ({exit})")).unwrap_or_default();
    match end {
        Err(Error::Server(failure @ HttpFailure::NoAnswer)) => (format!("timed out: {failure}{LEGACY_HINT}"), status::TIMED_OUT),
        Err(Error::Server(failure @ HttpFailure::Refused(_))) => {
            let hint = if failure.may_be_legacy() { LEGACY_HINT } else { "" };
            (format!("the server cannot be used: {failure}{hint}"), status::NO_SERVER)
        }
        Ok(reason @ (CloseReason::AnswerInvalid(..) | CloseReason::ProbeRefused | CloseReason::VersionMismatch)) => {
            (format!("the server cannot be used: {reason}{exit}"), status::NO_SERVER)
        }
        Ok(reason) => (format!("the server is lost: {reason}{exit}"), status::NO_SERVER),
        Err(error) => (format!("the server is lost: {error}{exit}"), status::NO_SERVER),
    }
}

/// The end of a message about a server that does not accept or does not answer the request for its revisions.
const LEGACY_HINT: &str = "; for an old server, try --era legacy";

/// The time within which a server should exit after the call.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time within which a server should exit after SIGTERM.
const TERMINATION_PATIENCE: Duration = Duration::from_millis(500);

/// The time within which the system should end a server after SIGKILL.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

fn forever() {
    loop {
        thread::park();
    }
}

/// The number of updates that are shown before Ctrl-C is checked again.
const UPDATES_A_TURN: usize = 64;

/// The result of the call, for the exit status.
enum Verdict {
    /// The result or the error was printed; contains the exit status.
    Exit(u8),
    /// The call was lost.
    Lost {
        /// The reason; `None` if it is that of the end of the connection, which may not be known yet.
        why: Option<Text>,
        /// The last progress as text.
        last_progress: String,
    },
}

impl Verdict {
    /// Adds the reason of a loss.
    fn because(self, reason: Option<Text>) -> Self {
        match self {
            Self::Lost { last_progress, .. } => Self::Lost { why: reason, last_progress },
            exit @ Self::Exit(_) => exit,
        }
    }
}

impl Calling {
    async fn work<F, C>(&self, peer: &Peer, interrupts: &mut Interrupts<F, C>) -> Verdict
    where
        F: FnMut() -> C,
        C: Future<Output = ()>,
    {
        // The call is made only after the handshake, so that a timeout of the handshake is not reported as a timeout of the call.
        self.display.begin("waiting for the server");
        match interrupts.or(peer.ready()).await {
            None => return cancelled(),
            Some(Ok(_)) => {}
            Some(Err(CloseReason::HandshakeTimeout)) => {
                let span = self.config.timeouts.handshake.unwrap_or_default();
                let (what, hint) = match self.config.era {
                    Era::Modern => ("server/discover", LEGACY_HINT),
                    Era::Auto => ("the handshake", LEGACY_HINT),
                    _ => ("the handshake", ""),
                };
                let why = format!(
                    "timed out: the server did not answer {what} within {span:?} (--start-timeout){hint}{}",
                    self.display.astray()
                );
                return Verdict::Exit(complain("call", why, status::TIMED_OUT));
            }
            Some(Err(_)) => return Verdict::Lost { why: None, last_progress: String::new() },
        }
        if let Some(level) = self.log_level {
            match interrupts.or(peer.set_log_level(level)).await {
                None => return cancelled(),
                Some(Ok(())) => {}
                // A server without logging is acceptable; one that does not answer is not.
                Some(Err(error)) => match outcome(error) {
                    Ok(Outcome::Invalid(_)) => self.display.print("call: the server sends no log records"),
                    Ok(Outcome::Error(error)) => {
                        self.display
                            .print(&one_line(&format!("call: the server did not change its log level: {}", explained(&error))));
                    }
                    Ok(outcome) => return self.report(outcome, None, None),
                    Err(error) => return self.failed(error),
                },
            }
        }
        let call = match &self.work {
            Work::List => return self.list(peer, interrupts).await,
            Work::Tool { name, arguments } => {
                self.display.begin(name);
                peer.call_tool(name, arguments.clone())
            }
            Work::Prompt { name, arguments } => {
                self.display.begin(name);
                peer.get_prompt(name, arguments)
            }
        };
        match call {
            Ok(call) => {
                let done = self.follow(call, interrupts).await;
                self.display.end();
                self.report(done.outcome, done.partial.as_ref(), done.last.as_deref()).because(done.why)
            }
            Err(error) => self.failed(error.into()),
        }
    }

    /// Shows the progress of a call until it ends, and cancels it after `--cancel-after` updates or on Ctrl-C.
    async fn follow<F, C>(&self, mut call: Call, interrupts: &mut Interrupts<F, C>) -> CallOutcome
    where
        F: FnMut() -> C,
        C: Future<Output = ()>,
    {
        let mut stopped = false;
        poll_fn(|task| {
            while interrupts.poll_next(task).is_ready() {
                stopped = true;
                self.display.end();
                call.cancel(Some("interrupted by the user"));
            }
            // Bounded, so that Ctrl-C is checked even if the server reports faster than the terminal can show.
            for _ in 0..UPDATES_A_TURN {
                let Some(update) = ready!(call.poll_progress(task)) else { return Poll::Ready(()) };
                if stopped {
                    continue;
                }
                let updates = self.display.update(&update);
                if Some(updates) == self.cancel_after {
                    stopped = true;
                    self.display.end();
                    call.cancel(Some(&format!("cancelled after {updates} updates")));
                }
            }
            task.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        call.await
    }

    fn report(&self, outcome: Outcome, partial: Option<&Json>, last: Option<&Progress>) -> Verdict {
        let last_progress = last_progress(last);
        if let Some(partial) = partial {
            print(&format!("{partial}\n"));
        }
        match outcome {
            Outcome::Result(result) => {
                let mut shown = Shown::new(self.save.as_deref());
                let status = match self.work {
                    Work::Prompt { .. } => show_prompt(&result, &mut shown),
                    Work::Tool { .. } | Work::List => show_result(&result, &mut shown),
                };
                Verdict::Exit(shown.end(status))
            }
            Outcome::Cancelled => Verdict::Exit(complain("call", format_args!("cancelled{last_progress}"), status::CANCELLED)),
            Outcome::Lost => Verdict::Lost { why: None, last_progress },
            Outcome::TimedOut(kind) => {
                let limits = self.config.timeouts.call;
                let why = match kind {
                    // The server may have sent log records, or comments over HTTP.
                    TimeoutKind::Idle => {
                        format!("neither an answer nor progress came for {:?} (--timeout)", limits.idle.unwrap_or_default())
                    }
                    TimeoutKind::MaxTotal => {
                        format!("it was not done within {:?} (--max-total)", limits.max_total.unwrap_or_default())
                    }
                };
                Verdict::Exit(complain(
                    "call",
                    format_args!("timed out: {why}{last_progress}{}", self.display.astray()),
                    status::TIMED_OUT,
                ))
            }
            Outcome::Error(error) => {
                let why = format!("the server answered with an error: {}{last_progress}", explained(&error));
                let status = complain("call", why, status::TOOL_ERROR);
                show_required(&error);
                Verdict::Exit(status)
            }
            Outcome::Invalid(Invalid::Unsupported) => {
                Verdict::Exit(complain("call", "the server does not offer this", status::TOOL_ERROR))
            }
            Outcome::Unanswered(error) => {
                let why = format_args!("the server asked, and was not answered: {}{last_progress}", explained(&error)).to_string();
                Verdict::Exit(complain("call", why, status::TOOL_ERROR))
            }
            Outcome::Invalid(Invalid::Unreadable(frame)) => Verdict::Exit(complain(
                "call",
                one_line(&format!("the answer of the server cannot be read: {frame}{last_progress}")),
                status::TOOL_ERROR,
            )),
            Outcome::Invalid(Invalid::TooManyRounds) => {
                Verdict::Exit(complain("call", format_args!("the server asked too many times{last_progress}"), status::TOOL_ERROR))
            }
            Outcome::Invalid(Invalid::TooDeep) => Verdict::Exit(complain(
                "call",
                format_args!("the server asked for sampling too deep{last_progress}"),
                status::TOOL_ERROR,
            )),
            _ => Verdict::Exit(complain(
                "call",
                format_args!("the answer of the server cannot be read{last_progress}"),
                status::TOOL_ERROR,
            )),
        }
    }

    fn failed(&self, error: CallError) -> Verdict {
        match outcome(error) {
            Ok(outcome) => self.report(outcome, None, None),
            Err(CallError::Lost(why)) => Verdict::Lost { why: Some(why), last_progress: String::new() },
            Err(error) => Verdict::Exit(complain("call", error, status::TOOL_ERROR)),
        }
    }

    /// Lists the tools, then the prompts, with name and description in one line each.
    async fn list<F, C>(&self, peer: &Peer, interrupts: &mut Interrupts<F, C>) -> Verdict
    where
        F: FnMut() -> C,
        C: Future<Output = ()>,
    {
        let (mut tools, mut prompts) = ((Vec::new(), None), (Vec::new(), None));
        let ended = {
            let listing = async {
                tools = listed(peer.list_tools().await);
                if peer.info().is_some_and(|peer| peer.capabilities.prompts) {
                    prompts = listed(peer.list_prompts().await);
                }
            };
            // The request for each page has the time limits of a call, and all pages together have the limit `max_total`.
            let max_total = self.config.timeouts.call.max_total;
            let mut listing = pin!(listing);
            let mut limit = pin!(start_thread(move || max_total.map_or_else(forever, thread::sleep)));
            let bounded = poll_fn(|task| match listing.as_mut().poll(task) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => limit.as_mut().poll(task).map(|_| Err(CallError::Ended(Outcome::TimedOut(TimeoutKind::MaxTotal)))),
            });
            interrupts.or(bounded).await
        };
        // Whatever was listed is shown, even if something else was not.
        self.display.end();
        let ((tools, tools_failed), (prompts, prompts_failed)) = (tools, prompts);
        let is_whole = matches!(ended, Some(Ok(()))) && tools_failed.is_none();
        let status = print(&table(&tools, &prompts));
        match (tools.is_empty(), prompts.is_empty()) {
            (true, true) if is_whole && prompts_failed.is_none() => {
                say(format_args!("call: the server offers no tools and no prompts"))
            }
            (true, _) if is_whole => say(format_args!("call: the server offers no tools")),
            _ => {}
        }
        let faults_of = |name: &str, faults: Vec<&str>| (!faults.is_empty()).then(|| format!("{} of {name}", faults.join(", ")));
        let of_tools = tools.iter().filter_map(|tool| faults_of(&tool.name, tool.faults()));
        let mut faults: Vec<_> = of_tools.chain(prompts.iter().filter_map(|one| faults_of(&one.name, one.faults()))).collect();
        match peer.counters().entries_dropped {
            0 => {}
            dropped => faults.push(format!("{dropped} without a name, left out")),
        }
        say_mended("the list", &faults);
        let Some(ended) = ended else { return cancelled() };
        let how = |shown: usize| if shown == 0 { "failed" } else { "is not complete" };
        let failures = [
            ("tools", how(tools.len()), tools_failed),
            ("prompts", how(prompts.len()), prompts_failed),
            ("rest", "failed", ended.err()),
        ];
        let mut verdict = None;
        for (what, how, error) in failures.into_iter().filter_map(|(what, how, error)| Some((what, how, error?))) {
            say(format_args!("call: the list of {what} {how}"));
            match self.failed(error) {
                lost @ Verdict::Lost { .. } => return lost,
                failed => verdict = verdict.or(Some(failed)),
            }
        }
        verdict.unwrap_or(Verdict::Exit(status))
    }
}

/// Says on stderr, in one line, which parts of an answer were not as they should be, and were read nevertheless.
fn say_mended(what: &str, faults: &[impl AsRef<str>]) {
    /// The maximum number of faults that are named.
    const MAX_SHOWN: usize = 8;
    if faults.is_empty() {
        return;
    }
    let named: Vec<_> = faults.iter().take(MAX_SHOWN).map(AsRef::as_ref).collect();
    let more = match faults.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    say(format_args!("{}", one_line(&format!("call: {what} has faults, and was mended: {}{more}", named.join("; ")))));
}

fn cancelled() -> Verdict {
    Verdict::Exit(complain("call", "cancelled", status::CANCELLED))
}

/// The text of an error of the server, with its data. Supported versions are listed as text, not as JSON; required URLs are left out, since
/// [`show_required`] prints them.
fn explained(error: &RpcError) -> String {
    #[derive(Deserialize)]
    struct Versions {
        supported: Vec<String>,
        requested: Option<String>,
    }
    let Some(data) = error.data.as_ref().filter(|data| data.as_str() != "null") else { return error.to_string() };
    if !error.required_urls().is_empty() {
        return format!("{error}: open what follows, then call again");
    }
    match data.decode::<Versions>() {
        Ok(Versions { supported, requested }) if error.code == UNSUPPORTED_VERSION => {
            let requested = requested.map(|version| format!(", not {version}")).unwrap_or_default();
            format!("{error}: it speaks {}{requested}", supported.join(", "))
        }
        _ => format!("{error}: {data}"),
    }
}

/// Prints the URLs that must be opened before the call is repeated, and the number of those beyond the maximum.
fn show_required(error: &RpcError) {
    /// The maximum number of printed URLs.
    const MAX_SHOWN: usize = 16;
    let urls = error.required_urls();
    for open in urls.iter().take(MAX_SHOWN) {
        say(format_args!("{}", described("To be opened first: ", open)));
    }
    if let Some(more @ 1..) = urls.len().checked_sub(MAX_SHOWN) {
        say(format_args!("and {more} more"));
    }
}

/// The code of the error that lists the versions of the protocol that the server supports.
const UNSUPPORTED_VERSION: i64 = -32022;

/// Converts an error of a call into the outcome that corresponds to it. Returns the error itself if there is none.
fn outcome(error: CallError) -> Result<Outcome, CallError> {
    match error {
        CallError::Ended(outcome) => Ok(outcome),
        CallError::Rpc(error) => Ok(Outcome::Error(error)),
        CallError::NotSent(InvokeError { why: SendError::Closing, .. }) => Ok(Outcome::Lost),
        CallError::NotSent(InvokeError { why: SendError::Unsupported, .. }) => Ok(Outcome::Invalid(Invalid::Unsupported)),
        error => Err(error),
    }
}

/// The items of a list that came, and the error of those that did not. A list that the server does not support is empty.
fn listed<T>(list: Result<Vec<T>, ListFailed<T>>) -> (Vec<T>, Option<CallError>) {
    match list {
        Ok(items) => (items, None),
        Err(ListFailed { items, why }) => match outcome(why) {
            Ok(Outcome::Invalid(Invalid::Unsupported)) => (items, None),
            Ok(outcome) => (items, Some(CallError::Ended(outcome))),
            Err(why) => (items, Some(why)),
        },
    }
}

/// The last progress as text, to be appended to a message about a call that was cut short.
fn last_progress(last: Option<&Progress>) -> String {
    match last.map(line).filter(|line| !line.is_empty()) {
        Some(line) => format!("; last heard: {line}"),
        None => String::new(),
    }
}

/// One line for each tool and prompt: the name, then the first line of the description, or of the title if there is no description, in
/// columns.
fn table(tools: &[ToolInfo], prompts: &[PromptInfo]) -> String {
    let tools = tools.iter().map(|tool| (&tool.name, "", tool.description.as_ref().or(tool.title.as_ref())));
    let prompts = prompts.iter().map(|one| (&one.name, "prompt: ", one.description.as_ref().or(one.title.as_ref())));
    let entries: Vec<_> = tools.chain(prompts).collect();
    let width = entries.iter().map(|(name, ..)| one_line(name).chars().count()).max().unwrap_or_default();
    let line = |(name, kind, summary): &(&Text, &str, Option<&Text>)| {
        let summary = summary.map(|summary| summary.as_str()).unwrap_or_default();
        let summary = summary.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let line = format!("{:width$}  {kind}{}", one_line(name), one_line(summary));
        line.trim_end().to_owned() + "\n"
    };
    entries.iter().map(line).collect()
}

/// Shows a result, and records whether everything could be saved.
struct Shown {
    folder: Option<Folder>,
    failed: bool,
}

impl Shown {
    fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Folder::new), failed: false }
    }

    /// The exit status, given `status` of the result itself.
    fn end(&self, status: u8) -> u8 {
        if self.failed && status == status::OK { status::TOOL_ERROR } else { status }
    }

    /// A block of content as text. A block without text is described; with `--save` its data is saved, too. A block that cannot be read is
    /// shown as JSON.
    fn block(&mut self, block: &Content) -> String {
        if let Some(text) = block.as_text() {
            return text.to_string();
        }
        let block = Json::from(block.clone());
        let given = |of: &Json, name: &str| of.member(name).and_then(|value| value.as_text_lossy()).map(|text| text.to_string());
        let text = |of: &Json, name: &str| given(of, name).unwrap_or_default();
        let resource = block.member("resource").unwrap_or_default();
        match given(&block, "type").as_deref() {
            Some("resource") => match given(&resource, "text") {
                Some(text) => text,
                None => self.saved(format!("[resource {}]", text(&resource, "uri")), "blob", &resource, "blob"),
            },
            Some("resource_link") => format!("[resource {}]", text(&block, "uri")),
            Some(kind @ ("image" | "audio")) => self.saved(format!("[{kind} {}]", text(&block, "mimeType")), kind, &block, "data"),
            Some("text") | None => block.to_string(),
            Some(kind) => format!("[{kind} {}]", text(&block, "mimeType")),
        }
    }

    /// Saves the member `data` of `block` if `--save` is set, and appends the path to `name`.
    fn saved(&mut self, name: String, kind: &str, block: &Json, data: &str) -> String {
        let Some(folder) = &mut self.folder else { return name };
        let text = |name: &str| block.member(name).and_then(|value| value.as_text());
        let data = text(data).ok_or_else(|| "it has no data".to_owned());
        match data.and_then(|data| folder.save(kind, &data, text("mimeType").as_deref().unwrap_or_default())) {
            Ok(path) => format!("{name} saved as {}", path.display()),
            Err(why) => {
                self.failed = true;
                complain("call", format_args!("{name} cannot be saved: {why}"), status::TOOL_ERROR);
                name
            }
        }
    }
}

/// Prints the content of a tool's result, and its structured content if no block is text; to stderr if the tool failed. Returns the exit
/// status.
fn show_result(result: &Json, shown: &mut Shown) -> u8 {
    let Some(read) = ToolResult::read(result) else {
        say_mended("the result", &["no `content`"]);
        return print(&format!("{result}\n"));
    };
    say_mended("the result", &read.faults());
    let mut text: String = read.content.iter().map(|block| shown.block(block) + "\n").collect();
    if !read.content.iter().any(|block| block.as_text().is_some())
        && let Some(structured) = result.given("structuredContent")
    {
        text.push_str(structured.mended().as_ref().unwrap_or(&structured).as_str());
        text.push('\n');
    }
    if !read.is_error {
        return print(&text);
    }
    let text = if text.trim().is_empty() { "the tool failed without a message\n" } else { &text };
    let _ = write!(stderr(), "{}", printable(text));
    status::TOOL_ERROR
}

/// Prints the description of a prompt, then its messages; if there are several, each with its role. Returns the exit status.
fn show_prompt(result: &Json, shown: &mut Shown) -> u8 {
    let Some(read) = PromptResult::read(result) else {
        say_mended("the result", &["no list of messages"]);
        return print(&format!("{result}\n"));
    };
    say_mended("the result", &read.faults());
    let mut parts: Vec<String> = read.description.iter().map(ToString::to_string).collect();
    let several = read.messages.len() > 1;
    parts.extend(read.messages.iter().map(|message| {
        let text = message.content.iter().map(|block| shown.block(block)).collect::<Vec<_>>().join("\n");
        if several && !message.role.is_empty() { format!("{}: {text}", message.role) } else { text }
    }));
    print(&(parts.join("\n\n") + "\n"))
}

/// Writes to stdout, and returns the exit status. A closed pipe is not an error.
fn print(text: &str) -> u8 {
    let mut out = stdout().lock();
    // A file or a pipe gets the text byte for byte.
    let text = if out.is_terminal() { printable(text) } else { text.into() };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain("call", format_args!("the result cannot be written: {error}"), status::TOOL_ERROR)
        }
        _ => status::OK,
    }
}

#[cfg(test)]
mod tests {
    use protocol_core::{MemberFault, OpenUrl};

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn a_list_is_printed_in_aligned_columns() {
        let tools = [
            r#"{"name":"a","description":"\n First line.\nSecond line."}"#,
            r#"{"name":"longer","title":"A title"}"#,
            r#"{"name":"mute"}"#,
        ]
        .map(|tool| ToolInfo::read(json(tool)).unwrap());
        let prompts = [PromptInfo::read(json(r#"{"name":"p","description":"Says it."}"#)).unwrap()];
        assert_eq!(table(&tools, &prompts), "a       First line.\nlonger  A title\nmute\np       prompt: Says it.\n");
    }

    #[test]
    fn blocks_without_text_are_described() {
        let text = |block: &str| Shown::new(None).block(&Content::Raw(json(block)));
        assert_eq!(text(r#"{"type":"text","text":"a\nb"}"#), "a\nb");
        assert_eq!(text(r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#), "[image image/png]");
        assert_eq!(text(r#"{"type":"resource_link","uri":"file:///a"}"#), "[resource file:///a]");
        assert_eq!(text(r#"{"type":"resource","resource":{"uri":"file:///a","text":"inside"}}"#), "inside");
        assert_eq!(text(r#"{"type":"resource","resource":{"uri":"file:///a","blob":"AAAA"}}"#), "[resource file:///a]");
        // Blocks that some servers send, and that are no blocks of the protocol.
        assert_eq!(text(r#""plain""#), "plain");
        assert_eq!(text(r#"{"type":"text","text":{"a":1}}"#), r#"{"type":"text","text":{"a":1}}"#);
        assert_eq!(text(r#"{"text":"a"}"#), r#"{"text":"a"}"#);
    }

    #[test]
    fn an_error_about_versions_lists_them_and_one_about_addresses_announces_them() {
        let with = |code, data: &str| {
            let error = RpcError::fixed(code, "unsupported").with_data(json(data));
            explained(&error)
        };
        let both = r#"{"supported":["2026-07-28","2025-11-25"],"requested":"2024-11-05"}"#;
        assert_eq!(with(-32022, both), "unsupported (-32022): it speaks 2026-07-28, 2025-11-25, not 2024-11-05");
        assert_eq!(with(-32022, r#"{"supported":["2026-07-28"]}"#), "unsupported (-32022): it speaks 2026-07-28");
        assert_eq!(with(-32022, "[1]"), "unsupported (-32022): [1]");
        assert_eq!(with(-1, both), format!("unsupported (-1): {both}"));
        assert_eq!(explained(&RpcError::fixed(-1, "no")), "no (-1)");
        assert_eq!(with(-1, "null"), "unsupported (-1)");
        let required = RpcError::url_elicitation_required(&[OpenUrl::new("a", "https://a/").with_id("1")]);
        let why = "an address must be opened first (-32042): open what follows, then call again";
        assert_eq!(explained(&required), why);
        assert_eq!(with(-32042, "{}"), "unsupported (-32042): {}");
    }

    /// Without a pattern for each reason, all of them were a lost server.
    #[test]
    fn the_end_of_a_connection_says_whether_the_server_is_lost_or_cannot_be_used() {
        let explained = |reason| explained_end(&reason, None);
        let invalid = "the server cannot be used: this end refused the peer's answer to the handshake: `serverInfo` is missing";
        for (reason, why, status) in [
            (Ok(CloseReason::Eof), "the server is lost: the peer ended the connection", 4),
            (Ok(CloseReason::AnswerInvalid("serverInfo", MemberFault::Missing)), invalid, 4),
            (Ok(CloseReason::VersionMismatch), "the server cannot be used: no protocol revision is common to both ends", 4),
            (Err(Error::broken("reset")), "the server is lost: the connection broke: reset", 4),
            (
                Err(Error::Server(HttpFailure::NoAnswer)),
                "timed out: the server does not answer server/discover; for an old server, try --era legacy",
                3,
            ),
            (Err(Error::Server(HttpFailure::Ended)), "the server is lost: the server has ended the connection", 4),
        ] {
            assert_eq!(explained(reason), (why.to_owned(), status));
        }
    }

    #[test]
    fn the_last_update_is_appended_to_an_error() {
        assert_eq!(last_progress(Some(&Progress::step(3, 20).with_message("step 3/20"))), "; last heard: 3/20 15% step 3/20");
        assert_eq!(last_progress(None), "");
    }
}
