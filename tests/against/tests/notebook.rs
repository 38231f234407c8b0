//! A server and a client with all that such programs have, on this project and on rmcp: each client works with each server, over pipes and
//! over HTTP, and ours are at most 0.7 times as long.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const OURS: [&str; 2] = [env!("CARGO_BIN_EXE_our-notebook-server"), env!("CARGO_BIN_EXE_our-notebook-client")];
const THEIRS: [&str; 2] = [env!("CARGO_BIN_EXE_notebook-server"), env!("CARGO_BIN_EXE_notebook-client")];

/// A server over HTTP, with its URL. Dropping it ends the server.
struct Listening(Child, String);

impl Listening {
    fn start(server: &str) -> Self {
        let mut server = Command::new(server).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().expect("a server");
        let mut url = String::new();
        BufReader::new(server.stdout.take().expect("its output")).read_line(&mut url).expect("a line");
        Self(server, url.trim().to_owned())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the client prints. `author` is the caller, as the server knows it.
fn check(client: &str, server: &str, author: &str) {
    let output = Command::new(client).arg(server).output().expect("a client");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = said.lines().filter(|line| !line.contains("cancelled")).collect();
    let wrote = |title: &str| format!("{author} wrote {title}");
    let expected = [
        &*wrote("shop"),
        &wrote("sport"),
        &wrote("tea"),
        "8 words",
        "How long may it be?",
        "Say this in 2 words: buy two loaves of bread",
        "shop is shorter",
        r#"["shop","sport"]"#,
        r#""Review this note: buy bread""#,
        r#""buy bread""#,
        &wrote("late"),
    ];
    assert_eq!((lines, said.lines().count()), (expected.to_vec(), expected.len() + 1), "{client} with {server}");
}

#[test]
fn each_client_works_with_each_server_over_pipes_and_over_http() {
    for [server, _] in [OURS, THEIRS] {
        for [_, client] in [OURS, THEIRS] {
            check(client, server, "somebody");
            check(client, &Listening::start(server).1, "Alice");
        }
    }
}

/// The lines of a program that are neither blank nor a comment.
fn lines(program: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    program.lines().filter(is_code).count()
}

#[test]
fn our_programs_are_at_most_seven_tenths_as_long_as_those_on_rmcp() {
    let programs = [
        (include_str!("../../../sansmcp/examples/notebook_server.rs"), include_str!("../src/notebook_server.rs")),
        (include_str!("../../../sansmcp/examples/notebook_client.rs"), include_str!("../src/notebook_client.rs")),
    ];
    for (ours, theirs) in programs {
        let (ours, theirs) = (lines(ours), lines(theirs));
        println!("{ours} lines of ours, {theirs} on rmcp");
        assert!(ours * 10 <= theirs * 7, "{ours} lines of ours, {theirs} on rmcp");
    }
}
