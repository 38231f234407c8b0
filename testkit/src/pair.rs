//! Two sessions on a perfect connection, in virtual time: each frame is received without delay.

use bytes::Bytes;
use protocol_core::drive::Machine;
use protocol_core::{Config, Event, Instant, Lane};

use crate::Scripted;
use crate::config::{client_config, server_config};

/// A client and a server.
#[derive(Debug)]
pub struct Pair {
    /// The caller.
    pub client: Scripted,
    /// The callee.
    pub server: Scripted,
    /// Every frame that [`Self::run`] has delivered since the handshake, in order: `>` from the client, and `<` from the server.
    pub trace: Vec<String>,
}

impl Pair {
    /// The ends [`client_config`] and [`server_config`], after their handshake.
    #[must_use]
    pub fn ready() -> Self {
        Self::with(client_config(), server_config())
    }

    /// Two ends after their handshake, or after the probe of a client that makes stateless requests.
    ///
    /// # Panics
    /// If they have no revision in common.
    #[must_use]
    pub fn with(client: Config, server: Config) -> Self {
        let mut pair = Self { client: Scripted::new(client), server: Scripted::new(server), trace: Vec::new() };
        pair.run();
        assert!(pair.client.session.has_met(&pair.server.session), "the ends have no revision in common");
        pair.client.events();
        pair.server.events();
        pair.trace.clear();
        pair
    }

    /// Delivers frames until there are no more. Events are not polled.
    ///
    /// # Panics
    /// If that never ends.
    pub fn run(&mut self) -> &mut Self {
        for _ in 0..10_000 {
            let to_server = self.client.sent();
            for text in &to_server {
                self.trace.push(format!("> {text}"));
                deliver(&mut self.server, text);
            }
            let to_client = self.server.sent();
            for text in &to_client {
                self.trace.push(format!("< {text}"));
                deliver(&mut self.client, text);
            }
            if to_server.is_empty() && to_client.is_empty() {
                return self;
            }
        }
        panic!("a livelock: the ends send frames without end");
    }

    /// Moves both clocks to `millis`, with a stop at each deadline of either end, and delivers the resulting frames.
    pub fn at(&mut self, millis: u64) -> &mut Self {
        let target = Instant::from_millis(millis);
        loop {
            let next = [&self.client, &self.server].into_iter().filter_map(|end| end.session.poll_timeout()).min();
            let Some(due) = next.filter(|due| *due <= target) else { break };
            self.client.at_instant(due);
            self.server.at_instant(due);
            self.run();
        }
        self.client.at_instant(target);
        self.server.at_instant(target);
        self.run()
    }

    /// The events of the client.
    pub fn client_events(&mut self) -> Vec<Event> {
        self.client.events()
    }

    /// The events of the server.
    pub fn server_events(&mut self) -> Vec<Event> {
        self.server.events()
    }
}

/// Delivers the frames of each machine to the other, until there are no more. Returns `true` if there was any.
///
/// # Panics
/// If that never ends, or if a machine does not accept input because its events are not polled.
pub fn carry(one: &mut impl Machine, other: &mut impl Machine, now: Instant) -> bool {
    let mut frames = 0;
    loop {
        let before = frames;
        while let Some(out) = one.poll_transmit() {
            other.handle_frame(out.frame, now).expect("the machine takes input");
            frames += 1;
            assert!(frames < 100_000, "a livelock: the ends send frames without end");
        }
        while let Some(out) = other.poll_transmit() {
            one.handle_frame(out.frame, now).expect("the machine takes input");
            frames += 1;
            assert!(frames < 100_000, "a livelock: the ends send frames without end");
        }
        if frames == before {
            return frames > 0;
        }
    }
}

fn deliver(end: &mut Scripted, text: &str) {
    end.session.handle_frame(Bytes::copy_from_slice(text.as_bytes()), Lane::CHANNEL, end.now).expect("the session takes frames");
}

impl Scripted {
    fn at_instant(&mut self, now: Instant) {
        self.now = now;
        self.session.handle_timeout(now);
    }
}
