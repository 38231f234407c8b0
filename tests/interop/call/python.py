"""`call` against a server written with the Python SDK: ../server.py."""

from program import PYTHON, call, call_tapped, cancelled_once, offered, server_ended_well, step
from scenario import equal, run, scenario, within


@scenario("--list shows every tool of the server")
def lists():
    run = call("--list", server=PYTHON)
    run.ended(0)
    for name in ["work", "vanish", "fail", "ask_model", "ask_user", "confirm"]:
        run.printed(name)


@scenario("work shows its progress as it happens, then the result")
def progress():
    run, traffic = call_tapped("work", '{"steps": 5, "step_ms": 400}', server=PYTHON)
    run.ended(0)
    run.showed(5, 5, step(5))
    run.showed_live(0.25, 0.7)
    run.printed("worked 5 steps")
    server_ended_well(traffic)


@scenario("--cancel-after cancels once, and the answer that this server sends nevertheless has no effect")
def cancel():
    run, traffic = call_tapped("--cancel-after", 3, "work", '{"steps": 50, "step_ms": 200}', server=PYTHON)
    run.ended(130)
    run.showed(3, 50, step(50))
    cancelled_once(traffic)
    server_ended_well(traffic)


@scenario("--timeout gives up on a silent tool, and cancels it")
def timeout():
    run, traffic = call_tapped("--timeout", 3, "work", '{"steps": 1, "step_ms": 60000}', server=PYTHON)
    run.ended(3)
    within("seconds until the end", run.seconds, 2.9, 9)
    cancelled_once(traffic)


@scenario("progress restarts --timeout, but not --max-total")
def max_total():
    run, traffic = call_tapped("--timeout", 3, "--max-total", 6, "work", '{"steps": 60, "step_ms": 500}', server=PYTHON)
    run.ended(3)
    within("seconds until the end", run.seconds, 5.9, 12)
    within("updates shown", len(run.updates()), 6, 12)
    cancelled_once(traffic)


@scenario("a tool error is printed and is exit status 1")
def tool_error():
    run = call("fail", server=PYTHON)
    run.ended(1)
    equal("whether the reason is printed", "no luck today" in repr(run), True)


@scenario("a server that vanishes midway is exit status 4, and what it reported is shown")
def vanish():
    run = call("vanish", '{"steps": 3}', server=PYTHON)
    run.ended(4)
    run.showed(3, 10, step(10))
    run.complained()


@scenario("--sample-reply answers a sampling")
def sampling():
    run, traffic = call_tapped("--sample-reply", "forty-two", "ask_model", '{"question": "how many?"}', server=PYTHON)
    run.ended(0)
    run.printed("the model said: forty-two")
    equal("the capabilities announced", offered(traffic), ["sampling"])


@scenario("without a flag that answers sampling the capability is not declared, and the tool fails")
def no_sampling():
    run, traffic = call_tapped("ask_model", '{"question": "how many?"}', server=PYTHON)
    run.ended(1)
    equal("the capabilities announced", offered(traffic), [])


@scenario("--answer fills in a form")
def answer():
    run, traffic = call_tapped("--answer", '{"name": "Ada"}', "ask_user", server=PYTHON)
    run.ended(0)
    run.printed("the user is Ada")
    equal("the capabilities announced", offered(traffic), ["elicitation"])


@scenario("--decline declines a form")
def decline():
    run = call("--decline", "ask_user", server=PYTHON)
    run.ended(0)
    run.printed("the user said: decline")


@scenario("--accept confirms")
def accept():
    run = call("--accept", "confirm", server=PYTHON)
    run.ended(0)
    run.printed("the user said: accept")


run(lambda body: body())
