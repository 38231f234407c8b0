//! The end of a server process.

use std::time::Duration;

use serde_json::json;

use super::{Level, Over, Scenario};
use crate::check::session::Session;
use crate::check::{Stop, wrong};

const SECTION: &str = "basic/lifecycle, Shutdown";
/// The time that a server has to exit.
const EXIT: Duration = Duration::from_secs(5);

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::Should;
    let on = |id, sentence, run| Scenario::new(id, Should, SECTION, sentence, run).over(Over::Stdio);
    vec![
        on("exit-when-idle", "The process exits within 5 seconds of the end of its input.", |s| Box::pin(when_idle(s))),
        on("exit-during-call", "The process exits within 5 seconds of the end of its input while a slow call runs.", |s| {
            Box::pin(during_call(s))
        }),
        on(
            "exit-when-unread",
            "The process exits within 5 seconds after its client has closed all pipes while a slow call runs.",
            |s| Box::pin(when_unread(s)),
        ),
        on("exit-on-sigterm", "The process exits within 5 seconds of SIGTERM.", |s| Box::pin(on_sigterm(s))),
        on("exit-on-sigterm-during-call", "The process exits within 5 seconds of SIGTERM while a slow call runs.", |s| {
            Box::pin(on_sigterm_during_call(s))
        }),
        on("answers-before-exit", "Requests that were written before the end of the input are all answered.", |s| {
            Box::pin(answers_before_exit(s))
        }),
    ]
}

async fn exits(s: &mut Session<'_>) -> Result<(), Stop> {
    match s.exit(EXIT).await? {
        Some(_) => Ok(()),
        None => wrong(format!("it was still running after {} s", EXIT.as_secs())),
    }
}

async fn when_idle(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.expect_answer().await?;
    s.close_stdin();
    exits(s).await
}

async fn during_call(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.slow_running().await?;
    s.close_stdin();
    exits(s).await
}

async fn when_unread(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.slow_with_progress("1").await?;
    s.close_stdin();
    s.close_stdout();
    exits(s).await
}

async fn on_sigterm(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.expect_answer().await?;
    s.terminate();
    exits(s).await
}

async fn on_sigterm_during_call(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.slow_running().await?;
    s.terminate();
    exits(s).await
}

async fn answers_before_exit(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.expect_answer().await?;
    let mut ids = Vec::new();
    let mut all = String::new();
    for _ in 0..20 {
        let id = s.new_id();
        all += &s.frame(Some(&id), "tools/list", json!({}), None);
        all.push('\n');
        ids.push(id);
    }
    s.write(all.as_bytes()).await?;
    s.close_stdin();
    s.exit(EXIT).await?;
    let missing = ids.iter().filter(|id| s.response(id).is_none()).count();
    if missing > 0 { wrong(format!("{missing} of {} requests were not answered", ids.len())) } else { Ok(()) }
}
