//! The caller of the last stateless request. Most requests on a channel name the same caller, which then need not be read again.
//!
//! Even so, no request depends on an earlier one: the stored caller is used only if the text that names the caller is the same, byte for
//! byte.

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

    /// Stores the caller of the request in `frame`, if it can be remembered.
    pub(super) fn note(&mut self, caller: &StatelessCaller, frame: &[u8]) {
        if let Some(known) = KnownCaller::new(caller, frame) {
            self.known = Some(known);
        }
    }
}
