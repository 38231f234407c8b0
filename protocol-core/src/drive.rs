//! The event loop of a machine: it moves frames between the machine and a transport, and passes the time to the machine. Nothing in it
//! depends on a protocol.
//!
//! A [`Driver`] connects a [`Machine`] (a [`Session`], or a type that wraps one), a [`FrameIo`] (a transport of whole frames) and a
//! [`Timer`] (a clock that can wake a task at one deadline). An adapter implements the last two for its runtime. The loop needs only
//! `core::task`: no runtime, thread or lock.
//!
//! # A turn
//! [`Driver::poll_event`] takes one turn:
//! 1. If the machine wants input, the driver reads up to 64 frames or 1 MiB.
//! 2. It calls [`Machine::turn`], and calls it again while the machine has more output and no event, and the transport is ready. The
//!    machine reads the clock, takes the frames, and returns frames to write, an event and the next deadline. Some runtimes do not report
//!    that a timer is due while frames keep arriving; timeouts are handled even then, since the machine reads the clock in each turn.
//!    Frames that the machine has no room for are passed again, in this turn or the next, and no other frame is read before the machine has
//!    taken them.
//! 3. It flushes once, if anything is unwritten.
//! 4. If there is an event, it returns the event.
//! 5. If there is none, it sets the timer, unless the timer is already set for an earlier time. It wakes its task at once if there is work
//!    for which neither the transport nor the timer will wake the task: for example, the turn has reached its limit, the machine has room
//!    for input again, or a write has failed.
//!
//! While the transport is ready, the driver writes before the first call of [`Machine::turn`] and after each, up to 1 MiB. While the
//! transport is not ready, the driver still reads: if both peers read only when they can write, they may wait for each other for ever.
//!
//! The machine reads the clock after the driver has read the frames. A deadline that passes after the machine has last read the clock in a
//! turn is handled in the next turn, which the timer causes.
//!
//! The machine and the transport keep the memory of a long frame (32 KiB or more), to use it again for the next long frame. After two
//! seconds without a long frame the driver calls [`Machine::release_memory`] and [`FrameIo::release_memory`], which free that memory.
//!
//! Between two turns, a method that changes the machine may write the new frames itself, if no other output is queued and the transport
//! allows writing outside of a turn ([`FrameIo::sends_anywhere`]). This *early send* saves a wake and a turn. Reading, returning events and
//! setting the timer happen only in turns.
//!
//! # Endings
//! * If the peer ends its side and no write has failed, the machine gets [`TransportEnd::Eof`]; reading stops, and writing continues.
//! * If a read fails, the machine gets [`TransportEnd::Failed`].
//! * If a write fails, frames that have arrived are still read, since a peer that answers and exits may close the pipe before its answer is
//!   read. When the input ends, or after half a second, the machine gets [`TransportEnd::Failed`]. If the input had ended before the write
//!   failed, the machine gets [`TransportEnd::Failed`] at once.
//! * Once the machine is closed, its queued output is written and flushed, which may take 5 seconds at most, since the peer may not be
//!   reading. Then the transport is closed.
//!
//! In each case the driver first returns the remaining events of the machine, then the first error of the transport, if there was one, and
//! from then on `None`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;

use bytes::{Buf, Bytes};

use crate::byte_queue::LONG;
use crate::limits::Limits;
use crate::lines::LineEncoder;
use crate::session::{Close, Event, Full, Lane, Received, Session, Transmit, TransportEnd};
use crate::sink::FrameSink as _;
use crate::time::{Instant, earlier};

/// The maximum number of frames read in one turn.
const FRAMES_PER_TURN: usize = 64;
/// The number of bytes after which a turn reads no further frames. After the same number of bytes it writes no further frames.
const BYTES_PER_TURN: usize = 1 << 20;
/// The margin by which a timer may wake the task too early. A timer that is due within this margin is polled in each turn.
const NEAR: Duration = Duration::from_secs(1);
/// The longest time that the timer is set for, since many timers have a limit. For a later deadline, the timer is set again when it is due.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// The time for which the driver still waits for input after a write has failed: input may have arrived that the runtime has not reported
/// yet.
const READ_GRACE: Duration = Duration::from_millis(500);
/// The time for which the memory of a long frame is kept for the next long frame. It is longer than [`NEAR`], so that a connection with
/// many long frames does not poll the timer in each turn.
const MEMORY_GRACE: Duration = Duration::from_secs(2);
/// The longest time that writing the last output may take once the machine is closed.
const FLUSH_GRACE: Duration = Duration::from_secs(5);

/// A machine that a [`Driver`] drives. A method that [`Session`] also has means the same here.
pub trait Machine {
    /// The type of the events that the driver returns.
    type Event;

    /// Takes a frame that arrived. While [`Self::wants_input`] is `false`, it may instead return the frame in [`Full`] and change nothing;
    /// the driver passes that frame again later.
    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full>;

    /// Takes frames that arrived: calls [`Self::handle_frame`] for each, in order, until a frame is not taken. That frame and all frames
    /// after it stay in `frames`, and the driver passes them again.
    fn handle_frames(&mut self, frames: &mut VecDeque<Bytes>, now: Instant) {
        while let Some(frame) = frames.pop_front() {
            if let Err(Full(frame)) = self.handle_frame(frame, now) {
                frames.push_front(frame);
                return;
            }
        }
    }

    /// Handles the end of the transport. `Failed` may follow `Eof`. The machine must close on `Failed`; further calls of this method then
    /// have no effect.
    fn handle_end(&mut self, end: TransportEnd, now: Instant);

    /// Handles the deadlines up to and including `now`. If there is none, only advances the time of the machine.
    fn handle_timeout(&mut self, now: Instant);

    /// The next frame to write. It must not contain a line feed, since the driver buffers frames as lines, also for a transport that does
    /// not write lines.
    fn poll_transmit(&mut self) -> Option<Transmit>;

    /// Pushes the frames that [`Self::poll_transmit`] returns into `into`, up to 64 frames or until `into` holds 32 KiB. Returns
    /// `true` if there may be more.
    fn poll_transmits(&mut self, into: &mut LineEncoder) -> bool {
        into.fill(|into| self.poll_transmit().map(|transmit| into.push(transmit.frame)).is_some())
    }

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The next deadline, at which [`Self::handle_timeout`] must be called. It is later than the last `now` passed to that
    /// method.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns `true` if the machine has room for frames, so that the driver should read. Returns `false` once the machine has closed.
    fn wants_input(&self) -> bool;

    /// Returns `true` once the machine has closed: reading stops, and only the remaining frames and events are handled.
    fn is_closed(&self) -> bool;

    /// The longest frame that the machine takes, in bytes. The driver passes it to [`FrameIo::set_frame_limit`].
    fn frame_limit(&self) -> usize {
        Limits::default().frame_bytes
    }

    /// Frees memory that is kept only for the next long frame. The driver calls this method two seconds after the last long frame.
    fn release_memory(&mut self) {}

    /// Stores `waker`, in place of an earlier one; the driver calls this method in each turn. A method that changes the machine without
    /// using the driver must wake the stored waker, once, if there is now a frame to write, an event, an earlier deadline, or new room for
    /// input. A machine that is changed only through its driver may ignore `waker`.
    fn register_waker(&mut self, waker: &Waker);

    /// Runs the machine's part of a turn: registers `waker`, reads `clock`, takes `frames`, which have arrived, and pushes frames to write
    /// into `room`, which is `None` while the transport is not ready.
    ///
    /// The default calls the other methods. A machine under a lock may implement this method, to take the lock once for all of them, and
    /// read the clock under it. Such a machine wakes `waker` itself if it needs another turn at once.
    fn turn(
        &mut self,
        waker: &Waker,
        frames: &mut VecDeque<Bytes>,
        clock: &dyn Fn() -> Instant,
        room: Option<&mut LineEncoder>,
    ) -> TurnOutcome<Self::Event> {
        // Registered first, so that a change by another thread, after the calls below, causes a wake.
        self.register_waker(waker);
        let now = clock();
        self.handle_frames(frames, now);
        // `handle_timeout` also advances the time of the machine. A machine that wants no input may have taken no frame; without this call
        // it would set new deadlines relative to the time of an earlier turn.
        if !self.wants_input() || self.poll_timeout().is_some_and(|at| at <= now) {
            self.handle_timeout(now);
        }
        TurnOutcome {
            now,
            has_output: room.is_none_or(|room| self.poll_transmits(room)),
            event: self.poll_event(),
            is_closed: self.is_closed(),
            until: self.poll_timeout(),
            wants_input: self.wants_input(),
        }
    }
}

/// The state of a machine after its part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnOutcome<E> {
    /// The time that the machine read from the clock.
    pub now: Instant,
    /// `true` if there may be more frames to write.
    pub has_output: bool,
    /// The next event, if there is one.
    pub event: Option<E>,
    /// `true` once the machine has closed ([`Machine::is_closed`]).
    pub is_closed: bool,
    /// The next deadline ([`Machine::poll_timeout`]).
    pub until: Option<Instant>,
    /// `true` if the machine has room for frames ([`Machine::wants_input`]).
    pub wants_input: bool,
}

/// A machine whose transport has several lanes, such as HTTP, where each HTTP exchange of a session is a lane. A method that [`Session`]
/// also has means the same here.
pub trait LaneMachine: Machine {
    /// Takes a frame that arrived on a lane. Replies that the machine makes at once can then be polled with [`Machine::poll_transmit`],
    /// each with its route. If the machine has closed the lane, it drops the frames of the lane until [`Self::poll_closed_lane`] has
    /// returned the lane; a later frame with the same lane number opens a new lane.
    ///
    /// # Errors
    /// [`Full`] returns the frame.
    fn handle_lane_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full>;

    /// Stops the output of a lane, or resumes it. Has no effect on a lane that is not open.
    fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant);

    /// The number of requests of a lane that have no reply yet.
    fn replies_owed(&self, lane: Lane) -> usize;

    /// The next lane that the machine has closed because too much of its output was not read.
    fn poll_closed_lane(&mut self) -> Option<Lane>;

    /// Returns `true` if a request of the peer was cancelled since the last call of this method: fewer replies may then be owed.
    fn take_cancelled(&mut self) -> bool;

    /// Closes the session.
    fn close(&mut self, how: Close, now: Instant);
}

impl Machine for Session {
    type Event = Event;

    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        Self::handle_frame(self, frame, Lane::CHANNEL, now).map(drop)
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        Self::handle_end(self, end, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        Self::poll_transmit(self)
    }

    fn poll_transmits(&mut self, into: &mut LineEncoder) -> bool {
        Self::poll_transmits(self, into)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn wants_input(&self) -> bool {
        Self::wants_input(self, Lane::CHANNEL)
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn frame_limit(&self) -> usize {
        self.config().limits.frame_bytes
    }

    fn release_memory(&mut self) {
        Self::release_memory(self);
    }

    /// Does nothing: the methods of a session need `&mut Session`, so they cannot be called while `next_event` is pending, and the next
    /// turn sees their effect.
    fn register_waker(&mut self, _waker: &Waker) {}
}

/// A transport of whole frames. No method blocks: a method that cannot make progress returns `Pending` and wakes the task later.
pub trait FrameIo {
    /// The error of the transport.
    type Error;

    /// Reads the next frame. Returns `None` once the peer has ended its side, and is then not called again. If much input arrives without
    /// the end of a frame, the transport must return `Pending` from time to time, and wake the task itself.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Self::Error>>;

    /// Returns `Ready` once [`Self::start_send`] may be called. If there is no room for another frame, writes earlier frames to make room.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Takes one frame. The transport may wait with writing the frame until [`Self::poll_flush`].
    fn start_send(&mut self, transmit: Transmit) -> Result<(), Self::Error>;

    /// Takes frames out of `frames`, at least the first one. A transport of lines takes them all ([`LineEncoder::append`]).
    fn start_sends(&mut self, frames: &mut LineEncoder) -> Result<(), Self::Error> {
        frames.next_frame().map_or(Ok(()), |frame| self.start_send(Transmit::new(frame)))
    }

    /// Returns `Ready` once every frame that was taken is written.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Ends our side of the transport, in bounded time, even if a flush has not finished. Also called after errors. After its first call,
    /// no other method is called.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Sets the limit on the length of incoming frames, in bytes, for transports that have no limit of their own. A longer frame may be cut
    /// to its first `bytes + 1` bytes, which the machine still recognises as too long.
    fn set_frame_limit(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Frees memory that is kept only for the next long frame. The driver calls this method two seconds after the last long frame.
    fn release_memory(&mut self) {}

    /// Returns `true` if [`Self::poll_ready`], [`Self::start_send`], [`Self::start_sends`] and [`Self::poll_flush`] may also be called
    /// outside of the task of the driver: on any thread, inside or outside of a runtime, but never at the same time as another method of
    /// the transport. After such a call has returned `Pending`, the transport must wake the task of the driver. Only such a transport
    /// allows early sends (see the [module](self)).
    ///
    /// A function that makes early sends, such as `drive` of the crate `engine`, calls this method once, before it makes the [`Driver`].
    fn sends_anywhere(&self) -> bool {
        false
    }
}

/// A boxed transport, which may be chosen at run time.
impl<I: FrameIo + ?Sized> FrameIo for Box<I> {
    type Error = I::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, I::Error>> {
        (**self).poll_recv(cx)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        (**self).poll_ready(cx)
    }

    fn start_send(&mut self, transmit: Transmit) -> Result<(), I::Error> {
        (**self).start_send(transmit)
    }

    fn start_sends(&mut self, frames: &mut LineEncoder) -> Result<(), I::Error> {
        (**self).start_sends(frames)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        (**self).poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        (**self).poll_close(cx)
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        (**self).set_frame_limit(bytes);
    }

    fn release_memory(&mut self) {
        (**self).release_memory();
    }

    fn sends_anywhere(&self) -> bool {
        (**self).sends_anywhere()
    }
}

/// A clock that can wake a task at one deadline.
pub trait Timer {
    /// The current time, on the same time axis as the machine's deadlines. The time never runs backwards. A machine may call this method
    /// while it holds its lock ([`Machine::turn`]), so the method must not call the machine. If the transport allows early sends
    /// ([`FrameIo::sends_anywhere`]), the method may be called on any thread.
    fn now(&self) -> Instant;

    /// Returns `Ready` once [`Self::now`] has reached `at`, never before. Until then it returns `Pending`; the timer must then wake the
    /// task at `at` or up to a second before, even if this method is not called again. A later call replaces `at`.
    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()>;
}

/// Drives a machine over a transport, as the module describes.
///
/// The future of [`Driver::next_event`] holds no state, so it can be dropped at any point: no frame and no event is lost.
#[derive(Debug)]
pub struct Driver<M, I: FrameIo, T> {
    machine: M,
    io: I,
    timer: T,
    /// Frames that were read, and that the machine has not taken yet. They are passed again before another frame is read.
    arrived: VecDeque<Bytes>,
    /// The end of the input, which the machine gets after the frames of `arrived`. `None` before the input has ended, and again once the
    /// machine has got the end.
    ending: Option<TransportEnd>,
    /// `true` if reading has stopped before the transport returned `Pending`; the transport will then not wake the task.
    read_unfinished: bool,
    /// `true` while the peer may still send.
    reading: bool,
    /// Frames that the transport has not taken yet.
    outgoing: LineEncoder,
    /// `true` while writing may still succeed.
    writing: bool,
    /// `true` if the machine, the transport or `outgoing` holds output.
    unwritten: bool,
    /// The deadline for reading input that has arrived, set once a write has failed.
    read_by: Option<Instant>,
    /// The first error, until it is returned.
    error: Option<I::Error>,
    /// The deadline for writing the last output, set once the machine is closed.
    flush_by: Option<Instant>,
    /// `true` if a long frame was read, or [`LONG`] bytes or more waited together to be written, since [`Self::release_at`] was set.
    had_long_frame: bool,
    /// The time at which the memory of the last long frame is freed.
    release_at: Option<Instant>,
    /// The task that took the last turn, which the transport wakes.
    task: Option<Waker>,
    /// The time for which the timer is set, if the timer is certain to wake `task` by then.
    timer_at: Option<Instant>,
    /// `true` once the transport is closed.
    ended: bool,
}

impl<M: Machine, I: FrameIo, T: Timer> Driver<M, I, T> {
    /// Connects a machine, a transport and a timer. Nothing is read or written before the first poll.
    pub fn new(machine: M, mut io: I, timer: T) -> Self {
        io.set_frame_limit(machine.frame_limit());
        Self {
            machine,
            io,
            timer,
            arrived: VecDeque::new(),
            ending: None,
            read_unfinished: false,
            reading: true,
            outgoing: LineEncoder::new(),
            writing: true,
            unwritten: false,
            read_by: None,
            error: None,
            flush_by: None,
            had_long_frame: false,
            release_at: None,
            task: None,
            timer_at: None,
            ended: false,
        }
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to call its methods between events. Frames that these methods make are written in the next turn.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The transport.
    pub fn io(&self) -> &I {
        &self.io
    }

    /// The current time of the timer, to pass to the methods of the machine.
    pub fn now(&self) -> Instant {
        self.timer.now()
    }

    /// The next event; `None` after the last one, and from then on. An error of the transport is returned once, after all events.
    ///
    /// # Cancel safety
    /// Cancel safe: the driver keeps frames that it has read or not yet written, and no event is lost. But nothing is read or written until
    /// this method is called and its future polled again.
    pub async fn next_event(&mut self) -> Result<Option<M::Event>, I::Error> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Takes one turn. `Ready(Ok(Some(..)))` is an event, `Ready(Ok(None))` the end, and `Pending` means that the task will be woken. Poll
    /// again after each event: the timer is set only in a turn without an event.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<M::Event>, I::Error>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        if self.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
            self.timer_at = None;
        }
        self.read(cx);
        if self.ending.is_some() || self.read_by.is_some() {
            self.handle_input_end(self.timer.now());
        }
        let (outcome, more_to_write) = self.turn(cx);
        if let Some(event) = outcome.event {
            self.forget_near_timer(outcome.now);
            return Poll::Ready(Ok(Some(event)));
        }
        if outcome.is_closed {
            ready!(self.close(cx, more_to_write));
            return Poll::Ready(self.error.take().map_or(Ok(None), Err));
        }
        if self.had_long_frame || self.release_at.is_some() {
            self.release_memory_when_due(outcome.now);
        }
        let until = earlier(outcome.until, self.read_by.filter(|_| self.expects_input()));
        let until = earlier(until, self.release_at);
        // Writing, or polling an event, may have made room in the machine for frames that it did not take before.
        let more_to_read = self.read_unfinished && self.expects_input() && outcome.wants_input;
        // Once every frame is taken, the machine gets the end of input even if it wants no input.
        let at_the_end = self.ending.is_some() && self.arrived.is_empty();
        self.wait(cx, outcome.now, until, more_to_read || at_the_end || more_to_write);
        Poll::Pending
    }

    /// Frees the memory of long frames if that is due, or sets the time at which it is due.
    #[cold]
    fn release_memory_when_due(&mut self, now: Instant) {
        if core::mem::take(&mut self.had_long_frame) {
            self.release_at = Some(now.saturating_add(MEMORY_GRACE));
        } else if self.release_at.is_some_and(|at| at <= now) {
            self.release_at = None;
            self.io.release_memory();
            self.machine.release_memory();
        }
    }

    /// Returns `true` until the machine has got the end of input.
    fn expects_input(&self) -> bool {
        self.reading || self.ending.is_some()
    }

    /// Reads the frames of a turn, unless there are frames that the machine has not taken yet.
    fn read(&mut self, cx: &mut Context<'_>) {
        self.read_unfinished = true;
        // `wants_input` is called here, too, since the machine may have been closed after the last turn. A closed machine must not get a
        // later error of the transport.
        if !self.reading || !self.arrived.is_empty() || !self.machine.wants_input() {
            return;
        }
        let mut bytes: usize = 0;
        while self.arrived.len() < FRAMES_PER_TURN && bytes < BYTES_PER_TURN {
            match self.io.poll_recv(cx) {
                Poll::Ready(Ok(Some(frame))) => {
                    bytes = bytes.saturating_add(frame.len());
                    self.had_long_frame |= frame.len() >= LONG;
                    self.arrived.push_back(frame);
                }
                Poll::Ready(Ok(None)) => return self.end_input(TransportEnd::Eof),
                Poll::Ready(Err(error)) => {
                    self.error.get_or_insert(error);
                    return self.end_input(TransportEnd::Failed);
                }
                Poll::Pending => {
                    self.read_unfinished = false;
                    return;
                }
            }
        }
    }

    /// Stops reading, and stores the end of the input for the machine.
    fn end_input(&mut self, end: TransportEnd) {
        self.reading = false;
        self.ending = Some(end);
    }

    /// Passes the end of input to the machine, once the machine has taken every frame before it. If the time for reading after a failed
    /// write is over, passes a failure instead.
    fn handle_input_end(&mut self, now: Instant) {
        if self.expects_input() && self.read_by.is_some_and(|at| at <= now) {
            self.fail(now);
        }
        let Some(end) = self.ending else { return };
        self.machine.handle_frames(&mut self.arrived, now);
        if !self.arrived.is_empty() {
            return;
        }
        self.ending = None;
        match end {
            TransportEnd::Eof if self.writing => self.machine.handle_end(end, now),
            // After a failed write no reply can be sent, so the end counts as a failure.
            _ => self.fail(now),
        }
    }

    /// Stops reading and writing, drops the frames of both directions, and passes a failure to the machine.
    fn fail(&mut self, now: Instant) {
        self.reading = false;
        self.writing = false;
        self.ending = None;
        self.arrived.clear();
        self.outgoing.clear();
        self.machine.handle_end(TransportEnd::Failed, now);
    }

    /// Runs the machine's part of the turn, and writes. Also returns `true` if another turn is needed at once: this turn has written
    /// [`BYTES_PER_TURN`], or writing has failed.
    fn turn(&mut self, cx: &mut Context<'_>) -> (TurnOutcome<M::Event>, bool) {
        let was_writing = self.writing;
        let mut bytes = 0;
        let mut room = self.write(|driver| driver.send(cx, &mut bytes));
        let outcome = loop {
            let outgoing = room.then_some(&mut self.outgoing);
            let outcome = self.machine.turn(cx.waker(), &mut self.arrived, &|| self.timer.now(), outgoing);
            room = self.write(|driver| driver.send(cx, &mut bytes));
            if !room || !outcome.has_output || outcome.event.is_some() {
                break outcome;
            }
        };
        self.read_unfinished |= !self.arrived.is_empty();
        self.flush(cx, outcome.has_output);
        (outcome, bytes >= BYTES_PER_TURN || was_writing && !self.writing)
    }

    /// Flushes once, if anything is unwritten. `has_output` is `true` if the machine has more output.
    fn flush(&mut self, cx: &mut Context<'_>, has_output: bool) {
        let all_sent = !self.outgoing.has_remaining() && !has_output;
        self.unwritten |= !all_sent;
        if self.unwritten && self.write(|driver| Ok(driver.io.poll_flush(cx)?.is_ready())) {
            self.unwritten = !all_sent;
        }
    }

    /// Returns `true` if the state of the driver allows an early send: every earlier frame is written, the machine has taken every frame
    /// that was read, and neither side has ended. The transport must allow it, too ([`FrameIo::sends_anywhere`]).
    pub fn sends_early(&self) -> bool {
        let is_idle = !self.unwritten && self.arrived.is_empty() && self.reading && self.writing;
        // `task` is `None` before the first turn, and after a panic within `send_early`.
        is_idle && self.task.is_some()
    }

    /// Makes an early send: writes the frames that `take` moves from the machine into the encoder. Call it only if [`Self::sends_early`]
    /// returns `true`. `take` returns the state of the machine afterwards, and `true` if the machine has events. This method returns
    /// `false` if a turn is still needed; wake the task of the driver then.
    pub fn send_early(&mut self, take: impl FnOnce(&mut LineEncoder) -> (TurnOutcome<M::Event>, bool)) -> bool {
        // The task is taken out while `take` and the transport run, so that `self.task` stays `None` if one of them panics.
        let Some(task) = self.task.take() else { return false };
        let (outcome, has_events) = take(&mut self.outgoing);
        let cx = &mut Context::from_waker(&task);
        let mut bytes = 0;
        self.write(|driver| driver.send(cx, &mut bytes));
        self.flush(cx, outcome.has_output);
        self.task = Some(task);
        let more = outcome.has_output
            || bytes >= BYTES_PER_TURN
            || has_events
            || outcome.is_closed
            || !self.writing
            || self.had_long_frame;
        // Only a turn sets the timer: some timers can be set only inside their runtime.
        !more && outcome.until.is_none_or(|at| self.timer_up_to(at).is_some())
    }

    /// Passes the frames in `outgoing` to the transport. Returns `true` if all were taken and the transport is ready for more in this turn.
    fn send(&mut self, cx: &mut Context<'_>, bytes: &mut usize) -> Result<bool, I::Error> {
        while *bytes < BYTES_PER_TURN && self.io.poll_ready(cx)?.is_ready() {
            let waiting = self.outgoing.remaining();
            if waiting == 0 {
                return Ok(true);
            }
            self.unwritten = true;
            self.had_long_frame |= waiting >= LONG;
            self.io.start_sends(&mut self.outgoing)?;
            *bytes = bytes.saturating_add(waiting.saturating_sub(self.outgoing.remaining()));
        }
        Ok(false)
    }

    /// Calls the closure `write` and returns its result, or returns `false` if writing has failed, now or before.
    fn write(&mut self, write: impl FnOnce(&mut Self) -> Result<bool, I::Error>) -> bool {
        if !self.writing {
            return false;
        }
        write(self).unwrap_or_else(|error| {
            let now = self.timer.now();
            self.error.get_or_insert(error);
            self.writing = false;
            self.read_by = Some(now.saturating_add(READ_GRACE));
            if !self.expects_input() {
                self.fail(now);
            }
            false
        })
    }

    /// Writes and flushes the last output, then closes the transport. Called once the machine is closed and has no more events.
    fn close(&mut self, cx: &mut Context<'_>, more_to_write: bool) -> Poll<()> {
        if self.writing {
            let now = self.timer.now();
            let flush_by = *self.flush_by.get_or_insert_with(|| now.saturating_add(FLUSH_GRACE));
            if self.unwritten && now < flush_by {
                self.wait(cx, now, Some(flush_by), more_to_write);
                return Poll::Pending;
            }
            self.writing = false;
        }
        self.reading = false;
        if let Err(error) = ready!(self.io.poll_close(cx)) {
            self.error.get_or_insert(error);
        }
        self.timer_at = None;
        self.ended = true;
        Poll::Ready(())
    }

    /// Sets the timer for `until`. Wakes the task at once if that time has passed, or if `has_more_work`.
    fn wait(&mut self, cx: &mut Context<'_>, now: Instant, until: Option<Instant>, has_more_work: bool) {
        // If the deadline has already passed, the next turn handles it, since each turn reads the clock.
        let due = match until {
            Some(at) => self.set_timer(cx, now, at).is_ready(),
            None => {
                self.forget_near_timer(now);
                false
            }
        };
        if due || has_more_work {
            cx.waker().wake_by_ref();
        }
    }

    /// Sets the timer, unless it is already set for `at` or an earlier time. Most calls of tools only move the deadline to a later time. If
    /// the timer were set for each later deadline, each call would change the runtime's timer twice; a timer that is left at an earlier
    /// time costs only one needless turn.
    fn set_timer(&mut self, cx: &mut Context<'_>, now: Instant, at: Instant) -> Poll<()> {
        let set_for = self.timer_up_to(at).filter(|set_for| now < *set_for);
        if set_for.is_some_and(|set_for| now.saturating_add(NEAR) < set_for) {
            return Poll::Pending;
        }
        // A timer that is near is polled again for the same time.
        let at = set_for.unwrap_or_else(|| at.min(now.saturating_add(FAR)));
        // `None` while the timer is being set, since setting it may panic.
        self.timer_at = None;
        let fired = self.timer.poll_until(cx, at);
        self.timer_at = Some(at);
        fired
    }

    /// Clears `timer_at` if the timer is due within [`NEAR`]: it may have woken the task already, and then does not wake it again.
    fn forget_near_timer(&mut self, now: Instant) {
        self.timer_at = self.timer_at.filter(|set_for| now.saturating_add(NEAR) < *set_for);
    }

    /// The time for which the timer is set, unless that is later than `at`.
    fn timer_up_to(&self, at: Instant) -> Option<Instant> {
        self.timer_at.filter(|set_for| *set_for <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::dialect::Identity;
    use crate::lines::{LineDecoder, LineEncoder};
    use alloc::rc::Rc;
    use alloc::string::String;
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use alloc::vec::Vec;
    use alloc::{format, vec};
    use bytes::{Buf, BufMut};
    use core::cell::{Cell, RefCell};
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// A machine that echoes every frame, and reports every frame, end and timeout as an event.
    #[derive(Default)]
    struct Echo {
        events: VecDeque<String>,
        output: VecDeque<Bytes>,
        deadline: Option<Instant>,
        /// The number of events at which it stops taking input.
        room: Option<usize>,
        /// The number of frames of output at which it stops taking input.
        output_room: Option<usize>,
        /// `true` to echo without events.
        without_events: bool,
        /// The number of frames that it still returns in [`Full`] although it wants input, as may happen if other threads use a machine.
        frames_to_return: usize,
        frames: usize,
        closed: bool,
        /// `true` if it closes on `Eof`, too.
        closes_at_eof: bool,
        /// `true` if it counts frames and does nothing else with them.
        only_counts: bool,
    }

    impl Machine for Echo {
        type Event = String;

        fn handle_frame(&mut self, frame: Bytes, _now: Instant) -> Result<(), Full> {
            if self.frames_to_return > 0 || !self.wants_input() {
                self.frames_to_return = self.frames_to_return.saturating_sub(1);
                return Err(Full(frame));
            }
            self.frames += 1;
            if !self.only_counts {
                if !self.without_events {
                    self.events.push_back(String::from_utf8_lossy(&frame).into_owned());
                }
                self.output.push_back(frame);
            }
            Ok(())
        }

        fn handle_end(&mut self, end: TransportEnd, _now: Instant) {
            self.events.push_back(format!("{end:?}"));
            if end == TransportEnd::Failed || self.closes_at_eof {
                self.output.clear();
                self.deadline = None;
                self.closed = true;
            }
        }

        fn handle_timeout(&mut self, now: Instant) {
            if self.deadline.is_some_and(|at| at <= now) {
                self.deadline = None;
                self.events.push_back(format!("timeout after {} frames", self.frames));
            }
        }

        fn poll_transmit(&mut self) -> Option<Transmit> {
            let frame = self.output.pop_front()?;
            Some(Transmit::new(frame))
        }

        fn poll_event(&mut self) -> Option<String> {
            self.events.pop_front()
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.deadline
        }

        fn wants_input(&self) -> bool {
            let room = self.room.is_none_or(|room| self.events.len() < room);
            !self.closed && room && self.output_room.is_none_or(|room| self.output.len() < room)
        }

        fn is_closed(&self) -> bool {
            self.closed
        }

        fn register_waker(&mut self, _waker: &Waker) {}
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Broken {
        Read,
        Write,
        Close,
    }

    /// A transport whose other end is the test.
    #[derive(Default)]
    struct Pipe {
        incoming: VecDeque<Result<Option<Bytes>, Broken>>,
        /// `true` if every read returns a frame.
        flood: bool,
        /// The number of reads.
        reads: usize,
        /// The number of frames that it takes; `None` is any number.
        room: Option<usize>,
        taken: Vec<Bytes>,
        flushes: usize,
        flush_stalls: bool,
        breaks_on_send: bool,
        breaks_on_close: bool,
        closing_takes_polls: usize,
        closed: bool,
        limit: usize,
        /// The number of times that its memory was released.
        released: usize,
    }

    type Shared<P> = Rc<RefCell<P>>;

    impl FrameIo for Shared<Pipe> {
        type Error = Broken;

        fn poll_recv(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
            let mut pipe = self.borrow_mut();
            pipe.reads += 1;
            if pipe.flood {
                return Poll::Ready(Ok(Some(Bytes::from_static(b"flood"))));
            }
            pipe.incoming.pop_front().map_or(Poll::Pending, Poll::Ready)
        }

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            if self.borrow().room == Some(0) { Poll::Pending } else { Poll::Ready(Ok(())) }
        }

        fn start_send(&mut self, transmit: Transmit) -> Result<(), Broken> {
            let mut pipe = self.borrow_mut();
            assert!(!pipe.closed);
            if pipe.breaks_on_send {
                return Err(Broken::Write);
            }
            pipe.room = pipe.room.map(|room| room - 1);
            pipe.taken.push(transmit.frame);
            Ok(())
        }

        fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            let mut pipe = self.borrow_mut();
            pipe.flushes += 1;
            if pipe.flush_stalls { Poll::Pending } else { Poll::Ready(Ok(())) }
        }

        fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            let mut pipe = self.borrow_mut();
            if pipe.closing_takes_polls > 0 {
                pipe.closing_takes_polls -= 1;
                return Poll::Pending;
            }
            pipe.closed = true;
            Poll::Ready(if pipe.breaks_on_close { Err(Broken::Close) } else { Ok(()) })
        }

        fn release_memory(&mut self) {
            self.borrow_mut().released += 1;
        }

        fn set_frame_limit(&mut self, bytes: usize) {
            self.borrow_mut().limit = bytes;
        }
    }

    /// A clock that the test moves.
    #[derive(Clone, Default)]
    struct Clock {
        now: Rc<Cell<u64>>,
        timer_at: Rc<Cell<Option<u64>>>,
        /// The number of times that the timer was polled.
        polls: Rc<Cell<usize>>,
    }

    impl Timer for Clock {
        fn now(&self) -> Instant {
            Instant::from_millis(self.now.get())
        }

        fn poll_until(&mut self, _cx: &mut Context<'_>, at: Instant) -> Poll<()> {
            self.timer_at.set(Some(at.as_micros() / 1000));
            self.polls.set(self.polls.get() + 1);
            if at <= self.now() { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A driver under test, with the handles by which the test uses its transport, its clock and its wakes.
    struct Bench {
        driver: Driver<Echo, Shared<Pipe>, Clock>,
        pipe: Shared<Pipe>,
        clock: Clock,
        wakes: Arc<Wakes>,
    }

    impl Bench {
        fn new(machine: Echo) -> Self {
            let (pipe, clock) = (Shared::<Pipe>::default(), Clock::default());
            Self { driver: Driver::new(machine, pipe.clone(), clock.clone()), pipe, clock, wakes: Arc::default() }
        }

        fn turn(&mut self) -> Poll<Result<Option<String>, Broken>> {
            let waker = Waker::from(self.wakes.clone());
            self.driver.poll_event(&mut Context::from_waker(&waker))
        }

        /// Takes turns until one returns no event, and returns the events.
        fn drain(&mut self) -> Vec<String> {
            let mut events = Vec::new();
            while let Poll::Ready(Ok(Some(event))) = self.turn() {
                events.push(event);
            }
            events
        }

        /// Lets a frame arrive.
        fn arrives(&self, frame: &'static str) {
            self.pipe.borrow_mut().incoming.push_back(Ok(Some(Bytes::from_static(frame.as_bytes()))));
        }

        /// Adds the result of a later read: a frame, the end of input, or an error.
        fn receives(&self, read: Result<Option<Bytes>, Broken>) {
            self.pipe.borrow_mut().incoming.push_back(read);
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }

        /// Makes an early send of `frame`. The machine's next deadline is `until`. Returns `false` if a turn is needed at once.
        fn sends(&mut self, frame: &'static str, until: Option<Instant>) -> bool {
            assert!(self.driver.sends_early());
            let now = self.clock.now();
            self.driver.send_early(|into| {
                into.push(Bytes::from_static(frame.as_bytes()));
                (TurnOutcome { now, has_output: false, event: None, is_closed: false, until, wants_input: true }, false)
            })
        }
    }

    #[test]
    fn frames_become_events_and_replies_are_written_in_the_same_turn_with_one_flush() {
        let mut bench = Bench::new(Echo::default());
        bench.arrives("one");
        bench.arrives("two");
        bench.arrives("three");
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("one".into()))));
        assert_eq!(bench.pipe.borrow().taken, ["one", "two", "three"]);
        assert_eq!(bench.pipe.borrow().flushes, 1);
        assert_eq!(bench.drain(), ["two", "three"]);
        assert_eq!(bench.pipe.borrow().flushes, 1, "no flush without new output");
        assert_eq!((bench.wakes(), bench.clock.timer_at.get()), (0, None), "an idle driver does not wake itself and sets no timer");
    }

    #[test]
    fn frames_sent_between_two_turns_are_written_at_once_and_need_no_turn() {
        let mut bench = Bench::new(Echo::default());
        assert_eq!(bench.turn(), Poll::Pending);
        let reads = bench.pipe.borrow().reads;
        assert!(bench.sends("one", None) && bench.sends("two", None));
        assert_eq!(bench.pipe.borrow().taken, ["one", "two"]);
        assert_eq!((bench.pipe.borrow().flushes, bench.pipe.borrow().reads, bench.wakes()), (2, reads, 0));
    }

    #[test]
    fn frames_that_could_not_be_written_between_two_turns_are_written_first_in_the_next_turn() {
        let mut bench = Bench::new(Echo::default());
        assert_eq!(bench.turn(), Poll::Pending);
        bench.pipe.borrow_mut().room = Some(0);
        assert!(bench.sends("one", None), "no turn is needed: the transport will wake the task");
        assert!(!bench.driver.sends_early());
        bench.driver.machine_mut().output.push_back(Bytes::from_static(b"two"));
        bench.pipe.borrow_mut().room = None;
        bench.pipe.borrow_mut().flush_stalls = true;
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.pipe.borrow().taken, ["one", "two"]);
        assert!(!bench.driver.sends_early(), "it is still to be flushed");
        bench.pipe.borrow_mut().flush_stalls = false;
        assert_eq!(bench.turn(), Poll::Pending);
        assert!(bench.sends("three", None));
    }

    #[test]
    fn no_frame_is_sent_between_two_turns_if_the_driver_has_other_work() {
        let idle = || {
            let mut bench = Bench::new(Echo::default());
            assert!(!bench.driver.sends_early(), "before its first turn no task would be woken");
            assert_eq!(bench.turn(), Poll::Pending);
            assert!(bench.driver.sends_early());
            bench
        };
        let mut bench = idle();
        bench.driver.machine_mut().room = Some(0);
        bench.driver.arrived.push_back(Bytes::from_static(b"held"));
        assert!(!bench.driver.sends_early(), "a frame waits until the machine has room");

        let mut bench = idle();
        bench.receives(Ok(None));
        assert_eq!(bench.drain(), ["Eof"]);
        assert!(!bench.driver.sends_early());

        let mut bench = idle();
        bench.pipe.borrow_mut().breaks_on_send = true;
        assert!(!bench.sends("one", None), "a turn must handle the failed write");
        assert!(!bench.driver.sends_early());
        bench.receives(Ok(None));
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Failed".into()))));
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Write)));
        assert!(!bench.driver.sends_early());
    }

    /// Some timers can be set only inside the runtime that they belong to.
    #[test]
    fn the_timer_is_not_set_between_two_turns() {
        let mut bench = Bench::new(Echo::default());
        assert_eq!(bench.turn(), Poll::Pending);
        assert!(!bench.sends("one", Some(Instant::from_millis(60_000))), "a turn is needed to set it");
        bench.driver.machine_mut().deadline = Some(Instant::from_millis(60_000));
        assert_eq!((bench.turn(), bench.clock.timer_at.get()), (Poll::Pending, Some(60_000)));
        for now in [1, 59_999] {
            bench.clock.now.set(now);
            assert!(bench.sends("in time", Some(Instant::from_millis(60_000 + now))));
        }
        assert!(!bench.sends("earlier", Some(Instant::from_millis(59_999))));
        assert_eq!(bench.clock.polls.get(), 1);
        // The timer wakes the task, and a turn handles the deadline.
        bench.clock.now.set(60_000);
        assert_eq!(bench.drain(), ["timeout after 0 frames"]);
        assert!(!bench.sends("after it", Some(Instant::from_millis(120_000))), "the timer has fired");
    }

    /// A regression: a timer may wake the task up to a second early, and the turn that followed did not set it again.
    #[test]
    fn regression_a_timer_that_may_have_fired_early_counts_as_not_set() {
        for has_event in [false, true] {
            let mut bench = Bench::new(Echo { deadline: Some(Instant::from_millis(60_000)), ..Echo::default() });
            assert_eq!((bench.turn(), bench.clock.timer_at.get()), (Poll::Pending, Some(60_000)));
            bench.driver.machine_mut().deadline = None;
            bench.clock.now.set(58_000);
            assert_eq!(bench.turn(), Poll::Pending);
            assert!(bench.sends("long before", Some(Instant::from_millis(118_000))));
            bench.clock.now.set(59_500);
            if has_event {
                bench.driver.machine_mut().events.push_back("event".into());
            }
            assert_eq!(bench.turn().is_ready(), has_event);
            assert!(!bench.sends("after it", Some(Instant::from_millis(119_500))));
        }
    }

    #[test]
    fn an_early_send_reports_work_that_needs_a_turn() {
        let sends = |frame: Vec<u8>, has_output, is_closed, has_events| {
            let mut bench = Bench::new(Echo::default());
            assert_eq!(bench.turn(), Poll::Pending);
            let now = bench.clock.now();
            let done = bench.driver.send_early(|into| {
                into.push(frame.into());
                let outcome = TurnOutcome { now, has_output, event: None, is_closed, until: None, wants_input: true };
                (outcome, has_events)
            });
            assert_eq!(bench.pipe.borrow().taken.len(), 1);
            done
        };
        // The arguments after the frame: the machine has more output, it is closed, it has events.
        assert!(sends(vec![b'1'], false, false, false));
        assert!(!sends(vec![b'1'], true, false, false));
        assert!(!sends(vec![b'1'], false, true, false));
        assert!(!sends(vec![b'1'], false, false, true));
        assert!(!sends(vec![b'1'; BYTES_PER_TURN], false, false, false), "that was a turn's share");
    }

    #[test]
    fn a_turn_reads_at_most_64_frames_and_then_wakes_itself() {
        let mut bench = Bench::new(Echo { only_counts: true, ..Echo::default() });
        bench.pipe.borrow_mut().flood = true;
        for turn in 1..=3 {
            assert_eq!(bench.turn(), Poll::Pending);
            assert_eq!((bench.driver.machine().frames, bench.wakes()), (64 * turn, turn));
        }
        bench.pipe.borrow_mut().flood = false;
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.wakes(), 3, "with nothing more to read it does not wake itself");
    }

    #[test]
    fn a_turn_reads_at_most_a_mebibyte_and_one_frame() {
        let mut bench = Bench::new(Echo { only_counts: true, ..Echo::default() });
        for _ in 0..5 {
            bench.receives(Ok(Some(Bytes::from(vec![0; 600_000]))));
        }
        assert_eq!((bench.turn(), bench.driver.machine().frames, bench.wakes()), (Poll::Pending, 2, 1));
        assert_eq!((bench.turn(), bench.driver.machine().frames, bench.wakes()), (Poll::Pending, 4, 2));
        assert_eq!((bench.turn(), bench.driver.machine().frames, bench.wakes()), (Poll::Pending, 5, 2));
    }

    #[test]
    fn a_turn_writes_at_most_a_mebibyte_and_one_frame() {
        let mut bench = Bench::new(Echo::default());
        bench.driver.machine_mut().output.extend(vec![Bytes::from(vec![0; 600_000]); 5]);
        assert_eq!((bench.turn(), bench.pipe.borrow().taken.len(), bench.wakes()), (Poll::Pending, 2, 1));
        assert_eq!((bench.turn(), bench.pipe.borrow().taken.len(), bench.wakes()), (Poll::Pending, 4, 2));
        assert_eq!((bench.turn(), bench.pipe.borrow().taken.len(), bench.wakes()), (Poll::Pending, 5, 2));
    }

    #[test]
    fn a_flood_of_frames_does_not_starve_a_timeout() {
        let mut bench = Bench::new(Echo { only_counts: true, deadline: Some(Instant::from_millis(10)), ..Echo::default() });
        bench.pipe.borrow_mut().flood = true;
        assert_eq!(bench.turn(), Poll::Pending);
        bench.clock.now.set(10);
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("timeout after 128 frames".into()))));
    }

    #[test]
    fn frames_that_have_arrived_are_handled_before_a_deadline_that_is_due() {
        let mut bench = Bench::new(Echo { deadline: Some(Instant::from_millis(10)), ..Echo::default() });
        bench.clock.now.set(50);
        bench.arrives("just in time");
        assert_eq!(bench.drain(), ["just in time", "timeout after 1 frames"]);
    }

    #[test]
    fn a_deadline_is_handled_by_the_clock_and_the_timer_only_wakes_the_task() {
        let mut bench = Bench::new(Echo { deadline: Some(Instant::from_millis(10)), ..Echo::default() });
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.clock.timer_at.get(), Some(10));
        bench.clock.now.set(9);
        assert_eq!(bench.turn(), Poll::Pending, "woken early: nothing happens");
        bench.clock.now.set(10);
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("timeout after 0 frames".into()))));
        assert_eq!(bench.wakes(), 0);
    }

    #[test]
    fn a_timer_that_fires_in_time_is_not_set_again_and_is_not_polled_until_it_is_near() {
        let mut bench = Bench::new(Echo::default());
        let mut turn = |now: u64, deadline: u64| {
            bench.clock.now.set(now);
            bench.driver.machine_mut().deadline = Some(Instant::from_millis(deadline));
            assert_eq!(bench.turn(), Poll::Pending);
            (bench.clock.timer_at.get(), bench.clock.polls.get())
        };
        assert_eq!(turn(0, 60_000), (Some(60_000), 1));
        assert_eq!(turn(1, 60_001), (Some(60_000), 1), "a later deadline");
        assert_eq!(turn(2, 30_000), (Some(30_000), 2), "an earlier one");
        assert_eq!(turn(28_999, 60_000), (Some(30_000), 2));
        assert_eq!(turn(29_000, 60_000), (Some(30_000), 3), "near");
        assert_eq!(turn(29_999, 60_000), (Some(30_000), 4));
        assert_eq!(turn(30_000, 60_000), (Some(60_000), 5), "the timer has fired");
        assert_eq!(turn(60_000, u64::MAX / 1000), (Some(60_000 + 24 * 3_600_000), 6), "the longest time that the timer is set for");
        assert_eq!(bench.wakes(), 0);
    }

    #[test]
    fn the_timer_wakes_the_task_that_took_the_last_turn() {
        let mut bench = Bench::new(Echo { deadline: Some(Instant::from_millis(60_000)), ..Echo::default() });
        assert_eq!((bench.turn(), bench.clock.polls.get()), (Poll::Pending, 1));
        bench.wakes = Arc::default();
        assert_eq!((bench.turn(), bench.clock.polls.get()), (Poll::Pending, 2));
        assert_eq!((bench.turn(), bench.clock.polls.get()), (Poll::Pending, 2));
    }

    #[test]
    fn a_transport_that_takes_no_more_frames_stops_only_the_writing() {
        let mut bench = Bench::new(Echo { deadline: Some(Instant::from_millis(5)), ..Echo::default() });
        bench.pipe.borrow_mut().room = Some(1);
        bench.arrives("one");
        bench.arrives("two");
        assert_eq!(bench.drain(), ["one", "two"]);
        bench.arrives("three");
        assert_eq!(bench.drain(), ["three"], "reading continues");
        bench.clock.now.set(5);
        assert_eq!(bench.drain(), ["timeout after 3 frames"], "and deadlines are handled");
        assert_eq!(bench.pipe.borrow().taken, ["one"]);
        bench.pipe.borrow_mut().room = None;
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.pipe.borrow().taken, ["one", "two", "three"]);
    }

    #[test]
    fn a_frame_that_the_machine_has_no_room_for_is_passed_again_before_later_ones() {
        let mut bench = Bench::new(Echo { frames_to_return: 4, ..Echo::default() });
        bench.arrives("one");
        bench.arrives("two");
        bench.receives(Ok(None));
        assert_eq!(bench.turn(), Poll::Pending);
        let reads = bench.pipe.borrow().reads;
        assert_eq!((bench.turn(), bench.wakes()), (Poll::Pending, 2));
        assert_eq!(bench.pipe.borrow().reads, reads, "nothing else is read while a frame is held");
        assert_eq!(bench.drain(), ["one", "two", "Eof"]);
    }

    /// A regression: in the turn that read the end of input, a frame that the machine had returned was passed once more. The machine took
    /// the frame and was then full, and nothing woke the driver to pass the end.
    #[test]
    fn regression_the_end_of_input_is_handled_after_a_frame_that_was_passed_twice() {
        let mut bench = Bench::new(Echo { frames_to_return: 1, output_room: Some(1), without_events: true, ..Echo::default() });
        bench.pipe.borrow_mut().room = Some(0);
        bench.arrives("one");
        bench.receives(Ok(None));
        assert_eq!((bench.turn(), bench.driver.machine().frames, bench.wakes()), (Poll::Pending, 1, 1));
        assert_eq!(bench.drain(), ["Eof"]);
    }

    /// A regression: the input of a machine that a method had closed was read once more, and its last output was lost when that read
    /// failed.
    #[test]
    fn regression_nothing_is_read_for_a_machine_that_was_closed_between_two_turns() {
        let mut bench = Bench::new(Echo::default());
        assert_eq!(bench.turn(), Poll::Pending);
        let reads = bench.pipe.borrow().reads;
        bench.driver.machine_mut().output.push_back(Bytes::from_static(b"last words"));
        bench.driver.machine_mut().closed = true;
        bench.receives(Err(Broken::Read));
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
        assert_eq!((bench.pipe.borrow().reads, &bench.pipe.borrow().taken[..]), (reads, &[Bytes::from_static(b"last words")][..]));
    }

    /// A regression: the five seconds in which the peer has to read a reply (here a pong) were counted from an old time, since the time of
    /// a session that took no frame was not advanced before its output was polled.
    #[test]
    fn regression_the_time_of_a_session_that_takes_no_frame_is_advanced_before_its_output_is_polled() {
        let mut config = Config::mcp_server(Identity::new("s", "1"));
        (config.limits.unsolicited_replies, config.limits.batch) = (4, 100);
        let pipe = Shared::<Pipe>::default();
        let clock = Clock::default();
        let mut driver = Driver::new(Session::new(config, Instant::ZERO), pipe.clone(), clock.clone());
        let mut turn = || {
            while driver.poll_event(&mut Context::from_waker(Waker::noop())).is_ready() {}
            driver.machine().poll_timeout()
        };
        let arrives = |frame: String| pipe.borrow_mut().incoming.push_back(Ok(Some(frame.into())));
        arrives(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#.into(),
        );
        arrives(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into());
        turn();
        pipe.borrow_mut().room = Some(0);
        let pings: Vec<_> = (0..100).map(|n| format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping"}}"#)).collect();
        arrives(format!("[{}]", pings.join(",")));
        assert_eq!(turn(), Some(Instant::from_millis(5000)));
        clock.now.set(4000);
        pipe.borrow_mut().room = Some(1);
        assert_eq!(turn(), Some(Instant::from_millis(9000)));
    }

    #[test]
    fn the_memory_of_a_long_frame_is_released_once_there_was_none_for_two_seconds() {
        let mut bench = Bench::new(Echo { without_events: true, ..Echo::default() });
        bench.arrives("short");
        assert_eq!((bench.turn(), bench.clock.timer_at.get()), (Poll::Pending, None));
        for now in [1000, 2000] {
            bench.clock.now.set(now);
            bench.pipe.borrow_mut().incoming.push_back(Ok(Some(Bytes::from(alloc::vec![b'x'; LONG]))));
            assert_eq!((bench.turn(), bench.pipe.borrow().released), (Poll::Pending, 0));
        }
        bench.clock.now.set(3999);
        assert_eq!((bench.turn(), bench.clock.timer_at.get(), bench.pipe.borrow().released), (Poll::Pending, Some(4000), 0));
        bench.clock.now.set(4000);
        assert_eq!((bench.turn(), bench.pipe.borrow().released), (Poll::Pending, 1));
        bench.clock.now.set(9000);
        assert_eq!((bench.turn(), bench.pipe.borrow().released), (Poll::Pending, 1));
    }

    #[test]
    fn nothing_is_read_while_the_machine_wants_no_input() {
        let mut bench = Bench::new(Echo { room: Some(2), ..Echo::default() });
        for frame in ["one", "two", "three", "four", "five"] {
            bench.arrives(frame);
        }
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("one".into()))));
        assert_eq!(bench.driver.machine().frames, 2);
        assert_eq!(bench.drain(), ["two", "three", "four", "five"]);
    }

    /// Reading stopped because the machine had no room, and not because the transport returned `Pending`. So only the driver itself can
    /// wake its task.
    #[test]
    fn regression_a_driver_whose_writing_makes_room_for_reading_wakes_itself() {
        let mut bench = Bench::new(Echo { output_room: Some(1), without_events: true, ..Echo::default() });
        bench.arrives("one");
        bench.arrives("two");
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!((bench.driver.machine().frames, bench.wakes()), (1, 1));
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.pipe.borrow().taken, ["one", "two"]);
    }

    #[test]
    fn after_the_end_of_input_replies_are_still_written() {
        let mut bench = Bench::new(Echo::default());
        bench.pipe.borrow_mut().room = Some(0);
        bench.arrives("question");
        bench.receives(Ok(None));
        assert_eq!(bench.drain(), ["question", "Eof"]);
        let reads = bench.pipe.borrow().reads;
        bench.pipe.borrow_mut().room = None;
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.pipe.borrow().taken, ["question"]);
        assert_eq!(bench.pipe.borrow().reads, reads, "nothing is read after the end");
    }

    #[test]
    fn a_failed_read_is_reported_once_after_all_events_and_the_transport_is_closed() {
        let mut bench = Bench::new(Echo::default());
        bench.arrives("before");
        bench.receives(Err(Broken::Read));
        assert_eq!(bench.drain(), ["before", "Failed"]);
        assert!(bench.pipe.borrow().closed, "closed by the time the error is seen");
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)), "the error, which `drain` has got, is returned once");

        let mut bench = Bench::new(Echo::default());
        bench.receives(Err(Broken::Read));
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Failed".into()))));
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Read)));
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
    }

    #[test]
    fn frames_that_arrived_before_a_failed_write_are_not_lost() {
        let mut bench = Bench::new(Echo { only_counts: true, ..Echo::default() });
        bench.pipe.borrow_mut().breaks_on_send = true;
        bench.driver.machine_mut().output.push_back(Bytes::from_static(b"too late"));
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.wakes(), 1, "it wakes itself");
        bench.driver.machine_mut().only_counts = false;
        // The runtime reports the arrival only now.
        bench.arrives("the last words");
        bench.receives(Ok(None));
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("the last words".into()))));
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Failed".into()))), "no orderly end: nothing can be answered");
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Write)));
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
    }

    #[test]
    fn after_a_failed_write_input_is_still_read_for_half_a_second() {
        let mut bench = Bench::new(Echo { only_counts: true, ..Echo::default() });
        bench.pipe.borrow_mut().breaks_on_send = true;
        bench.pipe.borrow_mut().flood = true;
        bench.driver.machine_mut().output.push_back(Bytes::from_static(b"x"));
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.clock.timer_at.get(), Some(500));
        bench.clock.now.set(500);
        let frames = bench.driver.machine().frames;
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Failed".into()))));
        assert_eq!(bench.driver.machine().frames, frames);
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Write)));
    }

    #[test]
    fn a_failed_write_after_the_end_of_input_is_the_end_without_a_grace() {
        let mut bench = Bench::new(Echo::default());
        bench.receives(Ok(None));
        assert_eq!(bench.drain(), ["Eof"]);
        bench.pipe.borrow_mut().breaks_on_send = true;
        bench.driver.machine_mut().output.push_back(Bytes::from_static(b"x"));
        assert_eq!((bench.turn(), bench.wakes()), (Poll::Pending, 1), "it wakes itself");
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Failed".into()))));
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Write)));
    }

    #[test]
    fn closing_writes_and_flushes_queued_frames_before_the_transport_is_closed() {
        let mut bench = Bench::new(Echo::default());
        bench.pipe.borrow_mut().room = Some(1);
        bench.pipe.borrow_mut().closing_takes_polls = 1;
        bench.driver.machine_mut().output.extend([Bytes::from_static(b"1"), Bytes::from_static(b"2")]);
        bench.driver.machine_mut().closed = true;
        bench.arrives("ignored");
        assert_eq!(bench.turn(), Poll::Pending);
        assert!(!bench.pipe.borrow().closed);
        bench.pipe.borrow_mut().room = None;
        bench.pipe.borrow_mut().flush_stalls = true;
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.pipe.borrow().taken, ["1", "2"]);
        assert!(!bench.pipe.borrow().closed);
        bench.pipe.borrow_mut().flush_stalls = false;
        assert_eq!(bench.turn(), Poll::Pending, "closing takes its time");
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
        assert!(bench.pipe.borrow().closed);
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
        assert_eq!((bench.driver.machine().frames, bench.wakes()), (0, 0));
    }

    #[test]
    fn a_peer_that_does_not_read_delays_a_close_by_five_seconds_at_most() {
        let mut bench = Bench::new(Echo::default());
        bench.pipe.borrow_mut().room = Some(0);
        bench.driver.machine_mut().output.push_back(Bytes::from_static(b"never read"));
        bench.driver.machine_mut().closed = true;
        bench.clock.now.set(1000);
        assert_eq!(bench.turn(), Poll::Pending);
        assert_eq!(bench.clock.timer_at.get(), Some(6000));
        bench.clock.now.set(5999);
        assert_eq!(bench.turn(), Poll::Pending);
        bench.clock.now.set(6000);
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));
        assert!(bench.pipe.borrow().closed);
    }

    #[test]
    fn an_error_of_closing_is_reported_unless_another_came_first() {
        let mut bench = Bench::new(Echo { closes_at_eof: true, ..Echo::default() });
        bench.pipe.borrow_mut().breaks_on_close = true;
        bench.receives(Ok(None));
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Eof".into()))));
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Close)));
        assert_eq!(bench.turn(), Poll::Ready(Ok(None)));

        let mut bench = Bench::new(Echo::default());
        bench.pipe.borrow_mut().breaks_on_close = true;
        bench.receives(Err(Broken::Read));
        assert_eq!(bench.turn(), Poll::Ready(Ok(Some("Failed".into()))));
        assert_eq!(bench.turn(), Poll::Ready(Err(Broken::Read)));
    }

    #[test]
    fn dropping_the_future_of_next_event_loses_nothing() {
        let mut bench = Bench::new(Echo { room: Some(1), ..Echo::default() });
        let mut cx = Context::from_waker(Waker::noop());
        for events in [["one", "two"], ["three", "four"]] {
            for frame in events {
                bench.arrives(frame);
            }
            // The future reads both frames, and the machine does not take them.
            bench.driver.machine_mut().frames_to_return = 1;
            assert_eq!(core::pin::pin!(bench.driver.next_event()).poll(&mut cx), Poll::Pending);
            assert!(bench.pipe.borrow().incoming.is_empty());
            assert_eq!(bench.drain(), events);
        }
        assert_eq!(bench.pipe.borrow().taken, ["one", "two", "three", "four"]);
    }

    #[test]
    fn the_transport_gets_the_frame_limit_of_the_machine() {
        assert_eq!(Bench::new(Echo::default()).pipe.borrow().limit, 16 << 20);
    }

    /// A transport of lines, over a byte stream that moves one byte in a poll and pauses after each byte.
    struct Trickle {
        incoming: VecDeque<u8>,
        pause: bool,
        decoder: LineDecoder,
        encoder: LineEncoder,
        written: Vec<u8>,
    }

    impl Trickle {
        /// Returns `true` if this poll is one of the pauses.
        fn pauses(&mut self, cx: &Context<'_>) -> bool {
            self.pause = !self.pause;
            if self.pause {
                cx.waker().wake_by_ref();
            }
            self.pause
        }
    }

    impl FrameIo for Shared<Trickle> {
        type Error = Broken;

        fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
            let mut io = self.borrow_mut();
            loop {
                if let Some(frame) = io.decoder.next_frame() {
                    return Poll::Ready(Ok(Some(frame)));
                }
                if io.pauses(cx) {
                    return Poll::Pending;
                }
                let Some(byte) = io.incoming.pop_front() else { return Poll::Ready(Ok(io.decoder.finish())) };
                io.decoder.space().put_u8(byte);
            }
        }

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            if self.borrow().encoder.remaining() < 8 { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
        }

        fn start_send(&mut self, transmit: Transmit) -> Result<(), Broken> {
            self.borrow_mut().encoder.push(transmit.frame);
            Ok(())
        }

        fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            let mut io = self.borrow_mut();
            while io.encoder.has_remaining() {
                if io.pauses(cx) {
                    return Poll::Pending;
                }
                let byte = io.encoder.get_u8();
                io.written.push(byte);
            }
            Poll::Ready(Ok(()))
        }

        fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            Poll::Ready(Ok(()))
        }
    }

    type Trickling = Driver<Echo, Shared<Trickle>, Clock>;
    type Turn = Poll<Result<Option<String>, Broken>>;

    /// Passes frames over a transport that moves one byte at a time. `poll` takes a turn of the driver.
    fn trickle(poll: fn(&mut Trickling, &mut Context<'_>) -> Turn) {
        let io = Rc::new(RefCell::new(Trickle {
            incoming: b"{\"first\":1}\r\n\n{\"second\":2}\nhalf a fra".iter().copied().collect(),
            pause: false,
            decoder: LineDecoder::new(100),
            encoder: LineEncoder::new(),
            written: Vec::new(),
        }));
        let mut driver = Driver::new(Echo::default(), io.clone(), Clock::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let (mut events, mut idle) = (Vec::new(), 0);
        while idle < 2 {
            let before = wakes.0.load(Ordering::Relaxed);
            match poll(&mut driver, &mut Context::from_waker(&waker)) {
                Poll::Ready(Ok(Some(event))) => events.push(event),
                Poll::Ready(end) => panic!("{end:?}"),
                Poll::Pending if wakes.0.load(Ordering::Relaxed) == before => idle += 1,
                Poll::Pending => {}
            }
        }
        assert_eq!(events, ["{\"first\":1}", "{\"second\":2}", "half a fra", "Eof"]);
        assert_eq!(io.borrow().written, b"{\"first\":1}\n{\"second\":2}\nhalf a fra\n");
    }

    #[test]
    fn frames_cross_a_transport_that_moves_one_byte_at_a_time() {
        trickle(Trickling::poll_event);
    }

    #[test]
    fn dropping_the_future_of_next_event_amid_a_frame_loses_nothing() {
        trickle(|driver, cx| core::pin::pin!(driver.next_event()).poll(cx));
    }
}
