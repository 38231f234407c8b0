"""The official Python client, 1.x."""

from contextlib import asynccontextmanager

import anyio
import client as interop
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client


@asynccontextmanager
async def connect(command, sample=None, elicit=None, on_log=None):
    async def sampling(context, params):
        content = types.TextContent(type="text", text=sample(plain(params)))
        return types.CreateMessageResult(role="assistant", content=content, model="canned")

    async def elicitation(context, params):
        return types.ElicitResult(**elicit(plain(params)))

    async def logging(params):
        on_log(plain(params))

    async with (
        stdio_client(StdioServerParameters(command=command[0], args=command[1:])) as streams,
        ClientSession(
            *streams,
            sampling_callback=sampling if sample else None,
            elicitation_callback=elicitation if elicit else None,
            logging_callback=logging if on_log else None,
            client_info=types.Implementation(**interop.CLIENT),
        ) as session,
    ):
        await session.initialize()
        yield Client(session)


class Client:
    asks_in_rounds = False

    def __init__(self, session):
        self.session = session

    async def tools(self):
        return await pages(self.session.list_tools, "tools")

    async def prompts(self):
        return await pages(self.session.list_prompts, "prompts")

    async def call(self, name, arguments, on_progress=None):
        return await answer(self.session.call_tool(name, arguments, progress_callback=on_progress))

    async def prompt(self, name, arguments, on_progress):
        # get_prompt takes no progress callback.
        request = types.GetPromptRequest(params=types.GetPromptRequestParams(name=name, arguments=arguments))
        return await answer(self.session.send_request(types.ClientRequest(request), types.GetPromptResult, progress_callback=on_progress))

    async def set_level(self, level):
        await self.session.set_logging_level(level)

    async def call_until(self, name, arguments, updates):
        """Calls, and cancels after that many updates: by hand, since this SDK sends no cancel itself."""
        seen = interop.Updates()
        enough = anyio.Event()

        async def on_progress(*update):
            await seen(*update)
            if len(seen) == updates:
                enough.set()

        async with anyio.create_task_group() as group:
            group.start_soon(self.call, name, arguments, on_progress)
            await enough.wait()
            request = self.traffic.sent("tools/call")[-1]["msg"]["id"]
            params = types.CancelledNotificationParams(requestId=request, reason="enough")
            await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
            group.cancel_scope.cancel()


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def answer(call):
    try:
        return plain(await call)
    except McpError as error:
        raise interop.Refused(error.error.code, error.error.message, error.error.data) from error


async def pages(listing, member):
    items, cursor = [], None
    while True:
        page = plain(await listing(params=types.PaginatedRequestParams(cursor=cursor)))
        items += page[member]
        cursor = page.get("nextCursor")
        if cursor is None:
            return items


if __name__ == "__main__":
    # Imported only here, since the import declares the scenarios.
    from scenarios import main

    main(connect)
