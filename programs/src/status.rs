//! The exit statuses of the programs, and the line that is printed to stderr before an exit with an error.

use std::fmt;
use std::io::{Write, stderr};

use crate::display::one_line;

/// Success.
pub const OK: u8 = 0;
/// The tool failed, the server answered with an error, or the result could not be read, saved or written.
pub const TOOL_ERROR: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The call took too long.
pub const TIMED_OUT: u8 = 3;
/// There is no server, the connection was lost, the peer broke a rule, or the transport or a file could not be opened.
pub const NO_SERVER: u8 = 4;
/// The call was cancelled.
pub const CANCELLED: u8 = 130;
/// The call was cancelled by SIGTERM, SIGHUP or SIGQUIT.
pub const TERMINATED: u8 = 143;

/// Prints an error to stderr in one line, and returns `status`.
pub(super) fn complain(program: &str, what: impl fmt::Display, status: u8) -> u8 {
    say(format_args!("{program}: {}", one_line(&what.to_string())));
    status
}

/// Prints a line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed.
pub(super) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}
