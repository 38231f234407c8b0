//! The program `tools`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, stderr, stdin};
use std::sync::Arc;
use std::time::Duration;

use endpoint::Service;

pub use super::arguments::{AppWish, Listen};
use super::status::{self, complain, say};
use super::{Ending, arguments};
use crate::audit::Audit;
use crate::tools::{Options, clock, service};

/// The service, and the address that it is served on.
pub struct Serving {
    /// The address that clients come from.
    pub listen: Listen,
    /// The tools.
    pub service: Arc<Service>,
    /// The way in which it ends when it is told to.
    pub ending: Ending,
    /// The time for which calls may go on once the client on standard input has left.
    pub linger: Duration,
}

/// Reads the command line of this process.
///
/// # Errors
/// The status to exit with, after `--help` or a complaint.
pub fn from_command_line() -> Result<Serving, u8> {
    read(env::args_os())
}

pub(super) fn read(line: impl IntoIterator<Item = OsString>) -> Result<Serving, u8> {
    let (listen, line) = arguments::tools(line)?;
    let audit = match &line.audit {
        Some(path) => Audit::append(path)
            .map_err(|error| complain("tools", format_args!("cannot write to {}: {error}", path.display()), status::NO_SERVER))?,
        None => Audit::default(),
    };
    let options = Options { deadline: line.deadline, audit, partial_on_progress: line.partial_on_progress };
    // The end of input is no earlier end for the session than for the program.
    let service = service(&options).configure(|config| {
        config.timeouts.close_grace = config.timeouts.close_grace.max(line.linger);
    });
    let service = if matches!(listen, Listen::Tesseron(_)) { service.resource(clock::resource()) } else { service };
    Ok(Serving { listen, service: Arc::new(service), ending: Ending::new(line.grace), linger: line.linger })
}

impl Serving {
    /// Tells a person who started it by hand what it waits for.
    pub fn greet(&self) {
        if matches!(self.listen, Listen::Stdio) && stdin().is_terminal() && stderr().is_terminal() {
            eprintln!("tools: waiting for an MCP client on stdin; --help says more, Ctrl-C ends it");
        }
    }
}

/// Tells where clients may connect now.
pub fn announce(address: impl fmt::Display) {
    say(format_args!("tools: listening on {address}"));
}

/// Warns that nothing keeps other users out.
pub(super) fn warn_of_any_user() {
    say(format_args!("tools: warning: any user of this machine may claim this app"));
}

/// Tells by which code a gateway may claim the app.
pub fn announce_code(code: &str) {
    say(format_args!("tools: claim code {code}"));
}

/// Says why the transport cannot be opened, or why it failed, and gives back the status to exit with.
pub fn cannot_serve(error: impl fmt::Display) -> u8 {
    complain("tools", error, status::NO_SERVER)
}
