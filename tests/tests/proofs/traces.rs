//! Recorded traffic of the reference and of the official SDKs, replayed into our sessions in the place of each end. Where a session does
//! otherwise than the recorded end did, it stands in a table here, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tests::replay::{Turn, What, differences, names, seen};

/// One reason to do otherwise, and where it shows.
struct Known {
    why: &'static str,
    /// The ends, as `gw of gw<->app`.
    ends: &'static [&'static str],
    files: Files,
    /// What differs. `<` is what the end says, `>` what it hears.
    what: &'static [&'static str],
}

/// Where something shows: at each of the ends, everything in each of the files.
enum Files {
    These(&'static [&'static str]),
    /// There are many.
    Count(usize),
}

use Files::{Count, These};

const AGENT: &str = "agent of agent<->gw";
const BRIDGE: &str = "gw of agent<->gw";
const CLIENT: &str = "client of client<->server";
const SERVER: &str = "server of client<->server";
const GATEWAY: &str = "gw of gw<->app";
const APP: &str = "app of gw<->app";
/// The host plays the gateway to its own SDK.
const HOST: &str = "host of host<->sdk";
const SDK: &str = "sdk of host<->sdk";
/// Driven by hand.
const RAW: &str = "rawgw of rawgw<->app";

const KNOWN: &[Known] = &[
    // ---- Tesseron: the reference does what it should not (`docs/protocols/tesseron.md`) ----
    Known {
        why: "an orphan goes on to report when its invocation is over",
        ends: &[APP, SDK],
        files: These(&["cancel"]),
        what: &["< actions/progress: is not said (the call is over)"],
    },
    Known {
        why: "the reference answers what its lost connection has cancelled, into nowhere",
        ends: &[SDK],
        files: These(&["disconnect-mid-invocation-uds", "resume-server-sdk-uds"]),
        what: &["< -32001 to actions/invoke: is not said (not live: it has ended or never was)"],
    },
    Known {
        why: "the recorded app dies; ours is closed by its owner, and answers what it still runs",
        ends: &[APP],
        files: These(&["app-exit-and-gateway-shutdown"]),
        what: &["< -32001 to actions/invoke: is said, and was not"],
    },
    Known {
        why: "the recorded host leaves without a word; ours is closed by its owner, and cancels what it still waits for",
        ends: &[HOST],
        files: These(&["disconnect-mid-invocation-uds", "resume-server-sdk-uds"]),
        what: &["< actions/cancel: is said, and was not"],
    },
    Known {
        why: "the reference closes a dial unanswered while it has another one open; ours says what is wrong with it",
        ends: &[APP],
        files: These(&["disconnect-mid-invocation-uds"]),
        what: &["< -32009 to tesseron/bind: is said, and was not"],
    },
    Known {
        why: "a handler that returns nothing has an output all the same",
        ends: &[APP, SDK],
        files: These(&["invoke-success"]),
        what: &["< result of actions/invoke: result.output is added"],
    },
    Known {
        why: "the reference says any percent; ours stays between 0 and 100 and never goes back",
        ends: &[APP, SDK],
        files: These(&["progress5"]),
        what: &["< actions/progress: params.percent is another", "< actions/progress: params.percent is left out"],
    },
    Known {
        why: "of progress that goes back only the words are told, and of more than all of it all of it",
        ends: &[GATEWAY, HOST],
        files: These(&["progress5"]),
        what: &["> actions/progress: is told otherwise"],
    },
    Known {
        why: "what goes with a log record cannot take the place of its message",
        ends: &[APP, SDK],
        files: These(&["log"]),
        what: &["< log: params.meta is left out"],
    },
    Known {
        why: "a form that is accepted without a value is none that has fields; the reference finds that out in its handler",
        ends: &[APP, SDK],
        files: These(&["elicit"]),
        what: &["> result of elicitation/request: a response of the wrong shape"],
    },
    Known {
        why: "what is asked on behalf of a call ends with it, and its late answer is not relayed",
        ends: &[GATEWAY, HOST],
        files: These(&["sampling-cancel"]),
        what: &["< result of sampling/request: is error -32001"],
    },
    Known {
        why: "sampling nests three deep and no deeper; the reference counts nothing",
        ends: &[GATEWAY, HOST],
        files: These(&["sampling-nested-depth4"]),
        what: &["< result of sampling/request: is error -32008", "> sampling/request: sampling nested too deep"],
    },
    Known {
        why: "a claim of our gateway says what its agent can do, always; this one was written by hand",
        ends: &[HOST, RAW],
        files: These(&["host-bind-uds"]),
        what: &["< tesseron/claimed: params.agentCapabilities is added"],
    },
    // ---- Tesseron: an app that is driven by hand, to see what the gateway does ----
    Known {
        why: "our app asks only on behalf of an invocation that it runs",
        ends: &[APP],
        files: These(&["gwmint-handshake-ws", "gwmint-no-capabilities", "gwmint-prehello", "gwmint-sampling-elicitation-direct"]),
        what: &["< sampling/request: is not said (nobody asked for that)"],
    },
    Known {
        why: "our app asks only on behalf of an invocation that it runs",
        ends: &[APP],
        files: These(&["gwmint-no-capabilities", "gwmint-prehello", "gwmint-sampling-elicitation-direct"]),
        what: &["< elicitation/request: is not said (nobody asked for that)"],
    },
    Known {
        why: "our gateway answers no question that belongs to no call",
        ends: &[GATEWAY],
        files: These(&["gwmint-handshake-ws", "gwmint-sampling-elicitation-direct"]),
        what: &["< result of sampling/request: is error -32009"],
    },
    Known {
        why: "nor before the session is claimed",
        ends: &[GATEWAY],
        files: These(&["gwmint-handshake-ws", "gwmint-prehello"]),
        what: &["> sampling/request: a message at the wrong point of the handshake"],
    },
    Known {
        why: "nor before the session is claimed; the recording refuses this one, too",
        ends: &[GATEWAY],
        files: These(&["gwmint-prehello"]),
        what: &["> elicitation/request: a message at the wrong point of the handshake"],
    },
    Known {
        why: "what the agent cannot do, and what belongs to no call, is refused, and noted as a broken rule",
        ends: &[GATEWAY],
        files: These(&["gwmint-no-capabilities", "gwmint-sampling-elicitation-direct"]),
        what: &["> elicitation/request: an input that was not offered", "> sampling/request: an input that was not offered"],
    },
    Known {
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
    Known {
        why: "our app greets, and by itself",
        ends: &[APP],
        files: These(&["gwmint-prehello"]),
        what: &["< tesseron/hello: is said, and was not"],
    },
    Known {
        why: "our app says nothing that is no message, asks for nothing that there is not, greets once, and answers what was asked",
        ends: &[APP],
        files: These(&["gwmint-dispatcher"]),
        what: &[
            "< no/such: is not said (parameters, arguments and _meta must be JSON objects)",
            "< result of nothing: is not said (nobody asked for that)",
            "< tesseron/hello: is not said (only the other end of the protocol may send this)",
            "< what is no message: is not said (nobody asked for that)",
        ],
    },
    Known {
        why: "our gateway passes over news that nobody has listed",
        ends: &[GATEWAY],
        files: These(&["gwmint-dispatcher"]),
        what: &["> no/notif: is passed over"],
    },
    Known {
        why: "both pass over what is no message and answers nothing; ours notes it",
        ends: &[GATEWAY],
        files: These(&["gwmint-dispatcher"]),
        what: &[
            "> result of nothing: a response to a request that was never made",
            "> result of nothing: is passed over",
            "> tesseron/hello: a frame that is no JSON-RPC 2.0 message",
            "> tesseron/hello: is passed over",
            "> what is no message: a batch where none is allowed, an empty or an oversized one",
            "> what is no message: is passed over",
        ],
    },
    Known {
        why: "a second hello is refused, where the reference begins a second session",
        ends: &[GATEWAY],
        files: These(&["gwmint-dispatcher"]),
        what: &["< result of tesseron/hello: is error -32600", "> tesseron/hello: a message at the wrong point of the handshake"],
    },
    Known {
        why: "our app says a whole and proper hello",
        ends: &[APP],
        files: These(&["gwmint-hello-validation"]),
        what: &[
            "< tesseron/hello: params.actions is added",
            "< tesseron/hello: params.app is added",
            "< tesseron/hello: params.app.id is another",
            "< tesseron/hello: params.capabilities is added",
            "< tesseron/hello: params.protocolVersion is added",
            "< tesseron/hello: params.protocolVersion is another",
        ],
    },
    Known {
        why: "our app reports progress, and says so",
        ends: &[APP],
        files: These(&["gwmint-capabilities-intersection"]),
        what: &["< tesseron/hello: params.capabilities.streaming is another"],
    },
    Known {
        why: "our app is through with a channel on which it was refused",
        ends: &[APP],
        files: These(&["gwmint-hello-validation", "gwmint-resume-unclaimed"]),
        what: &["< tesseron/hello: is not said (the session is closing)"],
    },
    Known {
        why: "parameters of the wrong shape are -32602, also where the reference does without them",
        ends: &[GATEWAY],
        files: These(&["gwmint-hello-validation"]),
        what: &[
            "< -32603 to tesseron/hello: error.code is -32602",
            "< result of tesseron/hello: is error -32602",
            "> tesseron/hello: parameters of the wrong shape",
        ],
    },
    Known {
        why: "our gateway closes a channel on which another major version was spoken",
        ends: &[GATEWAY],
        files: These(&["gwmint-hello-validation"]),
        what: &["< result of tesseron/hello: is not said (nobody asked that)"],
    },
    Known {
        why: "our app resumes once, at the beginning, and is through with a channel on which it was refused",
        ends: &[APP],
        files: These(&["gwmint-resume-uds"]),
        what: &[
            "< tesseron/resume: is not said (only the other end of the protocol may send this)",
            "< tesseron/resume: is not said (the session is closing)",
        ],
    },
    Known {
        why: "our gateway closes a channel on which another major version was spoken; what both refuse ours notes",
        ends: &[GATEWAY],
        files: These(&["gwmint-resume-uds"]),
        what: &[
            "< result of tesseron/resume: is not said (nobody asked that)",
            "> tesseron/resume: a message at the wrong point of the handshake",
            "> tesseron/resume: parameters of the wrong shape",
        ],
    },
    Known {
        why: "an answer names the invocation that it is of",
        ends: &[APP],
        files: These(&["gwmint-resume-uds"]),
        what: &["< result of actions/invoke: result.invocationId is another"],
    },
    Known {
        why: "an answer that names another invocation is taken, and noted",
        ends: &[GATEWAY],
        files: These(&["gwmint-resume-uds"]),
        what: &["> result of actions/invoke: a response of the wrong shape"],
    },
    // ---- Tesseron: a gateway that is driven by hand, to see what the app does ----
    Known {
        why: "our gateway binds first, once, and with a code that can be one; it says the code in capitals",
        ends: &[RAW],
        files: These(&["host-bind-uds"]),
        what: &[
            "< actions/cancel: is not said (nobody made that call)",
            "< actions/invoke: is not said (the handshake is not done, or the session is not claimed)",
            "< tesseron/bind: is not said (a claim code has 1 to 64 symbols)",
            "< tesseron/bind: is not said (only the other end of the protocol may send this)",
            "< tesseron/bind: params.code is another",
        ],
    },
    Known {
        why: "so the answer to what it has not said is nobody's",
        ends: &[RAW],
        files: These(&["host-bind-uds"]),
        what: &["> -32600 to nothing: an error that names no request", "> -32600 to nothing: is passed over"],
    },
    // ---- The bridge of the reference, as a server of MCP ----
    Known {
        why: "MCP wants progress that increases; the reference repeats values for their messages, ours keeps the message for the next",
        ends: &[BRIDGE],
        files: These(&["progress5"]),
        what: &["< notifications/progress: is not said", "< notifications/progress: params.message is added"],
    },
    Known {
        why: "so an agent of ours passes repeated values over",
        ends: &[AGENT],
        files: These(&["progress5"]),
        what: &["> notifications/progress: is passed over", "> notifications/progress: progress that does not increase"],
    },
    Known {
        why: "a question names its call, so that depth can be counted; the mode of a form is the one that needs no name",
        ends: &[BRIDGE],
        files: These(&["confirm-accept", "confirm-decline", "elicit", "node-prompts"]),
        what: &["< elicitation/create: params._meta is added", "< elicitation/create: params.mode is left out"],
    },
    Known {
        why: "a question names its call, so that depth can be counted",
        ends: &[BRIDGE],
        files: These(&["node-prompts", "sampling", "sampling-cancel", "sampling-nested-depth4"]),
        what: &["< sampling/createMessage: params._meta is added"],
    },
    Known {
        why: "a call that is made to answer a question says how deep that is",
        ends: &[AGENT],
        files: These(&["sampling-nested-depth4"]),
        what: &["< tools/call: params._meta is added"],
    },
    Known {
        why: "sampling nests three deep and no deeper; the reference counts nothing",
        ends: &[AGENT],
        files: These(&["sampling-nested-depth4"]),
        what: &["< result of sampling/createMessage: is error -32808", "> sampling/createMessage: sampling nested too deep"],
    },
    Known {
        why: "what is asked on behalf of a call ends with it",
        ends: &[AGENT],
        files: These(&["sampling-cancel"]),
        what: &["< result of sampling/createMessage: is error -32800"],
    },
    Known {
        why: "what is asked on behalf of a call ends with it",
        ends: &[BRIDGE],
        files: These(&["sampling-cancel"]),
        what: &["< notifications/cancelled: is said, and was not"],
    },
    Known {
        why: "a server of ours asks only on behalf of a call",
        ends: &[BRIDGE],
        files: These(&["gwmint-handshake-ws", "gwmint-sampling-elicitation-direct"]),
        what: &["< sampling/createMessage: is not said (it is on behalf of nothing)"],
    },
    Known {
        why: "a server of ours asks only on behalf of a call",
        ends: &[BRIDGE],
        files: These(&["gwmint-sampling-elicitation-direct"]),
        what: &["< elicitation/create: is not said (it is on behalf of nothing)"],
    },
    Known {
        why: "an accepted form always has content, if only none of its own",
        ends: &[AGENT],
        files: These(&["elicit"]),
        what: &["< result of elicitation/create: result.content is added"],
    },
    Known {
        why: "content that does not fit its form is noted; the reference has its MCP library find that out",
        ends: &[BRIDGE],
        files: These(&["elicit"]),
        what: &["> result of elicitation/create: a response of the wrong shape"],
    },
    Known {
        why: "nothing new is said to whoever has ended its side",
        ends: &[BRIDGE],
        files: These(&["gwmint-resume-uds"]),
        what: &[
            "< notifications/resources/list_changed: is not said (the session is closing)",
            "< notifications/tools/list_changed: is not said (the session is closing)",
        ],
    },
    Known {
        why: "nothing new is said to whoever has ended its side",
        ends: &[BRIDGE],
        files: These(&["manifest-variants"]),
        what: &["< notifications/message: is not said"],
    },
    Known {
        why: "what the server has not declared is refused before it is sent",
        ends: &[AGENT],
        files: These(&["errors"]),
        what: &["< prompts/list: is not said (the peer does not offer this)"],
    },
    // ---- MCP: the clients ----
    Known {
        why: "our requests always have parameters, if only none",
        ends: &[CLIENT],
        files: Count(127),
        what: &["< tools/list: params is added"],
    },
    Known {
        why: "our requests always have parameters, if only none",
        ends: &[AGENT],
        files: Count(7),
        what: &["< tools/list: params is added"],
    },
    Known {
        why: "our requests always have parameters, if only none",
        ends: &[AGENT],
        files: These(&["node-prompts", "resources"]),
        what: &["< resources/list: params is added"],
    },
    Known {
        why: "our requests always have parameters, if only none",
        ends: &[AGENT],
        files: These(&["handshake-claim-uds"]),
        what: &["< ping: params is added"],
    },
    Known {
        why: "a question that was not offered is a method that there is not; the Python client calls it an invalid request",
        ends: &[CLIENT],
        files: These(&["mcp/py2__py1__sampling-nocap", "mcp/py2__py2__sampling-nocap", "mcp/py2__ts1__sampling-nocap"]),
        what: &["< -32600 to sampling/createMessage: error.code is -32601"],
    },
    Known {
        why: "a question that was not offered is refused, and noted",
        ends: &[CLIENT],
        files: These(UNOFFERED),
        what: &["> sampling/createMessage: an input that was not offered"],
    },
    // ---- MCP: the servers ----
    Known {
        why: "a server of ours asks only what the client has offered",
        ends: &[SERVER],
        files: These(UNOFFERED),
        what: &["< sampling/createMessage: is not said (the peer does not offer this)"],
    },
    Known {
        why: "what is not so is not said",
        ends: &[SERVER],
        files: Count(69),
        what: &[
            "< result of initialize: result.capabilities.prompts.listChanged is left out",
            "< result of initialize: result.capabilities.resources.listChanged is left out",
            "< result of initialize: result.capabilities.resources.subscribe is left out",
            "< result of initialize: result.capabilities.tools.listChanged is left out",
        ],
    },
    Known {
        why: "there are no experiments",
        ends: &[SERVER],
        files: Count(35),
        what: &["< result of initialize: result.capabilities.experimental is left out"],
    },
    Known {
        why: "a question names its call, so that depth can be counted; the mode of a form is the one that needs no name",
        ends: &[SERVER],
        files: Count(12),
        what: &[
            "< elicitation/create: params._meta is added",
            "< elicitation/create: params.mode is left out",
            "< sampling/createMessage: params._meta is added",
        ],
    },
    Known {
        why: "a question names its call, so that depth can be counted, and nobody wants progress on it",
        ends: &[SERVER],
        files: These(&[
            "mcp/py2__ts2__elicit-accept",
            "mcp/py2__ts2__elicit-decline",
            "mcp/ts1__ts2__elicit-accept",
            "mcp/ts1__ts2__elicit-decline",
        ]),
        what: &[
            "< elicitation/create: params._meta.progressToken is left out",
            "< elicitation/create: params._meta.protocol-core/parent is added",
        ],
    },
    Known {
        why: "a question names its call, so that depth can be counted, and nobody wants progress on it",
        ends: &[SERVER],
        files: These(&[
            "mcp/py2__ts2__sampling",
            "mcp/py2__ts2__sampling-error",
            "mcp/ts1__ts2__sampling",
            "mcp/ts1__ts2__sampling-error",
        ]),
        what: &[
            "< sampling/createMessage: params._meta.progressToken is left out",
            "< sampling/createMessage: params._meta.protocol-core/parent is added",
            "< sampling/createMessage: params._meta.protocol-core/samplingDepth is added",
        ],
    },
    Known {
        why: "a cancelled call is not answered (cancellation page); the Python server answers an error",
        ends: &[SERVER],
        files: These(&["mcp/py2__py1__cancel3", "mcp/py2__py1__timeout-300", "mcp/ts1__py1__cancel3", "mcp/ts1__py1__timeout-300"]),
        what: &["< 0 to tools/call: is not said (not live: it has ended or never was)"],
    },
    Known {
        why: "a cancelled call is not answered (cancellation page); the Go server answers a failure",
        ends: &[SERVER],
        files: These(&[
            "go-mcp-test",
            "mcp/py2__go__cancel3",
            "mcp/py2__go__timeout-300",
            "mcp/ts1__go__cancel3",
            "mcp/ts1__go__timeout-300",
        ]),
        what: &["< result of tools/call: is not said (not live: it has ended or never was)"],
    },
    Known {
        why: "nor is anything reported of it",
        ends: &[SERVER],
        files: These(&["mcp/py2__go__timeout-300", "mcp/py2__py2__timeout-300", "mcp/ts1__go__timeout-300"]),
        what: &["< notifications/progress: is not said (the call is over)"],
    },
    Known {
        why: "1.5 is no progress token",
        ends: &[SERVER],
        files: These(&["go-mcp-test"]),
        what: &[
            "< notifications/progress: is not said (nobody wants that progress)",
            "< result of tools/call: is error -32602",
            "> tools/call: parameters of the wrong shape",
        ],
    },
    // ---- MCP: the era without a handshake, which our client does not speak by itself ----
    Known {
        why: "our client makes the handshake",
        ends: &[CLIENT],
        files: These(&["mcp/era-py2-2026-07-28-py1", "mcp/era-py2-2026-07-28-ts2", "mcp/era-py2-auto-ts2"]),
        what: &["< initialize: is said, and was not", "< tools/call: is not said"],
    },
    Known {
        why: "our client makes the handshake",
        ends: &[CLIENT],
        files: These(&["mcp/era-py2-2026-07-28-ts2", "mcp/era-py2-auto-ts2"]),
        what: &["< tools/list: is not said"],
    },
    Known {
        why: "and asks for nothing before it",
        ends: &[CLIENT],
        files: These(&["mcp/era-py2-auto-py1", "mcp/era-py2-auto-ts2"]),
        what: &["< server/discover: is not said (only the other end of the protocol may send this)"],
    },
    Known {
        why: "our server serves both eras; the Python server does not know the method",
        ends: &[SERVER],
        files: These(&["mcp/era-py2-auto-py1"]),
        what: &["< -32602 to server/discover: is a result"],
    },
    Known {
        why: "the replay learns name and capabilities of a server from its answer to initialize, which there is none of",
        ends: &[SERVER],
        files: These(&["mcp/era-py2-auto-ts2"]),
        what: &[
            "< result of server/discover: result._meta.io.modelcontextprotocol/serverInfo.name is another",
            "< result of server/discover: result._meta.io.modelcontextprotocol/serverInfo.version is another",
            "< result of server/discover: result.capabilities.logging is left out",
        ],
    },
];

/// Sampling of clients that do not sample.
const UNOFFERED: &[&str] = &[
    "mcp/py2__py1__sampling-nocap",
    "mcp/py2__py2__sampling-nocap",
    "mcp/py2__ts1__sampling-nocap",
    "mcp/ts1__py1__sampling-nocap",
    "mcp/ts1__py2__sampling-nocap",
    "mcp/ts1__ts1__sampling-nocap",
];

/// The files in which each difference shows, by end and difference.
type Found = BTreeMap<(String, String), BTreeSet<String>>;

fn found() -> Found {
    let mut found = Found::new();
    for name in names() {
        let file = name.strip_suffix(".jsonl").expect("a recording");
        for seen in seen(&name) {
            for what in differences(&seen) {
                found.entry((seen.end.clone(), what)).or_default().insert(file.to_owned());
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
        let seen = seen(&name);
        let turns = seen.iter().flat_map(|seen| &seen.channels).flat_map(|channel| &channel.turns);
        let played = turns.filter(|turn| matches!(turn.what, What::Heard(_) | What::Said(_))).count();
        assert_eq!((played, seen.len() % 2), (2 * recorded, 0), "{name}");
    }
}

#[test]
fn a_session_does_what_the_recorded_end_did_but_for_what_is_listed_with_its_reason() {
    let mut found = found();
    let mut gone = Vec::new();
    for Known { why, ends, files, what } in KNOWN {
        for (end, what) in ends.iter().flat_map(|end| what.iter().map(move |what| (*end, *what))) {
            let there = found.entry((end.to_owned(), what.to_owned())).or_default();
            match files {
                These(files) => gone
                    .extend(files.iter().filter(|file| !there.remove(**file)).map(|file| format!("{file}, {end}: {what} ({why})"))),
                Count(count) if there.len() == *count => there.clear(),
                Count(count) => gone.push(format!("{count} files, {end}: {what} ({why}); now there are {}", there.len())),
            }
        }
    }
    assert!(gone.is_empty(), "what is listed does not happen:\n{}", gone.join("\n"));
    let new = found.iter().flat_map(|((end, what), files)| files.iter().map(move |file| format!("{file}, {end}: {what}")));
    let new: Vec<_> = new.collect();
    assert!(new.is_empty(), "what happens is not listed:\n{}", new.join("\n"));
}

// ---- The replay notices ----

/// The number of times that a change of one turn of a recording shows in what differs, of so many times that it was made.
fn noticed(name: &str, change: impl Fn(&mut Vec<Turn>, usize) -> bool) -> (usize, usize) {
    let (mut shown, mut made) = (0, 0);
    for original in seen(name) {
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
fn a_request_that_an_end_does_not_hear_is_noticed() {
    for name in SAMPLES {
        let (shown, made) = noticed(name, |turns, index| {
            let is_request =
                matches!(&turns[index].what, What::Heard(frame) if frame.get("id").is_some() && frame.get("method").is_some());
            if is_request {
                turns.remove(index);
            }
            is_request
        });
        assert!(made > 1 && shown == made, "{name}: {shown} of {made}");
    }
}

#[test]
fn an_answer_under_another_id_is_noticed() {
    for name in SAMPLES {
        let (shown, made) = noticed(name, |turns, index| match &mut turns[index].what {
            What::Heard(frame) | What::Said(frame) if frame.get("method").is_none() => {
                frame["id"] = "another".into();
                true
            }
            _ => false,
        });
        assert!(made > 3 && shown == made, "{name}: {shown} of {made}");
    }
}

#[test]
fn whatever_an_end_says_otherwise_is_noticed() {
    // In the first one some of it is not said at all.
    for name in &SAMPLES[1..] {
        let (shown, made) = noticed(name, |turns, index| match &mut turns[index].what {
            What::Said(frame) => {
                frame["jsonrpc"] = "2.1".into();
                true
            }
            _ => false,
        });
        assert!(made > 8 && shown == made, "{name}: {shown} of {made}");
    }
}
