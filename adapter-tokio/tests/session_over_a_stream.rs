//! Sessions without endpoints over byte streams of tokio, in virtual time: the driver, the framing and the clock together.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use adapter_tokio::{Duplex, LineIo, TokioRuntime, TokioTimer, duplex};
use protocol_core::drive::{Driver, FrameIo, Timer};
use protocol_core::session::Event;
use protocol_core::{Close, CloseReason, Config, Identity, Invoke, Json, Op, Outcome, Progress, Reply, Session, mcp};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

type SessionDriver<I = Duplex> = Driver<Session, I, TokioTimer>;

fn identity() -> Identity {
    Identity::new("test", "1")
}

fn driver<I: FrameIo>(config: Config, transport: I) -> SessionDriver<I> {
    let clock = TokioRuntime::start();
    let timer = clock.timer();
    let now = timer.now();
    Driver::new(Session::new(config, now), transport, timer)
}

fn client(transport: Duplex) -> SessionDriver {
    driver(Config::mcp_client(identity()), transport)
}

fn server(transport: Duplex) -> SessionDriver {
    driver(Config::mcp_server(identity()), transport)
}

fn call(text: &str) -> Invoke {
    Invoke::new(Op::CallTool, Json::parse(format!(r#"{{"name":"echo","arguments":{{"text":"{text}"}}}}"#)).unwrap())
}

fn invoke(client: &mut SessionDriver, call: Invoke) {
    let now = client.now();
    client.machine_mut().invoke(call, now).unwrap();
}

async fn next(driver: &mut SessionDriver) -> Event {
    driver.next_event().await.unwrap().unwrap()
}

/// Answers every call with its own arguments after `steps` updates, one a second, until the session ends.
async fn echo(mut server: SessionDriver, steps: u64) -> CloseReason {
    let mut end = None;
    while let Some(event) = server.next_event().await.unwrap() {
        match event {
            Event::Request { id, request, .. } => {
                for step in 1..=steps {
                    let now = server.now();
                    server.machine_mut().progress(id, Progress::step(step, steps), now).unwrap();
                    // Drives the session during the second.
                    let _ = tokio::time::timeout(Duration::from_secs(1), server.next_event()).await;
                }
                let now = server.now();
                server.machine_mut().respond(id, Reply::Raw(request.params().member("arguments").unwrap()), now).unwrap();
            }
            Event::Closed(reason) => end = Some(reason),
            _ => {}
        }
    }
    end.expect("the last event is the reason of the close")
}

/// Drives both ends until the handshake is complete.
async fn shake_hands(client: &mut SessionDriver, server: &mut SessionDriver) {
    // The server is driven further after its event, since its response to `initialize` may not be written yet.
    let server = async {
        assert!(matches!(next(server).await, Event::Ready(_)));
        next(server).await
    };
    tokio::select! {
        event = next(client) => assert!(matches!(event, Event::Ready(_)), "{event:?}"),
        event = server => panic!("{event:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn two_ends_that_both_send_more_than_their_buffers_hold_do_not_block_each_other() {
    let (one, other) = duplex(4096);
    tokio::spawn(echo(server(other), 0));
    let mut client = client(one);
    let text = "y".repeat(100_000);
    let begin = Instant::now();
    // Each frame is larger than the buffer of its direction.
    for _ in 0..8 {
        invoke(&mut client, call(&text));
    }
    let mut done = 0;
    while done < 8 {
        if let Event::Done { outcome, .. } = next(&mut client).await {
            assert!(matches!(outcome, Outcome::Result(_)), "{outcome:?}");
            done += 1;
        }
    }
    assert_eq!(begin.elapsed(), Duration::ZERO, "neither end waited for a timeout");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_delays_the_end_of_a_close_by_five_seconds_at_most() {
    let (one, other) = duplex(7);
    let (mut client, mut server) = (client(one), server(other));
    shake_hands(&mut client, &mut server).await;
    invoke(&mut client, call(&"x".repeat(1000)));
    let now = client.now();
    let begin = Instant::now();
    client.machine_mut().close(Close::Graceful { grace: Duration::from_secs(1) }, now);
    while client.next_event().await.unwrap().is_some() {}
    // One second of grace for the call, and five (`close_grace`) for the peer to read.
    assert!(begin.elapsed() <= Duration::from_secs(6), "{:?}", begin.elapsed());
}

/// A server, and the stream of bytes to it.
fn raw() -> (tokio::task::JoinHandle<CloseReason>, DuplexStream) {
    let (one, other) = tokio::io::duplex(1 << 16);
    (tokio::spawn(echo(server(LineIo::whole(other)), 0)), one)
}

fn initialize() -> String {
    let version = mcp::Revision::NEWEST.as_str();
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"raw","version":"1"}}}}}}
{{"jsonrpc":"2.0","method":"notifications/initialized"}}
"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_line_of_64_mebibytes_closes_the_session_after_its_first_16() {
    let (serving, mut peer) = raw();
    peer.write_all(initialize().as_bytes()).await.unwrap();
    let piece = vec![b'['; 1 << 20];
    let mut sent = 0;
    while sent < 64 && peer.write_all(&piece).await.is_ok() {
        sent += 1;
    }
    assert!((16..=18).contains(&sent), "{sent} MiB were taken");
    assert_eq!(serving.await.unwrap(), CloseReason::FrameTooLarge);
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_at_the_end_of_input_is_answered_with_a_parse_error() {
    let (serving, mut peer) = raw();
    peer.write_all((initialize() + r#"{"jsonrpc":"2.0","id":1,"met"#).as_bytes()).await.unwrap();
    peer.shutdown().await.unwrap();
    let mut output = String::new();
    peer.read_to_string(&mut output).await.unwrap();
    assert!(output.lines().last().unwrap().contains("-32700"), "{output}");
    assert_eq!(serving.await.unwrap(), CloseReason::Eof);
}

/// Counts the writes that go through it.
struct Counting<W>(W, Arc<AtomicUsize>);

impl<W: AsyncWrite + Unpin> AsyncWrite for Counting<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_made_together_are_sent_in_one_write() {
    let (one, other) = tokio::io::duplex(1 << 20);
    tokio::spawn(echo(server(LineIo::whole(other)), 0));
    let writes = Arc::new(AtomicUsize::new(0));
    let (reader, writer) = tokio::io::split(one);
    let mut client = driver(Config::mcp_client(identity()), LineIo::new(reader, Counting(writer, writes.clone())));
    assert!(matches!(client.next_event().await, Ok(Some(Event::Ready(_)))));
    // The last frame of the handshake is still to be written.
    assert!(tokio::time::timeout(Duration::from_millis(1), client.next_event()).await.is_err());
    let before = writes.load(Ordering::Relaxed);
    for _ in 0..100 {
        let now = client.now();
        client.machine_mut().invoke(call("hello"), now).unwrap();
    }
    assert!(matches!(client.next_event().await, Ok(Some(Event::Done { .. }))));
    assert_eq!(writes.load(Ordering::Relaxed) - before, 1);
}
