"""Runs the scenarios of a Python client, each with a `tools` process and a tap of its own, and checks the results of its calls.

Results are plain dicts, as on the wire, whichever SDK the client uses.
"""

import json
import os
import tempfile
import time
from contextlib import asynccontextmanager
from functools import partial

import anyio
from scenario import Unmet, contains, equal, holds, run
from tap import DOWN, Traffic, tapped

CLIENT = {"name": "interop", "version": "1.2.3"}
PATIENCE = 20  # seconds for one scenario


class Refused(Exception):
    """A JSON-RPC error, the same for both SDKs."""

    def __init__(self, code, message, data=None):
        super().__init__(f"error {code}: {message}")
        self.code, self.data = code, data


def main(connect, always=()):
    """Runs the scenarios over `connect(command, sample=, elicit=, on_log=)`, which opens a client of one SDK. Every server gets the flags
    `always`."""

    @asynccontextmanager
    async def tools(*flags, **handlers):
        log = tempfile.mktemp(suffix=".jsonl")
        async with connect(tapped(log, [os.environ["TOOLS"], *always, *flags]), **handlers) as client:
            client.traffic = Traffic(log)
            yield client

    async def bounded(body):
        with anyio.move_on_after(PATIENCE) as scope:
            await body(tools)
        holds(f"expected an end within {PATIENCE} s, came none", not scope.cancelled_caught)

    run(lambda body: anyio.run(partial(bounded, body)))


class Updates(list):
    """A progress callback that records each update with its time."""

    def __init__(self):
        super().__init__()
        self.times = []

    async def __call__(self, progress, total, message):
        self.append((progress, total, message))
        self.times.append(time.monotonic())


def texts(result):
    equal("the types of the content blocks", {block["type"] for block in result["content"]}, {"text"})
    return [block["text"] for block in result["content"]]


def structured(result):
    """Returns the structured content, after a check that it is present, and that the only text block has the same JSON."""
    holds(f"expected structuredContent, came {result}", "structuredContent" in result)
    equal("the text blocks, read as JSON", [json.loads(text) for text in texts(result)], [result["structuredContent"]])
    return result["structuredContent"]


def value(result):
    """The JSON of a result: the structured content, or the first text if there is none."""
    if "structuredContent" in result:
        return structured(result)
    return json.loads(texts(result)[0])


def succeeded(result):
    holds(f"expected a result, came the tool error {result}", not result.get("isError"))
    return result


def tool_error(result):
    """The text of the result of a tool that failed."""
    holds(f"expected a tool error (isError true), came {result}", result.get("isError") is True)
    return "\n".join(texts(result))


def wire_updates(traffic, request):
    """Returns (value, total, message) of each progress frame for that request, after a check that all came before the response."""
    token = request["msg"]["params"]["_meta"]["progressToken"]
    frames = traffic.progress(token)
    for answer in traffic.answers(request):
        holds(f"expected all progress before the response, came {frames[-1:]} after {answer}", not frames or frames[-1]["at"] < answer["at"])
    return [(frame["msg"]["params"]["progress"], frame["msg"]["params"].get("total"), frame["msg"]["params"].get("message")) for frame in frames]


def last_call(traffic):
    return traffic.sent("tools/call")[-1]


def asked_on_the_wire(traffic):
    """The methods of the input requests in the recorded frames, each a request of the server or a part of a round."""
    inside = [asked["method"] for result in rounds(traffic) for asked in result.get("inputRequests", {}).values()]
    return inside + [frame["msg"]["method"] for frame in traffic.frames(DOWN) if frame["msg"].get("id") is not None and "method" in frame["msg"]]


def rounds(traffic):
    """The results that are rounds."""
    results = [frame["msg"].get("result", {}) for frame in traffic.frames(DOWN)]
    return [result for result in results if result.get("resultType") == "input_required"]


async def refused(call):
    try:
        result = await call
    except Refused as refused:
        return refused
    raise Unmet(f"expected a JSON-RPC error, came {result}")


async def misses(capability, client, call):
    """Checks that the call fails because its client has not declared that capability: with an error in 2026-07-28, otherwise as a tool error."""
    if client.asks_in_rounds:
        error = await refused(call)
        equal("the error code", error.code, -32021)
        equal("the capabilities that are required", list(error.data["requiredCapabilities"]), [capability])
    else:
        contains("the tool error", tool_error(await call), capability)


def retried(traffic, before=0):
    """Returns the requests for tools after the first `before`, which all belong to one call. Checks that each request except the first
    answers the round that ended the request before it."""
    calls = traffic.sent("tools/call")[before:]
    for earlier, later in zip(calls, calls[1:]):
        (answer,) = traffic.answers(earlier)
        result, before, after = answer["msg"]["result"], earlier["msg"]["params"], later["msg"]["params"]
        equal("the type of the result before a retry", result.get("resultType"), "input_required")
        equal("the state of a retry", after.get("requestState"), result.get("requestState"))
        equal("the answers of a retry", set(after.get("inputResponses", {})), set(result.get("inputRequests", {})))
        for name in ("name", "arguments"):
            equal(f"the {name} of a retry", after[name], before[name])
    equal("the request ids", len({call["msg"]["id"] for call in calls}), len(calls))
    return calls
