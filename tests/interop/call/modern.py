"""`call` in each `--era` against servers that speak 2026-07-28, which has no handshake (../server2.mjs, ../server2.py), and against older ones."""

from program import (
    DUAL,
    EVERYTHING,
    OLD,
    ONLY_MODERN,
    PYTHON,
    REVISION,
    TYPESCRIPT_2,
    call,
    call_tapped,
    cancelled_once,
    each,
    server_ended_well,
    spoke_without_a_handshake,
    step,
)
from scenario import equal, holds, run, scenario
from tap import UP


@each("--list shows every tool of the server", eras=[None, "modern"])
def lists(server, flags):
    run, traffic = call_tapped(*flags, "--list", server=server)
    run.ended(0)
    for name in ["work", "fail", "ask_user", "interview"]:
        run.printed(name)
    spoke_without_a_handshake(traffic)
    server_ended_well(traffic)


@each("a call shows its progress as it happens, then the result")
def progress(server, flags):
    run, traffic = call_tapped(*flags, "work", '{"steps": 3, "step_ms": 400}', server=server)
    run.ended(0)
    run.showed(3, 3, step(3))
    run.showed_live(0.25, 0.7)
    run.printed("worked 3 steps")
    spoke_without_a_handshake(traffic)


@each("--cancel-after cancels once, and no answer follows", DUAL, eras=["modern"])
def cancel(server, flags):
    run, traffic = call_tapped(*flags, "--cancel-after", 2, "work", '{"steps": 50, "step_ms": 200}', server=server)
    run.ended(130)
    run.showed(2, 50, step(50))
    cancelled_once(traffic)
    (request,) = traffic.sent("tools/call")
    equal("responses to the cancelled call", traffic.answers(request), [])
    server_ended_well(traffic)


@each("a tool error is printed and is exit status 1, and so is an unknown tool", DUAL, eras=["modern"])
def errors(server, flags):
    run = call(*flags, "fail", server=server)
    run.ended(1)
    holds(f"expected the reason, came {run}", "no luck today" in repr(run))
    run = call(*flags, "nope", server=server)
    run.ended(1)
    holds(f"expected the name of the tool, came {run}", "nope" in repr(run))


@scenario("--log-level is sent in each request, and the record is shown; without it nothing is logged")
def log_level():
    run, traffic = call_tapped("--era", "modern", "--log-level", "info", "talk", server=TYPESCRIPT_2)
    run.ended(0)
    run.printed_error("the weather turns")
    equal("requests for a level", traffic.sent("logging/setLevel"), [])
    run, traffic = call_tapped("--era", "modern", "talk", server=TYPESCRIPT_2)
    run.ended(0)
    equal("log messages", traffic.came("notifications/message"), [])


@each("the handshake is served", DUAL, eras=["legacy"])
def legacy(server, flags):
    run, traffic = call_tapped(*flags, "work", '{"steps": 2, "step_ms": 50}', server=server)
    run.ended(0)
    run.showed(2, 2, step(2))
    equal("the handshakes", len(traffic.sent("initialize")), 1)
    equal("the probes", traffic.sent("server/discover"), [])


@scenario("--era legacy at a server of 2026-07-28 alone ends at once, and prints the revision that is served")
def refused():
    run = call("--era", "legacy", "work", "{}", server=ONLY_MODERN)
    run.ended(4)
    run.complained("-32022", REVISION)


@each("the refusal of the probe is followed by the handshake", OLD)
def falls_back(server, flags):
    run, traffic = call_tapped(*flags, "--list", server=server)
    run.ended(0)
    methods = [frame["msg"]["method"] for frame in traffic.frames(UP)]
    equal("what is sent first", methods[:3], ["server/discover", "initialize", "notifications/initialized"])
    server_ended_well(traffic)


@scenario("server-everything: after the handshake a call shows its progress, then the result")
def old_typescript():
    run = call("trigger-long-running-operation", '{"duration": 1, "steps": 4}', server=EVERYTHING)
    run.ended(0)
    run.showed(4, 4, lambda i: "")
    run.printed("Long running operation completed.")


@scenario("Python 1.x: after the handshake --cancel-after cancels once")
def old_python():
    run, traffic = call_tapped("--cancel-after", 2, "work", '{"steps": 50, "step_ms": 200}', server=PYTHON)
    run.ended(130)
    run.showed(2, 50, step(50))
    cancelled_once(traffic)


@each("a server of older revisions alone is refused without a handshake", OLD, eras=["modern"])
def too_old(server, flags):
    run, traffic = call_tapped(*flags, "--list", server=server)
    run.ended(4)
    equal("the handshakes", traffic.sent("initialize"), [])


run(lambda body: body())
