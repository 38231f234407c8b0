"""The official Python client, 2.x, with its defaults: it sends `server/discover` first and falls back to `initialize`.

Its arguments are flags for every `tools`, so that the same scenarios can be run in the revisions with a handshake.
"""

import sys
from contextlib import asynccontextmanager

import anyio
import client as interop
import mcp_types as types
from mcp import MCPError, StdioServerParameters
from mcp.client import Client as SdkClient


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
        client_info=types.Implementation(**interop.CLIENT),
        mode=mode,
    ) as client:
        yield Client(client)


class Client:
    def __init__(self, client):
        self.client = client
        self.asks_in_rounds = client.protocol_version == "2026-07-28"
        self.meta = None

    async def tools(self):
        return await pages(self.client.list_tools, "tools")

    async def prompts(self):
        return await pages(self.client.list_prompts, "prompts")

    async def call(self, name, arguments, on_progress=None):
        return await answer(self.client.call_tool(name, arguments, progress_callback=on_progress, meta=self.meta))

    async def prompt(self, name, arguments, on_progress):
        # get_prompt takes no progress callback.
        request = types.GetPromptRequest(params=types.GetPromptRequestParams(name=name, arguments=arguments))
        return await answer(self.client.session.send_request(request, types.GetPromptResult, progress_callback=on_progress))

    async def set_level(self, level):
        if self.asks_in_rounds:
            self.meta = {"io.modelcontextprotocol/logLevel": level}
        else:
            await self.client.set_logging_level(level)

    async def call_until(self, name, arguments, updates):
        """Calls, and cancels after that many updates: the SDK sends a cancel when the scope of the call is cancelled."""
        seen = interop.Updates()
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
        raise interop.Refused(error.code, error.message, error.data) from error


async def pages(listing, member):
    items, cursor = [], None
    while True:
        page = plain(await listing(cursor=cursor))
        items += page[member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return items


if __name__ == "__main__":
    # Imported only here, since the import declares the scenarios.
    from scenarios import main

    main(connect, sys.argv[1:])
