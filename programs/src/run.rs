//! The programs `tools` and `call`, on any adapter.

use std::cell::Cell;
use std::future::{Future, pending};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use adapter_io::{Exit, HttpServerAddress};
use endpoint::{Peer, Service};
use http_service::{ConnectionLimits, HttpServerConfig, HttpService};
use protocol_core::mcp::Era;
use protocol_core::tesseron::{App, ResumeCredentials};
use protocol_core::{Close, CloseReason, Config};
use tesseron::TesseronError;
use tesseron::claims::Agent;
use tesseron::net::{ClaimCodeSource, TesseronListener, TesseronTransport};

use super::arguments::{self, StreamServer};
use super::call::{self, Calling, Wanted};
use super::interrupts::Interrupts;
use super::serve::{self, AppOptions, Listen, Serving};
use super::watch::Watch;
use super::{Ending, Server, status};
use crate::adapter::{Adapter, Link, Place, Transport, first, start, task};
use crate::tools::clock;

/// The signals of the system that end a program.
pub trait Signals {
    /// Waits for the next Ctrl-C.
    ///
    /// # Cancel safety
    /// Not cancel safe: a Ctrl-C may be missed if no such future is waiting.
    fn interrupt(&self) -> impl Future<Output = ()>;

    /// Waits for the next SIGTERM, SIGHUP (the terminal was closed) or SIGQUIT. A SIGHUP or SIGQUIT that the process was started to ignore,
    /// as by `nohup`, stays ignored.
    ///
    /// # Cancel safety
    /// Not cancel safe: a signal may be missed if no such future is waiting.
    fn terminate(&self) -> impl Future<Output = ()>;
}

/// Runs the program `tools`.
pub fn tools<A: Adapter + Signals>() -> ExitCode {
    match serve::from_command_line() {
        Ok(serving) => ExitCode::from(A::run(None, |adapter| serve_until_signal(adapter, serving))),
        Err(status) => ExitCode::from(status),
    }
}

/// Runs the program `call`.
pub fn call<A: Adapter + Signals>() -> ExitCode {
    match call::from_command_line() {
        Ok(Wanted::Call { server, calling }) => ExitCode::from(A::run(None, |adapter| call_once(adapter, server, *calling))),
        Ok(Wanted::Serve(serving)) => ExitCode::from(A::run(None, |adapter| serve_until_signal(adapter, serving))),
        Err(status) => ExitCode::from(status),
    }
}

async fn serve_until_signal<A: Adapter + Signals>(adapter: A, serving: Serving) -> u8 {
    serving.greet();
    let ending = serving.ending.clone();
    let signal = || first(adapter.interrupt(), adapter.terminate());
    ending.run(listen(&adapter, serving), signal, |span| adapter.sleep(span)).await
}

async fn listen<A: Adapter>(adapter: &A, Serving { listen, service, ending, linger }: Serving) -> u8 {
    let ended = match listen {
        Listen::Stdio => return serve_one(adapter, service, &ending, linger).await,
        Listen::Tcp(address) => serve_all(adapter, Place::Tcp(address), &service, &ending).await,
        Listen::Unix(path) => serve_all(adapter, Place::Unix(path), &service, &ending).await,
        Listen::Http(address) => serve_http(adapter, address, service, &ending).await,
        Listen::Tesseron(app_options) => serve_gateways(adapter, app_options, &service, &ending).await,
    };
    ended.map_or_else(serve::cannot_serve, |()| status::OK)
}

/// Serves the client on stdin and stdout. Does not wait for a handler that does not end.
async fn serve_one<A: Adapter>(adapter: &A, service: Arc<Service>, ending: &Ending, linger: Duration) -> u8 {
    let (watch, transport) = Watch::stdio(adapter, linger);
    let Link { peer, end } = adapter.serve(service, transport);
    let (runtime, served) = (adapter.runtime(), peer.clone());
    let ended = async move {
        let done = async {
            peer.closed().await;
            watch.cleaned_up().await;
        };
        let left = async {
            watch.left().await;
            peer.close(Close::Now);
            pending().await
        };
        // An error of the transport is ignored here, since the watch has recorded it.
        first(first(async { drop(end.await) }, done), left).await;
        watch.verdict(peer.closed().await)
    };
    let ended = task(&*runtime, ending.serve(served, ended)).await;
    ended.map_or_else(serve::cannot_serve, |()| status::OK)
}

/// Serves all clients that connect, for ever. An error of one connection does not affect the others.
async fn serve_all<A: Adapter>(adapter: &A, place: Place, service: &Arc<Service>, ending: &Ending) -> Result<(), TesseronError> {
    let listener = adapter.listen(place).await?;
    serve::announce(&listener.address);
    loop {
        match (listener.accept)().await {
            Ok(accepted) => {
                let link = adapter.serve(Arc::clone(service), accepted.transport);
                drop(start(&*adapter.runtime(), ending.serve(link.peer, link.end)));
            }
            Err(error) => {
                serve::cannot_serve(error);
                // The usual reason is that there are no free file descriptors: wait until clients disconnect.
                adapter.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves all clients that connect over HTTP, until the end of the program.
async fn serve_http<A: Adapter>(adapter: &A, address: String, service: Arc<Service>, ending: &Ending) -> Result<(), TesseronError> {
    let mut config = HttpServerConfig::default();
    config.era = service.config().era;
    let service = HttpService::with_config(service, adapter.timed_runtime(), config);
    let listener = Arc::new(adapter.http_listen(address, service, ConnectionLimits::default()).await?);
    serve::announce(format_args!("http://{}/mcp", listener.local_addr()));
    let awaited = Arc::clone(&listener);
    start(&*adapter.runtime(), ending.serve(listener, async move { awaited.closed().await })).await;
    Ok(())
}

/// Serves one gateway after the other as a Tesseron app, for ever.
async fn serve_gateways<A: Adapter>(
    adapter: &A,
    app_options: AppOptions,
    service: &Arc<Service>,
    ending: &Ending,
) -> Result<(), TesseronError> {
    let reconnects = app_options.options.claim_code_source == ClaimCodeSource::Gateway;
    let admits_any_user = reconnects && app_options.options.any_user;
    let listener = Arc::new(adapter.tesseron_listen(app_options.options).await?);
    serve::announce(listener.address());
    if admits_any_user {
        serve::warn_of_any_user();
    }
    let codes = async {
        while let Some(code) = listener.next_code().await {
            serve::announce_code(code.reveal());
        }
        pending().await
    };
    let channels = async {
        let mut previous: Option<Resumable> = None;
        loop {
            match listener.accept().await {
                Ok(transport) => {
                    let mut app = App::default();
                    app.resume = previous.as_ref().map(|previous| previous.credentials.clone());
                    let config = service.app(&app_options.id, app);
                    let ended = be_app(adapter, &listener, ending, transport, (Arc::clone(service), config), previous.take()).await;
                    // Only a gateway that connects without a code reconnects on its own.
                    previous = ended.filter(|_| reconnects);
                }
                Err(error) => {
                    serve::cannot_serve(error);
                    adapter.sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    first(codes, channels).await
}

/// A session that can be resumed on another channel.
struct Resumable {
    credentials: ResumeCredentials,
    peer: Peer,
}

/// Serves one channel as a Tesseron app. Returns the data with which the session can be resumed on the next channel.
async fn be_app<A: Adapter>(
    adapter: &A,
    listener: &Arc<TesseronListener>,
    ending: &Ending,
    transport: TesseronTransport,
    (service, config): (Arc<Service>, Config),
    previous: Option<Resumable>,
) -> Option<Resumable> {
    let channel = transport.channel();
    let link = adapter.serve_as(service, config, Box::new(transport));
    let peer = link.peer.clone();
    if let Some(previous) = &previous {
        peer.carry_over(&previous.peer);
    }
    let updates = {
        let (peer, adapter, listener) = (peer.clone(), adapter.clone(), Arc::clone(listener));
        async move {
            if let Ok(gateway) = peer.ready().await
                && let Some(code) = gateway.credentials.and_then(|issued| issued.claim_code)
            {
                serve::announce_code(&code);
            }
            loop {
                peer.update(clock::NAME, &clock::now());
                if let (Some(channel), Some(gateway)) = (channel, peer.info()) {
                    let agent = gateway.identity;
                    let name = agent.title.unwrap_or_else(|| agent.name.clone()).into();
                    listener.handle_agent(channel, Agent { id: agent.name.into(), name });
                }
                adapter.sleep(clock::TICK).await;
            }
        }
    };
    let connection = start(&*adapter.runtime(), ending.serve(link.peer, first(async { drop(link.end.await) }, updates)));
    // Does not wait for a handler that does not end, so that the next gateway is served.
    let closed = async {
        peer.closed().await;
    };
    first(connection, closed).await;
    match peer.info() {
        Some(gateway) => {
            let issued = gateway.credentials?;
            let credentials = ResumeCredentials { session_id: issued.session_id, resume_token: issued.resume_token? };
            Some(Resumable { credentials, peer })
        }
        // If the channel ended before the resume was answered, the old credentials may still be valid. If the resume was refused, they are
        // not.
        None => previous.filter(|_| peer.refusal().is_none()),
    }
}

async fn call_once<A: Adapter + Signals>(adapter: A, server: Server, calling: Calling) -> u8 {
    let was_terminated = Cell::new(false);
    // Waits for signals before a server is started; a signal that is missed would end this process and leave the server running.
    let mut interrupts = Interrupts::new(|| {
        let terminated = async {
            adapter.terminate().await;
            was_terminated.set(true);
        };
        first(adapter.interrupt(), terminated)
    });
    let status = match reach(&adapter, server, &calling, &mut interrupts).await {
        Ok(None) => status::CANCELLED,
        Ok(Some((link, exit))) => call::run(calling, link, exit, &mut interrupts).await,
        Err(error) => call::cannot_reach(error),
    };
    match status {
        status::CANCELLED if was_terminated.get() => status::TERMINATED,
        status => status,
    }
}

/// Connects to the server. Returns `None` after a signal, once a server that was started has ended. With the era `auto`, a server on a
/// stream may end the connection at the probe, or refuse the handshake that follows. Then it is started, or connected to, once more, and the
/// handshake is made without a probe. The first server ends before that, since both may need the same file or port.
async fn reach<A, F, C>(
    adapter: &A,
    server: Server,
    calling: &Calling,
    interrupts: &mut Interrupts<F, C>,
) -> Result<Option<(Link, Exit)>, TesseronError>
where
    A: Adapter,
    F: FnMut() -> C,
    C: Future<Output = ()>,
{
    let mut config = calling.config.clone();
    let server = match server {
        Server::Http(url, headers) => {
            let server = HttpServerAddress::new(&url).on_resume(calling.on_resume());
            let server = headers.iter().try_fold(server, |server, (name, value)| server.header(name, value))?;
            return Ok(Some((adapter.http_connect(Arc::clone(&calling.client), config, server)?, Exit::default())));
        }
        Server::Stream(server) => server,
    };
    loop {
        let Some(dialled) = interrupts.or(dial(adapter, &server)).await else { return Ok(None) };
        let (transport, exit) = dialled?;
        let mut link = adapter.connect(Arc::clone(&calling.client), config.clone(), transport);
        if config.era != Era::Auto {
            return Ok(Some((link, exit)));
        }
        let has_failed = interrupts.or(has_failed_at_probe(&mut link)).await;
        if has_failed == Some(false) {
            return Ok(Some((link, exit)));
        }
        if has_failed.is_none() {
            // A server that starts need not read its input yet.
            exit.terminate();
        }
        call::leave(&link.peer, link.end.as_mut(), &exit, interrupts).await;
        if has_failed.is_none() {
            return Ok(None);
        }
        config.era = Era::Legacy;
    }
}

/// Connects to a server, or starts it.
async fn dial<A: Adapter>(adapter: &A, server: &StreamServer) -> Result<(Transport, Exit), TesseronError> {
    Ok(match server {
        StreamServer::Place(place) => (adapter.reach(place.clone()).await?, Exit::default()),
        StreamServer::Child(command) => adapter.child(arguments::start_of(command))?,
    })
}

/// Waits until the era of a server is chosen. Returns `true` if the server has ended the connection before that, or has refused the
/// handshake: some old servers exit or disconnect at the probe, and some take no handshake that is not the first request.
async fn has_failed_at_probe(Link { peer, end }: &mut Link) -> bool {
    let ended = async {
        let value = end.as_mut().await;
        *end = Box::pin(std::future::ready(value));
        pending().await
    };
    matches!(first(peer.ready(), ended).await, Err(CloseReason::Eof | CloseReason::Failed | CloseReason::HandshakeRefused))
}
