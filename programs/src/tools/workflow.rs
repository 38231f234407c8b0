//! A long-running prompt: `analysis_workflow`.

use std::collections::BTreeMap;
use std::time::Duration;

use endpoint::{Context, Prompt, PromptMessage, PromptOutput, ToolError};
use protocol_core::{Progress, RateWindow, RpcError};

use crate::audit::{Audit, Record};

const STEPS: [(&str, &str); 5] = [
    ("gather", "Gathering information and context"),
    ("analyze", "Analyzing data and patterns"),
    ("synthesize", "Synthesizing insights"),
    ("validate", "Validating conclusions"),
    ("format", "Formatting final report"),
];

/// A prompt that takes five steps, and returns one message that lists them.
pub(super) fn analysis_workflow(audit: &Audit) -> Prompt {
    let audit = audit.clone();
    Prompt::new("analysis_workflow", move |context: Context, arguments: BTreeMap<String, String>| {
        let (audited, record) = audit.open("analysis_workflow", &context);
        audited.over(run(context, arguments, record))
    })
    .title("Analysis workflow")
    .description("Works through the five steps of an analysis and hands back a report to review.")
    .argument("topic", "what to analyse; default general analysis", false)
    .argument("step_ms", "time for each step in ms, in digits; default 1000", false)
    // The rate is unlimited, so that each of the five updates is sent.
    .rate_window(RateWindow::UNLIMITED)
}

async fn run(context: Context, arguments: BTreeMap<String, String>, record: Record) -> Result<PromptOutput, ToolError> {
    let (topic, pause) = read(&arguments)?;
    let mut report = format!("Analysis Workflow Complete\n\nTopic: {topic}\n\nSteps:\n");
    for ((name, description), number) in STEPS.into_iter().zip(1_u64..) {
        context.progress(
            Progress::step(number, STEPS.len() as u64).with_message(format!("Step {number}/{}: {description}", STEPS.len())),
        );
        record.steps(number - 1);
        context.sleep(pause).await?;
        report.push_str(&format!("✓ {name} - {description}\n"));
    }
    record.steps(STEPS.len() as u64);
    report.push_str("\nReady for review.");
    Ok(PromptOutput::new([PromptMessage::user(report)]).with_description(format!("Multi-step analysis workflow for: {topic}")))
}

/// The topic and the time for each step. An empty argument counts as absent, since forms send an empty string for an empty field. So does a
/// time of 0 or less.
fn read(arguments: &BTreeMap<String, String>) -> Result<(&str, Duration), ToolError> {
    let refused = |why: String| ToolError::Rpc(RpcError::invalid_params(why));
    let mut topic = "general analysis";
    let mut millis = 1000;
    for (name, value) in arguments.iter().filter(|(_, value)| !value.is_empty()) {
        match name.as_str() {
            "topic" => topic = value,
            "step_ms" => match value.parse::<i64>() {
                Ok(asked) if asked <= 0 => {}
                Ok(asked) => millis = asked.unsigned_abs(),
                Err(_) => return Err(refused(format!("the argument step_ms must be a number in digits, not {value:?}"))),
            },
            other => return Err(refused(format!("unknown argument {other:?}"))),
        }
    }
    Ok((topic, Duration::from_millis(millis)))
}
