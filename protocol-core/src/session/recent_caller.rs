//! The caller of the last stateless request. Most requests of a channel name the same caller, which is then not read again.
//!
//! Nothing of an earlier request applies to a later one: the caller is read again unless its text is the same, byte for byte.

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

    /// Notes the caller of the request in `frame`.
    pub(super) fn note(&mut self, caller: &StatelessCaller, frame: &[u8]) {
        if let Some(known) = KnownCaller::new(caller, frame) {
            self.known = Some(known);
        }
    }
}
