//! The outcomes of a run, as a table and as JSON.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::log::{Direction, Entry, Log};
use super::{Level, Outcome, Revision, Verdict};

/// The number of frames that are printed from the beginning of a log, and the number from its end.
const PRINTED: (usize, usize) = (6, 10);
/// The number of characters of a frame that are printed.
const WIDTH: usize = 200;

/// The outcomes of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The name and version that the server gives itself.
    pub server: Option<String>,
    /// The revisions that were tested.
    pub spoken: Vec<Revision>,
    /// The outcomes, in the order in which the scenarios ran.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// The numbers of scenarios that passed, were warned, failed, and were not run.
    #[must_use]
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for outcome in &self.outcomes {
            counts[match outcome.verdict {
                Verdict::Passed => 0,
                Verdict::Warned(_) => 1,
                Verdict::Failed(_) => 2,
                Verdict::NotRun(_) => 3,
            }] += 1;
        }
        counts
    }

    /// The report as one JSON object, with the frames of each scenario.
    #[must_use]
    pub fn json(&self) -> Value {
        let [passed, warned, failed, not_run] = self.counts();
        json!({
            "server": self.server,
            "revisions": self.spoken.iter().map(|revision| revision.name()).collect::<Vec<_>>(),
            "passed": passed, "warned": warned, "failed": failed, "notRun": not_run,
            "scenarios": self.outcomes.iter().map(outcome).collect::<Vec<_>>(),
        })
    }
}

/// Writes the number of scenarios for each verdict.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [passed, warned, failed, not_run] = self.counts();
        let revisions = self.spoken.iter().map(|revision| revision.name()).collect::<Vec<_>>().join(" and ");
        let server = self.server.as_deref().unwrap_or("a server without a name");
        write!(f, "{server}, {revisions}: {passed} passed, {warned} warned, {failed} failed, {not_run} not run")
    }
}

fn outcome(outcome: &Outcome) -> Value {
    let scenario = outcome.scenario;
    let (verdict, word, why) = words(&outcome.verdict);
    let entries = outcome.log.entries().map(|entry| {
        json!({"direction": direction(entry), "ms": u64::try_from(entry.at.as_millis()).unwrap_or(u64::MAX), "text": entry.text, "bytes": entry.bytes})
    });
    json!({
        "id": scenario.id, "revision": outcome.revision.name(), "sentence": scenario.sentence, "section": scenario.section,
        "level": level(scenario.level), "verdict": verdict, "word": word, "why": why,
        "frames": entries.collect::<Vec<_>>(), "framesDropped": outcome.log.dropped(),
    })
}

/// The keyword of the level in a specification: `MUST` or `SHOULD`.
pub(super) const fn level(level: Level) -> &'static str {
    match level {
        Level::Must => "MUST",
        Level::Should => "SHOULD",
    }
}

/// The name of the verdict, the fault in one word if there is a fault, and the reason for a verdict other than passed.
fn words(verdict: &Verdict) -> (&'static str, Option<&'static str>, Option<String>) {
    match verdict {
        Verdict::Passed => ("passed", None, None),
        Verdict::Warned(why) => ("warned", None, Some(why.clone())),
        Verdict::Failed(fault) => ("failed", Some(fault.word()), Some(fault.to_string())),
        Verdict::NotRun(why) => ("not run", None, Some(why.clone())),
    }
}

fn direction(entry: &Entry) -> &'static str {
    match entry.direction {
        Direction::Sent => ">",
        Direction::Received => "<",
        Direction::Note => "-",
    }
}

/// Writes the outcome as a row of the table. If the scenario failed, writes its rule and its frames below the row.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, word, why) = words(&self.verdict);
        write!(f, "{verdict:8} {} {:27}", self.revision.name(), self.scenario.id)?;
        match (word, why) {
            (Some(word), Some(why)) => write!(f, " {word}: {}", shown(&why, 2 * WIDTH))?,
            (None, Some(why)) => write!(f, " {}", shown(&why, 2 * WIDTH))?,
            _ => {}
        }
        if matches!(self.verdict, Verdict::Failed(_)) {
            write!(f, "\n         {} {}: {}", level(self.scenario.level), self.scenario.section, self.scenario.sentence)?;
            f.write_str(&frames(&self.log))?;
        }
        Ok(())
    }
}

fn frames(log: &Log) -> String {
    let entries = log.entries().collect::<Vec<_>>();
    let (first, last) = PRINTED;
    let mut text = String::new();
    for (index, entry) in entries.iter().enumerate() {
        if index >= first && index + last < entries.len() {
            if index == first {
                let _ = write!(text, "\n            .. {} more ..", entries.len() - first - last + log.dropped());
            }
            continue;
        }
        let more = if entry.bytes > WIDTH { format!(" ({} bytes)", entry.bytes) } else { String::new() };
        let _ = write!(text, "\n         {:7.3} {} {}{more}", entry.at.as_secs_f64(), direction(entry), shown(&entry.text, WIDTH));
    }
    text
}

/// The beginning of a text, in one line and without control characters, which could change the state of a terminal.
fn shown(text: &str, width: usize) -> String {
    let mut shown = String::new();
    for character in text.chars().take(width) {
        match character {
            '\n' => shown.push_str("\\n"),
            character if character.is_control() => shown.extend(character.escape_unicode()),
            character => shown.push(character),
        }
    }
    if text.chars().nth(width).is_some() {
        shown.push_str(" ..");
    }
    shown
}
