//! A trait for sessions, and for wrappers around a session.

use std::fmt::Debug;

use bytes::Bytes;
use protocol_core::{Event, Full, Gone, Instant, Lane, NotLive, Received, Session, Stats, Transmit, TransportEnd};

/// A session, or a wrapper around a session. The default methods call those of [`Session`]; a wrapper such as
/// [`Broken`](crate::broken::Broken) overrides some.
pub trait Subject: Clone + Debug {
    /// The session inside.
    fn session(&self) -> &Session;
    /// The session inside.
    fn session_mut(&mut self) -> &mut Session;
    /// [`Session::handle_frame`].
    ///
    /// # Errors
    /// The errors of that method.
    fn handle_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        self.session_mut().handle_frame(frame, lane, now)
    }
    /// [`Session::set_writable`].
    ///
    /// # Errors
    /// The errors of that method.
    fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        self.session_mut().set_writable(lane, is_writable, now)
    }
    /// [`Session::handle_gone`] of a lane.
    ///
    /// # Errors
    /// The errors of that method.
    fn lose_lane(&mut self, lane: Lane, now: Instant) -> Result<(), NotLive> {
        self.session_mut().handle_gone(Gone::Lane(lane), now)
    }
    /// [`Session::stats`].
    fn stats(&self) -> Stats {
        self.session().stats()
    }
    /// [`Session::handle_timeout`].
    fn handle_timeout(&mut self, now: Instant) {
        self.session_mut().handle_timeout(now);
    }
    /// [`Session::handle_end`].
    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.session_mut().handle_end(end, now);
    }
    /// [`Session::poll_transmit`].
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.session_mut().poll_transmit()
    }
    /// [`Session::poll_event`].
    fn poll_event(&mut self) -> Option<Event> {
        self.session_mut().poll_event()
    }
    /// [`Session::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        self.session().poll_timeout()
    }
}

impl Subject for Session {
    fn session(&self) -> &Session {
        self
    }
    fn session_mut(&mut self) -> &mut Session {
        self
    }
}
