//! `Send` and `Sync` of public types. This file does not compile if a type loses one of these traits, or has one that it does not have
//! according to the lists here. A public type that is not listed fails a test.
//!
//! The futures of public functions are checked as well: each is `Send` if all values that it borrows are. A public async function whose
//! future is not checked fails a test.

use std::collections::BTreeSet;
use std::path::Path;

fn shared<T: Send + Sync + ?Sized>() {}
fn moved<T: Send + ?Sized>() {}
/// Accepts only futures that are `Send`. The path is that of the function that returns the future: a test compares these paths with the
/// listings of the API.
fn sent<T: Send>(_path: &str, _: T) {}

/// Does not compile if the type has the trait, since then both implementations fit.
macro_rules! lacks {
    ($type:ty: $trait:ident) => {{
        trait Ambiguous<A> {
            fn some() {}
        }
        struct Has;
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: $trait + ?Sized> Ambiguous<Has> for T {}
        <$type as Ambiguous<_>>::some();
    }};
}

/// Asserts the traits of the types of one crate: types in `shared` are `Send` and `Sync`, those in `moved` only `Send`, those in `local`
/// neither. The type parameters in brackets are those of the generic types.
macro_rules! asserted {
    (
        [$($parameters:tt)*]
        shared: [$($shared:ty),*]
        moved: [$($moved:ty),*]
        local: [$($local:ty),*]
    ) => {
        #[allow(dead_code, reason = "only has to compile")]
        fn assertions<$($parameters)*>() {
            $(super::shared::<$shared>();)*
            $(super::moved::<$moved>(); lacks!($moved: Sync);)*
            $(lacks!($local: Send); lacks!($local: Sync);)*
        }

        pub(super) const NAMES: &[&str] = &[$(stringify!($shared),)* $(stringify!($moved),)* $(stringify!($local),)*];
    };
}

mod protocol_core {
    use ::protocol_core::*;

    asserted! {
        [M: Send + Sync, I: drive::FrameIo<Error: Send + Sync> + Send + Sync, T: Send + Sync]
        shared: [
            AlarmId, Answer, Ask, AskError, Blocks, CallTimeouts, Caller, Capabilities, CheckpointError, TimeoutKind, Close,
            CloseReason, Completion, CompletionOf, CompletionRequest, Config, Consent, Content, DepthInference, DepthPolicy,
            Elicit, Elicited, Event, ExchangeId, Full, Gone, Identity, InboundId, InputFailed, InputKey, InputMode, InputRound, Retry, json::read::Walk<'static>, Instant,
            Invalid, Invoke, InvokeError, Json, JsonError, Lane, Level, Limits, LogRecord, Logged, NoDefault, NotFound, NotLive,
            Notice, Op, OpenUrl, OutboundId, Outcome, PendingInput, Page, PartialResult, SessionCredentials, PeerInfo, Progress, ProgressError,
            ProgressPolicy, PromptArgument, PromptInfo, Protocol, RateWindow, Received, SendError, Reply, ReplyKind,
            Reported, Request, ResourceInfo, ResourceTemplateInfo, Route, RouteKind, RpcError, Sample, Sampled,
            ServeOptions, Session, Stats, Text, Timeouts, TooManyAlarms, PromptResult, PromptResultMessage, ToolInfo, ToolOutput, ToolResult, Transmit, Unreadable,
            TransportEnd, Violation, CancelReason, WireId, dialect::CallTool, dialect::Complete, dialect::Custom,
            dialect::GetPrompt, dialect::List, dialect::ReadResource, dialect::Subscribe, dialect::Unsubscribe,
            drive::Driver<M, I, T>, drive::TurnOutcome<T>, http::AmbiguousHeader, http::HttpClient, http::HttpClientConfig, http::HttpClientEvent,
            http::HttpClientLimits, http::HttpClientRequest, http::HttpClientTimeouts, http::HttpExcerpt, http::HttpFailure, http::HttpFault, http::HttpReason,
            http::HttpRequestId, http::InvalidUrl, http::Headers<'static>, http::HttpEvent,
            http::HttpExchangeId, http::HttpLimits, http::HttpRequest<'static>, http::HttpServer, http::HttpServerConfig,
            http::HttpTimeouts, http::Method, http::NotResumable, http::RequestHead<'static>, http::ResponseHead<'static>,
            http::ResponsePart, http::SessionKey, http::accept::Accepted, http::era::Destination, http::era::Era,
            http::era::NamedVersion, http::era::Posted, http::header::InvalidAnnotation, http::header::Mismatch,
            http::header::ParamHeaders, http::header::ParamKind, http::header::Undecodable, http::header::WrongArgument,
            http::origin::Allowed, http::origin::Forbidden, http::sse::DecodeError, http::sse::Decoder,
            http::sse::DecoderLimits, http::sse::Encoder, http::sse::Event, http::sse::EventId, http::sse::Item, json::read::Key<'static>, json::read::Kind,
            json::read::Members<'static>, json::write::Object<'static>, lines::LineDecoder, lines::LineEncoder,
            mcp::CacheHint, mcp::Era, mcp::Revision, mcp::Side, SubscriptionFilter, dialect::Listen, partial::ItemError, partial::ItemResult, partial::Status, table::Table<T, M>,
            tesseron::App, tesseron::AppId, tesseron::AppIdError, tesseron::ResumeCredentials, tesseron::End,
            tesseron::GatewayConfig, tesseron::ClaimState, tesseron::Welcome, tesseron::bind::BindReply,
            tesseron::bind::BindRequest
        ]
        moved: []
        local: []
    }
}

mod engine {
    use ::engine::*;

    asserted! {
        [S: Guarded, D: TaskOwner, T: Send + Sync]
        shared: [
            AbortHandle, DriverSlot, Engine<S>, Task<D, T>, TaskEnd<T>, VerbEffects, Waiters
        ]
        moved: [BlockingTask<D>]
        local: []
    }
}

mod http_service {
    use ::http_service::*;

    asserted! {
        [T: Send + Sync]
        shared: [
            ConnectionLimits, HostOriginBody<T>, HostOriginFuture<T>, HostOriginLayer, HostOriginService<T>, HttpBody, HttpFuture<T>,
            HttpListener, HttpService, Principal, ResponseStream
        ]
        moved: []
        local: []
    }
}

mod endpoint {
    use ::endpoint::*;

    asserted! {
        [T]
        shared: [
            AskFailed, EffectKey, InputContext, Call, CallError, Cancellation, Canceller, Catalog, Cancelled, Context, Counters, CallOutcome, Claim, Endpoint,
            Extensions, Lease, MemoryOnceStore, Peer, Principal, Prompt, PromptMessage, PromptOutput, Resource, ResourceContents, ResourceTemplate, ResourceUri,
            SchemaRefused, SealKeys, Service, Subrange, TimeoutError, Tool, ToolError, testing::Executor, testing::Pipe,
            testing::PipeBroken, testing::Rounds, testing::Run, testing::VirtualTimer
        ]
        moved: [AskFuture<T>]
        local: [testing::Harness]
    }
}

mod tesseron {
    use ::tesseron::*;

    asserted! {
        [S: net::Sockets]
        shared: [
            TesseronError, bridge::Advertised, bridge::BridgeConfig, bridge::BridgeEvent, bridge::ClaimId, bridge::Leg,
            bridge::ShownCode, bridge::Surface, claims::Admission, claims::Agent, claims::Arrival,
            claims::BindRefused, claims::BoundDial, claims::ChannelId, claims::Claim, claims::ClaimCode,
            claims::ClaimCodeError, claims::ClaimMissed, claims::Claimed, claims::Departure, claims::Dial,
            claims::DialFailed, claims::DialGate, claims::DialStep, claims::HelloRefused, claims::Host,
            claims::HostChannel, claims::HostGate, claims::HostNext, claims::HostPolicy, claims::HostStep,
            claims::SessionRegistry, claims::RegistryPolicy, claims::Offer, claims::OpenRefused, claims::Peer, claims::PeerUser, claims::Pending,
            claims::Place, claims::Resolved<'static>, claims::ResumeRefused, claims::ResumeToken,
            claims::ResumeTokenError, claims::Routed, claims::SessionId, claims::SessionIdError, claims::UnixChannel,
            claims::UpgradeGate, claims::UpgradeStep, legs::BridgeLeg, legs::SharedBridge, net::Address, net::Binding,
            net::ClaimCodeSource, net::FolderRefused, net::Gateway<S>, net::Home, net::Instance, net::LoopbackUrl,
            net::ManifestRefused, net::NotLoopback, net::RefusedFor, net::Scan, net::TesseronListener,
            net::TesseronOptions
        ]
        moved: [bridge::Bridge, net::TesseronTransport]
        local: []
    }
}

mod adapter_io {
    use ::adapter_io::*;

    asserted! {
        [B: Send + Sync, T: Send + Sync, E: Send + Sync]
        shared: [
            Child<B, T, E>, Error, Exit, Halves<T, E>, HttpServerAddress, LineIo<B, E>, SocketFile, Stdin, TcpListener<B, T>,
            UnixListener<B, T>, WebSocket<B, T>, Whole<T>
        ]
        moved: []
        local: []
    }
}

mod adapter_tokio {
    use ::adapter_tokio::*;

    asserted! {
        []
        shared: [
            ClockTimer, Clock, Connection, HttpServerAddress, Process, Stdin, Stdout, TokioIo, Child, Duplex, Tcp, TcpListener, Unix,
            UnixListener
        ]
        moved: []
        local: []
    }
}

mod adapter_smol {
    use ::adapter_smol::*;

    asserted! {
        []
        shared: [
            ClockTimer, Clock, Connection, HttpServerAddress, SmolIo, Stdin, Stdout, Duplex, Tcp, TcpListener, Unix, UnixListener
        ]
        moved: [Process, Child]
        local: []
    }
}

mod testkit {
    use ::testkit::*;

    asserted! {
        ['a, Step: Send + Sync]
        shared: [
            Campaign, Coverage, FarEnd, FarEnds, Guarantee, Happening, Judge, KnownIds, Leg, NoRecording, Objection, Pair, Recording, Rng, Scripted,
            Vacuous, Watched, Wire, broken::Broken, broken::Fault, explore::Bounds, explore::Failure<Step>, explore::Found, explore::pair::Action,
            explore::pair::Bounds, explore::pair::Found, explore::pair::Counterexample, explore::pair::Orders, fuzz::Frame,
            fuzz::HostileFrame, fuzz::Operations, judge::Effect, judge::Fact<'a>, link::Arrival, link::Faults, link::LinkBroken,
            link::Read, link::SimLink, link::SimStream, world::Crowd, world::Ways, world::lanes::Seen
        ]
        moved: []
        local: [World]
    }
}

/// Calls public functions that return a future. The code is compiled but never runs.
#[allow(dead_code, reason = "it is enough that it compiles")]
mod futures {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use ::adapter_io::{ListenTcp, ListenUnix, TcpListener, UnixListener};
    use ::endpoint::{Call, Cancellation, Context, Endpoint, Peer};
    use ::engine::{Engine, SendsEarly};
    use ::http_service::{ConnectionLimits, HttpBody, HttpListener, HttpService};
    use ::protocol_core::drive::{Driver, FrameIo, Machine, Timer};
    use ::protocol_core::{Elicit, Level, Sample};
    use ::tesseron::claims::ClaimCode;
    use ::tesseron::legs::SharedBridge;
    use ::tesseron::net::{self, Gateway, Instance, Sockets, TesseronListener, TesseronOptions};

    use super::sent;

    fn core<M, I, T>(driver: &mut Driver<M, I, T>)
    where
        M: Machine<Event: Send> + Send,
        I: FrameIo<Error: Send> + Send,
        T: Timer + Send,
    {
        sent("protocol_core::drive::Driver::next_event", driver.next_event());
    }

    fn engine<S, M, I, T>(machine: M, engine: &Engine<S>, transport: I, timer: T)
    where
        S: SendsEarly<Event = M::Event>,
        M: Machine + Send + 'static,
        I: FrameIo<Error: Send> + Send + 'static,
        T: Timer + Send + 'static,
    {
        sent("engine::drive", ::engine::drive(machine, engine, transport, timer));
    }

    fn endpoint<I, T>(endpoint: Endpoint, transport: I, timer: T)
    where
        I: FrameIo<Error: Send> + Send + 'static,
        T: Timer + Send + 'static,
    {
        sent("endpoint::drive", ::endpoint::drive(endpoint, transport, timer));
    }

    fn handlers(context: &Context, cancellation: &Cancellation, form: Elicit, sample: Sample) {
        sent("endpoint::Context::cancelled", context.cancelled());
        sent("endpoint::Cancellation::cancelled", cancellation.cancelled());
        sent("endpoint::Context::sleep", context.sleep(Duration::ZERO));
        sent("endpoint::Context::with_timeout", context.with_timeout(async {}, Duration::ZERO));
        sent("endpoint::Context::sample", context.sample(sample));
        sent("endpoint::Context::sample_typed", context.sample_typed::<String>("prompt"));
        sent("endpoint::Context::confirm", context.confirm("message"));
        sent("endpoint::Context::elicit", context.elicit(form));
        sent("endpoint::Context::elicit_typed", context.elicit_typed::<String>("message"));
        sent("endpoint::Context::elicit_url", context.elicit_url("message", "https://host/path"));
        sent("endpoint::Context::open_url", context.open_url(context.new_url("message", "https://host/path")));
        sent("endpoint::Context::roots", context.roots());
        sent("endpoint::Context::once", context.once("name", async |_| Ok(())));
        sent("endpoint::Context::once_sealed", context.once_sealed("name", async |_| Ok(())));
    }

    fn callers(peer: &Peer, call: &mut Call) {
        sent("endpoint::Call::next_progress", call.next_progress());
        sent("endpoint::Call", call);
        sent("endpoint::Peer::ready", peer.ready());
        sent("endpoint::Peer::closed", peer.closed());
        sent("endpoint::Peer::list_tools", peer.list_tools());
        sent("endpoint::Peer::list_prompts", peer.list_prompts());
        sent("endpoint::Peer::list_resources", peer.list_resources());
        sent("endpoint::Peer::list_resource_templates", peer.list_resource_templates());
        sent("endpoint::Peer::set_log_level", peer.set_log_level(Level::Info));
        sent("endpoint::Peer::ping", peer.ping());
        sent("endpoint::Peer::call_tool_as", peer.call_tool_as::<String>("name", "arguments"));
        sent("endpoint::Peer::subscribe", peer.subscribe("uri"));
        sent("endpoint::Peer::unsubscribe", peer.unsubscribe("uri"));
    }

    fn web(body: &mut HttpBody, listener: &HttpListener, service: &HttpService, request: ::http::Request<::bytes::Bytes>) {
        sent("http_service::HttpBody::next_chunk", body.next_chunk());
        sent("http_service::HttpListener::closed", listener.closed());
        sent("http_service::HttpService::respond", service.respond(request));
    }

    fn web_listeners(service: &HttpService, limits: ConnectionLimits) {
        sent("adapter_tokio::http_listen", ::adapter_tokio::http_listen("address", service.clone()));
        sent("adapter_tokio::http_listen_with", ::adapter_tokio::http_listen_with("address", service.clone(), limits));
        sent("adapter_smol::http_listen", ::adapter_smol::http_listen("address", service.clone()));
        sent("adapter_smol::http_listen_with", ::adapter_smol::http_listen_with("address", service.clone(), limits));
    }

    fn listeners<B, L: Send + Sync>(tcp: &TcpListener<B, L>, unix: &UnixListener<B, L>)
    where
        B: ListenTcp<L> + ListenUnix<L>,
    {
        sent("adapter_io::TcpListener::bind", TcpListener::<B, L>::bind("address"));
        sent("adapter_io::TcpListener::accept", tcp.accept());
        sent("adapter_io::TcpListener::accept_with_ends", tcp.accept_with_ends());
        sent("adapter_io::UnixListener::accept", unix.accept());
    }

    fn gateways<S: Sockets, I>(gateway: &Gateway<S>, bridge: &SharedBridge, transport: I)
    where
        I: FrameIo<Error = std::io::Error> + Send,
    {
        sent("tesseron::legs::SharedBridge::next_event", bridge.next_event());
        sent("tesseron::net::Gateway::next_event", gateway.next_event());
        sent("tesseron::net::Gateway::serve", gateway.serve(transport));
    }

    fn apps<S: Sockets>(sockets: S, options: TesseronOptions, listener: &TesseronListener, instance: &Instance, code: &ClaimCode) {
        sent("tesseron::net::TesseronListener::accept", listener.accept());
        sent("tesseron::net::TesseronListener::next_code", listener.next_code());
        sent("tesseron::net::dial", net::dial(&sockets, instance, Some(code)));
        sent("tesseron::net::listen", net::listen(sockets, options));
    }

    fn tokio(path: &Path, options: TesseronOptions, instance: &Instance) {
        sent("adapter_tokio::tcp_connect", ::adapter_tokio::tcp_connect("address"));
        sent("adapter_tokio::unix_connect", ::adapter_tokio::unix_connect(path));
        sent("adapter_tokio::stdout_unread", ::adapter_tokio::stdout_unread());
        sent("adapter_tokio::tesseron_listen", ::adapter_tokio::tesseron_listen(options));
        sent("adapter_tokio::tesseron_dial", ::adapter_tokio::tesseron_dial(instance, None));
    }

    fn smol(path: &Path, options: TesseronOptions, instance: &Instance, executor: &Arc<::smol::Executor<'static>>) {
        sent("adapter_smol::tcp_connect", ::adapter_smol::tcp_connect("address"));
        sent("adapter_smol::unix_connect", ::adapter_smol::unix_connect(path));
        sent("adapter_smol::stdout_unread", ::adapter_smol::stdout_unread());
        sent("adapter_smol::tesseron_listen", ::adapter_smol::tesseron_listen(options.clone()));
        sent("adapter_smol::tesseron_listen_on", ::adapter_smol::tesseron_listen_on(executor, options));
        sent("adapter_smol::tesseron_dial", ::adapter_smol::tesseron_dial(instance, None));
    }
}

/// The crates, each with the types that the assertions list.
const ASSERTED: [(&str, &[&str]); 9] = [
    ("adapter-io", adapter_io::NAMES),
    ("adapter-smol", adapter_smol::NAMES),
    ("adapter-tokio", adapter_tokio::NAMES),
    ("endpoint", endpoint::NAMES),
    ("engine", engine::NAMES),
    ("http-service", http_service::NAMES),
    ("protocol-core", protocol_core::NAMES),
    ("tesseron", tesseron::NAMES),
    ("testkit", testkit::NAMES),
];

/// The listing of the API of a crate.
fn listing(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/api/{name}.txt"));
    std::fs::read_to_string(path).expect("a listing of the public API")
}

/// The paths of the types that a listing of the API has.
fn types(listing: &str) -> BTreeSet<&str> {
    let is_type = |kind: &str| {
        let kind = kind.trim_start_matches("#[non_exhaustive] ");
        ["struct", "enum", "union"].iter().any(|word| kind.strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_word)))
    };
    listing.lines().filter_map(|line| line.split_once(": ")).filter(|(_, kind)| is_type(kind)).map(|(path, _)| path).collect()
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[test]
fn every_public_type_has_an_assertion_about_send_and_sync() {
    for (name, asserted) in ASSERTED {
        let listing = listing(name);
        let asserted: Vec<_> = asserted.iter().map(|name| name.split('<').next().unwrap_or(name).replace(' ', "")).collect();
        let types = types(&listing);
        assert!(types.len() > 4, "the listing of {name} is read");
        let missing: Vec<_> = types.into_iter().filter(|path| !asserted.iter().any(|name| name == path)).collect();
        assert_eq!(missing, [""; 0], "types of {name} that are not in tests/tests/ratchets/auto_traits.rs");
    }
}

#[test]
fn only_the_types_of_a_listing_are_found() {
    let listing =
        "A: #[non_exhaustive] struct { .. }\nb::B: enum<T>\nb::B::C: variant\nD: structure\nE: auto Send\nF: struct\nf: fn()\n";
    assert_eq!(types(listing), BTreeSet::from(["A", "b::B", "F"]));
}

/// The paths of the async functions that a listing of the API has.
fn async_functions(listing: &str) -> BTreeSet<&str> {
    let lines = listing.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(_, kind)| kind.contains("async fn")).map(|(path, _)| path).collect()
}

/// The paths of the functions that the module `futures` of this file calls. A path that ends with a type is that of a future.
fn asserted_futures(file: &str) -> BTreeSet<&str> {
    let (_, rest) = file.split_once("\nmod futures {\n").expect("the module");
    let (module, _) = rest.split_once("\n}\n").expect("the end of the module");
    let mut paths = BTreeSet::new();
    for call in module.split("sent(").skip(1) {
        let (path, future) = call.trim_start().strip_prefix('"').and_then(|call| call.split_once('"')).expect("a path");
        let name = path.rsplit("::").next().unwrap_or(path);
        let is_called = future.split(';').next().is_some_and(|future| future.contains(name));
        assert!(is_called || name.starts_with(char::is_uppercase), "{path} is the path of another function");
        paths.insert(path);
    }
    paths
}

#[test]
fn the_future_of_every_public_async_function_is_asserted_to_be_send() {
    let asserted = asserted_futures(include_str!("auto_traits.rs"));
    let mut count = 0;
    for (name, _) in ASSERTED {
        let listing = listing(name);
        let functions = async_functions(&listing);
        count += functions.len();
        let paths = functions.into_iter().map(|path| format!("{}::{path}", name.replace('-', "_")));
        let missing: Vec<_> = paths.filter(|path| !asserted.contains(path.as_str())).collect();
        assert_eq!(missing, [""; 0], "async functions of {name} that are not in tests/tests/ratchets/auto_traits.rs");
    }
    assert!(count > 40, "the listings are read");
}

#[test]
fn only_the_async_functions_of_a_listing_are_found() {
    let listing = "A::f: async fn(&self)\nA::g: fn() -> impl Future\nasync_h: fn()\ni: async fn<T>(_: T)\n";
    assert_eq!(async_functions(listing), BTreeSet::from(["A::f", "i"]));
}
