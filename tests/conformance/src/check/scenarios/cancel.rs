//! Cancels.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::flow::answers_promptly;
use super::{Level, Scenario};
use crate::check::session::Session;
use crate::check::{Stop, wrong};

const SECTION: &str = "basic/utilities/cancellation";
/// The time in which a cancel must reach the handler.
const GRACE: Duration = Duration::from_millis(500);

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::Must;
    vec![
        Scenario::new(
            "cancelled-call-unanswered",
            Must,
            SECTION,
            "A call that was cancelled gets no response (in 2025-11-25 it should get none), and the server goes on.",
            |s| Box::pin(unanswered(s)),
        ),
        Scenario::new(
            "cancel-reaches-handler",
            Must,
            SECTION,
            "Progress ends within half a second of a cancel (in 2025-11-25 it should end), and the server goes on.",
            |s| Box::pin(reaches_handler(s)),
        ),
        Scenario::new(
            "cancel-of-nothing",
            Must,
            SECTION,
            "A cancel of an unknown request, of one that is done, or without a request id is ignored, and never answered.",
            |s| Box::pin(of_nothing(s)),
        ),
        Scenario::new(
            "cancel-at-once",
            Must,
            SECTION,
            "After a call and its cancel that arrive together, the server goes on.",
            |s| Box::pin(at_once(s)),
        ),
        Scenario::new(
            "many-cancels",
            Must,
            SECTION,
            "After 100 calls that were all cancelled the server goes on, and answers within a second.",
            |s| Box::pin(many(s)),
        ),
    ]
}

/// Fails if the rule is a MUST in the revision, and warns if it is a SHOULD.
fn fail_or_warn(s: &mut Session<'_>, what: String) -> Result<(), Stop> {
    if s.is_stateless() {
        return wrong(what);
    }
    s.warn(what);
    Ok(())
}

async fn unanswered(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let id = s.slow_running().await?;
    s.cancel(&id).await?;
    s.expect_answer().await?;
    s.receive_for(Duration::from_secs(1)).await?;
    match s.response(&id) {
        Some(response) => fail_or_warn(s, format!("the cancelled call was answered: {}", response.short())),
        None => Ok(()),
    }
}

async fn reaches_handler(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let token = r#""cancelled""#;
    let id = s.slow_with_progress(token).await?;
    // The longest time between two updates so far.
    let pace = s.progress(token).windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or_default();
    s.cancel(&id).await?;
    let cancelled = Instant::now();
    s.expect_answer().await?;
    s.receive_for(GRACE + (pace * 3).clamp(Duration::from_secs(1), Duration::from_secs(5))).await?;
    let late = s.progress(token).iter().filter(|(at, _)| *at > cancelled + GRACE).count();
    if late > 0 {
        return fail_or_warn(s, format!("progress came later than half a second after the cancel, {late} times"));
    }
    Ok(())
}

async fn of_nothing(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let done = s.request("tools/list", json!({})).await?;
    s.answer(&done).await?;
    let before = s.seen().len();
    let done: Value = serde_json::from_str(&done).unwrap_or_default();
    for params in [
        json!({"requestId": 424_242}),
        json!({"requestId": "none"}),
        json!({"requestId": done}),
        json!({}),
        json!({"requestId": null}),
    ] {
        s.notify("notifications/cancelled", params).await?;
    }
    s.expect_answer().await?;
    s.quiet().await?;
    let responses = s.seen()[before..].iter().filter(|frame| frame.is_response()).collect::<Vec<_>>();
    // Over HTTP a malformed notification may be refused by the HTTP response.
    let is_answer = |frame: &&&crate::check::session::Frame| frame.is_error_without_id() && !s.is_http();
    match responses.iter().find(is_answer) {
        Some(answer) => wrong(format!("a cancel was answered with {}", answer.short())),
        None => Ok(()),
    }
}

async fn at_once(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let call = s.slow()?;
    if s.is_http() {
        let id = s.call(&call, None).await?;
        s.cancel(&id).await?;
        return s.expect_answer().await;
    }
    let id = s.new_id();
    let request = s.frame(Some(&id), "tools/call", json!({"name": call.name, "arguments": call.arguments}), None);
    let number: Value = serde_json::from_str(&id).unwrap_or_default();
    let cancel = s.frame(None, "notifications/cancelled", json!({"requestId": number}), None);
    s.write(format!("{request}\n{cancel}\n").as_bytes()).await?;
    s.expect_answer().await?;
    s.receive_for(Duration::from_secs(1)).await?;
    match s.response(&id) {
        Some(response) => fail_or_warn(s, format!("the cancelled call was answered: {}", response.short())),
        None => Ok(()),
    }
}

async fn many(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let call = s.slow()?;
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(s.call(&call, None).await?);
    }
    for id in &ids {
        s.cancel(id).await?;
    }
    s.expect_answer().await?;
    answers_promptly(s).await
}
