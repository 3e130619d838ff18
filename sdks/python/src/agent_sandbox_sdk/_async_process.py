"""A running process, for code with an event loop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal

from agent_sandbox_sdk._connect import ConnectClient, Message
from agent_sandbox_sdk._output_stream import AsyncOutputStream
from agent_sandbox_sdk._process_events import SERVICE, Dropped, Event, EventStream, Exited, Output, Started
from agent_sandbox_sdk._wire import parse_time
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.result import ExitStatus, exit_status_of

InputSource = str | bytes | Iterable[bytes] | AsyncIterable[bytes]
"""What standard input can be given as."""

SignalScope = Literal["tree", "group", "process"]

# The sandbox kills a command whose time is up by itself; its exit is not waited for longer than this.
_GRACE_SECONDS = 2.0

# A message may have 4 MiB at most, and base64 adds a third.
_WRITE_BYTES_MAX = 2 * 2**20


@dataclass(frozen=True)
class ProcessInfo:
    """A process, as the sandbox describes it."""

    id: str
    pid: int
    command: tuple[str, ...]
    cwd: str
    user: str
    tag: str
    has_terminal: bool
    started_at: datetime | None
    exit: ExitStatus | None
    """None while it runs."""


def process_info_of(wire: Message) -> ProcessInfo:
    """Reads the message agentsandbox.v1.Process."""
    return ProcessInfo(
        id=wire.get("id", ""),
        pid=int(wire.get("pid", 0)),
        command=tuple(wire.get("command", ())),
        cwd=wire.get("cwd", ""),
        user=wire.get("user", ""),
        tag=wire.get("tag", ""),
        has_terminal=bool(wire.get("terminal", False)),
        started_at=parse_time(wire.get("startedAt")),
        exit=exit_status_of(wire["exit"]) if "exit" in wire else None,
    )


class AsyncInputStream:
    """Standard input of a process. A write returns when the process has taken the bytes."""

    def __init__(self, client: ConnectClient, process_id: str) -> None:
        self._client = client
        self._id = process_id
        self._order = asyncio.Lock()

    async def write(self, data: str | bytes) -> None:
        """Writes bytes, or text as UTF-8. Never sent again after a lost connection: the process may have read it."""
        raw = data.encode() if isinstance(data, str) else bytes(data)
        async with self._order:
            for at in range(0, len(raw), _WRITE_BYTES_MAX):
                piece = base64.b64encode(raw[at : at + _WRITE_BYTES_MAX]).decode()
                await self._send({"id": self._id, "data": piece})

    async def close(self) -> None:
        """Closes standard input behind what was written; on a terminal it types end-of-file."""
        async with self._order:
            await self._send({"id": self._id, "close": True})

    async def feed(self, source: InputSource) -> None:
        """Writes a whole source and closes; a process that ends without reading it is no error."""
        try:
            if isinstance(source, str | bytes):
                await self.write(source)
            elif isinstance(source, AsyncIterable):
                async for chunk in source:
                    await self.write(chunk)
            else:
                for chunk in source:
                    await self.write(chunk)
            await self.close()
        except SandboxError as error:
            if error.code not in ("process-ended", "not-found"):
                raise

    async def _send(self, message: Message) -> None:
        try:
            # No limit: a process may take as long as it likes to read.
            await self._client.unary(f"{SERVICE}/WriteStdin", message, request_timeout=None)
        except SandboxError as error:
            if error.code == "conflict":
                raise SandboxError("process-ended", error.message, request_id=error.request_id) from error
            raise


class AsyncProcess:
    """A process in a sandbox, in the manner of `asyncio.subprocess`. It outlives the connection and this handle."""

    def __init__(self, client: ConnectClient, started: Message, events: AsyncGenerator[Any, None]) -> None:
        self._client = client
        self._events = events
        self.info = process_info_of(started)
        self.stdin = AsyncInputStream(client, self.info.id)
        self.stdout = AsyncOutputStream()
        self.stderr = AsyncOutputStream()
        self.dropped_bytes = 0
        """Bytes of output lost because the connection was away for too long."""
        self._on_output: Callable[[Output], None] | None = None
        self._pump = asyncio.create_task(self._run_pump())
        # Asked for here, so that asyncio logs no failure that no caller awaits.
        self._pump.add_done_callback(lambda task: task.cancelled() or task.exception())

    @classmethod
    async def _open(
        cls,
        client: ConnectClient,
        stream: EventStream,
        *,
        request_timeout: float | None,
        command_timeout: float | None = None,
    ) -> AsyncProcess:
        """Waits until the process has started; raises `request-timeout` when that takes too long."""
        events = stream.events()
        try:
            first = await within(anext(events), request_timeout)
        except BaseException as error:
            # Only an answer of the sandbox says that the command does not run.
            if not isinstance(error, SandboxError) or error.code in ("connection-lost", "unavailable"):
                await stream.cancel_start()
            await events.aclose()
            if isinstance(error, asyncio.TimeoutError):
                raise SandboxError("request-timeout", f"the command did not start in {request_timeout} s") from error
            raise
        if not isinstance(first, Started):
            raise SandboxError("protocol-error", "the process's events do not begin with its start")
        following = events if command_timeout is None else _within_command_time(events, command_timeout)
        return cls(client, dict(first.process), following)

    @property
    def id(self) -> str:
        """16 hexadecimal digits; `sandbox.attach(id)` finds the process again, from anywhere."""
        return self.info.id

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox."""
        return self.info.pid

    @property
    def exit_status(self) -> ExitStatus | None:
        """How it ended, or None while it is not known to have."""
        if not self._pump.done() or self._pump.cancelled() or self._pump.exception() is not None:
            return None
        return self._pump.result()

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while the process is not known to have ended."""
        status = self.exit_status
        return None if status is None else status.exit_code

    async def wait(self) -> ExitStatus:
        """Waits for the end of the process and of its output; raises `closed` once it is no longer followed."""
        try:
            return await asyncio.shield(self._pump)
        except asyncio.CancelledError:
            if self._pump.cancelled():
                raise _closed() from None
            raise

    async def communicate(self, input: InputSource | None = None) -> tuple[bytes, bytes]:
        """Feeds standard input, reads both streams to their end, and waits."""

        async def feed() -> None:
            if input is not None:
                await self.stdin.feed(input)

        stdout, stderr, _, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), feed(), self.wait())
        return stdout, stderr

    async def send_signal(self, signal: str | int, *, scope: SignalScope = "tree") -> bool:
        """Sends a signal ("SIGTERM", "TERM" or 15); False when no process was left to get it."""
        message = {"id": self.id, "signal": str(signal), "scope": f"SIGNAL_SCOPE_{scope.upper()}"}
        try:
            answer = await self._client.unary(f"{SERVICE}/Signal", message)
        except SandboxError as error:
            if error.code == "not-found":
                return False
            raise
        return int(answer.get("signalled", 0)) > 0

    async def terminate(self) -> bool:
        """Asks the whole tree to end."""
        return await self.send_signal("SIGTERM")

    async def kill(self) -> bool:
        """Ends the whole tree."""
        return await self.send_signal("SIGKILL")

    async def resize(self, cols: int, rows: int) -> None:
        """Tells a process with a terminal its window's size."""
        await self._client.unary(f"{SERVICE}/Resize", {"id": self.id, "size": {"cols": cols, "rows": rows}})

    async def detach(self) -> None:
        """Stops following; the process goes on, and `wait` raises `closed`."""
        self._pump.cancel()
        with contextlib.suppress(asyncio.CancelledError, SandboxError):
            await self._pump

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit_status is None:
            with contextlib.suppress(SandboxError):
                await self.kill()
        await self.detach()

    async def _run_pump(self) -> ExitStatus:
        try:
            async with contextlib.aclosing(self._events) as events:
                async for event in events:
                    if isinstance(event, Exited):
                        await self._finish(None)
                        return event.status
                    await self._take(event)
            raise SandboxError("protocol-error", "the process's events ended without its exit")
        except asyncio.CancelledError:
            # The task itself ends as cancelled: a loop that ends its tasks has nothing to report then.
            await self._finish(_closed())
            raise
        except BaseException as error:
            await self._finish(error)
            raise

    async def _take(self, event: Any) -> None:
        if isinstance(event, Dropped):
            self.dropped_bytes += event.size
        elif isinstance(event, Output):
            if self._on_output is not None:
                self._on_output(event)
            await (self.stdout if event.stream == "stdout" else self.stderr).push(event.data)

    async def _finish(self, error: BaseException | None) -> None:
        await self.stdout.finish(error)
        await self.stderr.finish(error)


async def _within_command_time(
    events: AsyncGenerator[Event, None], command_timeout: float
) -> AsyncGenerator[Event, None]:
    """The events of a command that has just begun and has a time limit.

    Where the sandbox does not report the exit in time, the command is taken for killed: a sandbox that hangs or cannot
    be reached must not hold its caller. Only the wait for an event counts, so that a reader may take its time.
    """
    end = time.monotonic() + command_timeout
    async with contextlib.aclosing(events):
        while True:
            wait = max(end - time.monotonic(), 0) + _GRACE_SECONDS
            try:
                event = await within(anext(events), wait)
            except StopAsyncIteration:
                return
            except asyncio.TimeoutError:
                yield Exited(ExitStatus(137, "SIGKILL", timed_out=True))
                return
            yield event


def _closed() -> SandboxError:
    return SandboxError("closed", "the process is no longer followed")
