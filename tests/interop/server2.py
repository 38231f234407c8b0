"""A server made with the Python SDK (mcp 2.x) for tests of `call`. The first request of the client decides which era it serves.

It serves on standard input and output, or over HTTP if its argument is a port.
"""

import asyncio
import sys
from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer("interop", log_level="ERROR")
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
def fail() -> str:
    """Fails."""
    raise ToolError("no luck today")


class Name(BaseModel):
    name: str


NAME = ElicitRequest(params=ElicitRequestFormParams(message="Who are you?", requested_schema=Name.model_json_schema()))


class Nothing(BaseModel):
    pass


# For a parameter with `Resolve`, the SDK makes the input request before the tool runs, in the way of the era.


async def who(context: Context) -> Elicit[Name]:
    await context.report_progress(1, 3, "step 1 of 3")
    return Elicit("Who are you?", Name)


def go_ahead() -> Elicit[Nothing]:
    return Elicit("Go ahead?", Nothing)


def model(question):
    return Sample([SamplingMessage(role="user", content=TextContent(text=question))], max_tokens=100)


def how_many() -> Sample:
    return model("How many?")


async def opinion(context: Context, name: Annotated[Name, Resolve(who)]) -> Sample:
    await context.report_progress(2, 3, "step 2 of 3")
    return model(f"What do you think of {name.name}?")


@server.tool()
async def ask_user(answer: Annotated[ElicitationResult[Name], Resolve(who)]) -> str:
    """Asks the caller's user for a name."""
    return f"the user is {answer.data.name}" if answer.action == "accept" else f"the user said: {answer.action}"


@server.tool()
async def confirm(answer: Annotated[ElicitationResult[Nothing], Resolve(go_ahead)]) -> str:
    """Asks the caller's user for a yes, with nothing to fill in."""
    return f"the user said: {answer.action}"


@server.tool()
async def ask_model(answer: Annotated[CreateMessageResult, Resolve(how_many)]) -> str:
    """Asks the caller's model."""
    return f"the model said: {answer.content.text}"


def folders() -> ListRoots:
    return ListRoots()


@server.tool()
async def list_folders(answer: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """Asks for the folders of the caller."""
    return " ".join(str(root.uri) for root in answer.roots)


@server.tool()
async def ask_both(name: Annotated[Name, Resolve(who)], answer: Annotated[CreateMessageResult, Resolve(how_many)]) -> str:
    """Asks the user and the model at once."""
    return f"the user is {name.name}, the model said: {answer.content.text}"


@server.tool()
async def interview(context: Context, name: Annotated[Name, Resolve(who)], answer: Annotated[CreateMessageResult, Resolve(opinion)]) -> str:
    """Asks the user for a name, then the model about it."""
    await context.report_progress(3, 3, "step 3 of 3")
    return f"{name.name}: {answer.content.text}"


# These tools, and the prompt, return their input requests themselves.


@server.tool()
async def open(context: Context) -> str | InputRequiredResult:
    """Asks the caller's user to open an address."""
    answer = (context.input_responses or {}).get("asked")
    if answer is None:
        params = ElicitRequestURLParams(message="Please", url="https://example.com/x?y=1")
        return InputRequiredResult(input_requests={"asked": ElicitRequest(params=params)})
    return f"the user said: {answer.action}"


@server.tool()
async def later(context: Context) -> str | InputRequiredResult:
    """Twice wants to be called again."""
    turn = int(context.request_state or 0)
    if turn < 2:
        return InputRequiredResult(request_state=str(turn + 1))
    return f"called again {turn} times, with {len(context.input_responses or {})} answers"


@server.prompt()
async def greeting(context: Context) -> str | InputRequiredResult:
    """Asks for a name first."""
    answer = (context.input_responses or {}).get("name")
    if answer is None:
        return InputRequiredResult(input_requests={"name": NAME}, request_state="asked")
    return f"Greet {answer.content['name']}."


# This tool sends a JSON-RPC request, which 2026-07-28 does not have.


@server.tool()
async def ask_directly(context: Context) -> str:
    """Sends the caller's user a request."""
    answer = await context.elicit("Who are you?", Name)
    return f"the user is {answer.data.name}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
