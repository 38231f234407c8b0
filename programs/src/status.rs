//! The exit statuses of the programs, and the line on stderr before one.

use std::fmt;
use std::io::{Write, stderr};

use crate::display::one_line;

/// It went well.
pub const OK: u8 = 0;
/// The tool failed, or the server answered with an error.
pub const TOOL_ERROR: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// The call took too long.
pub const TIMED_OUT: u8 = 3;
/// There is no server, the other end was lost on the way or broke the rules, or the transport could not be opened.
pub const NO_SERVER: u8 = 4;
/// The call was cancelled.
pub const CANCELLED: u8 = 130;
/// The call was cancelled by SIGTERM.
pub const TERMINATED: u8 = 143;

/// Says on stderr what went wrong, in one line, and gives back `status`.
pub(super) fn complain(program: &str, what: impl fmt::Display, status: u8) -> u8 {
    say(format_args!("{program}: {}", one_line(&what.to_string())));
    status
}

/// Says something on stderr. A stderr without a reader is no reason to panic, as it is to `eprintln!`.
pub(super) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}
