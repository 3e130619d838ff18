"""What a finished command left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_sandbox_sdk.errors import CommandError

Command = str | Sequence[str]
"""Text goes to the sandbox's shell (`/bin/sh -c`); a sequence is argv and meets no shell."""


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended."""

    exit_code: int
    """The program's own code, or 128 plus the signal's number."""
    signal: str | None = None
    """`SIGKILL` and so on where a signal ended it."""
    timed_out: bool = False
    """It was killed because `command_timeout` had passed."""
    reason: str | None = None
    """The limit for which it was killed, and what the sandbox says of it: `OOMKilled: ...`; None where none was."""

    @property
    def returncode(self) -> int:
        """`exit_code` under the name that `subprocess` gives it."""
        return self.exit_code


@dataclass(frozen=True)
class RunResult(ExitStatus):
    """A finished command, in the manner of `subprocess.CompletedProcess`."""

    args: str | tuple[str, ...] = ()
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    combined_bytes: bytes = b""
    dropped_bytes: int = 0
    """Bytes lost because the connection was away for longer than the sandbox keeps output; else 0."""

    @property
    def stdout(self) -> str:
        """Standard output as text; what is not valid UTF-8 is replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; what is not valid UTF-8 is replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def combined(self) -> str:
        """Both streams in the order in which the sandbox read them."""
        return self.combined_bytes.decode("utf-8", "replace")

    def check_returncode(self) -> None:
        """Raises CommandError unless the command succeeded."""
        if self.exit_code != 0 or self.timed_out:
            raise CommandError(self)


def exit_status_of(wire: Mapping[str, Any]) -> ExitStatus:
    """Reads the message agentsandbox.v1.Exit."""
    return ExitStatus(int(wire.get("code", 0)), wire.get("signal") or None, bool(wire.get("timedOut", False)))
