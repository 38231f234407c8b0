//! tokio as an [`Adapter`].
#[cfg(any(unix, windows))]
use std::future::poll_fn;
use std::future::{Future, pending};
use std::io::{self, Read, Write};
use std::process::Command;
use std::sync::Arc;
#[cfg(any(unix, windows))]
use std::task::Poll;
use std::time::Duration;

use crate::adapter::{Adapter, Link, Listener, Place, Transport, block_on};
use crate::boxed;
use crate::run::Signals;
use ::tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use ::tokio::runtime::Builder;
use adapter_tokio::{
    Error, Exit, HttpServerAddress, Instance, TcpListener, TesseronListener, TesseronOptions, TesseronTransport, TokioRuntime,
    connect, http_connect, start, start_as,
};
use endpoint::{BoxFuture, Client, Runtime, Service, TimedRuntime};
use http_service::{ConnectionLimits, HttpListener, HttpService};
use protocol_core::Config;
use tesseron::claims::ClaimCode;

/// The time to wait at the end for tasks that do not end by themselves.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// The adapter for tokio.
#[derive(Clone)]
pub struct Tokio;

impl Adapter for Tokio {
    const NAME: &'static str = "adapter-tokio";

    fn run<T, F: Future<Output = T>>(threads: Option<usize>, program: impl FnOnce(Self) -> F) -> T {
        let mut builder = if threads == Some(1) { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        if let Some(threads) = threads {
            builder.worker_threads(threads);
        }
        let runtime = builder.enable_all().build().expect("a runtime");
        let value = runtime.block_on(async { program(Self).await });
        // Drops the handlers, which write their audit lines.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        value
    }

    type Sockets = TokioRuntime;

    fn sockets(&self) -> TokioRuntime {
        TokioRuntime::start()
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(TokioRuntime::start())
    }

    fn timed_runtime(&self) -> Arc<dyn TimedRuntime> {
        Arc::new(TokioRuntime::start())
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        Box::pin(::tokio::time::sleep(span))
    }

    fn serve(&self, service: Arc<Service>, transport: Transport) -> Link {
        boxed!(link start(service, transport))
    }

    fn serve_as(&self, service: Arc<Service>, config: Config, transport: Transport) -> Link {
        boxed!(link start_as(service, config, transport))
    }

    fn connect(&self, client: Arc<dyn Client>, config: Config, transport: Transport) -> Link {
        boxed!(link connect(client, config, transport))
    }

    fn http_connect(&self, client: Arc<dyn Client>, config: Config, server: HttpServerAddress) -> Result<Link, Error> {
        Ok(boxed!(link http_connect(client, config, server)?))
    }

    fn stdio(&self) -> Transport {
        Box::new(adapter_tokio::stdio())
    }

    fn stdout_unread(&self) -> BoxFuture<'static, ()> {
        Box::pin(adapter_tokio::stdout_unread())
    }

    fn child_with_grace(&self, command: Command, grace: Duration) -> Result<(Transport, Exit), Error> {
        let child = adapter_tokio::child(command)?.with_exit_grace(grace);
        let exit = child.exit();
        Ok((Box::new(child), exit))
    }

    fn duplex(&self, bytes: usize) -> (Transport, Transport) {
        boxed!(pair adapter_tokio::duplex(bytes))
    }

    fn duplex_with_bytes(&self, bytes: usize) -> (Transport, Box<dyn Read + Send>, Box<dyn Write + Send>) {
        let (one, other) = ::tokio::io::duplex(bytes);
        let (read, write) = ::tokio::io::split(other);
        (Box::new(adapter_tokio::LineIo::whole(one)), Box::new(Reading(read)), Box::new(Writing(write)))
    }

    fn reach(&self, place: Place) -> BoxFuture<'static, Result<Transport, Error>> {
        Box::pin(async move {
            Ok(match place {
                Place::Tcp(address) => Box::new(adapter_tokio::tcp_connect(&address).await?) as Transport,
                #[cfg(unix)]
                Place::Unix(path) => Box::new(adapter_tokio::unix_connect(path).await?),
                #[cfg(not(unix))]
                Place::Unix(path) => return Err(Error::connecting_to(path.display())(std::io::ErrorKind::Unsupported.into())),
            })
        })
    }

    fn listen(&self, place: Place) -> BoxFuture<'static, Result<Listener, Error>> {
        Box::pin(async move {
            Ok(match place {
                Place::Tcp(address) => {
                    let listener = TcpListener::bind(&address).await?;
                    boxed!(tcp_listener listener.local_addr(), listener)
                }
                #[cfg(unix)]
                Place::Unix(path) => {
                    let listener = adapter_tokio::UnixListener::bind(path)?;
                    boxed!(listener listener.path().display(), listener)
                }
                #[cfg(not(unix))]
                Place::Unix(path) => return Err(Error::listening_on(path.display())(std::io::ErrorKind::Unsupported.into())),
            })
        })
    }

    fn http_listen(
        &self,
        address: String,
        service: HttpService,
        limits: ConnectionLimits,
    ) -> BoxFuture<'static, Result<HttpListener, Error>> {
        Box::pin(async move { adapter_tokio::http_listen_with(&address, service, limits).await })
    }

    fn tesseron_listen(&self, options: TesseronOptions) -> BoxFuture<'static, Result<TesseronListener, tesseron::TesseronError>> {
        Box::pin(adapter_tokio::tesseron_listen(options))
    }

    fn tesseron_dial(
        &self,
        instance: &Instance,
        code: Option<ClaimCode>,
    ) -> BoxFuture<'static, Result<TesseronTransport, tesseron::TesseronError>> {
        let instance = instance.clone();
        Box::pin(async move { adapter_tokio::tesseron_dial(&instance, code.as_ref()).await })
    }
}

/// The reading half of a pipe, for blocking use on a thread.
struct Reading(ReadHalf<DuplexStream>);

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        block_on(self.0.read(into))
    }
}

/// The writing half of a pipe, for blocking use on a thread.
struct Writing(WriteHalf<DuplexStream>);

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        block_on(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        block_on(self.0.flush())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let _ = block_on(self.0.shutdown());
    }
}

impl Signals for Tokio {
    async fn interrupt(&self) {
        if ::tokio::signal::ctrl_c().await.is_err() {
            // This system cannot report the signal.
            pending::<()>().await;
        }
    }

    async fn terminate(&self) {
        #[cfg(unix)]
        {
            use ::tokio::signal::unix::{SignalKind, signal};
            let mut signals: Vec<_> =
                crate::interrupts::terminations().filter_map(|number| signal(SignalKind::from_raw(number)).ok()).collect();
            poll_fn(|task| match signals.iter_mut().any(|signal| signal.poll_recv(task).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
        // What a console sends when a user closes it, logs off or shuts down, and what a parent sends to a group.
        #[cfg(windows)]
        {
            use ::tokio::signal::windows::{ctrl_break, ctrl_close, ctrl_logoff, ctrl_shutdown};
            let (Ok(mut breaks), Ok(mut closes), Ok(mut logoffs), Ok(mut shutdowns)) =
                (ctrl_break(), ctrl_close(), ctrl_logoff(), ctrl_shutdown())
            else {
                // This system cannot report the events.
                return pending().await;
            };
            poll_fn(|task| {
                let is_over = breaks.poll_recv(task).is_ready()
                    || closes.poll_recv(task).is_ready()
                    || logoffs.poll_recv(task).is_ready()
                    || shutdowns.poll_recv(task).is_ready();
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        #[cfg(not(any(unix, windows)))]
        pending::<()>().await;
    }
}
