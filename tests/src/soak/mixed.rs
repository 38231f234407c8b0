//! Mixed traffic: calls of both eras with progress, input requests, cancels, subscriptions, and responses that are cut and resumed.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::Rng;

use super::Server;
use crate::raw_http::{self, Exchange, Failure, Request};

/// The number of rows that are printed during the mixed traffic.
const ROWS: u32 = 6;
/// The number of clients at the same time.
const CLIENTS: u64 = 8;
/// The pause of a client after each piece of work, so that the machine is not fully loaded.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs for `span`, and prints [`ROWS`] rows at equal intervals.
pub(super) fn run(server: &Server, span: Duration) -> Result<(), Failure> {
    let start = Instant::now();
    for row in 1..=ROWS {
        let until = start + span * row / ROWS;
        let made = thread::scope(|scope| -> Result<u64, Failure> {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let mut random = Rng::new(u64::from(row) * CLIENTS + client);
                    scope.spawn(move || work(server, &mut random, until).map_err(|error| error.to_string()))
                })
                .collect();
            let made: Vec<_> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
            Ok(made.into_iter().collect::<Result<Vec<u64>, _>>()?.into_iter().sum())
        })?;
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        server.wait_until_freed(&format!("{minutes:.0} minutes of mixed traffic, {made} passes of the loop in this part"))?;
    }
    Ok(())
}

/// Does random pieces of work until the time `until`. Returns their number.
fn work(server: &Server, random: &mut Rng, until: Instant) -> Result<u64, Failure> {
    let mut made = 0;
    while Instant::now() < until {
        let mut stream = server.connect()?;
        match random.below(6) {
            0 => Exchange::send(&mut stream, &Request::call(1, "quick"))?.finish()?.expect(200)?,
            1 => Exchange::send(&mut stream, &Request::call(1, "steps"))?.finish()?.expect(200)?,
            2 => ask(&mut stream)?,
            3 => cut(&mut stream, "stuck")?,
            4 => listen(&mut stream)?,
            _ => session(server, &mut stream)?,
        }
        made += 1;
        thread::sleep(PAUSE);
    }
    Ok(made)
}

/// A call with one round, and the retry with the answers.
fn ask(stream: &mut TcpStream) -> Result<(), Failure> {
    let asked = Exchange::send(stream, &Request::call(1, "ask"))?.finish()?.message()?;
    let state = asked["result"]["requestState"].as_str().ok_or("no state")?.to_owned();
    let answers = json!({"go": {"action": "accept", "content": {}}});
    let params = json!({"name": "ask", "requestState": state, "inputResponses": answers});
    let done = Exchange::send(stream, &Request::modern(2, "tools/call", "ask", params))?.finish()?.message()?;
    if done["result"]["resultType"] == "complete" { Ok(()) } else { Err(format!("not complete: {done}").into()) }
}

/// A call whose client disconnects after the first update. The caller of this function drops the stream.
fn cut(stream: &mut TcpStream, tool: &str) -> Result<(), Failure> {
    Exchange::send(stream, &Request::call(1, tool))?.next_line_with("notifications/progress").map(drop)
}

fn listen(stream: &mut TcpStream) -> Result<(), Failure> {
    Exchange::send(stream, &Request::listen(1))?.next_line_with("subscriptions/acknowledged").map(drop)
}

/// A session with two calls: the response of one is cut, and resumed on another connection; the other call is cancelled.
fn session(server: &Server, stream: &mut TcpStream) -> Result<(), Failure> {
    let id = raw_http::open_session(stream)?;
    let call = |number: u64, tool: &str| {
        let params = json!({"name": tool, "_meta": {"progressToken": number}});
        Request::legacy(&id, &json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))
    };
    let mut cut = server.connect()?;
    let event = Exchange::send(&mut cut, &call(1, "steps"))?.next_line_with("id: ")?;
    drop(cut);
    let last = event.trim().trim_start_matches("id: ").to_owned();
    Exchange::send(&mut server.connect()?, &Request::get(&id, &last))?.next_line_with("\"result\"")?;

    let mut waiting = server.connect()?;
    Exchange::send(&mut waiting, &call(2, "stuck"))?.next_line_with("notifications/progress")?;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    Exchange::send(stream, &Request::legacy(&id, &cancel))?.finish()?.expect(202)?;
    Exchange::send(stream, &Request::delete(&id))?.finish()?.expect(204)
}
