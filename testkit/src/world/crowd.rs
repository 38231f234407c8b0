//! A world of many ends: any number of clients of one server.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{Config, Gone, Instant, Lane, Session, TransportEnd};
use serde_json::Value;

use super::STEPS;
use crate::coverage::Coverage;
use crate::link::{Arrival, Faults, SimLink};
use crate::{Subject, Watched};

/// The connection of the clients of a [`Crowd`] to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// A lane for each client. The lane of the first client is the channel, on which frames are sent that belong to no request.
    Lanes,
    /// One channel for all clients, as from a gateway that makes the ids of their requests different. For clients without a handshake.
    Channel,
}

/// Any number of clients of one server, each with links of its own, in virtual time. The clients may be of different eras.
///
/// Each end is [`Watched`], which checks its guarantees. In addition, no frame for one client may contain the name of another (G16). The
/// test polls the events of all ends, and calls their methods; the crowd only moves frames and the clock.
///
/// ```
/// use protocol_core::mcp::Era;
/// use protocol_core::{Event, Invoke, Json, Reply, Session, ToolOutput};
/// use testkit::config::{client_config, server_config, with};
/// use testkit::world::{Crowd, Ways};
///
/// let eras = [("old", Era::Legacy), ("either", Era::Auto), ("new", Era::Modern)];
/// let clients = eras.map(|(name, era)| with(client_config(), |config| (config.identity.name, config.era) = (name.to_owned(), era)));
/// let mut crowd = Crowd::new(Session::new(server_config(), protocol_core::Instant::ZERO), clients, Ways::Lanes, 1);
/// crowd.deliver_all();
/// for at in 0..3 {
///     let (now, call) = (crowd.now(), Invoke::call_tool("t", Json::empty_object()));
///     crowd.client_mut(at).invoke(call, now).expect("it is ready");
/// }
/// crowd.deliver_all();
/// while let Some(event) = crowd.server_mut().poll_event() {
///     if let Event::Request { id, caller, .. } = event {
///         let (now, reply) = (crowd.now(), ToolOutput::text(&*caller.identity().name));
///         crowd.server_mut().respond(id, Reply::Tool(reply), now).expect("it runs");
///     }
/// }
/// crowd.deliver_all();
/// for (at, (name, _)) in eras.into_iter().enumerate() {
///     let done = std::iter::from_fn(|| crowd.client_mut(at).poll_event()).last();
///     assert!(format!("{done:?}").contains(&format!(r#""text":"{name}""#)), "{done:?}");
/// }
/// ```
#[derive(Debug)]
pub struct Crowd<S: Subject = Session> {
    server: Watched<S>,
    clients: Vec<Watched>,
    ways: Ways,
    /// The link of each client to the server, and the link back.
    links: Vec<[SimLink; 2]>,
    now: Instant,
}

impl<S: Subject> Crowd<S> {
    /// A server, and a client for each configuration. The seed is that of the links, which have no faults at first.
    ///
    /// # Panics
    /// If there is no client, or if the name of one client contains that of another.
    #[must_use]
    pub fn new(server: S, clients: impl IntoIterator<Item = Config>, ways: Ways, seed: u64) -> Self {
        let now = Instant::ZERO;
        let clients: Vec<_> = clients.into_iter().map(|config| Watched::new(Session::new(config, now), now)).collect();
        let links = (0..clients.len() as u64).map(|at| [seed + 2 * at, seed + 2 * at + 1].map(SimLink::new)).collect();
        let crowd = Self { server: Watched::new(server, now), clients, ways, links, now };
        assert!(!crowd.is_empty(), "a crowd needs at least one client");
        for at in 0..crowd.len() {
            let is_other = |other: &usize| *other != at && crowd.name(*other).contains(crowd.name(at));
            assert_eq!((0..crowd.len()).find(is_other), None, "the name of client {at} is part of that of another");
        }
        crowd
    }

    /// The number of clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Always `false`: a crowd has a client.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Watched<S> {
        &self.server
    }

    /// The server, for calling its methods.
    pub fn server_mut(&mut self) -> &mut Watched<S> {
        &mut self.server
    }

    /// A client.
    #[must_use]
    pub fn client(&self, at: usize) -> &Watched {
        &self.clients[at]
    }

    /// A client, for calling its methods.
    pub fn client_mut(&mut self, at: usize) -> &mut Watched {
        &mut self.clients[at]
    }

    /// The name in the identity of a client.
    #[must_use]
    pub fn name(&self, at: usize) -> &str {
        &self.clients[at].config().identity.name
    }

    /// The lane of a client at the server.
    #[must_use]
    pub fn lane(&self, at: usize) -> Lane {
        match self.ways {
            Ways::Lanes => Lane::new(u32::try_from(at).expect("fewer clients than lanes")),
            Ways::Channel => Lane::CHANNEL,
        }
    }

    /// Changes the faults of the link of a client to the server, and of the link back.
    pub fn faults(&mut self, at: usize, mut change: impl FnMut(&mut Faults)) {
        self.links[at].iter_mut().for_each(|link| change(&mut link.faults));
    }

    /// The counts of happenings at all ends.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let mut all = self.server.coverage().clone();
        self.clients.iter().for_each(|client| all.add(client.coverage()));
        all
    }

    // ---- Frames ----

    /// Puts all frames that the ends have queued onto their links. Returns `true` if there was a frame.
    ///
    /// # Panics
    /// If a frame for one client contains the name of another.
    pub fn leave(&mut self) -> bool {
        let mut moved = false;
        while let Some(out) = self.server.poll_transmit() {
            let text = String::from_utf8_lossy(&out.frame).into_owned();
            let at = match self.ways {
                Ways::Lanes => out.route.lane.number() as usize,
                Ways::Channel => self.recipient(&text),
            };
            let of_other = (0..self.len()).find(|other| *other != at && text.contains(self.name(*other)));
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
            self.links[at][1].send(&frame, self.now);
            moved = true;
        }
        for (client, links) in self.clients.iter_mut().zip(&mut self.links) {
            while let Some(out) = client.poll_transmit() {
                links[0].send(&out.frame, self.now);
                moved = true;
            }
        }
        moved
    }

    /// Passes the next frame of a client to the server, if one has arrived and the server takes it. Returns `true` if a frame was
    /// passed, or the end of the link has arrived.
    pub fn arrive_at_server(&mut self, at: usize) -> bool {
        let lane = self.lane(at);
        if !self.server.wants_input(lane) {
            return false;
        }
        match self.links[at][0].receive(self.now) {
            Some(Arrival::Message(frame)) => {
                let frame = match self.ways {
                    Ways::Lanes => frame,
                    Ways::Channel => self.renumbered(&frame, |id, count| id * count + at as u64),
                };
                self.server.handle_frame(frame, lane, self.now).expect("input is wanted");
                true
            }
            // `lose` handles the end at the server.
            Some(Arrival::End(_)) => true,
            None => false,
        }
    }

    /// Passes the next frame of the server, or the end of the link, to a client, if it has arrived and the client takes input. Returns
    /// `true` if it was passed.
    pub fn arrive_at_client(&mut self, at: usize) -> bool {
        let client = &mut self.clients[at];
        if !client.wants_input(Lane::CHANNEL) {
            return false;
        }
        match self.links[at][1].receive(self.now) {
            Some(Arrival::Message(frame)) => _ = client.handle_frame(frame, Lane::CHANNEL, self.now).expect("input is wanted"),
            Some(Arrival::End(end)) => client.handle_end(end, self.now),
            None => return false,
        }
        true
    }

    /// Delivers everything that can be delivered at this instant. Polls no events.
    ///
    /// # Panics
    /// If the ends send frames without end.
    pub fn deliver_all(&mut self) {
        for _ in 0..STEPS {
            let mut moved = self.leave();
            for at in 0..self.len() {
                moved |= self.arrive_at_server(at) | self.arrive_at_client(at);
            }
            if !moved {
                return;
            }
        }
        panic!("a livelock: frames without end at one instant");
    }

    /// Loses the connection of a client, in both directions.
    pub fn lose(&mut self, at: usize) {
        let now = self.now;
        self.links[at].iter_mut().for_each(|link| link.end(TransportEnd::Failed, now));
        self.clients[at].handle_end(TransportEnd::Failed, now);
        match self.lane(at) {
            // The channel of the first client is the transport of the server. The channel of a gateway continues without this client.
            Lane::CHANNEL if self.ways == Ways::Lanes => self.server.handle_end(TransportEnd::Failed, now),
            Lane::CHANNEL => {}
            lane => _ = self.server.handle_gone(Gone::Lane(lane), now),
        }
    }

    // ---- Time ----

    /// The next instant at which a deadline of an end passes, a message arrives, or a stall ends.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let ends = self.clients.iter().map(Watched::poll_timeout).chain([self.server.poll_timeout()]);
        let links = self.links.iter().flatten().flat_map(|link| [link.due(), link.resumes(self.now)]);
        ends.chain(links).flatten().filter(|at| *at > self.now).min()
    }

    /// Moves the clock by `span`, with a stop at each instant at which something happens.
    pub fn run_for(&mut self, span: Duration) {
        let target = self.now.saturating_add(span);
        self.deliver_all();
        while let Some(at) = self.next().filter(|at| *at <= target) {
            self.jump(at);
        }
        self.jump(target);
    }

    fn jump(&mut self, at: Instant) {
        self.now = at;
        self.clients.iter_mut().for_each(|client| client.handle_timeout(at));
        self.server.handle_timeout(at);
        self.deliver_all();
    }

    /// Loses every connection, and checks the guarantees about the end of each session. Drops the events.
    ///
    /// # Panics
    /// If a guarantee is violated.
    pub fn finish(mut self) {
        // The first client is lost last: with `Ways::Lanes` its lane is the channel, whose loss ends the session of the server.
        (0..self.len()).rev().for_each(|at| self.lose(at));
        self.server.handle_end(TransportEnd::Failed, self.now);
        while self.server.poll_event().is_some() {}
        self.server.check_end();
        for client in &mut self.clients {
            while client.poll_event().is_some() {}
            client.check_end();
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
        let by_id = number.get().map(|id| (id % self.len() as u64) as usize);
        let by_name = || (0..self.len()).find(|at| frame.contains(self.name(*at)));
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
                *id = Value::from(change(number, self.len() as u64));
            }
        }
        frame.to_string().into()
    }
}
