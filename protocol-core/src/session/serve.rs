//! One invocation that we serve, from its receipt to the end of its handler. All transitions of the callee's machine are here.
//!
//! ```text
//!   receipt
//!      |
//!      v      respond, with no gap to keep
//!    Active ------------------------------------------------> (gone)
//!      |  \   respond, a moment after the last progress          ^
//!      |   `---------------------------------> Answered ---------+   the gap has passed
//!      |                                                         |
//!      |  the peer's cancel | the deadline | the end             |
//!      v                                                         |
//!   Cancelled ---------------------------------------------------+   respond: the handler has ended
//! ```
//!
//! Nothing leaves once a machine is not `Active` any longer, except the one response of `Answered`, which has already won
//! every race. `Cancelled` keeps its place in the table: stuck handlers are bounded.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::config::{Config, RateWindow};
use crate::dialect::{Dialect, Op, Progress};
use crate::json::Json;
use crate::session::line::{Line, Place};
use crate::session::outbox::{Class, Outbox, Ticket};
use crate::session::progress::Reporter;
use crate::session::timers::{TimerKey, Timers};
use crate::session::{InboundId, InputKey};
use crate::time::Instant;
use crate::wire::WireId;

#[derive(Clone, Debug)]
pub(super) struct Serve {
    /// What the peer calls the exchange.
    pub(super) exchange: WireId,
    pub(super) op: Op,
    /// What the peer wants progress to be called; `None` if it wants none.
    pub(super) token: Option<WireId>,
    /// How many samplings it is nested in.
    pub(super) depth: u8,
    pub(super) received: Instant,
    /// Where the session's timers have its deadline.
    pub(super) armed: Option<Instant>,
    /// Made at the first of it: many an invocation says nothing before its response.
    pub(super) said: Option<Box<Said>>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Active,
    /// The response is boxed, since few wait and all would have room for it.
    Answered(Box<Bytes>),
    Cancelled,
}

/// What an invocation says before its response.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) reporter: Reporter,
    /// The newest update in the outbox, and when it was written.
    pub(super) last_progress: Option<(Ticket, Instant)>,
    /// Where the session's timers have the flush of what is kept, or the release of its response.
    pub(super) armed: Option<Instant>,
    /// Where it waits for what all share.
    pub(super) place: Option<Place>,
    /// The newest partial result, an object without `status`.
    pub(super) checkpoint: Option<Json>,
    /// Our questions that are open at the peer.
    pub(super) questions: Vec<InputKey>,
}

/// What the end of a handler means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has answered: the reply goes out.
    Reply,
    /// It was cancelled before: nothing goes out, and its place is free.
    Swallowed,
    /// It has answered before.
    Twice,
}

impl Serve {
    pub(super) fn new(exchange: WireId, op: Op, token: Option<WireId>, depth: u8, now: Instant) -> Self {
        Self { exchange, op, token, depth, received: now, armed: None, said: None, state: State::Active }
    }

    /// For something to be said. `rate` is that of its progress unless it was given another.
    pub(super) fn saying(&mut self, rate: RateWindow) -> &mut Said {
        self.said.get_or_insert_with(|| Box::new(Said::new(rate)))
    }

    pub(super) fn last_progress(&self) -> Option<(Ticket, Instant)> {
        self.said.as_ref()?.last_progress
    }

    pub(super) fn checkpoint(&self) -> Option<&Json> {
        self.said.as_ref()?.checkpoint.as_ref()
    }

    /// Writes an update that [`Reporter`] let go.
    pub(super) fn push_progress(
        &mut self,
        id: InboundId,
        progress: &Progress,
        now: Instant,
        outbox: &mut Outbox,
        dialect: &Dialect,
        config: &Config,
    ) {
        let (Some(token), Some(said)) = (&self.token, &mut self.said) else { return };
        let partial = said.checkpoint.as_ref().filter(|_| config.progress.partial_on_progress);
        let mut frame = dialect.write_progress(outbox.frames(), token, progress, partial);
        if frame.len() > config.limits.frame_bytes {
            // Words and data are worth less than the news that it goes on.
            let shorter = Progress { message: None, data: None, ..progress.clone() };
            frame = dialect.write_progress(outbox.frames(), token, &shorter, None);
        }
        said.last_progress = Some((outbox.push(Class::Progress(id), frame), now));
    }

    /// Stops its timers and keeps no progress. Gives its questions, which are to be taken back.
    pub(super) fn quiet(&mut self, id: InboundId, timers: &mut Timers, line: &mut Line) -> Vec<InputKey> {
        timers.set(TimerKey::Serve(id), &mut self.armed, None);
        let Some(said) = &mut self.said else { return Vec::new() };
        timers.set(TimerKey::Flush(id), &mut said.armed, None);
        line.leave(&mut said.place);
        core::mem::take(&mut said.questions)
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self.state, State::Active)
    }

    /// Active -> Cancelled. `false` if it was not active.
    pub(super) fn cancel(&mut self) -> bool {
        let first = self.is_active();
        if first {
            self.state = State::Cancelled;
        }
        first
    }

    /// The handler has ended.
    pub(super) fn end(&self) -> Ended {
        match self.state {
            State::Active => Ended::Reply,
            State::Cancelled => Ended::Swallowed,
            State::Answered(_) => Ended::Twice,
        }
    }

    /// Active -> Answered: `response` waits for its moment.
    pub(super) fn hold(&mut self, response: Bytes) {
        self.state = State::Answered(Box::new(response));
    }

    /// The response that was held.
    pub(super) fn take_held(&mut self) -> Option<Bytes> {
        match core::mem::replace(&mut self.state, State::Cancelled) {
            State::Answered(response) => Some(*response),
            other => {
                self.state = other;
                None
            }
        }
    }
}

impl Said {
    fn new(rate: RateWindow) -> Self {
        let reporter = Reporter::new(rate);
        Self { reporter, last_progress: None, armed: None, place: None, checkpoint: None, questions: Vec::new() }
    }
}

/// The table of the machine: the real session is brought into every state and given every input. `docs/model.md` draws it.
#[cfg(test)]
mod transitions {
    use core::time::Duration;
    use std::string::ToString as _;
    use std::vec::Vec;

    use super::State;
    use crate::session::call::transitions::{compare, output};
    use crate::session::{Ask, Close, Event, InboundId, Progress, Reply, ServeOptions, Session};
    use crate::{Config, Identity, Instant, Json, RateWindow, TransportEnd};

    /// The peer calls the invocation `c` and its progress `t`.
    struct Callee {
        session: Session,
        serve: InboundId,
        now: Instant,
        steps: f64,
    }

    const STATES: [&str; 7] = ["Active", "Reported", "Keeping", "Asking", "Answered", "Cancelled", "gone"];

    /// No wildcard: a new state must be named, and then be in the table. `Active` has three shades: an update has left a moment ago, an
    /// update is kept, a question is open.
    fn state(callee: &Callee) -> &'static str {
        match callee.session.serves.get(&callee.serve) {
            None => "gone",
            Some(serve) => match &serve.state {
                State::Active if serve.said.as_ref().is_some_and(|said| !said.questions.is_empty()) => "Asking",
                State::Active if serve.said.as_ref().is_some_and(|said| said.reporter.keeps()) => "Keeping",
                State::Active if serve.last_progress().is_some() => "Reported",
                State::Active => "Active",
                State::Answered(_) => "Answered",
                State::Cancelled => "Cancelled",
            },
        }
    }

    fn in_state(name: &str) -> Callee {
        let mut config = Config::mcp_server(Identity::new("server", "1"));
        config.timeouts.serve = Some(Duration::from_secs(60));
        config.timeouts.response_gap = Duration::from_millis(500);
        config.progress.window = RateWindow::new(1, Duration::from_secs(1));
        let callee = led_to(name, config, "2025-11-25");
        assert_eq!(state(&callee), name);
        callee
    }

    /// With what leads to a state under that configuration of [`in_state`] and in that revision.
    fn led_to(name: &str, config: Config, revision: &str) -> Callee {
        let now = Instant::from_millis(1);
        let mut session = Session::new(config, Instant::ZERO);
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"REVISION","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#;
        let frames = [
            hello.replace("REVISION", revision),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_string(),
            REQUEST.to_string(),
        ];
        for frame in frames {
            session.handle_frame(frame.into(), now).unwrap();
        }
        let requests = core::iter::from_fn(|| session.poll_event());
        let serve =
            requests.filter_map(|event| if let Event::Request { id, .. } = event { Some(id) } else { None }).next().unwrap();
        let mut callee = Callee { session, serve, now, steps: 0.0 };
        let steps: &[Input] = match name {
            "Active" => &[],
            "Reported" => &[PROGRESS],
            "Keeping" => &[PROGRESS, PROGRESS],
            "Asking" => &[ASK],
            "Answered" => &[PROGRESS, RESPOND],
            "Cancelled" => &[CANCEL],
            _ => &[RESPOND],
        };
        for step in steps {
            step(&mut callee);
        }
        output(&mut callee.session);
        callee
    }

    type Input = fn(&mut Callee);

    const REQUEST: &str =
        r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"work","_meta":{"progressToken":"t"}}}"#;
    const PROGRESS: Input = |callee| {
        callee.steps += 1.0;
        let _ = callee.session.progress(callee.serve, Progress::value(callee.steps), callee.now);
    };
    const ASK: Input = |callee| drop(callee.session.request_input(callee.serve, Ask::Roots, callee.now));
    const RESPOND: Input = |callee| {
        let _ = callee.session.respond(callee.serve, Reply::Raw(Json::empty_object()), callee.now);
    };
    const CANCEL: Input =
        |callee| callee.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#);

    const INPUTS: [(&str, Input); 19] = [
        ("progress", PROGRESS),
        ("the same progress twice", |callee| {
            PROGRESS(callee);
            callee.steps -= 1.0;
            PROGRESS(callee);
        }),
        ("a checkpoint", |callee| {
            let _ = callee.session.checkpoint(callee.serve, Json::empty_object());
        }),
        ("ask", ASK),
        ("the answer to it", |callee| {
            let open = callee.session.questions.keys().next().map(|key| key.0);
            if let Some(key) = open {
                callee.frame(&std::format!(r#"{{"jsonrpc":"2.0","id":{key},"result":{{"roots":[]}}}}"#));
            }
        }),
        ("take it back", |callee| {
            let open = callee.session.questions.keys().next().copied();
            if let Some(key) = open {
                callee.session.abandon_input(key, callee.now).unwrap();
            }
        }),
        ("respond", RESPOND),
        ("the peer cancels", CANCEL),
        ("the peer uses the id again", |callee| callee.frame(REQUEST)),
        ("the response gap has passed", |callee| callee.wait(500)),
        ("the rate window has passed", |callee| callee.wait(1000)),
        ("a deadline that has passed is set", |callee| {
            let options = ServeOptions::default().with_deadline(Duration::ZERO);
            let _ = callee.session.configure(callee.serve, options, callee.now);
        }),
        ("60 s since its receipt", |callee| callee.wait(60_000)),
        ("the peer ends its side", |callee| callee.session.handle_end(TransportEnd::Eof, callee.now)),
        ("and its grace of 5 s is over", |callee| {
            callee.session.handle_end(TransportEnd::Eof, callee.now);
            callee.wait(5000);
        }),
        ("the transport fails", |callee| callee.session.handle_end(TransportEnd::Failed, callee.now)),
        ("close, with a grace of 5 s", |callee| {
            callee.session.close(Close::Graceful { grace: Duration::from_secs(5) }, callee.now);
        }),
        ("close, and the grace is over", |callee| {
            callee.session.close(Close::Graceful { grace: Duration::from_secs(5) }, callee.now);
            callee.wait(5000);
        }),
        ("close now", |callee| callee.session.close(Close::Now, callee.now)),
    ];

    impl Callee {
        fn frame(&mut self, text: &str) {
            self.session.handle_frame(text.to_string().into(), self.now).unwrap();
        }

        fn wait(&mut self, millis: u64) {
            self.now = self.now.saturating_add(Duration::from_millis(millis));
            self.session.handle_timeout(self.now);
        }
    }

    #[test]
    fn the_machine_of_an_invocation_that_we_serve_is_the_one_in_the_docs() {
        let mut rows = Vec::new();
        for from in STATES {
            for (name, input) in INPUTS {
                let mut callee = in_state(from);
                input(&mut callee);
                let next = state(&callee);
                let (told, sent) = output(&mut callee.session);
                rows.push([from.into(), name.into(), next.into(), told, sent]);
            }
        }
        compare("serve.txt", "An invocation that we serve: every state, every input.", &rows);
    }

    /// What an endpoint rests on that does not read the clock for them. By then it is 300 ms later than the session was told; a turn of the
    /// driver, which tells the time, comes behind them, and so may one that was under way.
    #[cfg(feature = "endpoint")]
    #[test]
    fn progress_and_answers_on_whose_time_nothing_hangs_may_come_with_the_last_time() {
        const REFUSED: Input = |callee| {
            callee.frame(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#);
        };
        const IN_LINE: Input = |callee| {
            callee.frame(&REQUEST.replace(r#""c""#, r#""d""#).replace(r#""t""#, r#""u""#));
            let request = core::iter::from_fn(|| callee.session.poll_event()).find(|event| matches!(event, Event::Request { .. }));
            let Some(Event::Request { id, .. }) = request else { return };
            for step in 1..=3 {
                let _ = callee.session.progress(id, Progress::value(f64::from(step)), callee.now);
            }
            callee.wait(800);
        };
        type IsTimed = fn(&Session, InboundId) -> bool;
        let verbs: [(Input, IsTimed); 2] = [(PROGRESS, Session::is_progress_timed), (RESPOND, Session::is_response_timed)];
        let mut counts = [[0, 0], [0, 0]];
        let inputs = INPUTS.into_iter().chain([("three that are refused", REFUSED), ("another waits in line", IN_LINE)]);
        for ((name, input), variant) in inputs.flat_map(|input| (0..8).map(move |variant| (input, variant))) {
            let mut config = Config::mcp_server(Identity::new("server", "1"));
            let chosen = |bit: u8, choice: u64| Duration::from_millis(if variant & bit == 0 { 0 } else { choice });
            config.timeouts.response_gap = chosen(1, 500);
            config.progress.window = RateWindow::new(1, chosen(2, 1000));
            config.progress.session_window = RateWindow::new(1, chosen(4, 1000));
            config.limits.strays = 2;
            for from in STATES {
                let mut callee = led_to(from, config.clone(), "2025-03-26");
                input(&mut callee);
                for ((verb, is_timed), counts) in verbs.iter().zip(&mut counts) {
                    let is_timed = is_timed(&callee.session, callee.serve);
                    counts[usize::from(is_timed)] += 1;
                    let [stale, exact] = [0, 300].map(|late| {
                        let now = callee.now.saturating_add(Duration::from_millis(late));
                        let mut callee = Callee { session: callee.session.clone(), now, ..callee };
                        verb(&mut callee);
                        let first = (callee.session.poll_transmit().map(|transmit| transmit.frame), callee.session.poll_timeout());
                        callee.wait(300 - late);
                        let behind = [[PROGRESS, RESPOND], [RESPOND, PROGRESS]].map(|inputs| {
                            let mut callee = Callee { session: callee.session.clone(), ..callee };
                            let wait: Input = |callee| callee.wait(10_000);
                            [inputs[0], inputs[1], wait].map(|input| {
                                let before = (output(&mut callee.session), callee.session.poll_timeout());
                                input(&mut callee);
                                (before, output(&mut callee.session), callee.session.poll_timeout())
                            })
                        });
                        (first, behind)
                    });
                    assert!(is_timed || stale == exact, "{from}, {name}, variant {variant}:\n{stale:?}\n{exact:?}");
                }
            }
        }
        assert!(counts.as_flattened().iter().all(|count| *count > 100), "{counts:?}");
    }
}
