"""The scenarios of the official Python clients, 1.x and 2.x, with `tools --http`. The virtual environment decides which client it is."""

import asyncio
import importlib
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from scenario import contains, equal, holds, run, scenario

INFO = {"name": "interop", "version": "1.2.3"}
PATIENCE = 20  # seconds for one scenario
PINNED = "2026-07-28"
IS_FIRST = hasattr(mcp, "McpError")
types = mcp.types if IS_FIRST else importlib.import_module("mcp_types")


@asynccontextmanager
async def served(*flags):
    """Starts `tools --http`, and ends it by a signal. Yields its URL, and a function that returns the outcomes of its calls so far."""
    audit = Path(tempfile.mktemp(suffix=".jsonl"))
    command = [os.environ["TOOLS"], "--http", "127.0.0.1:0", "--audit", str(audit), *flags]
    program = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    try:
        line = (await program.stderr.readuntil(b"/mcp\n")).decode()
        yield re.search(r"http://\S+", line)[0], lambda: [json.loads(line)["outcome"] for line in audit.read_text().splitlines()]
    finally:
        program.terminate()
        equal("the exit status", await program.wait(), 0)


@asynccontextmanager
async def connected(url, mode="auto", elicit=None, sample=None, posted=None):
    """A client of the SDK that is installed; `mode` is only for 2.x. The messages of its POSTs are added to the list `posted`."""

    async def elicitation(context, params):
        return types.ElicitResult(**elicit(params))

    async def sampling(context, params):
        content = types.TextContent(type="text", text=sample(params))
        return types.CreateMessageResult(role="assistant", content=content, model="canned")

    async def write_down(request):
        if posted is not None and request.method == "POST":
            posted.append(json.loads(request.content))

    handlers = {
        "elicitation_callback": elicitation if elicit else None,
        "sampling_callback": sampling if sample else None,
        "client_info": types.Implementation(**INFO),
    }
    async with create_mcp_http_client() as http:
        http.event_hooks["request"].append(write_down)
        if IS_FIRST:
            async with (
                streamable_http_client(url, http_client=http) as (read, write, _),
                mcp.ClientSession(read, write, **handlers) as session,
            ):
                await session.initialize()
                yield session
        else:
            from mcp.client import Client

            async with Client(streamable_http_client(url, http_client=http), mode=mode, **handlers) as client:
                yield client


def content(result):
    return result.model_dump(mode="json", by_alias=True)["structuredContent"]


def errors():
    return mcp.McpError if IS_FIRST else mcp.MCPError


async def some(outcomes):
    """Waits until a call has ended."""
    for _ in range(500):
        if outcomes():
            break
        await anyio.sleep(0.01)


def ping(url, session):
    """The status of a ping in a session."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session}
    request = urllib.request.Request(url, b'{"jsonrpc":"2.0","id":1,"method":"ping"}', headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


@scenario("it lists the tools, and follows a call to its end")
async def follows():
    async with served() as (url, _), connected(url) as client:
        holds("expected the tool progress", any(tool.name == "progress" for tool in (await client.list_tools()).tools))
        seen = []

        async def on_progress(progress, total, message):
            seen.append((progress, total, message))

        result = await client.call_tool("progress", {"steps": 3, "step_ms": 200}, progress_callback=on_progress)
        equal("what the tool returned", content(result), {"steps": 3, "notified": True, "done": True})
        equal("the updates", seen, [(step, 3, f"step {step}/3") for step in (1, 2, 3)])


@scenario("five calls at once each get their own result")
async def at_once():
    async with served() as (url, _), connected(url) as client, anyio.create_task_group() as group:

        async def call(steps):
            result = await client.call_tool("progress", {"steps": steps, "step_ms": 100})
            equal("what the tool returned", content(result)["steps"], steps)

        for steps in range(1, 6):
            group.start_soon(call, steps)


@scenario("an unknown tool is an error of JSON-RPC, and the server answers the next call")
async def unknown():
    async with served() as (url, _), connected(url) as client:
        try:
            await client.call_tool("nope", {})
            holds("expected an error", False)
        except errors() as error:
            equal("the code", error.error.code if IS_FIRST else error.code, -32602)
        await client.call_tool("chatty", {})


@scenario("the call of a client that is gone is cancelled without a handshake, or goes on in a session")
async def leaves():
    async with served() as (url, outcomes):
        with anyio.CancelScope() as scope:
            async with connected(url) as client:
                updates = 0

                async def on_progress(*_):
                    nonlocal updates
                    updates += 1
                    if updates == 2:
                        scope.cancel()

                await client.call_tool("countdown", {"from": 10, "step_ms": 150}, progress_callback=on_progress)
        await some(outcomes)
        equal("the outcomes", outcomes(), ["ok" if IS_FIRST else "cancelled"])


if IS_FIRST:

    @scenario("a session is ended by the client, and is unknown afterwards")
    async def ends():
        async with served() as (url, _):
            async with (
                streamable_http_client(url) as (read, write, session_id),
                mcp.ClientSession(read, write, client_info=mcp.types.Implementation(**INFO)) as session,
            ):
                await session.initialize()
                name = session_id()
                holds(f"expected the id of a session, came {name}", name and len(name) >= 32)
                equal("the status of a ping", await anyio.to_thread.run_sync(ping, url, name), 200)
            equal("the status after the end", await anyio.to_thread.run_sync(ping, url, name), 404)

    @scenario("the input requests of a tool come on the stream of its call, and are answered")
    async def asks():
        def accept(params):
            return {"action": "accept", "content": {"newName": "new.txt"} if "name" in params.message else {}}

        async with served() as (url, _), connected(url, elicit=accept) as client:
            contains("what the tool returned", (await client.call_tool("delete", {"name": "old.txt"})).model_dump_json(), "deleted")
            contains("what the tool returned", (await client.call_tool("rename", {"name": "old.txt"})).model_dump_json(), "new.txt")

    @scenario("a call is cancelled by a notification that is posted, and the server answers the next call")
    async def cancels():
        posted, enough = [], anyio.Event()

        async def on_progress(progress, total, message):
            if progress >= 1:
                enough.set()

        async with served() as (url, outcomes), connected(url, posted=posted) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(client.call_tool, "countdown", {"from": 50, "step_ms": 150}, progress_callback=on_progress))
                await enough.wait()
                # By hand, since this SDK sends no cancel itself.
                (call,) = [message["id"] for message in posted if message["method"] == "tools/call"]
                params = types.CancelledNotificationParams(requestId=call, reason="enough")
                await client.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
                await some(outcomes)
                equal("the outcomes", outcomes(), ["cancelled"])
                group.cancel_scope.cancel()
            holds("expected a result", not (await client.call_tool("chatty", {})).isError)

else:

    def fills(params):
        """Fills in each field of a form with a name, and accepts everything else."""
        fields = getattr(params, "requested_schema", {}).get("properties", {})
        return {"action": "accept", "content": dict.fromkeys(fields, "Ada")}

    @scenario("pinned to 2026-07-28 or probing it answers input requests by retries, and posts nothing but requests")
    async def answers():
        async with served() as (url, _):
            for number, mode in enumerate((PINNED, "auto"), 1):
                posted, seen = [], []

                async def on_progress(progress, total, message):
                    seen.append(progress)

                async with connected(url, mode=mode, elicit=fills, sample=lambda params: "In short: foxes.", posted=posted) as client:
                    deleted = await client.call_tool("delete", {"name": "old"})
                    equal("after a yes", json.loads(deleted.content[0].text), {"deleted": "old"})
                    renamed = await client.call_tool("rename", {"name": "old"})
                    equal("after a form", json.loads(renamed.content[0].text), {"renamed": {"from": "old", "to": "Ada"}})
                    survey = content(await client.call_tool("survey", {"topic": "foxes"}, progress_callback=on_progress))
                expected = {"participant": "Ada", "number": number, "opinion": "In short: foxes.", "publish": True}
                equal("the survey", survey, expected)
                equal("the updates of the survey", seen, [0, 1, 2, 3])
                for tool, answered in {"delete": [0, 1], "rename": [0, 1], "survey": [0, 1, 1, 1]}.items():
                    equal(f"the answers in each request of {tool}", rounds(posted, tool), answered)
                others = {message.get("method") for message in posted} - {"tools/call", "tools/list", "server/discover"}
                equal("what else is posted", others, set())

    def rounds(posted, tool):
        """Returns the number of answers in each request of a tool. Checks that each request has a state of its own, and the first has none."""
        calls = [message for message in posted if message.get("method") == "tools/call" and message["params"]["name"] == tool]
        states = [call["params"].get("requestState") for call in calls]
        equal("the state of the first request", states[0], None)
        equal("the number of states", len(set(states)), len(calls))
        equal("the number of request ids", len({call["id"] for call in calls}), len(calls))
        return [len(call["params"].get("inputResponses") or {}) for call in calls]

    @scenario("a declined action is not done, an undeclared capability is an error, and a call cancelled between two rounds posts nothing more")
    async def declines():
        async with served() as (url, _):
            async with connected(url, elicit=lambda params: {"action": "decline"}) as client:
                kept = await client.call_tool("delete", {"name": "old"})
                equal("after a no", json.loads(kept.content[0].text), {"cancelled": True})
            async with connected(url) as client:
                try:
                    await client.call_tool("rename", {"name": "old"})
                    holds("expected an error", False)
                except errors() as error:
                    equal("the code", error.code, -32021)
            posted, scope = [], anyio.CancelScope()

            def leave(params):
                scope.cancel()
                return fills(params)

            async with connected(url, elicit=leave, sample=lambda params: "unused", posted=posted) as client:
                with scope:
                    await client.call_tool("survey", {"topic": "foxes"})
                holds("expected the call to be cancelled", scope.cancelled_caught)
                await client.call_tool("chatty", {})
            equal("the calls", [post["params"]["name"] for post in posted if post["method"] == "tools/call"], ["survey", "chatty"])
            holds("expected no cancel", "notifications/cancelled" not in [post["method"] for post in posted])

    @scenario("pinned to 2026-07-28 or probing it needs no session, and a server of older revisions opens one")
    async def eras():
        async with served() as (url, _):
            for mode in (PINNED, "auto"):
                async with connected(url, mode=mode) as client:
                    equal("the version", client.protocol_version, PINNED)
                    await client.call_tool("chatty", {})
        async with served("--era", "legacy") as (url, _), connected(url) as client:
            holds("expected an older version", client.protocol_version < PINNED)
            await client.call_tool("chatty", {})


async def bounded(body):
    with anyio.move_on_after(PATIENCE) as scope:
        await body()
    holds(f"expected an end within {PATIENCE} s, came none", not scope.cancelled_caught)


if __name__ == "__main__":
    run(lambda body: anyio.run(bounded, body))
