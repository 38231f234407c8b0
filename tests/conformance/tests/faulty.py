#!/usr/bin/env python3
"""A small MCP server with one fault, for the tests of `conformance-check`: `faulty.py FAULT`. With `none` it has no fault.

It has the tools `work`, which reports twenty steps of 0.1 seconds and can be cancelled, and `echo`."""

import json
import os
import signal
import sys
import threading
import time

FAULT = sys.argv[1]
writing = threading.Lock()
cancelled = {}
KNOWN = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "faulty", "version": "1"}},
    "ping": {},
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "echo")]},
}


def write(message):
    text = json.dumps(message)
    with writing:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def result(id, value):
    write({"jsonrpc": "2.0", "id": str(id) if FAULT == "ids-as-text" else id, "result": value})
    if FAULT == "answers-twice":
        write({"jsonrpc": "2.0", "id": id, "result": value})
    # The last request of the scenario `flood`: the first one has the id 3, after `initialize`.
    if FAULT == "answers-the-last-again" and id == 10_002:
        threading.Timer(0.1, write, [{"jsonrpc": "2.0", "id": id, "result": value}]).start()


def error(id, code, text):
    write({"jsonrpc": "2.0", **({} if id is None else {"id": id}), "error": {"code": code, "message": text}})


def work(id, token):
    def report(value):
        if token is not None or FAULT == "reports-unasked":
            echoed = str(token) if FAULT == "token-as-text" else token
            params = {"progressToken": echoed if token is not None else "none", "progress": value, "total": 20}
            write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    for step in range(1, 21):
        report(20 - step if FAULT == "progress-goes-back" else step)
        time.sleep(0.1)
        if id in cancelled and FAULT != "works-on":
            if FAULT == "answers-cancelled":
                error(id, 0, "cancelled")
            return
    result(id, {"content": []})
    if FAULT == "reports-late":
        report(21)


def call(id, params):
    if not isinstance(params, dict) or not isinstance(params.get("name"), str) or not isinstance(params.get("arguments", {}), dict):
        return error(id, -32602, "these are no parameters")
    token = params.get("_meta", {}).get("progressToken")
    if params["name"] == "work" and FAULT == "one-at-a-time":
        return work(id, token)
    if params["name"] == "work":
        return threading.Thread(target=work, args=(id, token), daemon=True).start()
    if params["name"] == "echo":
        return result(id, {"content": [{"type": "text", "text": params.get("arguments", {}).get("text", "")}]})
    return error(id, -32602, "there is no such tool") if FAULT != "runs-unknown-tools" else result(id, {"content": []})


def handle(line):
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        if FAULT == "dies-of-garbage":
            os._exit(1)
        return error(None, -32700, "this is no JSON")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return error(None, -32600, "this is no message")
    id, method, params = message.get("id"), message.get("method"), message.get("params")
    if isinstance(id, float):
        return error(None, -32600, "this is no id")
    if "result" in message or "error" in message:
        return error(id, -32600, "nobody asked") if FAULT == "answers-responses" else None
    if id is None:
        if method == "notifications/cancelled" and isinstance(params, dict) and isinstance(params.get("requestId"), (int, str)):
            cancelled[params["requestId"]] = True
        return error(None, -32601, "there is no such method") if FAULT == "answers-notifications" else None
    if not isinstance(method, str):
        return error(id, -32600, "this is no method")
    if FAULT == "takes-any-method" and method not in KNOWN:
        return result(id, {})
    if method == "tools/call":
        return call(id, params)
    if method not in KNOWN:
        return error(id, -32601, "there is no such method")
    if not isinstance(params, (dict, type(None))):
        return error(id, -32602, "these are no parameters")
    if FAULT == "takes-any-version" and method == "initialize":
        return result(id, {**KNOWN[method], "protocolVersion": params["protocolVersion"]})
    return result(id, KNOWN[method])


def main():
    if FAULT == "prints-noise":
        print("listening")
    if FAULT == "ignores-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    seen = 0
    for line in sys.stdin.buffer:
        seen += 1
        if FAULT == "dies-of-the-fourth-line" and seen == 4:
            os._exit(3)
        if FAULT == "hangs-at-the-fourth-line" and seen == 4:
            time.sleep(3600)
        if FAULT == "floods-at-the-fourth-line" and seen == 4:
            while True:
                write({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}})
        if FAULT == "loses-some" and seen % 100 == 0:
            continue
        if line.strip():
            handle(line)
    if FAULT == "outlives-its-input":
        time.sleep(3600)


main()
