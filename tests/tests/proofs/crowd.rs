//! A server and any number of its clients, at one instant: the test polls the events of all ends and calls their methods, and the crowd
//! moves frames.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use protocol_core::{Config, Instant, Lane, Session};
use serde_json::Value;
use testkit::{Subject, Watched};

const NOW: Instant = Instant::ZERO;

/// The connection of the clients of a [`Crowd`] to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ways {
    /// A lane for each client. The lane of the first client is the channel, on which frames are sent that belong to no request.
    Lanes,
    /// One channel for all clients, as from a gateway that makes the ids of their requests different. For clients without a handshake.
    Channel,
}

/// A server and its clients. No frame for one client may contain the name of another (G16).
pub(crate) struct Crowd<S: Subject> {
    server: Watched<S>,
    clients: Vec<Watched>,
    ways: Ways,
    /// The frames of each client that are under way to the server, and those of the server.
    under_way: Vec<[VecDeque<Bytes>; 2]>,
}

impl<S: Subject> Crowd<S> {
    pub(crate) fn new(server: S, clients: impl IntoIterator<Item = Config>, ways: Ways) -> Self {
        let clients: Vec<_> = clients.into_iter().map(|config| Watched::new(Session::new(config, NOW), NOW)).collect();
        let under_way = clients.iter().map(|_| Default::default()).collect();
        Self { server: Watched::new(server, NOW), clients, ways, under_way }
    }

    /// The server, for calling its methods.
    pub(crate) fn server_mut(&mut self) -> &mut Watched<S> {
        &mut self.server
    }

    /// A client, for calling its methods.
    pub(crate) fn client_mut(&mut self, at: usize) -> &mut Watched {
        &mut self.clients[at]
    }

    fn name(&self, at: usize) -> &str {
        &self.clients[at].config().identity.name
    }

    /// Sends all frames that the ends have queued.
    ///
    /// # Panics
    /// If a frame for one client contains the name of another.
    pub(crate) fn leave(&mut self) {
        while let Some(out) = self.server.poll_transmit() {
            let text = String::from_utf8_lossy(&out.frame).into_owned();
            let at = match self.ways {
                Ways::Lanes => out.route.lane.number() as usize,
                Ways::Channel => self.recipient(&text),
            };
            let of_other = (0..self.clients.len()).find(|other| *other != at && text.contains(self.name(*other)));
            assert!(
                of_other.is_none(),
                "G16: a frame for {} contains the name of {}: {text}",
                self.name(at),
                self.name(of_other.unwrap_or(at))
            );
            let frame = match self.ways {
                Ways::Lanes => out.frame,
                Ways::Channel => self.renumbered(&out.frame, |id, count| id / count),
            };
            self.under_way[at][1].push_back(frame);
        }
        for (client, [to_server, _]) in self.clients.iter_mut().zip(&mut self.under_way) {
            to_server.extend(std::iter::from_fn(|| client.poll_transmit()).map(|out| out.frame));
        }
    }

    /// Passes the next frame of a client to the server, if there is one and the server takes it.
    pub(crate) fn arrive_at_server(&mut self, at: usize) {
        let lane = match self.ways {
            Ways::Lanes => Lane::new(u32::try_from(at).expect("fewer clients than lanes")),
            Ways::Channel => Lane::CHANNEL,
        };
        if self.server.wants_input(lane)
            && let Some(frame) = self.under_way[at][0].pop_front()
        {
            let frame = match self.ways {
                Ways::Lanes => frame,
                Ways::Channel => self.renumbered(&frame, |id, count| id * count + at as u64),
            };
            self.server.handle_frame(frame, lane, NOW).expect("input is wanted");
        }
    }

    /// Passes the next frame of the server to a client, if there is one and the client takes it.
    pub(crate) fn arrive_at_client(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if client.wants_input(Lane::CHANNEL)
            && let Some(frame) = self.under_way[at][1].pop_front()
        {
            client.handle_frame(frame, Lane::CHANNEL, NOW).expect("input is wanted");
        }
    }

    // ---- The gateway of `Ways::Channel` ----

    /// The client that a frame of the server is for: that of an id in the frame. A log record has no id; it is for the client whose name is
    /// in the frame.
    fn recipient(&self, frame: &str) -> usize {
        let number = Cell::new(None);
        self.renumbered(frame.as_bytes(), |id, _| {
            number.set(Some(id));
            id
        });
        let by_id = number.get().map(|id| (id % self.clients.len() as u64) as usize);
        let by_name = || (0..self.clients.len()).find(|at| frame.contains(self.name(*at)));
        by_id.or_else(by_name).unwrap_or_else(|| panic!("a frame that names neither a request nor a client: {frame}"))
    }

    /// Changes each id in a frame: of a message, of what it cancels, of progress, and of a subscription. `change` gets an id and the number
    /// of clients.
    fn renumbered(&self, frame: &[u8], change: impl Fn(u64, u64) -> u64) -> Bytes {
        const IDS: [&str; 6] = [
            "/id",
            "/params/requestId",
            "/params/progressToken",
            "/params/_meta/progressToken",
            "/params/_meta/io.modelcontextprotocol~1subscriptionId",
            "/result/_meta/io.modelcontextprotocol~1subscriptionId",
        ];
        let Ok(mut frame) = serde_json::from_slice::<Value>(frame) else { return Bytes::copy_from_slice(frame) };
        for id in IDS {
            if let Some(id) = frame.pointer_mut(id)
                && let Some(number) = id.as_u64()
            {
                *id = Value::from(change(number, self.clients.len() as u64));
            }
        }
        frame.to_string().into()
    }
}
