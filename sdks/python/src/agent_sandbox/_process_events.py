"""Following a process across lost connections."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from agent_sandbox._connect import ConnectClient, Message
from agent_sandbox._protobuf import ATTACH, EVENT, START
from agent_sandbox._repeating import repeat_until_answered
from agent_sandbox.errors import SandboxError
from agent_sandbox.result import Command, ExitStatus, exit_status_of

if TYPE_CHECKING:
    from agent_sandbox._limit import LimitReached

SERVICE = "agentsandbox.v1.ProcessService"

# Eight attempts, doubling from 50 ms, span some twelve seconds: longer than a router takes to start again.
_ATTEMPTS_MAX = 8
_PAUSE_FIRST_SECONDS = 0.05

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
    if command_timeout is not None:
        spec["timeout"] = f"{command_timeout:.3f}s"
    for key, value in (("cwd", cwd), ("user", user), ("tag", tag)):
        if value is not None:
            spec[key] = value
    if output_buffer_bytes is not None:
        spec["outputBufferBytes"] = output_buffer_bytes
    return spec


FindLimit = Callable[[datetime], Awaitable["LimitReached | None"]]
"""Finds the limit that ended the sandbox since a moment."""


class EventStream:
    """Events of one process to its exit.

    A start whose answer was lost is repeated under the same key, which the sandbox answers with the process that it
    started the first time; later losses attach behind the last byte seen. So no command ever runs twice, and no output
    is passed on twice.
    """

    def __init__(
        self, client: ConnectClient, method: Literal["Start", "Attach"], request: Message, find_limit: FindLimit
    ) -> None:
        self._client = client
        self._find_limit = find_limit
        self._method: Literal["Start", "Attach"] = method
        self._request = request
        # Kept besides the request, which becomes another once the command has begun.
        self._start_key: str | None = request.get("idempotencyKey")
        self._offset = int(request.get("fromOffset", 0))
        self._attempts = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        """Every event once, in order; the first is Started and the last is Exited."""
        has_started = False
        since = datetime.now(timezone.utc)
        while True:
            try:
                async with aclosing(self._open()) as messages:
                    async for message in messages:
                        self._attempts = 0
                        event = self._read(message)
                        if event is None or (isinstance(event, Started) and has_started):
                            continue
                        has_started = True
                        yield event
                        if isinstance(event, Exited):
                            return
                raise SandboxError("connection-lost", "the stream ended before the process did")
            except SandboxError as error:
                self._attempts += 1
                may_follow_again = error.code in ("connection-lost", "unavailable")
                is_lost = may_follow_again and self._attempts > _ATTEMPTS_MAX
                if has_started and (error.code == "not-found" or is_lost):
                    raise await self._gone_with_sandbox(error, since) from error
                if not may_follow_again or is_lost:
                    raise
                await self._pause()

    async def cancel_start(self) -> None:
        """Ends the process of a start that was given up, or keeps it from beginning, by the start's key."""
        key = self._start_key
        if key is not None:
            await repeat_until_answered(lambda: self._client.unary(f"{SERVICE}/Cancel", {"idempotencyKey": key}))

    def _open(self) -> AsyncGenerator[Message, None]:
        request = START if self._method == "Start" else ATTACH
        return self._client.stream(f"{SERVICE}/{self._method}", self._request, types=(request, EVENT))

    async def _gone_with_sandbox(self, error: SandboxError, since: datetime) -> SandboxError:
        """The daemon that knew the process is no more: its sandbox was stopped, and perhaps started again."""
        reached = await self._find_limit(since)
        if reached is None and error.code != "not-found":
            # It may only be the connection.
            return error
        why = ", which was stopped or restarted" if reached is None else f": {reached.message} ({reached.limit})"
        limit = None if reached is None else reached.limit
        return SandboxError("process-ended", f"the process ended with its sandbox{why}", limit=limit)

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
