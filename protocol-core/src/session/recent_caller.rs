//! The caller of the last stateless request. Most requests of a channel name the same one, and share what was read of it.
//!
//! Nothing of an earlier request counts for a later one: the caller is read anew unless its text is the same, byte for byte.

use alloc::boxed::Box;

use crate::dialect::{PeerInfo, StatelessCaller};
use crate::shared::Arc;

#[derive(Clone, Debug, Default)]
pub(super) struct RecentCaller(Option<Known>);

#[derive(Clone, Debug)]
struct Known {
    /// The name and the version of the caller, as text.
    info: Box<[u8]>,
    /// The caller as it was read, with the text of its capabilities.
    peer: Arc<PeerInfo>,
}

impl RecentCaller {
    /// Returns the caller of a request, which `frame` brought.
    pub(super) fn get(&mut self, caller: StatelessCaller, frame: &[u8]) -> Arc<PeerInfo> {
        let info = caller.info.cut(frame);
        let is_same = |known: &&Known| *known.info == *info && known.peer.declared.as_bytes() == caller.capabilities.cut(frame);
        if let Some(known) = self.0.as_ref().filter(is_same) {
            return Arc::clone(&known.peer);
        }
        let peer = Arc::new(caller.rules.dialect.read_caller(caller, frame));
        self.0 = Some(Known { info: info.into(), peer: Arc::clone(&peer) });
        peer
    }
}
