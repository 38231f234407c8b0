//! Who may connect to `gateway`: the user who runs it, or a client with its bearer token.

use std::fs::{self, OpenOptions};
use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_service::Guard;
use tesseron::claims::{PeerUser, ResumeToken};
use tesseron::net::peer;

use super::status::{self, complain, say};
use crate::adapter::{Adapter, first, start_blocking};

/// The maximum time of looking up the user of a connection.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The check of the clients of a listening gateway.
pub(super) enum Access<A> {
    /// All are served.
    Anyone,
    /// Only this user and clients with the token are served.
    Checked(Checked<A>),
}

/// The check by user and by token.
pub(super) struct Checked<A> {
    adapter: A,
    token: Option<ResumeToken>,
    /// `true` once a refusal was printed, since another user can cause any number of them.
    has_complained: AtomicBool,
}

impl<A: Adapter> Access<A> {
    /// The check for a gateway that listens. Makes a token if there is a file for it. Returns an error if nobody could be recognised, or if
    /// there are no random bytes.
    pub(super) fn new(adapter: &A, allow_any_user: bool, token_file: Option<&Path>) -> Result<Self, String> {
        if allow_any_user {
            say(format_args!("gateway: warning: any user of this machine may use this gateway and the apps that it has claimed"));
            return Ok(Self::Anyone);
        }
        if token_file.is_none() && !peer::can_be_known() {
            return Err(
                "this system does not report the user of a connection, so any user could use this gateway: it needs --http with \
                        --token-file, or --allow-any-user"
                    .to_owned(),
            );
        }
        let token = token_file.map(|_| mint(adapter)).transpose().map_err(|error| format!("cannot make a token: {error}"))?;
        Ok(Self::Checked(Checked { adapter: adapter.clone(), token, has_complained: AtomicBool::new(false) }))
    }

    /// Returns `true` if a TCP client is served. `ends` are the addresses of the connection, first ours.
    pub(super) async fn serves(&self, ends: Option<[SocketAddr; 2]>) -> bool {
        match (self, ends) {
            (Self::Anyone, _) => true,
            (Self::Checked(_), None) => false,
            (Self::Checked(checked), Some([local, remote])) => {
                let user = user_of(checked.adapter.clone(), local, remote).await;
                if user.is_some_and(|user| user != PeerUser::ThisUser) {
                    checked.complain();
                }
                user == Some(PeerUser::ThisUser)
            }
        }
    }
}

impl<A> Checked<A> {
    /// The token, to be written to its file.
    pub(super) fn token(&self) -> Option<String> {
        self.token.as_ref().map(|token| token.reveal().to_owned())
    }

    fn complain(&self) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            complain(
                "gateway",
                "a client that is not known to be this user was refused (further ones are not reported)",
                status::OK,
            );
        }
    }
}

impl<A: Adapter> Guard for Checked<A> {
    fn trusts(&self, local: SocketAddr, remote: SocketAddr) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let adapter = self.adapter.clone();
        Box::pin(async move { user_of(adapter, local, remote).await == Some(PeerUser::ThisUser) })
    }

    fn admits(&self, token: Option<&str>) -> bool {
        let given = token.and_then(|token| ResumeToken::parse(token).ok());
        let is_right = matches!((&self.token, given), (Some(token), Some(given)) if token.matches(&given));
        if !is_right {
            self.complain();
        }
        is_right
    }
}

/// The user at the other end of a connection; `None` if the connection has ended, or if the look-up takes too long.
async fn user_of<A: Adapter>(adapter: A, local: SocketAddr, remote: SocketAddr) -> Option<PeerUser> {
    let found = start_blocking(&*adapter.runtime(), move || peer::find_all(local, &[remote]));
    let too_late = async {
        adapter.sleep(LOOK_UP).await;
        Vec::new()
    };
    first(found, too_late).await.into_iter().next().flatten()
}

/// A new token. Resume tokens of Tesseron are what is needed here: 24 random bytes, compared in constant time.
fn mint<A: Adapter>(adapter: &A) -> io::Result<ResumeToken> {
    let runtime = adapter.runtime();
    let mut made = Ok(());
    let token = ResumeToken::mint(&mut |bytes| {
        if made.is_ok() {
            made = runtime.fill_random(bytes);
        }
    });
    made.map(|()| token)
}

/// The file with the bearer token. Dropping this removes the file, unless another gateway has replaced it.
pub(super) struct TokenFile {
    path: PathBuf,
    text: String,
}

impl TokenFile {
    /// Writes a token to a new file that only this user can read. Replaces an older file, so it must not be called before the gateway
    /// listens: one that cannot listen must leave the file of another gateway alone.
    pub(super) fn write(path: &Path, token: &str) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        // A file that exists would keep its owner and its mode, so the file must be new.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let written = Self { path: path.to_owned(), text: format!("{token}\n") };
        file.write_all(written.text.as_bytes())?;
        Ok(written)
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // A file that was not written whole has the beginning of the text.
        if fs::read_to_string(&self.path).is_ok_and(|text| self.text.starts_with(&text)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
