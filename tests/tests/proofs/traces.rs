//! Recorded traffic of the reference implementation of Tesseron and of the official SDKs of MCP. Each recording is replayed with one of our
//! sessions in the place of each of its ends. A table lists every difference between a session and a recorded end, with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tests::replay::{Turn, TurnKind, differences, names, recorded_ends};

/// One reason for differences, with the ends and the recordings that have them.
struct KnownDifference {
    why: &'static str,
    /// The ends, as `gw of gw<->app`.
    ends: &'static [&'static str],
    files: Files,
    /// The differences. `<` marks a frame that the end sends, `>` one that it receives.
    what: &'static [&'static str],
}

/// The recordings that have all the differences of an entry at each of its ends.
enum Files {
    These(&'static [&'static str]),
    /// Their number, without their names.
    Count(usize),
}

use Files::{Count, These};

const AGENT: &str = "agent of agent<->gw";
const BRIDGE: &str = "gw of agent<->gw";
const CLIENT: &str = "client of client<->server";
const SERVER: &str = "server of client<->server";
const GATEWAY: &str = "gw of gw<->app";
const APP: &str = "app of gw<->app";
/// The host of an app takes the place of the gateway toward the SDK in the app (`tests/traces/README.md`).
const HOST: &str = "host of host<->sdk";
const SDK: &str = "sdk of host<->sdk";
/// A gateway that sends prepared frames.
const RAW: &str = "rawgw of rawgw<->app";

const KNOWN_DIFFERENCES: &[KnownDifference] = &[
    // ---- Tesseron: faults of the reference (`docs/protocols/tesseron.md`) ----
    KnownDifference {
        why: "a handler of the reference goes on to report after its invocation has ended",
        ends: &[APP, SDK],
        files: These(&["cancel"]),
        what: &["< actions/progress: is not sent (the call is over)"],
    },
    KnownDifference {
        why: "the reference answers invocations that the loss of their connection has cancelled",
        ends: &[SDK],
        files: These(&["disconnect-mid-invocation-uds", "resume-server-sdk-uds"]),
        what: &["< -32001 to actions/invoke: is not sent (not live: it has ended or never existed)"],
    },
    KnownDifference {
        why: "the recorded app is killed; ours is closed by its owner, and answers its running invocations",
        ends: &[APP],
        files: These(&["app-exit-and-gateway-shutdown"]),
        what: &["< -32001 to actions/invoke: is sent, but not in the recording"],
    },
    KnownDifference {
        why: "the recorded host disconnects; ours is closed by its owner, and cancels its open calls",
        ends: &[HOST],
        files: These(&["disconnect-mid-invocation-uds", "resume-server-sdk-uds"]),
        what: &["< actions/cancel: is sent, but not in the recording"],
    },
    KnownDifference {
        why: "the reference closes a dial without an answer while another one is open; ours answers with an error",
        ends: &[APP],
        files: These(&["disconnect-mid-invocation-uds"]),
        what: &["< -32009 to tesseron/bind: is sent, but not in the recording"],
    },
    KnownDifference {
        why: "our result has an output even if the handler returns none",
        ends: &[APP, SDK],
        files: These(&["invoke-success"]),
        what: &["< result of actions/invoke: result.output is added"],
    },
    KnownDifference {
        why: "the reference sends any percentage; ours stays between 0 and 100 and never falls",
        ends: &[APP, SDK],
        files: These(&["progress5"]),
        what: &["< actions/progress: params.percent differs", "< actions/progress: params.percent is omitted"],
    },
    KnownDifference {
        why: "of progress that falls only the message is reported, and a percentage above 100 as 100",
        ends: &[GATEWAY, HOST],
        files: These(&["progress5"]),
        what: &["> actions/progress: is reported differently"],
    },
    KnownDifference {
        why: "the meta of a log record cannot replace its message",
        ends: &[APP, SDK],
        files: These(&["log"]),
        what: &["< log: params.meta is omitted"],
    },
    KnownDifference {
        why: "accepting a form with fields needs a value; the reference checks it in the handler",
        ends: &[APP, SDK],
        files: These(&["elicit"]),
        what: &["> result of elicitation/request: a response of the wrong shape"],
    },
    KnownDifference {
        why: "an input request ends with its call, and a late answer is not forwarded",
        ends: &[GATEWAY, HOST],
        files: These(&["sampling-cancel"]),
        what: &["< result of sampling/request: is error -32001"],
    },
    KnownDifference {
        why: "sampling may be nested three deep; the reference has no limit",
        ends: &[GATEWAY, HOST],
        files: These(&["sampling-nested-depth4"]),
        what: &["< result of sampling/request: is error -32008", "> sampling/request: sampling nested too deep"],
    },
    KnownDifference {
        why: "a claim of our gateway always has the capabilities of its agent; this one was written by hand",
        ends: &[HOST, RAW],
        files: These(&["host-bind-uds"]),
        what: &["< tesseron/claimed: params.agentCapabilities is added"],
    },
    // ---- Tesseron: an app that sends prepared frames to a gateway ----
    KnownDifference {
        why: "our app makes input requests only on behalf of a running invocation",
        ends: &[APP],
        files: These(&["gwmint-handshake-ws", "gwmint-no-capabilities", "gwmint-prehello", "gwmint-sampling-elicitation-direct"]),
        what: &["< sampling/request: is not sent (there is no such request)"],
    },
    KnownDifference {
        why: "our app makes input requests only on behalf of a running invocation",
        ends: &[APP],
        files: These(&["gwmint-no-capabilities", "gwmint-prehello", "gwmint-sampling-elicitation-direct"]),
        what: &["< elicitation/request: is not sent (there is no such request)"],
    },
    KnownDifference {
        why: "our gateway refuses an input request that belongs to no call",
        ends: &[GATEWAY],
        files: These(&["gwmint-handshake-ws", "gwmint-sampling-elicitation-direct"]),
        what: &["< result of sampling/request: is error -32009"],
    },
    KnownDifference {
        why: "our gateway refuses input requests before the session is claimed",
        ends: &[GATEWAY],
        files: These(&["gwmint-handshake-ws", "gwmint-prehello"]),
        what: &["> sampling/request: a message at the wrong point of the handshake"],
    },
    KnownDifference {
        why: "our gateway refuses input requests before the session is claimed; the recorded one refuses this one, too",
        ends: &[GATEWAY],
        files: These(&["gwmint-prehello"]),
        what: &["> elicitation/request: a message at the wrong point of the handshake"],
    },
    KnownDifference {
        why: "an input request that the agent does not support, or that belongs to no call, is refused as a violation",
        ends: &[GATEWAY],
        files: These(&["gwmint-no-capabilities", "gwmint-sampling-elicitation-direct"]),
        what: &["> elicitation/request: an input that was not offered", "> sampling/request: an input that was not offered"],
    },
    KnownDifference {
        why: "as above, and parameters of the wrong shape are -32602",
        ends: &[GATEWAY],
        files: These(&["gwmint-sampling-elicitation-direct"]),
        what: &[
            "< -32603 to sampling/request: error.code is -32602",
            "< result of elicitation/request: is error -32009",
            "> elicitation/request: parameters of the wrong shape",
            "> sampling/request: parameters of the wrong shape",
        ],
    },
    KnownDifference {
        why: "our app sends its hello by itself",
        ends: &[APP],
        files: These(&["gwmint-prehello"]),
        what: &["< tesseron/hello: is sent, but not in the recording"],
    },
    KnownDifference {
        why: "our app sends no invalid message and no unknown method, one hello, and responses only to requests",
        ends: &[APP],
        files: These(&["gwmint-dispatcher"]),
        what: &[
            "< no/such: is not sent (parameters, arguments and _meta must be JSON objects)",
            "< result of no request: is not sent (there is no such request)",
            "< tesseron/hello: is not sent (only the other end of the protocol may send this)",
            "< an invalid message: is not sent (there is no such request)",
        ],
    },
    KnownDifference {
        why: "our gateway ignores notifications that the owner has not listed",
        ends: &[GATEWAY],
        files: These(&["gwmint-dispatcher"]),
        what: &["> no/notif: is ignored"],
    },
    KnownDifference {
        why: "both ignore invalid messages and responses to no request; ours reports them as violations",
        ends: &[GATEWAY],
        files: These(&["gwmint-dispatcher"]),
        what: &[
            "> result of no request: a response to a request that was never made",
            "> result of no request: is ignored",
            "> tesseron/hello: a frame that is no JSON-RPC 2.0 message",
            "> tesseron/hello: is ignored",
            "> an invalid message: a batch in a revision without batches",
            "> an invalid message: is ignored",
        ],
    },
    KnownDifference {
        why: "a second hello is refused; the reference begins a second session",
        ends: &[GATEWAY],
        files: These(&["gwmint-dispatcher"]),
        what: &["< result of tesseron/hello: is error -32600", "> tesseron/hello: a message at the wrong point of the handshake"],
    },
    KnownDifference {
        why: "our app sends a complete and valid hello",
        ends: &[APP],
        files: These(&["gwmint-hello-validation"]),
        what: &[
            "< tesseron/hello: params.actions is added",
            "< tesseron/hello: params.app is added",
            "< tesseron/hello: params.app.id differs",
            "< tesseron/hello: params.capabilities is added",
            "< tesseron/hello: params.protocolVersion is added",
            "< tesseron/hello: params.protocolVersion differs",
        ],
    },
    KnownDifference {
        why: "our app declares that it reports progress",
        ends: &[APP],
        files: These(&["gwmint-capabilities-intersection"]),
        what: &["< tesseron/hello: params.capabilities.streaming differs"],
    },
    KnownDifference {
        why: "our app closes a channel on which it was refused",
        ends: &[APP],
        files: These(&["gwmint-hello-validation", "gwmint-resume-unclaimed"]),
        what: &["< tesseron/hello: is not sent (the session is closing)"],
    },
    KnownDifference {
        why: "parameters of the wrong shape are -32602, also if the reference ignores them",
        ends: &[GATEWAY],
        files: These(&["gwmint-hello-validation"]),
        what: &[
            "< -32603 to tesseron/hello: error.code is -32602",
            "< result of tesseron/hello: is error -32602",
            "> tesseron/hello: parameters of the wrong shape",
        ],
    },
    KnownDifference {
        why: "our gateway closes a channel after a hello with another major version",
        ends: &[GATEWAY],
        files: These(&["gwmint-hello-validation"]),
        what: &["< result of tesseron/hello: is not sent (there is no such input request)"],
    },
    KnownDifference {
        why: "our app resumes once, at the beginning, and closes a channel on which it was refused",
        ends: &[APP],
        files: These(&["gwmint-resume-uds"]),
        what: &[
            "< tesseron/resume: is not sent (only the other end of the protocol may send this)",
            "< tesseron/resume: is not sent (the session is closing)",
        ],
    },
    KnownDifference {
        why: "our gateway closes a channel after a resume with another major version, and reports refusals as violations",
        ends: &[GATEWAY],
        files: These(&["gwmint-resume-uds"]),
        what: &[
            "< result of tesseron/resume: is not sent (there is no such input request)",
            "> tesseron/resume: a message at the wrong point of the handshake",
            "> tesseron/resume: parameters of the wrong shape",
        ],
    },
    KnownDifference {
        why: "the result of our app has the id of its invocation",
        ends: &[APP],
        files: These(&["gwmint-resume-uds"]),
        what: &["< result of actions/invoke: result.invocationId differs"],
    },
    KnownDifference {
        why: "a result with the id of another invocation is accepted as a violation",
        ends: &[GATEWAY],
        files: These(&["gwmint-resume-uds"]),
        what: &["> result of actions/invoke: a response of the wrong shape"],
    },
    // ---- Tesseron: a gateway that sends prepared frames to an app ----
    KnownDifference {
        why: "our gateway binds first, once, and with a valid code, which it sends in capitals",
        ends: &[RAW],
        files: These(&["host-bind-uds"]),
        what: &[
            "< actions/cancel: is not sent (there is no such call)",
            "< actions/invoke: is not sent (the handshake is not done, or the session is not claimed)",
            "< tesseron/bind: is not sent (a claim code has 1 to 64 symbols)",
            "< tesseron/bind: is not sent (only the other end of the protocol may send this)",
            "< tesseron/bind: params.code differs",
        ],
    },
    KnownDifference {
        why: "since our gateway has not sent those requests, the recorded responses belong to no request",
        ends: &[RAW],
        files: These(&["host-bind-uds"]),
        what: &["> -32600 to no request: an error that names no request", "> -32600 to no request: is ignored"],
    },
    // ---- The bridge of the reference, as an MCP server ----
    KnownDifference {
        why: "MCP demands increasing progress; the reference repeats values with new messages, ours keeps the message for the next value",
        ends: &[BRIDGE],
        files: These(&["progress5"]),
        what: &["< notifications/progress: is not sent", "< notifications/progress: params.message is added"],
    },
    KnownDifference {
        why: "our agent ignores repeated values",
        ends: &[AGENT],
        files: These(&["progress5"]),
        what: &["> notifications/progress: is ignored", "> notifications/progress: progress that does not increase"],
    },
    KnownDifference {
        why: "an input request has its call, so that depth can be counted; the mode of a form may be omitted",
        ends: &[BRIDGE],
        files: These(&["confirm-accept", "confirm-decline", "elicit", "node-prompts"]),
        what: &["< elicitation/create: params._meta is added", "< elicitation/create: params.mode is omitted"],
    },
    KnownDifference {
        why: "an input request has its call, so that depth can be counted",
        ends: &[BRIDGE],
        files: These(&["node-prompts", "sampling", "sampling-cancel", "sampling-nested-depth4"]),
        what: &["< sampling/createMessage: params._meta is added"],
    },
    KnownDifference {
        why: "a call that is made to answer an input request has its depth",
        ends: &[AGENT],
        files: These(&["sampling-nested-depth4"]),
        what: &["< tools/call: params._meta is added"],
    },
    KnownDifference {
        why: "sampling may be nested three deep; the reference has no limit",
        ends: &[AGENT],
        files: These(&["sampling-nested-depth4"]),
        what: &["< result of sampling/createMessage: is error -32808", "> sampling/createMessage: sampling nested too deep"],
    },
    KnownDifference {
        why: "an input request ends with its call",
        ends: &[AGENT],
        files: These(&["sampling-cancel"]),
        what: &["< result of sampling/createMessage: is error -32800"],
    },
    KnownDifference {
        why: "an input request ends with its call",
        ends: &[BRIDGE],
        files: These(&["sampling-cancel"]),
        what: &["< notifications/cancelled: is sent, but not in the recording"],
    },
    KnownDifference {
        why: "our server makes input requests only on behalf of a call",
        ends: &[BRIDGE],
        files: These(&["gwmint-handshake-ws", "gwmint-sampling-elicitation-direct"]),
        what: &["< sampling/createMessage: is not sent (no call is running)"],
    },
    KnownDifference {
        why: "our server makes input requests only on behalf of a call",
        ends: &[BRIDGE],
        files: These(&["gwmint-sampling-elicitation-direct"]),
        what: &["< elicitation/create: is not sent (no call is running)"],
    },
    KnownDifference {
        why: "an accepted form always has content, which may be empty",
        ends: &[AGENT],
        files: These(&["elicit"]),
        what: &["< result of elicitation/create: result.content is added"],
    },
    KnownDifference {
        why: "content that does not fit its form is a violation; the reference leaves the check to its MCP library",
        ends: &[BRIDGE],
        files: These(&["elicit"]),
        what: &["> result of elicitation/create: a response of the wrong shape"],
    },
    KnownDifference {
        why: "no notification is sent to a peer that has ended its side",
        ends: &[BRIDGE],
        files: These(&["gwmint-resume-uds"]),
        what: &[
            "< notifications/resources/list_changed: is not sent (the session is closing)",
            "< notifications/tools/list_changed: is not sent (the session is closing)",
        ],
    },
    KnownDifference {
        why: "no notification is sent to a peer that has ended its side",
        ends: &[BRIDGE],
        files: These(&["manifest-variants"]),
        what: &["< notifications/message: is not sent"],
    },
    KnownDifference {
        why: "a request that the server has not declared is refused before it is sent",
        ends: &[AGENT],
        files: These(&["errors"]),
        what: &["< prompts/list: is not sent (the peer does not offer this)"],
    },
    // ---- MCP: clients ----
    KnownDifference {
        why: "our requests always have parameters, which may be empty",
        ends: &[CLIENT],
        files: Count(127),
        what: &["< tools/list: params is added"],
    },
    KnownDifference {
        why: "our requests always have parameters, which may be empty",
        ends: &[AGENT],
        files: Count(7),
        what: &["< tools/list: params is added"],
    },
    KnownDifference {
        why: "our requests always have parameters, which may be empty",
        ends: &[AGENT],
        files: These(&["node-prompts", "resources"]),
        what: &["< resources/list: params is added"],
    },
    KnownDifference {
        why: "our requests always have parameters, which may be empty",
        ends: &[AGENT],
        files: These(&["handshake-claim-uds"]),
        what: &["< ping: params is added"],
    },
    KnownDifference {
        why: "an undeclared input request is an unknown method; for the Python client it is an invalid request",
        ends: &[CLIENT],
        files: These(&["mcp/py2__py1__sampling-nocap", "mcp/py2__py2__sampling-nocap", "mcp/py2__ts1__sampling-nocap"]),
        what: &["< -32600 to sampling/createMessage: error.code is -32601"],
    },
    KnownDifference {
        why: "an undeclared input request is refused as a violation",
        ends: &[CLIENT],
        files: These(UNDECLARED_SAMPLING),
        what: &["> sampling/createMessage: an input that was not offered"],
    },
    // ---- MCP: servers ----
    KnownDifference {
        why: "our server makes only input requests that the client has declared",
        ends: &[SERVER],
        files: These(UNDECLARED_SAMPLING),
        what: &["< sampling/createMessage: is not sent (the peer does not offer this)"],
    },
    KnownDifference {
        why: "capabilities that are `false` are omitted",
        ends: &[SERVER],
        files: Count(69),
        what: &[
            "< result of initialize: result.capabilities.prompts.listChanged is omitted",
            "< result of initialize: result.capabilities.resources.listChanged is omitted",
            "< result of initialize: result.capabilities.resources.subscribe is omitted",
            "< result of initialize: result.capabilities.tools.listChanged is omitted",
        ],
    },
    KnownDifference {
        why: "our server has no experimental capabilities",
        ends: &[SERVER],
        files: Count(35),
        what: &["< result of initialize: result.capabilities.experimental is omitted"],
    },
    KnownDifference {
        why: "an input request has its call, so that depth can be counted; the mode of a form may be omitted",
        ends: &[SERVER],
        files: Count(12),
        what: &[
            "< elicitation/create: params._meta is added",
            "< elicitation/create: params.mode is omitted",
            "< sampling/createMessage: params._meta is added",
        ],
    },
    KnownDifference {
        why: "an input request has its call, so that depth can be counted, and no progress token",
        ends: &[SERVER],
        files: These(&[
            "mcp/py2__ts2__elicit-accept",
            "mcp/py2__ts2__elicit-decline",
            "mcp/ts1__ts2__elicit-accept",
            "mcp/ts1__ts2__elicit-decline",
        ]),
        what: &[
            "< elicitation/create: params._meta.progressToken is omitted",
            "< elicitation/create: params._meta.protocol-core/parent is added",
        ],
    },
    KnownDifference {
        why: "an input request has its call, so that depth can be counted, and no progress token",
        ends: &[SERVER],
        files: These(&[
            "mcp/py2__ts2__sampling",
            "mcp/py2__ts2__sampling-error",
            "mcp/ts1__ts2__sampling",
            "mcp/ts1__ts2__sampling-error",
        ]),
        what: &[
            "< sampling/createMessage: params._meta.progressToken is omitted",
            "< sampling/createMessage: params._meta.protocol-core/parent is added",
            "< sampling/createMessage: params._meta.protocol-core/samplingDepth is added",
        ],
    },
    KnownDifference {
        why: "a cancelled call is not answered (page on cancellation); the Python server answers with an error",
        ends: &[SERVER],
        files: These(&["mcp/py2__py1__cancel3", "mcp/py2__py1__timeout-300", "mcp/ts1__py1__cancel3", "mcp/ts1__py1__timeout-300"]),
        what: &["< 0 to tools/call: is not sent (not live: it has ended or never existed)"],
    },
    KnownDifference {
        why: "a cancelled call is not answered (page on cancellation); the Go server answers with a failure",
        ends: &[SERVER],
        files: These(&[
            "go-mcp-test",
            "mcp/py2__go__cancel3",
            "mcp/py2__go__timeout-300",
            "mcp/ts1__go__cancel3",
            "mcp/ts1__go__timeout-300",
        ]),
        what: &["< result of tools/call: is not sent (not live: it has ended or never existed)"],
    },
    KnownDifference {
        why: "no progress of a cancelled call is sent",
        ends: &[SERVER],
        files: These(&["mcp/py2__go__timeout-300", "mcp/py2__py2__timeout-300", "mcp/ts1__go__timeout-300"]),
        what: &["< notifications/progress: is not sent (the call is over)"],
    },
    KnownDifference {
        why: "1.5 is not a valid progress token",
        ends: &[SERVER],
        files: These(&["go-mcp-test"]),
        what: &[
            "< notifications/progress: is not sent (no request has this token)",
            "< result of tools/call: is error -32602",
            "> tools/call: parameters of the wrong shape",
        ],
    },
    // ---- MCP: the era without a handshake. The client of the replay always makes a handshake ----
    KnownDifference {
        why: "our client makes the handshake",
        ends: &[CLIENT],
        files: These(&["mcp/era-py2-2026-07-28-py1", "mcp/era-py2-2026-07-28-ts2", "mcp/era-py2-auto-ts2"]),
        what: &["< initialize: is sent, but not in the recording", "< tools/call: is not sent"],
    },
    KnownDifference {
        why: "our client makes the handshake",
        ends: &[CLIENT],
        files: These(&["mcp/era-py2-2026-07-28-ts2", "mcp/era-py2-auto-ts2"]),
        what: &["< tools/list: is not sent"],
    },
    KnownDifference {
        why: "our client sends no request before the handshake",
        ends: &[CLIENT],
        files: These(&["mcp/era-py2-auto-py1", "mcp/era-py2-auto-ts2"]),
        what: &["< server/discover: is not sent (only the other end of the protocol may send this)"],
    },
    KnownDifference {
        why: "our server serves both eras; the Python server does not know the method",
        ends: &[SERVER],
        files: These(&["mcp/era-py2-auto-py1"]),
        what: &["< -32602 to server/discover: is a result"],
    },
    KnownDifference {
        why: "the replay takes the name and the capabilities of a server from its response to initialize, which is missing here",
        ends: &[SERVER],
        files: These(&["mcp/era-py2-auto-ts2"]),
        what: &[
            "< result of server/discover: result._meta.io.modelcontextprotocol/serverInfo.name differs",
            "< result of server/discover: result._meta.io.modelcontextprotocol/serverInfo.version differs",
            "< result of server/discover: result.capabilities.logging is omitted",
        ],
    },
];

/// Recordings with sampling requests to clients that do not support them.
const UNDECLARED_SAMPLING: &[&str] = &[
    "mcp/py2__py1__sampling-nocap",
    "mcp/py2__py2__sampling-nocap",
    "mcp/py2__ts1__sampling-nocap",
    "mcp/ts1__py1__sampling-nocap",
    "mcp/ts1__py2__sampling-nocap",
    "mcp/ts1__ts1__sampling-nocap",
];

/// The recordings that have each difference, by end and difference.
type Found = BTreeMap<(String, String), BTreeSet<String>>;

fn find_differences() -> Found {
    let mut found = Found::new();
    for name in names() {
        let file = name.strip_suffix(".jsonl").expect("a recording");
        for recorded in recorded_ends(&name) {
            for what in differences(&recorded) {
                found.entry((recorded.end.clone(), what)).or_default().insert(file.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_frame_of_every_recording_is_played_at_both_of_its_ends() {
    assert_eq!(names().len(), 201);
    for name in names() {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(&name)).expect("a recording");
        let recorded = text.lines().filter(|line| line.contains("\"msg\":") && !line.contains("\"ev\":")).count();
        let ends = recorded_ends(&name);
        let turns = ends.iter().flat_map(|end| &end.channels).flat_map(|channel| &channel.turns);
        let played = turns.filter(|turn| matches!(turn.what, TurnKind::Received(_) | TurnKind::Sent(_))).count();
        assert_eq!((played, ends.len() % 2), (2 * recorded, 0), "{name}");
    }
}

#[test]
fn a_session_differs_from_a_recorded_end_only_as_listed_with_a_reason() {
    let mut found = find_differences();
    let mut missing = Vec::new();
    for KnownDifference { why, ends, files, what } in KNOWN_DIFFERENCES {
        for (end, what) in ends.iter().flat_map(|end| what.iter().map(move |what| (*end, *what))) {
            let there = found.entry((end.to_owned(), what.to_owned())).or_default();
            match files {
                These(files) => missing
                    .extend(files.iter().filter(|file| !there.remove(**file)).map(|file| format!("{file}, {end}: {what} ({why})"))),
                Count(count) if there.len() == *count => there.clear(),
                Count(count) => missing.push(format!("{count} files, {end}: {what} ({why}); now there are {}", there.len())),
            }
        }
    }
    assert!(missing.is_empty(), "listed differences that do not occur:\n{}", missing.join("\n"));
    let new = found.iter().flat_map(|((end, what), files)| files.iter().map(move |file| format!("{file}, {end}: {what}")));
    let new: Vec<_> = new.collect();
    assert!(new.is_empty(), "differences that are not listed:\n{}", new.join("\n"));
}

// ---- The replay finds changes ----

/// Changes each turn of a recording, one at a time. Returns the number of changes after which the replay finds other differences,
/// and the number of all changes.
fn found_changes(name: &str, change: impl Fn(&mut Vec<Turn>, usize) -> bool) -> (usize, usize) {
    let (mut shown, mut made) = (0, 0);
    for original in recorded_ends(name) {
        let before = differences(&original);
        for channel in 0..original.channels.len() {
            for turn in 0..original.channels[channel].turns.len() {
                let mut changed = original.clone();
                if change(&mut changed.channels[channel].turns, turn) {
                    made += 1;
                    shown += usize::from(differences(&changed) != before);
                }
            }
        }
    }
    (shown, made)
}

const SAMPLES: [&str; 6] = [
    "cancel.jsonl",
    "elicit.jsonl",
    "node-prompts.jsonl",
    "resources.jsonl",
    "mcp/py2__py1__sampling.jsonl",
    "mcp/ts1__ts2__progress3.jsonl",
];

#[test]
fn every_changed_frame_of_an_end_shows_as_a_difference() {
    // The first recording is left out: our session does not send all frames of its ends.
    for name in &SAMPLES[1..] {
        let (shown, made) = found_changes(name, |turns, index| match &mut turns[index].what {
            TurnKind::Sent(frame) => {
                frame["jsonrpc"] = "2.1".into();
                true
            }
            _ => false,
        });
        assert!(made > 8 && shown == made, "{name}: {shown} of {made}");
    }
}
