"""Errors of this SDK: one base class, one code each."""

from __future__ import annotations

from agent_sandbox_sdk._deferred import _error_codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from agent_sandbox_sdk._error_codes import ErrorCode
    from agent_sandbox_sdk.result import RunResult

    Limit = Literal["OOMKilled", "PidLimitReached", "Evicted"]
    """A limit that ends a sandbox, by its condition: memory, processes and threads, the machine's disk or memory."""

__all__ = ["CommandError", "ErrorCode", "Limit", "SandboxError"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "ErrorCode":
            return _error_codes.ErrorCode
        if name == "Limit":
            # `typing` is loaded by those alone who ask for the type.
            from typing import Literal

            return Literal["OOMKilled", "PidLimitReached", "Evicted"]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# How a message begins to say what to do.
_ADVICE = tuple(f"; {verb} " for verb in ("start", "run", "name", "use", "resume", "let"))


class SandboxError(Exception):
    """Base of every error that this SDK makes. `code` never changes its meaning; the words may.

    As text it is the message and what to do about it; `message` and `hint` have the two apart.
    """

    def __init__(
        self, code: ErrorCode, message: str, *, request_id: str | None = None, limit: Limit | None = None
    ) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.request_id = request_id
        self.limit = limit
        """Of a `process-ended`: the limit that ended the sandbox; None where none did."""
        self._is_unsent = False
        """It proves that no sandbox has seen the request, which may be sent again then, whatever it asks for."""

    def __str__(self) -> str:
        # A message that says itself what to do needs no second advice; how a command ended is for its author to mend.
        if any(advice in self.message for advice in _ADVICE) or self.code == "command-failed":
            return self.message
        return f"{self.message}. {self.hint}"

    @property
    def cause(self) -> BaseException | None:
        """What lay underneath."""
        return self.__cause__

    @property
    def hint(self) -> str:
        """What to do about it, in one sentence."""
        return _error_codes.ERROR_CODES[self.code].hint

    @property
    def is_retryable(self) -> bool:
        """Whether the same call may succeed later. It does not say that repeating it is harmless."""
        return _error_codes.ERROR_CODES[self.code].retry


class CommandError(SandboxError):
    """A command that failed under `check=True`; or, whatever `check` says, one that ran out of time."""

    def __init__(self, result: RunResult) -> None:
        super().__init__("command-timeout" if result.timed_out else "command-failed", _describe(result))
        self.result = result


# Enough to see why, little enough for one log line.
_STDERR_CHARS_MAX = 400


def _describe(result: RunResult) -> str:
    command = result.args if isinstance(result.args, str) else " ".join(result.args)
    shown = command if len(command) <= 80 else command[:77] + "..."
    if result.timed_out:
        how = "ran out of time"
    elif result.signal is not None:
        how = f"was ended by {result.signal}"
    else:
        how = f"exited with {result.exit_code}"
    if result.reason is not None:
        how += f" ({result.reason})"
    tail = result.stderr.strip()[-_STDERR_CHARS_MAX:]
    return f"command '{shown}' {how}" + (f": {tail}" if tail else "")


def code_of_status(status: int) -> ErrorCode:
    """The code of an HTTP status that came without a better explanation."""
    return _error_codes.CODE_OF_HTTP_STATUS.get(status, "internal" if status >= 500 else "protocol-error")


def code_of_reason(reason: str | None) -> ErrorCode | None:
    """The code of a reason of a condition or a Status; None where the reason is not known."""
    return None if reason is None else _error_codes.CODE_OF_REASON.get(reason)


# Connect spells gRPC's codes in words; these are their numbers.
_GRPC_NUMBER = {
    "canceled": 1,
    "unknown": 2,
    "invalid_argument": 3,
    "deadline_exceeded": 4,
    "not_found": 5,
    "already_exists": 6,
    "permission_denied": 7,
    "resource_exhausted": 8,
    "failed_precondition": 9,
    "aborted": 10,
    "out_of_range": 11,
    "unimplemented": 12,
    "internal": 13,
    "unavailable": 14,
    "data_loss": 15,
    "unauthenticated": 16,
}


def code_of_connect(word: str) -> ErrorCode:
    """The code of an error of the Connect protocol, whose own code is a word such as `not_found`."""
    return _error_codes.CODE_OF_GRPC_STATUS.get(_GRPC_NUMBER.get(word, 2), "internal")
