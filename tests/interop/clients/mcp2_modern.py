"""The scenarios of the official Python client 2.x with `tools` that are only about the revision 2026-07-28, which has no handshake."""

import anyio
import client as interop
import mcp_types as types
from client import misses, refused, rounds, structured, succeeded, texts, tool_error, value
from mcp2 import answer, connect
from scenario import contains, equal, holds, scenario

PINNED = "2026-07-28"


@scenario("a server of the older era alone refuses the probe for the newer one on the same pipe, and the handshake follows")
async def refused_probe(tools):
    async with tools("--era", "legacy") as client:
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


@scenario("a client that probes finds the newer era")
async def probed(tools):
    async with tools() as client:
        await client.tools()
        first = client.traffic.frames("client->server")[0]
        equal("what the client sends first", first["msg"]["method"], "server/discover")
        (found,) = client.traffic.answers(first)
        equal("the versions", found["msg"]["result"]["supportedVersions"], [PINNED])


@scenario("pinned to 2026-07-28 it lists and follows a call to its end, and no handshake crosses the pipe")
async def pinned(tools):
    async with tools(mode=PINNED) as client:
        holds("expected the tool progress among the tools", any(tool["name"] == "progress" for tool in await client.tools()))
        seen = interop.Updates()
        result = await client.call("progress", {"steps": 3, "step_ms": 30}, seen)
        equal("what the tool returned", result["structuredContent"]["steps"], 3)
        equal("the updates", [value for value, _, _ in seen], [1, 2, 3])
        methods = {frame["msg"].get("method") for frame in client.traffic.frames("client->server")}
        holds(f"expected neither initialize nor a notification, came {methods}", methods <= {"server/discover", "tools/list", "tools/call"})


@scenario("pinned to 2026-07-28 an unknown tool is an error, and a cancel ends a call without a response")
async def pinned_cancel(tools):
    async with tools("--era", "modern", mode=PINNED) as client:
        equal("the code for an unknown tool", (await refused(client.call("nope", {}))).code, -32602)
        await client.call_until("countdown", {"from": 50, "step_ms": 150}, updates=2)
        # Long enough for two more steps of the countdown.
        await client.call("progress", {"steps": 3, "step_ms": 100})
        _, call, _ = client.traffic.sent("tools/call")
        cancels = client.traffic.sent("notifications/cancelled")
        equal("the cancelled requests", [cancel["msg"]["params"]["requestId"] for cancel in cancels], [call["msg"]["id"]])
        equal("responses to the cancelled call", client.traffic.answers(call), [])


# Input requests


def fills(params):
    """Fills in each field of a form with a name, and accepts everything else."""
    fields = params.get("requestedSchema", {}).get("properties", {})
    return {"action": "accept", "content": dict.fromkeys(fields, "Ada")} if "requestedSchema" in params else {"action": "accept"}


@scenario("pinned to 2026-07-28 it answers every kind of input request, and sends nothing but requests")
async def pinned_answers(tools):
    async with tools(mode=PINNED, sample=lambda params: "In short: foxes.", elicit=fills) as client:
        equal("the summary", texts(succeeded(await client.call("summarise", {"text": "foxes"}))), ["In short: foxes."])
        equal("after a yes", value(await client.call("delete", {"name": "old"})), {"deleted": "old"})
        equal("after a form", value(await client.call("rename", {"name": "old"})), {"renamed": {"from": "old", "to": "Ada"}})
        equal("after an address", value(await client.call("connect", {})), {"decided": "accept"})
        survey = structured(await client.call("survey", {"topic": "foxes"}))
        equal("the survey", survey, {"participant": "Ada", "number": 1, "opinion": "In short: foxes.", "publish": True})
        sent = [frame["msg"] for frame in client.traffic.frames("client->server")]
        holds("expected nothing but calls and lists", {frame.get("method") for frame in sent} <= {"tools/call", "tools/list"})
        equal("the rounds", len(rounds(client.traffic)), 7)


@scenario("pinned to 2026-07-28 a client that declares no capability gets an error that names the missing one")
async def pinned_misses(tools):
    async with tools(mode=PINNED) as client:
        await misses("sampling", client, client.call("summarise", {"text": "x"}))
        await misses("elicitation", client, client.call("rename", {"name": "x"}))
        await misses("elicitation", client, client.call("connect", {}))
        equal("a deletion that cannot be confirmed", value(await client.call("delete", {"name": "x"})), {"cancelled": True})
        equal("the rounds", rounds(client.traffic), [])


@scenario("a call that is cancelled between two rounds sends no frame for that, and the server answers the next call")
async def cancelled_between(tools):
    scope = anyio.CancelScope()

    def elicit(params):
        scope.cancel()
        return {"action": "accept", "content": {"name": "Ada"}}

    async with tools(elicit=elicit, sample=lambda params: "unused") as client:
        with scope:
            await client.call("survey", {"topic": "foxes"})
        holds("expected the call to be cancelled", scope.cancelled_caught)
        succeeded(await client.call("progress", {"steps": 2, "step_ms": 50}))
        names = [call["msg"]["params"]["name"] for call in client.traffic.sent("tools/call")]
        equal("the calls on the wire", names, ["survey", "progress"])
        equal("the cancels on the wire", client.traffic.sent("notifications/cancelled"), [])


@scenario("a state that was changed, or that belongs to another call, is refused with -32602, and has no effect")
async def foreign_state(tools):
    async with tools(elicit=fills, sample=lambda params: "unused") as client:
        session = client.client.session

        async def once(name, arguments, **retry):
            return await answer(session.call_tool(name, arguments, allow_input_required=True, **retry))

        asked = await once("delete", {"name": "old"})
        state, (key,) = asked["requestState"], asked["inputRequests"]
        yes = {key: types.ElicitResult(action="accept", content={})}
        changed = ("B" if state[0] == "A" else "A") + state[1:]
        for name, arguments, wrong in [("delete", {"name": "old"}, changed), ("delete", {"name": "new"}, state), ("rename", {"name": "old"}, state)]:
            refusal = await refused(once(name, arguments, input_responses=yes, request_state=wrong))
            equal(f"the error code for {name} {arguments}", refusal.code, -32602)
        deleted = await once("delete", {"name": "old"}, input_responses=yes, request_state=state)
        equal("the result of the right state", value(deleted), {"deleted": "old"})


@scenario("an answer that is missing is requested again, and one with an unknown name is ignored")
async def asked_again(tools):
    async with tools(elicit=fills) as client:
        session = client.client.session

        async def once(**retry):
            return await answer(session.call_tool("rename", {"name": "old"}, allow_input_required=True, **retry))

        first = await once()
        (key,) = first["inputRequests"]
        form = types.ElicitResult(action="accept", content={"newName": "new"})
        again = await once(input_responses={"unknown": form}, request_state=first["requestState"])
        equal("what is asked again", again["inputRequests"], first["inputRequests"])
        renamed = await once(input_responses={key: form, "unknown": form}, request_state=again["requestState"])
        equal("the result", value(renamed), {"renamed": {"from": "old", "to": "new"}})


@scenario("an address that must be opened first is a tool error that names it, as this revision has no error for it")
async def address_first(tools):
    async with tools(elicit=fills) as client:
        contains("the tool error", tool_error(await client.call("connect", {"require": True})), "https://example.com/connect")


@scenario("three calls at once each get the answers to their own input requests")
async def at_once(tools):
    async with tools(elicit=fills, sample=lambda params: f"You asked: {params['messages']}") as client:
        results = {}

        async def one(topic):
            results[topic] = structured(succeeded(await client.call("survey", {"topic": topic}, interop.Updates())))

        async with anyio.create_task_group() as group:
            for topic in ["aaaaa", "bbbbb", "ccccc"]:
                group.start_soon(one, topic)
        for topic, result in results.items():
            contains("the opinion", result["opinion"], topic)
        equal("the numbers", sorted(result["number"] for result in results.values()), [1, 2, 3])
        equal("the requests", len(client.traffic.sent("tools/call")), 12)


if __name__ == "__main__":
    interop.main(connect)
