"""Following a process across lost connections."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from agent_sandbox_sdk._connect import ConnectClient, Message
from agent_sandbox_sdk._protobuf import ATTACH, EVENT, START
from agent_sandbox_sdk._repeating import repeat_until_answered
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.result import Command, ExitStatus, exit_status_of

if TYPE_CHECKING:
    from agent_sandbox_sdk._container_end import ContainerEnd, EndKind

SERVICE = "agentsandbox.v1.ProcessService"

# Eight attempts, doubling from 50 ms, span some twelve seconds: longer than a router takes to start again.
_ATTEMPTS_MAX = 8
_PAUSE_FIRST_SECONDS = 0.05
# A router holds who attaches to a sandbox that starts again; then the sandbox's conditions are looked at again.
_ATTACH_SECONDS = 5.0
# However attempts fail, they end this long after the connection was lost.
_LOST_SECONDS = 30.0

StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Started:
    """The process exists."""

    process: Mapping[str, Any]


@dataclass(frozen=True)
class Output:
    """A piece of output; a `bytes` of one of the two streams."""

    stream: StreamName
    data: bytes


@dataclass(frozen=True)
class Dropped:
    """Output that is no longer kept."""

    size: int


@dataclass(frozen=True)
class Exited:
    """The end."""

    status: ExitStatus


Event = Started | Output | Dropped | Exited


def process_spec(
    command: Command,
    *,
    env: Mapping[str, str] | None = None,
    clear_env: bool = False,
    cwd: str | None = None,
    user: str | None = None,
    command_timeout: float | None = None,
    tag: str | None = None,
    log: bool = False,
    output_buffer_bytes: int | None = None,
) -> Message:
    """The message agentsandbox.v1.ProcessSpec; raises `invalid-argument` for what no sandbox could run."""
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if not argv or not argv[0]:
        raise SandboxError("invalid-argument", "command is empty")
    if command_timeout is not None and not command_timeout > 0:
        raise SandboxError("invalid-argument", f"command_timeout must be above 0, not {command_timeout}")
    spec: Message = {"command": argv}
    if env is not None:
        spec["env"] = dict(env)
    if clear_env:
        spec["clearEnv"] = True
    if log:
        spec["log"] = True
    if command_timeout is not None:
        spec["timeout"] = f"{command_timeout:.3f}s"
    for key, value in (("cwd", cwd), ("user", user), ("tag", tag)):
        if value is not None:
            spec[key] = value
    if output_buffer_bytes is not None:
        spec["outputBufferBytes"] = output_buffer_bytes
    return spec


FindEnd = Callable[[datetime, "EndKind"], Awaitable["ContainerEnd | None"]]
"""Finds the end of the sandbox's containers since a moment."""


class EventStream:
    """Events of one process to its exit.

    A start whose answer was lost is repeated under the same key, which the sandbox answers with the process that it
    started the first time; later losses attach behind the last byte seen. So no command ever runs twice, and no output
    is passed on twice. A process ends with its container: for memory, it has the exit that SIGKILL gives and the
    reason; for any other cause `process-ended` is raised.
    """

    def __init__(
        self, client: ConnectClient, method: Literal["Start", "Attach"], request: Message, find_end: FindEnd
    ) -> None:
        self._client = client
        self._find_end = find_end
        self._method: Literal["Start", "Attach"] = method
        self._request = request
        # Kept besides the request, which becomes another once the command has begun.
        self._start_key: str | None = request.get("idempotencyKey")
        self._offset = int(request.get("fromOffset", 0))
        self._has_started = False
        self._attempts = 0
        self._lost_since: float | None = None
        # When the first start was sent that may have been carried out.
        self._first_sent: float | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Every event once, in order; the first is Started and the last is Exited."""
        since = datetime.now(timezone.utc)
        while True:
            sent = time.monotonic()
            try:
                async with aclosing(self._open()) as messages:
                    async for message in self._answered(messages):
                        self._attempts, self._lost_since = 0, None
                        event = self._read(message)
                        if event is None or (isinstance(event, Started) and self._has_started):
                            continue
                        self._has_started = True
                        yield event
                        if isinstance(event, Exited):
                            return
                raise SandboxError("connection-lost", "the stream ended before the process did")
            except SandboxError as error:
                exited = await self._after_failure(error, since, sent)
            if exited is not None:
                yield exited
                return

    async def _answered(self, messages: AsyncGenerator[Message, None]) -> AsyncGenerator[Message, None]:
        """The messages; where a process is attached to again, the first must come soon."""
        try:
            yield await within(anext(messages), _ATTACH_SECONDS if self._has_started else None)
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError as error:
            raise SandboxError("connection-lost", "the sandbox did not answer") from error
        async for message in messages:
            yield message

    async def _after_failure(self, error: SandboxError, since: datetime, sent: float) -> Exited | None:
        """Waits for the next attempt; the exit, where there is none to wait for."""
        may_follow_again = error.code in ("connection-lost", "unavailable")
        # A daemon that is younger than the first start refuses the repeated one.
        gone_code = "not-found" if self._has_started else "conflict"
        is_gone = (self._has_started or self._first_sent is not None) and error.code == gone_code
        if not is_gone and not may_follow_again:
            raise error
        self._attempts += 1
        self._lost_since = time.monotonic() if self._lost_since is None else self._lost_since
        if not self._has_started and not error._is_unsent and self._first_sent is None:
            self._first_sent = sent
        # Whether a start was carried out is the daemon's to say: an end before it must not be taken for its own.
        is_asked = self._has_started or is_gone
        end = await self._find_end(since, "gone" if is_gone else "lost") if is_asked else None
        if is_gone or end is not None:
            return _ended_with(end, error, has_started=self._has_started)
        if self._attempts > _ATTEMPTS_MAX or time.monotonic() - self._lost_since > _LOST_SECONDS:
            raise error
        await self._pause()
        return None

    async def cancel_start(self) -> None:
        """Ends the process of a start that was given up, or keeps it from beginning, by the start's key."""
        key = self._start_key
        if key is not None:
            await repeat_until_answered(lambda: self._client.unary(f"{SERVICE}/Cancel", {"idempotencyKey": key}))

    def _open(self) -> AsyncGenerator[Message, None]:
        types, request = (ATTACH, EVENT), self._request
        if self._method == "Start":
            types = (START, EVENT)
            if self._first_sent is not None:
                request = {**request, "firstSentMsAgo": int((time.monotonic() - self._first_sent) * 1000)}
        return self._client.stream(f"{SERVICE}/{self._method}", request, types=types)

    async def _pause(self) -> None:
        if self._method == "Attach":
            self._request = {**self._request, "fromOffset": self._offset}
        await asyncio.sleep(_PAUSE_FIRST_SECONDS * 2 ** (self._attempts - 1))

    def _read(self, message: Message) -> Event | None:
        if "started" in message:
            self._method = "Attach"
            self._request = {"id": message["started"].get("id", ""), "fromOffset": self._offset}
            return Started(message["started"])
        if "stdout" in message:
            return self._read_output("stdout", message["stdout"])
        if "stderr" in message:
            return self._read_output("stderr", message["stderr"])
        if "exit" in message:
            return Exited(exit_status_of(message["exit"]))
        if "dropped" in message:
            to = int(message["dropped"].get("toOffset", 0))
            size, self._offset = max(0, to - self._offset), max(to, self._offset)
            return Dropped(size)
        return None

    def _read_output(self, stream: StreamName, wire: Mapping[str, Any]) -> Output:
        data = wire.get("data", b"")
        if isinstance(data, str):
            data = base64.b64decode(data)
        start = int(wire.get("offset", 0))
        # A repeated start replays from the beginning; what was passed on already is cut off.
        fresh = data[self._offset - start :] if start < self._offset else data
        self._offset = max(self._offset, start + len(data))
        return Output(stream, fresh)


def _ended_with(end: ContainerEnd | None, error: SandboxError, *, has_started: bool) -> Exited:
    """The exit of a process whose container was killed for memory; any other end of a container is raised."""
    if has_started and end is not None and end.limit == "OOMKilled":
        return Exited(ExitStatus(137, "SIGKILL", reason=f"{end.limit}: {end.message}"))
    if end is None:
        why, limit = ", which was stopped or restarted", None
    else:
        why, limit = f": {end.message}" + ("" if end.limit is None else f" ({end.limit})"), end.limit
    what = "the process ended" if has_started else "the command may have begun, and ended"
    raise SandboxError("process-ended", f"{what} with its sandbox{why}", limit=limit) from error
