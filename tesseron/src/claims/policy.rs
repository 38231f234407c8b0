//! The time limits and bounds of a host.

use core::time::Duration;

/// The time limits and bounds of a [`Host`](super::Host).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostPolicy {
    /// The time for which a claim is valid after it was made or last refreshed. Default: 600 s.
    pub code_life: Duration,
    /// The interval at which the claim is refreshed until it is bound; less than [`Self::code_life`]. Zero means never. Default: 300 s.
    pub refresh: Duration,
    /// The time for which a wrong code is remembered. Default: 60 s.
    pub failure_window: Duration,
    /// The delay of a code after one wrong code within [`Self::failure_window`]. Each further wrong code doubles it. Default: 125 ms.
    pub first_delay: Duration,
    /// The maximum delay of a code. Default: 2 s, which is reached after five wrong codes within a minute.
    pub max_delay: Duration,
    /// The maximum number of connections in the backlog. A further connection evicts another one. Zero counts as one. Default: 64.
    pub places: usize,
    /// The time within which a WebSocket connection must send its upgrade request. Default: 2 s.
    pub upgrade_wait: Duration,
    /// The time within which a Unix socket must be bound. While an app without a claim has a channel, at most 1 s for each further socket,
    /// whose bind is answered with `Occupied`. Default: 5 s.
    pub bind_wait: Duration,
    /// The number of refused binds that a Unix socket may have. The next one closes the socket. Default: 8.
    pub bind_attempts: u32,
}

impl Default for HostPolicy {
    fn default() -> Self {
        Self {
            code_life: Duration::from_secs(600),
            refresh: Duration::from_secs(300),
            failure_window: Duration::from_secs(60),
            first_delay: Duration::from_millis(125),
            max_delay: Duration::from_secs(2),
            places: 64,
            upgrade_wait: Duration::from_secs(2),
            bind_wait: Duration::from_secs(5),
            bind_attempts: 8,
        }
    }
}
