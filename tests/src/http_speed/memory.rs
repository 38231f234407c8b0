//! The memory that a server keeps for clients that do nothing.

use crate::raw_http::{self, Failure, ServerProcess};

/// The number of sessions or subscriptions that are opened first, so that the server has allocated the memory that it keeps for reuse.
const FIRST: usize = 400;
/// The number of further sessions or subscriptions, whose memory is measured.
const FURTHER: usize = 500;

/// The bytes of one more session with a handshake. All sessions are opened over one connection. `None` if the server has no sessions.
pub(super) fn of_a_session(server: &ServerProcess) -> Result<Option<f64>, Failure> {
    let mut stream = server.connect()?;
    of_one_more(server, || raw_http::open_session(&mut stream))
}

/// The bytes of one more subscription with its connection. `None` if the server has no subscriptions.
pub(super) fn of_a_subscription(server: &ServerProcess) -> Result<Option<f64>, Failure> {
    let mut id = 0;
    of_one_more(server, || {
        id += 1;
        let mut stream = server.connect()?;
        raw_http::open_subscription(&mut stream, id)?;
        Ok(stream)
    })
}

/// The growth of the server's memory with each further thing that `open` opens. All are kept until the end. `None` if not even one can be
/// opened.
fn of_one_more<T>(server: &ServerProcess, mut open: impl FnMut() -> Result<T, Failure>) -> Result<Option<f64>, Failure> {
    let Ok(first) = open() else { return Ok(None) };
    let mut opened = vec![first];
    for _ in 1..FIRST {
        opened.push(open()?);
    }
    let before = server.memory()?;
    for _ in 0..FURTHER {
        opened.push(open()?);
    }
    Ok(Some((server.memory()? - before) / FURTHER as f64))
}
