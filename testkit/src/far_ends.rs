//! The two far ends of a gateway under test.

use protocol_core::drive::Machine;
use protocol_core::{Config, Instant};

use crate::{Scripted, carry};

/// A gateway with two legs.
pub trait Relay {
    /// A leg of the gateway. If it is a [`Watched`](crate::Watched) session, its guarantees are checked.
    type Leg: Machine;

    /// The legs: to the agent or client, and to the app or server.
    fn legs(&mut self) -> [&mut Self::Leg; 2];

    /// Polls the events of each leg, and makes the corresponding method calls on the other leg.
    fn relay(&mut self, now: Instant);
}

/// The two far ends of a gateway under test: the caller and the callee. The guarantees of both are checked, too.
///
/// The documentation of the crate has an example, "A gateway between protocols".
#[derive(Debug)]
pub struct FarEnds {
    /// The client or agent.
    pub agent: Scripted,
    /// The server or app.
    pub app: Scripted,
}

/// The maximum number of passes at one instant. If frames are left after them, it is a livelock.
const PASSES: usize = 10_000;

impl FarEnds {
    /// New ends, which have exchanged no frames with the gateway yet.
    #[must_use]
    pub fn new(agent: Config, app: Config) -> Self {
        Self { agent: Scripted::new(agent), app: Scripted::new(app) }
    }

    /// Passes frames between the ends and the legs of the gateway, and lets the gateway relay, until there are no more frames. The test
    /// polls the events of the ends.
    ///
    /// # Panics
    /// If that never ends, or if a session does not take input because its events are not polled.
    pub fn pass(&mut self, gateway: &mut impl Relay, now: Instant) -> &mut Self {
        for _ in 0..PASSES {
            let [agent, app] = gateway.legs();
            let has_moved = carry(&mut self.agent.session, agent, now) | carry(&mut self.app.session, app, now);
            gateway.relay(now);
            if !has_moved {
                // `relay` may have queued frames.
                let [agent, app] = gateway.legs();
                if !carry(&mut self.agent.session, agent, now) & !carry(&mut self.app.session, app, now) {
                    return self;
                }
            }
        }
        panic!("a livelock: the gateway goes on passing frames without end");
    }
}
