//! The latency of the calls of one client, with and without hostile clients at the same server.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{UPDATES, call, echo};
use crate::raw_http::{Failure, Request, ServerProcess};

/// The number of connections of each kind of hostile client: slow heads, slow bodies, and unread responses.
const CONNECTIONS: usize = 100;
/// The time between two bytes of a slow client, and between two connections that send garbage.
const PACE: Duration = Duration::from_millis(20);

/// Latencies of calls, one at a time on a kept connection.
pub(super) struct Latencies {
    pub(super) median: Duration,
    pub(super) percentile_99: Duration,
}

/// Measures calls for a time.
pub(super) fn latencies(server: &ServerProcess, span: Duration) -> Result<Latencies, Failure> {
    let (mut stream, request) = (server.connect()?, echo());
    let (start, mut all) = (Instant::now(), Vec::new());
    while start.elapsed() < span {
        let sent = Instant::now();
        call(&mut stream, &request)?;
        all.push(sent.elapsed());
    }
    all.sort();
    // The least latency that `percent` per cent of the calls do not exceed. If there are few calls, `at(99)` is the longest of all.
    let at = |percent: usize| all[(all.len() * percent).div_ceil(100) - 1];
    Ok(Latencies { median: at(50), percentile_99: at(99) })
}

/// Measures calls for a time, while hostile clients send their heads and bodies a byte at a time, do not read their responses, and send
/// garbage. Another call is made first and not measured, since it may wait for the work that the hostile clients request at the beginning.
pub(super) fn latencies_beside_hostile_clients(server: &ServerProcess, span: Duration) -> Result<Latencies, Failure> {
    let is_over = AtomicBool::new(false);
    let mut crowd = Crowd::new(server);
    crowd.step();
    call(&mut server.connect()?, &echo())?;
    thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                crowd.step();
                thread::sleep(PACE);
            }
        });
        let measured = latencies(server, span);
        is_over.store(true, Ordering::Relaxed);
        hostile.join().map_err(|_| "the hostile clients have panicked")?;
        measured
    })
}

/// Hostile clients of one server. A slow connection that the server has closed, or that has sent its whole request, is replaced.
struct Crowd<'a> {
    server: &'a ServerProcess,
    /// Connections that send their request a byte at a time, each with the index of its next byte. Every second one sends only its body
    /// in this way, after the whole head.
    slow: Vec<(Option<TcpStream>, usize)>,
    /// Connections that have asked for many updates, and read nothing.
    _unread: Vec<TcpStream>,
}

impl<'a> Crowd<'a> {
    fn new(server: &'a ServerProcess) -> Self {
        let report = Request::call_with(1, "report", &json!({"count": 100 * UPDATES})).bytes();
        let unread = (0..CONNECTIONS).filter_map(|_| {
            let mut stream = server.connect().ok()?;
            stream.write_all(&report).ok()?;
            Some(stream)
        });
        Self { server, slow: (0..2 * CONNECTIONS).map(|_| (None, 0)).collect(), _unread: unread.collect() }
    }

    /// Sends one more byte on each slow connection, and garbage on one more connection.
    fn step(&mut self) {
        let request = echo();
        let head_length = request.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        for (number, (stream, next)) in self.slow.iter_mut().enumerate() {
            if stream.is_none() {
                *stream = self.server.connect().ok();
                *next = 0;
                if number % 2 == 1
                    && let Some(stream) = stream
                    && stream.write_all(&request[..head_length]).is_ok()
                {
                    *next = head_length;
                }
            }
            let Some(byte) = request.get(*next) else {
                *stream = None;
                continue;
            };
            *next += 1;
            if stream.as_mut().is_some_and(|stream| stream.write_all(&[*byte]).is_err()) {
                *stream = None;
            }
        }
        if let Ok(mut stream) = self.server.connect() {
            let _ = stream.write_all(&[0xff; 4096]);
        }
    }
}
