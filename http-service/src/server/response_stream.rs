//! Ending an HTTP response before its call has ended.

use core::fmt;
use std::sync::{Arc, Weak};

use protocol_core::Lane;
use protocol_core::http::{NotResumable, SessionKey};

use super::shared::Shared;

/// A handle on the stream of events on which the progress and the reply of a call are sent to the client. Handlers get it from
/// [`Context::extensions`](endpoint::Context::extensions), if the session has a handshake and the service is
/// [`resumable`](protocol_core::http::HttpServerConfig::resumable).
///
/// ```
/// use endpoint::{Context, Tool};
/// use http_service::ResponseStream;
///
/// let backup = Tool::new("backup", async |context: Context, ()| {
///     if let Some(stream) = context.extensions().get::<ResponseStream>() {
///         // The work takes an hour, so let the client reconnect for the result. If it cannot, nothing changes.
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

    /// Ends the HTTP response while the call goes on, so that the call holds no connection. The client is asked to reconnect after
    /// [`HttpTimeouts::resume_delay`](protocol_core::http::HttpTimeouts::resume_delay) (MCP 2025-11-25, Transports, "Sending Messages to
    /// the Server"); meanwhile the events of the call are kept. May be called again each time that the client has reconnected.
    ///
    /// # Errors
    /// [`NotResumable`] if the response has ended, if the client has already disconnected, if the service was dropped, or if the revision
    /// of the session is before 2025-11-25: clients of those revisions need not reconnect. Nothing has changed then.
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
