//! Transports that cannot be opened, that break, and that belong to a child process: the error messages, and the end of every open call.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use adapter_io::Error;
use bytes::Bytes;
use endpoint::{Call, Service, Tool};
use protocol_core::drive::FrameIo;
use protocol_core::{Close, CloseReason, Json, Outcome, Transmit};

use crate::harness::{Stage, client, identity};
use crate::processes;
use crate::scratch::Scratch;
use crate::until::until;
use programs::adapter::{Adapter, Link, Place};

crate::harness::rows! { $ each_transport_fault ():
    an_error_names_the_port_that_is_in_use
    an_error_names_the_address_without_a_listener
    an_existing_file_is_not_replaced_and_an_error_names_it
    a_socket_file_is_removed_with_its_listener
    a_file_that_has_replaced_a_socket_file_is_not_removed
    an_error_names_the_missing_program
    a_transport_that_fails_mid_write_loses_every_open_call
    a_reader_that_is_reset_loses_every_open_call
    unread_answers_of_a_child_that_has_exited_are_received_and_other_calls_are_lost
    a_child_that_is_killed_loses_every_open_call
    a_child_is_asked_to_exit_by_the_end_of_its_input
    a_child_that_does_not_exit_is_killed_after_the_grace_even_while_it_writes
    a_child_whose_connection_is_dropped_is_killed_and_leaves_no_zombie
    a_child_gets_sigterm_half_a_second_before_sigkill
    the_whole_process_group_of_a_child_ends_with_its_connection
    a_server_on_stdio_answers_and_exits_when_its_input_ends
    a_server_on_stdio_exits_when_its_session_ends_although_its_input_stays_open
}

fn no_arguments() -> Json {
    Json::parse("{}").expect("JSON")
}

fn failed<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error,
    }
}

async fn an_error_names_the_port_that_is_in_use<A: Adapter>(stage: Stage<A>) {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = failed(stage.adapter.listen(Place::Tcp(address.clone())).await);
    assert!(matches!(&error, Error::Listen { address: named, .. } if *named == address), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: Address already in use")), "{error}");
}

async fn an_error_names_the_address_without_a_listener<A: Adapter>(stage: Stage<A>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let error = failed(stage.adapter.reach(Place::Tcp(address.clone())).await);
    assert!(error.to_string().starts_with(&format!("cannot connect to {address}: Connection refused")), "{error}");
    let error = failed(stage.adapter.reach(Place::Tcp("no port".into())).await);
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let path = Scratch::new("nowhere");
    let error = failed(stage.adapter.reach(Place::Unix(path.clone())).await);
    assert!(error.to_string().starts_with(&format!("cannot connect to {}: No such file", path.display())), "{error}");
}

async fn an_existing_file_is_not_replaced_and_an_error_names_it<A: Adapter>(stage: Stage<A>) {
    let path = Scratch::new("exists");
    fs::write(&path, "precious").expect("a file");
    let error = failed(stage.adapter.listen(Place::Unix(path.clone())).await);
    assert!(matches!(&error, Error::PathExists { path: named } if *named == *path), "{error}");
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(fs::read(&path).expect("the file"), b"precious");
    fs::remove_file(&path).expect("the file");
    // A socket file without a listener is kept as well, since it may still be of use to its owner.
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(matches!(failed(stage.adapter.listen(Place::Unix(path.clone())).await), Error::PathExists { .. }));
    fs::remove_file(&path).expect("the file");
}

async fn a_socket_file_is_removed_with_its_listener<A: Adapter>(stage: Stage<A>) {
    let path = Scratch::new("goes");
    let listener = stage.adapter.listen(Place::Unix(path.clone())).await.expect("a listener");
    assert!(path.exists());
    drop(listener);
    assert!(!path.exists());
}

async fn a_file_that_has_replaced_a_socket_file_is_not_removed<A: Adapter>(stage: Stage<A>) {
    let path = Scratch::new("replaced");
    let ours = stage.adapter.listen(Place::Unix(path.clone())).await.expect("a listener");
    // The other file is made before ours is removed, so that it cannot get the same inode number.
    let elsewhere = path.with_extension("other");
    fs::write(&elsewhere, "theirs").expect("a file");
    fs::rename(&elsewhere, &path).expect("a file");
    drop(ours);
    assert_eq!(fs::read(&path).expect("the file"), b"theirs");
    fs::remove_file(&path).expect("the file");
}

async fn an_error_names_the_missing_program<A: Adapter>(stage: Stage<A>) {
    let error = failed(stage.adapter.child(Command::new("no-such-program")));
    assert!(error.to_string().starts_with("cannot start `no-such-program`: No such file"), "{error}");
}

/// Checks that each of these calls is lost, and that no new call can be made. Returns the end of the connection.
async fn calls_are_lost(Link { peer, end }: Link, calls: Vec<Call>) -> Result<CloseReason, Error> {
    for call in calls {
        assert_eq!(call.await.outcome, Outcome::Lost);
    }
    assert!(peer.call_tool("any", no_arguments()).is_err(), "the session has ended");
    end.await
}

/// A transport that fails at every write, and whose reads stay pending; or one that fails at every read.
struct Broken {
    /// `true` if the writes fail, `false` if the reads fail.
    fails_at_write: bool,
}

impl FrameIo for Broken {
    type Error = io::Error;

    fn poll_recv(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.fails_at_write { Poll::Pending } else { Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())) }
    }

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(&mut self, _transmit: Transmit) -> io::Result<()> {
        Ok(())
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(if self.fails_at_write { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) })
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn breaks<A: Adapter>(stage: &Stage<A>, broken: Broken) -> Error {
    let link = stage.adapter.connect(Arc::new(()), client(), Box::new(broken));
    let calls = (0..3).filter_map(|_| link.peer.call_tool("any", no_arguments()).ok()).collect();
    failed(calls_are_lost(link, calls).await)
}

async fn a_transport_that_fails_mid_write_loses_every_open_call<A: Adapter>(stage: Stage<A>) {
    let error = breaks(&stage, Broken { fails_at_write: true }).await;
    assert_eq!(error.to_string(), "the connection broke: broken pipe");
}

async fn a_reader_that_is_reset_loses_every_open_call<A: Adapter>(stage: Stage<A>) {
    let error = breaks(&stage, Broken { fails_at_write: false }).await;
    assert_eq!(error.to_string(), "the connection broke: connection reset");
    // The serving end reports the same error.
    let service =
        Service::new(identity().name, identity().version).tool(Tool::new("greet", async |_: endpoint::Context, ()| Ok("hello")));
    let link = stage.adapter.serve(Arc::new(service), Box::new(Broken { fails_at_write: false }));
    assert_eq!(failed(link.end.await).to_string(), "the connection broke: connection reset");
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A shell script that answers the handshake and the first call.
const ANSWERS: &str = r#"
    answer() {
        read -r request
        id=${request##*\"id\":}
        echo '{"jsonrpc":"2.0","id":'${id%%[,\}]*}',"result":'$1'}'
    }
    answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}'
    read -r initialized
    answer '{"content":[]}'
"#;

async fn unread_answers_of_a_child_that_has_exited_are_received_and_other_calls_are_lost<A: Adapter>(stage: Stage<A>) {
    // The exit of the child and our next write race; the answer must be received in either case.
    for _ in 0..20 {
        let (transport, exit) = stage.adapter.child(sh(&format!("{ANSWERS}\nexit 3"))).expect("a shell");
        let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), transport);
        let first = peer.call_tool("any", no_arguments()).expect("a call");
        let done = first.await;
        assert!(matches!(done.outcome, Outcome::Result(_)), "{:?}", done.outcome);
        if let Ok(second) = peer.call_tool("any", no_arguments()) {
            assert_eq!(second.await.outcome, Outcome::Lost);
        }
        // The connection may end with an error, if our second call was not written before the exit.
        let _ = end.await;
        assert_eq!(exit.status().and_then(|status| status.code()), Some(3));
    }
}

async fn a_child_that_is_killed_loses_every_open_call<A: Adapter>(stage: Stage<A>) {
    let (transport, exit) = stage.adapter.child(sh(&format!("{ANSWERS}\nread -r more; kill -9 $$"))).expect("a shell");
    let link = stage.adapter.connect(Arc::new(()), client(), transport);
    link.peer.call_tool("any", no_arguments()).expect("a call").await;
    let calls = (0..3).filter_map(|_| link.peer.call_tool("any", no_arguments()).ok()).collect();
    // Either the output of the child ends first, or our pipe to it breaks.
    let _ = calls_are_lost(link, calls).await;
    assert_eq!(exit.status().map(|status| status.success()), Some(false));
}

async fn a_child_is_asked_to_exit_by_the_end_of_its_input<A: Adapter>(stage: Stage<A>) {
    let script = format!("{ANSWERS}\ncat >/dev/null; echo 'last words'; exit 7");
    let (transport, exit) = stage.adapter.child(sh(&script)).expect("a shell");
    let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), transport);
    peer.ready().await.expect("a handshake");
    assert_eq!(exit.status(), None);
    peer.call_tool("any", no_arguments()).expect("a call").await;
    peer.close(Close::Now);
    assert_eq!(end.await.expect("a regular end"), CloseReason::Local);
    assert_eq!(exit.status().and_then(|status| status.code()), Some(7));
}

/// Returns `true` if the process exists, also as a zombie.
fn is_there(process: &str) -> bool {
    let asked = Command::new("kill").args(["-0", process]).stderr(std::process::Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Starts a child process with a shell script. Returns its transport, its exit status and its process id.
async fn with_id<A: Adapter>(stage: &Stage<A>, script: &str) -> (programs::adapter::Transport, adapter_io::Exit, String) {
    let pipe = Scratch::new("id");
    assert!(Command::new("mkfifo").arg(&*pipe).status().expect("mkfifo").success());
    let script = format!("echo $$ > {}; {script}", pipe.display());
    let (transport, exit) = stage.adapter.child_with_grace(sh(&script), Duration::from_millis(300)).expect("a shell");
    let id = stage.block(move || fs::read_to_string(&*pipe).expect("its id").trim().to_owned()).await;
    (transport, exit, id)
}

async fn a_child_that_does_not_exit_is_killed_after_the_grace_even_while_it_writes<A: Adapter>(stage: Stage<A>) {
    let (transport, exit, process) = with_id(&stage, "exec yes '{}'").await;
    let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), transport);
    let begin = Instant::now();
    peer.close(Close::Now);
    assert_eq!(end.await.expect("an end in order"), CloseReason::Local);
    assert!(begin.elapsed() >= Duration::from_millis(300) && begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert_eq!(exit.status().map(|status| status.success()), Some(false));
    assert!(!is_there(&process));
}

async fn a_child_whose_connection_is_dropped_is_killed_and_leaves_no_zombie<A: Adapter>(stage: Stage<A>) {
    let (transport, _, process) = with_id(&stage, "exec sleep 1000").await;
    assert!(is_there(&process));
    drop(stage.adapter.connect(Arc::new(()), client(), transport));
    stage.block(move || until("the child is gone", || (!is_there(&process)).then_some(()))).await;
}

async fn a_child_gets_sigterm_half_a_second_before_sigkill<A: Adapter>(stage: Stage<A>) {
    let (transport, exit, _) = with_id(&stage, "trap 'exit 5' TERM; sleep 1000 & wait").await;
    let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), transport);
    peer.close(Close::Now);
    assert_eq!(end.await.expect("an end in order"), CloseReason::Local);
    assert_eq!(exit.status().and_then(|status| status.code()), Some(5));

    let (transport, exit, _) = with_id(&stage, "trap '' TERM; while :; do sleep 1000; done").await;
    let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), transport);
    let begin = Instant::now();
    peer.close(Close::Now);
    assert_eq!(end.await.expect("an end in order"), CloseReason::Local);
    assert!(begin.elapsed() >= Duration::from_millis(800) && begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert_eq!(exit.status().and_then(|status| status.code()), None, "it was killed");
}

/// Seen in the field: `sh -c 'server; true'` died at SIGTERM, and the server lived on; and a helper of a server that exited at the end of
/// its input got no signal at all.
async fn the_whole_process_group_of_a_child_ends_with_its_connection<A: Adapter>(stage: Stage<A>) {
    for (script, seconds) in [
        // The shell dies at SIGTERM, but not what it has started.
        ("sh -c 'trap \"\" TERM; sleep 1000; sleep 1000'; true", 4),
        // The child exits at the end of its input, and leaves a helper.
        ("sleep 1000 & cat > /dev/null", 3),
        ("sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & cat > /dev/null", 4),
        // The child exits before the connection ends.
        ("sleep 1000 > /dev/null & exit 3", 3),
    ] {
        let (transport, exit, process) = with_id(&stage, script).await;
        let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), transport);
        let begin = Instant::now();
        if !script.ends_with("exit 3") {
            peer.close(Close::Now);
        }
        // The connection may end with an error, if the handshake was not written before the exit.
        let _ = end.await;
        assert!(!processes::runs(&process), "{script}");
        assert!(begin.elapsed() < Duration::from_secs(seconds), "{script}: {:?}", begin.elapsed());
        assert!(exit.status().is_some(), "{script}");
    }
    let (transport, _, process) = with_id(&stage, "sleep 1000 & sleep 1000; true").await;
    drop(stage.adapter.connect(Arc::new(()), client(), transport));
    stage.block(move || until("the group is gone", || (!processes::runs(&process)).then_some(()))).await;
}

fn long(length: usize) -> Json {
    Json::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(length))).expect("JSON")
}

async fn a_server_on_stdio_answers_and_exits_when_its_input_ends<A: Adapter>(stage: Stage<A>) {
    let calling = stage.call(Arc::new(()), client()).await;
    for length in [0, 1, 1000, 1_000_000] {
        let result = calling.peer.call_tool("length", long(length)).expect("a call").await.result().expect("a result");
        assert_eq!(result.member("structuredContent").expect("a number").as_str(), format!(r#"{{"result":{length}}}"#));
    }
    let exit = calling.exit.clone();
    assert_eq!(calling.close().await, ["far: the peer ended the connection", "near: closed by this end"]);
    assert!(exit.status().is_some_and(|status| status.success()));
}

async fn a_server_on_stdio_exits_when_its_session_ends_although_its_input_stays_open<A: Adapter>(stage: Stage<A>) {
    let calling = stage.call(Arc::new(()), client()).await;
    calling.peer.call_tool("length", long(3_000_000)).expect("a call").await.result().expect("a result");
    let exit = calling.exit.clone();
    // The server closes its session when the test adds this line to its book (`Far::ClosingService`).
    calling.far.book.note("leave");
    // Our end keeps the input of the child open until the output of the child ends.
    assert_eq!(calling.ended().await, ["far: leave", "far: closed by this end", "near: the peer ended the connection"]);
    assert!(exit.status().is_some_and(|status| status.success()));
}
