//! The point from which a stream that broke is resumed, and the waits between the attempts (Transports 2025-11-25, "Resumability and
//! Redelivery").

use core::time::Duration;

use crate::http::limits::{HttpClientLimits, HttpClientTimeouts};
use crate::json::Text;
use crate::time::Instant;

/// The shortest wait, even if the server asks for a shorter one. So a deadline is always later than the time at which it is set.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// The point that a stream has reached, and the waits between the attempts to resume it, over all its HTTP exchanges.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    last_event_id: Option<Text>,
    /// The wait that the server has asked for.
    retry: Option<Duration>,
    /// The time for which the server asks the client to make no further attempt.
    pause: Duration,
    /// The number of attempts since the last new event, or since the end of the last response that lasted long.
    attempts: u32,
    /// The time at which the current response began.
    began: Option<Instant>,
}

impl Resumption {
    pub(super) fn last_event_id(&self) -> Option<&Text> {
        self.last_event_id.as_ref()
    }

    /// Records that the response of a new HTTP exchange has begun.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// Records a new event, after which the stream has reached `id`. An id that a header cannot contain counts as none.
    pub(super) fn reach(&mut self, id: Option<&str>) {
        self.attempts = 0;
        if self.last_event_id.as_deref() != id {
            self.last_event_id = id.filter(|id| !id.contains(|letter: char| letter.is_control())).map(Text::from);
        }
    }

    pub(super) fn set_retry(&mut self, wait: Duration) {
        self.retry = Some(wait);
    }

    /// Makes the next wait at least as long as the server asks for, up to [`HttpClientTimeouts::retry_after_max`].
    pub(super) fn pause(&mut self, wait: Option<Duration>, timeouts: &HttpClientTimeouts) {
        self.pause = wait.unwrap_or_default().min(timeouts.retry_after_max);
    }

    /// The time of the next attempt; `None` after too many attempts. The count of attempts begins again if the response that has ended now
    /// lasted at least [`HttpClientTimeouts::resume_delay_max`].
    pub(super) fn next_attempt(
        &mut self,
        limits: &HttpClientLimits,
        timeouts: &HttpClientTimeouts,
        jitter: u8,
        now: Instant,
    ) -> Option<Instant> {
        let lasted = self.began.take().map(|began| now.saturating_duration_since(began));
        if lasted.is_some_and(|lasted| lasted >= timeouts.resume_delay_max) {
            self.attempts = 0;
        }
        if self.attempts >= limits.attempts {
            return None;
        }
        let first = self.retry.unwrap_or(timeouts.resume_delay).max(MIN_WAIT);
        let grown = first.saturating_mul(1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX));
        let wait = grown.min(timeouts.resume_delay_max.max(first)).max(core::mem::take(&mut self.pause));
        self.attempts = self.attempts.saturating_add(1);
        // At most a quarter of the wait, since `jitter` is less than 256.
        let extra = wait.saturating_mul(u32::from(jitter)).checked_div(1024).unwrap_or_default();
        Some(now.saturating_add(wait).saturating_add(extra))
    }
}

/// A generator of random numbers (SplitMix64) for the extra waits, so that the clients of one server do not reconnect at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed.to_be_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn waits(resumption: &mut Resumption, jitter: u8) -> Vec<u128> {
        let (limits, timeouts) = (HttpClientLimits::default(), HttpClientTimeouts::default());
        let next = || resumption.next_attempt(&limits, &timeouts, jitter, Instant::ZERO);
        core::iter::from_fn(next).map(|at| at.saturating_duration_since(Instant::ZERO).as_millis()).collect()
    }

    #[test]
    fn waits_double_up_to_the_longest_and_end_after_some_attempts() {
        assert_eq!(waits(&mut Resumption::default(), 0), [1000, 2000, 4000, 8000, 16_000]);
        assert_eq!(waits(&mut Resumption::default(), 255), [1249, 2498, 4996, 9992, 19_984]);
        let mut asked = Resumption::default();
        asked.set_retry(Duration::from_secs(12));
        assert_eq!(waits(&mut asked, 0), [12_000, 24_000, 30_000, 30_000, 30_000]);
        let mut asked = Resumption::default();
        asked.set_retry(Duration::from_secs(300));
        assert_eq!(waits(&mut asked, 0)[..2], [300_000, 300_000], "the server asks for longer");
        let mut asked = Resumption::default();
        asked.set_retry(Duration::ZERO);
        assert_eq!(waits(&mut asked, 0), [10, 20, 40, 80, 160], "the shortest wait is 10 ms");
    }

    #[test]
    fn a_pause_lengthens_one_wait_and_is_bounded() {
        let mut resumption = Resumption::default();
        let (limits, timeouts) = (HttpClientLimits::default(), HttpClientTimeouts::default());
        let mut next = |pause: Option<u64>| {
            resumption.pause(pause.map(Duration::from_secs), &timeouts);
            let at = resumption.next_attempt(&limits, &timeouts, 0, Instant::ZERO).expect("an attempt");
            at.saturating_duration_since(Instant::ZERO).as_secs()
        };
        assert_eq!([next(Some(60)), next(None), next(Some(0)), next(Some(7))], [60, 2, 4, 8], "the longer of pause and wait");
        assert_eq!(next(Some(u64::MAX)), 300);
    }

    #[test]
    fn a_new_event_and_a_stream_that_was_open_for_long_reset_the_waits() {
        let mut resumption = Resumption::default();
        assert_eq!(waits(&mut resumption, 0).len(), 5);
        resumption.reach(Some("7"));
        assert_eq!(waits(&mut resumption, 0).len(), 5);
        let (limits, timeouts) = (HttpClientLimits::default(), HttpClientTimeouts::default());
        resumption.begin(Instant::ZERO);
        let later = Instant::ZERO.saturating_add(timeouts.resume_delay_max);
        assert_eq!(resumption.next_attempt(&limits, &timeouts, 0, later), Some(later.saturating_add(timeouts.resume_delay)));
        assert_eq!(resumption.last_event_id().map(|id| &**id), Some("7"));
    }

    /// A regression: any failure long after the beginning of a stream reset the count of attempts, even if the stream had broken soon after
    /// its beginning. If the server stayed unreachable, there were twice as many attempts.
    #[test]
    fn only_the_time_for_which_a_stream_was_open_resets_the_waits_and_not_the_time_since() {
        let mut resumption = Resumption::default();
        let (limits, timeouts) = (HttpClientLimits::default(), HttpClientTimeouts::default());
        resumption.begin(Instant::ZERO);
        let mut now = Instant::ZERO;
        let mut attempts = 0;
        while let Some(at) = resumption.next_attempt(&limits, &timeouts, 0, now) {
            (now, attempts) = (at, attempts + 1);
        }
        assert_eq!((attempts, now), (limits.attempts, Instant::ZERO.saturating_add(Duration::from_secs(31))));
    }

    #[test]
    fn no_number_of_attempts_overflows() {
        let limits = HttpClientLimits { attempts: u32::MAX, ..HttpClientLimits::default() };
        let timeouts = HttpClientTimeouts::default();
        let mut resumption = Resumption { attempts: u32::MAX - 1, ..Resumption::default() };
        assert!(resumption.next_attempt(&limits, &timeouts, u8::MAX, Instant::ZERO).is_some());
        assert!(resumption.next_attempt(&limits, &timeouts, u8::MAX, Instant::ZERO).is_none());
    }
}
