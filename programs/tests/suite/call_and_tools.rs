//! The programs `tools` and `call`, run as a person runs them: their messages, their streams and their exit statuses.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::program;
use tests::processes;
use tests::scratch::Scratch;
use tests::until::{PATIENCE, until};

/// The handshake of a client.
const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"#,
    r#""clientInfo":{"name":"t","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
);

/// A running program, and its output line by line.
pub(super) struct Running {
    child: KillOnDrop,
    out: Lines,
    err: Lines,
}

/// A child process that is killed at the end of its test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One output stream of a program.
struct Lines {
    receiver: Receiver<String>,
    /// The text that was received so far, with line ends.
    seen: String,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|length| length > 0) && sender.send(std::mem::take(&mut line)).is_ok() {}
        });
        Self { receiver, seen: String::new() }
    }

    /// Waits for a line that contains `what`, and returns it.
    fn until(&mut self, what: &str) -> String {
        loop {
            match self.receiver.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push_str(&line);
                    if line.contains(what) {
                        return line.trim_end().to_owned();
                    }
                }
                Err(_) => panic!("no line with {what:?}: {}", self.seen),
            }
        }
    }

    /// Waits for the end of the stream, and returns the whole text.
    fn all(&mut self) -> String {
        let start = Instant::now();
        loop {
            match self.receiver.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) => self.seen.push_str(&line),
                Err(RecvTimeoutError::Disconnected) => return std::mem::take(&mut self.seen),
                Err(RecvTimeoutError::Timeout) => panic!("it hangs: {}", self.seen),
            }
        }
    }
}

/// A program that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    status: Option<i32>,
    pub(super) out: String,
    pub(super) err: Vec<String>,
}

pub(super) fn start<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>, stdin: Stdio) -> Running {
    let mut command = Command::new(program(name));
    command.args(arguments).stdin(stdin);
    Running::of(command)
}

impl Running {
    pub(super) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program that starts");
        let out = Lines::of(child.stdout.take().expect("a pipe"));
        let err = Lines::of(child.stderr.take().expect("a pipe"));
        Self { child: KillOnDrop(child), out, err }
    }

    /// Waits for a line on stderr that contains `what`, and returns it.
    pub(super) fn until_error_line(&mut self, what: &str) -> String {
        self.err.until(what)
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.0.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Waits until both output streams of the program are closed, and then for its exit status.
    pub(super) fn end(mut self) -> Ended {
        let err = self.err.all().lines().map(str::to_owned).collect();
        let out = self.out.all();
        let status = self.child.0.wait().expect("a child").code();
        Ended { status, out, err }
    }
}

pub(super) fn call(arguments: &[&str]) -> Ended {
    start("call", arguments, Stdio::null()).end()
}

/// `call` with the example `tools` as its server, started with `flags`.
fn call_tools(arguments: &[&str], flags: &[&str]) -> Ended {
    let tools = program("tools");
    let server = [OsStr::new("--"), tools.as_os_str()].into_iter().chain(flags.iter().map(OsStr::new));
    start("call", arguments.iter().map(OsStr::new).chain(server), Stdio::null()).end()
}

impl Ended {
    /// Checks the exit status.
    pub(super) fn with(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    /// Checks the exit status, and that there is just one line on stderr, with these words in it, and nothing on stdout.
    pub(super) fn complained(self, status: i32, words: &str) {
        let ended = self.with(status);
        assert_eq!(ended.out, "", "{ended:?}");
        assert_eq!(ended.err.len(), 1, "{ended:?}");
        assert!(ended.err[0].contains(words), "{ended:?}");
    }

    /// The number of lines of progress.
    fn updates(&self) -> usize {
        self.err.iter().filter(|line| line.contains("% ")).count()
    }
}

#[test]
fn call_without_a_server_starts_one_and_shows_its_progress_before_the_result() {
    let ended = call(&["progress", r#"{"steps":3,"step_ms":10}"#]).with(0);
    assert_eq!(ended.err, ["1/3 33% step 1/3", "2/3 67% step 2/3", "3/3 100% step 3/3"]);
    assert_eq!(ended.out, "{\"steps\":3,\"notified\":true,\"done\":true}\n");
}

#[test]
fn progress_is_shown_while_the_call_runs() {
    let mut running = start("call", ["progress", r#"{"steps":2,"step_ms":1000}"#], Stdio::null());
    running.until_error_line("1/2");
    assert!(running.child.0.try_wait().expect("a child").is_none(), "the first step is shown before the end");
    running.end().with(0);
}

#[test]
fn blocks_of_text_are_printed_unchanged() {
    let ended = call(&["chatty"]).with(0);
    assert!(ended.out.starts_with("first block: short\n") && ended.out.ends_with("café résumé naïve\n"), "{ended:?}");
    let ended = call(&["long_output", r#"{"blocks":50,"chars":65536}"#]).with(0);
    assert_eq!(ended.out.len(), 50 * 65537);
}

#[test]
fn the_error_of_a_tool_is_printed_to_stderr() {
    call(&["progress", r#"{"steps":"many"}"#]).complained(1, "steps");
    call(&["chatty", r#"{"surprise":1}"#]).complained(1, "surprise");
    call(&["no_such_tool"]).complained(1, "no_such_tool");
}

#[test]
fn an_invalid_command_line_is_reported_in_one_line_with_status_2() {
    call(&["--no-such-flag", "chatty"]).complained(2, "--no-such-flag");
    call(&[]).complained(2, "name a tool");
    call(&["progress", "{steps:3}"]).complained(2, "not JSON");
    call(&["progress", "[3]"]).complained(2, "must be a JSON object");
    call(&["--timeout", "soon", "progress"]).complained(2, "--timeout");
    call(&["--answer", "yes", "rename"]).complained(2, "--answer");
    for tools in [&["--no-such-flag"][..], &["--deadline", "never"], &["--tcp", "a:1", "--unix", "b"], &["word"]] {
        start("tools", tools, Stdio::null()).end().complained(2, tools[0]);
    }
}

#[test]
fn help_lists_the_flags_and_the_exit_statuses() {
    for (name, flag) in
        [("call", "--cancel-after"), ("call", "--url"), ("call", "--header"), ("tools", "--deadline"), ("tools", "--http")]
    {
        let ended = start(name, ["--help"], Stdio::null()).end().with(0);
        assert!(ended.out.contains(flag) && ended.out.contains("Exit status"), "{ended:?}");
        // The flag with which `call` starts a server of its own is hidden.
        assert!(!ended.out.contains("--serve-tools"), "{ended:?}");
    }
}

#[test]
fn an_unreachable_server_is_reported_in_one_line_with_status_4() {
    call(&["chatty", "--", "no-such-server"]).complained(4, "no-such-server");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    call(&["--tcp", &address, "chatty"]).complained(4, &address);
    let scratch = Scratch::new("nowhere.sock");
    let nowhere = scratch.to_str().expect("a path in UTF-8");
    call(&["--unix", nowhere, "chatty"]).complained(4, nowhere);
}

#[test]
fn a_server_that_exits_or_never_answers_is_reported_in_one_line() {
    call(&["chatty", "--", "true"]).complained(4, "lost");
    // The server is started once more without the probe, and says the same.
    let welcomed = call(&["chatty", "--", "echo", "Welcome!"]).with(4);
    let [one, other, lost] = &welcomed.err[..] else { panic!("{welcomed:?}") };
    assert!(one.ends_with("Welcome!") && other == one && lost.contains("lost"), "{welcomed:?}");
    let mute = ["--", "sh", "-c", "cat > /dev/null"];
    for work in ["chatty", "--list"] {
        let ended = call(&[&["--start-timeout", "0.3", work], &mute[..]].concat());
        ended.complained(3, "timed out: the server did not answer the handshake within 300ms (--start-timeout)");
    }
}

#[test]
fn a_server_that_starts_slowly_is_called_and_the_timeouts_begin_with_the_call() {
    let tools = program("tools");
    // Longer than the default timeout of a session's handshake.
    let start = format!("sleep 10.5; exec {}", tools.display());
    let ended = call(&["--timeout", "5", "--max-total", "8", "chatty", "--", "sh", "-c", &start]).with(0);
    assert!(ended.out.starts_with("first block: short\n"), "{ended:?}");
}

#[test]
fn a_transport_or_an_audit_file_that_cannot_be_opened_is_status_4() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    start("tools", ["--tcp", &address], Stdio::null()).end().complained(4, &address);
    start("tools", ["--unix", "/no/such/folder/socket"], Stdio::null()).end().complained(4, "/no/such/folder/socket");
    start("tools", ["--audit", "/no/such/folder/audit"], Stdio::null()).end().complained(4, "/no/such/folder/audit");
}

#[test]
fn the_error_about_a_killed_server_has_the_last_progress() {
    let mut tools = start("tools", ["--tcp", "127.0.0.1:0"], Stdio::null());
    let address = tools.until_error_line("listening on").rsplit(' ').next().expect("an address").to_owned();
    let mut calling = start("call", ["--tcp", &address, "progress", r#"{"steps":100,"step_ms":100}"#], Stdio::null());
    calling.until_error_line("2/100");
    drop(tools);
    let ended = calling.end().with(4);
    let complaint = ended.err.last().expect("a line");
    assert!(complaint.contains("lost") && complaint.contains("last heard: "), "{ended:?}");
}

#[test]
fn a_call_is_cancelled_after_the_given_number_of_updates() {
    let ended = call(&["--cancel-after", "2", "countdown", r#"{"from":100,"step_ms":20}"#]).with(130);
    assert_eq!(ended.out, "");
    assert_eq!(ended.err.len(), 3, "two updates and the end: {ended:?}");
    assert!(ended.err[2].starts_with("call: cancelled; last heard: "), "{ended:?}");
}

#[test]
fn ctrl_c_cancels_the_call_and_prints_the_last_progress() {
    let audit = Scratch::new("audit");
    let server = program("tools");
    let arguments = [OsStr::new("progress"), OsStr::new(r#"{"steps":100,"step_ms":100}"#), OsStr::new("--"), server.as_os_str()];
    let audited = [OsStr::new("--audit"), audit.as_os_str()];
    let mut running = start("call", arguments.into_iter().chain(audited), Stdio::null());
    running.until_error_line("3/100");
    running.interrupt();
    let ended = running.end().with(130);
    assert!(ended.err.last().is_some_and(|line| line.starts_with("call: cancelled; last heard: ")), "{ended:?}");
    let line = fs::read_to_string(&audit).expect("an audit file");
    assert!(line.starts_with(r#"{"tool":"progress","outcome":"cancelled","done":false,"steps":"#), "{line}");
}

/// A command that starts a program with the default effect of these signals, whatever this process was started to ignore.
pub(super) fn undisturbed(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(program);
    command
}

/// Seen in the field: SIGHUP, which comes when a terminal is closed, and SIGQUIT ended `call` without a cancel, and left its server behind.
#[test]
fn sigterm_sighup_and_sigquit_cancel_the_call_and_are_status_143() {
    for signal in ["-TERM", "-HUP", "-QUIT"] {
        let (audit, group) = (Scratch::new("audit"), Scratch::new("group"));
        // A helper that outlives its server, and a grandchild that is the server.
        let script = format!(
            "echo $$ > {}; sleep 1000 > /dev/null 2>&1 & {} --audit {}; true",
            group.display(),
            program("tools").display(),
            audit.display()
        );
        let mut command = undisturbed(program("call"));
        command.args(["progress", r#"{"steps":100,"step_ms":100}"#, "--", "sh", "-c", &script]).stdin(Stdio::null());
        let mut running = Running::of(command);
        running.until_error_line("3/100");
        running.signal(signal);
        let ended = running.end().with(143);
        assert!(ended.err.last().is_some_and(|line| line.starts_with("call: cancelled; last heard: ")), "{signal} {ended:?}");
        let line = fs::read_to_string(&audit).expect("an audit file");
        assert!(line.starts_with(r#"{"tool":"progress","outcome":"cancelled","done":false,"steps":"#), "{signal} {line}");
        assert!(!is_there(&group), "{signal}");
    }

    // `call` also ends immediately while its server is still starting.
    for signal in ["-TERM", "-HUP", "-QUIT", "-INT"] {
        let group = Scratch::new("group");
        let script = format!("sleep 1000 & echo $$ > {}; sleep 1000; true", group.display());
        let mut command = undisturbed(program("call"));
        command.args(["chatty", "--", "sh", "-c", &script]).stdin(Stdio::null());
        let running = Running::of(command);
        until("the server runs", || fs::read_to_string(&group).is_ok_and(|group| group.ends_with('\n')).then_some(()));
        let begin = Instant::now();
        running.signal(signal);
        running.end().with(if signal == "-INT" { 130 } else { 143 });
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert!(!is_there(&group), "{signal}");
    }
}

/// Returns `true` if a process runs in the process group whose number is in a file.
fn is_there(group: &std::path::Path) -> bool {
    processes::runs(&fs::read_to_string(group).expect("the number of a group"))
}

#[test]
fn a_closed_terminal_ends_call_and_every_process_of_its_server() {
    let (audit, group, updates) = (Scratch::new("audit"), Scratch::new("group"), Scratch::new("updates"));
    let server = format!("echo $$ > {}; {} --audit {}; true", group.display(), program("tools").display(), audit.display());
    let line = format!(
        r#"exec {} progress '{{"steps":100,"step_ms":100}}' -- sh -c '{server}' 2> {}"#,
        program("call").display(),
        updates.display(),
    );
    let mut command = undisturbed("script");
    command.args(["--quiet", "--flush", "--command", &line, "/dev/null"]).stdin(Stdio::piped());
    let terminal = Running::of(command);
    until("the call runs", || fs::read_to_string(&updates).is_ok_and(|updates| updates.contains("3/100")).then_some(()));
    // The terminal is closed when `script`, which holds its other end, is gone.
    drop(terminal);
    until("the group is empty", || (!is_there(&group)).then_some(()));
    let line = fs::read_to_string(&audit).expect("an audit file");
    assert!(line.starts_with(r#"{"tool":"progress","outcome":"cancelled","#), "{line}");
}

/// A program that was started by `nohup` is not ended by SIGHUP.
#[test]
fn a_signal_that_a_program_was_started_to_ignore_does_not_end_it() {
    let mut command = undisturbed("sh");
    command.args(["-c", r#"trap '' HUP QUIT; exec "$0" --tcp 127.0.0.1:0"#]).arg(program("tools")).stdin(Stdio::null());
    let mut tools = Running::of(command);
    let address = tools.until_error_line("listening on").rsplit(' ').next().expect("an address").to_owned();
    for signal in ["-HUP", "-QUIT"] {
        tools.signal(signal);
        call(&["--tcp", &address, "chatty"]).with(0);
    }
    tools.terminate();
    tools.end().with(0);
}

#[test]
fn a_call_that_times_out_is_status_3() {
    let ended = call(&["--timeout", "1", "stuck"]).with(3);
    assert_eq!(ended.err, ["call: timed out: neither an answer nor progress came for 1s (--timeout)"]);
    let ended = call(&["--max-total", "1", "countdown", r#"{"from":100,"step_ms":50}"#]).with(3);
    assert!(ended.err.last().is_some_and(|line| line.contains("not done within 1s (--max-total); last heard: ")), "{ended:?}");
}

#[test]
fn a_call_that_reaches_its_deadline_prints_the_partial_result() {
    let items: Vec<_> = (0..100).map(|item| item.to_string()).collect();
    let arguments = serde_json::json!({ "items": items, "step_ms": 30 }).to_string();
    let ended = call_tools(&["bulk", &arguments], &["--deadline", "1.5"]).with(0);
    let json = ended.out.find('{').map(|begin| &ended.out[begin..]).expect("a partial result");
    let partial: serde_json::Value = serde_json::from_str(json).expect("the partial result as JSON");
    assert_eq!(partial["status"], "timeout");
    assert!(partial["processed"].as_u64().is_some_and(|done| (1..=50).contains(&done)), "{partial}");
}

#[test]
fn forms_and_confirmations_are_answered_from_the_command_line() {
    let name = r#"{"name":"draft"}"#;
    assert_eq!(call(&["--accept", "delete", name]).with(0).out, "{\"deleted\":\"draft\"}\n");
    assert_eq!(call(&["--decline", "delete", name]).with(0).out, "{\"cancelled\":true}\n");
    assert_eq!(call(&["delete", name]).with(0).out, "{\"cancelled\":true}\n");
    let renamed = "{\"renamed\":{\"from\":\"draft\",\"to\":\"final\"}}\n";
    assert_eq!(call(&["--answer", r#"{"newName":"final"}"#, "rename", name]).with(0).out, renamed);
    assert_eq!(call(&["--decline", "rename", name]).with(0).out, "{\"cancelled\":true}\n");
    call(&["rename", name]).complained(1, "elicitation");
    // Without a handshake an input request cannot be answered with an error, so the form counts as cancelled.
    for (era, status) in [("legacy", 1), ("modern", 0)] {
        let ended = call(&["--era", era, "--accept", "rename", name]).with(status);
        assert!(ended.err.iter().any(|line| line.contains("newName")), "{ended:?}");
        assert_eq!(ended.out, if era == "legacy" { "" } else { "{\"cancelled\":true}\n" });
    }
}

#[test]
fn a_sampling_request_is_answered_from_the_command_line() {
    let text = r#"{"text":"two foxes"}"#;
    assert_eq!(call(&["--sample-reply", "Foxes.", "summarise", text]).with(0).out, "Foxes.\n");
    assert_eq!(call(&["--sample-cmd", "tail -n 1 | tr a-z A-Z", "summarise", text]).with(0).out, "TWO FOXES\n");
    let ended = call(&["--sample-cmd", "exit 3", "summarise", text]).with(1);
    assert!(ended.err.iter().any(|line| line.contains("the command that answers for the model failed")), "{ended:?}");
    call(&["summarise", text]).complained(1, "sampling");
}

#[test]
fn the_list_has_every_tool_and_prompt_with_its_description() {
    let ended = call(&["--list"]).with(0);
    let names: Vec<_> = ended.out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for name in
        ["progress", "long_output", "chatty", "countdown", "bulk", "whoami", "stuck", "summarise", "delete", "rename", "connect"]
    {
        assert!(names.contains(&name), "{ended:?}");
    }
    assert!(names.contains(&"analysis_workflow"), "{ended:?}");
    assert!(ended.out.lines().all(|line| line.split_whitespace().count() > 3), "{ended:?}");
}

#[test]
fn a_prompt_reports_its_steps_and_is_printed() {
    let ended = call(&["--prompt", "analysis_workflow", r#"{"topic":"rust","step_ms":"10"}"#]).with(0);
    assert_eq!(ended.updates(), 5, "{ended:?}");
    assert!(ended.out.starts_with("Multi-step analysis workflow for: rust\n\nAnalysis Workflow Complete\n"), "{ended:?}");
    assert!(ended.out.ends_with("✓ format - Formatting final report\n\nReady for review.\n"), "{ended:?}");
    call(&["--prompt", "analysis_workflow", r#"{"step_ms":"soon"}"#]).complained(1, "step_ms");
}

#[test]
fn log_records_are_shown_from_the_requested_level_on() {
    let failing = r#"{"items":["a"],"fail":["a"],"step_ms":1}"#;
    let ended = call(&["--log-level", "warning", "bulk", failing]).with(0);
    assert!(ended.err.contains(&r#"[warning] {"item":"a"}"#.to_owned()), "{ended:?}");
    let ended = call(&["--log-level", "error", "bulk", failing]).with(0);
    assert!(!ended.err.iter().any(|line| line.contains("[warning]")), "{ended:?}");
}

#[test]
fn a_listening_server_serves_several_clients_at_once_and_in_sequence() {
    let scratch = Scratch::new("tools.sock");
    let socket = scratch.to_str().expect("a path in UTF-8");
    for (flag, place) in [("--tcp", "127.0.0.1:0"), ("--unix", socket)] {
        let mut tools = start("tools", [flag, place], Stdio::null());
        let address = tools.until_error_line("listening on").rsplit(' ').next().expect("an address").to_owned();
        let slow = start("call", [flag, &address, "progress", r#"{"steps":3,"step_ms":100}"#], Stdio::null());
        for _ in 0..2 {
            call(&[flag, &address, "chatty"]).with(0);
        }
        slow.end().with(0);
        tools.interrupt();
        tools.end().with(0);
    }
}

/// Sends a request over HTTP, and reads the response until it contains `words`.
pub(super) fn ask_over_http(stream: &mut TcpStream, fields: &str, body: &str, words: &str) -> String {
    let usual = "Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let head = format!("POST /mcp HTTP/1.1\r\n{usual}{fields}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("a reader");
    read_until(stream, words)
}

fn read_until(stream: &mut TcpStream, words: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let (mut received, mut bytes) = (String::new(), [0; 4096]);
    while !received.contains(words) {
        let read = stream.read(&mut bytes).expect("a server");
        assert!(read > 0, "the response ends before {words:?}: {received}");
        received.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    received
}

#[test]
fn tools_over_http_serves_both_eras_and_lets_calls_end_after_a_signal() {
    let mut tools = start("tools", ["--http", "127.0.0.1:0"], Stdio::null());
    let line = tools.until_error_line("listening on http://");
    let address = line.rsplit(' ').next().and_then(|url| url.strip_prefix("http://")?.strip_suffix("/mcp")).expect("an address");
    let mut stream = TcpStream::connect(address).expect("a server");
    let hello = HELLO.lines().next().expect("a line");
    let opened = ask_over_http(&mut stream, "", hello, "serverInfo");
    assert!(opened.starts_with("HTTP/1.1 200 ") && opened.to_lowercase().contains("mcp-session-id: "), "{opened}");
    let meta = r#""_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"progress","arguments":{{"steps":4,"step_ms":200}},{meta}}}}}"#
    );
    let fields = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: progress\r\n";
    ask_over_http(&mut stream, fields, &call, "notifications/progress");
    tools.interrupt();
    read_until(&mut stream, r#""resultType":"complete""#);
    let ended = tools.end().with(0);
    assert_eq!(ended.out, "");
}

/// Calls the tool `survey` over HTTP without a handshake, on a connection of its own. Returns the result, or the error.
fn answer_over_http(address: &str, params: &serde_json::Value) -> serde_json::Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "sampling": {} },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let fields = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: survey\r\nConnection: close\r\n";
    let mut stream = TcpStream::connect(address).expect("a server");
    let mut response = ask_over_http(&mut stream, fields, &body, "\r\n\r\n");
    stream.read_to_string(&mut response).expect("the rest");
    let message =
        response.lines().find_map(|line| line.strip_prefix("data: ").unwrap_or(line).strip_prefix('{')).expect("a message");
    let message: serde_json::Value = serde_json::from_str(&format!("{{{message}")).expect("JSON");
    message.get("result").or_else(|| message.get("error")).expect("a response").clone()
}

#[test]
fn each_round_of_a_call_may_go_to_another_process_that_has_the_key() {
    let key = Scratch::new("key");
    fs::write(&key, format!("{}\n", "0a".repeat(32))).expect("a file");
    let key = key.to_str().expect("UTF-8");
    let started = [Some(key), Some(key), None].map(|key| {
        let flags = key.map(|key| ["--seal-key", key]);
        let mut tools = start("tools", ["--http", "127.0.0.1:0"].into_iter().chain(flags.into_iter().flatten()), Stdio::null());
        let line = tools.until_error_line("listening on http://");
        let url = line.rsplit(' ').next().expect("a URL").to_owned();
        (tools, url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).expect("a URL").to_owned())
    });
    let address = |process: usize| started[process].1.as_str();
    let mut params = json!({ "name": "survey", "arguments": { "topic": "tea" } });
    let mut asked = answer_over_http(address(0), &params);
    let answers = [
        ("participant", json!({ "action": "accept", "content": { "name": "Ada" } })),
        ("opinion", json!({ "role": "assistant", "content": { "type": "text", "text": "Fine." }, "model": "m" })),
        ("publish", json!({ "action": "accept", "content": {} })),
    ];
    for (round, (name, answer)) in answers.into_iter().enumerate() {
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(asked["inputRequests"][name].is_object(), "{asked}");
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({ name: answer });
        let stranger = answer_over_http(address(2), &params);
        assert_eq!(stranger["code"], -32602, "a process with another key: {stranger}");
        asked = answer_over_http(address((round + 1) % 2), &params);
    }
    let done = asked["structuredContent"].clone();
    assert_eq!(done, json!({ "participant": "Ada", "number": 1, "opinion": "Fine.", "publish": true }), "{asked}");

    // A file without a valid key, and a file that does not exist.
    for (text, words) in [("0a0b", "64 hex digits"), (&"xy".repeat(32), "64 hex digits")] {
        let wrong = Scratch::new("wrong");
        fs::write(&wrong, text).expect("a file");
        start("tools", ["--seal-key", wrong.to_str().expect("UTF-8")], Stdio::null()).end().complained(4, words);
    }
    start("tools", ["--seal-key", "/no/such/key"], Stdio::null()).end().complained(4, "/no/such/key");
}

#[test]
fn at_the_end_of_input_tools_answers_all_requests_and_exits_at_once() {
    let mut tools = start("tools", ["--deadline", "20"], Stdio::piped());
    let mut input = tools.child.0.stdin.take().expect("a pipe");
    let lines = [
        HELLO,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"countdown","arguments":{"from":2,"step_ms":50}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"chatty"}}"#,
    ];
    input.write_all((lines.join("\n") + "\n").as_bytes()).expect("a reader");
    drop(input);
    let start = Instant::now();
    let ended = tools.end().with(0);
    assert!(start.elapsed() < Duration::from_secs(4), "tools does not wait for its grace");
    assert_eq!(ended.err, Vec::<String>::new());
    let answers: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).expect("stdout carries only JSON")).collect();
    for id in 1..=3 {
        assert!(answers.iter().any(|answer| answer["id"] == id && answer.get("result").is_some()), "{answers:?}");
    }
}

#[test]
fn tools_can_use_files_and_sockets_as_standard_input_and_output() {
    let input = format!("{HELLO}\n{}\n", r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    let (asked, answered) = (Scratch::new("in"), Scratch::new("out"));
    fs::write(&asked, &input).expect("a file");
    let run = |stdin: Stdio, stdout: Stdio| {
        let mut command = Command::new(program("tools"));
        let status = KillOnDrop(command.stdin(stdin).stdout(stdout).spawn().expect("it starts")).0.wait().expect("it ends");
        assert_eq!(status.code(), Some(0));
    };
    let are_whole = |answers: &str| answers.lines().count() == 2 && answers.contains(r#""id":1"#) && answers.contains(r#""id":2"#);

    run(fs::File::open(&asked).expect("a file").into(), fs::File::create(&answered).expect("a file").into());
    assert!(are_whole(&fs::read_to_string(&answered).expect("a file")));

    let (mut near, far) = UnixStream::pair().expect("sockets");
    near.write_all(input.as_bytes()).expect("room");
    near.shutdown(std::net::Shutdown::Write).expect("an end");
    let other = far.try_clone().expect("a socket");
    run(OwnedFd::from(far).into(), OwnedFd::from(other).into());
    let mut answers = String::new();
    near.read_to_string(&mut answers).expect("text");
    assert!(are_whole(&answers));
}

/// The bug: `tools` opened a named pipe on stdin a second time, and so waited for another writer after the only one had closed the pipe.
#[test]
fn regression_tools_ends_when_the_only_writer_closes_a_named_pipe() {
    let name = Scratch::new("fifo");
    assert!(Command::new("mkfifo").arg(&*name).status().expect("mkfifo").success());
    let path = name.to_path_buf();
    let writer = thread::spawn(move || fs::write(path, format!("{HELLO}\n")));
    let stdin = fs::File::open(&*name).expect("a writer");
    writer.join().expect("no panic").expect("a reader");
    let mut command = Command::new(program("tools"));
    let mut tools = KillOnDrop(command.stdin(stdin).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut answers = String::new();
    tools.0.stdout.take().expect("a pipe").read_to_string(&mut answers).expect("text");
    assert_eq!(answers.lines().count(), 1);
    assert_eq!(tools.0.wait().expect("it ends").code(), Some(0));
}

/// Other processes, such as a shell, may have the same pipe open, and do not expect it to be non-blocking.
#[test]
fn tools_does_not_change_the_blocking_mode_of_its_pipes() {
    let (theirs, mut ours) = std::io::pipe().expect("a pipe");
    let (mut output, stdout_end) = std::io::pipe().expect("a pipe");
    let (mut shared_in, mut shared_out) = (theirs.try_clone().expect("a pipe"), stdout_end.try_clone().expect("a pipe"));
    let mut command = Command::new(program("tools"));
    let mut tools = KillOnDrop(command.stdin(theirs).stdout(stdout_end).spawn().expect("it starts"));
    drop(command);
    ours.write_all(format!("{HELLO}\n").as_bytes()).expect("a reader");
    let mut answer = [0; 1];
    output.read_exact(&mut answer).expect("an answer");
    tools.0.kill().expect("it runs");
    tools.0.wait().expect("it ends");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut read = [0; 4];
        sender.send(shared_in.read_exact(&mut read).map(|()| read))
    });
    let early = receiver.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "a read blocks while there is no data: {early:?}");
    ours.write_all(b"late").expect("a reader");
    assert_eq!(&receiver.recv_timeout(PATIENCE).expect("an end").expect("a read that waits"), b"late");
    let full = thread::spawn(move || shared_out.write_all(&[b'x'; 200_000]));
    let mut left = 0;
    while left < 200_000 {
        left += output.read(&mut [0; 4096]).expect("a pipe");
    }
    full.join().expect("no panic").expect("a write that waits");
}

#[test]
fn a_call_that_reaches_its_deadline_after_the_end_of_input_is_answered_and_tools_exits() {
    let audit = Scratch::new("audit");
    let flags = ["--deadline", "0.3", "--audit", audit.to_str().expect("a path in UTF-8")];
    let mut tools = start("tools", flags, Stdio::piped());
    let mut input = tools.child.0.stdin.take().expect("a pipe");
    let stuck = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"stuck"}}"#;
    writeln!(input, "{HELLO}\n{stuck}").expect("a reader");
    drop(input);
    let start = Instant::now();
    let ended = tools.end().with(0);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(ended.out.contains(r#""isError":true"#), "the call was answered at its deadline: {ended:?}");
    assert!(fs::read_to_string(&audit).is_ok_and(|line| line.contains(r#""outcome":"timeout""#)));
}

#[test]
fn each_signal_to_end_ends_tools() {
    for signal in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        let mut command = undisturbed(program("tools"));
        command.args(["--tcp", "127.0.0.1:0"]).stdin(Stdio::null());
        let mut tools = Running::of(command);
        tools.until_error_line("listening on");
        tools.signal(signal);
        tools.end().with(0);
    }

    // On stdin, with a client that stays connected.
    let mut tools = start("tools", [""; 0], Stdio::piped());
    let mut input = tools.child.0.stdin.take().expect("a pipe");
    writeln!(input, "{HELLO}").expect("a reader");
    tools.out.until("serverInfo");
    tools.interrupt();
    tools.end().with(0);
    drop(input);
}

// ---- Partial results and signals ----

#[test]
fn a_call_that_is_cancelled_prints_the_partial_result_from_its_progress() {
    let arguments = serde_json::json!({ "items": ["a", "b", "c", "d", "e"], "fail": ["b"], "step_ms": 1000 }).to_string();
    let audit = Scratch::new("audit");
    let flags = ["--partial-on-progress", "--audit", audit.to_str().expect("a path in UTF-8")];
    let ended = call_tools(&["--cancel-after", "3", "bulk", &arguments], &flags).with(130);
    let partial: serde_json::Value = serde_json::from_str(&ended.out).expect("the partial result as JSON");
    assert_eq!((&partial["processed"], &partial["failed"], &partial["remaining"]), (&2.into(), &1.into(), &2.into()), "{partial}");
    assert!(ended.err.last().is_some_and(|line| line.starts_with("call: cancelled; last heard: 3/5 ")), "{ended:?}");
    let line: serde_json::Value = serde_json::from_str(&fs::read_to_string(&audit).expect("an audit file")).expect("a line");
    assert_eq!((&line["outcome"], &line["steps"], &line["partial"]), (&"cancelled".into(), &3.into(), &partial));

    let ended = call_tools(&["--cancel-after", "3", "bulk", &arguments], &[]).with(130);
    assert_eq!(ended.out, "", "progress has no partial result without the flag");
}

impl Running {
    fn terminate(&self) {
        self.signal("-TERM");
    }
}

/// `tools` on stdin, which stays open, with a running call that has reported `update`.
fn serving(flags: &[&str], tool: &str, arguments: &str, update: &str) -> (Running, std::process::ChildStdin) {
    let mut tools = start("tools", flags, Stdio::piped());
    let mut input = tools.child.0.stdin.take().expect("a pipe");
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":2}}}}"#);
    writeln!(input, "{HELLO}\n{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{params}}}").expect("a reader");
    tools.out.until(update);
    (tools, input)
}

#[test]
fn after_a_signal_tools_lets_running_calls_finish_and_refuses_new_ones() {
    for stop in [Running::interrupt, Running::terminate] {
        let (mut tools, mut input) = serving(&[], "countdown", r#"{"from":3,"step_ms":1000}"#, "Counting down: 2");
        stop(&tools);
        tools.until_error_line("tools: 1 call may finish within 5s; a second signal ends it at once");
        writeln!(input, r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"chatty"}}}}"#).expect("a reader");
        assert!(tools.out.until(r#""id":3"#).contains(r#""code":-32809"#));
        tools.out.until("Countdown completed successfully");
        tools.end().with(0);
    }
}

#[test]
fn a_call_that_has_not_finished_within_the_grace_is_cancelled_with_its_partial_result() {
    let audit = Scratch::new("audit");
    let flags = ["--grace", "0.3", "--audit", audit.to_str().expect("a path in UTF-8")];
    let (tools, _input) = serving(&flags, "progress", r#"{"steps":100,"step_ms":100}"#, "step 2/100");
    let start = Instant::now();
    tools.interrupt();
    let ended = tools.end().with(0);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let answer = ended.out.lines().last().expect("an answer");
    assert!(answer.contains(r#""id":2,"result""#) && answer.contains(r#""status":"cancelled""#), "{answer}");
    let line = fs::read_to_string(&audit).expect("an audit file");
    assert!(line.starts_with(r#"{"tool":"progress","outcome":"cancelled","done":false,"steps":"#), "{line}");
}

/// The bug: the help said that cancelled calls have 0.3 seconds to clean up after a second signal, too.
#[test]
fn after_a_second_signal_tools_ends_at_once_and_its_help_promises_no_time_to_clean_up() {
    let help = start("tools", ["--help"], Stdio::null()).end().with(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("After a second signal they have no time, and their lines may be missing."), "{help}");
    let (mut tools, _input) = serving(&["--grace", "60"], "progress", r#"{"steps":100,"step_ms":5000}"#, "step 1/100");
    tools.interrupt();
    tools.until_error_line("a second signal ends it at once");
    let start = Instant::now();
    tools.interrupt();
    tools.end().with(0);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn a_server_that_gets_a_signal_finishes_its_call_and_accepts_no_other_caller() {
    let mut tools = start("tools", ["--tcp", "127.0.0.1:0"], Stdio::null());
    let address = tools.until_error_line("listening on").rsplit(' ').next().expect("an address").to_owned();
    let mut calling = start("call", ["--tcp", &address, "countdown", r#"{"from":3,"step_ms":1000}"#], Stdio::null());
    calling.until_error_line("1/3");
    tools.interrupt();
    tools.until_error_line("1 call may finish");
    call(&["--tcp", &address, "chatty"]).complained(4, &address);
    assert!(calling.end().with(0).out.contains("Countdown completed successfully"));
    tools.end().with(0);
}

#[test]
fn the_error_of_a_refused_handshake_is_printed() {
    let refuses = r#"read hello; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"not today"}}'; cat > /dev/null"#;
    call(&["--era", "legacy", "chatty", "--", "sh", "-c", refuses])
        .complained(4, "the server refused the handshake: not today (-32000)");
}

/// Seen in the field: a banner on standard output, and results with `NaN`, with a byte of another encoding, or in an array. `call` waited
/// for its timeout and gave no reason.
#[test]
fn an_answer_that_cannot_be_read_ends_the_call_with_its_reason_and_other_lines_are_reported() {
    let unreadable = r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"n":NaN}}\n' $id"#;
    let server = scripted(&format!("for n in 1 2 3 4; do echo Server started; done; {unreadable}"));
    let ended = call(&["work", "--timeout", "60", "--", "sh", "-c", &server]).with(1);
    let line = "call: the server has sent something else than a message: a frame that is not JSON, at byte 0: Server started";
    let last = format!("{line}; further ones are not shown");
    assert_eq!(ended.err[..3], [line, line, last.as_str()]);
    assert_eq!(ended.err.len(), 4, "{ended:?}");
    assert!(
        ended.err[3].starts_with("call: the answer of the server cannot be read: a frame that is not JSON, at byte 51: {"),
        "{ended:?}"
    );
    for (answer, why) in [
        (r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"n":"caf\351"}}\n' $id"#, r"caf\xe9"),
        (r#"printf '[{"jsonrpc":"2.0","id":%s,"result":{}}]\n' $id"#, "a batch in a revision without batches: [{"),
        (r#"printf 'Content-Length: 36\r\n\r\n{"jsonrpc":"2.0","id":%s,"result":{"n":NaN}}\n' $id"#, "the peer writes headers"),
    ] {
        let ended = call(&["work", "--timeout", "60", "--", "sh", "-c", &scripted(answer)]).with(1);
        assert!(ended.err.iter().any(|line| line.contains(why)), "{answer}: {ended:?}");
    }
}

/// Seen in the field: a server that makes text of each id, and one that loses it. The call timed out without a reason.
#[test]
fn an_answer_with_another_id_is_shown_at_once_and_again_as_the_reason_of_the_timeout() {
    for (id, fault) in [
        (r#""id":"%s","#, "(its id is text, and the ids of our requests are numbers)"),
        (r#""id":%s.0,"#, "(its id is not written as a whole number)"),
        (r#""id":null,"#, "(its id is null)"),
    ] {
        let server = scripted(&format!(r#"printf '{{"jsonrpc":"2.0",{id}"result":{{"content":[]}}}}\n' $id"#));
        let ended = call(&["work", "--timeout", "0.3", "--", "sh", "-c", &server]).with(3);
        let [shown, why] = &ended.err[..] else { panic!("{ended:?}") };
        let reason = shown.strip_prefix("call: ").expect("a line");
        assert!(reason.starts_with("the server has sent a response to a request that was never made: {"), "{ended:?}");
        assert!(reason.ends_with(fault) && why.starts_with("call: timed out: "), "{ended:?}");
        assert!(why.ends_with(&format!("; {reason}")), "{ended:?}");
    }
}

/// Seen in the field: a server whose cursor never advances. The list ended after 1000 requests, and then showed none of the tools.
#[test]
fn a_list_with_a_cursor_that_never_advances_ends_at_its_first_repetition() {
    let pages = r#"for page in 1 2; do
            echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"t'$page'"}],"nextCursor":""}}'; id=$((id+1)); read -r call
            case $call in *'"cursor":""'*) ;; *) exit 1;; esac
        done"#;
    let pages = pages.replace("read -r call\n", "[ $page = 2 ] || read -r call\n");
    let ended = call(&["--list", "--", "sh", "-c", &scripted(&pages)]).with(1);
    assert_eq!((&*ended.out, &*ended.err[0]), ("t1\nt2\n", "call: the list of tools is not complete"));
    assert!(ended.err[1].contains("its cursor \"\" is repeated"), "{ended:?}");
}

/// A shell script that is a server with a handshake. It answers `server/discover` (the probe) with an error, does the handshake, reads the
/// call, runs the shell command `call`, and exits at the end of its input. `$hello` and `$call` hold what it has read, `$id` the id of the
/// call.
pub(super) fn scripted(call: &str) -> String {
    format!(
        r#"read -r hello; id=1
        case $hello in *server/discover*)
            echo '{{"jsonrpc":"2.0","id":1,"error":{{"code":-32601,"message":"Method not found"}}}}'; read -r hello; id=2;;
        esac
        echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}'
        read -r initialized
        read -r call; id=$((id+1))
        {call}
        cat > /dev/null"#
    )
}

/// The part of a script that answers the call. `result` is the member `result` or `error` of the response.
pub(super) fn answer(result: &str) -> String {
    format!("echo '{{\"jsonrpc\":\"2.0\",\"id\":'$id',{result}}}'")
}

/// A shell script that is a server with a handshake, with tools and prompts, whose lists are these members of a response.
fn listing(tools: &str, prompts: &str) -> String {
    format!(
        r#"read -r hello
        echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}},"prompts":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}'
        read -r initialized; read -r list
        printf '%s\n' '{{"jsonrpc":"2.0","id":2,{tools}}}'; read -r list
        printf '%s\n' '{{"jsonrpc":"2.0","id":3,{prompts}}}'
        cat > /dev/null"#
    )
}

/// Seen in the field: a description that was cut within a character or is no text, a list of prompts that is an object or an error although
/// the server has declared prompts, a list without tools, and lists that are `null`.
#[test]
fn the_list_shows_all_that_can_be_shown_and_says_what_cannot() {
    let good = r#""result":{"tools":[{"name":"a","description":"A."},{"name":"b","description":"cut \ud83d"},{"name":"c","description":7},{}]}"#;
    let table = "a  A.\nb  cut \u{fffd}\nc\n";
    let mended = ["description of b; description of c; 1 without a name"];
    let none = r#""result":{"prompts":null}"#;
    let one = r#""result":{"prompts":[{"name":"p"}]}"#;
    let error = r#""error":{"code":-32601,"message":"Method not found"}"#;
    for (tools, prompts, status, out, said) in [
        (good, none, 0, table.to_owned(), &mended[..]),
        (good, r#""result":{"prompts":{}}"#, 1, table.to_owned(), &["the list of prompts failed", "`prompts` is no array"]),
        (good, error, 1, table.to_owned(), &["the list of prompts failed", "Method not found (-32601)"]),
        (error, one, 1, "p  prompt:\n".to_owned(), &["the list of tools failed", "Method not found (-32601)"]),
        (r#""result":{"tools":[]}"#, none, 0, String::new(), &["the server offers no tools and no prompts"]),
        (r#""result":{"tools":null}"#, one, 0, "p  prompt:\n".to_owned(), &["the server offers no tools"]),
    ] {
        let ended = call(&["--era", "legacy", "--list", "--", "sh", "-c", &listing(tools, prompts)]).with(status);
        assert_eq!(ended.out, out, "{ended:?}");
        for words in said {
            assert_eq!(ended.err.iter().filter(|line| line.contains(words)).count(), 1, "{words}: {ended:?}");
        }
    }
}

/// Seen in the field: the error of a tool that was cut within a character was printed as raw JSON, with status 0.
#[test]
fn a_result_with_one_bad_part_is_shown_and_a_failure_is_never_a_success() {
    for (result, status, out, said) in [
        (r#"{"content":[{"type":"text","text":"failed: cut \ud83d"}],"isError":true}"#, 1, "", "failed: cut \u{fffd}"),
        (r#"{"content":[7,{"type":"text","text":"a"}]}"#, 0, "7\na\n", "a block of content without a type"),
        (r#"{"content":"plain"}"#, 0, "plain\n", "`content` that is no list"),
        (r#"{"isError":true}"#, 1, "", "the tool failed without a message"),
        (r#"{"content":null,"structuredContent":{"n":1}}"#, 0, "{\"n\":1}\n", "no `content`"),
    ] {
        let script = scripted(&answer(&format!(r#""result":{result},"error":null"#)));
        let ended = call(&["--era", "legacy", "work", "--", "sh", "-c", &script]).with(status);
        assert_eq!(ended.out, out, "{ended:?}");
        assert_eq!(ended.err.iter().filter(|line| line.contains(said)).count(), 1, "{said}: {ended:?}");
    }
}

// ---- The eras of MCP ----

#[test]
fn a_server_without_a_handshake_can_be_called_with_progress() {
    for era in ["auto", "modern"] {
        let ended = call_tools(&["--era", era, "progress", r#"{"steps":3,"step_ms":1}"#], &["--era", "modern"]).with(0);
        assert_eq!(ended.updates(), 3, "{ended:?}");
        call_tools(&["--era", era, "chatty"], &["--era", "auto"]).with(0);
    }
    let message = "the server refused the handshake: only revisions without a handshake are served (-32022): it speaks 2026-07-28, not 2025-11-25";
    call_tools(&["--era", "legacy", "chatty"], &["--era", "modern"]).complained(4, message);
}

/// Many old servers exit or disconnect at a request with an unknown method.
#[test]
fn a_server_that_exits_when_it_is_asked_for_its_revisions_is_started_once_more_with_a_handshake() {
    let exits = format!(
        r#"read -r first; case $first in *server/discover*) exit 3;; esac; {{ echo "$first"; cat; }} | {{ {} ; }}"#,
        scripted(&answer(r#""result":{"content":[{"type":"text","text":"old"}]}"#))
    );
    assert_eq!(call(&["chatty", "--", "sh", "-c", &exits]).with(0).out, "old\n");
    call(&["--era", "modern", "chatty", "--", "sh", "-c", &exits]).complained(4, "3");
    call(&["chatty", "--", "sh", "-c", "read -r first; exit 3"]).complained(4, "3");
}

/// Some servers take no handshake that is not the first request of their connection.
#[test]
fn a_server_that_refuses_the_handshake_after_the_probe_is_started_once_more_with_a_handshake() {
    let refused =
        |id| format!("echo '{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32600,\"message\":\"not first\"}}}}'");
    let refuses = format!(
        r#"echo started >&2; read -r first
        case $first in *server/discover*) {}; read -r hello; {}; cat > /dev/null; exit;; esac
        {{ echo "$first"; cat; }} | {{ {} ; }}"#,
        refused(1),
        refused(2),
        scripted(&answer(r#""result":{"content":[{"type":"text","text":"old"}]}"#))
    );
    let ended = call(&["chatty", "--", "sh", "-c", &refuses]).with(0);
    assert_eq!((&*ended.out, ended.err.iter().filter(|line| *line == "started").count()), ("old\n", 2), "{ended:?}");
    // A server that always refuses is started twice, and no more. The refusal is shown.
    let always = format!("echo started >&2; read -r first; {}; read -r hello; {}; cat > /dev/null", refused(1), refused(2));
    let ended = call(&["chatty", "--", "sh", "-c", &always]).with(4);
    assert_eq!(ended.err.iter().filter(|line| *line == "started").count(), 2, "{ended:?}");
    assert!(ended.err.iter().any(|line| line.contains("the server refused the handshake: not first")), "{ended:?}");
}

#[test]
fn a_server_that_disconnects_when_it_is_asked_for_its_revisions_is_connected_to_once_more_with_a_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let served = thread::spawn(move || {
        let mut first_lines = Vec::new();
        for stream in listener.incoming().take(2) {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|length| length > 0) {
                first_lines.extend(line.contains("server/discover").then_some("discover"));
                first_lines.extend(line.contains(r#""initialize""#).then_some("initialize"));
                let result = match () {
                    () if line.contains("server/discover") => break,
                    () if line.contains(r#""initialize""#) => {
                        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#
                    }
                    () if line.contains("tools/call") => {
                        r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"old"}]}}"#
                    }
                    () => "",
                };
                if !result.is_empty() {
                    writeln!(stream.get_mut(), "{result}").expect("it is read");
                }
                line.clear();
            }
        }
        first_lines
    });
    assert_eq!(call(&["--tcp", &address, "chatty"]).with(0).out, "old\n");
    assert_eq!(served.join().expect("it ends"), ["discover", "initialize"]);
}

#[test]
fn a_tool_asks_its_caller_in_every_era_and_gives_the_same_result() {
    let asked = ["--answer", r#"{"name":"Ada"}"#, "--sample-reply", "It is fine.", "survey", r#"{"topic":"tea"}"#];
    for era in ["legacy", "modern"] {
        let ended = call_tools(&[&["--era", era][..], &asked].concat(), &[]).with(0);
        let expected = r#"{"participant":"Ada","number":1,"opinion":"It is fine.","publish":true}"#;
        assert_eq!(ended.out, format!("{expected}\n"), "{ended:?}");
        assert_eq!(ended.err.last().map(String::as_str), Some("3/3 100%"), "{ended:?}");
        let ended = call_tools(&["--era", era, "--accept", "delete", r#"{"name":"draft"}"#], &[]).with(0);
        assert_eq!(ended.out, "{\"deleted\":\"draft\"}\n", "{ended:?}");
    }
}

// ---- HTTP ----

/// Serves over HTTP, and returns the address. `answer` gets the head and the body of each request, and returns the JSON of a response with
/// the status 200.
fn serve_http(answer: impl Fn(&str, &str) -> String + Send + 'static) -> String {
    serve_raw_http(move |head, body| {
        let body = answer(head, body);
        format!("200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    })
}

/// Serves over HTTP, and returns the address. `answer` gets the head and the body of each request, and returns the response, beginning with
/// its status. After it the connection is closed.
fn serve_raw_http(answer: impl Fn(&str, &str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(stream.read_line(&mut head).expect("a head") > 0, "{head}");
            }
            let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or_default()];
            stream.read_exact(&mut body).expect("a body");
            let response = answer(&head, &String::from_utf8(body).expect("text"));
            let (status, rest) = response.split_once("\r\n").expect("a status");
            write!(stream.get_mut(), "HTTP/1.1 {status}\r\nConnection: close\r\n{rest}").expect("it is read");
        }
    });
    url
}

#[test]
fn a_server_over_http_is_called_with_the_headers_of_the_command_line() {
    let url = serve_http(|head, body| {
        assert!(head.contains("authorization: Bearer t\r\n") && head.contains("x-y: a:b\r\n"), "{head}");
        let (id, result) = match body.contains("server/discover") {
            true => (1, r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private""#),
            false => (2, r#""content":[{"type":"text","text":"over HTTP"}]"#),
        };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete",{result}}}}}"#)
    });
    let ended = call(&["--url", &url, "--header", "Authorization: Bearer t", "--header", "X-Y:a:b", "chatty"]);
    assert_eq!(ended.with(0).out, "over HTTP\n");
}

/// The status and the reason of a server over HTTP that cannot be used. `protocol-core/src/http/client/tests.rs` has all reasons.
#[test]
fn a_server_over_http_that_fails_is_reported_with_what_it_has_answered() {
    const HINT: &str = "; for an old server, try --era legacy";
    let fails = || serve_raw_http(|_, _| "500 No\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".to_owned());
    let why = "the server answers with the status 500 (text/html, \"<html>\")";
    call(&["--url", &fails(), "chatty"]).complained(4, &format!("the server cannot be used: server/discover: {why}{HINT}"));
    call(&["--url", &fails(), "--era", "legacy", "chatty"]).complained(4, &format!("the server cannot be used: initialize: {why}"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", silent.local_addr().expect("an address"));
    for (era, why) in [
        ("auto", format!("timed out: the server does not answer server/discover{HINT}")),
        ("modern", format!("timed out: the server did not answer server/discover within 300ms (--start-timeout){HINT}")),
        ("legacy", "timed out: the server did not answer the handshake within 300ms (--start-timeout)".to_owned()),
    ] {
        call(&["--url", &url, "--era", era, "--start-timeout", "0.3", "chatty"]).complained(3, &why);
    }
    // Seen in the field: a status alone was shown as an error with a code that the server had not sent.
    let absent = || serve_raw_http(|_, _| "404 No\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nwho?".to_owned());
    let why = "the server cannot be used: server/discover: the server answers with the status 404 (text/plain, \"who?\")";
    call(&["--url", &absent(), "--era", "modern", "chatty"]).complained(4, &format!("{why}{HINT}"));
    let loses = serve_raw_http(|_, body| match body.contains("server/discover") {
        true => {
            let body = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}}"#;
            format!("200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        false => "404 No\r\nContent-Type: text/plain\r\n\r\nno upstream".to_owned(),
    });
    let why = |request| {
        format!("call: the call is lost: {request}: the server answers with the status 404 (text/plain, \"no upstream\")")
    };
    call(&["--url", &loses, "chatty"]).complained(4, &why("tools/call"));
    assert_eq!(call(&["--url", &loses, "--list"]).with(4).err, ["call: the list of tools failed", &why("tools/list")]);
    let secret = call(&["--url", "http://user:secret@localhost/mcp", "chatty"]);
    assert!(!secret.err.concat().contains("secret"), "{secret:?}");
    secret.complained(4, "http://...@localhost/mcp: a name and a password belong into the header `Authorization`");
}

/// A server that died in the middle of a call was silent for half a minute, and then reported with the failure of the last attempt.
#[test]
fn a_person_is_told_that_a_call_is_being_resumed_and_at_the_end_why_its_stream_broke() {
    let url = serve_raw_http(|head, body| {
        let begins = "200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        match () {
            () if body.contains(r#""initialize""#) => {
                let body = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
                format!("200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
            () if body.contains("tools/call") => format!("{begins}17\r\nid: 1\nretry: 10\ndata:\n\n\r\n"),
            // Attempts to resume the stream.
            () if head.contains("last-event-id") => "503 Gone\r\nContent-Length: 0\r\n\r\n".to_owned(),
            () if head.starts_with("GET") => "405 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
            () => "202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        }
    });
    let ended = call(&["--url", &url, "--era", "legacy", "chatty"]).with(4);
    let [resumes, lost] = &ended.err[..] else { panic!("{ended:?}") };
    let why = "tools/call: the connection fails: ";
    assert!(resumes.starts_with(&format!("call: {why}")) && resumes.ends_with("; trying to go on"), "{ended:?}");
    assert!(lost.starts_with(&format!("call: the call is lost: {why}")), "{ended:?}");
    assert!(lost.ends_with("; the stream could not be resumed"), "{ended:?}");
}

#[test]
fn an_answer_to_the_handshake_that_this_end_refuses_or_that_the_server_refuses_says_who_and_why() {
    let answers = |answer: &str| format!("read hello; echo '{{\"jsonrpc\":\"2.0\",\"id\":1,{answer}}}'; cat > /dev/null");
    let nameless = answers(r#""result":{"protocolVersion":"2025-11-25","capabilities":{}}"#);
    let why = "the server cannot be used: this end refused the peer's answer to the handshake: `serverInfo` is missing";
    call(&["--era", "legacy", "chatty", "--", "sh", "-c", &nameless]).complained(4, why);
    let old = answers(r#""error":{"code":-32601,"message":"what?"}"#);
    let why = "the server refused server/discover: what? (-32601); for an old server, try --era legacy";
    call(&["--era", "modern", "chatty", "--", "sh", "-c", &old]).complained(4, why);
}

#[test]
fn an_address_or_a_header_that_cannot_be_used_is_reported_in_one_line() {
    call(&["--header", "A: b", "chatty"]).complained(2, "--url");
    call(&["--url", "http://localhost", "--header", "A", "chatty"]).complained(2, "NAME: VALUE");
    call(&["--url", "http://localhost", "--tcp", "a:1", "chatty"]).complained(2, "--tcp");
    for url in ["ftp://localhost/mcp", "localhost:80"] {
        call(&["--url", url, "chatty"]).complained(4, url);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    drop(listener);
    call(&["--url", &url, "chatty"]).complained(4, "refused");
}

#[test]
fn an_old_server_that_ignores_the_probe_is_called_after_the_timeout_of_the_probe() {
    let script = format!("read -r probe\n{}", old_server());
    let ended = call(&["--era", "auto", "--start-timeout", "1", "chatty", "--", "sh", "-c", &script]).with(0);
    assert_eq!(ended.out, "old\n", "{ended:?}");
}

#[test]
fn an_old_server_that_exits_at_the_probe_is_started_once_more() {
    let script = format!("read -r hello; case $hello in *discover*) exit 1;; esac\n{}", old_server_that_has_read("1"));
    let ended = call(&["--era", "auto", "chatty", "--", "sh", "-c", &script]).with(0);
    assert_eq!(ended.out, "old\n", "{ended:?}");
    let ended = call(&["--era", "auto", "chatty", "--", "sh", "-c", "echo started >&2; exit 3"]).with(4);
    assert_eq!(ended.err.iter().filter(|line| *line == "started").count(), 2, "{ended:?}");
}

/// The rest of the script of a server with a handshake that has already read the probe.
fn old_server() -> String {
    format!("read -r hello\n{}", old_server_that_has_read("2"))
}

/// The rest of the script of a server that has already read the handshake request, which has this id.
fn old_server_that_has_read(id: &str) -> String {
    let next = if id == "1" { 2 } else { 3 };
    format!(
        r#"echo '{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}'
        read -r initialized
        read -r call
        echo '{{"jsonrpc":"2.0","id":{next},"result":{{"content":[{{"type":"text","text":"old"}}]}}}}'
        cat > /dev/null"#
    )
}

// ---- The end of the server ----

#[test]
fn a_server_that_ignores_the_end_of_input_is_killed_with_its_child_processes() {
    let tools = program("tools");
    for (before, max_seconds) in [("", 5), ("trap '' TERM; ", 6)] {
        // A remaining process would keep stderr open, and this test would hang.
        let script = format!("{before}{}; sleep 1000; true", tools.display());
        let begin = Instant::now();
        let ended = call(&["chatty", "--", "sh", "-c", &script]).with(0);
        assert!(ended.out.starts_with("first block: short\n") && ended.err.is_empty(), "{ended:?}");
        assert!(begin.elapsed() < Duration::from_secs(max_seconds), "{:?}", begin.elapsed());
    }
}

/// Seen in the field: the shell of `sh -c 'server; true'` died at SIGTERM, so that SIGKILL was never sent, and the server lived on; and a
/// helper of a server that exits at the end of its input got no signal at all.
#[test]
fn no_process_of_a_server_is_left_when_call_ends() {
    let tools = program("tools").display().to_string();
    for (script, max_seconds) in [
        (format!("sh -c 'trap \"\" TERM; {tools}; sleep 1000; sleep 1000'; true"), 6),
        (format!("sleep 1000 > /dev/null 2>&1 & {tools}"), 4),
        (format!("sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' > /dev/null 2>&1 & {tools}"), 5),
    ] {
        let group = Scratch::new("group");
        let begin = Instant::now();
        let ended = call(&["chatty", "--", "sh", "-c", &format!("echo $$ > {}; {script}", group.display())]).with(0);
        assert!(ended.out.starts_with("first block: short\n") && ended.err.is_empty(), "{ended:?}");
        assert!(!is_there(&group), "{script}");
        assert!(begin.elapsed() < Duration::from_secs(max_seconds), "{script}: {:?}", begin.elapsed());
    }
}

#[test]
fn the_exit_of_a_server_is_noticed_at_once_even_if_another_process_holds_its_stdout() {
    let group = Scratch::new("group");
    let script = scripted(&format!("echo $$ > {}; sleep 1000 2> /dev/null & exit 3", group.display()));
    let begin = Instant::now();
    let ended = call(&["chatty", "--", "sh", "-c", &script]);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(!is_there(&group), "the other process ends with the server");
    ended.complained(4, "the server is lost: the peer ended the connection (exit status: 3)");
}

// ---- Content and requests of the server ----

#[test]
fn images_audio_and_blobs_of_a_result_are_saved_as_new_files() {
    let folder = Scratch::new("saved");
    let at = |name: &str| folder.join("below").join(name);
    let content = concat!(
        r#""result":{"content":[{"type":"text","text":"Look:"},"#,
        r#"{"type":"image","data":"aW1hZ2U=","mimeType":"image/png"},"#,
        r#"{"type":"audio","data":"c291bmQ=","mimeType":"audio/wav"},"#,
        r#"{"type":"resource","resource":{"uri":"file:///../../evil","blob":"YmxvYg==","mimeType":"application/x-own"}},"#,
        r#"{"type":"resource","resource":{"uri":"file:///a","text":"inside"}}]}"#,
    );
    let script = scripted(&answer(content));
    let below = at("");
    let save = ["--save", below.to_str().expect("a path in UTF-8"), "look", "--", "sh", "-c", &script];
    for (round, [image, audio, blob]) in
        [["image-1.png", "audio-2.wav", "blob-3.bin"], ["image-2.png", "audio-3.wav", "blob-4.bin"]].into_iter().enumerate()
    {
        let ended = call(&save).with(0);
        let lines: Vec<_> = ended.out.lines().collect();
        assert_eq!(lines[0], "Look:", "{ended:?}");
        for (line, begin, name, data) in [
            (lines[1], "[image image/png]", image, "image"),
            (lines[2], "[audio audio/wav]", audio, "sound"),
            (lines[3], "[resource file:///../../evil]", blob, "blob"),
        ] {
            let path = at(name);
            assert_eq!(line, format!("{begin} saved as {}", path.display()), "{round}");
            assert_eq!(fs::read_to_string(path).expect("a file"), data);
        }
        assert_eq!(lines[4], "inside");
    }
    // Without the flag, images and audio are only described.
    assert!(call(&save[2..]).with(0).out.contains("[image image/png]\n"));

    let blocks = r#"{"type":"image","data":"a!","mimeType":"image/png"},{"type":"audio","mimeType":"audio/wav"}"#;
    let broken = scripted(&answer(&format!(r#""result":{{"content":[{blocks}]}}"#)));
    let ended = call(&["--save", save[1], "look", "--", "sh", "-c", &broken]).with(1);
    let complaints = [
        "call: [image image/png] cannot be saved: its data is not base64: character 2 is '!'",
        "call: [audio audio/wav] cannot be saved: it has no data",
    ];
    assert_eq!(ended.err, complaints);
    let file = at("image-1.png");
    let file = file.to_str().expect("a path in UTF-8");
    call(&["--save", file, "look"]).complained(2, &format!("--save {file}: "));
}

#[test]
fn a_server_gets_the_folders_of_the_command_line_as_roots() {
    let folder = Scratch::new("a folder");
    fs::create_dir(&*folder).expect("a folder");
    let (hello, roots) = (Scratch::new("hello"), Scratch::new("roots"));
    let ask = format!(
        r#"printf %s "$hello" > {}; echo '{{"jsonrpc":"2.0","id":"r","method":"roots/list"}}'; read -r told; printf %s "$told" > {}; {}"#,
        hello.display(),
        roots.display(),
        answer(r#""result":{"content":[]}"#)
    );
    let path = folder.to_str().expect("a path in UTF-8");
    let server = scripted(&ask);
    let tail = ["work", "--", "sh", "-c", &server];
    let read = |file: &Scratch| serde_json::from_str(&fs::read_to_string(file).expect("a file")).expect("JSON");
    call(&[&["--roots", path, "--roots", "/"][..], &tail].concat()).with(0);
    let (hello_said, roots_said): (serde_json::Value, serde_json::Value) = (read(&hello), read(&roots));
    assert!(hello_said["params"]["capabilities"]["roots"].is_object(), "{hello_said}");
    let canonical = fs::canonicalize(&*folder).expect("a folder");
    let uri = format!("file://{}", canonical.to_str().expect("a path in UTF-8").replace(' ', "%20"));
    let name = canonical.file_name().and_then(OsStr::to_str).expect("a name");
    let expected = serde_json::json!([{ "uri": uri, "name": name }, { "uri": "file:///", "name": "/" }]);
    assert_eq!(roots_said["result"]["roots"], expected, "{roots_said}");

    call(&tail).with(0);
    let (hello_said, roots_said): (serde_json::Value, serde_json::Value) = (read(&hello), read(&roots));
    assert!(hello_said["params"]["capabilities"]["roots"].is_null(), "{hello_said}");
    assert_eq!(roots_said["error"]["code"], -32601, "{roots_said}");

    let nowhere = Scratch::new("nowhere");
    for (no_folder, why) in [(nowhere.to_str().expect("a path in UTF-8"), "No such file"), ("/dev/null", "it is not a folder")] {
        let ended = call(&["--roots", no_folder, "chatty"]).with(2);
        assert!(ended.err.len() == 1 && ended.err[0].contains(no_folder) && ended.err[0].contains(why), "{ended:?}");
    }
}

#[test]
fn the_error_about_an_unsupported_version_lists_the_versions_of_the_server() {
    let error = r#""error":{"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28","2027-01-01"],"requested":"2025-11-25"}}"#;
    let message = "unsupported (-32022): it speaks 2026-07-28, 2027-01-01, not 2025-11-25";
    let refuses = format!("read -r hello; echo '{{\"jsonrpc\":\"2.0\",\"id\":1,{error}}}'; cat > /dev/null");
    call(&["--era", "legacy", "chatty", "--", "sh", "-c", &refuses]).complained(4, message);
    call(&["chatty", "--", "sh", "-c", &scripted(&answer(error))]).complained(1, message);
}
