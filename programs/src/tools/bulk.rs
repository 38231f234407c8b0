//! A tool that works through a list and stores its partial result: `bulk`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use endpoint::{Context, Tool};
use protocol_core::partial::Status;
use protocol_core::{Level, PartialResult, Progress};
use schemars::JsonSchema;
use serde::Deserialize;

use super::audited::shaped;
use super::count::Count;
use crate::audit::{Audit, Record};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BulkArguments {
    /// what to process, one by one; at most 10000
    #[schemars(length(max = 10_000))]
    items: Vec<String>,
    /// which of the items fail
    #[serde(default)]
    fail: Vec<String>,
    /// time for each item in ms; default 10; max 5000
    #[serde(default)]
    step_ms: Count<10, 5000>,
}

/// The maximum number of checkpoints of a job after the first one. A checkpoint has the whole state, so a checkpoint after each of 10 000
/// items would cost more than the job itself.
const CHECKPOINTS: u64 = 100;

/// Processes items one by one, and stores the partial result meanwhile. An item that fails is recorded, and the other items are processed.
pub(super) fn bulk(audit: &Audit) -> Tool {
    shaped(audit, "bulk", async |context: Context, arguments: BulkArguments, record: Record| {
        let total = arguments.items.len() as u64;
        let fail: HashSet<String> = arguments.fail.into_iter().collect();
        let job = Job::new(total);
        record.partial({
            let job = job.clone();
            move || job.state().clone()
        });
        record.steps(0);
        context.checkpoint(&*job.state());
        for item in arguments.items {
            context.sleep(arguments.step_ms.millis()).await?;
            let fails = fail.contains(&item);
            let message = format!("{item} {}", if fails { "failed" } else { "done" });
            if fails {
                context.log(Level::Warning, serde_json::json!({ "item": item }));
                job.state().fail(item, "it was asked to fail");
            } else {
                job.state().succeed(item);
            }
            let done = job.state().done();
            record.steps(done);
            if done.is_multiple_of(total.div_ceil(CHECKPOINTS)) {
                context.checkpoint(&*job.state());
            }
            context.progress(Progress::step(done, total).with_message(message));
        }
        Ok(job.state().clone().into_output(Status::Complete))
    })
    .title("Bulk")
    .description("Processes a list of items one by one. Cut short, it says which are done, which failed and how many remain.")
}

/// The state of a job, for the handler and for the audit. A clone is another handle to the same state.
#[derive(Clone)]
struct Job(Arc<Mutex<PartialResult>>);

impl Job {
    fn new(total: u64) -> Self {
        Self(Arc::new(Mutex::new(PartialResult::new(total))))
    }

    fn state(&self) -> MutexGuard<'_, PartialResult> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
