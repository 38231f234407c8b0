//! The audit log of the tools: one line of JSON for each call.

use std::fs::{File, OpenOptions};
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use endpoint::{Context, ToolError};
use protocol_core::CancelReason;
use serde::Serialize;
use serde_json::Value;

/// The log file. A clone is another handle to the same file. The default has no file, and writes nothing.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Mutex<dyn Write + Send>>>);

impl Audit {
    /// Appends lines to the file at `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// An error if the file cannot be opened for writing.
    pub fn append(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self::to::<File>)
    }

    /// Writes lines to `sink`, each in one write.
    pub fn to<W: Write + Send + 'static>(sink: W) -> Self {
        Self(Some(Arc::new(Mutex::new(sink))))
    }

    /// Starts the audit of a call of `tool`. The line of the call is written when the call ends or is cut short, or when its handler is
    /// dropped and will not run again.
    pub(crate) fn open(&self, tool: &'static str, context: &Context) -> (AuditedCall, Record) {
        let record = Record::default();
        (AuditedCall { audit: self.clone(), tool, context: context.clone(), record: record.clone(), written: false }, record)
    }

    fn write(&self, line: &Line<'_>) {
        let Some(sink) = &self.0 else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = sink.write_all(&text).and_then(|()| sink.flush()) {
            eprintln!("tools: the audit line of {} is lost: {error}", line.tool);
        }
    }
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    tool: &'a str,
    outcome: Outcome,
    done: bool,
    steps: Option<u64>,
    partial: Option<Value>,
}

/// The outcome of a call, as the log names it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok,
    Error,
    Cancelled,
    Timeout,
}

impl From<&CancelReason> for Outcome {
    fn from(why: &CancelReason) -> Self {
        match why {
            CancelReason::Deadline => Self::Timeout,
            _ => Self::Cancelled,
        }
    }
}

/// The data that a tool records while it runs. A clone is another handle to the same data.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    steps: Option<u64>,
    partial: Option<Box<dyn Fn() -> Option<Value> + Send>>,
}

impl Record {
    /// Records the number of steps that are done.
    pub(crate) fn steps(&self, steps: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).steps = Some(steps);
    }

    /// Sets the partial result to record if the call is cut short or fails. `partial` is called only then.
    pub(crate) fn partial<T: Serialize>(&self, partial: impl Fn() -> T + Send + 'static) {
        let partial = move || serde_json::to_value(partial()).ok();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).partial = Some(Box::new(partial));
    }
}

/// Writes the line of a call when it ends.
pub(crate) struct AuditedCall {
    audit: Audit,
    tool: &'static str,
    context: Context,
    record: Record,
    written: bool,
}

impl AuditedCall {
    /// Runs `work`, the handler of the call.
    ///
    /// If the call is cut short, its line is written after the next poll of the handler, so that the handler can clean up in that poll. A
    /// handler that ignores the cancel is not waited for.
    pub(crate) async fn over<T>(mut self, work: impl Future<Output = Result<T, ToolError>>) -> Result<T, ToolError> {
        let mut work = pin!(work);
        let context = self.context.clone();
        let mut cancelled = pin!(context.cancelled());
        let mut why = None;
        poll_fn(|task| {
            if why.is_none()
                && let Poll::Ready(reason) = cancelled.as_mut().poll(task)
            {
                why = Some(reason);
            }
            let result = work.as_mut().poll(task);
            match (&why, &result) {
                (Some(why), _) => self.write(why.into()),
                (None, Poll::Ready(Ok(_))) => self.write(Outcome::Ok),
                (None, Poll::Ready(Err(_))) => self.write(Outcome::Error),
                (None, Poll::Pending) => {}
            }
            result
        })
        .await
    }

    fn write(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let done = outcome == Outcome::Ok;
        let notes = std::mem::take(&mut *self.record.0.lock().unwrap_or_else(PoisonError::into_inner));
        let partial = notes.partial.filter(|_| !done).and_then(|partial| partial());
        self.audit.write(&Line { tool: self.tool, outcome, done, steps: notes.steps, partial });
    }
}

impl Drop for AuditedCall {
    /// A handler may be dropped by the end of the program, by the end of its grace, or by a panic.
    fn drop(&mut self) {
        // The handler will run again with the answers, and that run has a record of its own.
        if self.context.will_run_again() {
            return;
        }
        let outcome = match self.context.cancellation().reason() {
            Some(why) => Outcome::from(&why),
            None if std::thread::panicking() => Outcome::Error,
            None => Outcome::Cancelled,
        };
        self.write(outcome);
    }
}
