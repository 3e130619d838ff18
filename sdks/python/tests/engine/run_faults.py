"""Makes the calls of test/faults with the sync twin: orders come as lines on standard input, see its protocol.ts."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent_sandbox_sdk import Engine, Sandbox, SandboxError

REQUEST_SECONDS = 20
COMMAND_SECONDS = 20
ANSWER_SECONDS = 6
WAIT_SECONDS = 5
# Pieces of a download that are read slowly, so that it is under way when something is killed.
SLOW_PIECES = 100
SILENT_PORT = 7777
DEAD_ROUTER_URL = "http://127.0.0.1:1"

Reached = Callable[[], None]


def recovered(box: Sandbox, reached: Reached) -> str:
    """A command after everything is back; prints how often the one of `connecting` ran."""
    return box.run("cat /var/tmp/ran 2>/dev/null | wc -l", request_timeout=REQUEST_SECONDS).stdout.strip()


def connecting(box: Sandbox, reached: Reached) -> str:
    """A command."""
    reached()
    command = "echo x >> /var/tmp/ran; echo back"
    done = box.run(command, request_timeout=REQUEST_SECONDS, command_timeout=COMMAND_SECONDS)
    return f"exit {done.exit_code} {done.reason or ''}{done.stdout}".strip()


def unanswered(box: Sandbox, reached: Reached) -> str:
    """A request that is never answered."""
    threading.Timer(0.3, reached).start()
    return f"status {box.fetch(SILENT_PORT, request_timeout=ANSWER_SECONDS).status}"


def streaming(box: Sandbox, reached: Reached) -> str:
    """A command that prints."""
    done = box.run(
        "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo tick; sleep 0.1; done; exit 7",
        on_stdout=lambda _: reached(),
        request_timeout=REQUEST_SECONDS,
        command_timeout=COMMAND_SECONDS,
    )
    return f"exit {done.exit_code} {done.reason or ''}".strip()


def memory(box: Sandbox, reached: Reached) -> str:
    """A command that takes all memory there is, in small steps."""
    hog = 'b = []; print("begins", flush=True)\nwhile True: b.append(bytearray(4 << 20))'
    done = box.run(["python3", "-c", hog], on_stdout=lambda _: reached(), command_timeout=COMMAND_SECONDS)
    return f"exit {done.exit_code} {done.reason or ''}".strip()


def idle(box: Sandbox, reached: Reached) -> str:
    """A command that prints nothing."""
    process = box.spawn("sleep 6; exit 7", request_timeout=REQUEST_SECONDS, command_timeout=COMMAND_SECONDS)
    reached()
    status = process.wait()
    return f"exit {status.exit_code}{' timed out' if status.timed_out else ''} {status.reason or ''}".strip()


def upload(box: Sandbox, reached: Reached) -> str:
    """A file from a slow source."""

    def slowly() -> Iterator[bytes]:
        for piece in range(100):
            if piece == 5:
                reached()
            yield bytes(64 * 1024)
            time.sleep(0.05)

    box.files.write("/tmp/up", slowly())
    return "written"


def download(box: Sandbox, reached: Reached) -> str:
    """A file for a slow reader."""
    size = 0
    for pieces, piece in enumerate(box.files.read_stream("/tmp/big")):
        reached()
        size += len(piece)
        if pieces < SLOW_PIECES:
            time.sleep(0.02)
    return f"{size} bytes"


def wait(box: Sandbox, reached: Reached) -> str:
    """A state that does not come."""
    threading.Timer(0.3, reached).start()
    return box.wait_for("suspended", wait_timeout=WAIT_SECONDS).state


CALLS: dict[str, Callable[[Sandbox, Reached], str]] = {
    "recovered": recovered,
    "connecting": connecting,
    "unanswered": unanswered,
    "streaming": streaming,
    "memory": memory,
    "idle": idle,
    "tunnel": idle,
    "upload": upload,
    "download": download,
    "wait": wait,
}

_printing = threading.Lock()


def say(report: dict[str, Any]) -> None:
    """Prints one line."""
    with _printing:
        print(json.dumps(report), flush=True)


def carry_out(order: dict[str, Any]) -> None:
    """Makes one call and says how it ended."""
    told = threading.Event()

    def reached() -> None:
        if not told.is_set():
            told.set()
            say({"id": order["id"], "at": "phase"})

    engine = Engine.find(router_url=DEAD_ROUTER_URL) if order["phase"] == "tunnel" else Engine.find()
    try:
        text = CALLS[order["phase"]](Sandbox.get(order["sandbox"], engine=engine), reached)
        outcome = {"kind": "result", "text": text}
    except SandboxError as error:
        outcome = {"kind": "error", "code": error.code, "text": error.message}
    except BaseException as error:
        outcome = {"kind": "untyped", "text": f"{type(error).__name__}: {error}"}
    say({"id": order["id"], "at": "end", "outcome": outcome})


for line in sys.stdin:
    threading.Thread(target=carry_out, args=(json.loads(line),), daemon=True).start()
