//! Parses the command lines.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgGroup, Parser};
use protocol_core::mcp::Era;
use protocol_core::{Json, Level};
use serde::Serialize;
use tesseron::bridge::Surface;
use tesseron::claims::{AppId, RegistryPolicy};
use tesseron::net::{Binding, ClaimCodeSource, TesseronOptions};

use super::status::{self, complain};
use crate::adapter::Place;

/// The hidden first flag that makes the program `call` behave as `tools`. If no server is named, `call` starts itself with this flag as the
/// server.
pub(super) const SERVE_TOOLS: &str = "--serve-tools";

const TOOLS_HELP: &str = "\
Without --tcp, --http, --unix or --tesseron it serves MCP on stdin and stdout, one JSON message in each
line; stdout has nothing else. At the end of stdin it answers the requests that it has read, for at most the time of
--linger, and exits; if its stdout is closed, too, it exits at once. After a Ctrl-C, SIGTERM, SIGHUP or SIGQUIT it
accepts no more clients and lets running calls finish within the grace; then it cancels and answers the remaining
ones. A second signal ends it at once. Cancelled calls have 0.3 seconds to clean up, and their lines of
the audit are written. After a second signal they have no time, and their lines may be missing.

With --partial-on-progress each update of progress contains the partial result, so that a client that
cancels has it, too: after a cancel MCP allows no further message about the call.

The revision 2026-07-28 of MCP has no handshake, and is served beside the older ones; with --era modern only
this revision is served, with --era legacy only the older ones. In this revision the input request of a tool
ends the request of the client, and the tool runs again from its first line when the client sends the request
again with the answer. Another process may serve that second request if both have the same --seal-key. Without
this flag, each process has a key of its own.

With --tesseron the same tools are the actions of a Tesseron app, with a resource `clock` that can be
subscribed. It listens on a WebSocket of this machine, or with --unix on a socket in the home. A manifest
in the home has the address until the app ends. The code with which a gateway may claim the app is printed
to stderr; when the gateway has disconnected, there is a new code. With --gateway-claims any gateway may
connect, and the code comes from the gateway; a claimed session is then resumed when the gateway
reconnects.

Other users of this machine cannot reach the socket in the home. On a WebSocket they are refused if the
system identifies the user of a connection, as Linux does; otherwise the code keeps them out, and each
wrong code delays the next ones, by 2 seconds at most. With --gateway-claims the app has no code, so on
a WebSocket of another system --any-user is needed as well.

Each line of the audit FILE is about one call: tool, outcome (ok, error, cancelled, timeout), done,
steps, and the partial result of a call that was cut short.

Exit status:
  0  the client has disconnected, or a signal has ended the program
  2  the command line is invalid
  4  the transport or the audit file cannot be opened, the transport broke, or the client on stdin made
     no handshake, sent a line that is too long, or did not read its answers
";

/// An MCP server, or a Tesseron app, with long-running tools.
#[derive(Debug, Parser)]
#[command(name = "tools", disable_help_subcommand = true, after_help = TOOLS_HELP)]
pub(super) struct ToolsLine {
    /// Listen on ADDR, as in 127.0.0.1:7777; port 0 picks one. The address goes to stderr.
    #[arg(long, value_name = "ADDR", conflicts_with = "unix")]
    tcp: Option<String>,
    /// Serve over HTTP on ADDR, to clients on this machine, at http://ADDR/mcp or any other path.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["tcp", "unix", "tesseron"])]
    http: Option<String>,
    /// Listen on a Unix socket at PATH; with --tesseron on one in the home, and without a PATH.
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    unix: Option<Option<PathBuf>>,
    /// Be a Tesseron app.
    #[arg(long, conflicts_with = "tcp")]
    tesseron: bool,
    /// Listen on a WebSocket, which is the default with --tesseron.
    #[arg(long, requires = "tesseron", conflicts_with = "unix")]
    ws: bool,
    /// Let the gateway choose the code; on a WebSocket, systems other than Linux also need --any-user.
    #[arg(long, requires = "tesseron")]
    gateway_claims: bool,
    /// Let gateways of any user of this machine connect to the WebSocket.
    #[arg(long, requires = "tesseron", conflicts_with = "unix")]
    any_user: bool,
    /// Keep the manifest below DIR instead of the home of the user.
    #[arg(long, value_name = "DIR", requires = "tesseron")]
    home: Option<PathBuf>,
    /// Use ID as the id of the app: a small letter, then small letters, digits and _ [default: tools].
    #[arg(long, value_name = "ID", requires = "tesseron")]
    app_id: Option<String>,
    /// End a call that takes longer than S seconds, as in 1.5.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(super) deadline: Option<Duration>,
    /// Let calls run on for SECONDS once the client has ended stdin.
    #[arg(long, value_name = "SECONDS", value_parser = span, default_value = "1")]
    pub(super) linger: Duration,
    /// Let calls run on for S seconds after Ctrl-C, SIGTERM, SIGHUP or SIGQUIT.
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "5")]
    pub(super) grace: Duration,
    /// Send the partial result with each update of progress.
    #[arg(long)]
    pub(super) partial_on_progress: bool,
    /// Serve the revisions of MCP of this ERA: legacy, modern or auto, which is both.
    #[arg(long, value_name = "ERA", value_parser = era, default_value = "auto", conflicts_with = "tesseron")]
    pub(super) era: Era,
    /// Seal the state between two rounds of a call with the key in FILE, 64 hex digits, so that any process with this key can continue the
    /// call.
    #[arg(long, value_name = "FILE", conflicts_with = "tesseron")]
    pub(super) seal_key: Option<PathBuf>,
    /// Append one line of JSON for each call to FILE.
    #[arg(long, value_name = "FILE")]
    pub(super) audit: Option<PathBuf>,
}

const GATEWAY_HELP: &str = "\
It serves MCP on stdin and stdout, one JSON message in each line, or with --tcp to one client after the
other. At the end of stdin it answers the requests that it has read, for at most the time of --linger,
and exits; if its stdout is closed, too, it exits at once.

With --http the client connects over Streamable HTTP. There is one session at a time: a client that opens
one ends the session before it, since an app has one gateway.

With --tcp and --http only programs of the user who runs the gateway are served, as far as the system
reports the user of a connection, as Linux does. Over HTTP also a client with the token in the file of
--token-file is served, in the header `Authorization: Bearer TOKEN`. Where the system does not report users,
--http needs --token-file, and --tcp does not listen. A connection of another user is closed over TCP, and
gets 401 over HTTP. With --allow-any-user all are served, and any user can then call the tools of the apps
that are claimed.

Apps are found by their manifests in the home; the gateway connects only to apps of this user on this
machine. Claim an app by giving the model the code that the app shows.

Environment: TESSERON_TOOL_SURFACE and TESSERON_RESUME_TTL_MS (in milliseconds) apply if --surface and
--resume-ttl are not given.

Exit status:
  0  the client has disconnected, or a signal has ended the program
  2  the command line is invalid
  4  the transport cannot be opened, or not without serving any user; the token cannot be written; the
     transport broke; or the client on stdin made no handshake, sent a line that is too long, or did not
     read its answers
";

/// A gateway from an MCP client to the Tesseron apps of this user.
#[derive(Debug, Parser)]
#[command(name = "gateway", disable_help_subcommand = true, after_help = GATEWAY_HELP)]
#[command(group(ArgGroup::new("listen").args(["tcp", "http"])))]
struct GatewayLine {
    /// Listen on ADDR, as in 127.0.0.1:7777, instead of stdin; port 0 picks one. The address goes to stderr.
    #[arg(long, value_name = "ADDR")]
    tcp: Option<String>,
    /// Listen on ADDR as with --tcp, and serve over HTTP.
    #[arg(long, value_name = "ADDR", conflicts_with = "tcp")]
    http: Option<String>,
    /// Write a new bearer token to FILE, which only this user can read, and serve HTTP clients that present it.
    #[arg(long, value_name = "FILE", requires = "http", conflicts_with_all = ["tcp", "allow_any_user"])]
    token_file: Option<PathBuf>,
    /// Serve programs of any user of this machine, or of any machine that can reach the address.
    #[arg(long, requires = "listen")]
    allow_any_user: bool,
    /// Find the manifests below DIR instead of the home of the user.
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// List these tools: `dynamic` is one for each action, `meta` is those of the gateway itself, `both` is all [default: both].
    #[arg(long, value_name = "MODE", value_parser = surface)]
    surface: Option<Surface>,
    /// Seconds in which an app that has disconnected may resume its session; 0 is never [default: 14400].
    #[arg(long, value_name = "S", value_parser = span)]
    resume_ttl: Option<Duration>,
    /// Let calls run on for SECONDS once the client has ended stdin.
    #[arg(long, value_name = "SECONDS", value_parser = span, default_value = "1")]
    linger: Duration,
    /// Print all events to stderr.
    #[arg(long)]
    verbose: bool,
}

const CALL_USAGE: &str = "\
call [OPTIONS] TOOL [JSON] [-- SERVER CMD...]
       call [OPTIONS] --prompt NAME [JSON] [-- SERVER CMD...]
       call [OPTIONS] --list [-- SERVER CMD...]";

const CALL_HELP: &str = "\
JSON is the object of arguments, as in '{\"steps\":20}'; the default is {}. Without a server in the command
line, call starts the example tools itself.

The result goes to stdout: its text, or its structured content if it has no text. Everything else goes
to stderr: a live bar on a terminal, or otherwise one line `i/total percent message` for each update;
log records; errors. So `call ... > file` shows progress while the file gets the result. The partial
result of a call that was cut short goes to stdout as JSON, if the server sends one.

Questions of the server are answered by the flags above. If no flag does, you are asked, provided that
stdin and stderr are a terminal; otherwise call declares to the server that it cannot answer.

A server may ask you to open an address, for example to sign in. The whole address is shown, with the
host that it leads to. After you or --accept have agreed to it, it is opened only on request: by your
answer, or by --open-urls. xdg-open opens it (open on macOS, rundll32 on Windows), at most 16 addresses
in one call, and only http and https. --answer agrees to no address. If an error demands that addresses
are opened first, they are shown and not opened.

The server is first asked for its revisions. If it does not answer within 10 seconds, it is taken for an
old one, or for a dead one over HTTP; if it exits, disconnects or refuses the handshake that follows, call
starts it, or connects to it, once more. --era legacy is for servers that fail at this request: it is then
not sent.

Ctrl-C, SIGTERM, SIGHUP and SIGQUIT cancel the call and print the last progress. Afterwards a server that call
has started should exit at the end of its stdin. If it does not within 2 seconds, it gets SIGTERM, and half a
second later SIGKILL, together with the processes that it has started. Processes that it leaves behind end,
too, unless they have left its process group, as with setsid.

Exit status:
    0  a result
    1  the tool failed, the server answered with an error, or --save could not save the content
    2  the command line is invalid
    3  the handshake or the call took too long
    4  there is no server, the connection was lost, or a response over HTTP had no answer
  130  cancelled
  143  cancelled by SIGTERM, SIGHUP or SIGQUIT

Examples:
  call progress '{\"steps\":20,\"step_ms\":100}'
  call --accept delete '{\"name\":\"draft\"}'
  call --url http://127.0.0.1:8080/mcp --header 'Authorization: Bearer TOKEN' --list
  call --list -- npx -y @modelcontextprotocol/server-everything
  call --save pictures get-tiny-image -- npx -y @modelcontextprotocol/server-everything
";

/// Calls a tool of an MCP server and shows its progress.
#[derive(Debug, Parser)]
#[command(name = "call", disable_help_subcommand = true, override_usage = CALL_USAGE, after_help = CALL_HELP)]
#[command(group = ArgGroup::new("transport").args(["tcp", "unix", "url", "server"]))]
#[command(group = ArgGroup::new("forms").args(["accept", "decline", "answer"]))]
#[command(group = ArgGroup::new("samples").args(["sample_reply", "sample_cmd"]))]
#[command(group = ArgGroup::new("other").args(["prompt", "list"]))]
struct CallLine {
    /// The name of the tool, followed by the JSON object of its arguments; with --prompt only the object, with --list neither.
    #[arg(value_names = ["TOOL", "JSON"], num_args = 0..=2)]
    words: Vec<OsString>,
    /// Get the prompt NAME instead of calling a tool.
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// List the tools and prompts of the server.
    #[arg(long)]
    list: bool,
    /// Connect to a server at ADDR, as in 127.0.0.1:7777.
    #[arg(long, value_name = "ADDR")]
    tcp: Option<String>,
    /// Connect to a server on the Unix socket at PATH.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Connect to a server over HTTP at URL, as in http://127.0.0.1:8080/mcp.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Add a header to each request, as in 'Authorization: Bearer TOKEN'; may be repeated.
    #[arg(long, value_name = "HEADER", requires = "url", value_parser = header)]
    header: Vec<(String, String)>,
    /// Use the revisions of MCP with a handshake (legacy), those without (modern), or modern if the server has it, else legacy (auto).
    #[arg(long, value_name = "ERA", value_parser = era, default_value = "auto")]
    era: Era,
    /// Give up if the server has not started and made its handshake within S seconds [default: 60 if call starts
    /// it, else 10].
    #[arg(long, value_name = "S", value_parser = seconds)]
    start_timeout: Option<Duration>,
    /// Give up after S seconds without progress, counted from the sending of the call [default: 60].
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Give up after S seconds in all, counted from the sending of the call [default: 600].
    #[arg(long, value_name = "S", value_parser = seconds)]
    max_total: Option<Duration>,
    /// Cancel the call after N updates.
    #[arg(long, value_name = "N", value_parser = updates)]
    cancel_after: Option<u64>,
    /// Show log records of the server from level L on: debug, info, ... emergency.
    #[arg(long, value_name = "L", value_parser = level)]
    log_level: Option<Level>,
    /// Say yes to questions, accept forms with their defaults, and agree to open addresses.
    #[arg(long)]
    accept: bool,
    /// Say no to questions, forms and addresses.
    #[arg(long)]
    decline: bool,
    /// Say yes to questions, and fill forms with this object.
    #[arg(long, value_name = "JSON", value_parser = object)]
    answer: Option<Json>,
    /// Use the browser of this system to open addresses that were agreed to.
    #[arg(long)]
    open_urls: bool,
    /// Answer for the model with TEXT.
    #[arg(long, value_name = "TEXT")]
    sample_reply: Option<String>,
    /// Answer for the model with the output of the shell command CMD, which gets the question on stdin.
    #[arg(long, value_name = "CMD")]
    sample_cmd: Option<String>,
    /// Offer DIR to the server as a folder to work in; may be given several times.
    #[arg(long, value_name = "DIR", value_parser = root)]
    roots: Vec<Root>,
    /// Save images, audio and blobs of the result as new files in DIR, which is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Start this server and connect to its stdin and stdout.
    #[arg(last = true, value_name = "SERVER CMD")]
    server: Vec<OsString>,
}

/// The transport to serve clients on.
#[derive(Clone, Debug)]
pub enum Listen {
    /// Standard input and output, for the one client that started this process.
    Stdio,
    /// A TCP address, for any number of clients.
    Tcp(String),
    /// The path of a Unix socket, for any number of clients.
    Unix(PathBuf),
    /// A TCP address, for any number of clients that speak HTTP.
    Http(String),
    /// A Tesseron listener, for one gateway after the other.
    Tesseron(AppOptions),
}

/// The Tesseron app as which `tools` serves.
#[derive(Clone, Debug)]
pub struct AppOptions {
    /// The id of the app.
    pub id: AppId,
    /// The options of its listener.
    pub options: TesseronOptions,
}

/// The parsed command line of `gateway`.
#[derive(Debug)]
pub(super) struct GatewayOptions {
    pub(super) tcp: Option<String>,
    pub(super) http: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) allow_any_user: bool,
    pub(super) home: Option<PathBuf>,
    pub(super) surface: Surface,
    pub(super) resume_ttl: Duration,
    pub(super) linger: Duration,
    pub(super) verbose: bool,
}

/// The parsed command line of `call`.
#[derive(Debug)]
pub(super) struct CallOptions {
    pub(super) server: Server,
    pub(super) work: Work,
    pub(super) era: Era,
    pub(super) start_timeout: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) max_total: Option<Duration>,
    pub(super) cancel_after: Option<u64>,
    pub(super) log_level: Option<Level>,
    pub(super) forms: Option<Forms>,
    pub(super) open_urls: bool,
    pub(super) samples: Option<Samples>,
    pub(super) roots: Vec<Root>,
    pub(super) save: Option<PathBuf>,
}

/// A root: a folder to work in, for the server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Root {
    uri: String,
    name: String,
}

/// The server that `call` calls.
#[derive(Debug)]
pub enum Server {
    /// The URL of a server over HTTP, and the names and values of the headers of each request.
    Http(String, Vec<(String, String)>),
    /// A server that speaks on a stream of bytes.
    Stream(StreamServer),
}

/// A server that speaks on a stream of bytes.
#[derive(Debug)]
pub enum StreamServer {
    /// A TCP address or a Unix socket to connect to.
    Place(Place),
    /// A program to start, which serves on its stdin and stdout.
    Child(Command),
}

/// The request to make.
#[derive(Debug)]
pub(super) enum Work {
    Tool { name: String, arguments: Json },
    Prompt { name: String, arguments: BTreeMap<String, String> },
    List,
}

/// The answers to forms that are given without asking a person.
#[derive(Clone, Debug)]
pub(super) enum Forms {
    Accept,
    Decline,
    Content(Json),
}

/// The answers to sampling requests that are given without asking a person.
#[derive(Clone, Debug)]
pub(super) enum Samples {
    Reply(String),
    Command(String),
}

/// Parses the command line of `tools`. On an error, prints it and returns the exit status.
pub(super) fn tools(line: impl IntoIterator<Item = OsString>) -> Result<(Listen, ToolsLine), u8> {
    let mut line = ToolsLine::try_parse_from(line).map_err(|error| explain("tools", &error))?;
    let listen = line.listen().map_err(|why| complain("tools", format_args!("{why} (try --help)"), status::USAGE))?;
    Ok((listen, line))
}

impl ToolsLine {
    /// Reads the transport to serve clients on.
    fn listen(&mut self) -> Result<Listen, String> {
        if self.tesseron {
            return self.app().map(Listen::Tesseron);
        }
        if let Some(address) = self.http.take() {
            return Ok(Listen::Http(address));
        }
        match (self.tcp.take(), self.unix.take()) {
            (Some(address), _) => Ok(Listen::Tcp(address)),
            (None, Some(Some(path))) => Ok(Listen::Unix(path)),
            (None, Some(None)) => Err("--unix needs a PATH, or --tesseron".to_owned()),
            (None, None) => Ok(Listen::Stdio),
        }
    }

    fn app(&mut self) -> Result<AppOptions, String> {
        let binding = match self.unix.take() {
            None => Binding::WebSocket,
            #[cfg(unix)]
            Some(None) => Binding::Unix,
            #[cfg(not(unix))]
            Some(None) => return Err("there are no Unix sockets here".to_owned()),
            Some(Some(path)) => return Err(format!("with --tesseron the socket is in the home, not at {}", path.display())),
        };
        let id = self.app_id.as_deref().unwrap_or("tools");
        let id = AppId::parse(id).map_err(|why| format!("--app-id {id}: {why}"))?;
        let mut options = TesseronOptions::new(id.as_str(), binding);
        options.home = self.home.take();
        options.any_user = self.any_user;
        if self.gateway_claims {
            options.claim_code_source = ClaimCodeSource::Gateway;
        }
        Ok(AppOptions { id, options })
    }
}

/// Parses the command line and the environment of `gateway`. On an error, prints it and returns the exit status.
pub(super) fn gateway(
    line: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<GatewayOptions, u8> {
    let line = GatewayLine::try_parse_from(line).map_err(|error| explain("gateway", &error))?;
    let variable = |name: &str| environment(name).and_then(|value| value.into_string().ok());
    // An invalid value in the environment is ignored, with this warning.
    let warn = |name: &str, value: &str| {
        complain("gateway", format_args!("{name}={value} is invalid and is ignored"), status::USAGE);
    };
    let from_environment = || {
        let value = variable("TESSERON_TOOL_SURFACE")?;
        surface(&value).inspect_err(|_| warn("TESSERON_TOOL_SURFACE", &value)).ok()
    };
    let ttl_from_environment = || {
        let value = variable("TESSERON_RESUME_TTL_MS")?;
        let millis = value.parse().inspect_err(|_| warn("TESSERON_RESUME_TTL_MS", &value)).ok()?;
        Some(Duration::from_millis(millis))
    };
    let default = RegistryPolicy::default().resume_ttl;
    Ok(GatewayOptions {
        surface: line.surface.or_else(from_environment).unwrap_or_default(),
        resume_ttl: line.resume_ttl.or_else(ttl_from_environment).unwrap_or(default),
        tcp: line.tcp,
        http: line.http,
        token_file: line.token_file,
        allow_any_user: line.allow_any_user,
        home: line.home,
        linger: line.linger,
        verbose: line.verbose,
    })
}

fn surface(name: &str) -> Result<Surface, String> {
    match name {
        "dynamic" => Ok(Surface::Dynamic),
        "meta" => Ok(Surface::Meta),
        "both" => Ok(Surface::Both),
        _ => Err("must be dynamic, meta or both".to_owned()),
    }
}

/// Parses the command line of `call`. On an error, prints it and returns the exit status.
pub(super) fn call(line: impl IntoIterator<Item = OsString>) -> Result<CallOptions, u8> {
    let line = CallLine::try_parse_from(line).map_err(|error| explain("call", &error))?;
    convert(line).map_err(|why| complain("call", format_args!("{why} (try --help)"), status::USAGE))
}

/// Converts a parsed command line into a [`CallOptions`]. Fails if its parts do not fit together. Creates the folder of `--save`.
fn convert(line: CallLine) -> Result<CallOptions, String> {
    let mut words = Vec::new();
    for word in line.words {
        words.push(word.into_string().map_err(|word| format!("{} is not UTF-8", word.display()))?);
    }
    let mut words = words.into_iter();
    let work = if line.list {
        Work::List
    } else if let Some(name) = line.prompt {
        let arguments = words.next().map_or_else(|| Ok(Json::empty_object()), |text| arguments(&text))?;
        match arguments.decode() {
            Ok(arguments) => Work::Prompt { name, arguments },
            Err(_) => return Err("the arguments of a prompt must be strings, as in '{\"topic\":\"rust\"}'".to_owned()),
        }
    } else {
        let name = words.next().ok_or("name a tool, or use --prompt or --list")?;
        Work::Tool { name, arguments: words.next().map_or_else(|| Ok(Json::empty_object()), |text| arguments(&text))? }
    };
    if let Some(word) = words.next() {
        return Err(format!("there is nothing that {word:?} could mean here"));
    }
    if let Some(folder) = &line.save {
        // Created before the call, so that an error is reported before there is a result that cannot be saved.
        std::fs::create_dir_all(folder).map_err(|error| format!("--save {}: {error}", folder.display()))?;
    }
    Ok(CallOptions {
        era: line.era,
        server: match line.url {
            Some(url) => Server::Http(url, line.header),
            None => Server::Stream(stream_server(line.tcp, line.unix, line.server)?),
        },
        work,
        start_timeout: line.start_timeout,
        idle: line.timeout,
        max_total: line.max_total,
        cancel_after: line.cancel_after,
        log_level: line.log_level,
        forms: match line.answer {
            Some(content) => Some(Forms::Content(content)),
            None if line.accept => Some(Forms::Accept),
            None if line.decline => Some(Forms::Decline),
            None => None,
        },
        open_urls: line.open_urls,
        samples: line.sample_reply.map(Samples::Reply).or_else(|| line.sample_cmd.map(Samples::Command)),
        roots: line.roots,
        save: line.save,
    })
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn stream_server(tcp: Option<String>, unix: Option<PathBuf>, command: Vec<OsString>) -> Result<StreamServer, String> {
    if let Some(address) = tcp {
        return Ok(StreamServer::Place(Place::Tcp(address)));
    }
    if let Some(path) = unix {
        return Ok(StreamServer::Place(Place::Unix(path)));
    }
    let mut command = command.into_iter();
    let child = match command.next() {
        Some(program) => {
            let mut child = Command::new(located(program));
            child.args(command);
            child
        }
        None => {
            let own =
                std::env::current_exe().map_err(|error| format!("cannot find this program to start it as server: {error}"))?;
            let mut child = Command::new(own);
            child.arg(SERVE_TOOLS);
            child
        }
    };
    Ok(StreamServer::Child(child))
}

/// The program that the system should start for this name. On Windows it is looked up in `PATH` with each extension of `PATHEXT`, since
/// the standard library tries `.exe` alone. A name that is not found stays as it is, for the error to name it.
fn located(program: OsString) -> OsString {
    #[cfg(windows)]
    if let Ok(path) = which::which(&program) {
        return path.into();
    }
    program
}

/// A copy of the command, so that its program can be started more than once.
pub(super) fn start_of(command: &Command) -> Command {
    let mut start = Command::new(command.get_program());
    start.args(command.get_args());
    start
}

/// Makes a command start its process in a process group of its own, so that a Ctrl-C on the terminal does not reach the process.
#[cfg(unix)]
pub(super) fn apart(mut child: Command) -> Command {
    use std::os::unix::process::CommandExt;
    child.process_group(0);
    child
}

#[cfg(not(unix))]
pub(super) fn apart(child: Command) -> Command {
    child
}

fn arguments(text: &str) -> Result<Json, String> {
    object(text).map_err(|why| format!("the arguments {why}"))
}

fn object(text: &str) -> Result<Json, String> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Err(error) => Err(format!("are not JSON: {error}: {text}")),
        Ok(_) => match Json::parse(text.to_owned()) {
            Ok(json) if json.is_object() => Ok(json),
            Ok(_) => Err(format!("must be a JSON object, as in '{{\"steps\":3}}', not {text}")),
            Err(error) => Err(format!("cannot be sent: {error}")),
        },
    }
}

/// Parses the path of a folder, which must exist.
fn root(path: &str) -> Result<Root, String> {
    let path = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
    if !path.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    let name = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Root { uri, name })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let span = span(text).ok().filter(|span| !span.is_zero());
    span.ok_or_else(|| "seconds are a number above 0, as in 1.5".to_owned())
}

fn span(text: &str) -> Result<Duration, String> {
    let span = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| "seconds are a number, as in 1.5".to_owned())
}

fn updates(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|updates| *updates > 0).ok_or_else(|| "a number of updates is above 0".to_owned())
}

fn era(name: &str) -> Result<Era, String> {
    match name {
        "legacy" => Ok(Era::Legacy),
        "modern" => Ok(Era::Modern),
        "auto" => Ok(Era::Auto),
        _ => Err("must be legacy, modern or auto".to_owned()),
    }
}

fn level(text: &str) -> Result<Level, String> {
    Level::from_name(text).ok_or_else(|| format!("the levels are {}", Level::ALL.map(Level::as_str).join(", ")))
}

/// Prints an error of clap in one line, without its tips and the usage, or the whole text if help was requested. Returns the exit status.
fn explain(program: &str, error: &clap::Error) -> u8 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A pager that is closed early is not an error.
        let _ = writeln!(std::io::stdout(), "{}", error.render().to_string().trim_end());
        return status::OK;
    }
    let text = error.to_string();
    let is_hint = |line: &&str| ["tip:", "Usage:", "For more"].iter().any(|begin| line.starts_with(begin));
    let first_lines = text.lines().map(str::trim).take_while(|line| !is_hint(line));
    let first_lines = first_lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    complain(program, format_args!("{} (try --help)", first_lines.strip_prefix("error: ").unwrap_or(&first_lines)), status::USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> CallOptions {
        let line = ["call"].iter().chain(line).map(OsString::from);
        convert(CallLine::try_parse_from(line).expect("a proper command line")).expect("a consistent command line")
    }

    #[test]
    fn the_definitions_of_the_command_lines_are_valid() {
        use clap::CommandFactory;
        ToolsLine::command().debug_assert();
        GatewayLine::command().debug_assert();
        CallLine::command().debug_assert();
    }

    #[test]
    fn the_name_of_a_tool_alone_means_empty_arguments_and_the_example_server() {
        let options = read(&["chatty"]);
        assert!(matches!(options.work, Work::Tool { name, arguments } if name == "chatty" && arguments == Json::empty_object()));
        assert!(matches!(options.server, Server::Stream(StreamServer::Child(command)) if command.get_args().eq([SERVE_TOOLS])));
    }

    #[test]
    fn flags_may_come_anywhere_before_the_server() {
        let options =
            read(&["--timeout", "0.5", "progress", "--cancel-after", "2", r#"{"steps":3}"#, "--accept", "--", "server", "--flag"]);
        assert!(matches!(options.work, Work::Tool { arguments, .. } if arguments.as_str() == r#"{"steps":3}"#));
        assert_eq!(options.idle, Some(Duration::from_millis(500)));
        assert_eq!(options.cancel_after, Some(2));
        assert!(matches!(options.forms, Some(Forms::Accept)));
        assert!(
            matches!(options.server, Server::Stream(StreamServer::Child(command)) if command.get_program() == "server" && command.get_args().eq(["--flag"]))
        );
    }

    #[test]
    fn a_prompt_takes_one_object_of_strings() {
        let options = read(&["--prompt", "analysis_workflow", r#"{"topic":"rust"}"#]);
        assert!(
            matches!(options.work, Work::Prompt { name, arguments } if name == "analysis_workflow" && arguments["topic"] == "rust")
        );
        let line = CallLine::try_parse_from(["call", "--prompt", "p", r#"{"topic":1}"#]).expect("a proper command line");
        assert!(convert(line).is_err_and(|why| why.contains("must be strings")));
    }

    #[test]
    fn a_flag_of_the_gateway_overrides_the_environment_and_an_invalid_variable_is_ignored() {
        let read = |flags: &[&str], surface: &str, ttl: &str| {
            let line = ["gateway"].iter().chain(flags).map(OsString::from);
            let options = gateway(line, |name| Some(if name.ends_with("SURFACE") { surface.into() } else { ttl.into() }));
            options.map(|options| (options.surface, options.resume_ttl)).expect("a proper command line")
        };
        let default = RegistryPolicy::default().resume_ttl;
        assert_eq!(read(&[], "meta", "1500"), (Surface::Meta, Duration::from_millis(1500)));
        assert_eq!(read(&[], "dynamic", "0"), (Surface::Dynamic, Duration::ZERO));
        for nonsense in ["", "-1", "soon", "1.5"] {
            assert_eq!(read(&[], nonsense, nonsense), (Surface::Both, default), "{nonsense}");
        }
        assert_eq!(read(&["--surface", "both", "--resume-ttl", "0"], "meta", "9"), (Surface::Both, Duration::ZERO));
        assert_eq!(read(&["--resume-ttl", "0.25"], "meta", "soon"), (Surface::Meta, Duration::from_millis(250)));
    }

    #[test]
    fn an_invalid_or_inconsistent_command_line_is_an_error() {
        let invalid: &[&[&str]] = &[
            &["--tcp", "a:1", "--unix", "b", "t"],
            &["--tcp", "a:1", "t", "--", "server"],
            &["--accept", "--decline", "t"],
            &["--list", "--prompt", "p"],
            &["--timeout", "0", "t"],
            &["--timeout", "-1", "t"],
            &["--timeout", "soon", "t"],
            &["--cancel-after", "0", "t"],
            &["--log-level", "loud", "t"],
            &["--answer", "[]", "t"],
            &["t", "{}", "more"],
            &["--nonsense"],
            &[],
            &["t", "{"],
            &["t", "[1]"],
            &["--list", "t"],
        ];
        for line in invalid {
            let parsed = CallLine::try_parse_from(["call"].iter().chain(*line));
            assert!(parsed.is_err() || parsed.is_ok_and(|line| convert(line).is_err()), "{line:?}");
        }
    }
}
