#!/usr/bin/env python3
"""Runs between an MCP client and its server, forwards every byte, and records every frame in a log.

    tap.py LOG -- SERVER CMD...

LOG has one JSON object on each line: `dir` (`client->server` or `server->client`) and `ms` since the start, then `msg` (the frame),
`raw` (a line that is no JSON) or `ev` (`end` of that stream; `exit` of the server with its `code`). A frame is in the log before it is
forwarded, so once a client has received an answer, the log has all frames before that answer.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

UP, DOWN = "client->server", "server->client"

# A server that outlives its input by this many seconds is killed, so that nothing is left behind by a failing run.
LINGER = 10


def tapped(log, command):
    """The command that runs `command` with a tap between it and its client."""
    return [sys.executable, "-I", __file__, str(log), "--", *map(str, command)]


class Traffic:
    """The frames that a tap has recorded so far."""

    def __init__(self, log):
        self.log = Path(log)

    def entries(self):
        lines = self.log.read_bytes().split(b"\n")[:-1]
        return [{"at": at, **json.loads(line)} for at, line in enumerate(lines)]

    def frames(self, direction):
        return [entry for entry in self.entries() if entry["dir"] == direction and "msg" in entry]

    def sent(self, method):
        """Requests and notifications of the client."""
        return [entry for entry in self.frames(UP) if entry["msg"].get("method") == method]

    def came(self, method):
        """Requests and notifications of the server."""
        return [entry for entry in self.frames(DOWN) if entry["msg"].get("method") == method]

    def progress(self, token):
        return [entry for entry in self.came("notifications/progress") if entry["msg"]["params"]["progressToken"] == token]

    def answers(self, request):
        """Every response to that request of the client, errors too."""
        frames = self.frames(DOWN)
        return [entry for entry in frames if "method" not in entry["msg"] and entry["msg"].get("id") == request["msg"]["id"]]

    def exit(self, patience=LINGER + 1):
        """Waits for the end of the server and returns its entry, or None if it did not end in time."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            for entry in self.entries():
                if entry.get("ev") == "exit":
                    return entry
            time.sleep(0.02)
        return None


class Record:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.start = time.monotonic()
        self.lock = threading.Lock()

    def frame(self, direction, line):
        try:
            self.write(direction, msg=json.loads(line))
        except ValueError:
            self.write(direction, raw=line.decode(errors="replace"))

    def write(self, direction, **what):
        with self.lock:
            ms = round((time.monotonic() - self.start) * 1000, 3)
            line = (json.dumps({"dir": direction, "ms": ms, **what}) + "\n").encode()
            pass_on(self.file, line)


def pass_on(target, data):
    while data:
        data = data[os.write(target, data) :]


def pump(record, direction, source, target):
    rest = b""
    while chunk := os.read(source, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            record.frame(direction, line)
        try:
            pass_on(target, chunk)
        except BrokenPipeError:
            pass  # the reader is gone; the remaining frames are still recorded
    if rest:
        record.frame(direction, rest)
    record.write(direction, ev="end")


def main():
    log, dashes, *command = sys.argv[1:]
    assert dashes == "--", __doc__
    record = Record(log)
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())

    def up():
        pump(record, UP, sys.stdin.fileno(), server.stdin.fileno())
        server.stdin.close()
        try:
            server.wait(LINGER)
        except subprocess.TimeoutExpired:
            server.kill()

    threading.Thread(target=up, daemon=True).start()
    pump(record, DOWN, server.stdout.fileno(), sys.stdout.fileno())
    code = server.wait()
    record.write(DOWN, ev="exit", code=code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
