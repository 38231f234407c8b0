//! Event loops over a [`FarEnd`], a simulated link with a peer: split frames, stalls and other faults. And a peer that is scripted frame by
//! frame.

use std::time::Duration;

use bytes::Buf;
use protocol_core::lines::{LineDecoder, LineEncoder};
use protocol_core::{Event, FrameSink as _, Instant, Lane, Reply, Session, ToolOutput, TransportEnd};
use testkit::config::{client_config, server_config};
use testkit::link::{Arrival, Faults, Read, SimLink};
use testkit::{Campaign, Coverage, FarEnd, Happening, Scripted, Watched, scripted};

const REQUIRED: [Happening; 3] = [Happening::Request, Happening::PeerCancel, Happening::Closed];

fn server() -> Watched {
    let mut session = Watched::new(Session::new(server_config(), Instant::ZERO), Instant::ZERO);
    session.judge_mut().distrust_peer();
    session
}

fn answer(session: &mut Watched, now: Instant) {
    while let Some(event) = session.poll_event() {
        if let Event::Request { id, .. } = event {
            let _ = session.respond(id, Reply::Tool(ToolOutput::text("ok")), now);
        }
    }
}

/// Runs a loop that sends and receives whole messages. Returns its coverage, and the number of turns in which the loop had to wait.
fn over_messages(faults: Faults, seed: u64) -> (Coverage, usize) {
    let (mut link, mut session, mut waits) = (FarEnd::new(client_config(), faults, seed), server(), 0);
    link.run(|link, now| {
        while let Some(arrival) = link.receive(now) {
            match arrival {
                Arrival::Message(frame) => drop(session.handle_frame(frame, Lane::CHANNEL, now)),
                Arrival::End(end) => session.handle_end(end, now),
            }
        }
        session.handle_timeout(now);
        answer(&mut session, now);
        while link.accepts(now) {
            let Some(out) = session.poll_transmit() else { break };
            link.send(&out.frame, now);
        }
        waits += usize::from(!link.accepts(now));
        session.poll_timeout()
    });
    session.check_end();
    (session.coverage().clone(), waits)
}

/// A run of a loop that reads and writes a stream of bytes.
struct ByteRun {
    coverage: Coverage,
    /// The number of reads that ended within a frame.
    splits: usize,
    /// The number of instants at which the loop had a turn.
    instants: usize,
}

fn over_bytes(faults: Faults, seed: u64) -> ByteRun {
    let (mut link, mut session, mut splits) = (FarEnd::bytes(client_config(), faults, seed), server(), 0);
    let (mut decoder, mut encoder, mut has_ended) = (LineDecoder::new(1 << 20), LineEncoder::new(), false);
    let (mut last, mut instants) = (None, 0);
    link.run(|link, now| {
        instants += usize::from(last.replace(now) != Some(now));
        loop {
            match link.read(now) {
                Read::Bytes(bytes) => {
                    splits += usize::from(!bytes.ends_with(b"\n"));
                    decoder.feed(&bytes);
                    while let Some(frame) = decoder.next_frame() {
                        drop(session.handle_frame(frame, Lane::CHANNEL, now));
                    }
                }
                Read::End(end) if !std::mem::replace(&mut has_ended, true) => session.handle_end(end, now),
                Read::End(_) | Read::Pending => break,
            }
        }
        session.handle_timeout(now);
        answer(&mut session, now);
        while let Some(out) = session.poll_transmit() {
            encoder.push(out.frame);
        }
        while encoder.has_remaining() {
            match link.write(encoder.chunk(), now) {
                0 => break,
                count => encoder.advance(count),
            }
        }
        session.poll_timeout()
    });
    session.check_end();
    ByteRun { coverage: session.coverage().clone(), splits, instants }
}

#[test]
fn a_loop_goes_on_after_each_stall_of_its_link() {
    let (mut campaign, mut waits) = (Campaign::new(&REQUIRED), 0);
    campaign.run(0..20, 0, |case| {
        let (coverage, waited) = over_messages(Faults { stall: 64, ..Faults::default() }, case.seed);
        waits += waited;
        coverage
    });
    assert!(waits > 100, "{waits}");
    assert_eq!(campaign.coverage().of(Happening::Violation), 0, "a stall changes nothing that arrives\n{}", campaign.coverage());
    campaign.finish();
}

#[test]
fn a_loop_reads_frames_that_are_split_anywhere() {
    let (mut campaign, mut splits) = (Campaign::new(&REQUIRED), 0);
    campaign.run(0..20, 0, |case| {
        let run = over_bytes(Faults { piece: 7, stall: 8, ..Faults::default() }, case.seed);
        splits += run.splits;
        run.coverage
    });
    assert!(splits > 10_000, "{splits}");
    assert_eq!(campaign.coverage().of(Happening::Violation), 0, "splits change nothing that arrives\n{}", campaign.coverage());
    campaign.finish();
}

#[test]
fn a_loop_over_a_stream_with_all_faults_gets_garbage_and_ends() {
    let mut campaign = Campaign::new(&[Happening::Request, Happening::Garbage, Happening::Closed]);
    campaign.run(0..40, 0, |case| over_bytes(Faults::hostile(), case.seed).coverage);
    campaign.finish();
}

#[test]
fn each_fault_of_a_stream_affects_a_loop() {
    let runs = |faults: Faults| (0..20).map(move |seed| over_bytes(faults, seed));
    let garbage = |faults| runs(faults).map(|run| run.coverage.of(Happening::Garbage)).sum::<u64>();
    let splits = |faults| runs(faults).map(|run| run.splits).sum::<usize>();
    let instants = |faults| runs(faults).map(|run| run.instants).sum::<usize>();
    let none = Faults::default();
    assert_eq!(garbage(none), 0);
    for faults in [Faults { corrupt: 12, ..none }, Faults { truncate: 4, ..none }] {
        assert!(garbage(faults) > 0, "{faults:?}");
    }
    assert!(splits(Faults { piece: 7, ..none }) > 2 * splits(none));
    let delay = Duration::from_millis(10);
    for faults in [Faults { latency: delay, ..none }, Faults { jitter: delay, ..none }, Faults { stall: 8, ..none }] {
        assert!(instants(faults) > instants(none), "{faults:?}");
    }
}

#[test]
fn a_message_that_is_sent_during_a_stall_arrives_after_the_stall() {
    let mut link = SimLink::new(1);
    // A chance of 256 out of 256: the link stalls after every message.
    link.faults.stall = 256;
    link.send(&"1".into(), Instant::ZERO);
    let stall_end = link.resumes(Instant::ZERO).expect("it stalls after each message");
    assert!(!link.accepts(Instant::ZERO) && link.accepts(stall_end) && stall_end <= Instant::from_millis(100));
    link.faults.stall = 0;
    link.send(&"2".into(), Instant::ZERO);
    assert_eq!(link.receive(Instant::ZERO), Some(Arrival::Message("1".into())));
    assert_eq!((link.receive(Instant::ZERO), link.due()), (None, Some(stall_end)));
    assert_eq!(link.receive(stall_end), Some(Arrival::Message("2".into())));
}

#[test]
fn a_scripted_peer_splits_its_frames_and_stalls() {
    for piece in 1..60 {
        let mut server = Scripted::server(server_config());
        server.frame_in_pieces(&scripted::call_tool(1, false), piece);
        let id = server.request();
        server.set_writable(false).respond(id);
        assert_eq!(server.sent(), [""; 0], "nothing leaves while the peer reads nothing");
        assert_eq!(server.set_writable(true).sent(), [scripted::ok(1)]);
        server.session.handle_end(TransportEnd::Eof, server.now);
    }
}
