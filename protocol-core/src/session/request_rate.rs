//! The bound on the rate of requests of the peer: a token bucket that holds the requests of one second.
//!
//! ```text
//!   a request:  a token is left ----> admitted, and a token is taken
//!               no token is left ---> refused, and nothing changes
//!   time:       one token is refilled in each 1/rate of a second
//! ```
//!
//! The state is one instant: the time at which the bucket will be full again.

use core::time::Duration;

use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct RequestRate {
    /// The instant at which the bucket is full again; not after `now` if it is full.
    full_at: Instant,
}

impl RequestRate {
    const SECOND: Duration = Duration::from_secs(1);

    /// Takes a token for a request from a bucket of `max` tokens. Returns `false` if none is left.
    // Cold: the bound is off by default.
    #[cold]
    pub(super) fn admit(&mut self, max: u32, now: Instant) -> bool {
        // The time in which one token is refilled, in whole microseconds. It is rounded down, so that `max` tokens take at most a second.
        let Some(share) = 1_000_000_u64.checked_div(max.into()).map(Duration::from_micros) else { return false };
        let full_at = self.full_at.max(now).saturating_add(share);
        let is_admitted = full_at.saturating_duration_since(now) <= Self::SECOND;
        if is_admitted {
            self.full_at = full_at;
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::RequestRate;
    use crate::time::Instant;

    /// The number of requests that are admitted at a rate of `max`, if one arrives at each of `times`, in milliseconds.
    fn admitted(max: u32, times: impl Iterator<Item = u64>) -> usize {
        let mut rate = RequestRate::default();
        times.filter(|at| rate.admit(max, Instant::from_millis(*at))).count()
    }

    #[test]
    fn as_many_requests_as_the_rate_may_come_together_and_later_ones_at_the_rate() {
        assert_eq!(admitted(3, [0; 5].into_iter()), 3);
        assert_eq!(admitted(3, [0, 0, 0, 333, 334, 334].into_iter()), 4);
        assert_eq!(admitted(10, 0..10_000), 10 + 99, "ten at once, and one in each tenth of a second");
        assert_eq!(admitted(3, [0, 0, 0, 0, 5_000, 5_000, 5_000, 5_000].into_iter()), 6, "what is not used is not saved");
    }

    #[test]
    fn a_rate_of_zero_admits_nothing_and_a_very_high_rate_everything() {
        assert_eq!(admitted(0, 0..5_000), 0);
        assert_eq!(admitted(u32::MAX, core::iter::repeat_n(0, 1000)), 1000);
    }
}
