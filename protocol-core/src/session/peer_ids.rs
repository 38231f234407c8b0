//! The ids that the peer gives to its exchanges. Ids of the other direction never come here.
//!
//! ```text
//!             insert              retire                   as many more were retired as are remembered
//!   unknown ----------> live ----------------> past --------------------------------------------------> unknown
//!                        ^                      |
//!                        `--- insert: reused ---'
//! ```

use alloc::collections::VecDeque;

use crate::session::rising::{Rises, Rising};
use crate::session::{InboundId, InputKey};
use crate::wire::WireId;

/// The owner of an exchange of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Serve(InboundId),
    Asked(InputKey),
}

impl Rises for WireId {
    fn steps_above(&self, other: &Self) -> Option<usize> {
        match (self, other) {
            (Self::Int(number), Self::Int(other)) => usize::try_from(number.checked_sub(*other)?).ok(),
            _ => None,
        }
    }
}

/// Live ids, and a bounded memory of past ones.
#[derive(Clone, Debug)]
pub(super) struct PeerIds {
    /// Most peers count.
    live: Rising<WireId, Owner>,
    past: VecDeque<WireId>,
    remembered: usize,
    /// A number above all before it needs no look into the past.
    highest: Option<i64>,
}

impl PeerIds {
    pub(super) fn new(remembered: usize) -> Self {
        Self { live: Rising::new(), past: VecDeque::new(), remembered, highest: None }
    }

    pub(super) fn owner(&self, id: &WireId) -> Option<Owner> {
        self.live.get(id).copied()
    }

    /// Says whether the id was used before, as far as is remembered. It must not be live.
    pub(super) fn insert(&mut self, id: WireId, owner: Owner) -> bool {
        let fresh = match (&id, self.highest) {
            (WireId::Int(number), Some(highest)) => *number > highest,
            (WireId::Int(_), None) => true,
            (WireId::Null | WireId::Str(_), _) => false,
        };
        if let WireId::Int(number) = id {
            self.highest = self.highest.max(Some(number));
        }
        let reused = !fresh && self.past.contains(&id);
        self.live.insert(id, owner);
        reused
    }

    /// Live -> past.
    pub(super) fn retire(&mut self, id: &WireId) {
        if self.live.remove(id).is_none() || self.remembered == 0 {
            return;
        }
        if self.past.len() >= self.remembered {
            self.past.pop_front();
        }
        self.past.push_back(id.clone());
    }

    pub(super) fn clear(&mut self) {
        self.live.clear();
        self.past.clear();
    }
}
