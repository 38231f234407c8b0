//! The speed of servers over HTTP, compared with a floor: hyper with a handler that answers with the same bytes, without any protocol.
//!
//! Each server is a process of its own. The client is the same for all: blocking sockets on this machine, which write prepared requests. In
//! the rows of rates, all servers are measured once in each round. In those of latencies, one server has all its rounds before the next. A
//! number is the median of the rounds, except that memory is measured only once.

mod floor;
mod hostile;
mod memory;
mod ours;

use std::env;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use hostile::Latencies;
use indicatif::ProgressBar;
use programs::adapter::Adapter;
use serde_json::json;

use crate::raw_http::{Exchange, Failure, Request, ServerProcess};

/// The number of progress updates of one call.
const UPDATES: usize = 1000;
/// The number of calls that are made at once.
const AT_ONCE: usize = 64;

/// Measures servers over HTTP (MCP 2026-07-28) beside a floor, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "http-bench")]
struct Line {
    /// Serve as `ours` or `floor`, and print the address. The program starts its own servers with this flag.
    #[arg(long, hide = true)]
    serve: Option<String>,
    /// Measure another server, too: its name, and a command that prints the address that it listens on.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = other)]
    other: Vec<(String, Vec<String>)>,
    /// The rounds of each row.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// The seconds of each round.
    #[arg(long, default_value_t = 0.7)]
    seconds: f64,
}

fn other(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, command) = text.split_once('=').ok_or("NAME=COMMAND is wanted")?;
    let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("there is no command after NAME=".to_owned()) } else { Ok((name.to_owned(), words)) }
}

/// Runs the program. The server `ours` runs on the adapter `A`.
pub fn main<A: Adapter>() -> ExitCode {
    let line = Line::parse();
    match line.serve.as_deref() {
        Some("floor") => {
            floor::serve();
            return ExitCode::SUCCESS;
        }
        Some(_) => return A::run(Some(1), |adapter| ours::run(adapter)),
        None => {}
    }
    match run(&line, A::NAME) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("http-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// A row of the table: its title, and the function that measures a server for a time and returns a number per second.
type Row = (&'static str, fn(&ServerProcess, Duration) -> Result<f64, Failure>);

const ROWS: [Row; 4] = [
    ("calls, one at a time", one_at_a_time),
    ("calls, 64 at once, a connection each", many_at_once),
    ("progress updates of a call", updates),
    ("connections with one call each", connections),
];

/// A row of latencies: its title, and the function that measures a server for a time.
type LatencyRow = (&'static str, fn(&ServerProcess, Duration) -> Result<Latencies, Failure>);

const LATENCIES: [LatencyRow; 2] = [
    ("a call alone, median and 99th percentile, in microseconds", hostile::latencies),
    ("the same beside 300 hostile clients", hostile::latencies_beside_hostile_clients),
];

/// A row of memory: its title, and the function that measures a server, in bytes.
type MemoryRow = (&'static str, fn(&ServerProcess) -> Result<Option<f64>, Failure>);

const MEMORY: [MemoryRow; 2] = [
    ("memory of one more idle session, bytes", memory::of_a_session),
    ("memory of one more idle subscription and its connection, bytes", memory::of_a_subscription),
];

fn run(line: &Line, name: &str) -> Result<(), Failure> {
    let own = env::current_exe()?.to_string_lossy().into_owned();
    let own = |which: &str| vec![own.clone(), "--serve".to_owned(), which.to_owned()];
    let mut servers = vec![Server::start("floor", &own("floor"))?, Server::start(name, &own("ours"))?];
    for (name, command) in &line.other {
        servers.push(Server::start(name, command)?);
    }
    let span = Duration::from_secs_f64(line.seconds);
    let bar = ProgressBar::new(((ROWS.len() + LATENCIES.len()) * servers.len() * line.rounds) as u64);
    let mut table = vec![vec![String::from("per second")]];
    table[0].extend(servers.iter().map(|server| server.name.clone()));
    for (title, measure) in ROWS {
        let mut measured = vec![Vec::new(); servers.len()];
        for _ in 0..line.rounds {
            for (server, numbers) in servers.iter().zip(&mut measured) {
                numbers.push(measure(&server.process, span).map_err(|error| format!("{}, {title}: {error}", server.name))?);
                bar.inc(1);
            }
        }
        let medians: Vec<f64> = measured.into_iter().map(median).collect();
        let cell = |number: &f64| format!("{number:.0} ({:.2})", number / medians[0]);
        table.push([title.to_owned()].into_iter().chain(medians.iter().map(cell)).collect());
    }
    for (title, measure) in LATENCIES {
        let mut row = vec![title.to_owned()];
        for server in &servers {
            let mut rounds = Vec::new();
            for _ in 0..line.rounds {
                rounds.push(measure(&server.process, span).map_err(|error| format!("{}, {title}: {error}", server.name))?);
                bar.inc(1);
            }
            let micros =
                |which: fn(&Latencies) -> Duration| median(rounds.iter().map(|each| which(each).as_secs_f64() * 1e6).collect());
            row.push(format!("{:.0}, {:.0}", micros(|each| each.median), micros(|each| each.percentile_99)));
        }
        table.push(row);
    }
    for (title, measure) in MEMORY {
        // Once is enough, since other processes do not change the memory of the server.
        let mut row = vec![title.to_owned()];
        for server in &servers {
            let bytes = measure(&server.process).map_err(|error| format!("{}, {title}: {error}", server.name))?;
            row.push(bytes.map_or_else(|| "–".to_owned(), |bytes| format!("{bytes:.0}")));
        }
        table.push(row);
    }
    bar.finish_and_clear();
    for (number, row) in table.iter().enumerate() {
        println!("| {} |", row.join(" | "));
        if number == 0 {
            println!("{}|", "|---".repeat(row.len()));
        }
    }
    Ok(())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

// ---- Rows ----

fn echo() -> Vec<u8> {
    Request::call_with(1, "echo", &json!({"text": "hello"})).bytes()
}

/// Makes a call of `echo`.
fn call(stream: &mut TcpStream, request: &[u8]) -> Result<(), Failure> {
    stream.write_all(request)?;
    answered(stream)
}

/// Reads the response to a call of `echo`, and checks it.
fn answered(stream: &mut TcpStream) -> Result<(), Failure> {
    let response = Exchange::sent(stream).finish()?;
    response.expect(200)?;
    if response.body.contains("hello") { Ok(()) } else { Err(format!("not the result: {}", response.body).into()) }
}

fn one_at_a_time(server: &ServerProcess, span: Duration) -> Result<f64, Failure> {
    let (mut stream, request) = (server.connect()?, echo());
    per_second(span, || {
        call(&mut stream, &request)?;
        Ok(1)
    })
}

fn many_at_once(server: &ServerProcess, span: Duration) -> Result<f64, Failure> {
    let mut streams = (0..AT_ONCE).map(|_| server.connect()).collect::<Result<Vec<_>, _>>()?;
    let request = echo();
    per_second(span, || {
        for stream in &mut streams {
            stream.write_all(&request)?;
        }
        streams.iter_mut().try_for_each(answered)?;
        Ok(AT_ONCE)
    })
}

fn updates(server: &ServerProcess, span: Duration) -> Result<f64, Failure> {
    let (mut stream, request) = (server.connect()?, Request::call_with(1, "report", &json!({"count": UPDATES})).bytes());
    per_second(span, || {
        stream.write_all(&request)?;
        let response = Exchange::sent(&mut stream).finish()?;
        response.expect(200)?;
        let received = response.body.matches("notifications/progress").count();
        if received == 0 { Err("no progress came".into()) } else { Ok(received) }
    })
}

fn connections(server: &ServerProcess, span: Duration) -> Result<f64, Failure> {
    let request = echo();
    per_second(span, || {
        let mut stream = server.connect()?;
        call(&mut stream, &request)?;
        Ok(1)
    })
}

/// Repeats `step` for a time. Returns the sum of its results, per second.
fn per_second(span: Duration, mut step: impl FnMut() -> Result<usize, Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    let mut counted = 0;
    while start.elapsed() < span {
        counted += step()?;
    }
    Ok(counted as f64 / start.elapsed().as_secs_f64())
}

/// A server, and its name in the table.
struct Server {
    name: String,
    process: ServerProcess,
}

impl Server {
    fn start(name: &str, command: &[String]) -> Result<Self, Failure> {
        let (program, arguments) = command.split_first().ok_or("there is no command")?;
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        Ok(Self { name: name.to_owned(), process: ServerProcess::start(program, &arguments)? })
    }
}
