//! The command line and the messages of the program `tools`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{IsTerminal, stderr, stdin};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER_PERMISSIVE;
use endpoint::{SealKeys, Service};

pub use super::arguments::{AppOptions, Listen};
use super::status::{self, complain, say};
use super::{Ending, arguments};
use crate::audit::Audit;
use crate::tools::{Options, clock, service};

/// A service, and the transport to serve it on.
pub struct Serving {
    /// The transport to serve clients on.
    pub listen: Listen,
    /// The tools.
    pub service: Arc<Service>,
    /// The end of the program after a signal.
    pub ending: Ending,
    /// The time for which calls may continue after the end of standard input.
    pub linger: Duration,
}

/// Parses the command line of this process.
///
/// # Errors
/// The exit status, after `--help` or an error was printed.
pub fn from_command_line() -> Result<Serving, u8> {
    read(env::args_os())
}

pub(super) fn read(line: impl IntoIterator<Item = OsString>) -> Result<Serving, u8> {
    let (listen, flags) = arguments::tools(line)?;
    let audit = match &flags.audit {
        Some(path) => Audit::append(path)
            .map_err(|error| complain("tools", format_args!("cannot write to {}: {error}", path.display()), status::NO_SERVER))?,
        None => Audit::default(),
    };
    let options = Options { deadline: flags.deadline, audit, partial_on_progress: flags.partial_on_progress };
    // The session must not close before `--linger` is over.
    let service = service(&options).configure(|config| {
        config.era = flags.era;
        config.timeouts.close_grace = config.timeouts.close_grace.max(flags.linger);
    });
    let service = match &flags.seal_key {
        Some(path) => service.seal_keys(read_key(path).map_err(|why| complain("tools", why, status::NO_SERVER))?),
        None => service,
    };
    let service = if matches!(listen, Listen::Tesseron(_)) { service.resource(clock::resource()) } else { service };
    Ok(Serving { listen, service: Arc::new(service), ending: Ending::new(flags.grace), linger: flags.linger })
}

/// Reads a key of 64 hex digits.
fn read_key(path: &Path) -> Result<SealKeys, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read the key in {}: {error}", path.display()))?;
    let key = HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).ok().and_then(|key| key.try_into().ok());
    key.map(SealKeys::new).ok_or_else(|| format!("the key in {} must be 64 hex digits", path.display()))
}

impl Serving {
    /// Prints that the program waits for a client, if a person has started it at a terminal.
    pub fn greet(&self) {
        if matches!(self.listen, Listen::Stdio) && stdin().is_terminal() && stderr().is_terminal() {
            eprintln!("tools: waiting for an MCP client on stdin; --help says more, Ctrl-C ends it");
        }
    }
}

/// Prints the address that clients can connect to.
pub fn announce(address: impl fmt::Display) {
    say(format_args!("tools: listening on {address}"));
}

/// Prints a warning that other users of this machine can connect.
pub(super) fn warn_of_any_user() {
    say(format_args!("tools: warning: any user of this machine may claim this app"));
}

/// Prints the claim code of the app.
pub fn announce_code(code: &str) {
    say(format_args!("tools: claim code {code}"));
}

/// Prints the reason why the transport cannot be opened or has failed, and returns the exit status.
pub fn cannot_serve(error: impl fmt::Display) -> u8 {
    complain("tools", error, status::NO_SERVER)
}
