//! Progress of one part of a call.

use core::ops::Range;

use super::Context;
use protocol_core::dialect::Progress;
use protocol_core::json::Text;

/// Reports progress for one part of a call: the fractions 0 to 1 of the part are mapped to a range of the whole. Made by
/// [`Context::subrange`].
///
/// A download, the processing and an upload can each report in a separate part, without knowledge of the other parts. Parts nest. The
/// caller receives percent of the whole. Since progress only increases, a report below an earlier one is left out, even if another part
/// made the earlier one.
///
/// ```
/// # async fn handler(context: endpoint::Context) {
/// let download = context.subrange(0.0..0.5);
/// download.step(3, 4); // 37.5 percent
/// let upload = context.subrange(0.5..1.0);
/// upload.subrange(0.0..0.5).finish(); // 75 percent
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Subrange {
    context: Context,
    part: Part,
}

/// The beginning and the end of a part, as fractions of the whole: 0 <= `from` <= `to` <= 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    from: f64,
    to: f64,
}

impl Part {
    const WHOLE: Self = Self { from: 0.0, to: 1.0 };

    /// Converts a range of fractions of this part into the range of the whole. Ends outside of 0 to 1 are clamped, and NaN counts as 0.
    fn nested(self, range: Range<f64>) -> Self {
        let from = self.at(range.start);
        Self { from, to: self.at(range.end).max(from) }
    }

    /// Converts a fraction of this part into a fraction of the whole.
    fn at(self, fraction: f64) -> f64 {
        let fraction = if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) };
        // Exact at both ends, unlike `from + fraction * (to - from)`.
        (self.from * (1.0 - fraction) + self.to * fraction).clamp(self.from, self.to)
    }
}

impl Context {
    /// Returns a handle that reports progress for one part of the call. `range` is the share of that part in the whole, in fractions from 0
    /// to 1: a report of 0 on the handle is `range.start` of the whole, a report of 1 is `range.end`. The caller receives percent of the
    /// whole.
    #[must_use]
    pub fn subrange(&self, range: Range<f64>) -> Subrange {
        Subrange::new(self.clone(), range)
    }
}

impl Subrange {
    pub(crate) fn new(context: Context, range: Range<f64>) -> Self {
        Self { context, part: Part::WHOLE.nested(range) }
    }

    /// Reports which fraction of this part is done, 0 to 1. Values outside of that range are clamped.
    pub fn fraction(&self, fraction: f64) {
        self.context.progress(self.scaled(fraction));
    }

    /// Reports `current` of `total` of this part. If `total` is 0, the part is done.
    pub fn step(&self, current: u64, total: u64) {
        self.fraction(ratio(current as f64, total as f64));
    }

    /// Reports progress as a percentage of this part, 0 to 100.
    pub fn percent(&self, percent: f64) {
        self.fraction(ratio(percent, 100.0));
    }

    /// Reports an update as if this part were the whole: its value divided by its total, or its value as a fraction if it has no total.
    /// Message and data stay as they are. If the total is negative or NaN, the update has the value of the beginning of this part.
    pub fn progress(&self, update: Progress) {
        let Progress { value, total, message, data, .. } = update;
        let mut scaled = match value {
            Some(value) => self.scaled(total.map_or(value, |total| ratio(value, total))),
            None => Progress::default(),
        };
        scaled.message = message;
        scaled.data = data;
        self.context.progress(scaled);
    }

    /// Reports a message without a value.
    pub fn message(&self, message: impl Into<Text>) {
        self.context.message(message);
    }

    /// Reports that all of this part is done.
    pub fn finish(&self) {
        self.fraction(1.0);
    }

    /// Returns a handle that reports progress for one part of this part. `range` is in fractions of this part.
    #[must_use]
    pub fn subrange(&self, range: Range<f64>) -> Self {
        Self { context: self.context.clone(), part: self.part.nested(range) }
    }

    /// The context of the call to which this part belongs.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    fn scaled(&self, fraction: f64) -> Progress {
        Progress::percent(100.0 * self.part.at(fraction))
    }
}

/// `value` as a fraction of `total`: 1 if `total` is 0, and NaN if `total` is negative or NaN.
fn ratio(value: f64, total: f64) -> f64 {
    if total == 0.0 {
        1.0
    } else if total > 0.0 {
        value / total
    } else {
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_nest_and_reach_their_ends_exactly() {
        let part = Part::WHOLE.nested(0.1..0.7).nested(0.5..1.0);
        assert_eq!(part.at(1.0), 0.7);
        assert!((part.at(0.0) - 0.4).abs() < 1e-12);
        assert_eq!(Part::WHOLE.nested(0.3..1.0).at(1.0), 1.0);
        let mut last = -1.0;
        for step in 0..=1000_u32 {
            let at = part.at(f64::from(step) / 1000.0);
            assert!(at >= last);
            last = at;
        }
    }

    #[test]
    fn invalid_bounds_of_a_part_are_clamped() {
        assert_eq!(Part::WHOLE.nested(0.8..0.2), Part { from: 0.8, to: 0.8 });
        assert_eq!(Part::WHOLE.nested(-3.0..9.0), Part::WHOLE);
        assert_eq!(Part::WHOLE.nested(f64::NAN..f64::INFINITY), Part::WHOLE);
        assert_eq!(Part::WHOLE.at(f64::NAN), 0.0);
        assert_eq!(ratio(0.0, 0.0), 1.0);
        assert_eq!([-1.0, f64::NAN].map(|total| Part::WHOLE.at(ratio(1.0, total))), [0.0; 2], "an invalid total is not the end");
    }
}
