//! The tools that the programs `tools` and `call` serve, on every adapter.
//!
//! They show one by one what a long-running tool does: report how far it is, stop when it is cancelled, leave behind what it
//! got done, and ask its caller for a model, a yes, a name or a browser.

mod asking;
mod bulk;
pub mod clock;
mod count;
mod counting;
mod output;
mod workflow;

use std::future::Future;
use std::time::Duration;

use endpoint::{Context, Service, Tool, ToolError};
use protocol_core::{Identity, ToolOutput};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audit::{Audit, Record};

/// The options of the owner of the server.
#[derive(Clone, Default)]
pub struct Options {
    /// The time limit of a call; then its caller is told so and the wire is free. `None`: no limit.
    pub deadline: Option<Duration>,
    /// The audit that gets a line for each call.
    pub audit: Audit,
    /// `true` if the partial result of a call rides on its progress, so that a caller that cancels has it.
    pub partial_on_progress: bool,
}

/// All the tools and the prompt.
#[must_use]
pub fn service(options: &Options) -> Service {
    let audit = &options.audit;
    let (deadline, partial_on_progress) = (options.deadline, options.partial_on_progress);
    Service::new(Identity::new("tools", env!("CARGO_PKG_VERSION")))
        .instructions(
            "Tools that take their time: they report progress, can be cancelled at any moment and say what they got done.",
        )
        .configure(|config| {
            config.timeouts.serve = deadline;
            config.progress.partial_on_progress = partial_on_progress;
        })
        .tool(counting::progress(audit))
        .tool(output::long_output(audit))
        .tool(output::chatty(audit))
        .tool(counting::countdown(audit))
        .tool(bulk::bulk(audit))
        .tool(asking::whoami(audit))
        .tool(counting::stuck(audit))
        .tool(asking::summarise(audit))
        .tool(asking::delete(audit))
        .tool(asking::rename(audit))
        .tool(asking::connect(audit))
        .prompt(workflow::analysis_workflow(audit))
}

/// A tool whose calls are audited and whose result is structured.
fn structured<A, R, F, Fut>(audit: &Audit, name: &'static str, handler: F) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: Serialize + JsonSchema + Send + 'static,
    F: Fn(Context, A, Record) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
{
    let audit = audit.clone();
    Tool::new(name, move |context: Context, arguments: A| {
        let (watch, record) = audit.open(name, &context);
        watch.over(handler(context, arguments, record))
    })
}

/// A tool whose calls are audited and that shapes its result itself.
fn shaped<A, F, Fut>(audit: &Audit, name: &'static str, handler: F) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(Context, A, Record) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let audit = audit.clone();
    Tool::with_output(name, move |context: Context, arguments: A| {
        let (watch, record) = audit.open(name, &context);
        watch.over(handler(context, arguments, record))
    })
}

#[cfg(test)]
mod tests;
