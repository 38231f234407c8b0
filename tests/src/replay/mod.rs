//! Recorded traffic, replayed into sessions.
//!
//! Every recording is played once for each end of each hop that it shows. Our session sits in the place of that end: it hears what the end
//! heard, at the time when it did, and its owner does what makes it say what the end said. `recording` reads the files, `player` holds the
//! session, `mcp` and `tesseron` know which verb says what. Ids and names that the session makes up are translated both ways.
//!
//! What comes out is where the two differ: something is said that was not, is not said that was, has another member, or breaks a rule.

mod mcp;
mod player;
mod recording;
mod tesseron;

use std::collections::BTreeSet;

pub use recording::{Channel, Protocol, Seen, Turn, What, names, seen};

/// Where our session differs from one recorded end, over all connections.
///
/// # Panics
/// If the session breaks a guarantee: a call that ends twice, or a frame that is not taken.
#[must_use]
pub fn differences(seen: &Seen) -> BTreeSet<String> {
    let mut door = player::Door::default();
    let mut all = BTreeSet::new();
    for channel in &seen.channels {
        let config = match seen.protocol {
            Protocol::Mcp => mcp::config(seen.calls, channel),
            Protocol::Tesseron => tesseron::config(seen.calls, channel),
        };
        let mut player = player::Player::new(seen.protocol, seen.calls, channel, config);
        if seen.protocol == Protocol::Tesseron && !seen.calls {
            player.deadlines.extend(tesseron::deadlines(channel));
        }
        all.extend(player.play(channel, &mut door));
    }
    all
}
