//! smol as an [`Adapter`].
use std::future::{Future, pending};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{Adapter, Link, Listener, Place, Transport};
use crate::boxed;
use ::smol::Executor;
use ::smol::stream::StreamExt;
use adapter_smol::{
    Error, Exit, HttpServerAddress, Instance, SmolRuntime, TcpListener, TesseronListener, TesseronOptions, TesseronTransport,
    connect_on, http_connect_on, start_as_on, start_on,
};
use async_signal::{Signal, Signals};
use endpoint::{BoxFuture, Client, Runtime, Service, TimedRuntime};
use http_service::{ConnectionLimits, HttpListener, HttpService};
use protocol_core::Config;
use tesseron::claims::ClaimCode;

/// smol, with an executor of its own.
#[derive(Clone)]
pub struct Smol(Arc<Executor<'static>>);

impl Adapter for Smol {
    const NAME: &'static str = "adapter-smol";

    fn run<T, F: Future<Output = T>>(threads: Option<usize>, program: impl FnOnce(Self) -> F) -> T {
        let executor = Arc::new(Executor::new());
        let (alive, stop) = ::smol::channel::bounded::<()>(1);
        let helpers: Vec<_> = (1..threads.unwrap_or(1))
            .map(|_| {
                let (executor, stop) = (Arc::clone(&executor), stop.clone());
                std::thread::spawn(move || ::smol::block_on(executor.run(stop.recv())))
            })
            .collect();
        let value = ::smol::block_on(executor.run(program(Self(Arc::clone(&executor)))));
        drop(alive);
        for helper in helpers {
            let _ = helper.join();
        }
        // Handlers write their audit lines when they are dropped with the executor at the end of this function. They are not dropped if a
        // task that still runs holds the executor.
        value
    }

    type Sockets = SmolRuntime;

    fn sockets(&self) -> SmolRuntime {
        SmolRuntime::start_on(&self.0)
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(SmolRuntime::start_on(&self.0))
    }

    fn timed_runtime(&self) -> Arc<dyn TimedRuntime> {
        Arc::new(SmolRuntime::start_on(&self.0))
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            ::smol::Timer::after(span).await;
        })
    }

    fn serve(&self, service: Arc<Service>, transport: Transport) -> Link {
        boxed!(link start_on(&self.0, service, transport))
    }

    fn serve_as(&self, service: Arc<Service>, config: Config, transport: Transport) -> Link {
        boxed!(link start_as_on(&self.0, service, config, transport))
    }

    fn connect(&self, client: Arc<dyn Client>, config: Config, transport: Transport) -> Link {
        boxed!(link connect_on(&self.0, client, config, transport))
    }

    fn http_connect(&self, client: Arc<dyn Client>, config: Config, server: HttpServerAddress) -> Result<Link, Error> {
        Ok(boxed!(link http_connect_on(&self.0, client, config, server)?))
    }

    fn stdio(&self) -> Transport {
        Box::new(adapter_smol::stdio())
    }

    fn stdout_unread(&self) -> BoxFuture<'static, ()> {
        Box::pin(adapter_smol::stdout_unread())
    }

    fn child_with_grace(&self, command: Command, grace: Duration) -> Result<(Transport, Exit), Error> {
        let child = adapter_smol::child(command)?.with_exit_grace(grace);
        let exit = child.exit();
        Ok((Box::new(child), exit))
    }

    fn duplex(&self, bytes: usize) -> (Transport, Transport) {
        boxed!(pair adapter_smol::duplex(bytes))
    }

    fn duplex_with_bytes(&self, bytes: usize) -> (Transport, Box<dyn Read + Send>, Box<dyn Write + Send>) {
        let (here, there) = (piper::pipe(bytes), piper::pipe(bytes));
        let end = adapter_smol::LineIo::new(here.0, there.1);
        (Box::new(end), Box::new(::smol::io::BlockOn::new(there.0)), Box::new(::smol::io::BlockOn::new(here.1)))
    }

    fn reach(&self, place: Place) -> BoxFuture<'static, Result<Transport, Error>> {
        Box::pin(async move {
            Ok(match place {
                Place::Tcp(address) => Box::new(adapter_smol::tcp_connect(&address).await?) as Transport,
                #[cfg(unix)]
                Place::Unix(path) => Box::new(adapter_smol::unix_connect(path).await?),
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
                    let listener = adapter_smol::UnixListener::bind(path)?;
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
        Box::pin(async move { adapter_smol::http_listen_with(&address, service, limits).await })
    }

    fn tesseron_listen(&self, options: TesseronOptions) -> BoxFuture<'static, Result<TesseronListener, tesseron::TesseronError>> {
        let executor = Arc::clone(&self.0);
        Box::pin(async move { adapter_smol::tesseron_listen_on(&executor, options).await })
    }

    fn tesseron_dial(
        &self,
        instance: &Instance,
        code: Option<ClaimCode>,
    ) -> BoxFuture<'static, Result<TesseronTransport, tesseron::TesseronError>> {
        let instance = instance.clone();
        Box::pin(async move { adapter_smol::tesseron_dial(&instance, code.as_ref()).await })
    }
}

impl crate::run::Signals for Smol {
    async fn interrupt(&self) {
        wait_for([Signal::Int]).await;
    }

    async fn terminate(&self) {
        #[cfg(unix)]
        {
            let numbers: Vec<_> = crate::interrupts::terminations().collect();
            wait_for([Signal::Term, Signal::Hup, Signal::Quit].into_iter().filter(|signal| numbers.contains(&(*signal as i32))))
                .await;
        }
        #[cfg(not(unix))]
        pending::<()>().await;
    }
}

async fn wait_for(signals: impl IntoIterator<Item = Signal>) {
    if let Ok(mut signals) = Signals::new(signals) {
        signals.next().await;
    } else {
        // There are no such signals on this system.
        pending::<()>().await;
    }
}
