//! Progress of the slow call.

use std::time::Duration;

use serde_json::json;

use super::{Level, Scenario};
use crate::check::session::{Frame, Session};
use crate::check::{Stop, not_run, wrong};

const SECTION: &str = "basic/utilities/progress";

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::Must;
    vec![
        Scenario::new(
            "progress-token-echoed",
            Must,
            SECTION,
            "Progress has the token of its request: a string as a string, a number as a number.",
            |s| Box::pin(token_echoed(s)),
        ),
        Scenario::new(
            "progress-in-order",
            Must,
            SECTION,
            "The values of progress only increase, and none comes after the response.",
            |s| Box::pin(in_order(s)),
        ),
        Scenario::new("progress-unasked", Must, SECTION, "A request without a token gets no progress.", |s| Box::pin(unasked(s))),
        Scenario::new(
            "progress-of-two-calls",
            Must,
            SECTION,
            "Two calls that run at once each report with their own token.",
            |s| Box::pin(of_two_calls(s)),
        ),
    ]
}

/// Returns the text of the first progress frame whose token is none of `tokens`, if there is one.
fn foreign_progress(s: &Session<'_>, tokens: &[&str]) -> Option<String> {
    let reports = s.seen().iter().filter(|frame| frame.is_progress());
    let mut foreign = reports.filter(|frame| !tokens.contains(&&*frame.value()["params"]["progressToken"].to_string()));
    foreign.next().map(|frame| frame.short())
}

async fn token_echoed(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let tokens = [r#""12""#, "34"];
    for token in tokens {
        let before = s.seen().len();
        let call = s.slow()?;
        let id = s.call(&call, Some(token)).await?;
        let until = s.deadline();
        // The first call may still report after its cancel.
        let token_of = |frame: &Frame| frame.value()["params"]["progressToken"].to_string();
        let is_new = |frame: &&Frame| frame.is_progress() && (token == tokens[0] || token_of(frame) != tokens[0]);
        let found = s.until(until, |seen| seen[before..].iter().find(is_new).map(token_of)).await?;
        let Some(echoed) = found else { return not_run("the slow tool reports no progress") };
        if echoed != token {
            return wrong(format!("the token {token} came back as {echoed}"));
        }
        s.cancel(&id).await?;
        s.quiet().await?;
    }
    Ok(())
}

async fn in_order(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let token = r#""in order""#;
    let id = s.slow_with_progress(token).await?;
    // The slow call may run for several seconds, so it has twice the time of another request.
    let until = s.deadline() + s.plan.timeout;
    while s.response(&id).is_none() {
        if !s.pump(until).await? {
            return not_run("the slow call did not end");
        }
    }
    let values = s.progress(token);
    s.quiet().await?;
    if let Some(pair) = values.windows(2).find(|pair| !matches!(pair[0].1.partial_cmp(&pair[1].1), Some(std::cmp::Ordering::Less)))
    {
        return wrong(format!("progress went from {} to {}", pair[0].1, pair[1].1));
    }
    let late = s.progress(token).len() - values.len();
    if late > 0 {
        return wrong(format!("progress came after the response, {late} times"));
    }
    if let Some(foreign) = foreign_progress(s, &[token]) {
        return wrong(format!("there is progress that nobody asked for: {foreign}"));
    }
    Ok(())
}

async fn unasked(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let call = s.slow()?;
    let id = s.call(&call, None).await?;
    s.receive_for(Duration::from_millis(1500)).await?;
    if let Some(foreign) = foreign_progress(s, &[]) {
        return wrong(format!("there is progress that nobody asked for: {foreign}"));
    }
    s.cancel(&id).await?;
    s.expect_answer().await
}

async fn of_two_calls(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let tokens = ["1", r#""1""#];
    let call = s.slow()?;
    let one = s.call(&call, Some(tokens[0])).await?;
    let other = s.call(&call, Some(tokens[1])).await?;
    let until = s.deadline();
    let has_all = |s: &Session<'_>| tokens.iter().all(|token| s.progress(token).len() > 1);
    while !has_all(s) && s.pump(until).await? {}
    if let Some(foreign) = foreign_progress(s, &tokens) {
        return wrong(format!("there is progress that nobody asked for: {foreign}"));
    }
    if !has_all(s) {
        let counts = tokens.map(|token| s.progress(token).len());
        if counts == [0, 0] {
            return not_run("the slow tool reports no progress");
        }
        return wrong(format!("the calls reported {} and {} times", counts[0], counts[1]));
    }
    if s.response(&one).is_some() != s.response(&other).is_some() {
        s.note("one call ended before the other");
    }
    let id = s.request("tools/list", json!({})).await?;
    s.answer(&id).await.map(drop)
}
