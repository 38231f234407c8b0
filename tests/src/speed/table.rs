//! The tables, in Markdown with aligned columns.

use std::fmt::Write;

use super::contender::{About, Kind};
use super::report::{Cell, Report};
use super::row::Row;

/// All tables as text.
pub(super) fn all(report: &Report) -> String {
    let all_contenders = report.contenders();
    let mut out = String::new();
    let mut section = |title: &str, show: &dyn Fn(&Cell) -> Option<String>| {
        let mut lines = vec![heads("", &all_contenders)];
        for row in Row::all() {
            let shown = |about: &About| report.cell(&about.name, row).and_then(show);
            if all_contenders.iter().any(|about| shown(about).is_some()) {
                let cells = all_contenders.iter().map(|about| shown(about).unwrap_or_else(|| "–".into()));
                lines.push([row.to_string()].into_iter().chain(cells).collect());
            }
        }
        write(&mut out, title, &lines);
    };
    section("Per second unless it says otherwise: median, and percent of the floor", &|cell| {
        // Without a median, the work did not end in time in most rounds.
        let median = cell.median.map_or_else(|| "never".into(), human);
        Some(match (share(report, cell), cell.about.kind) {
            (Some(share), Kind::Ours | Kind::Other) => format!("{median} ({share:.0}%)"),
            _ => median,
        })
    });
    section("The least and the most", &|cell| {
        let values: Vec<f64> = cell.values.iter().copied().flatten().collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        (values.len() > 1).then(|| format!("{} to {}", human(least), human(most)))
    });
    section("Allocations / bytes of an operation, both ends", &|cell| {
        cell.allocations.zip(cell.bytes).map(|(count, bytes)| format!("{count:.2} / {}", human(bytes)))
    });
    section("Updates lost / out of order / after the response, percent", &|cell| {
        let updates = cell.updates?;
        let percent = |count: u64| 100.0 * count as f64 / updates.sent.max(1) as f64;
        Some(format!("{:.1} / {:.1} / {:.1}", percent(updates.lost()), percent(updates.disordered), percent(updates.late)))
    });
    section("The most memory of the process that measures, MiB", &|cell| {
        cell.peak_kib.map(|kib| format!("{:.1}", kib as f64 / 1024.0))
    });
    times(report, &all_contenders, &mut out);
    out
}

/// Writes a table for each other SDK: the factors by which this project is better in each row.
fn times(report: &Report, all_contenders: &[About], out: &mut String) {
    let of = |kind| all_contenders.iter().filter(move |about| about.kind == kind);
    for other in of(Kind::Other) {
        let ours: Vec<About> = of(Kind::Ours).cloned().collect();
        let mut lines = vec![heads("", &ours)];
        for row in Row::all() {
            let Some(theirs) = report.cell(&other.name, row) else { continue };
            let ratio = |about: &About| {
                let ours = report.cell(&about.name, row)?.median?;
                let Some(theirs) = theirs.median else { return Some("never there".into()) };
                let times = if row.unit().is_rate() { ours / theirs } else { theirs / ours };
                Some(format!("{times:.1}"))
            };
            let cells = ours.iter().map(|about| ratio(about).unwrap_or_else(|| "–".into()));
            lines.push([row.to_string()].into_iter().chain(cells).collect());
        }
        write(out, &format!("How many times as good as {}", other.name), &lines);
    }
}

/// The rate of a cell in percent of the rate of the floor; `None` if the cell is no rate, or either value is missing.
fn share(report: &Report, cell: &Cell) -> Option<f64> {
    let floor = report.floor(cell)?.median?;
    cell.unit.is_rate().then_some(100.0 * cell.median? / floor)
}

/// The first line of a table.
fn heads(first: &str, contenders: &[About]) -> Vec<String> {
    [first.into()].into_iter().chain(contenders.iter().map(|about| about.name.clone())).collect()
}

/// Writes a table, unless it has no rows.
fn write(out: &mut String, title: &str, lines: &[Vec<String>]) {
    let [head, rows @ ..] = lines else { return };
    if rows.is_empty() || head.len() < 2 {
        return;
    }
    let widths: Vec<usize> =
        (0..head.len()).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()).collect();
    let _ = writeln!(out, "### {title}\n");
    let mut push = |line: &[String]| {
        for (column, (text, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if column == 0 { write!(out, "| {text:<width$} ") } else { write!(out, "| {text:>width$} ") };
        }
        out.push_str("|\n");
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| if column == 0 { "-".repeat(*width) } else { format!("{}:", "-".repeat(width.saturating_sub(1))) })
        .collect();
    push(head);
    push(&rule);
    rows.iter().for_each(|row| push(row));
    out.push('\n');
}

/// Formats a number for people: three digits and a unit.
#[must_use]
pub fn human(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    match value {
        value if value >= 100.0 => format!("{value:.0}{unit}"),
        value if value >= 10.0 => format!("{value:.1}{unit}"),
        value => format!("{value:.2}{unit}"),
    }
}
