"""`call --url` against servers over HTTP: one with HTTP sessions, one of both eras, with TLS and without, and one with the transport of
2024-11-05."""

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from program import EVERYTHING, PYTHON_2, call_url
from scenario import Unmet, run, scenario

PATIENCE = 30  # seconds for a server to listen

OPERATION = "trigger-long-running-operation"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server that runs until the end."""

    def __init__(self, command, path, port, scheme="http"):
        self.url = f"{scheme}://127.0.0.1:{port}{path}"
        environment = {**os.environ, "PORT": str(port)}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([*map(str, command)], env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
        self.port = port

    def wait(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise Unmet(f"expected a server at {self.url} within {PATIENCE} s, came none")


def everything(transport, path):
    return Server([*EVERYTHING[:-1], transport], path, free_port())


def python():
    port = free_port()
    return Server([*PYTHON_2, port], "/mcp", port)


def python_tls():
    port = free_port()
    interpreter, script = PYTHON_2
    return Server([interpreter, script.parent / "server_tls.py", port, CERTIFICATES], "/mcp", port, "https")


CERTIFICATES = Path(tempfile.mkdtemp())
SERVERS = {
    "sessions": everything("streamableHttp", "/mcp"),
    "both eras": python(),
    "TLS": python_tls(),
    "2024-11-05": everything("sse", "/sse"),
}


def each(sentence, names, eras=("auto",)):
    """Declares the scenario once for each of these servers and eras."""

    def declare(body):
        for name in names:
            for era in eras:
                scenario(f"--era {era}, {name}: {sentence}")(lambda name=name, era=era: body(SERVERS[name].url, era))
        return body

    return declare


TYPESCRIPT = ["sessions", "2024-11-05"]


@each("--list shows the tools of the server", TYPESCRIPT)
def lists(url, era):
    run = call_url("--era", era, "--list", url=url)
    run.ended(0)
    run.printed(OPERATION)


@each("a long operation shows its progress as it happens", TYPESCRIPT)
def operation(url, era):
    run = call_url("--era", era, OPERATION, '{"duration": 2, "steps": 4}', url=url)
    run.ended(0)
    run.showed(4, 4, lambda i: "")
    run.showed_live(0.3, 0.8)


@each("a question of the server is answered while its call runs", TYPESCRIPT)
def sampling(url, era):
    run = call_url("--era", era, "--sample-reply", "forty-two", "trigger-sampling-request", '{"prompt": "how many?"}', url=url)
    run.ended(0)
    run.printed("forty-two")


@each("a call shows its progress, and its result", ["both eras"], ("auto", "legacy", "modern"))
def work(url, era):
    run = call_url("--era", era, "work", '{"steps": 3, "step_ms": 300}', url=url)
    run.ended(0)
    run.showed(3, 3, lambda i: f"step {i} of 3")
    run.printed("worked 3 steps")


@each("--cancel-after cancels", ["both eras"], ("auto", "legacy", "modern"))
def cancel(url, era):
    run = call_url("--era", era, "--cancel-after", 1, "work", '{"steps": 50, "step_ms": 200}', url=url)
    run.ended(130)
    run.showed(1, 50, lambda i: f"step {i} of 50")


@each("a tool that fails is told apart from one that does not", ["both eras"], ("auto", "legacy"))
def fails(url, era):
    run = call_url("--era", era, "fail", url=url)
    run.ended(1)
    run.said("no luck today")


@each("a server is called whose certificate is of an authority of the system, and no other", ["TLS"])
def tls(url, era):
    run = call_url("--era", era, "work", '{"steps": 2}', url=url, SSL_CERT_FILE=str(CERTIFICATES / "authority.pem"))
    run.ended(0)
    run.printed("worked 2 steps")
    run = call_url("--era", era, "work", url=url, SSL_CERT_FILE=str(CERTIFICATES / "own.pem"))
    run.ended(4)
    run.complained("certificate")


@scenario("--url with an address that serves no MCP ends with status 4")
def stranger():
    url = SERVERS["sessions"].url.replace("/mcp", "/nothing")
    run = call_url("work", url=url)
    run.ended(4)


def execute(body):
    for server in SERVERS.values():
        server.wait()
    body()


try:
    run(execute)
finally:
    for server in SERVERS.values():
        server.process.terminate()
        server.process.wait()
