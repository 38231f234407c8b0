//! The handle on one HTTP exchange, by which its response is polled.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::Waker;

use engine::spare;
use protocol_core::http::{HttpExchangeId, ResponsePart};

use super::Owner;
use super::driver::SessionDriver;

/// A handle on one HTTP exchange. Dropping it before the end of the response means that the client has disconnected.
pub(crate) struct Exchange {
    owner: Arc<Owner>,
    id: HttpExchangeId,
    /// The driver of the session of a request without a handshake, while this handle polls it.
    driver: Option<SessionDriver>,
    is_over: bool,
    /// A clone of the task's waker, made before the lock is taken.
    spare: Option<Waker>,
}

impl Exchange {
    pub(super) fn new(owner: Arc<Owner>, id: HttpExchangeId) -> Self {
        Self { owner, id, driver: None, is_over: false, spare: None }
    }

    /// Polls the driver of a session from now on.
    pub(super) fn drive(&mut self, driver: SessionDriver) {
        self.driver = Some(driver);
    }

    /// The next part of the response.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<ResponsePart> {
        if self.driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
            self.driver = None;
        }
        self.spare = spare(self.spare.take(), cx.waker());
        match self.owner.shared().poll_response(self.id, cx.waker(), &mut self.spare) {
            Some(part) => {
                self.is_over = part == ResponsePart::End;
                Poll::Ready(part)
            }
            None => Poll::Pending,
        }
    }

    /// Reports that the client has closed its side of the connection.
    #[cfg(feature = "hyper")]
    pub(crate) fn half_close(&self) {
        self.owner.shared().half_close(self.id);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Starts a task for the driver, if this handle has one. For a response that is a stream this is necessary, since the client may not
    /// read it for a long time, while the deadlines of the session must still be handled.
    pub(crate) fn hand_over(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.owner.shared().runtime().spawn(Box::pin(driver));
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.is_over {
            self.owner.shared().lose(self.id);
        }
        // The driver goes on as a task, so that the cancelled handler has its grace.
        self.hand_over();
    }
}
