//! Showing and opening the URLs that a server asks to open.

use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use protocol_core::OpenUrl;

use super::arguments::apart;
use super::display::{Display, visible};

/// The command that opens a URL in the default browser; the URL is its last argument.
#[cfg(target_os = "macos")]
const OPENER: &[&str] = &["open"];
/// The same for Windows. The shell command `start` is not used, since the shell would interpret `&` in a URL.
#[cfg(windows)]
const OPENER: &[&str] = &["rundll32", "url.dll,FileProtocolHandler"];
#[cfg(not(any(windows, target_os = "macos")))]
const OPENER: &[&str] = &["xdg-open"];

/// The maximum number of URLs that are opened in one call, since with `--accept` no person limits the number.
const MAX_OPENED: usize = 16;

/// The maximum number of accepted URLs that are remembered until the server reports that the user has finished.
const MAX_REMEMBERED: usize = 64;

/// The URLs of a call that the user has accepted.
pub(super) struct Addresses {
    display: Arc<Display>,
    opened: AtomicUsize,
    /// The ids and hosts of the accepted URLs at which the user has not finished yet, oldest first.
    agreed: Mutex<VecDeque<(String, String)>>,
}

impl Addresses {
    pub(super) fn new(display: Arc<Display>) -> Self {
        Self { display, opened: AtomicUsize::new(0), agreed: Mutex::default() }
    }

    /// Records that the user has accepted a URL, and opens it if `opens` is `true`.
    pub(super) fn agree(&self, open: &OpenUrl, opens: bool) {
        let host = open.host().unwrap_or_default().to_owned();
        let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        if agreed.len() == MAX_REMEMBERED {
            agreed.pop_front();
        }
        agreed.push_back((open.id.clone(), host));
        drop(agreed);
        if opens && let Err(why) = self.open(open) {
            self.display.print(&format!("call: the address is not opened here: {why}"));
        }
    }

    /// Prints that the user has finished at a URL. Ignores unknown ids.
    pub(super) fn done(&self, id: &str) {
        let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = agreed.iter().position(|(known, _)| known == id).and_then(|at| agreed.remove(at));
        drop(agreed);
        if let Some((_, host)) = finished {
            self.display.print(&format!("call: the server says that it is done at {host}"));
        }
    }

    fn open(&self, open: &OpenUrl) -> Result<(), String> {
        if !can_open(open) {
            return Err("only http and https are".to_owned());
        }
        if self.opened.fetch_add(1, Ordering::Relaxed) >= MAX_OPENED {
            return Err(format!("{MAX_OPENED} were, which is the most for one call"));
        }
        let [program, before @ ..] = OPENER else {
            return Err("no program is known that opens addresses on this system".to_owned());
        };
        let mut command = Command::new(program);
        command.args(before).arg(&open.url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The opener gets a process group of its own, so that the browser survives the end of the call and a Ctrl-C.
        let mut opener = apart(command).spawn().map_err(|error| format!("{program}: {error}"))?;
        let display = Arc::clone(&self.display);
        thread::spawn(move || match opener.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => display.print(&format!("call: the address is not opened here: {program}: {status}")),
            Err(error) => display.print(&format!("call: the address is not opened here: {program}: {error}")),
        });
        Ok(())
    }
}

/// Returns `true` for `http` and `https`. Other schemes could start other programs than a browser.
pub(super) fn can_open(open: &OpenUrl) -> bool {
    scheme(open).is_some_and(|scheme| scheme == "http" || scheme == "https")
}

fn scheme(open: &OpenUrl) -> Option<String> {
    open.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase())
}

/// Describes a URL in several lines: `lead` and the message of the server, the whole URL, its host, and warnings.
pub(super) fn described(lead: &str, open: &OpenUrl) -> String {
    let host = open.host().unwrap_or_default();
    let mut lines = vec![format!("{lead}{}", visible(&open.message)), format!("  {}", visible(&open.url))];
    lines.push(format!("  It leads to the host {host}"));
    let is_here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    match scheme(open).as_deref() {
        Some("https") => {}
        Some("http") if is_here => {}
        Some("http") => lines.push("  Others can read and change what goes there: http is not encrypted".to_owned()),
        scheme => lines.push(format!("  It is for another program than a browser: {}", scheme.unwrap_or_default())),
    }
    if host.split('.').any(|label| label.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case("xn--"))) {
        lines.push("  The host has letters that may look like others (xn--)".to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(message: &str, url: &str) -> OpenUrl {
        OpenUrl::new(message, url).with_id("1")
    }

    #[test]
    fn an_address_is_shown_whole_with_its_host_and_warnings() {
        let shown = |message: &str, url: &str| described("Asked: ", &open(message, url));
        let plain = "Asked: Sign in\n  https://a.example:8443/x?y#z\n  It leads to the host a.example";
        assert_eq!(shown("Sign in", "https://a.example:8443/x?y#z"), plain);
        let hidden = shown("Sign\x1b[2J\u{202e}in\nHost: b", "https://a.example/");
        assert!(hidden.starts_with("Asked: Sign\\u{1b}[2J\\u{202e}in\\nHost: b\n  https://a.example/\n"), "{hidden}");
        for (url, warning) in [
            ("http://a.example/", Some("not encrypted")),
            ("http://localhost:8080/", None),
            ("http://[::1]/", None),
            ("vscode://a.b/", Some("another program than a browser: vscode")),
            ("https://www.XN--exmple-cua.com/", Some("(xn--)")),
            ("https://exn--a.example/", None),
        ] {
            let shown = shown("?", url);
            match warning {
                Some(warning) => assert!(shown.contains(warning), "{shown}"),
                None => assert_eq!(shown.lines().count(), 3, "{shown}"),
            }
        }
    }

    #[test]
    fn only_addresses_for_a_browser_are_passed_to_the_system() {
        for (url, can) in [("https://a/", true), ("HTTP://a/", true), ("vscode://a/", false), ("httpsx://a/", false)] {
            assert_eq!(can_open(&open("?", url)), can, "{url}");
        }
    }
}
