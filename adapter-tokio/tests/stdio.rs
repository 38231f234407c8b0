//! Standard input and output, in a process of its own: this test program starts itself.
//!
//! What the test harness prints around the frames is what a server prints by mistake: lines that are no JSON.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use adapter_tokio::{child, connect, serve, stdio};
use protocol_core::endpoint::{Context, Service, Tool};
use protocol_core::{Close, CloseReason, Config, Identity, Json, Outcome};

/// Serves until the client goes, or until it calls `leave`. Not a test by itself.
#[tokio::test]
#[ignore = "started by the other tests"]
async fn serves_on_stdio() {
    let service = Service::new(Identity::new("stdio", "1"))
        .tool(Tool::new("length", async |_: Context, given: BTreeMap<String, String>| Ok(given["text"].len())))
        .tool(Tool::new("leave", async |_: Context, ()| Ok("bye")));
    let connection = serve(Arc::new(service), stdio());
    let peer = connection.peer();
    tokio::spawn(async move {
        while peer.stats().bytes_in < LEAVE_AFTER {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        peer.close(Close::Now);
    });
    connection.await.unwrap();
}

/// With so many bytes read the server leaves by itself.
const LEAVE_AFTER: u64 = 3_000_000;

fn itself() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "serves_on_stdio", "--nocapture", "--quiet"]);
    command
}

fn text(length: usize) -> Json {
    Json::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(length))).unwrap()
}

#[tokio::test]
async fn a_server_on_stdio_answers_and_exits_when_its_input_ends() {
    let transport = child(itself()).unwrap();
    let exit = transport.exit();
    let connection = connect(Arc::new(()), Config::mcp_client(Identity::new("client", "1")), transport);
    for length in [0, 1, 1000, 1_000_000] {
        let done = connection.peer().call_tool("length", text(length)).unwrap().await;
        let Outcome::Result(result) = done.outcome else { panic!("{:?}", done.outcome) };
        assert_eq!(result.member("structuredContent").unwrap().as_str(), format!(r#"{{"result":{length}}}"#));
    }
    connection.peer().close(Close::Now);
    assert_eq!(connection.await.unwrap(), CloseReason::Local);
    assert!(exit.status().unwrap().success());
}

#[tokio::test]
async fn a_server_on_stdio_exits_when_its_session_ends_although_its_input_stays_open() {
    let transport = child(itself()).unwrap().with_exit_grace(Duration::from_secs(60));
    let exit = transport.exit();
    let connection = connect(Arc::new(()), Config::mcp_client(Identity::new("client", "1")), transport);
    let _ = connection.peer().call_tool("length", text(LEAVE_AFTER as usize)).unwrap().await;
    // Our end keeps its input open until its output ends.
    assert_eq!(connection.await.unwrap(), CloseReason::Eof);
    assert!(exit.status().unwrap().success());
}
