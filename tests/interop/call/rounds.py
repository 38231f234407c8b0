"""`call` answers the input requests of servers in 2026-07-28, which end the request of the call (../server2.mjs, ../server2.py)."""

import tempfile
from pathlib import Path

from program import (
    DUAL,
    PYTHON_2,
    TYPESCRIPT_2,
    call_tapped,
    each,
    server_ended_well,
    spoke_without_a_handshake,
    step,
)
from scenario import equal, run, scenario

ADA = '{"name": "Ada"}'


def rounds(traffic, method="tools/call"):
    """Returns the requests of the call. Checks that each later request answers the round that ended the one
    before it, with the exact state."""
    calls = traffic.sent(method)
    for earlier, later in zip(calls, calls[1:]):
        (answer,) = traffic.answers(earlier)
        asked, retry = answer["msg"]["result"], later["msg"]["params"]
        equal("the type of the result", asked["resultType"], "input_required")
        equal("the state of a retry", retry.get("requestState"), asked.get("requestState"))
        equal("the answers of a retry", set(retry.get("inputResponses", {})), set(asked.get("inputRequests") or {}))
    equal("the request ids", len({call["msg"]["id"] for call in calls}), len(calls))
    spoke_without_a_handshake(traffic)
    return calls


def answers(flags, tool, text, server):
    run, traffic = call_tapped(*flags, tool, server=server)
    run.ended(0)
    run.printed(text)
    equal("the requests", len(rounds(traffic)), 2)
    server_ended_well(traffic)


@each("--answer fills in a form, and --decline declines it")
def forms(server, flags):
    answers([*flags, "--answer", ADA], "ask_user", "the user is Ada", server)
    answers([*flags, "--decline"], "ask_user", "the user said: decline", server)


@each("--accept confirms and agrees to open an address, and --decline does neither")
def confirms(server, flags):
    for tool in ["confirm", "open"]:
        answers([*flags, "--accept"], tool, "the user said: accept", server)
        answers([*flags, "--decline"], tool, "the user said: decline", server)


@each("--sample-reply and --sample-cmd answer for a model")
def samples(server, flags):
    answers([*flags, "--sample-reply", "forty-two"], "ask_model", "the model said: forty-two", server)
    answers([*flags, "--sample-cmd", "tr a-z A-Z"], "ask_model", "the model said: HOW MANY?", server)


@each("--roots names a folder", DUAL)
def folders(server, flags):
    with tempfile.TemporaryDirectory() as folder:
        answers([*flags, "--roots", folder], "list_folders", Path(folder).resolve().as_uri(), server)


@each("two questions in one round are answered together", DUAL)
def both(server, flags):
    answers([*flags, "--answer", ADA, "--sample-reply", "one"], "ask_both", "the user is Ada, the model said: one", server)


@each("--prompt is answered, too", DUAL)
def prompt(server, flags):
    run, traffic = call_tapped(*flags, "--answer", ADA, "--prompt", "greeting", server=server)
    run.ended(0)
    run.printed("Greet Ada.")
    equal("the requests", len(rounds(traffic, "prompts/get")), 2)


@scenario("TypeScript of both eras: the time for an answer counts neither for --timeout nor for --max-total")
def patience():
    answers(["--timeout", 2, "--max-total", 3, "--sample-cmd", "sleep 4; echo late"], "ask_model", "the model said: late", TYPESCRIPT_2)


@each("two rounds are answered one after the other, and the progress of all of them is shown")
def two_rounds(server, flags):
    run, traffic = call_tapped(*flags, "--answer", ADA, "--sample-cmd", "cat", "interview", server=server)
    run.ended(0)
    run.printed("Ada: What do you think of Ada?")
    run.showed(3, 3, step(3))
    equal("the requests", len(rounds(traffic)), 3)


@each("a round without input requests is retried")
def state_alone(server, flags):
    run, traffic = call_tapped(*flags, "later", server=server)
    run.ended(0)
    run.printed("called again 2 times, with 0 answers")
    equal("the requests", len(rounds(traffic)), 3)


@scenario("TypeScript of both eras: a server that sends rounds without end is given up")
def endless():
    run, traffic = call_tapped("--answer", ADA, "endless", server=TYPESCRIPT_2)
    run.ended(1)
    run.complained("asked too many times")
    equal("the requests", len(rounds(traffic)), 9)


@each("Ctrl-C between two rounds ends the call, and sends no cancel", DUAL)
def between(server, flags):
    # The command that answers for the model is a child of `call`.
    run, traffic = call_tapped(*flags, "--sample-cmd", "kill -INT $PPID; sleep 5", "ask_model", server=server)
    run.ended(130)
    equal("the cancels", traffic.sent("notifications/cancelled"), [])
    equal("the requests", len(traffic.sent("tools/call")), 1)
    server_ended_well(traffic)


@each("the capabilities for the answers are declared, and without one the server names it")
def missing(server, flags):
    for tool, offered, declared, required in [
        ("ask_user", [], {}, "elicitation"),
        ("ask_model", ["--accept"], {"elicitation": {"form": {}, "url": {}}}, "sampling"),
    ]:
        run, traffic = call_tapped(*flags, *offered, tool, server=server)
        run.ended(1)
        run.printed_error("-32021")
        (request,) = traffic.sent("tools/call")
        equal("the capabilities", request["msg"]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], declared)
        (answer,) = traffic.answers(request)
        equal("the error code", answer["msg"]["error"]["code"], -32021)
        equal("the capabilities required", list(answer["msg"]["error"]["data"]["requiredCapabilities"]), [required])


@each("if the user declines an input that the tool needs, the call ends with the error of the tool", DUAL)
def declined(server, flags):
    run, traffic = call_tapped(*flags, "--decline", "--sample-reply", "fine", "interview", server=server)
    run.ended(1)
    equal("the requests", len(rounds(traffic)), 2)


@scenario("Python of both eras: a tool that sends a request to its client is refused by its own SDK, since this revision has no such requests")
def asks_directly():
    run, traffic = call_tapped("--accept", "ask_directly", server=PYTHON_2)
    run.ended(1)
    (request,) = traffic.sent("tools/call")
    (answer,) = traffic.answers(request)
    equal("the error code", answer["msg"]["error"]["code"], -32600)


@each("with a handshake the same tools send requests, which are answered", DUAL, eras=["legacy"])
def asked_by_requests(server, flags):
    flags = [*flags, "--answer", ADA, "--sample-cmd", "cat"]
    run, traffic = call_tapped(*flags, "interview", server=server)
    run.ended(0)
    run.printed("Ada: What do you think of Ada?")
    equal("the requests", len(traffic.sent("tools/call")), 1)
    equal("what is asked", [len(traffic.came(method)) for method in ("elicitation/create", "sampling/createMessage")], [1, 1])


run(lambda body: body())
