//! The tools that the programs `tools` and `call` serve, on every adapter.
//!
//! Most of them show a feature of a long-running tool: progress, cancellation, partial results, and input requests for sampling,
//! confirmation, forms and URLs.

mod asking;
mod audited;
mod bulk;
pub mod clock;
mod count;
mod counting;
mod output;
mod workflow;

use std::time::Duration;

use endpoint::Service;

use crate::audit::Audit;

/// The options of the tools.
#[derive(Clone, Default)]
pub struct Options {
    /// The time limit of a call; `None` for no limit.
    pub deadline: Option<Duration>,
    /// The audit log of calls.
    pub audit: Audit,
    /// `true` to send the partial result with each progress update, so that a caller that cancels has it.
    pub partial_on_progress: bool,
}

/// The service with all tools and the prompt.
#[must_use]
pub fn service(options: &Options) -> Service {
    let audit = &options.audit;
    let (deadline, partial_on_progress) = (options.deadline, options.partial_on_progress);
    Service::new("tools", env!("CARGO_PKG_VERSION"))
        .instructions("Long-running tools: they report progress, can be cancelled at any moment and say what they got done.")
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
        .tool(asking::survey(audit))
        .prompt(workflow::analysis_workflow(audit))
}

#[cfg(test)]
mod tests;
