//! The three runs of the program. A failed assertion panics, which ends the program with the status 101.

use alloc::vec::Vec;
use core::time::Duration;

use protocol_core::{
    CallTimeouts, CancelReason, Close, CloseReason, Config, Event, Identity, InboundId, Instant, Invoke, Json, Lane, Op,
    OutboundId, Outcome, Progress, Reply, Reported, Session, TimeoutKind, ToolOutput,
};

const CALLS: u64 = 8;

fn client() -> Session {
    Session::new(Config::mcp_client(Identity::new("client", "1")), Instant::ZERO)
}

fn server() -> Session {
    Session::new(Config::mcp_server(Identity::new("server", "1")), Instant::ZERO)
}

fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

fn call(session: &mut Session, now: Instant) -> OutboundId {
    let timeouts = CallTimeouts::default().with_max_total(Some(Duration::from_secs(5)));
    session.invoke(Invoke::new(Op::CallTool, json(r#"{"name":"work"}"#)).with_timeouts(timeouts), now).unwrap()
}

fn events(session: &mut Session) -> Vec<Event> {
    core::iter::from_fn(|| session.poll_event()).collect()
}

/// Carries frames both ways until none is left.
fn carry(left: &mut Session, right: &mut Session, now: Instant) {
    loop {
        let mut quiet = true;
        while let Some(out) = left.poll_transmit() {
            quiet = false;
            right.handle_frame(out.frame, Lane::CHANNEL, now).unwrap();
        }
        while let Some(out) = right.poll_transmit() {
            quiet = false;
            left.handle_frame(out.frame, Lane::CHANNEL, now).unwrap();
        }
        if quiet {
            return;
        }
    }
}

fn requests(events: &[Event]) -> Vec<InboundId> {
    events.iter().filter_map(|event| if let Event::Request { id, .. } = event { Some(*id) } else { None }).collect()
}

/// A handshake, a call with progress and a result, a call that times out and is cancelled at the peer, and a close.
pub fn whole_life_of_two_ends() {
    let now = Instant::from_millis(1);
    let (mut client, mut server) = (client(), server());
    carry(&mut client, &mut server, now);
    assert!(client.is_ready() && server.is_ready());
    events(&mut client);
    events(&mut server);

    let first = call(&mut client, now);
    carry(&mut client, &mut server, now);
    let serving = requests(&events(&mut server))[0];
    for step in 1..=3 {
        let reported = server.progress(serving, Progress::step(step, 3).with_message("working"), now);
        // The rate window delays the second update. The third is the final one: it is sent immediately, and replaces the second.
        assert_eq!(reported, Ok(if step == 2 { Reported::RateLimited } else { Reported::Sent }));
    }
    server.respond(serving, Reply::Tool(ToolOutput::text("done")), now).unwrap();
    carry(&mut client, &mut server, now);
    let polled = events(&mut client);
    assert_eq!(polled.iter().filter(|event| matches!(event, Event::Progress { id, .. } if *id == first)).count(), 2);
    assert!(matches!(polled.last(), Some(Event::Done { id, outcome: Outcome::Result(_), .. }) if *id == first));

    let second = call(&mut client, now);
    carry(&mut client, &mut server, now);
    let serving = requests(&events(&mut server))[0];
    let due = client.poll_timeout().unwrap();
    assert_eq!(due, now.saturating_add(Duration::from_secs(5)));
    client.handle_timeout(due);
    assert!(matches!(
        &events(&mut client)[..],
        [Event::Done { id, outcome: Outcome::TimedOut(TimeoutKind::MaxTotal), .. }] if *id == second
    ));
    carry(&mut client, &mut server, due);
    assert!(matches!(&events(&mut server)[..], [Event::Cancelled { id, why: CancelReason::Peer(_) }] if *id == serving));
    assert!(server.respond(serving, Reply::Raw(Json::empty_object()), due).is_err());

    for end in [&mut client, &mut server] {
        end.close(Close::Graceful { grace: Duration::from_secs(1) }, due);
        assert!(matches!(&events(end)[..], [Event::Closed(CloseReason::Local)]));
        assert_eq!(end.poll_timeout(), None);
    }
}

/// A caller that gets prepared frames: eight calls, progress for each, then a result for each.
pub fn caller_with_eight_calls_in_flight() {
    let now = Instant::from_millis(1);
    let mut client = client();
    let sent = |client: &mut Session| core::iter::from_fn(|| client.poll_transmit()).count();
    sent(&mut client);
    let welcome = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    client.handle_frame(welcome.into(), Lane::CHANNEL, now).unwrap();
    assert!(client.is_ready());
    assert_eq!(sent(&mut client), 1);
    for _ in 0..CALLS {
        call(&mut client, now);
    }
    // All eight requests are in the outbox.
    assert_eq!(sent(&mut client), 8);
    assert_eq!(client.stats().outbound_calls, 8);
    macro_rules! frames {
        ($($id:literal)*) => {[$((
            concat!(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#, $id, r#","progress":1,"total":2,"message":"half"}}"#),
            concat!(r#"{"jsonrpc":"2.0","id":"#, $id, r#","result":{"content":[{"type":"text","text":"done"}]}}"#),
        )),*]};
    }
    let frames = frames!(2 3 4 5 6 7 8 9);
    for (progress, _) in frames {
        client.handle_frame(progress.into(), Lane::CHANNEL, now).unwrap();
    }
    for (_, result) in frames {
        client.handle_frame(result.into(), Lane::CHANNEL, now).unwrap();
    }
    let polled = events(&mut client);
    assert_eq!(polled.iter().filter(|event| matches!(event, Event::Progress { .. })).count(), 8);
    assert_eq!(polled.iter().filter(|event| matches!(event, Event::Done { outcome: Outcome::Result(_), .. })).count(), 8);
    client.close(Close::Now, now);
    assert!(matches!(&events(&mut client)[..], [Event::Closed(_)]));
}

/// A callee that gets prepared frames: eight requests, one after the other. It sends progress for each, then a result for each.
pub fn callee_with_eight_calls_in_flight() {
    let now = Instant::from_millis(1);
    let mut server = server();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    for frame in [initialize, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#] {
        server.handle_frame(frame.into(), Lane::CHANNEL, now).unwrap();
    }
    assert!(server.is_ready());
    macro_rules! requests {
        ($($id:literal)*) => {[$(
            concat!(r#"{"jsonrpc":"2.0","id":"#, $id, r#","method":"tools/call","params":{"name":"work","arguments":{"steps":3},"_meta":{"progressToken":"#, $id, "}}}")
        ),*]};
    }
    for request in requests!(1 2 3 4 5 6 7 8) {
        server.handle_frame(request.into(), Lane::CHANNEL, now).unwrap();
    }
    let serving = requests(&events(&mut server));
    assert_eq!(serving.len(), 8);
    for id in &serving {
        for step in 1..=3 {
            server.progress(*id, Progress::step(step, 3).with_message("working"), now).unwrap();
        }
    }
    for id in serving {
        server.respond(id, Reply::Tool(ToolOutput::text("done")), now).unwrap();
    }
    // The outbox has the answer to the handshake, the first and the final update of each call, and 8 responses.
    assert_eq!(core::iter::from_fn(|| server.poll_transmit()).count(), 25);
    server.close(Close::Now, now);
    assert!(matches!(&events(&mut server)[..], [Event::Closed(_)]));
}
