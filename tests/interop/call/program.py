"""Runs the program `call` against a server, and checks its output, its exit status and the frames."""

import os
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from scenario import Unmet, contains, equal, holds, scenario, short, within
from tap import UP, Traffic, tapped

PATIENCE = 30  # seconds for one run

DEPS = Path(os.environ["DEPS"])
EVERYTHING = ["node", DEPS / "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"]
PYTHON = [DEPS / "mcp1/bin/python", Path(__file__).parent.parent / "server.py"]
PYTHON_2 = [DEPS / "mcp2/bin/python", Path(__file__).parent.parent / "server2.py"]
TYPESCRIPT_2 = ["node", Path(__file__).parent.parent / "server2.mjs"]
ONLY_MODERN = [*TYPESCRIPT_2, "--modern"]

DUAL = {"TypeScript of both eras": TYPESCRIPT_2, "Python of both eras": PYTHON_2}
MODERN = {**DUAL, "TypeScript of 2026-07-28 alone": ONLY_MODERN}
OLD = {"server-everything": EVERYTHING, "Python 1.x": PYTHON}

REVISION = "2026-07-28"

# What `call` prints for an update when it is not on a terminal.
UPDATE = re.compile(r"\s*(\d+)/(\d+)\s+(\d+)\s*%(?:\s+(.*))?")


class Line(NamedTuple):
    time: float
    text: str


class Update(NamedTuple):
    progress: int
    total: int
    percent: int
    message: str


class Run:
    """One run of `call`, from start to end."""

    def __init__(self, arguments, **environment):
        self.out, self.err = [], []
        start = time.monotonic()
        process = subprocess.Popen(
            [os.environ["CALL"], *map(str, arguments)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        readers = [
            threading.Thread(target=self.read, args=pair, daemon=True)
            for pair in [(process.stdout, self.out), (process.stderr, self.err)]
        ]
        for reader in readers:
            reader.start()
        try:
            self.status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Unmet(f"expected an end within {PATIENCE} s, came none; printed {self}") from None
        self.seconds = time.monotonic() - start
        for reader in readers:
            reader.join(2)  # a server that is still running may keep the stream open

    def read(self, stream, lines):
        for line in stream:
            lines.append(Line(time.monotonic(), line.rstrip("\n")))

    def lines(self):
        """Both streams, in the order in which they came."""
        return sorted(self.out + self.err, key=lambda line: line.time)

    def updates(self):
        return [(line.time, update) for line in self.lines() if (update := parse(line.text))]

    def output(self):
        return "\n".join(line.text for line in self.out)

    def __repr__(self):
        return short("\n".join(line.text for line in self.lines()), 1000)

    def ended(self, status):
        if self.status != status:
            raise Unmet(f"exit status: expected {status}, came {self.status}; printed {self}")

    def printed(self, text):
        contains("standard output", self.output(), text)

    def printed_error(self, text):
        contains("standard error", "\n".join(line.text for line in self.err), text)

    def complaints(self):
        """The lines on standard error that are no updates."""
        return [line.text for line in self.err if line.text.strip() and not parse(line.text)]

    def complained(self, *words):
        """Checks that standard error has exactly one line that is no update, and that it contains these words."""
        lines = self.complaints()
        equal(f"the number of lines on standard error, {lines}", len(lines), 1)
        for word in words:
            contains("the line on standard error", lines[0], word)

    def showed(self, count, total, message):
        """Checks that the first `count` updates of `total` were printed, each on a line of its own."""
        shown = [update for _, update in self.updates()]
        equal("the updates shown", shown, [Update(i, total, round(100 * i / total), message(i)) for i in range(1, count + 1)])

    def showed_live(self, low, high):
        times = [time for time, _ in self.updates()]
        for i, (earlier, later) in enumerate(zip(times, times[1:]), 1):
            within(f"seconds from line {i} to the next", later - earlier, low, high)


def parse(text):
    match = UPDATE.fullmatch(text)
    return match and Update(*map(int, match.groups()[:3]), match[4] or "")


def call(*arguments, server):
    """Runs `call` against that server command."""
    return Run([*arguments, "--", *server])


def call_url(*arguments, url, **environment):
    """Runs `call` against a server over HTTP."""
    return Run(["--url", url, *arguments], **environment)


def call_tapped(*arguments, server):
    """Runs `call` against that server command with a tap between them. Returns the run and the traffic."""
    log = tempfile.mktemp(suffix=".jsonl")
    return call(*arguments, server=tapped(log, server)), Traffic(log)


def cancelled_once(traffic):
    """Checks that `call` sent one cancel for the tool call, and nothing after it."""
    (request,) = traffic.sent("tools/call")
    cancels = traffic.sent("notifications/cancelled")
    equal("the cancelled requests", [cancel["msg"]["params"]["requestId"] for cancel in cancels], [request["msg"]["id"]])
    equal("what `call` sends after its cancel", [frame["msg"] for frame in traffic.frames(UP) if frame["at"] > cancels[0]["at"]], [])


def server_ended_well(traffic):
    """Checks that the server exited with status 0 or by SIGTERM."""
    end = traffic.exit()
    holds(f"expected the server to end with status 0 or SIGTERM, came {end}", end and end["code"] in (0, -15))


def offered(traffic):
    """Returns which of the capabilities for input requests, sampling and elicitation, `call` declared."""
    (hello,) = traffic.sent("initialize")
    return sorted({"sampling", "elicitation"} & set(hello["msg"]["params"]["capabilities"]))


def each(sentence, servers=MODERN, eras=(None,)):
    """Declares the scenario once for each server and each value of the flag --era, `None` for none. Its body gets the server and the flags."""

    def declare(body):
        for name, server in servers.items():
            for era in eras:
                flags = ["--era", era] if era else []
                named = f"{name}, --era {era}" if era else name
                scenario(f"{named}: {sentence}")(lambda server=server, flags=flags: body(server, flags))
        return body

    return declare


def spoke_without_a_handshake(traffic):
    """Checks that every request names the revision, and that there was no handshake."""
    frames = [frame["msg"] for frame in traffic.frames(UP)]
    methods = [frame["method"] for frame in frames]
    holds(f"expected no handshake, came {methods}", not {"initialize", "notifications/initialized"} & set(methods))
    named = [frame["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] for frame in frames if "id" in frame]
    equal("the revisions named", set(named), {REVISION})


def step(of):
    return lambda i: f"step {i} of {of}"
