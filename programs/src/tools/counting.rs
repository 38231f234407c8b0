//! Long-running tools: `progress`, `countdown` and `stuck`.

use std::future::pending;

use endpoint::{Context, Tool};
use protocol_core::{Progress, RateWindow, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audited::{shaped, structured};
use super::count::Count;
use crate::audit::{Audit, Record};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgressArguments {
    /// number of progress notifications to emit; default 5; max 100
    #[serde(default)]
    steps: Count<5, 100>,
    /// sleep between steps in ms; default 200; max 5000
    #[serde(default)]
    step_ms: Count<200, 5000>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Stepped {
    /// steps that were completed
    steps: u64,
    /// whether the caller asked for progress
    notified: bool,
    /// whether these are all the steps
    done: bool,
}

/// Reports `step i/steps` in each step, and then sleeps. If the caller asked for progress, every update is sent, since the rate is not
/// limited.
pub(super) fn progress(audit: &Audit) -> Tool {
    structured(audit, "progress", async |context: Context, arguments: ProgressArguments, record: Record| {
        let steps = arguments.steps.get();
        let mut so_far = Stepped { steps: 0, notified: context.is_observed(), done: false };
        for step in 0..=steps {
            so_far.steps = step;
            record.steps(step);
            if step == steps {
                break;
            }
            // Stored in each step, since nothing can be sent after the call is cut short.
            context.checkpoint(&so_far);
            record.partial({
                let so_far = so_far.clone();
                move || so_far.clone()
            });
            let next = step + 1;
            context.progress(Progress::step(next, steps).with_message(format!("step {next}/{steps}")));
            context.sleep(arguments.step_ms.millis()).await?;
        }
        so_far.done = true;
        Ok(so_far)
    })
    .title("Progress")
    .description("Works through a number of steps and reports each of them as progress before it begins.")
    .rate_window(RateWindow::UNLIMITED)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountdownArguments {
    /// where to begin; default 10; max 3600
    #[serde(default)]
    // The default, the maximum and the minimum: a countdown may begin at 0.
    from: Count<10, 3600, 0>,
    /// time between two numbers in ms; default 1000; max 5000
    #[serde(default)]
    step_ms: Count<1000, 5000>,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    /// what became of it
    result: &'static str,
    /// where it began
    from: u64,
}

/// Counts down to zero and stops as soon as it is cancelled.
pub(super) fn countdown(audit: &Audit) -> Tool {
    structured(audit, "countdown", async |context: Context, arguments: CountdownArguments, record: Record| {
        let from = arguments.from.get();
        for number in (0..=from).rev() {
            let message = match number {
                0 => "Countdown complete! 🎉".to_owned(),
                number => format!("Counting down: {number}"),
            };
            context.progress(Progress::step(from - number, from).with_message(message));
            record.steps(from - number);
            if number > 0
                && let Err(cancelled) = context.sleep(arguments.step_ms.millis()).await
            {
                // This is the place to clean up after a cancel. No frame can be sent any longer, but there is time to release resources.
                record.partial(move || serde_json::json!({ "result": "Countdown stopped", "from": from, "at": number }));
                return Err(cancelled.into());
            }
        }
        Ok(Counted { result: "Countdown completed successfully", from })
    })
    .title("Countdown")
    .description("Counts down to zero, one number a step. Can be cancelled at any time.")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StuckArguments {
    /// how long to hang in ms; default 60000
    #[serde(default)]
    ms: Count<60_000>,
}

/// Hangs, and ignores cancels and deadlines.
pub(super) fn stuck(audit: &Audit) -> Tool {
    shaped(audit, "stuck", async |context: Context, arguments: StuckArguments, _: Record| {
        let span = arguments.ms.millis();
        if context.sleep(span).await.is_err() {
            // `sleep` ends early on a cancel. To act like a handler that ignores cancels, wait until the endpoint drops it.
            pending::<()>().await;
        }
        Ok(ToolOutput::text(format!("hung for {} ms", span.as_millis())))
    })
    .title("Stuck")
    .description("Hangs for a while and never looks whether anybody still waits. The deadline of the server frees its caller.")
}
