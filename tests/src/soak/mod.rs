//! Load on a server process over HTTP, by clients with real sockets. The program shows the heap, descriptors, tasks, sessions and exchanges
//! of the server before, during and after the load. All of them but the heap must return to their values before the load.

mod mixed;
mod server;

use std::alloc::System;
use std::env;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cap::Cap;
use clap::Parser;
use programs::adapter::Adapter;

use crate::raw_http::{self, Exchange, Failure, Request, ServerProcess};

/// The allocator of the server, which counts the allocated bytes. The memory of the process would not show what is freed, since the process
/// keeps freed memory.
pub type Heap = Cap<System>;

/// The time within which the server must have freed everything that belonged to its former clients.
const TIME_TO_FREE: Duration = Duration::from_secs(60);

/// Puts load on a server over HTTP, and prints a table that shows whether the server frees everything afterwards.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Flags {
    /// Serve, and print the address. The program starts its server process with this flag.
    #[arg(long, hide = true)]
    serve: bool,
    /// The number of sessions with a handshake that are open at the same time.
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// The number of subscriptions that are open at the same time, each on a connection of its own.
    #[arg(long, default_value_t = 10_000)]
    listens: usize,
    /// The number of calls whose client disconnects.
    #[arg(long, default_value_t = 100_000)]
    drops: usize,
    /// The number of rounds of sessions, subscriptions and disconnects. Memory that is kept for reuse grows only in the first round.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// The minutes of mixed traffic at the end.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
}

/// The whole program, on one adapter. `heap` is its global allocator.
pub fn main<A: Adapter>(heap: &'static Heap) -> ExitCode {
    let flags = Flags::parse();
    if flags.serve {
        return A::run(Some(2), |adapter| server::run(adapter, heap));
    }
    match run(&flags, A::NAME) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags, name: &str) -> Result<(), Failure> {
    let mut server = Server::start()?;
    // While it serves its first requests, the server makes the tables, threads and buffers that it keeps.
    for _ in 0..200 {
        server.quick()?;
    }
    println!("| {name} | heap of the server, KiB | resident memory, MiB | descriptors | tasks | sessions | exchanges |");
    println!("|---|---|---|---|---|---|---|");
    server.at_rest = server.show("after 200 calls")?;
    for _ in 0..flags.rounds {
        sessions(&server, flags.sessions)?;
        listens(&server, flags.listens)?;
        drops(&server, flags.drops)?;
    }
    mixed::run(&server, Duration::from_secs_f64(flags.minutes * 60.0))?;
    server.wait_until_freed("at the end")
}

/// Opens sessions over one connection, and ends them.
fn sessions(server: &Server, number: usize) -> Result<(), Failure> {
    let mut stream = server.connect()?;
    let mut ids = Vec::new();
    for _ in 0..number {
        ids.push(raw_http::open_session(&mut stream)?);
    }
    server.show(&format!("{number} sessions"))?;
    for id in &ids {
        Exchange::send(&mut stream, &Request::delete(id))?.finish()?.expect(204)?;
    }
    drop(stream);
    server.wait_until_freed("the sessions ended")
}

/// Opens subscriptions, each on a connection of its own, and disconnects.
fn listens(server: &Server, number: usize) -> Result<(), Failure> {
    let mut open = Vec::new();
    for id in 0..number {
        let mut stream = server.connect()?;
        raw_http::open_subscription(&mut stream, id)?;
        open.push(stream);
    }
    server.show(&format!("{number} subscriptions"))?;
    drop(open);
    server.wait_until_freed("their clients disconnected")
}

/// Makes calls that never end, whose clients disconnect within the request, before the head of the response, or after it. Meanwhile another
/// client measures its own calls.
fn drops(server: &Server, number: usize) -> Result<(), Failure> {
    let alone = latency(server, |made| made < 2000)?;
    let is_over = AtomicBool::new(false);
    let beside = thread::scope(|scope| -> Result<Latency, Failure> {
        let measured = scope
            .spawn(|| latency(server, |made| made < 100 || !is_over.load(Ordering::Relaxed)).map_err(|error| error.to_string()));
        let dropping: Vec<_> = (0..2)
            .map(|half| {
                scope.spawn(move || {
                    (0..number / 2).try_for_each(|pair| drop_one(server, pair * 2 + half)).map_err(|error| error.to_string())
                })
            })
            .collect();
        let results: Vec<_> = dropping.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        let measured = measured.join().expect("no panic")?;
        results.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(measured)
    })?;
    server.wait_until_freed(&format!("{number} calls whose clients disconnected"))?;
    eprintln!("soak: a call takes {alone} alone, and {beside} beside those");
    Ok(())
}

/// Makes one call that never ends, and disconnects. `number` determines the id of the call and the moment of the disconnect.
fn drop_one(server: &Server, number: usize) -> Result<(), Failure> {
    let mut stream = server.connect()?;
    let request = Request::call(number, "stuck");
    match number % 3 {
        0 => raw_http::send_half(&mut stream, &request)?,
        1 => drop(Exchange::send(&mut stream, &request)?),
        _ => {
            let mut exchange = Exchange::send(&mut stream, &request)?;
            exchange.expect_status(200)?;
            exchange.next_line_with("notifications/progress")?;
        }
    }
    Ok(())
}

/// The median and the 99th percentile of the times that calls took.
struct Latency {
    median: Duration,
    p99: Duration,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ms (99th percentile {:.2} ms)", self.median.as_secs_f64() * 1e3, self.p99.as_secs_f64() * 1e3)
    }
}

/// Makes calls one after the other on one connection, as long as `goes_on` returns `true` for the number of calls so far.
fn latency(server: &Server, goes_on: impl Fn(usize) -> bool) -> Result<Latency, Failure> {
    let mut stream = server.connect()?;
    let mut times = Vec::new();
    while goes_on(times.len()) {
        let start = Instant::now();
        Exchange::send(&mut stream, &Request::call(times.len(), "quick"))?.finish()?.expect(200)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(Latency { median: times[times.len() / 2], p99: times[times.len() * 99 / 100] })
}

/// The server, and its size before the load.
struct Server {
    process: ServerProcess,
    at_rest: Size,
}

/// The size of the server at some moment, without the connection and the call by which it is read.
#[derive(Default)]
struct Size {
    heap: u64,
    descriptors: u64,
    tasks: u64,
    sessions: u64,
    exchanges: u64,
}

impl Size {
    /// Returns `true` if nothing is left of a load on a server that had the size `at_rest`. The heap is not compared, since tables and
    /// buffers keep some capacity for reuse.
    fn is_back_at(&self, at_rest: &Self) -> bool {
        (self.sessions, self.exchanges) == (0, 0) && self.descriptors <= at_rest.descriptors && self.tasks <= at_rest.tasks
    }
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let program = env::current_exe()?.to_string_lossy().into_owned();
        Ok(Self { process: ServerProcess::start(&program, &["--serve"])?, at_rest: Size::default() })
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        self.process.connect()
    }

    fn quick(&self) -> Result<(), Failure> {
        Exchange::send(&mut self.connect()?, &Request::call(1, "quick"))?.finish()?.expect(200)
    }

    fn size(&self) -> Result<Size, Failure> {
        let mut stream = self.connect()?;
        let counted = Exchange::send(&mut stream, &Request::call(1, "count"))?.finish()?;
        let counts = counted.structured()?;
        let count = |name: &str| counts[name].as_u64().ok_or("a count is missing");
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.process.id()))?.count() as u64;
        Ok(Size {
            heap: count("heap")?,
            descriptors: descriptors.saturating_sub(1),
            // The tasks of the connection and of the handler.
            tasks: count("tasks")?.saturating_sub(2),
            sessions: count("sessions")?.saturating_sub(1),
            exchanges: count("exchanges")?.saturating_sub(1),
        })
    }

    /// Prints a row.
    fn show(&self, what: &str) -> Result<Size, Failure> {
        let size = self.size()?;
        let kib = size.heap as f64 / 1024.0;
        let mib = self.process.memory()? / f64::from(1 << 20);
        let Size { descriptors, tasks, sessions, exchanges, .. } = size;
        println!("| {what} | {kib:.0} | {mib:.1} | {descriptors} | {tasks} | {sessions} | {exchanges} |");
        Ok(size)
    }

    /// Waits until the server has neither sessions nor exchanges, and no more descriptors and tasks than at rest, and prints a row.
    fn wait_until_freed(&self, what: &str) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            if self.size()?.is_back_at(&self.at_rest) {
                return self.show(what).map(drop);
            }
            if start.elapsed() > TIME_TO_FREE {
                self.show(what)?;
                return Err(format!("{what}: not forgotten within {TIME_TO_FREE:?}").into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
