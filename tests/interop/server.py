"""A server made with the Python SDK (mcp 1.x) for tests of `call`. Its tools report progress, make input requests, fail, and end the server.

It serves on standard input and output, or over HTTP if its argument is a port.
"""

import asyncio
import os
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("interop", log_level="ERROR")
cancelled = 0


@server.tool()
async def work(context: Context, steps: int = 5, step_ms: int = 200) -> str:
    """Reports each step, then takes its time over it."""
    global cancelled
    try:
        for i in range(1, steps + 1):
            await context.report_progress(i, steps, f"step {i} of {steps}")
            await asyncio.sleep(step_ms / 1000)
    except asyncio.CancelledError:
        cancelled += 1
        raise
    return f"worked {steps} steps"


@server.tool()
def interrupted() -> str:
    """Tells how many works were cancelled."""
    return str(cancelled)


@server.tool()
async def vanish(context: Context, steps: int = 3) -> str:
    """Reports a few steps of ten, then the whole server is gone."""
    for i in range(1, steps + 1):
        await context.report_progress(i, 10, f"step {i} of 10")
    await asyncio.sleep(0.2)
    os._exit(1)


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no luck today")


@server.tool()
async def ask_model(context: Context, question: str) -> str:
    """Asks the caller's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    result = await context.session.create_message([message], max_tokens=100)
    return f"the model said: {result.content.text}"


class Name(BaseModel):
    name: str


@server.tool()
async def ask_user(context: Context) -> str:
    """Asks the caller's user for a name."""
    answer = await context.elicit("Who are you?", Name)
    return f"the user is {answer.data.name}" if answer.action == "accept" else f"the user said: {answer.action}"


class Nothing(BaseModel):
    pass


@server.tool()
async def confirm(context: Context) -> str:
    """Asks the caller's user for a yes, with nothing to fill in."""
    answer = await context.elicit("Go ahead?", Nothing)
    return f"the user said: {answer.action}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.settings.port = int(sys.argv[1])
        server.run(transport="streamable-http")
    else:
        server.run()
