//! Draws calls and updates a second in memory, on one thread of tokio, as the example `bench` measured them: `plot ROWS.json PLOT.svg`.

use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tests::speed::{Cell, Kind, Over, Report, Row, Unit, human};

const WIDTH: u32 = 1100;
/// The height in pixels of one bar with the space around it.
const BAR: u32 = 15;
/// The height of the title of a group, and of an entry in the legend.
const LINE: u32 = 20;
/// The height of the title and of the axis.
const HEAD: u32 = 58;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rows, plot] = &arguments[..] else {
        eprintln!("usage: plot ROWS.json PLOT.svg");
        return ExitCode::from(2);
    };
    match draw(rows, plot) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The floor, this project, or rmcp, each with the transport and the build that the page is about.
fn is_drawn(cell: &Cell) -> bool {
    let name = cell.about.name.as_str();
    name == "floor on tokio" || name == "adapter-tokio" || (name.starts_with("rmcp ") && !name.contains(','))
}

/// The cells of each row that is drawn.
fn groups(report: &Report) -> Vec<Vec<&Cell>> {
    let rows = Row::all().into_iter().filter(|row| row.unit() == Unit::PerSecond && row.over == Over::Duplex && row.workers == 1);
    let group =
        |row| report.cells.iter().filter(|cell| cell.row == row && cell.median.is_some() && is_drawn(cell)).collect::<Vec<_>>();
    rows.map(group).filter(|group| !group.is_empty()).collect()
}

/// The range of the axis: from a power of ten at or below all values to one above them, with space for the labels of the bars.
fn range(groups: &[Vec<&Cell>]) -> Range<f64> {
    let values = || groups.iter().flatten().filter_map(|cell| cell.median);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    10_f64.powf(least.log10().floor())..10_f64.powf((most * 1.5).log10().ceil())
}

fn draw(rows: &str, plot: &str) -> Outcome {
    let report: Report = serde_json::from_str(&std::fs::read_to_string(rows)?)?;
    let groups = groups(&report);
    let Some(first) = groups.first() else { return Err("no row that is drawn was measured".into()) };
    let pixels = groups.iter().map(|group| LINE + BAR * group.len() as u32 + BAR / 2).sum::<u32>();
    let legend_height = LINE * first.len() as u32 + LINE;
    let area = SVGBackend::new(plot, (WIDTH, legend_height + HEAD + pixels)).into_drawing_area();
    area.fill(&WHITE)?;
    let (legend, below) = area.split_vertically(legend_height);
    for (at, cell) in first.iter().enumerate() {
        let top = LINE as i32 * at as i32 + LINE as i32 / 2;
        legend.draw(&Rectangle::new([(20, top + 2), (44, top + 14)], colour(cell).filled()))?;
        legend.draw(&Text::new(cell.about.name.clone(), (54, top + 2), ("sans-serif", 14)))?;
    }
    let range = range(&groups);
    let origin = range.start;
    let mut chart = ChartBuilder::on(&below)
        .caption("Per second, in memory, on one thread, logarithmic: longer is better", ("sans-serif", 18))
        .margin_left(20)
        .margin_right(90)
        .x_label_area_size(24)
        .build_cartesian_2d(range.log_scale(), f64::from(pixels)..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_label_formatter(&|value| human(*value))
        .draw()?;
    let mut top = 0.0;
    for group in &groups {
        let style = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Top));
        let title = group.first().map(|cell| cell.title.clone()).unwrap_or_default();
        chart.draw_series([Text::new(title, (origin, top + 3.0), style)])?;
        top += f64::from(LINE);
        for cell in group {
            let value = cell.median.unwrap_or(origin);
            let (from, to) = (top + 1.5, top + f64::from(BAR) - 1.5);
            chart.draw_series([Rectangle::new([(origin, from), (value, to)], colour(cell).filled())])?;
            let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
            chart.draw_series([Text::new(format!("\u{a0}{}", human(value)), (value, (from + to) / 2.0), style)])?;
            top += f64::from(BAR);
        }
        top += f64::from(BAR / 2);
    }
    area.present()?;
    Ok(())
}

fn colour(cell: &Cell) -> RGBColor {
    match cell.about.kind {
        Kind::Floor => RGBColor(120, 120, 120),
        Kind::Ours => RGBColor(21, 101, 192),
        Kind::Other => RGBColor(216, 67, 21),
    }
}
