//! Every transport: opened, used by an endpoint, closed; and what is said when it cannot be opened.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter_tokio::{Child, Error, LineIo, TcpListener, child, connect, duplex, serve, tcp_connect};
use protocol_core::drive::FrameIo;
use protocol_core::endpoint::{Context, Peer, Service, Tool};
use protocol_core::{Close, CloseReason, Config, Identity, Json, Outcome};
use tokio::io::AsyncReadExt;

fn service() -> Arc<Service> {
    Arc::new(
        Service::new(Identity::new("server", "1"))
            .tool(Tool::new("greet", async |_: Context, ()| Ok("hello")))
            .tool(Tool::blocking("block", |_: Context, ()| {
                std::thread::sleep(Duration::from_millis(20));
                Ok("done")
            }))
            .tool(Tool::new("nap", async |context: Context, ()| Ok(context.sleep(Duration::from_millis(20)).await.is_ok()))),
    )
}

fn client() -> Config {
    Config::mcp_client(Identity::new("client", "1"))
}

/// Calls every tool of [`service`] and closes.
async fn use_and_close(peer: Peer) {
    for tool in ["greet", "block", "nap"] {
        let done = peer.call_tool(tool, Json::parse("{}").unwrap()).unwrap().await;
        assert!(matches!(done.outcome, Outcome::Result(_)), "{tool}: {:?}", done.outcome);
    }
    peer.close(Close::Now);
}

/// One end serves, the other calls and closes.
async fn exercise<A, B>(serving: A, calling: B)
where
    A: FrameIo<Error = std::io::Error> + Send + 'static,
    B: FrameIo<Error = std::io::Error> + Send + 'static,
{
    let (serving, calling) = (serve(service(), serving), connect(Arc::new(()), client(), calling));
    use_and_close(calling.peer()).await;
    assert_eq!(calling.await.unwrap(), CloseReason::Local);
    assert_eq!(serving.await.unwrap(), CloseReason::Eof);
}

#[tokio::test]
async fn an_endpoint_serves_over_memory() {
    let (one, other) = duplex(7);
    exercise(one, other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_serves_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().to_string();
    let (accepted, connected) = tokio::join!(listener.accept(), tcp_connect(&address));
    exercise(accepted.unwrap(), connected.unwrap()).await;
}

#[tokio::test]
async fn an_address_that_is_taken_or_empty_is_named_in_the_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().to_string();
    let taken = TcpListener::bind(&address).await.unwrap_err();
    assert!(taken.to_string().starts_with(&format!("cannot listen on {address}: Address already in use")), "{taken}");
    drop(listener);
    let empty = tcp_connect(&address).await.unwrap_err();
    assert!(empty.to_string().starts_with(&format!("cannot connect to {address}: Connection refused")), "{empty}");
    let nonsense = tcp_connect("no port").await.unwrap_err();
    assert!(matches!(nonsense, Error::Connect { .. }), "{nonsense}");
}

#[cfg(unix)]
mod unix {
    use super::*;
    use adapter_tokio::{UnixListener, unix_connect};

    fn path(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("adapter-tokio-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[tokio::test]
    async fn an_endpoint_serves_over_a_unix_socket_whose_file_goes_with_the_listener() {
        let path = path("serve");
        let listener = UnixListener::bind(&path).unwrap();
        let (accepted, connected) = tokio::join!(listener.accept(), unix_connect(&path));
        exercise(accepted.unwrap(), connected.unwrap()).await;
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_path_that_exists_is_left_alone() {
        let path = path("exists");
        std::fs::write(&path, "precious").unwrap();
        let error = UnixListener::bind(&path).unwrap_err();
        assert!(matches!(&error, Error::PathExists { path: named } if *named == path), "{error}");
        assert!(error.to_string().contains("exists already"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        let error = unix_connect(&path).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot connect to {}: No such file", path.display())), "{error}");
    }

    #[tokio::test]
    async fn a_socket_file_that_somebody_put_in_our_place_is_left_alone() {
        let path = path("replaced");
        let ours = UnixListener::bind(&path).unwrap();
        // Made before ours is removed, so that it cannot get the same number.
        let elsewhere = path.with_extension("other");
        std::fs::write(&elsewhere, "theirs").unwrap();
        std::fs::rename(&elsewhere, &path).unwrap();
        drop(ours);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        std::fs::remove_file(&path).unwrap();
    }
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A server of one answer each for the handshake and for the first call.
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

#[tokio::test]
async fn a_program_that_is_not_there_is_named_in_the_error() {
    let error = child(Command::new("no-such-program")).unwrap_err();
    assert!(error.to_string().starts_with("cannot start `no-such-program`: No such file"), "{error}");
}

#[tokio::test]
async fn a_child_that_answers_and_exits_loses_nothing_and_its_status_is_known() {
    // Its exit and our next write race; the answer must win either way.
    for _ in 0..50 {
        let transport = child(sh(&format!("{ANSWERS}\nexit 3"))).unwrap();
        let exit = transport.exit();
        let connection = connect(Arc::new(()), client(), transport);
        let peer = connection.peer();
        let first = peer.call_tool("any", Json::parse("{}").unwrap()).unwrap();
        let done = first.await;
        assert!(matches!(done.outcome, Outcome::Result(_)), "{:?}", done.outcome);
        if let Ok(second) = peer.call_tool("any", Json::parse("{}").unwrap()) {
            assert_eq!(second.await.outcome, Outcome::Lost);
        }
        // In order or not: that depends on whether our second call was written before it exited.
        let _ = connection.await;
        assert_eq!(exit.status().and_then(|status| status.code()), Some(3));
    }
}

#[tokio::test]
async fn a_child_is_asked_to_exit_by_the_end_of_its_input() {
    let transport = child(sh(&format!("{ANSWERS}\ncat >/dev/null; echo 'last words'; exit 7"))).unwrap();
    let exit = transport.exit();
    let connection = connect(Arc::new(()), client(), transport);
    connection.peer().ready().await.unwrap();
    assert_eq!(exit.status(), None);
    connection.peer().call_tool("any", Json::parse("{}").unwrap()).unwrap().await;
    connection.peer().close(Close::Now);
    assert_eq!(connection.await.unwrap(), CloseReason::Local);
    assert_eq!(exit.status().and_then(|status| status.code()), Some(7));
}

/// Whether there is a process, a zombie included.
#[cfg(target_os = "linux")]
fn is_there(process: u32) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

/// A child that first says its process id on standard error.
async fn with_id(script: &str) -> (Child, u32) {
    let mut command = sh(&format!("echo $$ >&2; exec 2>/dev/null; {script}"));
    command.stderr(Stdio::piped());
    let mut transport = child(command).unwrap();
    let mut id = String::new();
    transport.take_stderr().unwrap().read_to_string(&mut id).await.unwrap();
    (transport, id.trim().parse().unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_that_does_not_exit_is_killed_after_the_grace_although_it_talks_without_end() {
    let (transport, process) = with_id("exec yes '{}'").await;
    let transport = transport.with_exit_grace(Duration::from_millis(300));
    let exit = transport.exit();
    let connection = connect(Arc::new(()), client(), transport);
    let begin = Instant::now();
    connection.peer().close(Close::Now);
    assert_eq!(connection.await.unwrap(), CloseReason::Local);
    assert!(begin.elapsed() >= Duration::from_millis(300) && begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert_eq!(exit.status().map(|status| status.success()), Some(false));
    assert!(!is_there(process));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_whose_connection_is_dropped_is_killed_and_leaves_no_zombie() {
    let (transport, process) = with_id("exec sleep 1000").await;
    assert!(is_there(process));
    drop(connect(Arc::new(()), client(), transport));
    for _ in 0..200 {
        if !is_there(process) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the child is still there");
}

#[tokio::test]
async fn a_peer_that_vanishes_is_an_error_that_says_so() {
    let (one, other) = tokio::io::duplex(64);
    let (reader, writer) = tokio::io::split(one);
    let connection = serve(service(), LineIo::new(Vanished(reader), writer));
    let error = connection.await.unwrap_err();
    assert_eq!(error.to_string(), "the connection broke: connection reset");
    drop(other);
}

/// A reader that is reset.
struct Vanished<R>(R);

impl<R: Unpin> tokio::io::AsyncRead for Vanished<R> {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
        _into: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()))
    }
}
