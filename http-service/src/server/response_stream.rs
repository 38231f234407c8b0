//! The end of an HTTP response before the call that it answers.

use core::fmt;
use std::sync::{Arc, Weak};

use protocol_core::Lane;
use protocol_core::http::{NotResumable, SessionKey};

use super::Shared;

/// The stream of events by which a handler's progress and reply reach the client. Handlers find it in
/// [`Context::extensions`](endpoint::Context::extensions).
///
/// ```
/// use endpoint::{Context, Tool};
/// use http_service::ResponseStream;
///
/// let backup = Tool::new("backup", async |context: Context, ()| {
///     if let Some(stream) = context.extensions().get::<ResponseStream>() {
///         // It takes an hour: let the client come back for the result. If the client cannot come back, nothing changes.
///         let _ = stream.suspend();
///     }
///     Ok("done")
/// });
/// # drop(backup);
/// ```
pub struct ResponseStream {
    shared: Weak<Shared>,
    session: SessionKey,
    lane: Lane,
}

impl ResponseStream {
    pub(super) fn new(shared: &Arc<Shared>, session: SessionKey, lane: Lane) -> Self {
        Self { shared: Arc::downgrade(shared), session, lane }
    }

    /// Ends the HTTP response while the call goes on, so that it holds no connection. The client is told to come back after
    /// [`HttpTimeouts::retry`](protocol_core::http::HttpTimeouts::retry) (MCP 2025-11-25, Transports, "Sending Messages to the Server"); until
    /// then events are kept for it. It can be called again each time that the client has come back.
    ///
    /// # Errors
    /// [`NotResumable`]; nothing has changed. The client is away already, or cannot come back: the request was made without a handshake, or
    /// in a revision before 2025-11-25, or streams of the service are not [`resumable`](protocol_core::http::HttpServerConfig::resumable).
    pub fn suspend(&self) -> Result<(), NotResumable> {
        let shared = self.shared.upgrade().ok_or(NotResumable)?;
        shared.verb(|state, now| state.suspend(self.session, self.lane, now))
    }
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseStream").field("session", &self.session).field("lane", &self.lane).finish_non_exhaustive()
    }
}
