//! The example target of docs/guides/fuzzing.md. Copy this file, and call your own code in place of the session.
#![no_main]

use protocol_core::{Instant, Lane, Session};
use testkit::fuzz::HostileFrame;
use testkit::{Watched, config};

libfuzzer_sys::fuzz_target!(|frames: Vec<HostileFrame>| {
    let now = Instant::ZERO;
    let mut session = Watched::new(Session::new(config::server_config(), now), now);
    session.judge_mut().distrust_peer();
    for HostileFrame(frame) in frames {
        let _ = session.handle_frame(frame, Lane::CHANNEL, now);
        while session.poll_event().is_some() {}
        while session.poll_transmit().is_some() {}
    }
});
