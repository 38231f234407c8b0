//! Answers the input requests of a server, from the command line or by asking the person at the terminal.

use std::future::Future;
use std::io::{self, IsTerminal, Read, Write, stderr, stdin};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use endpoint::{BoxFuture, Client, InputContext};
use protocol_core::{
    Capabilities, Elicit, ElicitResult, Json, LogRecord, NoDefault, Notification, OpenUrl, OpenUrlResult, RpcError, Sample,
    SampleResult, Unreadable,
};

use super::addresses::{Addresses, described};
use super::arguments::{Forms, Root, Samples};
use super::display::Display;
use super::person::Person;
use crate::adapter::start_thread;

/// The [`Client`] of `call`.
pub(super) struct Answers {
    display: Arc<Display>,
    forms: Answering<Forms>,
    urls: Answering<OpenUrlResult>,
    /// `true` to open accepted URLs in the browser.
    opens: bool,
    addresses: Arc<Addresses>,
    samples: Answering<Samples>,
    roots: Vec<Root>,
    /// The number of `--sample-cmd` processes that are running.
    commands: Arc<AtomicUsize>,
}

/// The source of the answers to one kind of input request.
#[derive(Clone)]
enum Answering<T> {
    Unavailable,
    /// The person at the terminal.
    Person,
    /// The command line.
    With(T),
}

impl<T> Answering<T> {
    fn new(given: Option<T>, person: bool) -> Self {
        match given {
            Some(given) => Self::With(given),
            None if person => Self::Person,
            None => Self::Unavailable,
        }
    }

    const fn is_available(&self) -> bool {
        !matches!(self, Self::Unavailable)
    }
}

impl Answers {
    /// Uses the answers of the command line. Forms, URLs and sampling requests that have no answer there are answered by the person at the
    /// terminal, if stdin and stderr are terminals; otherwise they are not available. Roots come only from the command line.
    pub(super) fn new(
        display: Arc<Display>,
        forms: Option<Forms>,
        opens: bool,
        samples: Option<Samples>,
        roots: Vec<Root>,
    ) -> Self {
        let person = stdin().is_terminal() && stderr().is_terminal();
        let consent = match forms {
            Some(Forms::Accept) => Some(OpenUrlResult::Accept),
            Some(Forms::Decline) => Some(OpenUrlResult::Decline),
            // `--answer` fills in forms, and gives no consent to open a URL.
            Some(Forms::Content(_)) | None => None,
        };
        Self {
            forms: Answering::new(forms, person),
            urls: Answering::new(consent, person),
            opens,
            addresses: Arc::new(Addresses::new(Arc::clone(&display))),
            samples: Answering::new(samples, person),
            roots,
            commands: Arc::default(),
            display,
        }
    }

    /// Asks the person at the terminal, one question at a time. The question waits for the first poll of the future, and for the end of any
    /// earlier question. The future returns `None` if the terminal cannot be read or written.
    fn ask<T, Q>(&self, question: Q) -> impl Future<Output = Option<T>> + Send + use<T, Q>
    where
        T: Send + 'static,
        Q: FnOnce(&mut Person<'_>) -> io::Result<T> + Send + 'static,
    {
        static TERMINAL: Mutex<()> = Mutex::new(());
        let display = Arc::clone(&self.display);
        async move {
            let wanted = Wanted::default();
            let (is_wanted, screen) = (Arc::clone(&wanted.0), Arc::clone(&display));
            let mut withdrawal = Withdrawal { display, wanted, answered: false };
            let answer = start_thread(move || {
                let _alone = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
                if !is_wanted.load(Ordering::Acquire) {
                    return None;
                }
                let _hidden = screen.hide_bar();
                question(&mut Person { output: &mut stderr(), input: &mut stdin().lock() }).ok()
            })
            .await;
            withdrawal.answered = true;
            answer
        }
    }
}

/// A flag that is `true` while an answer is needed.
struct Wanted(Arc<AtomicBool>);

impl Default for Wanted {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

/// Withdraws a question when it is dropped. If there is no answer yet, it also prints that the answer is no longer needed, unless the
/// display has ended.
struct Withdrawal {
    display: Arc<Display>,
    wanted: Wanted,
    answered: bool,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.wanted.0.store(false, Ordering::Release);
        if !self.answered && !self.display.is_over() {
            self.display.print("call: the answer is no longer needed; press Enter to go on");
        }
    }
}

impl Client for Answers {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.sampling = self.samples.is_available();
        capabilities.elicitation = self.forms.is_available();
        capabilities.elicitation_url = self.urls.is_available();
        capabilities.roots = !self.roots.is_empty();
        capabilities
    }

    fn sample(&self, _: InputContext, sample: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        match &self.samples {
            Answering::Unavailable => {
                Box::pin(async { Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "sampling is not available")) })
            }
            Answering::With(Samples::Reply(text)) => {
                let reply = SampleResult::new(text.clone(), "sample-reply");
                Box::pin(async { Ok(reply) })
            }
            Answering::With(Samples::Command(command)) => {
                let Some(permit) = Permit::take(&self.commands) else {
                    return Box::pin(async { Err(RpcError::internal("too many questions for the model at once")) });
                };
                let reply = run(command, sample.prompt);
                Box::pin(async move {
                    let _permit = permit;
                    match reply.await {
                        Ok(text) => Ok(SampleResult::new(text, "sample-cmd")),
                        Err(why) => Err(RpcError::internal(format!("the command that answers for the model failed: {why}"))),
                    }
                })
            }
            Answering::Person => {
                let reply = self.ask(move |person| person.reply(&sample.prompt));
                Box::pin(async move {
                    match reply.await.flatten() {
                        Some(text) => Ok(SampleResult::new(text, "a person")),
                        None => Err(RpcError::fixed(RpcError::USER_REJECTED, "the user would not answer for a model")),
                    }
                })
            }
        }
    }

    fn elicit(&self, _: InputContext, form: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        let answer = match &self.forms {
            Answering::Unavailable => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "elicitation is not available")),
            Answering::With(Forms::Decline) => Ok(ElicitResult::Decline),
            // A confirmation has no field that `--answer` could fill in, so it is accepted as with `--accept`.
            Answering::With(Forms::Content(content)) if !form.is_confirmation() => Ok(ElicitResult::Accept(content.clone())),
            Answering::With(Forms::Content(_) | Forms::Accept) => match form.defaults() {
                Ok(content) => Ok(ElicitResult::Accept(content)),
                Err(NoDefault { field, .. }) => {
                    let why = format!("--accept has nothing to put into the field {field}; --answer can fill it");
                    self.display.print(&format!("call: {why}"));
                    Err(RpcError::internal(why))
                }
            },
            Answering::Person => {
                let answer = self.ask(move |person| person.fill(&form));
                return Box::pin(async move { Ok(answer.await.unwrap_or(ElicitResult::Cancel)) });
            }
        };
        Box::pin(async { answer })
    }

    fn open_url(&self, _: InputContext, open: OpenUrl) -> BoxFuture<'static, Result<OpenUrlResult, RpcError>> {
        let addresses = Arc::clone(&self.addresses);
        let opens = self.opens;
        let consent = match self.urls {
            Answering::Unavailable => Err(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "opening addresses is not available")),
            Answering::With(consent) => {
                if consent == OpenUrlResult::Accept {
                    self.display.print(&described("call: the server asks to open an address (--accept): ", &open));
                    addresses.agree(&open, opens);
                }
                Ok(consent)
            }
            Answering::Person => {
                let asked = open.clone();
                let answer = self.ask(move |person| person.consent(&asked, opens));
                return Box::pin(async move {
                    let (consent, opens) = answer.await.unwrap_or((OpenUrlResult::Cancel, false));
                    if consent == OpenUrlResult::Accept {
                        addresses.agree(&open, opens);
                    }
                    Ok(consent)
                });
            }
        };
        Box::pin(async move { consent })
    }

    fn roots(&self, _: InputContext) -> BoxFuture<'static, Result<Json, RpcError>> {
        let roots = Json::encode(&self.roots).map_err(|error| RpcError::internal(error.to_string()));
        Box::pin(async { roots })
    }

    fn log(&self, record: LogRecord) {
        self.display.log(&record);
    }

    fn unreadable(&self, frame: &Unreadable) {
        self.display.unreadable(frame);
    }

    fn notification(&self, notification: Notification) {
        if let Notification::ElicitationComplete { id } = notification {
            self.addresses.done(&id);
        }
    }
}

/// A permit for one running command. The number of permits is bounded, since a server may send any number of sampling requests.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    const MAX: usize = 8;

    /// Takes a permit. Returns `None` if [`Self::MAX`] commands are running.
    fn take(running: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count| (count < Self::MAX).then_some(count + 1);
        running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(Arc::clone(running)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a shell command with `input` on its stdin, and returns its stdout without trailing line ends. The shell starts when the future is
/// first polled. Dropping the future kills the shell, unless the stdout of the command has already ended.
fn run(command: &str, input: String) -> impl Future<Output = Result<String, String>> + Send + use<> {
    let mut shell = shell(command);
    async move {
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let running = Running(Arc::new(Mutex::new(child)));
        if let Some(mut stdin) = stdin {
            // A separate thread writes the input, since a command may write its answer before it has read the input, or never read it.
            thread::spawn(move || stdin.write_all(input.as_bytes()));
        }
        let ended = Arc::clone(&running.0);
        start_thread(move || {
            let mut text = String::new();
            if let Some(mut stdout) = stdout {
                stdout.read_to_string(&mut text).map_err(|error| error.to_string())?;
            }
            let status = ended.lock().unwrap_or_else(PoisonError::into_inner).wait().map_err(|error| error.to_string())?;
            if status.success() { Ok(text.trim_end_matches(['\r', '\n']).to_owned()) } else { Err(status.to_string()) }
        })
        .await
    }
}

/// A running shell, which is killed when this is dropped.
struct Running(Arc<Mutex<Child>>);

impl Drop for Running {
    fn drop(&mut self) {
        // If the child is locked, the stdout of the command has ended, and the thread waits for the exit of the shell. Child processes of
        // the shell are not killed.
        if let Ok(mut child) = self.0.try_lock() {
            let _ = child.kill();
        }
    }
}

#[cfg(unix)]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    shell
}

#[cfg(not(unix))]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("cmd");
    shell.arg("/C").arg(command);
    shell
}
