//! The driver of one session: it passes orders of the HTTP server on to the machine, and frames of the machine back.
//!
//! ```text
//!   running --- Close is ordered ---> ended --- no handler is within its grace ---> (done)
//!      |                                                                              ^
//!      `--- the machine has closed the session; no handler is within its grace -------'
//! ```

use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::Arc;

use protocol_core::Close;
use protocol_core::drive::Timer;
use protocol_core::http::SessionKey;
use protocol_core::http::era::Era;
use protocol_core::session::TransportEnd;

use super::ResponseStream;
use super::machine::Machine;
use super::shared::Shared;
use super::state::{Order, Report};
use crate::budget::{Charge, Payer, Unit};

/// The maximum number of turns in one poll, after which the task yields.
const MAX_TURNS: usize = 16;

/// Drives the machine of a session until the session has ended.
///
/// # Cancel safety
/// Not cancel safe: dropping the driver ends the session immediately, without the grace of its handlers.
pub(super) struct SessionDriver {
    shared: Arc<Shared>,
    key: SessionKey,
    machine: Machine,
    /// `true` if the service keeps streams for resumption and the session has a handshake. Then handlers get a [`ResponseStream`].
    can_resume: bool,
    /// `None` until the driver has to wait for a deadline. Most requests without a handshake need no timer.
    timer: Option<Box<dyn Timer + Send + Sync>>,
    /// Orders that were not yet passed to the machine.
    orders: VecDeque<Order>,
    /// Reports that were not yet passed to the server.
    reports: Vec<Report>,
    /// `true` once [`Report::Closed`] was made: the machine has closed its session.
    has_closed: bool,
    /// `true` once [`Order::Close`] was taken. The server has removed the session by then.
    is_ended: bool,
    /// The charge for the grace of the handlers after the end, and before it the one who pays.
    grace: Charge,
}

impl Shared {
    /// The driver of a new session. `None` if the application refuses the session, which then has ended.
    pub(super) fn driver(self: &Arc<Self>, key: SessionKey, era: Era, payer: &Payer) -> Option<SessionDriver> {
        let mut unserved = Unserved { shared: Some(self), key };
        let machine = self.source.open(era, Arc::clone(&self.runtime) as _)?;
        unserved.shared = None;
        Some(SessionDriver::new(Arc::clone(self), key, machine, self.config.resumable && era == Era::Legacy, payer))
    }
}

/// A session whose machine is being made. Dropping it before that is done, for example because of a panic, ends the session.
struct Unserved<'a> {
    /// `None` once the machine is made.
    shared: Option<&'a Arc<Shared>>,
    key: SessionKey,
}

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.forget(self.key);
        }
    }
}

impl SessionDriver {
    fn new(shared: Arc<Shared>, key: SessionKey, machine: Machine, can_resume: bool, payer: &Payer) -> Self {
        Self {
            shared,
            key,
            machine,
            can_resume,
            timer: None,
            orders: VecDeque::new(),
            reports: Vec::new(),
            has_closed: false,
            is_ended: false,
            grace: payer.charge(),
        }
    }

    /// Returns `true` if the handlers of a session that has ended may clean up. Otherwise the driver ends, which drops them.
    fn has_grace(&mut self) -> bool {
        self.grace.amount(Unit::Ended) > 0 || self.grace.add(Unit::Ended, 1).is_ok()
    }

    /// Passes the reports to the server, and takes its orders. The task is woken when there are further orders.
    fn pass_reports(&mut self, cx: &Context<'_>) {
        if self.is_ended {
            self.reports.clear();
            return;
        }
        let mut waker = Some(cx.waker().clone());
        self.shared.pass_reports(self.key, &mut self.reports, &mut self.orders, &mut waker);
    }

    /// Passes the orders to the machine, and collects reports for the server.
    fn take_turn(&mut self, cx: &Context<'_>) {
        let now = self.shared.runtime().now();
        // The lanes on which no further frame will be sent.
        let mut settled = Vec::new();
        while let Some(order) = self.orders.pop_front() {
            match order {
                Order::Frame { exchange, lane, frame, extensions } => {
                    let extensions = match self.can_resume {
                        true => extensions.with(ResponseStream::new(&self.shared, self.key, lane)),
                        false => extensions,
                    };
                    self.reports.push(match self.machine.handle_frame(frame, lane, extensions, now) {
                        Ok(received) => Report::Received { exchange, replies: received.replies },
                        Err(_) => Report::Full { exchange },
                    });
                }
                Order::Writable { lane, is_writable } => {
                    // No effect if the lane is already closed.
                    self.machine.set_writable(lane, is_writable, now);
                }
                Order::Settle(lanes) => {
                    settled.extend(lanes.into_iter().filter(|lane| self.machine.replies_owed(*lane) == 0));
                }
                Order::Finish(grace) => self.machine.close(Close::Graceful { grace }, now),
                Order::Close => {
                    self.is_ended = true;
                    self.machine.handle_end(TransportEnd::Failed, now);
                }
            }
        }
        self.machine.register_waker(cx.waker());
        if self.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
        }
        while let Some(transmit) = self.machine.poll_transmit() {
            self.reports.push(Report::Transmit(transmit));
        }
        // These lanes are reported after the frames, since no frame may follow the `Report::Settled` of its lane.
        settled.extend(core::iter::from_fn(|| self.machine.poll_closed_lane()));
        self.reports.extend(settled.into_iter().map(Report::Settled));
        if self.machine.take_cancelled() {
            self.reports.push(Report::Cancelled);
        }
        if !self.has_closed && self.machine.poll_end() {
            self.has_closed = true;
            self.reports.push(Report::Closed);
        }
    }

    /// Waits for the next deadline of the machine.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.machine.poll_timeout() else { return Poll::Pending };
        self.timer.get_or_insert_with(|| self.shared.runtime().timer()).poll_until(cx, at)
    }
}

impl Future for SessionDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_TURNS {
            self.pass_reports(cx);
            self.take_turn(cx);
            if !self.reports.is_empty() && !self.is_ended {
                continue;
            }
            if self.machine.is_closed() || self.is_ended && !self.has_grace() {
                return Poll::Ready(());
            }
            if self.poll_deadline(cx).is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for SessionDriver {
    fn drop(&mut self) {
        if !self.is_ended {
            self.shared.forget(self.key);
        }
    }
}
