"""A code interpreter for language models: snippets of Python, state kept between calls, all of it in a sandbox."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Generator
from types import TracebackType

from agent_sandbox_sdk import Process, Sandbox

TOOL = {
    "name": "run_python",
    "description": "Runs Python and returns what it printed and the value of its last expression. State is kept.",
    "input_schema": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The snippet"}},
        "required": ["code"],
    },
}

_SESSION = pathlib.Path(__file__).with_name("session.py")


class CodeInterpreter:
    """One interpreter session in a sandbox of its own; use it as a context manager."""

    def __init__(self, *, time_limit: float = 30) -> None:
        self._time_limit = time_limit
        self._sandbox = Sandbox.create(workdir="/workspace", memory="1Gi")
        self._sandbox.files.write("/opt/session.py", _SESSION.read_bytes())
        self._start()

    def run_python(self, code: str) -> str:
        """The tool. Never raises for what the snippet does: the model reads the traceback and mends its code."""
        # Killing the process from a timer ends the read below, whatever the snippet is busy with.
        expired = threading.Event()
        timer = threading.Timer(self._time_limit, self._expire, [expired])
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"code": code}) + "\n")
            answer = next(self._answers, None)
        finally:
            timer.cancel()
        if answer is not None:
            return str(json.loads(answer)["output"])
        self._start()
        why = f"ran longer than {self._time_limit:g} s" if expired.is_set() else "ended the interpreter"
        return f"error: the snippet {why}; variables are gone, files are still there\n"

    def _start(self) -> None:
        self._process: Process = self._sandbox.spawn(["python3", "-u", "/opt/session.py"], tag="interpreter")
        self._answers: Generator[str, None, None] = self._process.stdout.lines()

    def _expire(self, expired: threading.Event) -> None:
        expired.set()
        self._process.kill()

    def __enter__(self) -> CodeInterpreter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sandbox.delete()
