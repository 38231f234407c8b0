//! Many requests at once, and a client that does not read.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{Level, Over, Scenario};
use crate::check::session::Session;
use crate::check::{Fault, Stop, wrong};

/// The longest time for a simple request while others run.
const PROMPT: Duration = Duration::from_secs(1);

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::{Must, Should};
    vec![
        Scenario::new(
            "ping-while-busy",
            Must,
            "basic/utilities/ping",
            "A ping is answered within a second while a slow call runs; in 2026-07-28, which has no ping, `tools/list` should be.",
            |s| Box::pin(ping_while_busy(s)),
        ),
        Scenario::new(
            "ping-while-very-busy",
            Must,
            "basic/utilities/ping",
            "A ping is answered within a second while 20 slow calls run; in 2026-07-28, which has no ping, `tools/list` should be.",
            |s| Box::pin(ping_while_very_busy(s)),
        ),
        Scenario::new(
            "calls-overlap",
            Should,
            "JSON-RPC 2.0, 4 Request object",
            "A quick call ends while a slow one runs: responses come in any order.",
            |s| Box::pin(calls_overlap(s)),
        ),
        Scenario::new(
            "back-pressure",
            Must,
            "basic, Responses",
            "500 requests (in 2026-07-28 150) that are written before anything is read are all answered.",
            |s| Box::pin(back_pressure(s)),
        )
        .over(Over::Stdio),
        Scenario::new("flood", Must, "basic, Responses", "Each of 10 000 requests (over HTTP 200) is answered once.", |s| {
            Box::pin(flood(s))
        }),
    ]
}

/// Sends a simple request, and expects the answer within [`PROMPT`]. Only a ping must be answered promptly, and 2026-07-28 has no ping, so
/// there a slow answer is only a warning.
pub(super) async fn answers_promptly(s: &mut Session<'_>) -> Result<(), Stop> {
    let begin = Instant::now();
    s.expect_answer().await?;
    let span = begin.elapsed();
    if span <= PROMPT {
        return Ok(());
    }
    let what = format!("it was answered after {} ms", span.as_millis());
    if s.is_stateless() {
        s.warn(what);
        return Ok(());
    }
    wrong(what)
}

async fn ping_while_busy(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.expect_answer().await?;
    let id = s.slow_running().await?;
    answers_promptly(s).await?;
    s.still_running(&id)
}

async fn ping_while_very_busy(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.expect_answer().await?;
    let call = s.slow()?;
    for _ in 0..20 {
        s.call(&call, None).await?;
    }
    s.quiet().await?;
    answers_promptly(s).await
}

async fn calls_overlap(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let slow = s.slow_running().await?;
    let quick = match s.quick() {
        Ok(quick) => s.call(&quick, None).await?,
        Err(_) => s.request("tools/list", json!({})).await?,
    };
    s.answer(&quick).await?;
    if s.response(&slow).is_some() {
        return wrong("the quick call ended after the slow one");
    }
    Ok(())
}

async fn back_pressure(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    // All requests together fit into a pipe of 64 KiB. So the write ends even if the server stops reading because its output is not read.
    let count = if s.is_stateless() { 150 } else { 500 };
    let ids = (0..count).map(|_| s.new_id()).collect::<Vec<_>>();
    let mut all = String::new();
    for id in &ids {
        let _ = writeln!(all, "{}", s.frame(Some(id), "tools/list", json!({}), None));
    }
    s.write_unread(all.as_bytes()).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    every_answer(s, &ids).await
}

async fn flood(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let count = if s.is_http() { 200 } else { 10_000 };
    let ids = (0..count).map(|_| s.new_id()).collect::<Vec<_>>();
    // 2026-07-28 has no ping. An unknown method replaces it, since many servers answer `tools/list` slowly.
    let method = if s.is_stateless() { "no/such/method" } else { "ping" };
    if s.is_http() {
        for id in &ids {
            let frame = s.frame(Some(id), method, json!({}), None);
            s.send(&frame).await?;
        }
    } else {
        let mut all = String::new();
        for id in &ids {
            let _ = writeln!(all, "{}", s.frame(Some(id), method, json!({}), None));
        }
        s.write(all.as_bytes()).await?;
    }
    every_answer(s, &ids).await
}

/// Waits until each id has its response, and expects no second one.
async fn every_answer(s: &mut Session<'_>, ids: &[String]) -> Result<(), Stop> {
    let wanted = ids.iter().map(String::as_str).collect::<HashSet<_>>();
    let mut missing = wanted.clone();
    let mut looked = 0;
    let mut until = s.deadline();
    let mut is_over = false;
    loop {
        for frame in &s.seen()[looked..] {
            let Some(id) = frame.id().filter(|_| frame.is_response()) else { continue };
            let is_first = missing.remove(id);
            if !is_first && wanted.contains(id) {
                return wrong(format!("the request {} was answered twice", id));
            }
            until = s.deadline();
        }
        looked = s.seen().len();
        if is_over {
            return Ok(());
        }
        if missing.is_empty() {
            // A second answer may come after all first ones.
            s.expect_answer().await?;
            s.quiet().await?;
            is_over = true;
            continue;
        }
        if !s.pump(until).await? {
            return Err(Fault::Silent(format!("{} of {} requests were not answered", missing.len(), ids.len())).into());
        }
    }
}
