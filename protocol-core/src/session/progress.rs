//! Progress, whose value must increase. A `Reporter` chooses the updates that a callee sends, and the time of each. A `Watcher` chooses the
//! updates that a caller accepts.
//!
//! ```text
//!   Reporter:  nothing kept --- report: something new ---> kept --- release: a window allows it; release_last: the response ---> sent
//!                                                          ^  |
//!                                                          `--' report: merged, member by member
//!
//!   Watcher:   accepts any value --- judge: a value ---> accepts greater values
//!                                                        ^  |
//!                                                        `--' judge: a greater one is accepted, any other is dropped
//! ```
//!
//! A value that a `Watcher` drops is a violation, which becomes an event at most once in a rate window. There are two exceptions. An update
//! whose value does not increase may still be accepted for its message or data. A value that increases within its exchange, but was reached
//! in an earlier exchange of the call, is dropped without a violation.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::config::{ProgressPolicy, RateWindow};
use crate::dialect::{Progress, Rules};
use crate::session::ProgressError;
use crate::time::Instant;

/// Returns `true` if two numbers are equal up to the relative rounding error `epsilon`.
fn same(a: f64, b: f64, epsilon: f64) -> bool {
    a == b || (a - b).abs() <= epsilon * a.abs().max(b.abs())
}

/// Returns `true` if `value` is above `last` by more than a rounding error.
fn increases(value: f64, last: Option<f64>, epsilon: f64) -> bool {
    last.is_none_or(|last| value > last && !same(value, last, epsilon))
}

/// A rate window, with the times of the newest updates that count in it.
#[derive(Clone, Debug)]
pub(super) struct Window {
    rate: RateWindow,
    /// The times, ascending; at most [`Self::max_updates`] of them.
    sent: VecDeque<Instant>,
}

impl Window {
    pub(super) fn new(rate: RateWindow) -> Self {
        Self { rate, sent: VecDeque::new() }
    }

    fn max_updates(&self) -> usize {
        usize::try_from(self.rate.updates).unwrap_or(usize::MAX).min(RateWindow::MAX_UPDATES)
    }

    /// The time from which the window allows the next update: `now` if it does already, `None` if it never does.
    pub(super) fn opens(&self, now: Instant) -> Option<Instant> {
        if self.rate.is_unlimited() {
            return Some(now);
        }
        let Some(excess) = self.sent.len().checked_sub(self.max_updates()) else { return Some(now) };
        // The oldest of the newest `max_updates` updates. There is room when it leaves the window.
        self.sent.get(excess).map(|oldest| oldest.saturating_add(self.rate.length).max(now))
    }

    pub(super) fn count(&mut self, now: Instant) {
        if self.rate.is_unlimited() {
            return;
        }
        self.sent.push_back(now);
        while self.sent.len() > self.max_updates() {
            self.sent.pop_front();
        }
    }
}

/// The next step for the kept update of a call, without regard to the session's window and the room on the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateStep {
    /// No update may be sent before this time, at which the call's own window opens. `None` if the window never opens, or if there is no
    /// kept update, or only one without a value, which waits for the next increase of the value.
    Waits(Option<Instant>),
    /// The update may be sent. It counts in the windows.
    Ready,
    /// The value has reached its total for the first time. The update may be sent even if the windows are closed, and does not count in
    /// them.
    Final,
}

/// The progress that this end sends for one inbound call.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    /// The greatest value that was reported and not dropped. The next value must be greater.
    floor: Option<f64>,
    /// `true` once an update was sent as [`UpdateStep::Final`].
    final_passed: bool,
    /// The update that waits for a window, for room on the lane, or for the next increase of the value.
    kept: Option<Progress>,
    window: Window,
}

impl Reporter {
    pub(super) fn new(rate: RateWindow) -> Self {
        Self { floor: None, final_passed: false, kept: None, window: Window::new(rate) }
    }

    /// Returns `true` if an update is kept, with which the next update merges.
    pub(super) fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    pub(super) fn set_rate(&mut self, rate: RateWindow) {
        self.window.rate = rate;
        while self.window.sent.len() > self.window.max_updates() {
            self.window.sent.pop_front();
        }
    }

    /// Checks the numbers of an update. A value that equals its total up to a rounding error becomes the total. If [`Rules::percent`] is
    /// `true`, the value becomes a percentage.
    pub(super) fn check(mut update: Progress, rules: &Rules, policy: &ProgressPolicy) -> Result<Progress, ProgressError> {
        for number in [update.value, update.total].into_iter().flatten() {
            if !number.is_finite() {
                return Err(ProgressError::NotFinite);
            }
            if number < 0.0 {
                return Err(ProgressError::Negative);
            }
        }
        if let (Some(value), Some(total)) = (update.value, update.total) {
            if same(value, total, policy.epsilon) {
                update.value = Some(total);
            } else if value > total {
                return Err(ProgressError::AboveTotal);
            }
        }
        if rules.percent {
            update = as_percent(update);
        }
        Ok(update)
    }

    /// Keeps an update that passed [`Self::check`], merged with the update that was kept before. If the update has nothing new, drops it
    /// and returns `false`. [`Self::next`] returns the next step for the kept update.
    pub(super) fn report(&mut self, mut update: Progress, rules: &Rules, policy: &ProgressPolicy) -> bool {
        if update.value.is_some_and(|value| !increases(value, self.floor, policy.epsilon)) {
            update.value = None;
            update.total = None;
            if update.message.is_none() && update.data.is_none() {
                return false;
            }
        }
        if update.value.is_none() && self.floor.is_none() && !rules.allows_updates_without_value {
            // The protocol demands that the value increases with every update. The first message is sent with the value 0; later messages
            // wait for an increase.
            update.value = Some(0.0);
        }
        self.floor = match (self.floor, update.value) {
            (Some(floor), Some(value)) => Some(floor.max(value)),
            (floor, value) => floor.or(value),
        };
        self.keep(update);
        true
    }

    /// The next step for the kept update.
    pub(super) fn next(&self, now: Instant, rules: &Rules) -> UpdateStep {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.value.is_some() || rules.allows_updates_without_value) else {
            return UpdateStep::Waits(None);
        };
        if !self.final_passed && kept.value.is_some() && kept.value == kept.total {
            return UpdateStep::Final;
        }
        match self.window.opens(now) {
            Some(at) if at <= now => UpdateStep::Ready,
            at => UpdateStep::Waits(at),
        }
    }

    /// Takes the kept update to be sent; `next` is the step that [`Self::next`] returned.
    pub(super) fn release(&mut self, next: UpdateStep, now: Instant) -> Option<Progress> {
        match next {
            UpdateStep::Final => self.final_passed = true,
            UpdateStep::Ready => self.window.count(now),
            UpdateStep::Waits(_) => return None,
        }
        self.kept.take()
    }

    /// Takes the kept update to be sent just before the response, even if the windows are closed.
    pub(super) fn release_last(&mut self, rules: &Rules) -> Option<Progress> {
        let can_go = self.kept.as_ref().is_some_and(|kept| kept.value.is_some() || rules.allows_updates_without_value);
        if can_go { self.kept.take() } else { None }
    }

    /// Drops the kept update.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Merges an update with the kept one, member by member; newer members replace older ones, except for a total below the kept value. A
    /// new value also replaces the total, even if the new update has no total.
    fn keep(&mut self, newer: Progress) {
        let Some(kept) = &mut self.kept else {
            self.kept = Some(newer);
            return;
        };
        if newer.value.is_some() {
            (kept.value, kept.total) = (newer.value, newer.total);
        } else if newer.total.is_some_and(|total| kept.value.is_none_or(|value| value <= total)) {
            kept.total = newer.total;
        }
        if newer.message.is_some() {
            kept.message = newer.message;
        }
        if newer.data.is_some() {
            kept.data = newer.data;
        }
    }
}

/// Converts a value to the percentage `100 * value / total`, from 0 to 100. A value without a total is a percentage already.
fn as_percent(update: Progress) -> Progress {
    let percent = match (update.value, update.total) {
        (Some(value), Some(total)) if total > 0.0 => {
            // Multiplied first, so that whole percentages are exact. If the product overflows, divided first.
            let hundredfold = 100.0 * value;
            Some(if hundredfold.is_finite() { hundredfold / total } else { 100.0 * (value / total) })
        }
        // With a total of 0 there is no work to do, so all of it is done.
        (Some(_), Some(_)) => Some(100.0),
        (value, _) => value,
    };
    let percent = percent.map(|percent| percent.clamp(0.0, 100.0));
    Progress { value: percent, total: percent.map(|_| 100.0), ..update }
}

/// The verdict on an update that arrived.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum UpdateVerdict {
    /// The update becomes an event. `is_activity` is `true` if the value increases or, on Tesseron, if there is no value; it is `false` if
    /// the update counts only for its message or data.
    Accepted { progress: Progress, is_activity: bool },
    /// The update is dropped, but breaks no rule: the value is not above one that an earlier exchange of the call has reported.
    Repeated,
    /// The update is dropped, and breaks a rule. `is_reported` is `true` if the violation becomes an event, and `false` if it is only
    /// counted, because another violation became an event in the same window.
    Dropped { is_reported: bool },
}

/// Returns `true` if an update whose value does not increase may still become an event: it has a message or, on Tesseron, data. Tesseron
/// does not demand that the value increases (page "Progress").
fn is_worth_an_event(progress: &Progress, rules: &Rules) -> bool {
    progress.message.is_some() || (rules.percent && progress.data.is_some())
}

/// The progress that arrives for one outbound call.
#[derive(Clone, Debug, Default)]
pub(super) struct Watcher {
    /// The last value of the current exchange.
    floor: Option<f64>,
    /// The greatest value of the earlier exchanges.
    earlier: Option<f64>,
    /// The last update that was accepted.
    last: Option<Box<Progress>>,
    /// The end of the time in which violations are only counted.
    quiet_until: Option<Instant>,
}

impl Watcher {
    /// The last update that was accepted.
    pub(super) fn take_last(&mut self) -> Option<Box<Progress>> {
        self.last.take()
    }

    /// Begins another exchange of the call, in which the peer may report values from zero on again.
    pub(super) fn begin_exchange(&mut self) {
        if self.earlier.is_none_or(|earlier| self.floor.is_some_and(|floor| floor > earlier)) {
            self.earlier = self.floor;
        }
        self.floor = None;
    }

    /// Accepts an update or drops it, as [`UpdateVerdict`] describes. A value increases if it is greater than the last value, by any
    /// amount: only a sender takes rounding errors into account. If `accepts_equal` is `true`, an update with the last value is accepted
    /// for its message. `quiet` is the time after a reported violation in which further ones are only counted.
    pub(super) fn judge(
        &mut self,
        mut progress: Progress,
        now: Instant,
        rules: &Rules,
        accepts_equal: bool,
        quiet: core::time::Duration,
    ) -> UpdateVerdict {
        let value = progress.value;
        let is_above = match (value, self.floor) {
            (None, _) => rules.allows_updates_without_value,
            (Some(value), floor) => floor.is_none_or(|floor| value > floor),
        };
        if is_above {
            self.floor = value.or(self.floor);
            if value.is_some() && value <= self.earlier {
                return UpdateVerdict::Repeated;
            }
            match &mut self.last {
                // An update without a value leaves the last value as it is.
                Some(last) if value.is_none() => update_last(last, &progress),
                Some(last) => **last = progress.clone(),
                None => self.last = Some(Box::new(progress.clone())),
            }
        } else if (accepts_equal || rules.accepts_no_increase)
            && is_worth_an_event(&progress, rules)
            && (rules.percent || value == self.floor)
        {
            (progress.value, progress.total) = (None, None);
            if let Some(last) = &mut self.last {
                update_last(last, &progress);
            }
        } else {
            let is_reported = self.quiet_until.is_none_or(|until| now >= until);
            if is_reported {
                self.quiet_until = Some(now.saturating_add(quiet));
            }
            return UpdateVerdict::Dropped { is_reported };
        }
        UpdateVerdict::Accepted { progress, is_activity: is_above }
    }
}

/// Replaces the last message and the last data by those of an update, if it has any.
fn update_last(last: &mut Progress, update: &Progress) {
    last.message = update.message.clone().or_else(|| last.message.take());
    last.data = update.data.clone().or_else(|| last.data.take());
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::time::Duration;

    use super::*;
    use crate::dialect::mcp::{self, Mcp};
    use crate::dialect::tesseron::Tesseron;

    const MCP: &Rules = Mcp::rules(mcp::Side::Server, Some(mcp::Revision::R2025_11_25));
    const PERCENT: &Rules = Tesseron::Gateway.rules();

    /// The effect of reporting an update.
    #[derive(Debug, PartialEq)]
    enum Verdict {
        NotIncreasing,
        Send(Progress),
        Keep,
    }

    /// A reporter under test, with what its methods take.
    struct Bench {
        reporter: Reporter,
        policy: ProgressPolicy,
        rules: &'static Rules,
        now: Instant,
    }

    impl Bench {
        fn new(rate: RateWindow) -> Self {
            Self { reporter: Reporter::new(rate), policy: ProgressPolicy::default(), rules: MCP, now: Instant::ZERO }
        }

        fn report(&mut self, update: Progress) -> Result<Verdict, ProgressError> {
            let update = Reporter::check(update, self.rules, &self.policy)?;
            if !self.reporter.report(update, self.rules, &self.policy) {
                return Ok(Verdict::NotIncreasing);
            }
            Ok(self.flush().map_or(Verdict::Keep, Verdict::Send))
        }

        fn flush(&mut self) -> Option<Progress> {
            self.reporter.release(self.reporter.next(self.now, self.rules), self.now)
        }

        fn values(&mut self, updates: impl IntoIterator<Item = Progress>) -> Vec<f64> {
            let sent = |verdict| if let Ok(Verdict::Send(progress)) = verdict { progress.value } else { None };
            updates.into_iter().filter_map(|update| sent(self.report(update))).collect()
        }
    }

    fn unlimited() -> Bench {
        Bench::new(RateWindow::UNLIMITED)
    }

    fn of(value: f64, total: f64) -> Progress {
        Progress { value: Some(value), total: Some(total), ..Progress::default() }
    }

    #[test]
    fn numbers_that_are_negative_not_finite_or_above_the_total_are_errors() {
        for (update, error) in [
            (Progress::value(f64::NAN), ProgressError::NotFinite),
            (Progress::value(f64::INFINITY), ProgressError::NotFinite),
            (of(1.0, f64::NAN), ProgressError::NotFinite),
            (of(1.0, f64::NEG_INFINITY), ProgressError::NotFinite),
            (Progress::value(-1.0), ProgressError::Negative),
            (of(0.0, -1.0), ProgressError::Negative),
            (of(2.0, 1.0), ProgressError::AboveTotal),
            (of(1.000_000_001, 1.0), ProgressError::AboveTotal),
        ] {
            assert_eq!(unlimited().report(update), Err(error));
        }
    }

    #[test]
    fn the_rounding_error_is_relative_so_that_every_real_step_counts() {
        let steps = [1.0, 2.0, 3.0].map(|value| of(value, 1e10));
        assert_eq!(unlimited().values(steps), [1.0, 2.0, 3.0]);
        let bytes = [1e12, 1e12 + 4096.0, 1e12 + 8192.0].map(Progress::value);
        assert_eq!(unlimited().values(bytes).len(), 3);
        let tiny = [1e-15, 2e-15, 3e-15].map(|value| of(value, 1.0));
        assert_eq!(unlimited().values(tiny), [1e-15, 2e-15, 3e-15]);
    }

    #[test]
    fn a_tenth_added_ten_times_is_sent_as_one() {
        let mut bench = unlimited();
        let mut sum = 0.0;
        let mut sent = Vec::new();
        for _ in 0..10 {
            sum += 0.1;
            sent.extend(bench.values([of(sum, 1.0)]));
        }
        assert_eq!(sent.len(), 10);
        assert_eq!(sent.last(), Some(&1.0));
        // A rounding error above the total is cut off as well.
        assert_eq!(unlimited().values([of(1.0 + 1e-15, 1.0)]), [1.0]);
    }

    #[test]
    fn a_rounding_error_is_no_increase() {
        let mut bench = unlimited();
        assert_eq!(bench.values([Progress::value(0.3)]), [0.3]);
        assert_eq!(bench.report(Progress::value(0.1 + 0.2)), Ok(Verdict::NotIncreasing));
    }

    #[test]
    fn a_total_may_change_or_vanish_and_a_first_value_may_be_zero() {
        assert_eq!(
            unlimited().values([of(0.0, 10.0), of(1.0, 5.0), Progress::value(2.0), of(3.0, 3.0), of(4.0, 8.0)]),
            [0.0, 1.0, 2.0, 3.0, 4.0]
        );
    }

    #[test]
    fn a_value_that_does_not_increase_is_dropped_and_its_message_is_kept() {
        let mut bench = unlimited();
        bench.values([of(5.0, 10.0).with_message("downloading")]);
        assert_eq!(bench.report(of(5.0, 10.0)), Ok(Verdict::NotIncreasing));
        assert_eq!(bench.report(of(4.0, 10.0)), Ok(Verdict::NotIncreasing));
        assert_eq!(bench.report(of(5.0, 10.0).with_message("0/2000")), Ok(Verdict::Keep));
        assert_eq!(bench.report(of(6.0, 10.0)), Ok(Verdict::Send(of(6.0, 10.0).with_message("0/2000"))));
    }

    #[test]
    fn a_message_alone_is_sent_with_the_next_increase_and_a_first_message_with_zero() {
        let mut bench = unlimited();
        let zero = Progress::value(0.0).with_message("starting");
        assert_eq!(bench.report(Progress::message("starting")), Ok(Verdict::Send(zero)));
        assert_eq!(bench.report(Progress::message("still")), Ok(Verdict::Keep));
        assert_eq!(bench.report(Progress::message("going")), Ok(Verdict::Keep));
        assert_eq!(bench.report(Progress::value(1.0)), Ok(Verdict::Send(Progress::value(1.0).with_message("going"))));
    }

    #[test]
    fn a_message_alone_is_sent_without_a_value_if_the_protocol_allows_it() {
        let mut bench = unlimited();
        bench.rules = PERCENT;
        assert_eq!(bench.report(Progress::message("starting")), Ok(Verdict::Send(Progress::message("starting"))));
    }

    #[test]
    fn a_full_window_lets_no_update_through_and_the_newest_is_kept() {
        let mut bench = Bench::new(RateWindow::new(2, Duration::from_millis(100)));
        assert_eq!(bench.values((1..=99).map(|value| Progress::value(f64::from(value)))), [1.0, 2.0]);
        let opens = Instant::from_millis(100);
        assert_eq!(bench.reporter.next(bench.now, MCP), UpdateStep::Waits(Some(opens)));
        assert_eq!(bench.flush(), None);
        bench.now = opens;
        assert_eq!(bench.flush(), Some(Progress::value(99.0)));
        assert_eq!(bench.flush(), None);
    }

    #[test]
    fn a_kept_update_is_merged_member_by_member() {
        let mut bench = Bench::new(RateWindow::new(0, Duration::from_secs(1)));
        bench.report(of(1.0, 9.0).with_message("one")).unwrap();
        bench.report(Progress::value(2.0).with_data(crate::json::Json::null())).unwrap();
        bench.report(Progress::message("three")).unwrap();
        let merged = Progress::value(2.0).with_message("three").with_data(crate::json::Json::null());
        assert_eq!(bench.reporter.release_last(MCP), Some(merged));
        assert_eq!(bench.reporter.release_last(MCP), None);
    }

    #[test]
    fn a_total_alone_is_ignored_if_it_is_below_the_kept_value() {
        let mut bench = Bench::new(RateWindow::new(0, Duration::from_secs(1)));
        bench.report(of(5.0, 10.0)).unwrap();
        bench.report(Progress { total: Some(3.0), ..Progress::default() }).unwrap();
        bench.report(Progress { total: Some(20.0), ..Progress::default() }).unwrap();
        assert_eq!(bench.reporter.release_last(MCP), Some(of(5.0, 20.0)));
    }

    #[test]
    fn a_final_update_is_sent_past_a_full_window_only_once() {
        let mut bench = Bench::new(RateWindow::new(1, Duration::from_secs(1)));
        assert_eq!(bench.values([of(1.0, 3.0), of(2.0, 3.0), of(3.0, 3.0)]), [1.0, 3.0]);
        assert_eq!(bench.report(of(3.0, 3.0)), Ok(Verdict::NotIncreasing));
        assert!(bench.values([of(4.0, 4.0), of(5.0, 5.0)]).is_empty());
    }

    #[test]
    fn a_window_of_any_length_limits_updates_unless_the_length_is_zero() {
        for length in [Duration::from_nanos(1), Duration::from_micros(1), Duration::MAX] {
            let mut bench = Bench::new(RateWindow::new(1, length));
            assert_eq!(bench.values([1.0, 2.0].map(Progress::value)), [1.0]);
            assert!(matches!(bench.reporter.next(bench.now, MCP), UpdateStep::Waits(Some(_))));
        }
        assert_eq!(Bench::new(RateWindow::new(1, Duration::ZERO)).values([1.0, 2.0].map(Progress::value)), [1.0, 2.0]);
    }

    #[test]
    fn percentages_are_compared_and_not_the_original_values() {
        let mut bench = unlimited();
        bench.rules = PERCENT;
        assert_eq!(bench.values([of(1.0, 2.0), of(2.0, 8.0), of(8.0, 8.0)]), [50.0, 100.0]);
        assert_eq!(unlimited().values([Progress::value(150.0)]), [150.0]);
        let mut whole = unlimited();
        whole.rules = PERCENT;
        let every: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(whole.values(every.iter().map(|percent| Progress::percent(*percent))), every);
        let mut huge = unlimited();
        huge.rules = PERCENT;
        assert_eq!(huge.values([of(f64::MAX / 2.0, f64::MAX)]), [50.0]);
        let mut clamped = unlimited();
        clamped.rules = PERCENT;
        assert_eq!(clamped.values([Progress::value(150.0)]), [100.0]);
    }

    #[test]
    fn a_receiver_accepts_any_increase_and_nothing_else() {
        let mut watcher = Watcher::default();
        let quiet = Duration::from_secs(1);
        let mut see = |value: f64, millis: u64| watcher.judge(of(value, 1.0), Instant::from_millis(millis), MCP, false, quiet);
        for value in [-5.0, -4.0, 0.0, 1e-300, 7.0] {
            assert_eq!(see(value, 0), UpdateVerdict::Accepted { progress: of(value, 1.0), is_activity: true });
        }
        assert_eq!(see(7.0, 0), UpdateVerdict::Dropped { is_reported: true });
        assert_eq!(see(6.0, 999), UpdateVerdict::Dropped { is_reported: false });
        assert_eq!(see(6.0, 1000), UpdateVerdict::Dropped { is_reported: true });
    }

    #[test]
    fn an_equal_value_with_a_message_is_accepted_as_a_message_if_that_is_allowed() {
        let mut watcher = Watcher::default();
        let mut see = |progress| watcher.judge(progress, Instant::ZERO, MCP, true, Duration::ZERO);
        see(Progress::value(1.0));
        assert_eq!(
            see(of(1.0, 2.0).with_message("m")),
            UpdateVerdict::Accepted { progress: Progress::message("m"), is_activity: false }
        );
        assert_eq!(see(Progress::value(1.0)), UpdateVerdict::Dropped { is_reported: true });
        assert_eq!(see(Progress::value(0.5).with_message("m")), UpdateVerdict::Dropped { is_reported: true });
    }
}
