//! The limit on the rate at which claim codes can be guessed.
//!
//! Wrong codes never cause the right code to be refused. Each wrong code within [`HostPolicy::failure_window`] doubles the delay after
//! which the next code is checked, from [`HostPolicy::first_delay`] up to [`HostPolicy::max_delay`]. The right code resets the delay.
//! The right code is delayed, too: otherwise an attacker could drop each guess that is not answered at once. Each place in the backlog can
//! hold one code, so there are at most [`HostPolicy::places`] guesses within [`HostPolicy::max_delay`]: 32 per second. At that rate,
//! trying half of the 31^6 codes takes five months.
//!
//! Wrong codes of the user who runs the app (*this user*) delay only codes of this user. Wrong codes of all other users are counted
//! together, since one person can have many user ids.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::{HostPolicy, PeerUser};
use protocol_core::time::Instant;

/// The maximum number of wrong codes that are remembered for this user, and for all other users together. A delay that is doubled that
/// often exceeds every sensible maximum.
const REMEMBERED: usize = 32;

/// The times of the latest wrong codes.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowDown {
    of_this_user: VecDeque<Instant>,
    of_others: VecDeque<Instant>,
}

impl SlowDown {
    /// The delay before a code of this peer is checked.
    pub(super) fn delay(&self, policy: &HostPolicy, peer: PeerUser, now: Instant) -> Duration {
        let failures = if peer.is_this_user() { &self.of_this_user } else { &self.of_others };
        let counted = failures.iter().filter(|at| now.saturating_duration_since(**at) < policy.failure_window).count();
        let Some(doublings) = counted.checked_sub(1) else { return Duration::ZERO };
        let factor = u32::try_from(doublings).ok().and_then(|doublings| 1_u32.checked_shl(doublings)).unwrap_or(u32::MAX);
        policy.first_delay.saturating_mul(factor).min(policy.max_delay)
    }

    pub(super) fn on_failure(&mut self, peer: PeerUser, now: Instant) {
        let failures = self.failures(peer);
        if failures.len() >= REMEMBERED {
            failures.pop_front();
        }
        failures.push_back(now);
    }

    pub(super) fn on_success(&mut self, peer: PeerUser) {
        self.failures(peer).clear();
    }

    fn failures(&mut self, peer: PeerUser) -> &mut VecDeque<Instant> {
        if peer.is_this_user() { &mut self.of_this_user } else { &mut self.of_others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn delay(slow_down: &SlowDown, peer: PeerUser, millis: u64) -> u128 {
        slow_down.delay(&HostPolicy::default(), peer, at(millis)).as_millis()
    }

    #[test]
    fn each_wrong_code_doubles_the_delay_of_the_next_one_up_to_two_seconds() {
        let mut slow_down = SlowDown::default();
        for expected in [0, 125, 250, 500, 1000, 2000, 2000, 2000] {
            assert_eq!(delay(&slow_down, PeerUser::Unknown, 0), expected);
            slow_down.on_failure(PeerUser::Unknown, at(0));
        }
        for _ in 0..1000 {
            slow_down.on_failure(PeerUser::Unknown, at(1));
        }
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 1), 2000);
        assert_eq!(slow_down.of_others.len(), REMEMBERED);
    }

    #[test]
    fn a_wrong_code_counts_for_a_minute_or_until_a_right_code_is_sent() {
        let mut slow_down = SlowDown::default();
        for second in [0, 10, 20] {
            slow_down.on_failure(PeerUser::Unknown, at(second * 1000));
        }
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 59_999), 500);
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 60_000), 250);
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 79_999), 125);
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 80_000), 0);
        slow_down.on_failure(PeerUser::Unknown, at(80_000));
        slow_down.on_success(PeerUser::Unknown);
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 80_000), 0);
    }

    #[test]
    fn this_user_is_not_slowed_down_by_others_who_are_counted_together() {
        let mut slow_down = SlowDown::default();
        for user in 0..5 {
            slow_down.on_failure(PeerUser::OtherUser(user), at(0));
        }
        assert_eq!(delay(&slow_down, PeerUser::ThisUser, 0), 0);
        assert_eq!(delay(&slow_down, PeerUser::OtherUser(5), 0), 2000, "one person can have many user ids");
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 0), 2000);
        slow_down.on_success(PeerUser::ThisUser);
        assert_eq!(delay(&slow_down, PeerUser::Unknown, 0), 2000);
        slow_down.on_failure(PeerUser::ThisUser, at(0));
        assert_eq!(delay(&slow_down, PeerUser::ThisUser, 0), 125);
    }

    #[test]
    fn the_maximum_delay_may_be_zero_or_the_longest_duration() {
        let mut slow_down = SlowDown::default();
        for _ in 0..REMEMBERED {
            slow_down.on_failure(PeerUser::Unknown, at(0));
        }
        let none = HostPolicy { max_delay: Duration::ZERO, ..HostPolicy::default() };
        assert_eq!(slow_down.delay(&none, PeerUser::Unknown, at(0)), Duration::ZERO);
        let long = HostPolicy { first_delay: Duration::MAX, max_delay: Duration::MAX, ..HostPolicy::default() };
        assert_eq!(slow_down.delay(&long, PeerUser::Unknown, at(0)), Duration::MAX);
    }
}
