//! Two sessions on a perfect line, in virtual time: what one sends the other receives at once.

use bytes::Bytes;
use protocol_core::{Config, Event, Instant, Lane};

use crate::end::{End, client_config, server_config};

/// A client and a server.
#[derive(Debug)]
pub struct Pair {
    /// The calling end.
    pub client: End,
    /// The serving end.
    pub server: End,
    /// Every frame that crossed, in order, `>` from the client and `<` from the server.
    pub trace: Vec<String>,
}

impl Pair {
    /// Two ends that declare everything, with the handshake behind them.
    #[must_use]
    pub fn ready() -> Self {
        Self::with(client_config(), server_config())
    }

    /// Two ends with the handshake behind them.
    #[must_use]
    pub fn with(client: Config, server: Config) -> Self {
        let mut pair = Self { client: End::new(client), server: End::new(server), trace: Vec::new() };
        pair.run();
        assert!(pair.client.session.is_ready() && pair.server.session.is_ready());
        pair.client.events();
        pair.server.events();
        pair.trace.clear();
        pair
    }

    /// Carries frames until none is left. Events stay where they are.
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
        panic!("a livelock: the ends go on talking for ever");
    }

    /// Moves both clocks to `millis`, stopping wherever either end has a deadline, and carries what that causes.
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

fn deliver(end: &mut End, text: &str) {
    end.session.handle_frame(Bytes::copy_from_slice(text.as_bytes()), Lane::CHANNEL, end.now).expect("the session takes frames");
}

impl End {
    fn at_instant(&mut self, now: Instant) {
        self.now = now;
        self.session.handle_timeout(now);
    }
}
