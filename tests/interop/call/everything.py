"""`call` against the reference server of the TypeScript SDK, which exercises all of MCP."""

from program import EVERYTHING, call, call_tapped, cancelled_once, offered, server_ended_well
from scenario import equal, run, scenario, within

OPERATION = "trigger-long-running-operation"


@scenario("--list shows every tool of the server")
def lists():
    run, traffic = call_tapped("--list", server=EVERYTHING)
    run.ended(0)
    (request,) = traffic.sent("tools/list")
    (answer,) = traffic.answers(request)
    names = [tool["name"] for tool in answer["msg"]["result"]["tools"]]
    equal(f"whether {OPERATION} is among {names}", OPERATION in names, True)
    for name in names:
        run.printed(name)
    server_ended_well(traffic)


@scenario("a long operation shows its progress as it happens, including the update that comes with the result")
def progress():
    run = call(OPERATION, '{"duration": 2.5, "steps": 5}', server=EVERYTHING)
    run.ended(0)
    run.showed(5, 5, lambda i: "")
    run.showed_live(0.3, 0.8)
    run.printed("Long running operation completed. Duration: 2.5 seconds, Steps: 5.")


@scenario("--cancel-after cancels once, after that many updates, and the server ends normally")
def cancel():
    run, traffic = call_tapped("--cancel-after", 2, OPERATION, '{"duration": 2.4, "steps": 6}', server=EVERYTHING)
    run.ended(130)
    run.showed(2, 6, lambda i: "")
    cancelled_once(traffic)
    (request,) = traffic.sent("tools/call")
    equal("responses to the cancelled call", traffic.answers(request), [])
    server_ended_well(traffic)


@scenario("--timeout gives up on a silent operation, and cancels it")
def timeout():
    run, traffic = call_tapped("--timeout", 3, OPERATION, '{"duration": 60, "steps": 1}', server=EVERYTHING)
    run.ended(3)
    within("seconds until the end", run.seconds, 2.9, 9)
    cancelled_once(traffic)


@scenario("--prompt shows a prompt")
def prompt():
    run = call("--prompt", "simple-prompt", server=EVERYTHING)
    run.ended(0)
    run.printed("This is a simple prompt without arguments.")


@scenario("--sample-reply answers a sampling")
def sampling():
    run, traffic = call_tapped("--sample-reply", "forty-two", "trigger-sampling-request", '{"prompt": "how many?"}', server=EVERYTHING)
    run.ended(0)
    run.printed("forty-two")
    equal("the capabilities announced", offered(traffic), ["sampling"])


@scenario("--answer fills in a form with fields of every kind")
def elicitation():
    answer = '{"name": "Ada", "check": true, "integer": 7}'
    run, traffic = call_tapped("--answer", answer, "trigger-elicitation-request", server=EVERYTHING)
    run.ended(0)
    for line in ["- Name: Ada", "- Agreed to terms: true", "- Favorite Integer: 7"]:
        run.printed(line)
    equal("the capabilities announced", offered(traffic), ["elicitation"])


ADDRESS = '{"url": "https://example.com/x?y=1", "message": "Please"}'


@scenario("--accept agrees to open an address, and shows it with its host; --decline does not")
def address():
    run, traffic = call_tapped("--accept", "trigger-url-elicitation", ADDRESS, server=EVERYTHING)
    run.ended(0)
    run.printed("User completed the URL elicitation flow.")
    for line in ["https://example.com/x?y=1", "It leads to the host example.com"]:
        run.printed_error(line)
    equal("the capabilities announced", offered(traffic), ["elicitation"])
    run = call("--decline", "trigger-url-elicitation", ADDRESS, server=EVERYTHING)
    run.ended(0)
    run.printed("User declined to open the URL")


@scenario("an error that requires the user to open an address first shows the address")
def address_first():
    run = call("--accept", "trigger-url-elicitation", ADDRESS.replace("}", ', "errorPath": true}'), server=EVERYTHING)
    run.ended(1)
    run.printed_error("-32042")
    run.printed_error("https://modelcontextprotocol.io")


run(lambda body: body())
