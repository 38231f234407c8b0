//! One session under load: `cargo run --release -p tests --example load`.
//!
//! Each load is run in ten parts. The program prints the mean time of an operation in each part, and the memory of the process after the
//! first part and after the last. It fails if an operation takes more than twice as long in the second half as in the first, by the medians
//! of these means. It also fails if the memory grows by more than 2 MiB from the end of the first part to the end of the last. The memory
//! is not checked for calls that are left in flight and then answered, since each needs memory, nor on a system without `/proc`.

use std::time::Instant as Clock;

use protocol_core::{CallTimeouts, Event, Instant, Invoke, Json, Lane, Op, Progress, RateWindow, Reply, Session, ToolOutput};
use testkit::config::{client_config, server_config};

/// The resident memory of the process in KiB; 0 on a system without `/proc`.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse().ok()).unwrap_or_default()
}

/// Two sessions that are ready, with room for `in_flight` calls and no limit on the rate of progress.
fn pair(in_flight: usize) -> [Session; 2] {
    let (mut client, mut server) = (client_config(), server_config());
    for config in [&mut client, &mut server] {
        config.limits.in_flight = in_flight;
        config.limits.events = in_flight + 16;
        config.limits.output_bytes = 1 << 30;
        config.limits.output_bytes_hard = 1 << 30;
    }
    server.progress.window = RateWindow::UNLIMITED;
    let mut ends = [Session::new(client, Instant::ZERO), Session::new(server, Instant::ZERO)];
    for _ in 0..2 {
        carry(&mut ends, 0, Instant::ZERO);
        carry(&mut ends, 1, Instant::ZERO);
    }
    for end in &mut ends {
        while end.poll_event().is_some() {}
        assert!(end.is_ready());
    }
    ends
}

/// Delivers all frames of `from` to the other end.
fn carry(ends: &mut [Session; 2], from: usize, now: Instant) {
    while let Some(out) = ends[from].poll_transmit() {
        ends[1 - from].handle_frame(out.frame, Lane::CHANNEL, now).expect("there is room");
    }
}

fn call() -> Invoke {
    Invoke::new(Op::CallTool, Json::parse(r#"{"name":"work","arguments":{"steps":3}}"#).expect("JSON"))
}

/// The number of KiB by which the memory may grow from the end of the first part to the end of the last, under a load that needs constant
/// memory.
const MAX_GROWTH: u64 = 2048;

/// Runs `count` operations in ten parts and prints each part's time. Fails if the median of the last five is more than twice the median of
/// the first five, or, with `is_constant`, if the memory grows by more than [`MAX_GROWTH`].
fn measure(what: &str, count: u64, is_constant: bool, mut operation: impl FnMut(u64)) {
    let mut nanos = Vec::new();
    let mut memory = Vec::new();
    for part in 0..10 {
        let began = Clock::now();
        for number in part * count / 10..(part + 1) * count / 10 {
            operation(number);
        }
        nanos.push(began.elapsed().as_nanos() as f64 / (count / 10) as f64);
        memory.push(resident());
    }
    let shown: Vec<String> = nanos.iter().map(|nanos| format!("{nanos:.0}")).collect();
    println!(
        "{what}: {count} times; ns each by tenths: {}; MiB after: {} .. {}",
        shown.join(" "),
        memory[0] / 1024,
        memory[9] / 1024
    );
    // Medians, since other processes may use the machine for a while.
    let median = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let (first, last) = (median(&nanos[..5]), median(&nanos[5..]));
    assert!(last <= first * 2.0, "{what}: {first:.0} ns each in the first half, {last:.0} ns in the second");
    if is_constant {
        let growth = memory[9].saturating_sub(memory[0]);
        assert!(growth <= MAX_GROWTH, "{what}: memory grew by {growth} KiB");
    }
}

fn in_flight(count: u64) {
    let mut ends = pair(count as usize);
    let now = Instant::from_millis(1);
    let before = resident();
    measure("calls begun and left in flight", count, false, |_| {
        ends[0].invoke(call(), now).expect("there is room");
        carry(&mut ends, 0, now);
    });
    let each = resident().saturating_sub(before) * 1024 / count;
    println!("  both ends hold {each} bytes for each call in flight");
    let mut requests = Vec::new();
    while let Some(event) = ends[1].poll_event() {
        if let Event::Request { id, .. } = event {
            requests.push(id);
        }
    }
    assert_eq!(requests.len() as u64, count);
    // The calls are answered from both ends of the list in turn: the oldest, the newest, the second oldest, and so on.
    measure("calls in flight answered", count, false, |number| {
        let last = requests.len() as u64 - 1;
        let place = if number % 2 == 0 { number / 2 } else { last - number / 2 };
        let reply = Reply::Tool(ToolOutput::text("ok"));
        ends[1].respond(requests[place as usize], reply, now).expect("it is live");
        carry(&mut ends, 1, now);
        assert!(matches!(ends[0].poll_event(), Some(Event::Done { .. })));
    });
    assert_eq!(ends.each_ref().map(|end| (end.stats().outbound_calls, end.poll_timeout())), [(0, None), (0, None)]);
}

fn updates(count: u64) {
    let mut ends = pair(1);
    ends[0].invoke(call(), Instant::ZERO).expect("there is room");
    carry(&mut ends, 0, Instant::ZERO);
    let Some(Event::Request { id, .. }) = ends[1].poll_event() else { panic!("a request") };
    measure("progress updates from handler to caller", count, true, |number| {
        let now = Instant::from_micros(number);
        ends[1].progress(id, Progress::step(number, count), now).expect("it makes sense");
        carry(&mut ends, 1, now);
        assert!(matches!(ends[0].poll_event(), Some(Event::Progress { .. })));
    });
}

fn one_after_the_other(count: u64) {
    let mut ends = pair(8);
    measure("calls one after the other", count, true, |number| {
        let now = Instant::from_micros(number * 10);
        let mut call = call();
        call.timeouts = (number % 2 == 0).then_some(CallTimeouts::NONE);
        ends[0].invoke(call, now).expect("there is room");
        carry(&mut ends, 0, now);
        let Some(Event::Request { id, .. }) = ends[1].poll_event() else { panic!("a request") };
        ends[1].respond(id, Reply::Tool(ToolOutput::text("ok")), now).expect("it is live");
        carry(&mut ends, 1, now);
        assert!(matches!(ends[0].poll_event(), Some(Event::Done { .. })));
    });
}

fn main() {
    // The argument is a percentage of the full load.
    let percent: u64 = std::env::args().nth(1).and_then(|percent| percent.parse().ok()).unwrap_or(100);
    in_flight(1_000 * percent);
    updates(100_000 * percent);
    one_after_the_other(10_000 * percent);
}
