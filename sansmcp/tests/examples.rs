//! Runs each example as a person would. `property_test` runs its own tests.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use sansmcp::http::HttpServerAddress;
use sansmcp::prelude::*;
use sansmcp::tokio::Connection;

const HANDSHAKE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;

/// The program of an example, which `cargo test` has built beside this test.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let program = test.parent().and_then(|deps| deps.parent()).expect("a folder").join("examples").join(example);
    let program = program.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(program.is_file(), "{} is built by `cargo test -p sansmcp`, without `--test`", program.display());
    program
}

/// Runs an example to its end, and returns what it printed.
fn run(example: &str, argument: Option<PathBuf>, input: &str) -> String {
    let mut command = Command::new(program(example));
    command.args(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("the example starts");
    running.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let Output { status, stdout, stderr } = running.wait_with_output().expect("it ends");
    assert!(status.success(), "{example}: {status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// A server that listens, with the address that it has printed. Dropping it ends the server.
struct Listening {
    server: Child,
    address: String,
}

impl Listening {
    fn start(example: &str) -> Self {
        let mut command = Command::new(program(example));
        let mut server = command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().expect("the example starts");
        let mut address = String::new();
        BufReader::new(server.stdout.take().expect("its output")).read_line(&mut address).expect("a line");
        Self { server, address: address.trim().to_owned() }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn me() -> Config {
    Config::mcp_client(Identity::new("me", "1.0"))
}

/// A client of a server on standard input and output.
fn start(mut command: tokio::process::Command) -> Connection {
    command.kill_on_drop(true);
    sansmcp::tokio::connect(Arc::new(()), me(), sansmcp::tokio::child(command).expect("the example starts"))
}

async fn call(connection: &Connection, tool: &str, arguments: serde_json::Value) -> ToolResult {
    connection.peer().call_tool_with(tool, &arguments).expect("a call").await.tool().expect("a result")
}

#[tokio::test]
async fn a_server_on_standard_input_and_output_has_a_tool_a_resource_and_a_prompt() {
    let server = start(tokio::process::Command::new(program("stdio_server")));
    let result = call(&server, "count_words", serde_json::json!({ "text": "one two\nthree" })).await;
    assert_eq!(result.structured.map(|words| words.to_string()).as_deref(), Some(r#"{"words":3}"#));
    let manual = server.peer().read_resource("words://manual").expect("a call").await.result().expect("a result");
    assert!(manual.as_str().contains("white space"));
    let most = [("most".to_owned(), "7".to_owned())].into();
    let prompt = server.peer().get_prompt("shorten", &most).expect("a call").await.result().expect("a result");
    assert!(prompt.as_str().contains("to 7 words"));
}

#[test]
fn a_client_starts_a_server_and_calls_its_tool() {
    let said = run("client", Some(program("stdio_server")), "");
    assert_eq!(said, "count_words: Counts the words of a text\n3 words\n");
}

#[test]
fn a_bar_follows_the_progress_of_a_tool() {
    let said = run("bar", Some(program("stdio_server")), "");
    let (result, updates) = said.trim().split_once(" after ").expect("a line");
    assert_eq!(result, r#"{"words":600}"#);
    assert!(updates.split(' ').next().and_then(|number| number.parse().ok()).is_some_and(|number: u32| number >= 2), "{said}");
}

#[test]
fn a_cancelled_call_has_a_partial_result() {
    let said = run("cancel", None, "");
    let (outcome, files) = said.trim().split_once(", ").expect("a line");
    assert_eq!(outcome, "Cancelled");
    let done: u32 = files.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!((3..1000).contains(&done) && files.ends_with("of 1000 files"), "{said}");
}

#[test]
fn a_question_is_answered_declined_or_left_open() {
    assert_eq!(run("questions", None, "b\n"), "The new name of a.txt? renamed to b\n");
    assert_eq!(run("questions", None, "\n"), "The new name of a.txt? a.txt keeps its name\n");
    assert_eq!(run("questions", None, ""), "The new name of a.txt? a.txt keeps its name\n");
}

#[tokio::test]
async fn callers_on_two_connections_share_their_notes() {
    let server = Listening::start("shared_state");
    let connect = async || sansmcp::tokio::tcp_connect(&server.address).await.expect("a connection");
    let [one, other] = [connect().await, connect().await].map(|transport| sansmcp::tokio::connect(Arc::new(()), me(), transport));
    call(&one, "write", serde_json::json!({ "title": "a", "text": "first" })).await;
    assert_eq!(call(&other, "read", serde_json::json!({ "title": "a" })).await.text(), "first");
    assert!(call(&other, "read", serde_json::json!({ "title": "b" })).await.text().contains("there is no note b"));
}

#[tokio::test]
async fn a_layer_of_axum_knows_the_caller_and_refuses_others() {
    let server = Listening::start("axum_server");
    let connect = |token: &str| {
        let address = HttpServerAddress::new(&server.address).header("Authorization", token).expect("a header");
        sansmcp::tokio::http_connect(Arc::new(()), me(), address).expect("a client")
    };
    assert_eq!(call(&connect("Bearer a-secret"), "whoami", serde_json::json!({})).await.text(), "Alice");
    assert!(connect("Bearer a-guess").peer().list_tools().await.is_err());
}

/// `tests/against` compares what it prints with a client and a server of another SDK.
#[test]
fn a_client_calls_all_that_a_notebook_offers_over_pipes_and_over_http() {
    let server = Listening::start("notebook_server");
    for (address, author) in [(program("notebook_server"), "somebody"), (server.address.clone().into(), "Alice")] {
        let said = run("notebook_client", Some(address), "");
        assert_eq!(said.lines().count(), 12, "{said}");
        assert!(said.starts_with(&format!("{author} wrote shop\n")) && said.contains("the call was cancelled"), "{said}");
        assert!(said.ends_with(&format!("\"buy bread\"\n{author} wrote late\n")), "{said}");
    }
}

#[test]
fn a_loop_of_its_own_serves_without_a_runtime() {
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet"}}"#;
    let said = run("own_loop", None, &format!("{HANDSHAKE}{call}\n"));
    assert!(said.lines().nth(1).is_some_and(|line| line.contains("hello")), "{said}");
}

#[tokio::test]
async fn a_gateway_without_apps_offers_its_own_tools() {
    let home = std::env::temp_dir().join(format!("sansmcp-gateway-{}", std::process::id()));
    std::fs::create_dir_all(&home).expect("a folder");
    let mut command = tokio::process::Command::new(program("gateway"));
    command.arg(&home);
    let gateway = start(command);
    let tools = gateway.peer().list_tools().await.expect("tools");
    assert!(tools.iter().any(|tool| &*tool.name == "tesseron__claim_session"));
    drop(gateway);
    std::fs::remove_dir_all(&home).expect("no folder");
}
