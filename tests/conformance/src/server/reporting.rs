//! Tools that report progress or log records, run for some time, or go on after their HTTP response has ended.

use std::time::Duration;

use endpoint::{Context, Tool};
use http_service::ResponseStream;
use protocol_core::{Level, Progress};
use schemars::JsonSchema;
use serde::Deserialize;

const STEP: Duration = Duration::from_millis(50);

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("test_tool_with_progress", async |context: Context, ()| {
            for value in [0, 50, 100] {
                context.progress(Progress::step(value, 100));
                context.sleep(STEP).await?;
            }
            Ok("Progress was reported.")
        })
        .description("Reports progress three times."),
        Tool::new("test_tool_with_logging", async |context: Context, ()| {
            for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                context.log(Level::Info, text);
                context.sleep(STEP).await?;
            }
            Ok("Records were logged.")
        })
        .description("Logs three records."),
        Tool::new("test_logging_tool", async |context: Context, ()| {
            context.log(Level::Info, "A record that is sent only to a caller that asks for records");
            Ok("A record was logged.")
        })
        .description("Logs a record."),
        Tool::new("test_reconnection", async |context: Context, ()| {
            context.sleep(2 * STEP).await?;
            if let Some(stream) = context.extensions().get::<ResponseStream>() {
                // Fails if the client cannot resume the stream; the response then stays open.
                let _ = stream.suspend();
            }
            context.sleep(2 * STEP).await?;
            Ok("Reconnection test completed successfully.")
        })
        .description("Ends its response before its call, so that the client comes back for the result."),
        Tool::new("work", async |context: Context, Work { steps }: Work| {
            for step in 1..=steps {
                context.progress(Progress::step(step, steps));
                context.sleep(2 * STEP).await?;
            }
            Ok(format!("worked {steps} steps"))
        })
        .description("Reports progress ten times a second."),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Work {
    /// the number of steps
    steps: u64,
}
