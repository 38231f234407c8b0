//! The handle on one HTTP exchange: it polls the response, and notes the loss of the client when it is dropped.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::Waker;

use engine::spare;
use protocol_core::http::{HttpExchangeId, ResponsePart};

use super::Owner;
use super::driver::SessionDriver;

/// One HTTP exchange that is not over. Dropping it before its end is the loss of the client.
pub(crate) struct Exchange {
    owner: Arc<Owner>,
    id: HttpExchangeId,
    /// The driver of the session of a request without a handshake, as long as this polls it.
    driver: Option<SessionDriver>,
    is_over: bool,
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

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Starts a task for the driver. The response goes on as a stream, which may not be polled for long: the deadlines of the session must
    /// pass all the same.
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
        // The handler that is cancelled now has its grace.
        self.hand_over();
    }
}
