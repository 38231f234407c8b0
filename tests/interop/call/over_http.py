"""`call --url` against servers over HTTP: two with HTTP sessions, two of both eras, one of these two also with TLS, and one
with the transport of 2024-11-05."""

import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from program import EVERYTHING, PYTHON, PYTHON_2, TYPESCRIPT_2, call_url, step
from scenario import Unmet, equal, run, scenario

PATIENCE = 30  # seconds for a server to listen

OPERATION = "trigger-long-running-operation"
ADA = '{"name": "Ada"}'


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server that runs until this program ends it."""

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


def with_port(command):
    """A server that takes its port as its argument."""
    port = free_port()
    return Server([*command, port], "/mcp", port)


def python_tls():
    port = free_port()
    interpreter, script = PYTHON_2
    return Server([interpreter, script.parent / "server_tls.py", port, CERTIFICATES], "/mcp", port, "https")


CERTIFICATES = Path(tempfile.mkdtemp())
SERVERS = {
    "sessions": everything("streamableHttp", "/mcp"),
    "Python 1.x": with_port(PYTHON),
    "Python of both eras": with_port(PYTHON_2),
    "TypeScript of both eras": with_port(TYPESCRIPT_2),
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


DUAL = ["Python of both eras", "TypeScript of both eras"]
OLD = ["Python 1.x"]
ROUNDS = ("auto", "modern")


def in_each_era(sentence, dual=DUAL):
    """Declares the scenario for the servers of both eras and of the old one, in each era that they have."""

    def declare(body):
        each(sentence, dual, ("auto", "legacy", "modern"))(body)
        each(sentence, OLD, ("auto", "legacy"))(body)
        return body

    return declare


@in_each_era("--list shows the tools of the server")
def lists_all(url, era):
    run = call_url("--era", era, "--list", url=url)
    run.ended(0)
    for name in ["work", "fail", "ask_user", "ask_model", "confirm"]:
        run.printed(name)


@in_each_era("a call shows its progress as it happens, and its result")
def work(url, era):
    run = call_url("--era", era, "work", '{"steps": 3, "step_ms": 300}', url=url)
    run.ended(0)
    run.showed(3, 3, step(3))
    run.showed_live(0.15, 0.6)
    run.printed("worked 3 steps")


def interrupted(url):
    """The number of calls of `work` that were cancelled at that server."""
    run = call_url("interrupted", url=url)
    run.ended(0)
    return int(run.output())


@in_each_era("--cancel-after cancels, and the cancel reaches the tool")
def cancel(url, era):
    before = interrupted(url)
    run = call_url("--era", era, "--cancel-after", 2, "work", '{"steps": 50, "step_ms": 200}', url=url)
    run.ended(130)
    run.showed(2, 50, step(50))
    end = time.monotonic() + 5  # the call would take ten
    while (after := interrupted(url)) == before and time.monotonic() < end:
        time.sleep(0.1)
    equal("the works that were cancelled", after, before + 1)


@in_each_era("a tool error is exit status 1")
def fails(url, era):
    run = call_url("--era", era, "fail", url=url)
    run.ended(1)
    run.printed_error("no luck today")


QUESTIONS = "input requests are answered while the call runs, or by a retry"


@each(QUESTIONS, ["TypeScript of both eras"], ROUNDS)
@in_each_era(QUESTIONS, ["Python of both eras"])
def questions(url, era):
    for flags, call, text in [
        (["--answer", ADA], ["ask_user"], "the user is Ada"),
        (["--decline"], ["ask_user"], "the user said: decline"),
        (["--accept"], ["confirm"], "the user said: accept"),
        (["--sample-reply", "forty-two"], ["ask_model", '{"question": "how many?"}'], "the model said: forty-two"),
    ]:
        run = call_url("--era", era, *flags, *call, url=url)
        run.ended(0)
        run.printed(text)


@each("with a handshake, a server without sessions cannot make input requests, and its tool fails", ["TypeScript of both eras"], ("legacy",))
def no_session(url, era):
    run = call_url("--era", era, "--answer", ADA, "ask_user", url=url)
    run.ended(1)
    run.printed_error("elicitation/create")


@each("two rounds are answered one after the other, and the progress of all of them is shown", DUAL, ROUNDS)
def two_rounds(url, era):
    run = call_url("--era", era, "--answer", ADA, "--sample-cmd", "cat", "interview", url=url)
    run.ended(0)
    run.printed("Ada: What do you think of Ada?")
    run.showed(3, 3, step(3))


@each("two questions in one round are answered together, an address is agreed to, and a prompt is answered, too", DUAL, ROUNDS)
def other_questions(url, era):
    for call, text in [
        (["ask_both"], "the user is Ada, the model said: one"),
        (["--prompt", "greeting"], "Greet Ada."),
    ]:
        run = call_url("--era", era, "--answer", ADA, "--sample-reply", "one", *call, url=url)
        run.ended(0)
        run.printed(text)
    run = call_url("--era", era, "--accept", "open", url=url)
    run.ended(0)
    run.printed("the user said: accept")


@each("a round without input requests is retried", DUAL, ROUNDS)
def state_alone(url, era):
    run = call_url("--era", era, "later", url=url)
    run.ended(0)
    run.printed("called again 2 times, with 0 answers")


@each("without an answer the server names the missing capability, and if the user declines the call ends with the error of the tool", DUAL, ROUNDS)
def unanswered(url, era):
    run = call_url("--era", era, "ask_user", url=url)
    run.ended(1)
    run.printed_error("-32021")
    run = call_url("--era", era, "--decline", "--sample-reply", "fine", "interview", url=url)
    run.ended(1)


@each("a server is called only if its certificate is signed by an authority of the system", ["TLS"])
def tls(url, era):
    run = call_url("--era", era, "work", '{"steps": 2}', url=url, SSL_CERT_FILE=str(CERTIFICATES / "authority.pem"))
    run.ended(0)
    run.printed("worked 2 steps")
    run = call_url("--era", era, "work", url=url, SSL_CERT_FILE=str(CERTIFICATES / "own.pem"))
    run.ended(4)
    run.complained("certificate")


class Cutting:
    """A proxy that forwards all bytes, and cuts the connection that has forwarded the first progress update."""

    def __init__(self, port):
        self.port, self.cuts, self.resumed = port, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.port))
            for source, sink, look in [(near, far, self.ask), (far, near, self.answer)]:
                threading.Thread(target=self.forward, args=(source, sink, look), daemon=True).start()

    def ask(self, passed):
        self.resumed += len(re.findall(rb"(?im)^last-event-id:", passed))
        return False

    def answer(self, passed):
        is_first = self.cuts == 0 and b"notifications/progress" in passed
        self.cuts += is_first
        return is_first

    def forward(self, source, sink, look):
        try:
            while passed := source.recv(1 << 16):
                sink.sendall(passed)
                if look(passed):
                    break
        except OSError:
            pass
        for side in (source, sink):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@scenario("--era legacy, sessions: a call whose connection is cut after its first update is resumed")
def cut():
    proxy = Cutting(SERVERS["sessions"].port)
    # The operation ends before the client resumes the stream: on a resumed stream, the server sends only events that it has stored before.
    run = call_url("--era", "legacy", OPERATION, '{"duration": 0.8, "steps": 4}', url=proxy.url)
    proxy.listener.close()
    run.ended(0)
    equal("connections that were cut", proxy.cuts, 1)
    if not proxy.resumed:
        raise Unmet("a request with Last-Event-ID: came none")
    run.showed(4, 4, lambda i: "")


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
