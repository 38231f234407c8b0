//! Both bindings of Tesseron (a WebSocket and a Unix socket) at both ends, and the manifests by which gateways find apps: the answers of an
//! app to every kind of dial, and the reactions of a gateway to every kind of answer. *Host* is the specification's word for the end that
//! listens, which is the app.

use std::fs;
use std::future::poll_fn;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter_io::Error as TransportError;
use bytes::Bytes;
use protocol_core::drive::FrameIo;
use protocol_core::{Close, CloseReason, Json, Transmit};
use serde_json::{Value, json};
use tesseron::TesseronError;
use tesseron::claims::{Agent, ClaimCode, DialFailed, HostPolicy};
use tesseron::net::{
    Address, Binding, ClaimCodeSource, FolderRefused, Home, Instance, LoopbackUrl, TesseronListener, TesseronOptions,
    TesseronTransport,
};
use tungstenite::handshake::derive_accept_key;

use super::{far, tools};
use crate::harness::raw::{self, Raw};
use crate::harness::{Book, Over, Stage, Wire, client};
use crate::scratch::Scratch;
use crate::until::until;
use programs::adapter::{Adapter, Link, Started, start, start_blocking};

crate::harness::rows! { $ each_tesseron_row ():
    a_dial_without_the_subprotocol_of_a_gateway_is_dropped_without_an_answer
    a_request_that_is_no_upgrade_is_dropped_without_an_answer
    a_malformed_bind_is_answered_with_400
    wrong_codes_are_answered_with_403_ever_more_slowly_and_the_right_one_is_accepted
    regression_silent_connections_do_not_keep_others_out
    the_oldest_silent_connections_are_closed_to_make_room
    a_dial_without_a_code_is_answered_with_426_while_there_is_a_claim
    the_right_code_is_accepted_in_any_case_with_the_subprotocol_and_no_extension
    a_taken_or_used_claim_is_answered_with_409_and_the_reason
    an_app_for_any_user_accepts_gateways_with_its_code
    an_app_without_a_claim_accepts_one_gateway_at_a_time
    stalled_dials_do_not_affect_others_and_are_dropped_in_time
    messages_of_a_web_socket_are_frames_and_pings_are_answered
    a_web_socket_is_closed_with_1000_and_a_reason_and_any_close_is_echoed
    a_message_over_the_limit_closes_the_session
    a_unix_socket_is_bound_before_anything_else
    a_bind_without_a_code_is_refused_and_the_socket_stays_open
    a_frame_before_the_bind_is_refused_and_closes_the_socket
    a_wrong_code_closes_its_unix_socket_and_the_right_one_is_accepted
    regression_a_second_socket_to_an_app_without_a_claim_gets_an_error
    a_second_bind_is_refused_and_the_socket_stays_open
    a_socket_that_is_never_bound_is_closed_in_time
    the_socket_is_accessible_only_to_its_user
    calls_pass_in_both_directions_over_either_binding
    an_app_has_a_new_code_as_soon_as_its_gateway_has_disconnected
    an_app_has_a_new_code_once_its_transport_is_dropped_or_closed
    the_manifest_has_every_member_and_is_removed_with_its_listener
    the_manifest_is_refreshed_only_while_the_app_is_not_bound
    the_manifest_names_the_agent_that_has_the_claim
    a_manifest_that_cannot_be_written_is_reported_and_written_later
    dropping_a_listener_refuses_new_connections_and_keeps_its_channel
    the_manifest_of_an_app_whose_runtime_has_ended_is_removed
    a_dial_from_a_page_in_a_browser_is_refused
    a_dial_to_a_host_that_never_answers_times_out
    regression_a_dial_to_a_host_that_never_stops_sending_times_out
    an_answer_that_is_no_upgrade_of_tesseron_is_refused
    a_message_right_after_the_upgrade_is_not_lost
    a_frame_before_the_answer_to_a_bind_is_dropped
    a_path_that_is_not_a_socket_of_this_user_is_not_dialled
    the_error_of_a_refused_gateway_has_the_reason
    an_app_name_that_a_manifest_cannot_have_is_refused
}

/// Declares a test for each row.
#[macro_export]
macro_rules! tesseron_tests {
    ([$adapter:ty] $($row:ident)*) => {$(
        #[test]
        fn $row() {
            use $crate::harness::Over;
            use $crate::scenarios::{play_on, tesseron};
            play_on::<$adapter>(1, Over::Duplex, stringify!($row), tesseron::play);
        }
    )*};
}

const GATEWAY: &str = "tesseron-gateway";

/// The subprotocols that a gateway with this code offers.
fn with_code(code: &str) -> String {
    format!("{GATEWAY},tesseron-bind.{code}")
}

/// A code that is wrong for every app, since it is longer than the codes that we make.
const WRONG: &str = "WRONG-CODE";

/// An app that listens. Its manifest is in a home directory of its own.
struct App {
    listener: TesseronListener,
    home: OwnHome,
}

/// A home directory, which is removed when this value is dropped.
struct OwnHome(Scratch);

impl OwnHome {
    fn new() -> Self {
        Self(Scratch::new("home"))
    }

    fn instances(&self) -> PathBuf {
        Home::at(&*self.0).instances()
    }

    /// Reads the manifests of all apps of this home.
    fn read(&self) -> Vec<Instance> {
        let read = Home::at(&*self.0).read_instances().expect("a folder of ours");
        read.into_iter().map(|instance| instance.expect("a manifest of ours")).collect()
    }
}

impl App {
    async fn start<A: Adapter>(stage: &Stage<A>, binding: Binding, source: ClaimCodeSource) -> Self {
        Self::with(stage, binding, source, false).await
    }

    /// Starts an app, which accepts gateways of any user of this machine if `any_user`.
    async fn with<A: Adapter>(stage: &Stage<A>, binding: Binding, source: ClaimCodeSource, any_user: bool) -> Self {
        let home = OwnHome::new();
        let mut options = TesseronOptions::new("An app", binding);
        options.claim_code_source = source;
        options.any_user = any_user;
        options.home = Some(home.0.clone());
        let listener = stage.adapter.tesseron_listen(options).await.expect("a listener");
        Self { listener, home }
    }

    /// Starts an app that makes its own claim code.
    async fn minting<A: Adapter>(stage: &Stage<A>, binding: Binding) -> Self {
        Self::start(stage, binding, ClaimCodeSource::default()).await
    }

    fn address(&self) -> &Address {
        self.listener.address()
    }

    fn code(&self) -> ClaimCode {
        self.listener.claim_code().expect("a claim")
    }

    /// Reads the one manifest of this home.
    fn instance(&self) -> Instance {
        let [instance] = <[_; 1]>::try_from(self.home.read()).expect("one manifest");
        instance
    }

    fn manifest(&self) -> Value {
        serde_json::from_slice(&fs::read(self.listener.manifest_path()).expect("a manifest")).expect("JSON")
    }

    /// Dials the app with this code. Returns the gateway's end of the channel and the app's end.
    async fn bound<A: Adapter>(&self, stage: &Stage<A>, code: Option<ClaimCode>) -> (TesseronTransport, TesseronTransport) {
        let gateway = stage.adapter.tesseron_dial(&self.instance(), code).await.expect("a channel");
        (gateway, self.listener.accept().await.expect("a channel"))
    }

    /// Connects a scripted gateway, which asks for an upgrade with these subprotocols.
    async fn dialled<A: Adapter>(&self, stage: &Stage<A>, protocols: &str) -> Raw {
        let (address, protocols) = (self.address().clone(), protocols.to_owned());
        stage.block(move || Raw::dial(&address, &protocols)).await
    }

    /// The HTTP status of the answer to a scripted dial; `None` if there is no answer.
    async fn status<A: Adapter>(&self, stage: &Stage<A>, protocols: &str) -> Option<u16> {
        let mut raw = self.dialled(stage, protocols).await;
        stage.block(move || raw.status()).await
    }

    /// Connects a script that writes and reads lines of the app's Unix socket.
    fn wire(&self) -> Wire {
        let Address::Unix(path) = self.address() else { panic!("{} is no Unix socket", self.address()) };
        Wire::over_unix(UnixStream::connect(path).expect("an app"))
    }

    /// The answers to these lines, which a new connection sends one by one. `None` is the end of the connection.
    async fn answers<A: Adapter>(&self, stage: &Stage<A>, lines: &[Value]) -> Vec<Option<Value>> {
        let (mut wire, lines) = (self.wire(), lines.to_vec());
        stage.block(move || lines.iter().map(|line| ask(&mut wire, line)).collect()).await
    }
}

fn ask(wire: &mut Wire, line: &Value) -> Option<Value> {
    wire.write(line);
    wire.read()
}

fn bind(id: &str, code: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tesseron/bind", "params": {"code": code}})
}

/// The id and the code of an error.
fn error(answer: Option<&Value>) -> (Value, i64) {
    let answer = answer.expect("an answer");
    (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}")))
}

async fn receive(transport: &mut TesseronTransport) -> Option<String> {
    let frame = poll_fn(|cx| transport.poll_recv(cx)).await.expect("a transport in order");
    frame.map(|frame| String::from_utf8(frame.to_vec()).expect("text"))
}

async fn send(transport: &mut TesseronTransport, frame: &'static str) {
    poll_fn(|cx| transport.poll_ready(cx)).await.expect("a transport in order");
    transport.start_send(Transmit::new(Bytes::from_static(frame.as_bytes()))).expect("a transport in order");
    poll_fn(|cx| transport.poll_flush(cx)).await.expect("a transport in order");
}

fn failed<T>(result: Result<T, TesseronError>) -> TesseronError {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error,
    }
}

/// Starts a blocking job that runs at the same time as the row. The returned future waits for the job.
fn aside<A: Adapter, T: Send + 'static>(stage: &Stage<A>, job: impl FnOnce() -> T + Send + 'static) -> Started<T> {
    start_blocking(&*stage.adapter.runtime(), job)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

// ---- An app on a WebSocket ----

async fn a_dial_without_the_subprotocol_of_a_gateway_is_dropped_without_an_answer<A: Adapter>(stage: Stage<A>) {
    for source in [ClaimCodeSource::default(), ClaimCodeSource::Gateway] {
        let app = App::start(&stage, Binding::WebSocket, source).await;
        for protocols in ["", "chat", "Tesseron-Gateway", "tesseron-bind.ABCD-EF"] {
            assert_eq!(app.status(&stage, protocols).await, None, "{protocols}");
        }
    }
}

async fn a_request_that_is_no_upgrade_is_dropped_without_an_answer<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let whole = raw::upgrade(&with_code(app.code().reveal()));
    let requests = [
        "\r\n\r\n".into(),
        "{}\n".into(),
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".into(),
        whole.replace("GET", "POST"),
        whole.replace("HTTP/1.1", "HTTP/1.0"),
        whole.replace("Version: 13", "Version: 8"),
        whole.replace("Sec-WebSocket-Key", "Key"),
        whole.replace("Upgrade: websocket\r\n", ""),
        whole.replace("Host: ", &"X-Filler: yes\r\n".repeat(1000)),
        format!("GET /{}", "x".repeat(100_000)),
    ];
    for request in requests {
        let address = app.address().clone();
        let answer = stage.block(move || {
            let mut raw = Raw::connect(&address);
            raw.write(request.as_bytes());
            raw.head()
        });
        assert_eq!(answer.await, None);
    }
    assert_eq!(app.status(&stage, &with_code(app.code().reveal())).await, Some(101), "the claim can still be used");
}

async fn a_malformed_bind_is_answered_with_400<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let code = app.code();
    let right = with_code(code.reveal());
    for protocols in [
        with_code(""),
        with_code("A!"),
        with_code("../x"),
        with_code(&"x".repeat(65)),
        format!("{right},tesseron-bind.{}", code.reveal()),
    ] {
        assert_eq!(app.status(&stage, &protocols).await, Some(400), "{protocols}");
    }
}

async fn wrong_codes_are_answered_with_403_ever_more_slowly_and_the_right_one_is_accepted<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let begin = Instant::now();
    for wrong in 1..=6 {
        assert_eq!(app.status(&stage, &with_code(WRONG)).await, Some(403), "the {wrong}th");
    }
    // The six answers are delayed by 0, 125, 250, 500, 1000 and 2000 ms.
    assert!(begin.elapsed() >= Duration::from_millis(3875), "{:?}", begin.elapsed());
    let last = Instant::now();
    let _bound = app.bound(&stage, Some(app.code())).await;
    assert!(last.elapsed() >= Duration::from_millis(2000), "the right code takes as long as a wrong one: {:?}", last.elapsed());
}

/// A policy with which an app waits for an upgrade longer than any test takes.
fn patient() -> HostPolicy {
    let mut policy = HostPolicy::default();
    policy.upgrade_wait = Duration::from_secs(3600);
    policy
}

/// Opens more silent connections than an app keeps by default (`HostPolicy::places`).
fn silent(address: &Address) -> Vec<Raw> {
    (0..100).map(|_| Raw::connect(address)).collect()
}

/// The bug: while there were 64 silent connections, every other connection was refused.
async fn regression_silent_connections_do_not_keep_others_out<A: Adapter>(stage: Stage<A>) {
    let patient = ClaimCodeSource::App(patient());
    for (source, any_user) in [(patient, false), (patient, true), (ClaimCodeSource::Gateway, true)] {
        let app = App::with(&stage, Binding::WebSocket, source, any_user).await;
        let address = app.address().clone();
        let _silent = stage.block(move || silent(&address)).await;
        let _bound = app.bound(&stage, app.listener.claim_code()).await;
    }
}

async fn the_oldest_silent_connections_are_closed_to_make_room<A: Adapter>(stage: Stage<A>) {
    let app = App::start(&stage, Binding::WebSocket, ClaimCodeSource::App(patient())).await;
    let address = app.address().clone();
    let are_closed = stage.block(move || {
        // Of the 100 connections, the app keeps the newest 64.
        let mut silent = silent(&address);
        silent.iter_mut().take(36).all(|raw| raw.status().is_none())
    });
    assert!(are_closed.await);
}

async fn a_dial_without_a_code_is_answered_with_426_while_there_is_a_claim<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    assert_eq!(app.status(&stage, GATEWAY).await, Some(426));
    let (gateway, host) = app.bound(&stage, Some(app.code())).await;
    assert_eq!(app.status(&stage, GATEWAY).await, Some(426));
    drop((gateway, host));
    assert_eq!(app.status(&stage, GATEWAY).await, Some(426));
}

async fn the_right_code_is_accepted_in_any_case_with_the_subprotocol_and_no_extension<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let mut raw = app.dialled(&stage, &format!(" {GATEWAY} , tesseron-bind.{} ", app.code().reveal().to_lowercase())).await;
    let head = stage.block(move || raw.head().expect("an answer")).await;
    let mut lines: Vec<_> = head.trim_end().split("\r\n").map(str::to_lowercase).collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "http/1.1 101 switching protocols".into(),
            "connection: upgrade".into(),
            format!("sec-websocket-accept: {}", raw::ACCEPTED.to_lowercase()),
            "sec-websocket-protocol: tesseron-gateway".into(),
            "upgrade: websocket".into(),
        ]
    );
    assert!(head.contains(raw::ACCEPTED), "{head}");
    drop(app.listener.accept().await.expect("a channel"));
}

async fn a_taken_or_used_claim_is_answered_with_409_and_the_reason<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let code = app.code();
    let expect_refusal = async |claim_code: Option<ClaimCode>, why: &str| {
        let error = failed(stage.adapter.tesseron_dial(&app.instance(), claim_code).await).to_string();
        assert_eq!(error, format!("{} refuses this gateway: {why} (HTTP status 409)", app.address()));
        let (mut raw, why) = (app.dialled(&stage, &with_code(code.reveal())).await, why.to_owned());
        let (head, body) = stage.block(move || (raw.head().expect("an answer"), raw.rest())).await;
        assert!(head.starts_with("HTTP/1.1 409 "), "{head}");
        assert_eq!(body, why);
    };
    let (_gateway, host) = app.bound(&stage, Some(code.clone())).await;
    expect_refusal(Some(code.clone()), "another gateway has just bound the claim").await;
    app.listener.handle_agent(host.channel().expect("its place"), Agent { id: "a".into(), name: "An agent".into() });
    expect_refusal(Some(code.clone()), "the claim is already bound to an agent").await;
    assert_eq!(app.status(&stage, &with_code(WRONG)).await, Some(403));

    let plain = App::start(&stage, Binding::WebSocket, ClaimCodeSource::Gateway).await;
    let _first = plain.bound(&stage, None).await;
    let error = failed(stage.adapter.tesseron_dial(&plain.instance(), None).await).to_string();
    assert_eq!(error, format!("{} refuses this gateway: this app has a gateway already (HTTP status 409)", plain.address()));
}

async fn an_app_for_any_user_accepts_gateways_with_its_code<A: Adapter>(stage: Stage<A>) {
    let app = App::with(&stage, Binding::WebSocket, ClaimCodeSource::default(), true).await;
    assert_eq!(app.status(&stage, GATEWAY).await, Some(426));
    assert_eq!(app.status(&stage, &with_code(WRONG)).await, Some(403));
    let _bound = app.bound(&stage, Some(app.code())).await;
}

async fn an_app_without_a_claim_accepts_one_gateway_at_a_time<A: Adapter>(stage: Stage<A>) {
    let app = App::start(&stage, Binding::WebSocket, ClaimCodeSource::Gateway).await;
    assert!(app.listener.claim_code().is_none() && app.listener.next_code().await.is_none());
    assert_eq!(app.status(&stage, &with_code(WRONG)).await, Some(403));
    let first = app.bound(&stage, None).await;
    assert_eq!(app.status(&stage, GATEWAY).await, Some(409));
    drop(first);
    let _second = app.bound(&stage, None).await;
    let app = App::start(&stage, Binding::Unix, ClaimCodeSource::Gateway).await;
    drop(app.bound(&stage, None).await);
    let (mut gateway, mut host) = app.bound(&stage, None).await;
    send(&mut host, "{}").await;
    assert_eq!(receive(&mut gateway).await.as_deref(), Some("{}"));
}

async fn stalled_dials_do_not_affect_others_and_are_dropped_in_time<A: Adapter>(stage: Stage<A>) {
    let mut policy = HostPolicy::default();
    policy.upgrade_wait = Duration::from_secs(5);
    let app = App::start(&stage, Binding::WebSocket, ClaimCodeSource::App(policy)).await;
    let begin = Instant::now();
    let mut stalled = Vec::new();
    for count in 0..20 {
        let (address, request) = (app.address().clone(), raw::upgrade(&with_code(app.code().reveal())));
        stalled.push(
            stage
                .block(move || {
                    let mut raw = Raw::connect(&address);
                    raw.write(&request.as_bytes()[..count * 10]);
                    raw
                })
                .await,
        );
    }
    let _bound = app.bound(&stage, Some(app.code())).await;
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    for mut raw in stalled {
        assert_eq!(stage.block(move || raw.status()).await, None);
    }
    assert!(begin.elapsed() >= Duration::from_secs(5), "{:?}", begin.elapsed());
}

async fn messages_of_a_web_socket_are_frames_and_pings_are_answered<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let mut raw = app.dialled(&stage, &with_code(app.code().reveal())).await;
    let mut raw = stage
        .block(move || {
            assert_eq!(raw.status(), Some(101));
            raw.send(raw::TEXT, b"{}");
            raw.send(raw::BINARY, "[\"\u{2603}\"]".as_bytes());
            raw.send(raw::PING, b"there?");
            // One message in three fragments.
            raw.send(0x01, b"[1");
            raw.send(0x00, b",");
            raw.send(0x80, b"2]");
            raw
        })
        .await;
    let mut host = app.listener.accept().await.expect("a channel");
    for frame in ["{}", "[\"\u{2603}\"]", "[1,2]"] {
        assert_eq!(receive(&mut host).await.as_deref(), Some(frame));
    }
    send(&mut host, "{\"a\":\"\u{2603}\"}").await;
    let long = Box::leak("x".repeat(1000).into_boxed_str());
    send(&mut host, long).await;
    let messages = stage.block(move || [raw.message(), raw.message(), raw.message()]).await;
    let [pong, short, all] = messages.map(|message| message.expect("a message"));
    assert_eq!(pong, (raw::PONG, b"there?".to_vec()));
    assert_eq!(short, (raw::TEXT, "{\"a\":\"\u{2603}\"}".as_bytes().to_vec()));
    assert_eq!(all, (raw::TEXT, long.as_bytes().to_vec()), "in one piece");
}

async fn a_web_socket_is_closed_with_1000_and_a_reason_and_any_close_is_echoed<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let mut raw = app.dialled(&stage, &with_code(app.code().reveal())).await;
    let mut host = app.listener.accept().await.expect("a channel");
    poll_fn(|cx| host.poll_close(cx)).await.expect("an end in order");
    let close = stage.block(move || raw.head().and_then(|_| raw.message())).await;
    assert_eq!(close, Some((raw::CLOSE, b"\x03\xe8the session is over".to_vec())));
    // A close with any code is a regular end.
    for code in [1000_u16, 1001, 4000] {
        let mut raw = app.dialled(&stage, &with_code(app.code().reveal())).await;
        let mut host = app.listener.accept().await.expect("a channel");
        let mut raw = stage
            .block(move || {
                raw.head();
                raw.send(raw::CLOSE, &code.to_be_bytes());
                raw
            })
            .await;
        assert_eq!(receive(&mut host).await, None);
        poll_fn(|cx| host.poll_close(cx)).await.expect("an end in order");
        let close = stage.block(move || raw.message()).await;
        assert_eq!(close, Some((raw::CLOSE, code.to_be_bytes().to_vec())));
    }
}

async fn a_message_over_the_limit_closes_the_session<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let (mut gateway, host) = app.bound(&stage, Some(app.code())).await;
    let service = tools::service(&Book::default()).configure(|config| config.limits.frame_bytes = 1000);
    let link = stage.adapter.serve(Arc::new(service), Box::new(host));
    send(&mut gateway, Box::leak("x".repeat(1001).into_boxed_str())).await;
    assert_eq!(link.end.await.expect("an end in order"), CloseReason::FrameTooLarge);
}

// ---- An app on a Unix socket ----

async fn a_unix_socket_is_bound_before_anything_else<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::Unix).await;
    let code = app.code().reveal().to_lowercase();
    let mut wire = app.wire();
    let answer = aside(&stage, move || {
        // The bind and the first frame are written together, with white space around them.
        wire.bytes(format!("\r\n{}\r\n\n{{\"first\":1}}\n", bind("b", &code)).as_bytes());
        (wire.read(), wire)
    });
    let mut host = app.listener.accept().await.expect("a channel");
    assert_eq!(receive(&mut host).await.as_deref(), Some("{\"first\":1}"));
    send(&mut host, "{\"second\":2}").await;
    let (answer, mut wire) = answer.await;
    assert_eq!(answer, Some(json!({"jsonrpc": "2.0", "id": "b", "result": {"ok": true}})));
    assert_eq!(stage.block(move || wire.read()).await, Some(json!({"second": 2})));
}

async fn a_bind_without_a_code_is_refused_and_the_socket_stays_open<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::Unix).await;
    let missing = json!({"jsonrpc": "2.0", "id": 1, "method": "tesseron/bind", "params": {}});
    let number = json!({"jsonrpc": "2.0", "id": "2", "method": "tesseron/bind", "params": {"code": 42}});
    let answers = app.answers(&stage, &[missing, number, bind("3", app.code().reveal())]).await;
    assert_eq!(error(answers[0].as_ref()), (json!(1), -32602));
    assert_eq!(error(answers[1].as_ref()), (json!("2"), -32602));
    assert_eq!(answers[2].as_ref().expect("an answer")["result"], json!({"ok": true}));
}

async fn a_frame_before_the_bind_is_refused_and_closes_the_socket<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::Unix).await;
    let request = json!({"jsonrpc": "2.0", "id": "x", "method": "actions/invoke", "params": {"name": "text"}});
    let notification = json!({"jsonrpc": "2.0", "method": "actions/cancel", "params": {"invocationId": "i"}});
    for (frame, id) in [(request, json!("x")), (notification, Value::Null)] {
        let answers = app.answers(&stage, &[frame, bind("b", app.code().reveal())]).await;
        assert_eq!(error(answers[0].as_ref()), (id, -32600));
        assert_eq!(answers[1], None);
    }
    let mut wire = app.wire();
    let answers = stage.block(move || {
        wire.bytes(&[b'x'; 100_000]);
        wire.rest()
    });
    assert_eq!(answers.await.iter().map(|answer| error(Some(answer)).1).collect::<Vec<_>>(), [-32600]);
}

async fn a_wrong_code_closes_its_unix_socket_and_the_right_one_is_accepted<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::Unix).await;
    let begin = Instant::now();
    for _ in 0..6 {
        let answers = app.answers(&stage, &[bind("b", WRONG), bind("r", app.code().reveal())]).await;
        assert_eq!(error(answers[0].as_ref()), (json!("b"), -32009));
        assert_eq!(answers[1], None);
    }
    // On a WebSocket the six answers would be delayed by 3.9 s in all.
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    let mut wire = app.wire();
    let code = app.code().reveal().to_owned();
    let answer = aside(&stage, move || {
        // Lines that come while the code is checked are not lost.
        wire.bytes(format!("{}\n{{\"first\":1}}\n", bind("r", &code)).as_bytes());
        (wire.read(), wire)
    });
    let mut host = app.listener.accept().await.expect("a channel");
    assert_eq!(receive(&mut host).await.as_deref(), Some("{\"first\":1}"));
    assert_eq!(answer.await.0, Some(json!({"jsonrpc": "2.0", "id": "r", "result": {"ok": true}})));
}

/// The bug: the socket was closed without an answer, so its gateway could not report the reason.
async fn regression_a_second_socket_to_an_app_without_a_claim_gets_an_error<A: Adapter>(stage: Stage<A>) {
    let app = App::start(&stage, Binding::Unix, ClaimCodeSource::Gateway).await;
    let first = app.bound(&stage, None).await;
    let other = json!({"jsonrpc": "2.0", "id": 3, "method": "x"});
    let answers = app.answers(&stage, &[bind("1", WRONG), bind("2", WRONG), other, json!({})]).await;
    assert_eq!(error(answers[0].as_ref()), (json!("1"), -32009));
    assert_eq!(error(answers[1].as_ref()), (json!("2"), -32009), "the socket stays open");
    assert_eq!(answers[0].as_ref().expect("an answer")["error"]["message"], "this app has a gateway already");
    assert_eq!((error(answers[2].as_ref()), &answers[3]), ((json!(3), -32600), &None));
    let error = failed(stage.adapter.tesseron_dial(&app.instance(), Some(sample_code())).await).to_string();
    assert!(error.contains("this app has a gateway already"), "{error}");
    drop(first);
    let _second = app.bound(&stage, None).await;
}

async fn a_second_bind_is_refused_and_the_socket_stays_open<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::Unix).await;
    let right = bind("b", app.code().reveal());
    let (mut wire, first) = (app.wire(), right.clone());
    let (answer, mut wire) = stage.block(move || (ask(&mut wire, &first), wire)).await;
    assert!(answer.expect("an answer")["result"].is_object());
    // A bind on another socket is refused, since the claim is taken.
    let elsewhere = app.answers(&stage, &[right.clone(), right.clone()]).await;
    assert_eq!([error(elsewhere[0].as_ref()).1, error(elsewhere[1].as_ref()).1], [-32009, -32009]);
    // A second bind on the first socket is refused, and its channel goes on.
    let mut host = app.listener.accept().await.expect("a channel");
    let again = aside(&stage, move || {
        let answer = ask(&mut wire, &right);
        wire.write(&json!({"later": true}));
        (answer, wire)
    });
    assert_eq!(receive(&mut host).await.as_deref(), Some("{\"later\":true}"));
    let (answer, wire) = again.await;
    assert_eq!(error(answer.as_ref()), (json!("b"), -32009));
    drop(wire);
    assert_eq!(receive(&mut host).await, None);
}

async fn a_socket_that_is_never_bound_is_closed_in_time<A: Adapter>(stage: Stage<A>) {
    let mut policy = HostPolicy::default();
    policy.bind_wait = Duration::from_millis(300);
    let app = App::start(&stage, Binding::Unix, ClaimCodeSource::App(policy)).await;
    let begin = Instant::now();
    let mut silent = app.wire();
    let silent = aside(&stage, move || silent.rest());
    let _bound = app.bound(&stage, Some(app.code())).await;
    assert_eq!(silent.await, [Value::Null; 0]);
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
}

async fn the_socket_is_accessible_only_to_its_user<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::Unix).await;
    let Address::Unix(path) = app.address().clone() else { panic!("it is no Unix socket") };
    let folder = path.parent().expect("a folder").to_owned();
    assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    drop(app.listener);
    assert!(!path.exists());
    // Neither a folder that other users may access nor a symbolic link is used.
    let listen = || {
        let mut options = TesseronOptions::new("An app", Binding::Unix);
        options.home = Some(app.home.0.clone());
        stage.adapter.tesseron_listen(options)
    };
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).expect("our folder");
    let error = failed(listen().await);
    assert!(matches!(&error, TesseronError::Folder { path, refused: FolderRefused::Open(0o711) } if *path == folder), "{error}");
    fs::remove_dir(&folder).expect("our folder");
    std::os::unix::fs::symlink(app.home.instances(), &folder).expect("a link");
    let error = failed(listen().await);
    assert!(matches!(error, TesseronError::Folder { refused: FolderRefused::NotAFolder, .. }), "{error}");
}

// ---- Both bindings ----

const BOTH: [Binding; 2] = [Binding::WebSocket, Binding::Unix];

async fn calls_pass_in_both_directions_over_either_binding<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        for source in [ClaimCodeSource::default(), ClaimCodeSource::Gateway] {
            let app = App::start(&stage, binding, source).await;
            let (gateway, host) = app.bound(&stage, app.listener.claim_code()).await;
            let book = Book::default();
            let serving = stage.adapter.serve(Arc::new(tools::service(&book)), Box::new(host));
            let Link { peer, end } = stage.adapter.connect(Arc::new(()), client(), Box::new(gateway));
            let calls: Vec<_> = [0, 1, 100, 1_000_000, 3_000_000]
                .into_iter()
                .map(|length| {
                    let text = Json::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(length))).expect("JSON");
                    (length, peer.call_tool("length", text).expect("a call"))
                })
                .collect();
            for (length, call) in calls {
                let result = call.await.result().expect("a result");
                assert_eq!(result.member("structuredContent").expect("a number").as_str(), format!(r#"{{"result":{length}}}"#));
            }
            peer.close(Close::Now);
            assert_eq!(end.await.expect("an end in order"), CloseReason::Local);
            assert_eq!(serving.end.await.expect("an end in order"), CloseReason::Eof);
        }
    }
}

async fn an_app_has_a_new_code_as_soon_as_its_gateway_has_disconnected<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        let app = App::minting(&stage, binding).await;
        let old = app.listener.next_code().await.expect("a code");
        assert!(old.matches(&app.code()));
        let (gateway, mut host) = app.bound(&stage, Some(old.clone())).await;
        drop(gateway);
        assert_eq!(receive(&mut host).await, None);
        // The app has not dropped its end yet, but the channel is closed.
        assert_eq!(host.channel(), None);
        let new = app.listener.next_code().await.expect("a code");
        assert!(!new.matches(&old));
        let claim = app.instance().claim.expect("a claim");
        assert!(claim.code.matches(&new) && claim.bound_agent.is_none());
        for code in [None, Some(old)] {
            if code.is_none() && binding == Binding::Unix {
                // Without a code the dial does not wait for an answer, and the app refuses the first frame.
                let mut gateway = stage.adapter.tesseron_dial(&app.instance(), code).await.expect("a connection");
                send(&mut gateway, r#"{"jsonrpc":"2.0","id":1,"method":"actions/invoke","params":{}}"#).await;
                assert!(receive(&mut gateway).await.expect("an error").contains("-32600"));
                assert_eq!(receive(&mut gateway).await, None);
            } else {
                let error = failed(stage.adapter.tesseron_dial(&app.instance(), code).await);
                assert!(
                    matches!(error, TesseronError::Refused { status: 426 | 403, .. } | TesseronError::Unbound { .. }),
                    "{error}"
                );
            }
        }
        let (mut gateway, mut second) = app.bound(&stage, Some(new)).await;
        // Dropping the old end does not affect the new channel.
        drop(host);
        send(&mut second, "{}").await;
        assert_eq!(receive(&mut gateway).await.as_deref(), Some("{}"));
        assert!(second.channel().is_some());
    }
}

async fn an_app_has_a_new_code_once_its_transport_is_dropped_or_closed<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        let app = App::minting(&stage, binding).await;
        let first = app.code();
        let (mut gateway, host) = app.bound(&stage, Some(first.clone())).await;
        drop(host);
        let second = app.code();
        assert!(!second.matches(&first));
        assert_eq!(receive(&mut gateway).await, None);
        let (_gateway, mut host) = app.bound(&stage, Some(second.clone())).await;
        poll_fn(|cx| host.poll_close(cx)).await.expect("an end in order");
        assert!(!app.code().matches(&second));
        let _third = app.bound(&stage, Some(app.code())).await;
    }
}

// ---- Manifests ----

async fn the_manifest_has_every_member_and_is_removed_with_its_listener<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        for source in [ClaimCodeSource::default(), ClaimCodeSource::Gateway] {
            let app = App::start(&stage, binding, source).await;
            let path = app.listener.manifest_path().to_owned();
            assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
            let manifest = app.manifest();
            let id = path.file_stem().expect("a name").to_str().expect("text");
            let transport = match app.address() {
                Address::WebSocket(url) => json!({"kind": "ws", "url": url.as_str()}),
                Address::Unix(path) => json!({"kind": "uds", "path": path}),
                _ => panic!("{}", app.address()),
            };
            let mut expected = json!({
                "version": 2, "instanceId": id, "appName": "An app", "addedAt": manifest["addedAt"].as_u64().expect("a time"),
                "pid": std::process::id(), "transport": transport,
            });
            if let Some(code) = app.listener.claim_code() {
                let claim = &manifest["hostMintedClaim"];
                let (minted_at, expires_at) = (claim["mintedAt"].as_u64(), claim["expiresAt"].as_u64());
                assert_eq!(expires_at, minted_at.map(|at| at + 600_000));
                expected["helloHandledByHost"] = true.into();
                expected["hostMintedClaim"] = json!({
                    "code": code.reveal(), "sessionId": claim["sessionId"].as_str().expect("an id"),
                    "resumeToken": claim["resumeToken"].as_str().expect("a token"), "mintedAt": minted_at, "expiresAt": expires_at,
                    "boundAgent": null,
                });
            }
            assert_eq!(manifest, expected);
            drop(app.listener);
            assert!(!path.exists());
        }
    }
}

/// Waits until the app has refreshed its claim, so that the claim expires more than `millis` milliseconds later than before.
async fn wait_for_refresh<A: Adapter>(stage: &Stage<A>, app: &App, millis: u64) {
    let before = app.instance().claim.expect("a claim").expires_at;
    let home = app.home.0.to_path_buf();
    let is_later = move || {
        let instance = Home::at(&*home).read_instances().expect("a folder of ours").pop()?.expect("a manifest of ours");
        (instance.claim?.expires_at > before + millis).then_some(())
    };
    stage.block(move || until("the manifest is refreshed", is_later)).await;
}

async fn the_manifest_is_refreshed_only_while_the_app_is_not_bound<A: Adapter>(stage: Stage<A>) {
    let mut policy = HostPolicy::default();
    policy.refresh = Duration::from_millis(20);
    let app = App::start(&stage, Binding::Unix, ClaimCodeSource::App(policy)).await;
    let first = app.instance().claim.expect("a claim");
    wait_for_refresh(&stage, &app, 50).await;
    let refreshed = app.instance().claim.expect("a claim");
    assert!(refreshed.code.matches(&first.code) && refreshed.minted_at == first.minted_at);
    let _bound = app.bound(&stage, Some(first.code)).await;
    let bound = fs::metadata(app.listener.manifest_path()).expect("a manifest").ino();
    // Meanwhile an app that is not bound writes its manifest several times.
    let free = App::start(&stage, Binding::Unix, ClaimCodeSource::App(policy)).await;
    wait_for_refresh(&stage, &free, 100).await;
    assert_eq!(
        fs::metadata(app.listener.manifest_path()).expect("a manifest").ino(),
        bound,
        "the manifest of a bound app is not written again"
    );
}

async fn the_manifest_names_the_agent_that_has_the_claim<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        let app = App::minting(&stage, binding).await;
        let (gateway, host) = app.bound(&stage, Some(app.code())).await;
        // No claim has expired at the time 0.
        assert!(!app.instance().is_claimable(0), "the manifest shows that the claim is taken");
        let channel = host.channel().expect("its place");
        app.listener.handle_agent(channel, Agent { id: "a".into(), name: "An agent".into() });
        assert_eq!(app.manifest()["hostMintedClaim"]["boundAgent"], json!({"id": "a", "name": "An agent"}));
        drop((gateway, host));
        app.listener.handle_agent(channel, Agent { id: "late".into(), name: "Too late".into() });
        assert_eq!(app.manifest()["hostMintedClaim"]["boundAgent"], Value::Null);
    }
}

async fn a_manifest_that_cannot_be_written_is_reported_and_written_later<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    let (gateway, host) = app.bound(&stage, Some(app.code())).await;
    fs::remove_dir_all(app.home.instances()).expect("our folder");
    drop((gateway, host));
    let error = failed(app.listener.accept().await);
    assert!(matches!(&error, TesseronError::Manifest { path, .. } if path == app.listener.manifest_path()), "{error}");
    fs::create_dir(app.home.instances()).expect("our folder");
    // The manifest is written with the next change.
    let mut raw = app.dialled(&stage, &with_code(app.code().reveal())).await;
    assert_eq!(stage.block(move || raw.status()).await, Some(101));
    assert!(app.listener.manifest_path().exists());
}

fn is_listened_at(address: &Address) -> bool {
    match address {
        Address::Unix(path) => UnixStream::connect(path).is_ok(),
        Address::WebSocket(url) => TcpStream::connect(&url.addresses()[..]).is_ok(),
        address => panic!("{address} is of no binding"),
    }
}

async fn dropping_a_listener_refuses_new_connections_and_keeps_its_channel<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        let app = App::start(&stage, binding, ClaimCodeSource::Gateway).await;
        let (mut gateway, mut host) = app.bound(&stage, None).await;
        let (instance, path) = (app.instance(), app.listener.manifest_path().to_owned());
        drop(app.listener);
        assert!(!path.exists());
        let address = instance.address.clone();
        stage.block(move || until("the listener is closed", || (!is_listened_at(&address)).then_some(()))).await;
        let error = failed(stage.adapter.tesseron_dial(&instance, None).await);
        assert!(matches!(error, TesseronError::Transport(TransportError::Connect { .. })), "{error}");
        send(&mut host, "{}").await;
        assert_eq!(receive(&mut gateway).await.as_deref(), Some("{}"));
        drop(host);
        assert_eq!(receive(&mut gateway).await, None);
        assert!(!path.exists());
    }
}

async fn the_manifest_of_an_app_whose_runtime_has_ended_is_removed<A: Adapter>(stage: Stage<A>) {
    for binding in BOTH {
        let run = move || {
            A::run(Some(1), move |adapter| async move { App::minting(&Stage::new(adapter, Over::Duplex, "", far), binding).await })
        };
        let app = stage.block(move || std::thread::spawn(run).join().expect("an app")).await;
        assert!(app.home.read().is_empty());
        assert!(app.listener.next_code().await.is_none());
        for _ in 0..2 {
            let error = failed(app.listener.accept().await);
            assert!(
                matches!(&error, TesseronError::Transport(TransportError::Accept { address, .. }) if *address == app.address().to_string()),
                "{error}"
            );
        }
    }
}

async fn an_app_name_that_a_manifest_cannot_have_is_refused<A: Adapter>(stage: Stage<A>) {
    let unused = Scratch::new("unused");
    for name in ["", "two\nlines", &"x".repeat(257)] {
        let mut options = TesseronOptions::new(name, Binding::WebSocket);
        options.home = Some(unused.clone());
        assert!(matches!(failed(stage.adapter.tesseron_listen(options).await), TesseronError::AppName), "{name}");
    }
}

// ---- A gateway ----

/// A manifest as an app writes it, but with this address.
async fn elsewhere<A: Adapter>(stage: &Stage<A>, address: Address) -> Instance {
    let app = App::start(stage, Binding::Unix, ClaimCodeSource::Gateway).await;
    let mut instance = app.instance();
    instance.address = address;
    instance
}

/// A listener for a scripted host on a WebSocket, with its manifest.
async fn tcp<A: Adapter>(stage: &Stage<A>) -> (TcpListener, Instance) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ws://{}/app?x=y", listener.local_addr().expect("an address"));
    let address = Address::WebSocket(LoopbackUrl::parse(&url).expect("a URL"));
    (listener, elsewhere(stage, address).await)
}

/// A listener for a scripted host on a Unix socket, with its manifest and the directory of the socket.
async fn unix<A: Adapter>(stage: &Stage<A>) -> (UnixListener, Instance, OwnHome) {
    let folder = OwnHome::new();
    fs::create_dir(&folder.0).expect("a folder");
    let path = folder.0.join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    (listener, elsewhere(stage, Address::Unix(path)).await, folder)
}

/// A well-formed code that is not made by any app of these tests.
fn sample_code() -> ClaimCode {
    ClaimCode::parse("PQ7N-4D").expect("a code")
}

/// Accepts the connection of a gateway and reads its upgrade request.
fn asked(listener: &TcpListener) -> (String, Raw) {
    let mut raw = Raw::over(listener.accept().expect("a dialler").0);
    (raw.head().expect("a request"), raw)
}

/// The answer of a host that accepts the upgrade.
fn acceptance(request: &str) -> String {
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: tesseron-gateway\r\n\r\n"
    )
}

/// A web page may ask for any subprotocol. The browser adds the header `Origin`, which a gateway does not send.
async fn a_dial_from_a_page_in_a_browser_is_refused<A: Adapter>(stage: Stage<A>) {
    for source in [ClaimCodeSource::Gateway, ClaimCodeSource::default()] {
        let app = App::start(&stage, Binding::WebSocket, source).await;
        let address = app.address().clone();
        let answer = stage.block(move || {
            let mut raw = Raw::connect(&address);
            let request = raw::upgrade("tesseron-gateway");
            raw.write(request.replace("Host:", "Origin: https://example.com\r\nHost:").as_bytes());
            raw.head()
        });
        assert_eq!(answer.await, None);
    }
}

/// The bug: the timeout was not checked while the stream was ready, so the dial lasted as long as the flood.
async fn regression_a_dial_to_a_host_that_never_stops_sending_times_out<A: Adapter>(stage: Stage<A>) {
    let begin = Instant::now();
    let (listener, instance, _folder) = unix(&stage).await;
    let flood = aside(&stage, move || {
        let (mut stream, _) = listener.accept().expect("a dialler");
        // Without the time limit a failing test would not end.
        while begin.elapsed() < Duration::from_secs(30) && std::io::Write::write_all(&mut stream, &b"{}\n".repeat(10_000)).is_ok() {
        }
    });
    let error = failed(stage.adapter.tesseron_dial(&instance, Some(sample_code())).await).to_string();
    assert_eq!(error, format!("cannot bind {}: {}", instance.address, DialFailed::TimedOut));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    flood.await;
}

async fn a_dial_to_a_host_that_never_answers_times_out<A: Adapter>(stage: Stage<A>) {
    let begin = Instant::now();
    let ((_tcp, web_socket), (_unix, unix, _folder)) = (tcp(&stage).await, unix(&stage).await);
    // All dials run at the same time. Their connections are made by the operating system, and the scripted hosts never accept them.
    let dials = [(&web_socket, None), (&web_socket, Some(sample_code())), (&unix, Some(sample_code()))];
    let dials: Vec<_> = dials.into_iter().map(|(instance, code)| stage.adapter.tesseron_dial(instance, code)).collect();
    let runtime = stage.adapter.runtime();
    let started: Vec<_> = dials.into_iter().map(|dial| start(&*runtime, dial)).collect();
    let mut errors = Vec::new();
    for dial in started {
        errors.push(failed(dial.await).to_string());
    }
    assert!(begin.elapsed() >= Duration::from_secs(4) && begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    for error in &errors[..2] {
        assert_eq!(*error, format!("cannot connect to {}: timed out", web_socket.address));
    }
    assert_eq!(errors[2], format!("cannot bind {}: {}", unix.address, DialFailed::TimedOut));
}

async fn an_answer_that_is_no_upgrade_of_tesseron_is_refused<A: Adapter>(stage: Stage<A>) {
    let (listener, instance) = tcp(&stage).await;
    let changes: [fn(String) -> String; 9] = [
        |_| String::new(),
        |_| "SSH-2.0-OpenSSH_9.6\r\n".into(),
        |_| "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into(),
        |answer| answer.replace("Sec-WebSocket-Protocol: tesseron-gateway\r\n", ""),
        |answer| answer.replace("tesseron-gateway", "tesseron-bind.PQ7N-4D"),
        |answer| answer.replace("Accept: ", "Accept: x"),
        |answer| answer.replace("Upgrade: websocket", "Upgrade: h2c"),
        |answer| answer.replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"),
        |answer| answer.replace("\r\n\r\n", &format!("\r\nX-Filler: {}\r\n\r\n", "x".repeat(100_000))),
    ];
    let listener = Arc::new(listener);
    for (row, change) in changes.into_iter().enumerate() {
        let listening = Arc::clone(&listener);
        let answered = aside(&stage, move || {
            let (request, mut raw) = asked(&listening);
            raw.write(change(acceptance(&request)).as_bytes());
            request
        });
        let dialled = stage.adapter.tesseron_dial(&instance, Some(sample_code())).await;
        let request = answered.await;
        assert!(request.starts_with("GET /app?x=y HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nSec-WebSocket-Protocol: tesseron-gateway,tesseron-bind.PQ7N-4D\r\n"), "{request}");
        assert!(!request.contains("Extensions"), "{request}");
        // Only in row 2 is the answer well-formed HTTP with a status other than 101.
        match failed(dialled) {
            TesseronError::Refused { status: 200, .. } if row == 2 => {}
            TesseronError::Transport(TransportError::Connect { .. }) if row != 2 => {}
            error => panic!("{row}: {error}"),
        }
    }
}

async fn a_message_right_after_the_upgrade_is_not_lost<A: Adapter>(stage: Stage<A>) {
    let (listener, instance) = tcp(&stage).await;
    let answered = aside(&stage, move || {
        let (request, mut raw) = asked(&listener);
        raw.write(&[acceptance(&request).as_bytes(), &raw::unmasked(raw::TEXT, b"{\"hello\":1}")].concat());
        raw
    });
    let dialled = stage.adapter.tesseron_dial(&instance, None).await;
    let _raw = answered.await;
    assert_eq!(receive(&mut dialled.expect("a channel")).await.as_deref(), Some("{\"hello\":1}"));
}

async fn a_frame_before_the_answer_to_a_bind_is_dropped<A: Adapter>(stage: Stage<A>) {
    let (listener, instance, _folder) = unix(&stage).await;
    let answered = aside(&stage, move || {
        let mut wire = Wire::over_unix(listener.accept().expect("a dialler").0);
        let bind = wire.read().expect("a bind");
        for frame in
            [json!({"jsonrpc": "2.0", "id": 1, "method": "tesseron/hello"}), json!({"jsonrpc": "2.0", "id": "?", "result": {}})]
        {
            wire.write(&frame);
        }
        wire.answer(&bind["id"], &json!({"ok": true}));
        wire.write(&json!({"first": 1}));
        (bind, wire)
    });
    let dialled = stage.adapter.tesseron_dial(&instance, Some(sample_code())).await;
    let (bind, _wire) = answered.await;
    assert_eq!((&bind["method"], &bind["params"]), (&json!("tesseron/bind"), &json!({"code": "PQ7N-4D"})));
    assert_eq!(receive(&mut dialled.expect("a channel")).await.as_deref(), Some("{\"first\":1}"));
}

async fn a_path_that_is_not_a_socket_of_this_user_is_not_dialled<A: Adapter>(stage: Stage<A>) {
    let (listener, mut instance, folder) = unix(&stage).await;
    let [socket, file, link, nothing] = ["socket", "file", "link", "nothing"].map(|name| folder.0.join(name));
    fs::write(&file, "").expect("a file");
    std::os::unix::fs::symlink(&socket, &link).expect("a link");
    for (path, because) in
        [(&file, "it is no socket of this user"), (&link, "it is no socket of this user"), (&nothing, "No such file")]
    {
        instance.address = Address::Unix(path.clone());
        let error = failed(stage.adapter.tesseron_dial(&instance, Some(sample_code())).await).to_string();
        assert!(error.starts_with(&format!("cannot connect to {}: {because}", path.display())), "{error}");
    }
    // A socket file without a listener.
    drop(listener);
    instance.address = Address::Unix(socket);
    let error = failed(stage.adapter.tesseron_dial(&instance, Some(sample_code())).await);
    assert!(matches!(error, TesseronError::Transport(TransportError::Connect { .. })), "{error}");
}

async fn the_error_of_a_refused_gateway_has_the_reason<A: Adapter>(stage: Stage<A>) {
    let app = App::minting(&stage, Binding::WebSocket).await;
    for (wrong, because) in
        [(Some(sample_code()), "the claim code is wrong (HTTP status 403)"), (None, "it needs a claim code (HTTP status 426)")]
    {
        let error = failed(stage.adapter.tesseron_dial(&app.instance(), wrong).await).to_string();
        assert_eq!(error, format!("{} refuses this gateway: {because}", app.address()));
    }
    let app = App::minting(&stage, Binding::Unix).await;
    let error = failed(stage.adapter.tesseron_dial(&app.instance(), Some(sample_code())).await);
    assert!(matches!(&error, TesseronError::Unbound { source: DialFailed::Refused(error), .. } if error.code == -32009), "{error}");
}
