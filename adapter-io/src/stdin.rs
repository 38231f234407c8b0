use core::task::{Context, Poll, Waker};
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};

/// The maximum size of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Standard input, read by a thread of its own.
///
/// A blocking read of a terminal or a pipe cannot be interrupted, and with the standard input of most runtimes a pending read delays the
/// shutdown of the runtime until the next line arrives. The thread of this type delays nothing: it ends at the latest with the process. It
/// reads at most two pieces of up to 64 KiB ahead.
#[derive(Debug)]
pub struct Stdin {
    inbox: Arc<Inbox>,
    /// Bytes that were taken from the thread and are not yet consumed.
    piece: Bytes,
}

/// The buffer through which the thread passes on the bytes that it has read. It holds at most one piece.
#[derive(Debug, Default)]
struct Inbox {
    state: Mutex<State>,
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    piece: Option<io::Result<Bytes>>,
    /// `true` once no piece follows `piece`, since the input has ended or failed.
    over: bool,
    /// `true` once the [`Stdin`] was dropped.
    abandoned: bool,
    waker: Option<Waker>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the previous piece was taken or the [`Stdin`] was dropped, and stores a piece, or the end (`None`). Returns `false` if
    /// the thread must end: after the end or an error, and once the [`Stdin`] was dropped.
    fn put(&self, piece: Option<io::Result<Bytes>>) -> bool {
        let state = self.emptied.wait_while(self.lock(), |state| state.piece.is_some() && !state.abandoned);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.over |= !matches!(piece, Some(Ok(_)));
        state.piece = piece;
        let goes_on = !state.over && !state.abandoned;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        goes_on
    }
}

impl Stdin {
    /// Starts the thread that reads the standard input of this process. Call this only once in a process: a second reader would take some
    /// of the input.
    #[must_use]
    pub fn start() -> Self {
        Self::reading(io::stdin())
    }

    fn reading(mut source: impl Read + Send + 'static) -> Self {
        let inbox = Arc::new(Inbox::default());
        let filled = Arc::clone(&inbox);
        let read = move || {
            let mut buffer = vec![0; READ_BYTES];
            loop {
                let piece = match source.read(&mut buffer) {
                    Ok(0) => None,
                    Ok(count) => Some(Ok(Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default()))),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Some(Err(error)),
                };
                if !filled.put(piece) {
                    return;
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("stdin".into()).spawn(read) {
            inbox.put(Some(Err(error)));
        }
        Self { inbox, piece: Bytes::new() }
    }

    /// Polls for bytes that are not yet consumed. An empty piece is the end of the input.
    ///
    /// # Errors
    /// The error of the system, also if the thread could not be started. Afterwards the input is at its end.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.piece.is_empty() {
            let mut state = self.inbox.lock();
            match state.piece.take() {
                Some(piece) => {
                    drop(state);
                    self.inbox.emptied.notify_one();
                    self.piece = piece?;
                }
                None if state.over => {}
                None => {
                    let before = state.waker.replace(cx.waker().clone());
                    drop(state);
                    drop(before);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(&self.piece))
    }

    /// Consumes `count` bytes of the last piece, at most all of it.
    pub fn consume(&mut self, count: usize) {
        self.piece.advance(count.min(self.piece.len()));
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.inbox.lock().abandoned = true;
        self.inbox.emptied.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::pin::pin;
    use std::sync::mpsc;
    use std::task::Wake;
    use std::thread::{self, Thread};

    /// Reads the pieces that the test sends, and reports when it is dropped.
    struct Source(mpsc::Receiver<io::Result<Vec<u8>>>, mpsc::Sender<()>);

    impl Read for Source {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let piece = self.0.recv().unwrap_or(Ok(Vec::new()))?;
            into[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Drop for Source {
        fn drop(&mut self) {
            let _ = self.1.send(());
        }
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
            thread::park();
        }
    }

    fn stdin() -> (Stdin, mpsc::Sender<io::Result<Vec<u8>>>, mpsc::Receiver<()>) {
        let (sender, pieces) = mpsc::channel();
        let (dropped, is_dropped) = mpsc::channel();
        (Stdin::reading(Source(pieces, dropped)), sender, is_dropped)
    }

    fn take(stdin: &mut Stdin, count: usize) -> io::Result<Vec<u8>> {
        block_on(core::future::poll_fn(|cx| stdin.poll_piece(cx).map_ok(|piece| piece[..count.min(piece.len())].to_vec())))
            .inspect(|taken| stdin.consume(taken.len()))
    }

    #[test]
    fn all_bytes_are_returned_before_the_end_of_input_and_an_interrupted_read_is_repeated() {
        let (mut stdin, sender, _) = stdin();
        for piece in ["one", "two", "three"] {
            sender.send(Ok(piece.into())).unwrap();
        }
        sender.send(Err(io::ErrorKind::Interrupted.into())).unwrap();
        drop(sender);
        for expected in ["on", "e", "tw", "o", "th", "re", "e", "", ""] {
            assert_eq!(take(&mut stdin, 2).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn an_error_is_returned_after_the_bytes_read_before_it() {
        let (mut stdin, sender, is_dropped) = stdin();
        sender.send(Ok(b"one".to_vec())).unwrap();
        sender.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        assert_eq!(take(&mut stdin, 9).unwrap(), b"one");
        assert_eq!(take(&mut stdin, 9).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(take(&mut stdin, 9).unwrap(), b"");
        is_dropped.recv().unwrap();
    }

    #[test]
    fn the_thread_ends_when_the_stdin_value_is_dropped() {
        let (stdin, sender, is_dropped) = stdin();
        for _ in 0..3 {
            let _ = sender.send(Ok(b"one".to_vec()));
        }
        drop(stdin);
        is_dropped.recv().unwrap();
    }
}
