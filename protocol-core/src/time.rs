//! The time of a session: a number that its owner passes in.

use core::fmt;
use core::time::Duration;

/// A point on the owner's monotonic time axis, in microseconds.
///
/// The core never reads a clock: each method that depends on time takes an `Instant`. The owner chooses the origin of the axis, so there is
/// no conversion from `std::time::Instant`. Time must not run backwards; a `now` that is earlier than the latest so far counts as the
/// latest. An owner that converts a deadline to a coarser clock must round up, so that it does not wake just before the deadline.
///
/// The axis is 584 000 years long. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the axis.
    pub const ZERO: Self = Self(0);

    /// The shortest time between two points.
    pub(crate) const TICK: Duration = Duration::from_micros(1);

    /// The point `micros` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The point `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Microseconds since the origin.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The point `span` later, rounded up to a microsecond, or the end of the axis.
    #[must_use]
    pub const fn saturating_add(self, span: Duration) -> Self {
        let whole = span.as_secs().saturating_mul(1_000_000);
        Self(self.0.saturating_add(whole).saturating_add(span.subsec_nanos().div_ceil(1000) as u64))
    }

    /// The span from `earlier` to this point; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the earlier of two points. `None` is later than every point.
#[must_use]
pub fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}
