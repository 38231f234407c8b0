//! A server without a runtime: one thread reads and writes standard input and output, and the session is a machine without I/O.

use std::io::{Read, Write};

use sansmcp::session::lines::{LineDecoder, LineEncoder};
use sansmcp::session::{Config, Event, Full, Identity, Instant, Lane, Reply, Request, RpcError, Session, ToolOutput, TransportEnd};

fn serve(mut input: impl Read, mut output: impl Write) -> std::io::Result<()> {
    let started = std::time::Instant::now();
    let clock = || Instant::from_micros(started.elapsed().as_micros() as u64);
    let config = Config::mcp_server(Identity::new("greeter", "1.0"));
    let mut lines = LineDecoder::new(config.limits.frame_bytes);
    let mut session = Session::new(config, clock());
    let mut bytes = [0; 4096];
    let (mut waiting, mut at_end) = (None, false);
    loop {
        if waiting.is_none() {
            let read = input.read(&mut bytes)?; // a real loop also wakes up at `session.poll_timeout()`
            lines.feed(&bytes[..read]);
            at_end = read == 0;
        }
        while let Some(frame) = waiting.take().or_else(|| lines.next_frame()) {
            if let Err(Full(frame)) = session.handle_frame(frame, Lane::CHANNEL, clock()) {
                waiting = Some(frame); // too many events are unpolled: pass it again in the next turn
                break;
            }
        }
        let is_done = at_end && waiting.is_none();
        if is_done {
            session.handle_end(TransportEnd::Eof, clock());
        }
        if session.poll_timeout().is_some_and(|at| at <= clock()) {
            session.handle_timeout(clock());
        }
        while let Some(event) = session.poll_event() {
            let Event::Request { id, request, .. } = event else { continue };
            let reply = match request {
                Request::CallTool(call) if call.name() == "greet" => Reply::Tool(ToolOutput::text("hello")),
                _ => Reply::Error(RpcError::internal("the only tool is `greet`")),
            };
            let _ = session.respond(id, reply, clock()); // an error means that the call has already ended
        }
        let mut outgoing = LineEncoder::new();
        while {
            let has_more = session.poll_transmits(&mut outgoing);
            while let Some(frame) = outgoing.next_frame() {
                output.write_all(&frame)?;
                output.write_all(b"\n")?;
            }
            has_more
        } {}
        output.flush()?;
        if session.is_closed() || is_done {
            return Ok(());
        }
    }
}

fn main() -> std::io::Result<()> {
    serve(std::io::stdin().lock(), std::io::stdout().lock())
}
