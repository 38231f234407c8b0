"""`call --era` against servers that speak 2026-07-28, which has no handshake (../server2.mjs, ../server2.py), and against older ones."""

from program import EVERYTHING, PYTHON, PYTHON_2, TYPESCRIPT_2, call, call_tapped, cancelled_once, server_ended_well
from scenario import equal, holds, run, scenario
from tap import UP

REVISION = "2026-07-28"
ONLY_MODERN = [*TYPESCRIPT_2, "--modern"]

DUAL = {"TypeScript of both eras": TYPESCRIPT_2, "Python of both eras": PYTHON_2}
MODERN = {**DUAL, "TypeScript of 2026-07-28 alone": ONLY_MODERN}
OLD = {"server-everything": EVERYTHING, "Python 1.x": PYTHON}


def each(sentence, servers=MODERN, eras=("auto", "modern")):
    """Declares the scenario once for each server and era."""

    def declare(body):
        for name, server in servers.items():
            for era in eras:
                scenario(f"--era {era}, {name}: {sentence}")(lambda server=server, era=era: body(server, era))
        return body

    return declare


def spoke_without_a_handshake(traffic):
    """Every request names the revision, and none is of the handshake."""
    frames = [frame["msg"] for frame in traffic.frames(UP)]
    methods = [frame["method"] for frame in frames]
    holds(f"expected no handshake, came {methods}", not {"initialize", "notifications/initialized"} & set(methods))
    named = [frame["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] for frame in frames if "id" in frame]
    equal("the revisions named", set(named), {REVISION})


def step(of):
    return lambda i: f"step {i} of {of}"


@each("--list shows every tool of the server")
def lists(server, era):
    run, traffic = call_tapped("--era", era, "--list", server=server)
    run.ended(0)
    for name in ["work", "fail", "ask_user"]:
        run.printed(name)
    spoke_without_a_handshake(traffic)
    server_ended_well(traffic)


@each("a call shows its progress as it happens, then the result", eras=["auto"])
def progress(server, era):
    run, traffic = call_tapped("--era", era, "work", '{"steps": 3, "step_ms": 400}', server=server)
    run.ended(0)
    run.showed(3, 3, step(3))
    run.showed_live(0.25, 0.7)
    run.printed("worked 3 steps")
    spoke_without_a_handshake(traffic)


@each("--cancel-after cancels once, and no answer follows", DUAL, eras=["modern"])
def cancel(server, era):
    run, traffic = call_tapped("--era", era, "--cancel-after", 2, "work", '{"steps": 50, "step_ms": 200}', server=server)
    run.ended(130)
    run.showed(2, 50, step(50))
    cancelled_once(traffic)
    (request,) = traffic.sent("tools/call")
    equal("responses to the cancelled call", traffic.answers(request), [])
    server_ended_well(traffic)


@each("a tool error is printed and is exit status 1, and so is an unknown tool", DUAL, eras=["modern"])
def errors(server, era):
    run = call("--era", era, "fail", server=server)
    run.ended(1)
    holds(f"expected the reason, came {run}", "no luck today" in repr(run))
    run = call("--era", era, "nope", server=server)
    run.ended(1)
    holds(f"expected the name of the tool, came {run}", "nope" in repr(run))


@each("a tool that would ask is refused, as nobody is offered to answer", DUAL, eras=["modern"])
def asks(server, era):
    run, traffic = call_tapped("--era", era, "--accept", "ask_user", server=server)
    run.ended(1)
    (request,) = traffic.sent("tools/call")
    equal("the capabilities", request["msg"]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], {})
    (answer,) = traffic.answers(request)
    equal("the error code", answer["msg"]["error"]["code"], -32600 if server is PYTHON_2 else -32021)


@scenario("--log-level asks in each request, and the record is shown; without it nothing is logged")
def log_level():
    run, traffic = call_tapped("--era", "modern", "--log-level", "info", "talk", server=TYPESCRIPT_2)
    run.ended(0)
    run.said("the weather turns")
    equal("requests for a level", traffic.sent("logging/setLevel"), [])
    run, traffic = call_tapped("--era", "modern", "talk", server=TYPESCRIPT_2)
    run.ended(0)
    equal("log messages", traffic.came("notifications/message"), [])


@each("the handshake is served", DUAL, eras=["legacy"])
def legacy(server, era):
    run, traffic = call_tapped("--era", era, "work", '{"steps": 2, "step_ms": 50}', server=server)
    run.ended(0)
    run.showed(2, 2, step(2))
    equal("the handshakes", len(traffic.sent("initialize")), 1)
    equal("the probes", traffic.sent("server/discover"), [])


@scenario("--era legacy at a server of 2026-07-28 alone ends at once, and says what is served")
def refused():
    run = call("work", "{}", server=ONLY_MODERN)
    run.ended(4)
    run.complained("-32022", REVISION)


@each("the refusal of the probe is followed by the handshake", OLD, eras=["auto"])
def falls_back(server, era):
    run, traffic = call_tapped("--era", era, "--list", server=server)
    run.ended(0)
    methods = [frame["msg"]["method"] for frame in traffic.frames(UP)]
    equal("what is sent first", methods[:3], ["server/discover", "initialize", "notifications/initialized"])
    server_ended_well(traffic)


@scenario("--era auto, server-everything: after the handshake a call shows its progress, then the result")
def old_typescript():
    run = call("--era", "auto", "trigger-long-running-operation", '{"duration": 1, "steps": 4}', server=EVERYTHING)
    run.ended(0)
    run.showed(4, 4, lambda i: "")
    run.printed("Long running operation completed.")


@scenario("--era auto, Python 1.x: after the handshake --cancel-after cancels once")
def old_python():
    run, traffic = call_tapped("--era", "auto", "--cancel-after", 2, "work", '{"steps": 50, "step_ms": 200}', server=PYTHON)
    run.ended(130)
    run.showed(2, 50, step(50))
    cancelled_once(traffic)


@each("the older revisions alone are no server for it", OLD, eras=["modern"])
def too_old(server, era):
    run, traffic = call_tapped("--era", era, "--list", server=server)
    run.ended(4)
    equal("the handshakes", traffic.sent("initialize"), [])


run(lambda body: body())
