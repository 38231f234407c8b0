//! Addresses that a server asks `call` to open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::call_and_tools::{Ended, Running, answer, call, scripted};
use super::program;
use tests::scratch::Scratch;
use tests::until::until;

/// A folder with scripts in place of the programs that open addresses. Each start of a script adds a line to the file `opened`: the number
/// of arguments, and the arguments.
struct Browser(Scratch);

impl Browser {
    fn new() -> Self {
        let folder = Scratch::new("browser");
        fs::create_dir(&folder).expect("a folder");
        for name in ["xdg-open", "open"] {
            let path = folder.join(name);
            fs::write(&path, "#!/bin/sh\necho \"$#\" \"$@\" >> \"${0%/*}/opened\"\n").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        Self(folder)
    }

    fn call(&self, arguments: &[&str]) -> Ended {
        let path = std::env::var("PATH").unwrap_or_default();
        self.call_with(&format!("{}:{path}", self.0.display()), arguments)
    }

    fn call_with(&self, search_path: &str, arguments: &[&str]) -> Ended {
        let mut command = Command::new(program("call"));
        command.args(arguments).env("PATH", search_path).stdin(Stdio::null());
        Running::of(command).end()
    }

    fn opened(&self) -> Vec<String> {
        let opened = fs::read_to_string(self.0.join("opened")).unwrap_or_default();
        opened.lines().map(str::to_owned).collect()
    }
}

fn has_line_with(ended: &Ended, words: &str) -> bool {
    ended.err.iter().any(|line| line.contains(words))
}

#[test]
fn the_command_line_accepts_or_declines_an_address_which_is_shown_whole() {
    let ended = call(&["--era", "legacy", "--accept", "connect", r#"{"url":"https://login.example.com:8443/a?b=c#d"}"#]).with(0);
    assert_eq!(ended.out, "{\"decided\":\"accept\"}\n");
    for line_text in [
        "call: the server asks to open an address (--accept): Connect your account",
        "  https://login.example.com:8443/a?b=c#d",
        "  It leads to the host login.example.com",
        "call: the server says that it is done at login.example.com",
    ] {
        assert!(ended.err.iter().any(|line| line == line_text), "{line_text}: {ended:?}");
    }
    // Without a handshake there is no notification that the user has finished.
    let ended = call(&["--accept", "connect"]).with(0);
    assert_eq!((&*ended.out, ended.err.len()), ("{\"decided\":\"accept\"}\n", 3), "{ended:?}");
    let ended = call(&["--decline", "connect"]).with(0);
    assert_eq!((&*ended.out, &ended.err[..]), ("{\"decided\":\"decline\"}\n", &[][..]));
}

#[test]
fn without_a_user_the_server_gets_an_error_for_an_address() {
    call(&["connect"]).complained(1, "elicitation by URL");
    call(&["--open-urls", "connect"]).complained(1, "elicitation by URL");
    call(&["--answer", "{}", "connect"]).complained(1, "elicitation by URL");
    call(&["connect", r#"{"require":true}"#]).complained(1, "elicitation by URL");
}

#[test]
fn an_address_is_opened_only_with_the_flag_and_without_a_shell() {
    let url = "https://example.com/$(id)?a='b'&c=d;e";
    let arguments = format!(r#"{{"url":"{url}"}}"#);
    let browser = Browser::new();
    browser.call(&["--accept", "connect", &arguments]).with(0);
    browser.call(&["--decline", "--open-urls", "connect", &arguments]).with(0);
    browser.call(&["--accept", "--open-urls", "connect", &arguments]).with(0);
    let opened = until("the address is opened", || Some(browser.opened()).filter(|opened| !opened.is_empty()));
    assert_eq!(opened, [format!("1 {url}")]);
}

#[test]
fn an_address_for_another_program_is_not_opened_and_a_missing_browser_is_reported() {
    let browser = Browser::new();
    let ended = browser.call(&["--accept", "--open-urls", "connect", r#"{"url":"vscode://publisher.extension/auth"}"#]).with(0);
    assert!(has_line_with(&ended, "It is for another program than a browser: vscode"), "{ended:?}");
    assert!(has_line_with(&ended, "call: the address is not opened here: only http and https are"), "{ended:?}");
    let ended = browser.call_with("/nowhere", &["--accept", "--open-urls", "connect"]).with(0);
    assert_eq!(ended.out, "{\"decided\":\"accept\"}\n", "the user can still open it");
    assert!(has_line_with(&ended, "call: the address is not opened here: "), "{ended:?}");
    assert_eq!(browser.opened(), Vec::<String>::new());
}

#[test]
fn the_number_of_opened_addresses_is_bounded() {
    let browser = Browser::new();
    let ask = r#"i=0; while [ $i -lt 20 ]; do i=$((i+1))
        echo '{"jsonrpc":"2.0","id":'$i',"method":"elicitation/create","params":{"mode":"url","message":"More","url":"https://a.example/'$i'","elicitationId":"'$i'"}}'
        read -r said; done"#;
    let server = scripted(&format!("{ask}\n{}", answer(r#""result":{"content":[]}"#)));
    let ended = browser.call(&["--accept", "--open-urls", "t", "--", "sh", "-c", &server]).with(0);
    assert!(has_line_with(&ended, "call: the address is not opened here: 16 were, which is the most for one call"), "{ended:?}");
    until("sixteen are opened", || (browser.opened().len() == 16).then_some(()));
    assert!(!browser.opened().contains(&"1 https://a.example/17".to_owned()));
}

#[test]
fn the_addresses_in_an_error_are_shown_and_not_opened() {
    let browser = Browser::new();
    let ended = browser.call(&["--era", "legacy", "--accept", "--open-urls", "connect", r#"{"require":true}"#]).with(1);
    assert_eq!(ended.out, "");
    assert_eq!(
        ended.err,
        [
            "call: the server answered with an error: an address must be opened first (-32042): open what follows, then call again",
            "To be opened first: Connect your account",
            "  https://example.com/connect",
            "  It leads to the host example.com",
        ]
    );
    assert_eq!(browser.opened(), Vec::<String>::new());
}

/// A script of a server that first notifies the client that the user has finished at an unknown address, and then makes an input request
/// with `params`. The text of its result is `yes` if the client agrees; otherwise it is `no`, and the script prints the client's answer to
/// stderr.
fn asks(params: &str) -> String {
    let ask = format!(
        "echo '{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/elicitation/complete\",\"params\":{{\"elicitationId\":\"never asked\"}}}}'
        printf '%s\\n' '{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"elicitation/create\",\"params\":{params}}}'
        read -r said; case $said in *accept*) said=yes;; *) echo \"$said\" >&2; said=no;; esac"
    );
    let reply = answer(r#""result":{"content":[{"type":"text","text":"'$said'"}]}"#);
    scripted(&format!("{ask}\n{reply}"))
}

#[test]
fn a_hostile_server_can_hide_neither_its_message_nor_the_host_of_its_address() {
    let params = r#"{"mode":"url","message":"Sign\u202ein\u001b[2J\nto b.example","url":"https://a.example/","elicitationId":"1"}"#;
    let ended = call(&["--accept", "t", "--", "sh", "-c", &asks(params)]).with(0);
    assert_eq!(ended.out, "yes\n");
    assert!(has_line_with(&ended, r"(--accept): Sign\u{202e}in\u{1b}[2J\nto b.example"), "{ended:?}");
    assert!(!has_line_with(&ended, "done"), "the notification is about an unknown address: {ended:?}");

    for (url, why) in [
        (r"https://good.example\u202e/", "must not contain"),
        ("https://good.example@evil.example/", "must not have a user name before its host"),
        ("javascript:alert(1)", "must be absolute"),
    ] {
        let params = format!(r#"{{"mode":"url","message":"?","url":"{url}","elicitationId":"1"}}"#);
        let ended = call(&["--accept", "t", "--", "sh", "-c", &asks(&params)]).with(0);
        assert_eq!(ended.out, "no\n", "{url}");
        assert!(has_line_with(&ended, "-32602") && has_line_with(&ended, why), "{ended:?}");
    }
}

#[test]
fn help_describes_the_handling_of_addresses() {
    let help = call(&["--help"]).with(0).out;
    for line_text in ["--open-urls", "agree to open addresses", "xdg-open opens it", "--answer agrees to no address"] {
        assert!(help.contains(line_text), "{line_text}: {help}");
    }
}
