//! The bound on requests of the peer in a second.
//!
//! ```text
//!   a request:  less than a second's worth is taken ---> admitted, and one more share of the second is taken
//!               a second's worth is taken -------------> refused, and nothing changes
//!   time:       each share becomes free when it has passed
//! ```
//!
//! The state is one instant, at which all shares are free again. So the peer may send a second's worth at once, and then one for each
//! share that becomes free.

use core::time::Duration;

use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct RequestRate {
    /// The instant at which all shares are free. Before `now`: they are.
    free_at: Instant,
}

impl RequestRate {
    const SECOND: Duration = Duration::from_secs(1);

    /// Takes a share for a request. `false` if none of the `most` in a second is free.
    // Off by default: not in the way of a request that is not bounded.
    #[cold]
    pub(super) fn admit(&mut self, most: u32, now: Instant) -> bool {
        // Whole microseconds, as time has; rounded down, so that the shares of a second fit into one.
        let Some(share) = 1_000_000_u64.checked_div(most.into()).map(Duration::from_micros) else { return false };
        let free_at = self.free_at.max(now).saturating_add(share);
        let is_free = free_at.saturating_duration_since(now) <= Self::SECOND;
        if is_free {
            self.free_at = free_at;
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::RequestRate;
    use crate::time::Instant;

    /// The instants of `steps` in milliseconds at which a request is admitted.
    fn admitted(most: u32, steps: impl Iterator<Item = u64>) -> usize {
        let mut rate = RequestRate::default();
        steps.filter(|at| rate.admit(most, Instant::from_millis(*at))).count()
    }

    #[test]
    fn a_second_s_worth_may_come_at_once_and_then_one_for_each_share() {
        assert_eq!(admitted(3, [0; 5].into_iter()), 3);
        assert_eq!(admitted(3, [0, 0, 0, 333, 334, 334].into_iter()), 4);
        assert_eq!(admitted(10, 0..10_000), 10 + 99, "ten at once, and one in each tenth of a second");
        assert_eq!(admitted(3, [0, 0, 0, 0, 5_000, 5_000, 5_000, 5_000].into_iter()), 6, "what is not used is not saved");
    }

    #[test]
    fn zero_admits_nothing_and_a_large_number_everything() {
        assert_eq!(admitted(0, 0..5_000), 0);
        assert_eq!(admitted(u32::MAX, core::iter::repeat_n(0, 1000)), 1000);
    }
}
