//! The caller of the last stateless request. Most requests of a channel name the same one, and share what was read of it.
//!
//! Nothing of an earlier request counts for a later one: the caller is read anew unless its text is the same, byte for byte.

use crate::dialect::{KnownCaller, StatelessCaller};

#[derive(Clone, Debug, Default)]
pub(super) struct RecentCaller {
    known: Option<KnownCaller>,
}

impl RecentCaller {
    /// The last caller that was remembered.
    pub(super) fn known(&self) -> Option<&KnownCaller> {
        self.known.as_ref()
    }

    /// Notes the caller of a request, which `frame` brought.
    pub(super) fn note(&mut self, caller: &StatelessCaller, frame: &[u8]) {
        if let Some(known) = KnownCaller::new(caller, frame) {
            self.known = Some(known);
        }
    }
}
