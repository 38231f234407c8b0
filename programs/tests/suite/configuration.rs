//! The README shows a configuration for an agent. The tools of each server in it are listed, as the agent would list them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::call_and_tools::{Running, start};
use super::program;
use tests::scratch::Scratch;

const README: &str = include_str!("../../../README.md");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    mcp_servers: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Entry {
    /// A server process that the agent starts.
    Program {
        command: String,
        #[serde(default)]
        args: Vec<OsString>,
    },
    /// A server that runs already.
    Http { r#type: String, url: String },
}

fn entries() -> BTreeMap<String, Entry> {
    let block = README.split("```json\n").find(|block| block.contains("mcpServers")).expect("a configuration");
    let text = block.split("```").next().expect("a block");
    serde_json::from_str::<Configuration>(text).expect("a configuration").mcp_servers
}

/// Lists the tools of a server with `call`, which must succeed.
fn list(server: impl IntoIterator<Item = OsString>) -> String {
    let home = Scratch::new("home");
    let mut command = Command::new(program("call"));
    command.arg("--list").args(server).env("HOME", home.as_os_str()).stdin(Stdio::null());
    Running::of(command).end().with(0).out
}

#[test]
fn each_server_in_the_configuration_of_the_readme_can_be_started_and_has_tools() {
    let entries = entries();
    for (name, entry) in &entries {
        let listed = match entry {
            Entry::Program { command, args } => {
                list(["--".into(), program(command).into()].into_iter().chain(args.iter().cloned()))
            }
            Entry::Http { r#type, url } => {
                assert_eq!(r#type, "http");
                let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")).expect("an address");
                assert!(README.contains(&format!("`tools --http {address}`")), "the README starts the server of {url}");
                // At a free port, since the one of the README may be in use.
                let (host, _) = address.rsplit_once(':').expect("a port");
                let mut tools = start("tools", ["--http", &format!("{host}:0")], Stdio::null());
                let line = tools.until_error_line("listening on http://");
                list(["--url", line.rsplit(' ').next().expect("a URL")].map(OsString::from))
            }
        };
        let tool = if name == "apps" { "tesseron__claim_session" } else { "progress" };
        assert!(listed.contains(tool), "{name}: {listed}");
    }
    assert_eq!(entries.len(), 3);
}
