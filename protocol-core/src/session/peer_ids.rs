//! The ids of the peer's exchanges, by lane: the same id on two lanes identifies two exchanges. Past ids are remembered only for the
//! channel.
//!
//! ```text
//!             insert              retire                   `remembered` more ids were retired
//!   unknown ----------> live ----------------> past --------------------------------------------------> unknown
//!                        ^                      |
//!                        `--- insert: reused ---'
//! ```

use alloc::collections::{BTreeMap, VecDeque};

use crate::session::monotonic_map::{MonotonicKey, MonotonicMap};
use crate::session::{InboundId, InputKey, Lane};
use crate::wire::WireId;

/// The call or the input request that an exchange of the peer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdUse {
    InboundCall(InboundId),
    InboundInput(InputKey),
}

impl MonotonicKey for WireId {
    fn steps_above(&self, other: &Self) -> Option<usize> {
        match (self, other) {
            (Self::Int(number), Self::Int(other)) => usize::try_from(number.checked_sub(*other)?).ok(),
            _ => None,
        }
    }
}

/// Live ids by lane, and a bounded number of past ids of the channel.
#[derive(Clone, Debug)]
pub(super) struct PeerIds {
    /// Live ids of the channel. They mostly rise, since most peers number their requests.
    channel: MonotonicMap<WireId, IdUse>,
    /// Live ids of other lanes. An empty map is removed.
    others: BTreeMap<Lane, BTreeMap<WireId, IdUse>>,
    past: VecDeque<WireId>,
    /// The maximum number of past ids.
    remembered: usize,
    /// The highest number so far. A higher number cannot be a past id.
    highest: Option<i64>,
}

impl PeerIds {
    pub(super) fn new(remembered: usize) -> Self {
        Self { channel: MonotonicMap::new(), others: BTreeMap::new(), past: VecDeque::new(), remembered, highest: None }
    }

    /// The call or the input request of a live id that came by `lane`.
    #[inline]
    pub(super) fn use_of(&self, lane: Lane, id: &WireId) -> Option<IdUse> {
        if lane == Lane::CHANNEL { self.channel.get(id).copied() } else { self.others.get(&lane)?.get(id).copied() }
    }

    /// The only call or input request with an id, on any lane, for which `is_candidate` is `true`. `None` if there are several, or none.
    pub(super) fn only_use_of(&self, id: &WireId, is_candidate: impl Fn(IdUse) -> bool) -> Option<IdUse> {
        let uses = self.channel.get(id).into_iter().chain(self.others.values().filter_map(|ids| ids.get(id)));
        let mut uses = uses.copied().filter(|id_use| is_candidate(*id_use));
        uses.next().filter(|_| uses.next().is_none())
    }

    /// Adds an id, which must not be live. Returns `true` if the id is remembered as a past id, which is possible only on the channel.
    pub(super) fn insert(&mut self, lane: Lane, id: WireId, id_use: IdUse) -> bool {
        if lane != Lane::CHANNEL {
            self.others.entry(lane).or_default().insert(id, id_use);
            return false;
        }
        let cannot_be_past = match (&id, self.highest) {
            (WireId::Int(number), Some(highest)) => *number > highest,
            (WireId::Int(_), None) => true,
            (WireId::Null | WireId::Large(_) | WireId::Str(_), _) => false,
        };
        if let WireId::Int(number) = id {
            self.highest = self.highest.max(Some(number));
        }
        let reused = !cannot_be_past && self.past.contains(&id);
        self.channel.insert(id, id_use);
        reused
    }

    /// Live -> past on the channel, live -> unknown on any other lane.
    pub(super) fn retire(&mut self, lane: Lane, id: WireId) {
        if lane != Lane::CHANNEL {
            let Some(ids) = self.others.get_mut(&lane) else { return };
            ids.remove(&id);
            if ids.is_empty() {
                self.others.remove(&lane);
            }
            return;
        }
        if self.channel.remove(&id).is_none() || self.remembered == 0 {
            return;
        }
        if self.past.len() >= self.remembered {
            self.past.pop_front();
        }
        self.past.push_back(id);
    }

    pub(super) fn clear(&mut self) {
        self.channel.clear();
        self.others.clear();
        self.past.clear();
    }
}
