//! Progress, logs and checkpoints of a handler.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{harness, ms, run, value};
use crate::{Context, Tool, ToolError};
use protocol_core::config::RateWindow;
use protocol_core::dialect::{Level, Progress};
use protocol_core::json::Json;
use protocol_core::session::{CheckpointError, Outcome, ProgressError, Reported, ServeOptions};

#[test]
fn a_thousand_updates_in_a_loop_all_arrive_in_order_before_the_response() {
    let run = run(Tool::new("loop", async |context: Context, (): ()| {
        (1..=1000).for_each(|step| context.step(step, 1000));
        Ok(())
    })
    .rate_window(RateWindow::UNLIMITED));
    assert_eq!(run.values(), (1..=1000).map(f64::from).collect::<Vec<_>>());
    assert!(matches!(run.outcome(), Some(Outcome::Result(_))));
}

#[test]
fn updates_that_a_rate_window_delays_are_merged_and_sent_in_time() {
    let run = run(Tool::new("bursts", async |context: Context, (): ()| {
        for step in 1..=50 {
            context.progress(Progress::step(step, 100).with_message(format!("step {step}")));
        }
        context.sleep(ms(1500)).await?;
        Ok(())
    }));
    assert_eq!(run.values(), [1.0, 50.0]);
    let (at, last) = run.progress.last().unwrap();
    assert_eq!((*at, last.message.as_deref()), (ms(100), Some("step 50")));
}

/// Ten updates at once, and then none for a second, would look to a user as if the tool hung.
#[test]
fn updates_that_are_reported_faster_than_the_rate_are_sent_evenly_spaced() {
    let run = run(Tool::new("steps", async |context: Context, (): ()| {
        for step in 1..=33 {
            context.step(step, 33);
            context.sleep(ms(30)).await?;
        }
        Ok(())
    }));
    let updates: Vec<_> = run.progress.iter().map(|(at, progress)| (*at, progress.value.unwrap())).collect();
    // Every 100 ms the newest update is sent, and the final one when it is reported.
    let expected = (0..=9_u32).map(|tenth| (ms(100 * u64::from(tenth)), f64::from((100 * tenth).div_ceil(30).max(1))));
    assert_eq!(updates, expected.chain([(ms(960), 33.0)]).collect::<Vec<_>>());
}

#[test]
fn a_call_without_a_progress_token_is_not_observed_and_gets_no_progress() {
    let seen = Arc::new(Mutex::new(None));
    let inside = Arc::clone(&seen);
    let tool = Tool::new("looks", move |context: Context, (): ()| {
        *inside.lock().unwrap() = Some((context.is_observed(), context.try_progress(Progress::step(1, 2))));
        core::future::ready(Ok(()))
    });
    let run = harness(tool).unobserved().call_tool("looks", Json::empty_object());
    assert_eq!(*seen.lock().unwrap(), Some((false, Ok(Reported::Unobserved))));
    assert_eq!(run.progress, []);
}

#[test]
fn bad_numbers_never_fail_a_handler_and_are_counted() {
    let run = run(Tool::new("bad", async |context: Context, (): ()| {
        context.percent(f64::NAN);
        context.percent(-1.0);
        context.progress(Progress::value(3.0).with_total(2.0));
        assert_eq!(context.try_progress(Progress::value(f64::INFINITY)), Err(ProgressError::NotFinite));
        context.step(1, 2);
        Ok(())
    }));
    assert_eq!(run.values(), [1.0]);
    assert_eq!(run.counters.progress_refused, 4);
    assert!(!run.is_tool_error());
}

#[test]
fn progress_in_subranges_is_reported_as_progress_of_the_whole() {
    let run = run(Tool::new("parts", async |context: Context, (): ()| {
        let download = context.subrange(0.0..0.5);
        let process = context.subrange(0.5..0.9);
        let upload = context.subrange(0.9..1.0);
        download.step(1, 2);
        download.finish();
        process.percent(25.0);
        process.subrange(0.5..1.0).fraction(0.5);
        // A report of an earlier part is dropped, since a greater value was reported before.
        download.fraction(0.9);
        upload.progress(Progress::step(1, 2).with_message("half of it is up"));
        upload.finish();
        Ok(())
    })
    .rate_window(RateWindow::UNLIMITED));
    assert_eq!(run.values(), [25.0, 50.0, 60.0, 80.0, 95.0, 100.0]);
    assert_eq!(run.progress[4].1.message.as_deref(), Some("half of it is up"));
    assert!(run.progress.iter().all(|(_, update)| update.total == Some(100.0)));
}

#[test]
fn logs_are_sent_with_their_level_and_logger() {
    let run = run(Tool::new("logs", async |context: Context, (): ()| {
        context.log(Level::Debug, "not wanted");
        context.log(Level::Warning, json!({"item": 3}));
        context.log_as(Level::Error, "disk", "full");
        Ok(())
    }));
    let records: Vec<_> =
        run.logs.iter().map(|(_, log)| (log.level, log.logger.as_deref().map(String::from), value(&log.data))).collect();
    assert_eq!(records, [(Level::Warning, None, json!({"item": 3})), (Level::Error, Some("disk".into()), json!("full"))]);
}

#[test]
fn a_call_past_its_deadline_returns_the_last_checkpoint_which_must_be_an_object() {
    let run = run(Tool::new("saves", async |context: Context, (): ()| {
        for done in 1..10 {
            context.checkpoint(&json!({"done": done}));
            context.sleep(ms(100)).await?;
        }
        Ok(())
    })
    .deadline(ms(250)));
    assert_eq!(run.checkpoints.len(), 3);
    assert_eq!(run.done.as_ref().map(|(at, _)| *at), Some(ms(250)));
    assert_eq!(run.structured().map(|json| value(&json)), Some(json!({"done": 3, "status": "timeout"})), "{run:?}");
    // A number is not an object, so it cannot have a status.
    let refused = super::run(Tool::new("saves", async |context: Context, (): ()| {
        assert_eq!(context.try_checkpoint(&3), Err(CheckpointError::NotAnObject));
        context.checkpoint("text");
        Ok(())
    }));
    assert_eq!(refused.counters.values_refused, 2);
}

#[test]
fn a_handler_changes_its_own_deadline() {
    let run = run(Tool::new("hurries", async |context: Context, (): ()| {
        context.configure(ServeOptions::default().with_deadline(Duration::from_secs(2))).map_err(|_| "over")?;
        context.sleep(Duration::from_secs(60)).await?;
        Ok::<_, ToolError>(())
    }));
    assert_eq!(run.done.as_ref().map(|(at, _)| *at), Some(Duration::from_secs(2)));
    assert_eq!(run.ended, Some(Duration::from_secs(2)));
}
