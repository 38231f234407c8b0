//! Recorded traffic, replayed into sessions.
//!
//! A recording has the frames of one or more hops; a hop is a connection between two programs, its ends. Every recording is played once for
//! each end of each hop. Our session takes the place of that end: it receives the frames that the end received, at the same times, and its
//! owner calls the methods that send the frames that the end sent. `recording` reads the files, `player` owns the session, and `mcp` and
//! `tesseron` choose the methods. Ids that the session chooses are translated both ways.
//!
//! The result is a list of differences: frames that only the session or only the recorded end sent, frames with other members, and
//! violations.

mod mcp;
mod player;
mod recording;
mod tesseron;

use std::collections::BTreeSet;

pub use recording::{Channel, Protocol, RecordedEnd, Turn, TurnKind, names, recorded_ends};

/// The differences between our session and one recorded end, over all its connections.
///
/// # Panics
/// If the session breaks a guarantee: a call that does not end exactly once, or a frame that is not taken.
#[must_use]
pub fn differences(end: &RecordedEnd) -> BTreeSet<String> {
    let mut app_host = player::AppHost::default();
    let mut all = BTreeSet::new();
    for channel in &end.channels {
        let config = match end.protocol {
            Protocol::Mcp => mcp::config(end.calls, channel),
            Protocol::Tesseron => tesseron::config(end.calls, channel),
        };
        let mut player = player::Player::new(end.protocol, end.calls, channel, config);
        if end.protocol == Protocol::Tesseron && !end.calls {
            player.deadlines.extend(tesseron::deadlines(channel));
        }
        all.extend(player.play(channel, &mut app_host));
    }
    all
}
