//! The futures of public functions: each is `Send` if all values that it borrows are, or this file does not compile. A public async function
//! whose future is not checked fails a test. That types are `Send` and `Sync` is in the listings of the API, where a change shows as a
//! difference.

use std::collections::BTreeSet;
use std::path::Path;

/// Accepts only futures that are `Send`. The path is that of the function that returns the future: a test compares these paths with the
/// listings of the API.
#[allow(dead_code, reason = "only has to compile")]
fn sent<T: Send>(_path: &str, _: T) {}

#[allow(dead_code, reason = "only has to compile")]
mod assertions {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use ::adapter_io::{ListenTcp, ListenUnix, TcpListener, UnixListener};
    use ::endpoint::{Call, Cancellation, CompletionOf, CompletionRequest, Context, Endpoint, Peer, Service};
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
        sent("engine::LocalTasks::run", ::engine::local_tasks().1.run(drop));
    }

    fn endpoint<I, T>(endpoint: Endpoint, transport: I, timer: T)
    where
        I: FrameIo<Error: Send> + Send + 'static,
        T: Timer + Send + 'static,
    {
        sent("endpoint::drive", ::endpoint::drive(endpoint, transport, timer));
    }

    fn local<I, T>(endpoint: Endpoint, transport: I, timer: T)
    where
        I: FrameIo<Error: Send> + Send,
        T: Timer + Send,
    {
        sent("endpoint::drive_local", ::endpoint::drive_local(endpoint, transport, timer));
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
        sent("endpoint::Peer::prompt", peer.prompt("name", &BTreeMap::new()));
        sent("endpoint::Peer::resource", peer.resource("uri"));
        let request = CompletionRequest::new(CompletionOf::Prompt("name".into()), "argument", "value");
        sent("endpoint::Peer::complete", peer.complete(request));
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
        sent("adapter_tokio::serve", ::adapter_tokio::serve(Service::new("s", "1"), ::adapter_tokio::stdio()));
        sent("adapter_tokio::tcp_connect", ::adapter_tokio::tcp_connect("address"));
        sent("adapter_tokio::unix_connect", ::adapter_tokio::unix_connect(path));
        sent("adapter_tokio::stdout_unread", ::adapter_tokio::stdout_unread());
        sent("adapter_tokio::tesseron_listen", ::adapter_tokio::tesseron_listen(options));
        sent("adapter_tokio::tesseron_dial", ::adapter_tokio::tesseron_dial(instance, None));
    }

    fn smol(path: &Path, options: TesseronOptions, instance: &Instance, executor: &Arc<::smol::Executor<'static>>) {
        sent("adapter_smol::serve", ::adapter_smol::serve(Service::new("s", "1"), ::adapter_smol::stdio()));
        sent("adapter_smol::tcp_connect", ::adapter_smol::tcp_connect("address"));
        sent("adapter_smol::unix_connect", ::adapter_smol::unix_connect(path));
        sent("adapter_smol::stdout_unread", ::adapter_smol::stdout_unread());
        sent("adapter_smol::tesseron_listen", ::adapter_smol::tesseron_listen(options.clone()));
        sent("adapter_smol::tesseron_listen_on", ::adapter_smol::tesseron_listen_on(executor, options));
        sent("adapter_smol::tesseron_dial", ::adapter_smol::tesseron_dial(instance, None));
    }
}

/// The paths of the async functions that a listing of the API has, without type parameters. The traits tell what the futures of their
/// implementations are.
fn async_functions(listing: &str) -> BTreeSet<String> {
    let mut implementor = None;
    let mut functions = BTreeSet::new();
    for line in listing.lines() {
        if line.starts_with("impl") {
            let of_a_trait = line.split_once(" for ").map(|(_, rest)| rest.split(" where ").next().unwrap_or(rest));
            implementor = of_a_trait.map(|name| format!("{}::", without_parameters(name)));
        } else if let Some(function) = line.strip_prefix("pub async fn ") {
            let path = without_parameters(function.split('(').next().unwrap_or(function));
            if !implementor.as_ref().is_some_and(|implementor| path.starts_with(implementor)) {
                functions.insert(path);
            }
        }
    }
    functions
}

fn without_parameters(path: &str) -> String {
    let mut depth = 0_usize;
    let is_outside = |character: &char| {
        depth = if *character == '<' { depth + 1 } else { depth };
        let is_outside = depth == 0;
        depth = if *character == '>' { depth - 1 } else { depth };
        is_outside
    };
    path.chars().filter(is_outside).collect()
}

/// The paths of the functions that the module `assertions` of this file calls. A path that ends with a type is that of a future.
fn asserted_futures(file: &str) -> BTreeSet<&str> {
    let (_, rest) = file.split_once("\nmod assertions {\n").expect("the module");
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
    let asserted = asserted_futures(include_str!("futures.rs"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api");
    let mut count = 0;
    for listing in std::fs::read_dir(folder).expect("the listings") {
        let listing = std::fs::read_to_string(listing.expect("a file").path()).expect("a listing");
        let functions = async_functions(&listing);
        count += functions.len();
        let missing: Vec<_> = functions.into_iter().filter(|path| !asserted.contains(path.as_str())).collect();
        assert_eq!(missing, [""; 0], "async functions that are not in tests/tests/ratchets/futures.rs");
    }
    assert!(count > 40, "the listings are read");
}

#[test]
fn only_the_async_functions_of_a_listing_are_found() {
    let listing = "impl a::A\npub async fn a::A<B, C<D>>::f<E>(&self)\npub fn a::A::g() -> impl Future\nimpl b::B for a::A\n\
        pub async fn a::A::of_a_trait()\npub struct a::I\npub fn a::async_h()\npub async fn a::i()\n";
    assert_eq!(async_functions(listing), BTreeSet::from(["a::A::f".to_owned(), "a::i".to_owned()]));
}
