//! Two ends and the transport between them, for tests that run over every transport of every adapter.
//!
//! A [`Stage`] has the transport. The near end is a client of ours ([`Stage::call`]), or a script that reads and writes bytes
//! ([`Stage::wire`]). A test is a *row* of a list, and the name of the row determines the far end. So the far end can also be another
//! process: the test program starts itself again, with the name of the row. The far end adds its observations to a [`Book`]. This module
//! does not depend on the rows.

mod book;
pub(crate) mod raw;
mod wire;

use std::env;
use std::future::pending;
use std::io::{stdin, stdout};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adapter_io::Exit;
use endpoint::{BoxFuture, Client, Peer, Service};
use protocol_core::{Close, CloseReason, Config, Identity};

use crate::scratch::Scratch;
use programs::adapter::{Adapter, Link, Place, Transport, first, start_blocking, task};

pub use book::Book;
pub use wire::Wire;

/// Declares the rows of a list: `play` runs a row by its name, and the macro `each` passes all names to another macro.
macro_rules! rows {
    ($d:tt $each:ident $output:ty: $($name:ident)*) => {
        /// Runs the row of this name.
        pub fn play<A: ::programs::adapter::Adapter>(
            name: &str,
            stage: $crate::harness::Stage<A>,
        ) -> endpoint::BoxFuture<'static, $output> {
            match name {
                $(stringify!($name) => Box::pin($name(stage)),)*
                _ => panic!("no row is called {name}"),
            }
        }

        /// Returns `true` if this is a row of the list.
        #[must_use]
        pub fn has(name: &str) -> bool {
            [$(stringify!($name)),*].contains(&name)
        }

        /// Passes the names of all rows to a macro.
        #[macro_export]
        macro_rules! $each {
            ($d callback:path, $d with:ty) => { $d callback! { [$d with] $($name)* } };
        }
    };
}
pub(crate) use rows;

/// The time limit of a row, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a row on this number of threads. The row is a task, since the future that a runtime blocks on would not run on a worker thread.
///
/// # Panics
/// If the row panics, or does not end in time.
pub fn play_on<A: Adapter>(
    threads: usize,
    over: Over,
    row: &'static str,
    play: fn(&str, Stage<A>) -> BoxFuture<'static, ()>,
    far: FindFar,
) {
    let has_ended = A::run(Some(threads), |adapter| async move {
        let runtime = adapter.runtime();
        let time_limit = adapter.sleep(PATIENCE);
        let row = task(&*runtime, play(row, Stage::new(adapter, over, row, far)));
        first(
            async {
                row.await;
                true
            },
            async {
                time_limit.await;
                false
            },
        )
        .await
    });
    // The check is outside of the runtime, which does not wait for a task that hangs.
    assert!(has_ended, "{row} hangs");
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// In memory.
    Duplex,
    /// TCP.
    Tcp,
    /// A Unix socket.
    Unix,
    /// The standard input and output of a child process.
    Child,
}

/// The adapter and the transport of a row.
#[derive(Clone)]
pub struct Stage<A> {
    /// The adapter.
    pub adapter: A,
    over: Over,
    row: &'static str,
    /// The number of bytes that the pair in memory holds.
    room: usize,
    far: FindFar,
}

/// The far end of a row.
pub enum Far {
    /// A service. If it is in another process, that process exits as soon as the connection has ended.
    Service(Arc<Service>),
    /// A service that closes its connection once a line is added to the book. Its process ends as a program does, when its main function
    /// returns. On other transports than a child process it is like [`Self::Service`].
    ClosingService(Arc<Service>),
    /// A script that reads and writes bytes.
    Wire(fn(Wire, &Book)),
}

/// Finds the far end of the row of this name.
pub type FindFar = fn(&str, &Book) -> Far;

/// A future that is awaited at the end. The lock makes the struct that has the future `Sync`.
type Waited<T> = Mutex<BoxFuture<'static, T>>;

fn unlocked<T>(waited: Waited<T>) -> BoxFuture<'static, T> {
    waited.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A client of ours that is connected to the far end.
pub struct Calling {
    /// The handle of the client.
    pub peer: Peer,
    /// The exit status of a child process.
    pub exit: Exit,
    /// The far end.
    pub far: FarEnd,
    end: Waited<String>,
}

impl Calling {
    /// Closes the connection. Returns the lines that were noted at the far end, and a last line about the end of the connection at this
    /// end.
    pub async fn close(self) -> Vec<String> {
        self.peer.close(Close::Now);
        self.ended().await
    }

    /// Waits for the far end to close the connection. Returns lines as [`Self::close`] does.
    pub async fn ended(self) -> Vec<String> {
        let end = unlocked(self.end).await;
        let mut notes = self.far.ended().await;
        notes.push(format!("near: {end}"));
        notes
    }
}

/// The far end.
pub struct FarEnd {
    /// Runs the far end, or waits for its thread or process.
    end: Waited<()>,
    /// The lines that are noted at the far end.
    pub book: Book,
}

impl FarEnd {
    /// Waits until the far end has ended. Returns the lines that were noted there.
    pub async fn ended(self) -> Vec<String> {
        unlocked(self.end).await;
        self.book.read().into_iter().map(|line| format!("far: {line}")).collect()
    }
}

/// Describes the end of a connection, in the same words for every transport.
async fn describe_end(end: BoxFuture<'static, Result<CloseReason, adapter_io::Error>>) -> String {
    match end.await {
        Ok(reason) => reason.to_string(),
        Err(_) => "the connection broke".into(),
    }
}

/// The near end's identity.
#[must_use]
pub fn identity() -> Identity {
    Identity::new("scenario", "1")
}

/// The configuration of a client.
#[must_use]
pub fn client() -> Config {
    Config::mcp_client(identity())
}

/// The environment variable with the row for the child process.
const ROW: &str = "SCENARIO_ROW";
/// The environment variable with the path of the book for the child process.
const BOOK: &str = "SCENARIO_BOOK";

impl<A: Adapter> Stage<A> {
    /// A stage for one row.
    pub fn new(adapter: A, over: Over, row: &'static str, far: FindFar) -> Self {
        Self { adapter, over, row, room: 4096, far }
    }

    /// Changes the size of the pair in memory.
    #[must_use]
    pub fn with_room(mut self, bytes: usize) -> Self {
        self.room = bytes;
        self
    }

    /// A client at the near end.
    pub async fn call(&self, client: Arc<dyn Client>, config: Config) -> Calling {
        let (near, exit, far) = match self.over {
            Over::Child => {
                let (book, path) = Book::to_share();
                let (near, exit) = self.adapter.child(self.far_end_command(&path)).expect("this program starts again");
                let noted = book.clone();
                let end = async move {
                    noted.until_complete().await;
                    drop(path);
                };
                (near, exit, FarEnd { end: Mutex::new(Box::pin(end)), book })
            }
            over => {
                let book = Book::default();
                match (self.far)(self.row, &book) {
                    Far::Service(service) | Far::ClosingService(service) => {
                        let (near, there) = self.pair(over).await;
                        (near, Exit::default(), self.serve(service, there, book))
                    }
                    Far::Wire(script) => {
                        let (near, wire) = self.end_and_wire(over).await;
                        (near, Exit::default(), self.script(script, wire, book))
                    }
                }
            }
        };
        let Link { peer, end } = self.adapter.connect(client, config, near);
        Calling { peer, exit, end: Mutex::new(Box::pin(describe_end(end))), far }
    }

    /// A script at the near end, which reads and writes bytes. At the far end there is a service.
    pub async fn wire(&self) -> (Wire, FarEnd) {
        match self.over {
            Over::Child => {
                let (book, path) = Book::to_share();
                let mut command = self.far_end_command(&path);
                let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program starts again");
                let pipes = child.stdout.take().zip(child.stdin.take()).expect("two pipes");
                let exited = start_blocking(&*self.adapter.runtime(), move || drop(child.wait()));
                let noted = book.clone();
                let end = async move {
                    exited.await;
                    noted.until_complete().await;
                    drop(path);
                };
                (Wire::new(pipes.0, pipes.1), FarEnd { end: Mutex::new(Box::pin(end)), book })
            }
            over => {
                let book = Book::default();
                let Far::Service(service) = (self.far)(self.row, &book) else { panic!("{} has a script at its far end", self.row) };
                let (there, wire) = self.end_and_wire(over).await;
                (wire, self.serve(service, there, book))
            }
        }
    }

    /// Runs a job as a blocking task of the runtime.
    pub async fn block<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        start_blocking(&*self.adapter.runtime(), job).await
    }

    fn serve(&self, service: Arc<Service>, transport: Transport, book: Book) -> FarEnd {
        let link = self.adapter.serve(service, transport);
        let noted = book.clone();
        let end = async move { noted.note(describe_end(link.end).await) };
        FarEnd { end: Mutex::new(Box::pin(end)), book }
    }

    fn script(&self, script: fn(Wire, &Book), wire: Wire, book: Book) -> FarEnd {
        let noted = book.clone();
        let end = start_blocking(&*self.adapter.runtime(), move || script(wire, &noted));
        FarEnd { end: Mutex::new(Box::pin(end)), book }
    }

    /// The command that starts this test program again, as the far end.
    fn far_end_command(&self, book: &Path) -> Command {
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command.args(["--ignored", "--exact", "the_far_end", "--nocapture", "--quiet"]);
        command.env(ROW, self.row).env(BOOK, book);
        command
    }

    async fn pair(&self, over: Over) -> (Transport, Transport) {
        // The file of the socket can be removed once both ends are connected.
        let socket = Scratch::new("socket");
        let place = match over {
            Over::Tcp => Place::Tcp("127.0.0.1:0".into()),
            Over::Unix => Place::Unix(socket.clone()),
            Over::Duplex | Over::Child => return self.adapter.duplex(self.room),
        };
        let listener = self.adapter.listen(place.clone()).await.expect("a listener");
        let place = if matches!(place, Place::Tcp(_)) { Place::Tcp(listener.address.clone()) } else { place };
        let near = self.adapter.reach(place).await.expect("a connection");
        (near, (listener.accept)().await.expect("a connection").transport)
    }

    async fn end_and_wire(&self, over: Over) -> (Transport, Wire) {
        match over {
            Over::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
                let address = listener.local_addr().expect("an address").to_string();
                let near = self.adapter.reach(Place::Tcp(address)).await.expect("a connection");
                let (stream, _) = listener.accept().expect("a connection");
                (near, Wire::over_tcp(stream))
            }
            Over::Unix => {
                let path = Scratch::new("socket");
                let listener = UnixListener::bind(&path).expect("a socket");
                let near = self.adapter.reach(Place::Unix(path.clone())).await.expect("a connection");
                let (stream, _): (UnixStream, _) = listener.accept().expect("a connection");
                (near, Wire::over_unix(stream))
            }
            Over::Duplex | Over::Child => {
                let (near, read, write) = self.adapter.duplex_with_bytes(self.room);
                (near, Wire::new(read, write))
            }
        }
    }
}

/// Runs the far end in a process of its own: the body of the test `the_far_end` of an adapter.
///
/// # Panics
/// If this process was not started by another test.
pub fn far_end<A: Adapter>(far: FindFar) {
    let row = env::var(ROW).expect("the row, from the test that started this one");
    let book = Book::open(env::var_os(BOOK).expect("the book, from the test that started this one").as_ref());
    match far(&row, &book) {
        Far::Service(service) => A::run(Some(1), |adapter| async move {
            let link = adapter.serve(service, adapter.stdio());
            book.note(describe_end(link.end).await);
        }),
        Far::ClosingService(service) => {
            return A::run(Some(1), |adapter| async move {
                let Link { peer, end } = adapter.serve(service, adapter.stdio());
                let line_noted = async {
                    book.until_noted(1).await;
                    peer.close(Close::Now);
                    pending().await
                };
                first(async { book.note(describe_end(end).await) }, line_noted).await;
            });
        }
        Far::Wire(script) => script(Wire::new(stdin(), stdout()), &book),
    }
    // The test harness would print to a pipe that has no reader any more.
    std::process::exit(0);
}
