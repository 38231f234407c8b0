"""Runs `call` and `tools` with invalid flags, and `call` with programs that are no MCP servers: each prints one line with the reason, and exits
with a documented status."""

import os
import subprocess

from program import call
from scenario import contains, equal, holds, run, scenario, within


@scenario("a wrong flag is exit status 2")
def wrong_flag():
    run = call("--no-such-flag", "progress", server=["true"])
    run.ended(2)
    run.complained("--no-such-flag")


@scenario("a missing server is exit status 4")
def missing():
    run = call("progress", server=["no-such-server"])
    run.ended(4)
    run.complained("no-such-server")


@scenario("a server that exits at once is exit status 4")
def exits():
    run = call("progress", server=["true"])
    run.ended(4)
    run.complained()


@scenario("a server that speaks no MCP is exit status 4")
def gibberish():
    run = call("progress", server=["echo", "Welcome!"])
    run.ended(4)
    # It is started twice, with the probe and without, and says the same each time.
    first, again, last = run.complaints()
    contains("the line about its output", first, "Welcome!")
    equal("the line about its output when it is started again", again, first)
    contains("the last line", last, "the server is lost")


@scenario("a server that never answers initialize is given up after --start-timeout, and the error names this time limit")
def silent():
    run = call("--start-timeout", "3", "progress", server=["sh", "-c", "cat > /dev/null"])
    run.ended(3)
    within("seconds until the end", run.seconds, 2.5, 8)
    run.complained("--start-timeout", "3s")


@scenario("a wrong flag to tools is exit status 2")
def wrong_flag_to_tools():
    tools = subprocess.run([os.environ["TOOLS"], "--no-such-flag"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    equal("exit status", tools.returncode, 2)
    lines = [line for line in tools.stderr.splitlines() if line.strip()]
    holds(f"expected one line that names the flag, came {lines}", len(lines) == 1 and "--no-such-flag" in lines[0])
    equal("standard output", tools.stdout, "")


run(lambda body: body())
