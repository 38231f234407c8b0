"""The scenarios of a Python client with `tools`, the same for both SDKs and for every revision.

`mcp1.py` and `mcp2.py` connect, list, call and cancel with their SDK.
"""

import json
import time

import anyio
import expected
from client import (
    CLIENT,
    Refused,
    Updates,
    asked_on_the_wire,
    last_call,
    main,
    misses,
    retried,
    structured,
    succeeded,
    texts,
    tool_error,
    value,
    wire_updates,
)
from scenario import Unmet, contains, equal, holds, same_bytes, scenario, within

__all__ = ["main"]

# Listing


@scenario("lists the tools, in the same order every time")
async def lists_tools(tools):
    orders = []
    for _ in range(2):
        async with tools() as client:
            orders += [[tool["name"] for tool in await client.tools()] for _ in range(2)]
    equal("the names of the tools, sorted", sorted(orders[0]), expected.TOOLS)
    for order in orders[1:]:
        equal("the order of a later list", order, orders[0])


@scenario("describes every tool, and marks those that only read")
async def describes_tools(tools):
    async with tools() as client:
        for tool in await client.tools():
            name = tool["name"]
            equal(f"the type of the input schema of {name}", tool["inputSchema"]["type"], "object")
            holds(f"expected a description of {name}, came none", tool.get("description"))
            read_only = tool.get("annotations", {}).get("readOnlyHint", False)
            equal(f"readOnlyHint of {name}", read_only, name in expected.READ_ONLY)


@scenario("lists the workflow prompt with its arguments")
async def lists_prompts(tools):
    async with tools() as client:
        prompts = {prompt["name"]: prompt for prompt in await client.prompts()}
        equal("the prompts", list(prompts), ["analysis_workflow"])
        arguments = [argument["name"] for argument in prompts["analysis_workflow"]["arguments"]]
        equal("the arguments of analysis_workflow, sorted", sorted(arguments), ["step_ms", "topic"])


# Progress


@scenario("progress with a token: every update, in order, all before the result")
async def progress_with_token(tools):
    async with tools() as client:
        updates = Updates()
        result = await client.call("progress", {"steps": 5, "step_ms": 40}, updates)
        equal("the result", structured(succeeded(result)), {"steps": 5, "notified": True, "done": True})
        steps = [(i, 5, f"step {i}/5") for i in range(1, 6)]
        equal("the updates on the wire", wire_updates(client.traffic, last_call(client.traffic)), steps)
        equal("the updates handed to the callback", list(updates), steps)


@scenario("progress without a token: no updates, and `notified` in the result is false")
async def progress_without_token(tools):
    async with tools() as client:
        result = await client.call("progress", {"steps": 3, "step_ms": 20})
        equal("the result", structured(succeeded(result)), {"steps": 3, "notified": False, "done": True})
        equal("progress notifications on the wire", client.traffic.came("notifications/progress"), [])


@scenario("progress arrives as it happens: ten steps 500 ms apart arrive 500 ms apart")
async def progress_is_live(tools):
    async with tools() as client:
        updates = Updates()
        start = time.monotonic()
        await client.call("progress", {"steps": 10, "step_ms": 500}, updates)
        end = time.monotonic()
        equal("the number of updates", len(updates), 10)
        within("seconds until the first update", updates.times[0] - start, 0, 0.35)
        for i, (earlier, later) in enumerate(zip(updates.times, [*updates.times[1:], end]), 1):
            within(f"seconds from update {i} to what follows it", later - earlier, 0.35, 0.75)


@scenario("five calls at once each get their own updates and result")
async def calls_at_once(tools):
    async with tools() as client:
        updates = [Updates() for _ in range(5)]
        results = [None] * 5

        async def one(i):
            results[i] = await client.call("progress", {"steps": i + 1, "step_ms": 30}, updates[i])

        async with anyio.create_task_group() as group:
            for i in range(5):
                group.start_soon(one, i)
        for i in range(5):
            equal(f"the result of call {i}", structured(results[i])["steps"], i + 1)
            equal(f"the updates of call {i}", [update[0] for update in updates[i]], list(range(1, i + 2)))


@scenario("countdown reports from 0 to the end")
async def countdown_completes(tools):
    async with tools() as client:
        # Checked in the recorded frames: the last update comes with the result, and not every SDK reports such an update.
        for start in [3, 0]:
            result = await client.call("countdown", {"from": start, "step_ms": 100}, Updates())
            equal("the result", structured(succeeded(result)), {"result": "Countdown completed successfully", "from": start})
            equal("the updates on the wire", wire_updates(client.traffic, last_call(client.traffic)), expected.countdown(start))


@scenario("the workflow prompt reports its five steps and returns the exact text")
async def workflow_prompt(tools):
    async with tools() as client:
        for arguments, topic in [({"topic": "wire formats"}, "wire formats"), ({}, "general analysis")]:
            updates = Updates()
            prompt = await client.prompt("analysis_workflow", {**arguments, "step_ms": "50"}, updates)
            description, text = expected.workflow(topic)
            equal("the description", prompt["description"], description)
            equal("the messages", prompt["messages"], [{"role": "user", "content": {"type": "text", "text": text}}])
            request = client.traffic.sent("prompts/get")[-1]
            equal("the updates on the wire", wire_updates(client.traffic, request), expected.workflow_updates())
            equal("the updates handed to the callback", list(updates), expected.workflow_updates())


# Output


@scenario("long_output is right to the byte, small and large")
async def long_output_bytes(tools):
    async with tools() as client:
        for arguments, blocks, chars in [({}, 3, 256), ({"blocks": 50, "chars": 65536}, 50, 65536), ({"blocks": 12, "chars": 5}, 12, 5)]:
            came = texts(succeeded(await client.call("long_output", arguments)))
            equal("the number of blocks", len(came), blocks)
            for i, (text, right) in enumerate(zip(came, expected.long_output(blocks, chars))):
                same_bytes(f"block {i} of {chars} bytes", text, right)


@scenario("chatty is right to the byte, accents too")
async def chatty_bytes(tools):
    async with tools() as client:
        came = texts(succeeded(await client.call("chatty", {})))
        equal("the number of blocks", len(came), 4)
        for i, (text, right) in enumerate(zip(came, expected.CHATTY)):
            same_bytes(f"block {i}", text, right)


@scenario("bulk tells what was done and what failed")
async def bulk_partial(tools):
    async with tools() as client:
        result = await client.call("bulk", {"items": ["a", "b", "c"], "fail": ["b"], "step_ms": 10})
        came = structured(succeeded(result))
        errors = came.pop("errors", None)
        equal(
            "the result without its errors",
            came,
            {
                "status": "complete",
                "total": 3,
                "processed": 2,
                "failed": 1,
                "remaining": 0,
                "results": [{"id": "a", "status": "ok"}, {"id": "c", "status": "ok"}],
            },
        )
        equal("the items in errors", [error["id"] for error in errors or []], ["b"])
        holds(f"expected a reason for the failure, came {errors}", isinstance(errors[0]["error"], str) and errors[0]["error"])
        whole = structured(succeeded(await client.call("bulk", {"items": ["a"], "step_ms": 10})))
        equal("errors, when nothing failed", whole.get("errors", "absent"), "absent")


@scenario("whoami returns who the client says it is and what it can do")
async def whoami(tools):
    async with tools(sample=lambda params: "unused") as client:
        came = value(succeeded(await client.call("whoami", {})))
        equal("the members", sorted(came), ["agent", "capabilities", "client"])
        equal("the client", {key: came["client"].get(key) for key in CLIENT}, CLIENT)
        able = {name: came["capabilities"].get(name) not in (None, False) for name in ["sampling", "elicitation"]}
        equal("the capabilities", able, {"sampling": True, "elicitation": False})


# Bad input


@scenario("a wrong argument is a tool error that names it")
async def wrong_argument(tools):
    async with tools() as client:
        contains("a wrong type", tool_error(await client.call("progress", {"steps": "many"})), "steps")
        contains("an unknown argument", tool_error(await client.call("chatty", {"surprise": 1})), "surprise")
        contains("a missing argument", tool_error(await client.call("delete", {})), "name")


@scenario("an unknown tool is the JSON-RPC error -32602, and the server answers the next call")
async def unknown_tool(tools):
    async with tools() as client:
        try:
            result = await client.call("no_such_tool", {})
        except Refused as refused:
            equal("the error code", refused.code, -32602)
        else:
            raise Unmet(f"expected a JSON-RPC error, came {result}")
        succeeded(await client.call("chatty", {}))


# Endings


@scenario("a cancelled countdown is not answered, and the server answers the next call")
async def cancel(tools):
    async with tools() as client:
        await client.call_until("countdown", {"from": 50, "step_ms": 150}, updates=3)
        # Long enough for four more steps of the countdown.
        succeeded(await client.call("progress", {"steps": 3, "step_ms": 200}))

        call, _ = client.traffic.sent("tools/call")
        cancels = client.traffic.sent("notifications/cancelled")
        equal("the cancelled requests", [cancel["msg"]["params"]["requestId"] for cancel in cancels], [call["msg"]["id"]])
        equal("responses to the cancelled call", client.traffic.answers(call), [])
        late = [frame for frame in client.traffic.progress(call["msg"]["params"]["_meta"]["progressToken"]) if frame["at"] > cancels[0]["at"]]
        holds(f"expected at most one update that crossed the cancel, came {late}", len(late) <= 1)


@scenario("a stuck tool is answered at the deadline, and the server answers the next call")
async def deadline(tools):
    async with tools("--deadline", "1") as client:
        start = time.monotonic()
        tool_error(await client.call("stuck", {}))
        within("seconds until the tool error", time.monotonic() - start, 0.9, 2)
        succeeded(await client.call("chatty", {}))


@scenario("bulk, cut by the deadline, still tells what was done")
async def deadline_partial(tools):
    async with tools("--deadline", "0.5") as client:
        result = await client.call("bulk", {"items": [str(i) for i in range(100)], "step_ms": 50})
        came = structured(succeeded(result))
        equal("the status", came["status"], "timeout")
        within("the items that were processed", came["processed"], 1, 20)
        equal("the results", came["results"], [{"id": str(i), "status": "ok"} for i in range(came["processed"])])
        equal("what remains", came["remaining"], 100 - came["processed"])


@scenario("the server exits by itself when its input ends")
async def leaves(tools):
    async with tools() as client:
        succeeded(await client.call("chatty", {}))
    end = client.traffic.exit()
    closed = [entry for entry in client.traffic.entries() if entry.get("ev") == "end"][0]
    equal("the exit status", end and end["code"], 0)
    within("milliseconds from the end of input to the exit", end["ms"] - closed["ms"], 0, 1000)


# Sampling, confirmation, elicitation, logging


@scenario("summarise returns what the client's model said")
async def summarise(tools):
    asked = []

    def sample(params):
        asked.append(params)
        return "In short: two foxes."

    async with tools(sample=sample) as client:
        result = succeeded(await client.call("summarise", {"text": "Once there were two foxes."}))
        equal("the text", texts(result), ["In short: two foxes."])
        equal("how often the model was asked", len(asked), 1)
        contains("what the model was asked", asked[0]["messages"], "Once there were two foxes.")
        equal("maxTokens", asked[0]["maxTokens"], 400)


@scenario("summarise is a clear error when the client has no model")
async def summarise_without_sampling(tools):
    async with tools() as client:
        await misses("sampling", client, client.call("summarise", {"text": "x"}))
        equal("input requests on the wire", asked_on_the_wire(client.traffic), [])


@scenario("delete deletes when it is confirmed, and only then")
async def delete(tools):
    for answer, outcome in [
        ({"action": "accept", "content": {}}, {"deleted": "old.txt"}),
        ({"action": "decline"}, {"cancelled": True}),
        ({"action": "cancel"}, {"cancelled": True}),
    ]:
        asked = []

        def elicit(params):
            asked.append(params)
            return answer

        async with tools(elicit=elicit) as client:
            came = value(succeeded(await client.call("delete", {"name": "old.txt"})))
            equal(f"the result after {answer['action']}", came, outcome)
            equal("how often the user was asked", len(asked), 1)
            contains("what the user was asked", asked[0]["message"], "old.txt")


@scenario("delete without a user to ask deletes nothing")
async def delete_without_elicitation(tools):
    async with tools() as client:
        equal("the result", value(succeeded(await client.call("delete", {"name": "old.txt"}))), {"cancelled": True})
        equal("input requests on the wire", asked_on_the_wire(client.traffic), [])


@scenario("rename takes the name the user gives, and none when there is none")
async def rename(tools):
    for answer, outcome in [
        ({"action": "accept", "content": {"newName": "new.txt"}}, {"renamed": {"from": "old.txt", "to": "new.txt"}}),
        ({"action": "decline"}, {"cancelled": True}),
        ({"action": "cancel"}, {"cancelled": True}),
    ]:
        asked = []

        def elicit(params):
            asked.append(params["requestedSchema"])
            return answer

        async with tools(elicit=elicit) as client:
            came = value(succeeded(await client.call("rename", {"name": "old.txt"})))
            equal(f"the result after {answer['action']}", came, outcome)
            (schema,) = asked
            field = schema["properties"]["newName"]
            equal("the schema of newName", (field["type"], field["minLength"]), ("string", 1))
            equal("what is required", schema["required"], ["newName"])


@scenario("rename is a clear error when there is no user to ask")
async def rename_without_elicitation(tools):
    async with tools() as client:
        await misses("elicitation", client, client.call("rename", {"name": "old.txt"}))


@scenario("connect opens an address when the user agrees, and only then")
async def connect(tools):
    for action in ["accept", "decline", "cancel"]:
        asked = []

        def elicit(params):
            asked.append((params["mode"], params["url"]))
            return {"action": action}

        async with tools(elicit=elicit) as client:
            equal("the result", value(succeeded(await client.call("connect", {}))), {"decided": action})
            equal("what the user was asked", asked, [("url", "https://example.com/connect")])


@scenario("survey asks the user, the model and the user again, has its effect once, and reports each step once")
async def survey(tools):
    asked = []

    def sample(params):
        asked.append("the model")
        return "Foxes are fine."

    def elicit(params):
        asked.append("the user")
        return {"action": "accept", "content": {"name": "Ada"} if params["requestedSchema"]["properties"] else {}}

    async with tools(sample=sample, elicit=elicit) as client:
        for number in [1, 2]:
            updates = Updates()
            before = len(client.traffic.sent("tools/call"))
            result = structured(succeeded(await client.call("survey", {"topic": "foxes"}, updates)))
            equal("the result", result, {"participant": "Ada", "number": number, "opinion": "Foxes are fine.", "publish": True})
            equal("who was asked", asked, ["the user", "the model", "the user"] * number)
            calls = retried(client.traffic, before)
            equal("the requests of the call", len(calls), 4 if client.asks_in_rounds else 1)
            came = [update for call in calls for update in wire_updates(client.traffic, call)]
            equal("the updates handed to the callback", list(updates), came)
            steps = [(step, 3, None) for step in range(4)]
            if client.asks_in_rounds:
                equal("the updates", came, steps)
            else:
                # Within one request, the rate of updates is limited, so some may be merged.
                equal("the first and the last update", (came[0], came[-1]), (steps[0], steps[-1]))


@scenario("the log level decides whether a failing item is logged")
async def log_level(tools):
    logs = []
    async with tools(on_log=logs.append) as client:
        await client.set_level("error")
        await client.call("bulk", {"items": ["quiet"], "fail": ["quiet"], "step_ms": 10})
        equal("log messages at level error", client.traffic.came("notifications/message"), [])

        await client.set_level("warning")
        await client.call("bulk", {"items": ["loud"], "fail": ["loud"], "step_ms": 10})
        frames = client.traffic.came("notifications/message")
        equal("the levels of the log messages on the wire", [frame["msg"]["params"]["level"] for frame in frames], ["warning"])
        contains("the log message on the wire", json.dumps(frames[0]["msg"]["params"]["data"]), '"item": "loud"')
        with anyio.move_on_after(2):
            while not logs:
                await anyio.sleep(0.01)
        equal("the log messages handed to the callback", [log["level"] for log in logs], ["warning"])
