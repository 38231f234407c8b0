//! Clients that close the input of a server, disconnect or violate rules, and SIGTERM: the time after which `tools` and `gateway` end, and
//! their exit status.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::children::{Agent, App, Home, Lines, Program, Programs, audit};
use tests::scratch::Scratch;
use tests::until::PATIENCE;

/// The time that clients of other SDKs give a server to exit before they send SIGTERM, and then SIGKILL.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// The additional time for a busy machine.
const SLACK: Duration = Duration::from_millis(700);

const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"#,
    r#""clientInfo":{"name":"t","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
);

/// A server program on pipes.
struct Server {
    program: Program,
    input: ChildStdin,
    output: ChildStdout,
}

impl Server {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::start(command);
        let input = program.child.stdin.take().expect("a pipe");
        let output = program.child.stdout.take().expect("a pipe");
        Self { program, input, output }
    }

    /// `tools` with a running call that has reported once.
    fn tools(flags: &[&str], tool: &str, arguments: Value) -> Self {
        let mut command = Programs.command("tools");
        command.args(flags);
        let mut server = Self::start(command);
        server.input.write_all(HELLO.as_bytes()).expect("a reader");
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": 2 } });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        writeln!(server.input, "{call}").expect("a reader");
        server.until("notifications/progress");
        server
    }

    /// Reads until the output contains `what`.
    fn until(&mut self, what: &str) {
        let mut bytes_read = Vec::new();
        while !String::from_utf8_lossy(&bytes_read).contains(what) {
            let mut piece = [0; 4096];
            let count = self.output.read(&mut piece).expect("a pipe");
            assert!(count > 0, "{}", String::from_utf8_lossy(&bytes_read));
            bytes_read.extend(&piece[..count]);
        }
    }

    /// The exit status of a program, and its text on stderr.
    fn ended(program: &mut Program) -> (Option<i32>, String) {
        (program.wait().code(), program.err.all())
    }
}

/// Checks that there is just one line on stderr, with these words, and that the status is 4.
fn assert_failed(program: &mut Program, words: &str) {
    let (status, err) = Server::ended(program);
    assert_eq!((status, err.lines().count()), (Some(4), 1), "{err}");
    assert!(err.contains(words), "{words:?} in {err:?}");
}

/// A gateway for a home directory without any app.
fn gateway(home: &Home) -> Command {
    let mut command = Programs.command("gateway");
    command.args(["--home", home.path()]);
    command
}

// ---- The end of input, and SIGTERM ----

#[test]
fn tools_writes_its_audit_line_and_exits_within_two_seconds_after_its_stdin_ends_during_a_call() {
    for tool in ["countdown", "bulk"] {
        let file = Scratch::new("audit");
        let flags = ["--audit", file.to_str().expect("a path in UTF-8")];
        let arguments = match tool {
            "countdown" => json!({ "from": 100, "step_ms": 100 }),
            _ => json!({ "items": (0..100).map(|item| item.to_string()).collect::<Vec<_>>(), "step_ms": 100 }),
        };
        let Server { mut program, input, output } = Server::tools(&flags, tool, arguments);
        // The client goes on reading, as those of other SDKs do.
        let text = Lines::of(output);
        let begin = Instant::now();
        drop(input);
        assert_eq!(Server::ended(&mut program), (Some(0), String::new()));
        assert!(begin.elapsed() < EXIT_LIMIT, "{:?}", begin.elapsed());
        assert!(begin.elapsed() > Duration::from_millis(900), "the call could go on for a second");
        let line = &audit(&file, 1)[0];
        assert_eq!((&line["tool"], &line["outcome"]), (&json!(tool), &json!("cancelled")), "{line}");
        assert!(!text.all().contains(r#""id":2"#), "{}", text.all());
    }
}

#[test]
fn a_handler_that_does_not_end_does_not_delay_tools_when_its_client_leaves() {
    let file = Scratch::new("audit");
    let mut command = Programs.command("tools");
    command.args(["--linger", "0.1", "--audit", file.to_str().expect("a path in UTF-8")]);
    let Server { mut program, mut input, mut output } = Server::start(command);
    input.write_all(HELLO.as_bytes()).expect("a reader");
    writeln!(input, r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"stuck"}}}}"#).expect("a reader");
    output.read_exact(&mut [0]).expect("an answer");
    let begin = Instant::now();
    drop(input);
    assert_eq!(Server::ended(&mut program), (Some(0), String::new()));
    assert!(begin.elapsed() < Duration::from_millis(400) + SLACK, "{:?}", begin.elapsed());
    assert_eq!(audit(&file, 1)[0]["outcome"], "cancelled");
}

#[test]
fn after_the_end_of_input_a_call_may_go_on_for_the_time_of_linger() {
    let Server { mut program, input, output } =
        Server::tools(&["--linger", "20"], "progress", json!({ "steps": 3, "step_ms": 600 }));
    let text = Lines::of(output);
    drop(input);
    assert_eq!(Server::ended(&mut program), (Some(0), String::new()));
    assert!(text.all().contains(r#""id":2,"result""#), "{}", text.all());
}

#[test]
fn tools_exits_at_once_when_a_client_closes_both_pipes() {
    let file = Scratch::new("audit");
    let flags = ["--linger", "60", "--audit", file.to_str().expect("a path in UTF-8")];
    let Server { mut program, input, output } = Server::tools(&flags, "countdown", json!({ "from": 100, "step_ms": 5000 }));
    let begin = Instant::now();
    drop((output, input));
    assert_eq!(Server::ended(&mut program), (Some(0), String::new()));
    assert!(begin.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", begin.elapsed());
    assert_eq!(audit(&file, 1)[0]["outcome"], "cancelled");
}

#[test]
fn sigterm_ends_tools_within_half_a_second_after_its_grace_even_if_a_handler_does_not_end() {
    for place in [&[][..], &["--tcp", "127.0.0.1:0"]] {
        let file = Scratch::new("audit");
        let mut command = Programs.command("tools");
        command.args(["--grace", "0.5", "--audit", file.to_str().expect("a path in UTF-8")]).args(place);
        let Server { mut program, input, output } = Server::start(command);
        let (mut input, mut output): (Box<dyn Write>, Box<dyn Read>) = if place.is_empty() {
            (Box::new(input), Box::new(output))
        } else {
            let address = program.err.nth("listening on", 0).rsplit(' ').next().expect("an address").to_owned();
            let stream = std::net::TcpStream::connect(address).expect("a server");
            (Box::new(stream.try_clone().expect("a socket")), Box::new(stream))
        };
        input.write_all(HELLO.as_bytes()).expect("a reader");
        writeln!(input, r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"stuck"}}}}"#).expect("a reader");
        writeln!(input, r#"{{"jsonrpc":"2.0","id":3,"method":"ping"}}"#).expect("a reader");
        let mut bytes_read = Vec::new();
        while !String::from_utf8_lossy(&bytes_read).contains(r#""id":3"#) {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("an answer");
            bytes_read.extend(byte);
        }
        let begin = Instant::now();
        program.signal("-TERM");
        assert_eq!(program.wait().code(), Some(0), "{place:?}");
        assert!(begin.elapsed() < Duration::from_secs(1) + SLACK, "{:?} {place:?}", begin.elapsed());
        assert_eq!(audit(&file, 1)[0]["outcome"], "cancelled", "{place:?}");
    }
}

#[test]
fn the_gateway_exits_a_second_after_the_end_of_input_even_if_a_call_does_not_end() {
    let home = Home::new();
    let app = App::start(&Programs, &home, ["--ws"]);
    let mut agent = Agent::start(&Programs, &home, &[]);
    agent.claimed(&app.code(0));
    agent.send_call("tools__stuck", &json!({}));
    agent.ask("ping", &json!({}));
    let begin = Instant::now();
    let ended = agent.leave();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(begin.elapsed() < EXIT_LIMIT, "{:?}", begin.elapsed());
}

#[test]
fn output_for_a_slow_reader_is_not_cut_short() {
    let mut command = Programs.command("tools");
    command.args(["--linger", "20"]);
    let Server { mut program, mut input, mut output } = Server::start(command);
    input.write_all(HELLO.as_bytes()).expect("a reader");
    let arguments = json!({ "blocks": 50, "chars": 65536 });
    let call =
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "long_output", "arguments": arguments } });
    writeln!(input, "{call}").expect("a reader");
    drop(input);
    // Longer than the grace of handlers.
    assert!(!program.err.ends_within(Duration::from_secs(1)), "tools waits for its reader");
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    assert!(text.len() > 50 * 65536 && text.ends_with("}\n"), "{}", text.len());
    assert_eq!(Server::ended(&mut program), (Some(0), String::new()));
}

// ---- A client that disconnects, or violates rules ----

#[test]
fn a_client_that_closes_the_output_of_tools_during_a_call_is_status_4() {
    let Server { mut program, input, output } = Server::tools(&[], "countdown", json!({ "from": 100, "step_ms": 100 }));
    drop(output);
    assert_failed(&mut program, "tools: the connection to the client broke: ");
    drop(input);
    // The same while there is no output to write.
    let Server { mut program, input, output } = Server::tools(&[], "countdown", json!({ "from": 100, "step_ms": 5000 }));
    drop(output);
    assert_failed(&mut program, "tools: the connection to the client broke: standard output is no longer read");
    drop(input);
}

#[test]
fn output_that_cannot_be_written_is_status_4_even_after_the_end_of_input() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    for name in ["tools", "gateway"] {
        let home = Home::new();
        let mut command = if name == "tools" { Programs.command("tools") } else { gateway(&home) };
        command.stdin(Stdio::piped()).stdout(full.try_clone().expect("a file"));
        let mut program = Program::start(command);
        program.child.stdin.take().expect("a pipe").write_all(HELLO.as_bytes()).expect("a reader");
        assert_failed(&mut program, &format!("{name}: the connection to the client broke: No space left on device"));
    }
}

#[test]
fn a_client_that_never_starts_its_handshake_is_status_4() {
    let home = Home::new();
    let mut waiting = Vec::new();
    for (name, command) in [("tools", Programs.command("tools")), ("gateway", gateway(&home))] {
        waiting.push((name, Server::start(command)));
    }
    for (name, mut server) in waiting {
        assert_failed(&mut server.program, &format!("{name}: the client sent no initialize within 10s"));
    }
}

#[test]
fn a_line_that_is_too_long_is_status_4() {
    let home = Home::new();
    for (name, command) in [("tools", Programs.command("tools")), ("gateway", gateway(&home))] {
        let Server { mut program, mut input, output } = Server::start(command);
        let text = Lines::of(output);
        input.write_all(HELLO.as_bytes()).expect("a reader");
        // The program need not read the whole line.
        let written = input.write_all(&vec![b'x'; (16 << 20) + 2]).and_then(|()| input.write_all(b"\n"));
        assert!(written.is_ok() || written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe));
        assert_failed(&mut program, &format!("{name}: the client sent a line of more than 16777216 bytes"));
        assert!(text.all().contains("-32600"), "the client gets an error");
    }
}

#[test]
fn a_client_that_sends_requests_and_never_reads_is_status_4() {
    let home = Home::new();
    for (name, command) in [("tools", Programs.command("tools")), ("gateway", gateway(&home))] {
        let Server { mut program, mut input, output } = Server::start(command);
        input.write_all(HELLO.as_bytes()).expect("a reader");
        let refused = format!("{}\n", json!({ "jsonrpc": "2.0", "id": "x".repeat(1000), "method": "no/such/method" }));
        let begin = Instant::now();
        while input.write_all(refused.as_bytes()).is_ok() {
            assert!(begin.elapsed() < PATIENCE, "the program reads everything and does not end");
        }
        assert_failed(&mut program, &format!("{name}: the client does not read the responses that it causes"));
        drop(output);
    }
}
