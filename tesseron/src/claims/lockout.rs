//! How often a claim code may be guessed.
//!
//! ```text
//!            the `failures`th wrong code within `failure_window`
//!   Open ------------------------------------------------------------> Locked
//!    ^                                                                    |
//!    '--------------------------------------------------------------------'
//!       `lockout` is over: the wrong codes of before are forgotten
//! ```
//!
//! A right code forgets the wrong ones, too.

use alloc::collections::VecDeque;

use super::HostPolicy;
use protocol_core::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Lockout {
    /// When a code was wrong, oldest first: fewer than [`HostPolicy::failures`].
    failures: VecDeque<Instant>,
    /// No code is looked at before this.
    until: Option<Instant>,
}

impl Lockout {
    pub(super) fn is_locked(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(super) fn on_failure(&mut self, policy: &HostPolicy, now: Instant) {
        self.failures.push_back(now);
        self.failures.retain(|at| now.saturating_duration_since(*at) < policy.failure_window);
        if self.failures.len() >= policy.failures {
            self.failures.clear();
            self.until = Some(now.saturating_add(policy.lockout));
        }
    }

    pub(super) fn on_success(&mut self) {
        self.failures.clear();
    }
}
