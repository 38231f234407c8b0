"""A server made with the Python SDK (mcp 2.x) for `call` to drive. What the client says first decides the era it serves.

It serves on its pipes, or with a port as its argument over HTTP.
"""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("interop", log_level="ERROR")


@server.tool()
async def work(context: Context, steps: int = 5, step_ms: int = 200) -> str:
    """Reports each step, then takes its time over it."""
    for i in range(1, steps + 1):
        await context.report_progress(i, steps, f"step {i} of {steps}")
        await asyncio.sleep(step_ms / 1000)
    return f"worked {steps} steps"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("no luck today")


class Name(BaseModel):
    name: str


@server.tool()
async def ask_user(context: Context) -> str:
    """Asks the caller's user for a name."""
    answer = await context.elicit("Who are you?", Name)
    return f"the user is {answer.data.name}" if answer.action == "accept" else f"the user said: {answer.action}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
