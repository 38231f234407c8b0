//! The judge of one leg of a machine that wraps sessions.

use protocol_core::{Config, Instant, Limits, Received, Stats, Transmit};
use serde_json::Value;

use crate::coverage::Coverage;
use crate::judge::{Effect, Fact, Guarantee, Judge, Verdict};

/// Judges one leg of a machine that wraps sessions, such as a gateway, by the frames of the leg and by the counters of its session, since
/// the methods and events of a wrapped session are not accessible.
///
/// G2, G3, G4, G5, G7, G11, G12, G13, G15 and G16 are judged, as far as frames show them. The peer on the leg may break every rule.
///
/// # Panics
/// [`receive`](Leg::receive), [`send`](Leg::send), [`timeout`](Leg::timeout) and [`check`](Leg::check) panic if a
/// [guarantee](Guarantee) is broken; the message begins with the name of the guarantee.
///
/// ```
/// use protocol_core::{Instant, Invoke, Json, Lane, Reply, Session, ToolOutput};
/// use testkit::{Leg, Scripted, config, scripted};
///
/// let now = Instant::ZERO;
/// let mut wrapped = Session::new(config::server_config(), now);
/// let mut leg = Leg::new(wrapped.config());
/// for frame in [scripted::initialize(0, "2025-11-25", "{}"), scripted::request(1, "ping", "{}")] {
///     let before = wrapped.stats();
///     wrapped.handle_frame(frame.clone().into(), Lane::CHANNEL, now).expect("it takes frames");
///     leg.receive(frame.as_bytes(), &before, &wrapped.stats());
///     while let Some(out) = wrapped.poll_transmit() {
///         leg.send(&out);
///     }
///     leg.check(&wrapped.stats(), &wrapped.config().limits, wrapped.poll_timeout());
/// }
/// assert_eq!(leg.owed(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Leg {
    judge: Judge,
    max_depth: u8,
}

impl Leg {
    /// A leg whose session has just begun. Of the configuration only the protocol, the policy of progress and the maximum
    /// sampling depth matter.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut judge = Judge::of(config);
        judge.distrust_peer();
        // The checks of these guarantees need the methods and the events of the session.
        [Guarantee::DoneOnce, Guarantee::OnlyTimeoutExpires, Guarantee::RoundsApart, Guarantee::RightLane]
            .into_iter()
            .for_each(|guarantee| judge.leave_out(guarantee));
        Self { judge, max_depth: config.depth.max }
    }

    /// Notes a frame that the machine took. `before` and `after` are the counters of the session before and after it.
    #[track_caller]
    pub fn receive(&mut self, frame: &[u8], before: &Stats, after: &Stats) {
        let (lane, effect) = (protocol_core::Lane::CHANNEL, Effect::between(before, after, Received::default()));
        self.see(&Fact::Received { frame, lane, effect });
        let frame: Value = serde_json::from_slice(frame).unwrap_or_default();
        // If frames are queued, one of them may be a cancel of this request that was made before the response arrived. So the request stays
        // open.
        if let Some(id) = frame["id"].as_u64().filter(|_| frame.get("method").is_none() && before.queued_bytes == 0) {
            self.judge.end_request(id);
        }
    }

    /// Notes a frame that the machine has sent.
    #[track_caller]
    pub fn send(&mut self, transmit: &Transmit) {
        self.see(&Fact::Sent { transmit, max_depth: self.max_depth });
    }

    /// Notes that `handle_timeout` of the machine is about to be called.
    #[track_caller]
    pub fn timeout(&mut self, now: Instant) {
        self.see(&Fact::Timeout { now, due: None });
    }

    /// Checks the counters of the session, and the next deadline of the machine.
    #[track_caller]
    pub fn check(&mut self, stats: &Stats, limits: &Limits, due: Option<Instant>) {
        // After the end of this leg the deadline is that of another leg.
        let due = due.filter(|_| !self.judge.is_closed());
        self.see(&Fact::Returned { stats, limits, due });
    }

    /// Notes that the machine has reported the end of the leg's session.
    pub fn close(&mut self) {
        self.judge.end_session();
    }

    /// The number of requests of the peer that were neither answered nor cancelled. A request that repeats an id in use is never answered;
    /// it is counted only if it came in a batch.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.judge.owed()
    }

    /// The counts of happenings so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        self.judge.coverage()
    }

    #[track_caller]
    fn see(&mut self, fact: &Fact<'_>) {
        let verdict: Verdict = self.judge.see(fact);
        verdict.unwrap_or_else(|objection| panic!("{objection}"));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use protocol_core::{Stats, Transmit};

    use super::Leg;
    use crate::config::server_config;
    use crate::scripted::{call_tool, cancelled, progress, request, result};

    /// The objection to frames that a machine receives (`>`) and sends (`<`). Empty if there is none.
    fn objection(mut leg: Leg, frames: &[(char, String)]) -> String {
        let run = || {
            for (way, frame) in frames {
                let (before, mut after) = (Stats::default(), Stats::default());
                after.inbound_calls = usize::from(frame.contains("tools/call"));
                match way {
                    '>' => leg.receive(frame.as_bytes(), &before, &after),
                    _ => leg.send(&Transmit::new(frame.clone().into())),
                }
            }
        };
        let objection = catch_unwind(AssertUnwindSafe(run)).err();
        objection.map(|what| what.downcast_ref::<String>().cloned().unwrap_or_default()).unwrap_or_default()
    }

    #[test]
    fn the_objection_to_frames_that_break_a_guarantee_begins_with_its_name() {
        let leg = || Leg::new(&server_config());
        let call = || ('>', call_tool(7, true));
        let cases = [
            ("G2: a response", vec![call(), ('<', result(7)), ('<', result(7))]),
            ("G2: a response", vec![call(), ('<', result(8))]),
            ("G2: an id", vec![('<', request(1, "ping", "{}")), ('<', request(1, "ping", "{}"))]),
            ("G2: cancelled", vec![('<', request(1, "ping", "{}")), ('>', result(1)), ('<', cancelled(1))]),
            ("G3: progress before", vec![call(), ('<', result(7)), ('<', progress(7, 1.0))]),
            ("G3: not above", vec![call(), ('<', progress(7, 2.0)), ('<', progress(7, 2.0))]),
            ("G11", vec![('>', request(7, "ping", "{}")), ('<', result(7).replace(":7", ":\"7\""))]),
            ("G13", vec![('<', "{".to_owned())]),
            ("", vec![call(), ('<', progress(7, 1.0)), ('<', progress(7, 2.0)), ('<', result(7))]),
        ];
        for (expected, frames) in cases {
            let what = objection(leg(), &frames);
            assert!(what.starts_with(expected) && what.is_empty() == expected.is_empty(), "{frames:?}: {what}");
        }
    }

    #[test]
    fn a_frame_that_is_sent_after_the_end_of_a_leg_breaks_g4() {
        let mut leg = Leg::new(&server_config());
        leg.close();
        assert!(objection(leg, &[('<', request(1, "ping", "{}"))]).starts_with("G4"));
    }
}
