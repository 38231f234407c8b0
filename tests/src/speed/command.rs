//! The program: its command line, and the rounds of measuring processes.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;

use super::contender::{Contender, Kind};
use super::parts::{Counted, Counter, Entry, Listed, Part, Timed};
use super::report::{Cell, Machine, Report, load};
use super::row::Row;
use super::table;

const HELP: &str = "\
Every number comes from a process of its own; they are started in rounds, so that other load affects
all contenders alike. The floor is the same messages without an SDK: a loop with a borrowed serde_json
envelope and a map of one-shots over the same pipes. It takes some minutes, with --quick less than one.

The tables go to stdout, everything else to stderr.

Exit status:
  0  all was measured
  1  something could not be measured, or an update of ours was lost, out of order or late
  2  the command line makes no sense
";

/// Prints how fast calls are through this adapter, beside a floor without an SDK.
#[derive(Debug, Parser)]
#[command(disable_help_subcommand = true, after_help = HELP)]
struct Line {
    /// Measure one short round, which gives only rough numbers.
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Measure everything N times; the table has the medians.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Measure only rows whose name has TEXT in it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// Measure the contenders of PROGRAM in the same rounds. May be given several times.
    #[arg(long, value_name = "PROGRAM")]
    beside: Vec<PathBuf>,
    /// Write everything that was measured to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run only this part of the measuring. The program starts its measuring processes with this flag.
    #[arg(long, hide = true, value_name = "JSON")]
    part: Option<String>,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A program that measures its contenders, and prints the tables.
#[derive(Default)]
pub struct Program {
    entries: Vec<Entry>,
}

/// Runs some work, and returns the allocations that this thread has made meanwhile. `None` without the feature `count`. A build with this
/// feature does not measure time, since counting slows down contenders that allocate much.
#[cfg(feature = "count")]
const COUNTER: Option<Counter> = Some(|work| {
    let counted = allocation_counter::measure(work);
    super::parts::Allocated { count: counted.count_total, bytes: counted.bytes_total, most: counted.bytes_max }
});
#[cfg(not(feature = "count"))]
const COUNTER: Option<Counter> = None;

impl Program {
    /// A program without contenders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a contender.
    #[must_use]
    pub fn with<C: Contender>(mut self) -> Self {
        self.entries.push(Entry::of::<C>());
        self
    }

    /// Runs the program with the arguments of the command line.
    #[must_use]
    pub fn main(self) -> ExitCode {
        let line = Line::parse();
        let result = match &line.part {
            Some(part) => self.run_part(part),
            None => measure(&line).and_then(|report| conclude(&line, &report)),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("bench: {error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Runs one part of the measuring, as a measuring process.
    fn run_part(&self, part: &str) -> Result<()> {
        let output = match serde_json::from_str(part)? {
            Part::List => serde_json::to_string(&self.list())?,
            Part::Serve { name } => {
                (self.entry(&name)?.serve)();
                return Ok(());
            }
            Part::Time { name, row, span } => serde_json::to_string(&(self.entry(&name)?.time)(row, span))?,
            Part::Count { name, row } => {
                let counter = COUNTER.ok_or("it counts no allocations")?;
                serde_json::to_string(&(self.entry(&name)?.count)(row, counter))?
            }
            Part::Repeat { name, row, turns } => (self.entry(&name)?.operate)(row, turns).to_string(),
        };
        println!("{output}");
        Ok(())
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.iter().find(|entry| entry.about.name == name).ok_or_else(|| format!("there is no {name:?} here").into())
    }

    fn list(&self) -> Vec<Listed> {
        let list = |entry: &Entry| {
            let rows = |wanted: fn(Row) -> bool| Row::all().into_iter().filter(|row| (entry.has)(*row) && wanted(*row)).collect();
            let (timed, counted) = match COUNTER {
                None => (rows(Row::is_timed), Vec::new()),
                Some(_) => (Vec::new(), rows(Row::is_counted)),
            };
            Listed { about: entry.about.clone(), timed, counted }
        };
        self.entries.iter().map(list).collect()
    }
}

/// The command that starts this program as the other end of the contender `name`.
pub(super) fn serving(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command.arg("--part").arg(serde_json::to_string(&Part::Serve { name: name.into() }).expect("JSON"));
    command
}

/// Runs one part in a process of `program`, and reads its output.
fn ask<T: DeserializeOwned>(program: &Path, part: &Part) -> Result<T> {
    let mut command = Command::new(program);
    command.arg("--part").arg(serde_json::to_string(part)?).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(output.status.to_string().into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(text.lines().next_back().unwrap_or_default())?)
}

/// The measurement of one contender in one row, and the programs that measure its time and count its allocations.
struct Job {
    cell: Cell,
    timed_by: Option<PathBuf>,
    counted_by: Option<PathBuf>,
}

fn measure(line: &Line) -> Result<Report> {
    let mut machine = Machine::here();
    let (rounds, span) = if line.quick { (1, Duration::from_millis(200)) } else { (line.rounds as usize, Duration::from_secs(1)) };
    let mut jobs = jobs(line)?;
    let timed = jobs.iter().filter(|job| job.timed_by.is_some()).count();
    let counted = jobs.iter().filter(|job| job.counted_by.is_some()).count();
    let bar = ProgressBar::new((timed * rounds + counted) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?);
    let mut failed = 0;
    let mut report_failure = |job: &Job, error: Box<dyn Error>| {
        failed += 1;
        bar.suspend(|| eprintln!("bench: {}, {}: {error}", job.cell.about.name, job.cell.title));
    };
    for _ in 0..rounds {
        for job in &mut jobs {
            let Some(program) = &job.timed_by else { continue };
            bar.set_message(format!("{}, {}", job.cell.title, job.cell.about.name));
            match ask::<Timed>(program, &Part::Time { name: job.cell.about.name.clone(), row: job.cell.row, span }) {
                Ok(timed) => job.cell.take(timed),
                Err(error) => report_failure(job, error),
            }
            bar.inc(1);
        }
    }
    for job in &mut jobs {
        let Some(program) = &job.counted_by else { continue };
        bar.set_message(format!("{}, {}, allocations", job.cell.title, job.cell.about.name));
        match ask::<Option<Counted>>(program, &Part::Count { name: job.cell.about.name.clone(), row: job.cell.row }) {
            Ok(counted) => job.cell.take_counted(counted),
            Err(error) => report_failure(job, error),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    machine.load_after = load();
    let cells = jobs.into_iter().map(|job| job.cell).collect();
    Ok(Report { machine, rounds, span_ms: span.as_millis() as u64, failed, cells })
}

/// Asks all programs for their contenders, and returns the measurements to be made, row by row.
fn jobs(line: &Line) -> Result<Vec<Job>> {
    let mut offers = Vec::new();
    for program in [env::current_exe()?].iter().chain(&line.beside) {
        let listed = ask::<Vec<Listed>>(program, &Part::List).map_err(|error| format!("{}: {error}", program.display()))?;
        offers.extend(listed.into_iter().map(|listed| (program.clone(), listed)));
    }
    let mut jobs: Vec<Job> = Vec::new();
    for row in Row::all().into_iter().filter(|row| row.to_string().contains(&line.only)) {
        for (program, listed) in &offers {
            let by = |rows: &[Row]| rows.contains(&row).then(|| program.clone());
            let (timed_by, counted_by) = (by(&listed.timed), by(&listed.counted));
            if timed_by.is_none() && counted_by.is_none() {
                continue;
            }
            // One program may measure the time, and another one count the allocations.
            let known = jobs.iter_mut().find(|job| job.cell.row == row && job.cell.about == listed.about);
            if let Some(job) = known {
                job.timed_by = job.timed_by.take().or(timed_by);
                job.counted_by = job.counted_by.take().or(counted_by);
            } else {
                jobs.push(Job { cell: Cell::new(listed.about.clone(), row), timed_by, counted_by });
            }
        }
    }
    if jobs.is_empty() { Err(format!("no row has {:?} in its name", line.only).into()) } else { Ok(jobs) }
}

fn conclude(line: &Line, report: &Report) -> Result<()> {
    print!("{}", table::all(report));
    if let Some(file) = &line.json {
        fs::write(file, serde_json::to_string_pretty(report)? + "\n").map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let ours = report.cells.iter().filter(|cell| cell.about.kind == Kind::Ours);
    let broken = ours.filter(|cell| cell.updates.is_some_and(|updates| !updates.are_whole())).count();
    match (report.failed, broken) {
        (0, 0) => Ok(()),
        (0, _) => Err("an update of ours was lost, out of order or late".into()),
        (failed, _) => Err(format!("{failed} parts could not be measured").into()),
    }
}
