//! What the examples need of tokio: transports, tasks, Ctrl-C. All the rest is in `tests::programs`.
#![allow(dead_code, reason = "each example uses its part")]

use std::future::{Future, pending};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use adapter_tokio::{Connection, Error, Exit, TcpListener, child, connect, stdio, tcp_connect};
#[cfg(unix)]
use adapter_tokio::{UnixListener, unix_connect};
use protocol_core::drive::FrameIo;
use protocol_core::endpoint::Service;
use tests::programs::Server;
use tests::programs::call::{self, Calling};
use tests::programs::serve::{self, Listen, Serving};
use tests::programs::status;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// What a peer that does not read our output may cost at the end.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Runs a program to its end.
pub(crate) fn run(program: impl Future<Output = u8>) -> ExitCode {
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(serve::cannot_serve(format_args!("cannot start tokio: {error}"))),
    };
    let status = runtime.block_on(program);
    // Handlers are dropped here, and with them their audit lines are written.
    runtime.shutdown_timeout(LAST_WORDS);
    ExitCode::from(status)
}

/// The program `tools`.
pub(crate) async fn tools(serving: Serving) -> u8 {
    serving.greet();
    tokio::select! {
        // Signals are heard from before the first client can be.
        biased;
        () = ctrl_c() => status::OK,
        () = terminate() => status::OK,
        status = listen(serving) => status,
    }
}

async fn listen(Serving { listen, service }: Serving) -> u8 {
    let ended = match listen {
        Listen::Stdio => serve_one(adapter_tokio::serve(service, stdio())).await,
        Listen::Tcp(address) => match TcpListener::bind(&address).await {
            Ok(listener) => {
                serve::announce(listener.local_addr());
                serve_all(&service, async || listener.accept().await).await
            }
            Err(error) => Err(error),
        },
        #[cfg(unix)]
        Listen::Unix(path) => match UnixListener::bind(path) {
            Ok(listener) => {
                serve::announce(listener.path().display());
                serve_all(&service, async || listener.accept().await).await
            }
            Err(error) => Err(error),
        },
        #[cfg(not(unix))]
        Listen::Unix(_) => return serve::cannot_serve("there are no Unix sockets here"),
    };
    ended.map_or_else(serve::cannot_serve, |()| status::OK)
}

/// Serves the one client. A handler that does not end is not waited for: it ends with the program.
async fn serve_one(mut connection: Connection) -> Result<(), Error> {
    let peer = connection.peer();
    tokio::select! {
        ended = &mut connection => ended.map(drop),
        () = async {
            peer.closed().await;
            tokio::time::sleep(LAST_WORDS).await;
        } => Ok(()),
    }
}

/// Serves each client that comes, for ever. A client that breaks off is no concern of the others.
async fn serve_all<I>(service: &Arc<Service>, accept: impl AsyncFn() -> Result<I, Error>) -> Result<(), Error>
where
    I: FrameIo<Error = std::io::Error> + Send + 'static,
{
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            client = accept() => match client {
                Ok(transport) => drop(clients.spawn(adapter_tokio::serve(Arc::clone(service), transport))),
                Err(error) => {
                    serve::cannot_serve(error);
                    // Out of files, most likely: some clients will leave.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = clients.join_next() => {}
        }
    }
}

/// The program `call`.
pub(crate) async fn call(server: Server, calling: Calling) -> u8 {
    match reach(server, &calling).await {
        Ok((connection, exit)) => {
            let peer = connection.peer();
            call::run(calling, peer, end(connection, exit), ctrl_c).await
        }
        Err(error) => call::cannot_reach(error),
    }
}

async fn reach(server: Server, calling: &Calling) -> Result<(Connection, Exit), Error> {
    let (client, config) = (Arc::clone(&calling.client), calling.config.clone());
    let mut exit = Exit::default();
    let connection = match server {
        Server::Tcp(address) => connect(client, config, tcp_connect(&address).await?),
        #[cfg(unix)]
        Server::Unix(path) => connect(client, config, unix_connect(path).await?),
        #[cfg(not(unix))]
        Server::Unix(path) => {
            let source = std::io::ErrorKind::Unsupported.into();
            return Err(Error::Connect { address: path.display().to_string(), source });
        }
        Server::Child(command) => {
            let child = child(command)?;
            exit = child.exit();
            connect(client, config, child)
        }
    };
    Ok((connection, exit))
}

/// Why the connection ended, and how the server did.
async fn end(connection: Connection, exit: Exit) -> String {
    let why = connection.await.map_or_else(|error| error.to_string(), |reason| reason.to_string());
    match exit.status() {
        Some(status) => format!("{why} ({status})"),
        None => why,
    }
}

async fn ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Nobody will ever press it.
        pending::<()>().await;
    }
}

#[cfg(unix)]
async fn terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    if let Ok(mut told) = signal(SignalKind::terminate()) {
        told.recv().await;
    } else {
        pending::<()>().await;
    }
}

#[cfg(not(unix))]
async fn terminate() {
    pending::<()>().await;
}
