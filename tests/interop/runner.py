"""Runs the clients, some at a time, and counts their scenarios.

A client prints `ok SENTENCE` or `FAILED SENTENCE: why` for each scenario, and exits with status 0 if it has run all of them, even if some have
failed. Its standard error is shown only if something failed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
DEPS = Path(os.environ["DEPS"])
PATIENCE = 120  # seconds for one client

# The clients that take longest come first.
CLIENTS = {
    "call-http": [sys.executable, HERE / "call/over_http.py"],
    "call-python": [sys.executable, HERE / "call/python.py"],
    "call-everything": [sys.executable, HERE / "call/everything.py"],
    "typescript": ["node", HERE / "clients/typescript.mjs"],
    "call-rounds": [sys.executable, HERE / "call/rounds.py"],
    "call-modern": [sys.executable, HERE / "call/modern.py"],
    "gateway": ["node", HERE / "clients/gateway.mjs"],
    "http": ["node", HERE / "clients/http.mjs"],
    "typescript2": ["node", HERE / "clients/typescript2.mjs"],
    "inspector": [sys.executable, HERE / "clients/inspector.py"],
    "mcp1-http": [DEPS / "mcp1/bin/python", HERE / "clients/over_http.py"],
    "mcp2-http": [DEPS / "mcp2/bin/python", HERE / "clients/over_http.py"],
    "mcp1": [DEPS / "mcp1/bin/python", HERE / "clients/mcp1.py"],
    "mcp2": [DEPS / "mcp2/bin/python", HERE / "clients/mcp2.py"],
    "mcp2-legacy": [DEPS / "mcp2/bin/python", HERE / "clients/mcp2.py", "--era", "legacy"],
    "mcp2-modern": [DEPS / "mcp2/bin/python", HERE / "clients/mcp2_modern.py"],
    "call-faults": [sys.executable, HERE / "call/faults.py"],
}


class Tally:
    def __init__(self):
        self.passed = self.failed = 0
        self.lock = threading.Lock()

    def ok(self, name):
        with self.lock:
            self.passed += 1
            print(f"ok {name}", flush=True)

    def fail(self, name):
        with self.lock:
            self.failed += 1
            print(f"FAILED {name}", flush=True)

    def show(self, text):
        with self.lock:
            print(text, file=sys.stderr, flush=True)


def run(name, command, scratch, tally):
    """Runs one client, with a folder of its own for temporary files. It is killed after its time limit."""
    folder = scratch / name
    folder.mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(folder),
        "PYTHON": sys.executable,
        "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }
    errors = folder / "stderr"
    with open(errors, "wb") as stderr:
        client = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            encoding="utf-8",
            start_new_session=True,
        )
    late = threading.Event()

    def stop():
        late.set()
        os.killpg(client.pid, signal.SIGKILL)

    timer = threading.Timer(PATIENCE, stop)
    timer.start()
    finished, well = 0, True
    for line in client.stdout:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "ok":
            tally.ok(f"{name}: {rest}")
        elif word == "FAILED":
            tally.fail(f"{name}: {rest}")
            well = False
        else:
            tally.show(f"{name}: {line.rstrip()}")
            continue
        finished += 1
    status = client.wait()
    timer.cancel()
    if late.is_set():
        tally.fail(f"{name}: expected an end within {PATIENCE} s, stopped after {finished} scenarios")
    elif status or not finished:
        tally.fail(f"{name}: expected to run all scenarios, ended with status {status} after {finished}")
    elif well:
        return
    tally.show(f"--- standard error of {name} ---\n{errors.read_text(errors='replace')}---")


def main(names):
    unknown = set(names) - set(CLIENTS)
    if unknown:
        sys.exit(f"interop: no client {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    tally = Tally()
    # Two at a time on a small machine: the scenarios mostly wait, but some measure how evenly progress arrives.
    with tempfile.TemporaryDirectory(prefix="interop-") as scratch, ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        runs = [pool.submit(run, name, command, Path(scratch), tally) for name, command in CLIENTS.items() if not names or name in names]
        for done in runs:
            done.result()
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(tally.failed > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
