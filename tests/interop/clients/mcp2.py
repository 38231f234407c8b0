"""The official Python client, 2.x, as it comes: it asks for `server/discover` first and falls back to `initialize`."""

from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import scenarios
from mcp import MCPError, StdioServerParameters
from mcp.client import Client as SdkClient
from scenario import equal, holds, scenario


@asynccontextmanager
async def connect(command, sample=None, elicit=None, on_log=None, mode="auto"):
    async def sampling(context, params):
        content = types.TextContent(text=sample(plain(params)))
        return types.CreateMessageResult(role="assistant", content=content, model="canned")

    async def elicitation(context, params):
        return types.ElicitResult(**elicit(plain(params)))

    async def logging(params):
        on_log(plain(params))

    async with SdkClient(
        StdioServerParameters(command=command[0], args=command[1:]),
        sampling_callback=sampling if sample else None,
        elicitation_callback=elicitation if elicit else None,
        logging_callback=logging if on_log else None,
        client_info=types.Implementation(**scenarios.CLIENT),
        mode=mode,
    ) as client:
        yield Client(client)


class Client:
    def __init__(self, client):
        self.client = client

    async def tools(self):
        return await pages(self.client.list_tools, "tools")

    async def prompts(self):
        return await pages(self.client.list_prompts, "prompts")

    async def call(self, name, arguments, on_progress=None):
        return await answer(self.client.call_tool(name, arguments, progress_callback=on_progress))

    async def prompt(self, name, arguments, on_progress):
        # get_prompt takes no progress callback.
        request = types.GetPromptRequest(params=types.GetPromptRequestParams(name=name, arguments=arguments))
        return await answer(self.client.session.send_request(request, types.GetPromptResult, progress_callback=on_progress))

    async def set_level(self, level):
        await self.client.set_logging_level(level)

    async def call_until(self, name, arguments, updates):
        """Calls, and cancels after that many updates: the SDK tells the server when the call's scope is cancelled."""
        seen = scenarios.Updates()
        with anyio.CancelScope() as scope:

            async def on_progress(*update):
                await seen(*update)
                if len(seen) == updates:
                    scope.cancel()

            await self.call(name, arguments, on_progress)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def answer(call):
    try:
        return plain(await call)
    except MCPError as error:
        raise scenarios.Refused(error.code, error.message) from error


async def pages(listing, member):
    items, cursor = [], None
    while True:
        page = plain(await listing(cursor=cursor))
        items += page[member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return items


@scenario("a server of the older era alone refuses the probe for the newer one on the same pipe, and the handshake follows")
async def probe(tools):
    async with tools() as client:
        await client.tools()
        frames = client.traffic.frames("client->server")
        methods = [frame["msg"]["method"] for frame in frames]
        equal("what the client sends first", methods[:3], ["server/discover", "initialize", "notifications/initialized"])
        first, second, *_ = frames
        (refusal,) = client.traffic.answers(first)
        equal("the error code of server/discover", refusal["msg"].get("error", {}).get("code"), -32601)
        (handshake,) = client.traffic.answers(second)
        wanted = second["msg"]["params"]["protocolVersion"]
        equal("the negotiated version", handshake["msg"]["result"]["protocolVersion"], wanted)


PINNED = "2026-07-28"


@scenario("pinned to 2026-07-28 it lists and follows a call to its end, and no handshake crosses the pipe")
async def pinned(tools):
    async with tools("--era", "auto", mode=PINNED) as client:
        holds("expected the tool progress among the tools", any(tool["name"] == "progress" for tool in await client.tools()))
        seen = scenarios.Updates()
        result = await client.call("progress", {"steps": 3, "step_ms": 30}, seen)
        equal("what the tool returned", result["structuredContent"]["steps"], 3)
        equal("the updates", [value for value, _, _ in seen], [1, 2, 3])
        methods = {frame["msg"].get("method") for frame in client.traffic.frames("client->server")}
        holds(f"expected neither initialize nor a notification, came {methods}", methods <= {"server/discover", "tools/list", "tools/call"})


@scenario("pinned to 2026-07-28 an unknown tool is an error, and a cancel ends a call without a response")
async def pinned_cancel(tools):
    async with tools("--era", "modern", mode=PINNED) as client:
        try:
            await client.call("nope", {})
            holds("expected an error for an unknown tool", False)
        except scenarios.Refused as refused:
            equal("the code for an unknown tool", refused.code, -32602)
        await client.call_until("countdown", {"from": 50, "step_ms": 150}, updates=2)
        # Long enough for two more steps of the countdown.
        await client.call("progress", {"steps": 3, "step_ms": 100})
        _, call, _ = client.traffic.sent("tools/call")
        cancels = client.traffic.sent("notifications/cancelled")
        equal("the cancelled requests", [cancel["msg"]["params"]["requestId"] for cancel in cancels], [call["msg"]["id"]])
        equal("responses to the cancelled call", client.traffic.answers(call), [])


@scenario("probing for the newer era it finds it, and a tool that would ask fails as with a client that nobody answers for")
async def probed(tools):
    async with tools("--era", "auto", elicit=lambda params: {"action": "accept", "content": {}}) as client:
        result = await client.call("delete", {"items": ["a"]})
        holds(f"expected the tool to fail, it returned {result}", result.get("isError"))
        first = client.traffic.frames("client->server")[0]
        equal("what the client sends first", first["msg"]["method"], "server/discover")
        (found,) = client.traffic.answers(first)
        equal("the versions", found["msg"]["result"]["supportedVersions"], [PINNED])


if __name__ == "__main__":
    scenarios.main(connect)
