//! The sessions with a handshake of each client: how many there are, and which are idle. So a client that needs a session gets one, unless
//! every session is in use: the idle session that would end first ends for it.

use alloc::collections::{BTreeMap, BTreeSet};

use super::types::SessionKey;
use crate::json::Text;
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Clients {
    all: Sessions,
    /// The sessions of the clients that are known by a name.
    named: BTreeMap<Text, Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    count: usize,
    /// The idle ones, by the time at which they end.
    idle: BTreeSet<(Instant, SessionKey)>,
}

impl Sessions {
    /// The idle session that would end first.
    fn first_idle(&self) -> Option<SessionKey> {
        self.idle.first().map(|(_, key)| *key)
    }
}

/// The place for a further session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// There is one once this session has ended.
    Of(SessionKey),
    /// All sessions are in use; `is_share` is `true` if only those of this client are too many.
    None {
        is_share: bool,
    },
}

impl Clients {
    /// The place for a further session of a client, if there are at most `limit` sessions, and a client has at most as many as are left for
    /// all others.
    pub(super) fn place(&self, limit: usize, client: Option<&Text>) -> Place {
        let room = limit.saturating_sub(self.all.count);
        let own = client.and_then(|client| self.named.get(client));
        let (idle, is_share) = match own {
            Some(own) if room > 0 && own.count >= room => (own.first_idle(), true),
            _ if room > 0 => return Place::Free,
            _ => (self.all.first_idle(), false),
        };
        idle.map_or(Place::None { is_share }, Place::Of)
    }

    pub(super) fn add(&mut self, client: Option<&Text>) {
        self.all.count = self.all.count.saturating_add(1);
        if let Some(client) = client {
            let own = self.named.entry(client.clone()).or_default();
            own.count = own.count.saturating_add(1);
        }
    }

    /// Removes a session, which is not idle.
    pub(super) fn remove(&mut self, client: Option<&Text>) {
        self.all.count = self.all.count.saturating_sub(1);
        let Some(client) = client else { return };
        let Some(own) = self.named.get_mut(client) else { return };
        own.count = own.count.saturating_sub(1);
        if own.count == 0 {
            self.named.remove(client);
        }
    }

    /// Records that an idle session ended at `from` if it stayed idle, and now does so at `to`; `None` if it is not idle.
    pub(super) fn move_idle(&mut self, client: Option<&Text>, key: SessionKey, from: Option<Instant>, to: Option<Instant>) {
        let own = client.and_then(|client| self.named.get_mut(client));
        for sessions in [Some(&mut self.all), own].into_iter().flatten() {
            if let Some(from) = from {
                sessions.idle.remove(&(from, key));
            }
            if let Some(to) = to {
                sessions.idle.insert((to, key));
            }
        }
    }
}
