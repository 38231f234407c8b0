//! Draws the measurements of the examples `bench` and `smol-bench`: `plot ROWS.json PLOT.svg`.

use std::error::Error;
use std::ops::Range;
use std::process::ExitCode;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tests::speed::{About, Cell, Kind, Report, Row, Unit, human};

const WIDTH: u32 = 1100;
/// The height in pixels of one bar with the space around it.
const BAR: u32 = 15;
/// The height of the title of a group, and of an entry in the legend.
const LINE: u32 = 20;
/// The height of the title of a panel and of its axis.
const HEAD: u32 = 58;

const FLOORS: [RGBColor; 2] = [RGBColor(120, 120, 120), RGBColor(170, 170, 170)];
const OURS: [RGBColor; 2] = [RGBColor(21, 101, 192), RGBColor(66, 165, 245)];
const OTHERS: [RGBColor; 3] = [RGBColor(216, 67, 21), RGBColor(255, 138, 101), RGBColor(173, 20, 87)];

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

fn draw(rows: &str, plot: &str) -> Outcome {
    let report: Report = serde_json::from_str(&std::fs::read_to_string(rows)?)?;
    let panels = [
        ("Per second, logarithmic: longer is better", Unit::PerSecond),
        ("Megabytes of text a second, logarithmic: longer is better", Unit::Megabytes),
        ("Milliseconds until 1 000 calls are over: shorter is better", Unit::Milliseconds),
        ("Bytes of the heap, both ends: shorter is better", Unit::Bytes),
    ]
    .map(|(title, unit)| Panel::of(&report, title, unit));
    let panels: Vec<Panel> = panels.into_iter().filter(|panel| !panel.groups.is_empty()).collect();
    let contenders = report.contenders();
    let height = panels.iter().map(Panel::height).sum::<u32>() + LINE * contenders.len() as u32 + LINE;
    let mut rest = SVGBackend::new(plot, (WIDTH, height)).into_drawing_area();
    rest.fill(&WHITE)?;
    let (legend, below) = rest.split_vertically(LINE * contenders.len() as u32 + LINE);
    for (at, about) in contenders.iter().enumerate() {
        let top = LINE as i32 * at as i32 + LINE as i32 / 2;
        legend.draw(&Rectangle::new([(20, top + 2), (44, top + 14)], colour(&contenders, about).filled()))?;
        legend.draw(&Text::new(about.name.clone(), (54, top + 2), ("sans-serif", 14)))?;
    }
    rest = below;
    for panel in &panels {
        let (area, below) = rest.split_vertically(panel.height());
        panel.draw(&area, &contenders)?;
        rest = below;
    }
    rest.present()?;
    Ok(())
}

/// A chart of the rows that have one unit, with a group of bars for each row.
struct Panel<'a> {
    title: &'a str,
    groups: Vec<Vec<&'a Cell>>,
}

impl<'a> Panel<'a> {
    fn of(report: &'a Report, title: &'a str, unit: Unit) -> Self {
        let rows = Row::all().into_iter().filter(|row| row.unit() == unit);
        let group = |row| report.cells.iter().filter(|cell| cell.row == row && cell.median.is_some()).collect::<Vec<_>>();
        Self { title, groups: rows.map(group).filter(|group| !group.is_empty()).collect() }
    }

    fn height(&self) -> u32 {
        self.groups.iter().map(|group| LINE + BAR * group.len() as u32 + BAR / 2).sum::<u32>() + HEAD
    }

    /// The range of the axis: from a power of ten at or below all values to one above them, with space for the labels of the
    /// bars.
    fn range(&self) -> Range<f64> {
        let values = || self.groups.iter().flatten().filter_map(|cell| cell.median);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        10_f64.powf(least.log10().floor())..10_f64.powf((most * 1.5).log10().ceil())
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, contenders: &[About]) -> Outcome {
        let pixels = self.height() - HEAD;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 18))
            .margin_left(20)
            .margin_right(90)
            .x_label_area_size(24)
            .build_cartesian_2d(self.range().log_scale(), f64::from(pixels)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_label_formatter(&|value| human(*value))
            .draw()?;
        let origin = self.range().start;
        let mut top = 0.0;
        for group in &self.groups {
            let style = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Top));
            let title = group.first().map(|cell| cell.title.clone()).unwrap_or_default();
            chart.draw_series([Text::new(title, (origin, top + 3.0), style)])?;
            top += f64::from(LINE);
            for cell in group {
                let value = cell.median.unwrap_or(origin);
                let (from, to) = (top + 1.5, top + f64::from(BAR) - 1.5);
                chart.draw_series([Rectangle::new([(origin, from), (value, to)], colour(contenders, &cell.about).filled())])?;
                let style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
                chart.draw_series([Text::new(format!("\u{a0}{}", human(value)), (value, (from + to) / 2.0), style)])?;
                top += f64::from(BAR);
            }
            top += f64::from(BAR / 2);
        }
        Ok(())
    }
}

fn colour(contenders: &[About], about: &About) -> RGBColor {
    let colours: &[RGBColor] = match about.kind {
        Kind::Floor => &FLOORS,
        Kind::Ours => &OURS,
        Kind::Other => &OTHERS,
    };
    let at = contenders.iter().filter(|other| other.kind == about.kind).position(|other| other == about).unwrap_or_default();
    colours[at % colours.len()]
}
