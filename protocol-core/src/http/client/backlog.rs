//! Frames of the session that wait to be posted.

use alloc::collections::VecDeque;

use bytes::Bytes;

use crate::http::limits::HttpClientLimits;
use crate::session::ExchangeId;

/// The frames that wait: requests and notifications until the HTTP session is open, and notifications and answers while too many earlier
/// ones are not acknowledged.
///
/// In this module a *message* is a notification or an answer, which a server only acknowledges. Over the transport of 2024-11-05 it is any
/// frame.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Requests that wait, each with the length of its frame in bytes.
    calls: VecDeque<(ExchangeId, usize)>,
    /// Messages that wait, except answers: notifications. Over the transport of 2024-11-05, frames of all kinds.
    messages: VecDeque<Bytes>,
    /// Answers that wait. All of them answer input requests that the server has made in the current HTTP session.
    answers: VecDeque<Bytes>,
    /// The number of bytes of all frames that wait.
    bytes: usize,
    /// The number of messages that were posted and are not acknowledged.
    posted: usize,
    /// `true` while the channel of the session is stopped.
    is_stopped: bool,
}

impl Backlog {
    pub(super) fn push_call(&mut self, exchange: ExchangeId, size: usize) {
        self.bytes = self.bytes.saturating_add(size);
        self.calls.push_back((exchange, size));
    }

    pub(super) fn pop_call(&mut self) -> Option<ExchangeId> {
        let (exchange, size) = self.calls.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size);
        Some(exchange)
    }

    /// Drops a request that is cancelled.
    pub(super) fn withdraw(&mut self, exchange: ExchangeId) {
        if let Some(at) = self.calls.iter().position(|(call, _)| *call == exchange)
            && let Some((_, size)) = self.calls.remove(at)
        {
            self.bytes = self.bytes.saturating_sub(size);
        }
    }

    pub(super) fn push_message(&mut self, frame: Bytes) {
        self.bytes = self.bytes.saturating_add(frame.len());
        self.messages.push_back(frame);
    }

    /// The next frame of `messages`, which is then counted as posted; `None` while [`HttpClientLimits::messages`] messages are not
    /// acknowledged.
    pub(super) fn pop_message(&mut self, limits: &HttpClientLimits) -> Option<Bytes> {
        if self.posted >= limits.messages {
            return None;
        }
        let frame = self.messages.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.len());
        self.posted = self.posted.saturating_add(1);
        Some(frame)
    }

    /// Adds an answer. If [`HttpClientLimits::calls`] answers wait already, because the server makes requests but does not acknowledge the
    /// answers, drops this one and returns `false`.
    pub(super) fn push_answer(&mut self, frame: Bytes, limits: &HttpClientLimits) -> bool {
        let has_room = self.answers.len() < limits.calls;
        if has_room {
            self.bytes = self.bytes.saturating_add(frame.len());
            self.answers.push_back(frame);
        }
        has_room
    }

    /// The next answer, which is then counted as posted; `None` while twice [`HttpClientLimits::messages`] messages are not acknowledged.
    /// The bound is higher than for a notification, since the server may wait for the answer before it acknowledges anything.
    pub(super) fn pop_answer(&mut self, limits: &HttpClientLimits) -> Option<Bytes> {
        if self.posted >= limits.messages.saturating_mul(2) {
            return None;
        }
        let frame = self.answers.pop_front()?;
        self.bytes = self.bytes.saturating_sub(frame.len());
        self.posted = self.posted.saturating_add(1);
        Some(frame)
    }

    /// Drops the answers, since the server has forgotten the requests that they answer.
    pub(super) fn clear_answers(&mut self) {
        let bytes: usize = self.answers.drain(..).map(|frame| frame.len()).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Counts a message that is posted again after a redirection.
    pub(super) fn post(&mut self) {
        self.posted = self.posted.saturating_add(1);
    }

    /// Takes a posted message off the count: it was acknowledged, or its exchange is over for another reason.
    pub(super) fn acknowledge(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Drops everything that waits.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.messages.clear();
        self.answers.clear();
        self.bytes = 0;
    }

    /// Drops the requests.
    pub(super) fn clear_calls(&mut self) {
        while self.pop_call().is_some() {}
    }

    /// Returns `true` if a notification or an answer waits.
    pub(super) fn has_messages(&self) -> bool {
        !self.messages.is_empty() || !self.answers.is_empty()
    }

    /// Stops or resumes the channel, depending on the frames that wait. If the state has changed, returns the new state: `true` for
    /// stopped.
    pub(super) fn update_stopped(&mut self, limits: &HttpClientLimits) -> Option<bool> {
        let frames = self.calls.len().saturating_add(self.messages.len()).saturating_add(self.answers.len());
        let is_stopped = match self.is_stopped {
            false => frames >= limits.waiting_frames || self.bytes >= limits.waiting_bytes,
            true => frames > limits.waiting_frames / 2 || self.bytes > limits.waiting_bytes / 2,
        };
        (core::mem::replace(&mut self.is_stopped, is_stopped) != is_stopped).then_some(is_stopped)
    }
}
