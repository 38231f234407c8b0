//! The caller of the last stateless request. Most requests of a channel name the same one, and share what was read of it.
//!
//! Nothing of an earlier request counts for a later one: the caller is read anew unless its text is the same, byte for byte.

use crate::dialect::{KnownCaller, StatelessCaller};

#[derive(Clone, Debug, Default)]
pub(super) struct RecentCaller {
    has_called: bool,
    known: Option<KnownCaller>,
}

impl RecentCaller {
    /// Returns `true` once a stateless request has come.
    pub(super) fn has_called(&self) -> bool {
        self.has_called
    }

    /// The last caller that was remembered.
    pub(super) fn known(&self) -> Option<&KnownCaller> {
        self.known.as_ref()
    }

    /// Notes the caller of a request, which `frame` brought.
    pub(super) fn note(&mut self, caller: &StatelessCaller, frame: &[u8]) {
        self.has_called = true;
        if let Some(known) = KnownCaller::new(caller, frame) {
            self.known = Some(known);
        }
    }
}
