"""What the official Python clients, 1.x and 2.x, and `tools --http` must do together. The environment decides which of them it is."""

import asyncio
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import mcp
from scenario import contains, equal, holds, run, scenario

INFO = {"name": "interop", "version": "1.2.3"}
PATIENCE = 20  # seconds for one scenario
PINNED = "2026-07-28"
IS_FIRST = hasattr(mcp, "McpError")


@asynccontextmanager
async def served(*flags):
    """Starts `tools --http`, and ends it by a signal. Gives its URL, and a function of the outcomes of its calls so far."""
    audit = Path(tempfile.mktemp(suffix=".jsonl"))
    command = [os.environ["TOOLS"], "--http", "127.0.0.1:0", "--audit", str(audit), *flags]
    program = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    try:
        said = (await program.stderr.readuntil(b"/mcp\n")).decode()
        yield re.search(r"http://\S+", said)[0], lambda: [json.loads(line)["outcome"] for line in audit.read_text().splitlines()]
    finally:
        program.terminate()
        equal("the exit status", await program.wait(), 0)


@asynccontextmanager
async def connected(url, mode="auto", elicit=None):
    """A client of the SDK that is installed; `mode` is for 2.x alone."""
    types = mcp.types if IS_FIRST else __import__("mcp_types")

    async def elicitation(context, params):
        return types.ElicitResult(**elicit(params))

    callback = elicitation if elicit else None
    if IS_FIRST:
        from mcp.client.streamable_http import streamable_http_client

        async with (
            streamable_http_client(url) as (read, write, _),
            mcp.ClientSession(read, write, elicitation_callback=callback, client_info=types.Implementation(**INFO)) as session,
        ):
            await session.initialize()
            yield session
    else:
        from mcp.client import Client

        async with Client(url, elicitation_callback=callback, client_info=types.Implementation(**INFO), mode=mode) as client:
            yield client


def content(result):
    return result.model_dump(mode="json", by_alias=True)["structuredContent"]


def errors():
    return mcp.McpError if IS_FIRST else mcp.MCPError


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


@scenario("an unknown tool is an error of JSON-RPC, and the server lives on")
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
        for _ in range(500):
            if outcomes():
                break
            await anyio.sleep(0.01)
        equal("the outcomes", outcomes(), ["ok" if IS_FIRST else "cancelled"])


if IS_FIRST:

    @scenario("a session is ended by the client, and is unknown afterwards")
    async def ends():
        from mcp.client.streamable_http import streamable_http_client

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

    @scenario("what a tool asks comes on the stream of its call, and is answered")
    async def asks():
        def accept(params):
            return {"action": "accept", "content": {"newName": "new.txt"} if "name" in params.message else {}}

        async with served() as (url, _), connected(url, elicit=accept) as client:
            contains("what the tool returned", (await client.call_tool("delete", {"name": "old.txt"})).model_dump_json(), "deleted")
            contains("what the tool returned", (await client.call_tool("rename", {"name": "old.txt"})).model_dump_json(), "new.txt")

else:

    @scenario("pinned to 2026-07-28 or probing it needs no session, and of a server of older revisions it gets one")
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
