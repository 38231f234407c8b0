//! The transport of an end with many lanes, as a state machine: it chooses the lane on which each frame comes, and remembers the stopped
//! and lost lanes. If exchanges are bound to their lane (Tesseron), frames about a request come on its lane; otherwise on any lane.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol_core::{Lane, Route, Session};
use serde_json::Value;

use crate::Rng;

/// Counts of the events of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lanes that were opened.
    pub opened: usize,
    /// Opened lanes whose number was used before.
    pub given_again: usize,
    /// Lanes that were stopped.
    pub stopped: usize,
    /// Stopped lanes that were resumed.
    pub resumed: usize,
    /// Open lanes other than the channel that were lost.
    pub lost: usize,
    /// Lanes that the session has closed.
    pub given_up: usize,
    /// Frames that were sent while another lane was stopped.
    pub passed: usize,
    /// Method calls with lanes that were not open.
    pub unknown: usize,
}

impl Seen {
    /// The sum of both counts.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            opened: self.opened + other.opened,
            given_again: self.given_again + other.given_again,
            stopped: self.stopped + other.stopped,
            resumed: self.resumed + other.resumed,
            lost: self.lost + other.lost,
            given_up: self.given_up + other.given_up,
            passed: self.passed + other.passed,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// The lanes of one end.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    rng: Rng,
    /// `true` if exchanges are bound to their lane (Tesseron).
    binds: bool,
    /// The greatest number of a lane so far.
    newest: u32,
    open: Vec<Lane>,
    /// Ended lanes, whose numbers may be used again.
    done: Vec<Lane>,
    /// The lanes of requests, by their invocation ids.
    of_request: BTreeMap<String, Lane>,
    /// The lanes of input requests, by their ids.
    of_input_request: BTreeMap<String, Lane>,
    stopped: BTreeSet<Lane>,
    lost: BTreeSet<Lane>,
    /// A frame that has arrived but was not accepted yet.
    pub(super) unaccepted: Option<(Lane, Bytes)>,
    /// The counts so far.
    pub(super) seen: Seen,
}

impl Lanes {
    /// A transport with no lane but the channel.
    #[must_use]
    pub(super) fn new(seed: u64, binds: bool) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x1a7e),
            binds,
            newest: 0,
            open: Vec::new(),
            done: Vec::new(),
            of_request: BTreeMap::new(),
            of_input_request: BTreeMap::new(),
            stopped: BTreeSet::new(),
            lost: BTreeSet::new(),
            unaccepted: None,
            seen: Seen::default(),
        }
    }

    /// The lane on which a frame comes; `None` if its lane is lost, so that the frame is lost, too.
    pub(super) fn pick(&mut self, frame: &[u8], session: &Session) -> Option<Lane> {
        self.end_idle_lanes(session);
        let frame: Value = serde_json::from_slice(frame).unwrap_or_default();
        let lane = match (frame["method"].as_str(), frame.get("id")) {
            (Some("actions/invoke"), Some(_)) => {
                let lane = if self.rng.chance(96) { self.any() } else { self.fresh() };
                self.of_request.insert(frame["params"]["invocationId"].to_string(), lane);
                lane
            }
            (Some("actions/cancel"), None) => self.bound(self.of_request.get(&frame["params"]["invocationId"].to_string())),
            (None, Some(id)) if self.binds => self.bound(self.of_input_request.get(&id.to_string())),
            (None, None) if self.binds => Lane::CHANNEL,
            (Some(_), Some(_)) if self.rng.chance(128) => self.fresh(),
            _ => self.any(),
        };
        if self.lost.contains(&lane) {
            return None;
        }
        if lane != Lane::CHANNEL && !self.open.contains(&lane) {
            self.open.push(lane);
            self.seen.opened += 1;
        }
        Some(lane)
    }

    /// The lane that was found for a request, or the channel.
    fn bound(&self, lane: Option<&Lane>) -> Lane {
        lane.copied().unwrap_or(Lane::CHANNEL)
    }

    /// A random lane: the channel, a new or ended one, or an open one.
    fn any(&mut self) -> Lane {
        match self.rng.below(4) {
            0 => Lane::CHANNEL,
            1 => self.fresh(),
            _ => self.rng.pick(&self.open).unwrap_or(Lane::CHANNEL),
        }
    }

    /// A lane with a new number, or with that of an ended lane.
    fn fresh(&mut self) -> Lane {
        if !self.done.is_empty() && self.rng.chance(80) {
            self.seen.given_again += 1;
            let place = self.rng.below(self.done.len());
            return self.done.swap_remove(place);
        }
        self.newest += 1;
        Lane::new(self.newest)
    }

    /// Ends the lanes on which no reply is owed, unless they are stopped.
    fn end_idle_lanes(&mut self, session: &Session) {
        let is_done = |lane: &mut Lane| session.replies_owed(*lane) == 0 && !self.stopped.contains(lane);
        self.done.extend(self.open.extract_if(.., is_done));
    }

    /// Notes that a frame was sent.
    pub(super) fn sent(&mut self, frame: &[u8], route: Route) {
        self.seen.passed += usize::from(!self.stopped.is_empty());
        if self.binds
            && let Ok(frame) = serde_json::from_slice::<Value>(frame)
            && let (Some(_), Some(id)) = (frame.get("method"), frame.get("id"))
        {
            self.of_input_request.insert(id.to_string(), route.lane);
        }
    }

    /// A lane: mostly an open one, sometimes the channel, an ended one, or an unknown one.
    pub(super) fn choose(&mut self, b: u8, c: u8, session: &Session) -> Option<Lane> {
        self.end_idle_lanes(session);
        let one_of = |all: &[Lane]| all.get(usize::from(b) % all.len().max(1)).copied();
        match c % 16 {
            0 => Some(Lane::new(1_000_000 + u32::from(b))),
            1 => one_of(&self.done),
            2 => Some(Lane::CHANNEL),
            _ => one_of(&self.open),
        }
    }

    /// One of the stopped lanes.
    pub(super) fn choose_stopped(&self, b: u8) -> Option<Lane> {
        self.stopped.iter().nth(usize::from(b) % self.stopped.len().max(1)).copied()
    }

    /// Notes that a lane was stopped or resumed. `was_open` is `false` if there was no such lane.
    pub(super) fn set_writable(&mut self, lane: Lane, is_writable: bool, was_open: bool) {
        self.seen.unknown += usize::from(!was_open);
        if is_writable {
            self.seen.resumed += usize::from(self.stopped.remove(&lane));
        } else if was_open {
            self.seen.stopped += usize::from(self.stopped.insert(lane));
            // A lane that is stopped does not count as ended.
            if lane != Lane::CHANNEL && !self.open.contains(&lane) {
                self.done.retain(|done| *done != lane);
                self.open.push(lane);
            }
        }
    }

    /// Notes that a lane is lost. `was_open` is `false` if there was no such lane. The number is not used again, since handlers may still
    /// run.
    pub(super) fn lose(&mut self, lane: Lane, was_open: bool) {
        self.seen.unknown += usize::from(!was_open);
        if was_open && lane != Lane::CHANNEL {
            self.seen.lost += 1;
            self.forget(lane);
            self.stopped.remove(&lane);
        }
    }

    /// Notes that the session has closed a lane.
    pub(super) fn give_up(&mut self, lane: Lane) {
        self.seen.given_up += 1;
        self.forget(lane);
        self.stopped.remove(&lane);
    }

    fn forget(&mut self, lane: Lane) {
        self.open.retain(|open| *open != lane);
        self.done.retain(|done| *done != lane);
        self.lost.insert(lane);
        self.unaccepted.take_if(|(of, _)| *of == lane);
    }
}
