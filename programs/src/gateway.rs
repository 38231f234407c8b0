//! The program `gateway`: one MCP client on one side, the Tesseron apps of this user on the other.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_service::{ConnectionLimits, HttpServerConfig, HttpService};
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use protocol_core::mcp::Era;
use protocol_core::{Close, CloseReason, Identity};
use tesseron::TesseronError;
use tesseron::bridge::{BridgeConfig, BridgeEvent};
use tesseron::net::{Gateway, Home, Sockets};

use super::access::{Access, TokenFile};
use super::arguments::{self, GatewayOptions};
use super::display::one_line;
use super::run::Signals;
use super::status::{self, complain, say};
use super::watch::Watch;
use crate::adapter::{Adapter, Place, Transport, first, start};

/// The interval between scans of the manifests if no change is reported.
const POLL: Duration = Duration::from_secs(2);
/// The number of printed errors that are remembered, so that none is printed twice. When this many are remembered, all are
/// forgotten.
const MAX_PRINTED: usize = 1024;
/// The time between a change and the next scan, in which further changes are combined.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// The time for the channels to the agent and the apps to close at the end.
const CLOSE_GRACE: Duration = Duration::from_millis(200);

/// Runs the program `gateway`.
pub fn gateway<A: Adapter + Signals>() -> ExitCode {
    match arguments::gateway(env::args_os(), |name| env::var_os(name)) {
        Ok(options) => ExitCode::from(A::run(None, |adapter| run(adapter, options))),
        Err(status) => ExitCode::from(status),
    }
}

async fn run<A: Adapter + Signals>(adapter: A, options: GatewayOptions) -> u8 {
    let end = Bell::default();
    let options = Arc::new(options);
    // Polled before `served`, so that no signal is missed.
    let signalled = async {
        first(adapter.interrupt(), adapter.terminate()).await;
        // The channels to the agent and the apps have a short time to close.
        end.ring();
        adapter.sleep(2 * CLOSE_GRACE).await;
        status::OK
    };
    let served = async {
        let served = match (&options.tcp, &options.http) {
            (Some(address), _) => listen(&adapter, &options, &end, address).await,
            (_, Some(address)) => listen_http(&adapter, &options, &end, address).await,
            (None, None) => serve(&adapter, &options, &end, Watch::stdio(&adapter, options.linger)).await,
        };
        served.map_or_else(|why| complain("gateway", why, status::NO_SERVER), |()| status::OK)
    };
    first(signalled, served).await
}

/// Serves one agent after the other.
async fn listen<A: Adapter>(adapter: &A, options: &GatewayOptions, end: &Bell, address: &str) -> Result<(), String> {
    let access = Access::new(adapter, options.allow_any_user, None)?;
    let listener = adapter.listen(Place::Tcp(address.to_owned())).await.map_err(|error| error.to_string())?;
    say(format_args!("gateway: listening on {}", listener.address));
    loop {
        let served = match (listener.accept)().await {
            Ok(accepted) if access.serves(accepted.ends).await => {
                serve(adapter, options, end, Watch::transport(adapter, accepted.transport)).await
            }
            Ok(_) => continue,
            Err(error) => {
                // The usual reason is that there are no free file descriptors: wait until some are closed.
                adapter.sleep(Duration::from_millis(100)).await;
                Err(error.to_string())
            }
        };
        if let Err(why) = served {
            complain("gateway", why, status::NO_SERVER);
        }
    }
}

/// Serves one agent over HTTP, until `end` is rung. A new HTTP session ends the previous one.
async fn listen_http<A: Adapter>(adapter: &A, options: &Arc<GatewayOptions>, end: &Bell, address: &str) -> Result<(), String> {
    let access = Access::new(adapter, options.allow_any_user, options.token_file.as_deref())?;
    // The drivers of sessions use the clock of their gateways.
    let sockets = adapter.sockets();
    let runtime = Arc::new(sockets.clone());
    let current = Mutex::new(None::<Gateway<A::Sockets>>);
    let open_session = {
        let (adapter, options) = (adapter.clone(), Arc::clone(options));
        move || {
            let opened = open(sockets.clone(), &options).map_err(|error| complain("gateway", error, status::NO_SERVER));
            let (gateway, home) = opened.ok()?;
            let before = current.lock().unwrap_or_else(PoisonError::into_inner).replace(gateway.clone());
            if let Some(before) = before {
                before.close(Close::Now);
            }
            let leg = gateway.agent_leg();
            let (adapter, options) = (adapter.clone(), Arc::clone(&options));
            adapter.runtime().spawn(Box::pin(async move {
                if let Err(error) = handle_events(&adapter, &options, &gateway, &home).await {
                    complain("gateway", error, status::NO_SERVER);
                    gateway.close(Close::Now);
                }
            }));
            Some(leg)
        }
    };
    let mut config = HttpServerConfig::default();
    config.era = Era::Legacy;
    let service = HttpService::with_machines(open_session, runtime, config);
    let (service, token) = match access {
        Access::Anyone => (service, None),
        Access::Checked(checked) => {
            let token = checked.token();
            (service.guarded(checked), token)
        }
    };
    let listener = adapter.http_listen(address.to_owned(), service, ConnectionLimits::default()).await;
    let listener = listener.map_err(|error| error.to_string())?;
    // The file of the token is removed when this future ends or is dropped.
    let _token_file = match options.token_file.as_deref().zip(token) {
        Some((path, token)) => {
            let written = TokenFile::write(path, &token);
            Some(written.map_err(|error| format!("cannot write the token to {}: {error}", path.display()))?)
        }
        None => None,
    };
    say(format_args!("gateway: listening on http://{}/mcp", listener.local_addr()));
    end.rung().await;
    listener.close(CLOSE_GRACE);
    listener.closed().await;
    Ok(())
}

/// Handles the events of a gateway and changes of the manifests, until its agent has disconnected. Returns the reason.
async fn handle_events<A: Adapter>(
    adapter: &A,
    options: &GatewayOptions,
    gateway: &Gateway<A::Sockets>,
    home: &Home,
) -> Result<CloseReason, TesseronError> {
    let events = async {
        loop {
            let event = gateway.next_event().await?;
            print_event(options, &event);
            if let BridgeEvent::AgentClosed(reason) = event {
                break Ok(reason);
            }
        }
    };
    let watching = async { watch_manifests(adapter, gateway, home).await.map(|never| match never {}) };
    first(watching, events).await
}

/// Serves one agent until it disconnects, or until `end` is rung. Returns an error if the channel to the agent did not end normally.
async fn serve<A: Adapter>(adapter: &A, options: &GatewayOptions, end: &Bell, agent: (Watch<A>, Transport)) -> Result<(), String> {
    let (agent, transport) = agent;
    let (gateway, home) = open(adapter.sockets(), options).map_err(|error| error.to_string())?;
    let driven = async {
        let gateway = gateway.clone();
        // An error of the transport is ignored here, since `agent` has recorded it.
        start(&*adapter.runtime(), async move { drop(gateway.serve(transport).await) }).await;
        // Meanwhile `events` gets the event with the reason for the end.
        adapter.sleep(CLOSE_GRACE).await;
        Ok(())
    };
    let mut closed = None;
    let events = async {
        closed = Some(handle_events(adapter, options, &gateway, &home).await?);
        agent.cleaned_up().await;
        Ok(())
    };
    let left = async {
        agent.left().await;
        gateway.close(Close::Now);
        agent.cleaned_up().await;
        Ok(())
    };
    let signalled = async {
        end.rung().await;
        Ok(())
    };
    // `events` is polled first, and scans the manifests. So a client that lists tools right after it has connected gets those of the apps
    // that already run.
    let ended: Result<(), TesseronError> = first(events, first(driven, first(left, signalled))).await;
    gateway.close(Close::Now);
    adapter.sleep(CLOSE_GRACE).await;
    ended.map_err(|error| error.to_string())?;
    agent.verdict(closed.unwrap_or(CloseReason::Eof))
}

fn open<S: Sockets>(sockets: S, options: &GatewayOptions) -> Result<(Gateway<S>, Home), TesseronError> {
    let home = options.home.clone().map_or_else(Home::of_user, |home| Ok(Home::at(home)))?;
    let mut config = BridgeConfig::new(Identity::new("tesseron", env!("CARGO_PKG_VERSION")), 0);
    config.surface = options.surface;
    config.registry.resume_ttl = options.resume_ttl;
    Ok((Gateway::new(sockets, config, home.clone())?, home))
}

/// Scans the manifests when the system reports a change, and at intervals in case it does not. Each error is printed once, until
/// [`MAX_PRINTED`] errors were printed.
async fn watch_manifests<A: Adapter>(adapter: &A, gateway: &Gateway<A::Sockets>, home: &Home) -> Result<Infallible, TesseronError> {
    let changed = Arc::new(Bell::default());
    let bell = Arc::clone(&changed);
    // If there is no watcher, only the scans at intervals are made.
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_change(event.kind)) {
            bell.ring();
        }
    })
    .ok();
    let mut is_watched = false;
    let mut printed = BTreeSet::new();
    loop {
        if printed.len() >= MAX_PRINTED {
            printed.clear();
        }
        // The folder may be created later.
        if let (false, Some(watcher)) = (is_watched, &mut watcher) {
            is_watched = watcher.watch(&home.instances(), RecursiveMode::NonRecursive).is_ok();
        }
        match gateway.rescan() {
            Ok(scan) => {
                let refused = scan.refused.iter().map(ToString::to_string);
                let unreachable = scan.unreachable.iter().map(|(name, error)| format!("{name} cannot be reached: {error}"));
                let unannounced = scan.unannounced.iter().map(ToString::to_string);
                for trouble in refused.chain(unreachable).chain(unannounced) {
                    if printed.insert(trouble.clone()) {
                        complain("gateway", trouble, status::NO_SERVER);
                    }
                }
            }
            Err(error) => {
                if printed.insert(error.to_string()) {
                    complain("gateway", error, status::NO_SERVER);
                }
            }
        }
        first(changed.rung(), adapter.sleep(POLL)).await;
        adapter.sleep(DEBOUNCE).await;
    }
}

/// Returns `true` if files may have changed. The system also reports our own reads, which are no changes.
fn is_change(kind: EventKind) -> bool {
    !kind.is_access() || kind == EventKind::Access(AccessKind::Close(AccessMode::Write))
}

fn print_event(options: &GatewayOptions, event: &BridgeEvent) {
    match event {
        BridgeEvent::AppReady { app, code: Some(code), .. } => {
            say(format_args!("gateway: {} waits to be claimed with {code}", one_line(&app.identity.name)));
        }
        BridgeEvent::AppReady { app, code: None, .. } => say(format_args!("gateway: {} is there", one_line(&app.identity.name))),
        BridgeEvent::AppRefused { error, .. } => say(format_args!("gateway: an app was refused: {}", one_line(&error.to_string()))),
        event if options.verbose => say(format_args!("gateway: {event:?}")),
        _ => {}
    }
}

/// A signal from any thread to one waiting task.
#[derive(Default)]
struct Bell(std::sync::Mutex<(bool, Option<std::task::Waker>)>);

impl Bell {
    fn ring(&self) {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(std::task::Waker::wake);
    }

    async fn rung(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if std::mem::take(&mut state.0) {
                return std::task::Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            std::task::Poll::Pending
        })
        .await;
    }
}
