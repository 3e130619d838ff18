"""The handle of a sandbox, for code with an event loop."""

from __future__ import annotations

from agent_sandbox._deferred import (
    _async_files,
    _async_process,
    _connect,
    _daemon_status,
    _http_answer,
    _kube,
    _lifecycle,
    _objects,
    _opening,
    _plane,
    _process_events,
    _telling,
    _verdict,
    _wait,
    asyncio,
    codecs,
    datetime,
    sandbox_info,
    secrets,
)
from agent_sandbox._deferred import options as _options
from agent_sandbox._deferred import result as _result
from agent_sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, Callable, Mapping
    from types import TracebackType
    from typing import Any

    from typing_extensions import Unpack

    from agent_sandbox._async_process import AsyncProcess, InputSource, ProcessInfo
    from agent_sandbox._connection import Connection
    from agent_sandbox._daemon_status import OpenPort
    from agent_sandbox._http_answer import HttpAnswer
    from agent_sandbox._kube import KubeObject
    from agent_sandbox._opening import Opening
    from agent_sandbox._process_events import Output
    from agent_sandbox._verdict import Verdict
    from agent_sandbox.options import ClaimOptions, CreateOptions, EngineOptions, RunOptions, Seconds, SpawnOptions
    from agent_sandbox.result import Command, CompletedCommand
    from agent_sandbox.sandbox_info import SandboxInfo, SandboxState

# Long enough for a sandbox to wake from a cold disk, short enough to notice that it never will.
_REQUEST_SECONDS = 120.0


class AsyncSandbox:
    """One sandbox. As a context manager it is deleted at the end if this handle made it, else only let go."""

    def __init__(self, connection: Connection, sandbox: KubeObject, *, is_owned: bool = False) -> None:
        metadata = sandbox["metadata"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata["namespace"]
        self.uid: str = metadata.get("uid", "")
        self.claim_name = _lifecycle.claim_of(sandbox)
        """The claim that holds it; None where there is none."""
        self._last_seen = sandbox
        self._connection = connection
        self._is_owned = is_owned
        self._is_closed = False
        self._kube = _kube.KubeClient(connection)
        self._plane = _plane.DataPlane(connection, self.namespace, self.name, self.uid or None)
        self._client = _connect.ConnectClient(self._plane)
        self.files = _async_files.AsyncFiles(self._plane, self._client)

    @classmethod
    def create(
        cls, image: str | None = None, *, name: str | None = None, **options: Unpack[CreateOptions]
    ) -> Opening[AsyncSandbox]:
        """Makes a sandbox and waits until it is ready. Default image: `host`, this machine's own programs."""
        return _opening.Opening(lambda: _lifecycle.create(cls, image, name, options))

    @classmethod
    def claim(cls, pool: str, **options: Unpack[ClaimOptions]) -> Opening[AsyncSandbox]:
        """Takes a sandbox from a warm pool."""
        return _opening.Opening(lambda: _lifecycle.claim(cls, pool, options))

    @classmethod
    def open(cls, name: str, image: str | None = None, **options: Unpack[CreateOptions]) -> Opening[AsyncSandbox]:
        """The sandbox of that name; made where it is missing. Calling it again changes nothing."""
        return _opening.Opening(lambda: _lifecycle.open_or_create(cls, name, image, options))

    @classmethod
    def get(cls, name: str, **options: Unpack[EngineOptions]) -> Opening[AsyncSandbox]:
        """The sandbox of that name; raises `not-found`."""
        return _opening.Opening(lambda: _lifecycle.get(cls, name, options))

    @classmethod
    def list(
        cls,
        *,
        labels: Mapping[str, str] | str | None = None,
        all_namespaces: bool = False,
        **options: Unpack[EngineOptions],
    ) -> AsyncGenerator[AsyncSandbox, None]:
        """Every sandbox, page by page; `labels` is a mapping or a selector. Unclaimed members of pools too."""
        return _lifecycle.list_sandboxes(cls, labels, all_namespaces, options)

    @classmethod
    def from_json(cls, text: str, **options: Unpack[EngineOptions]) -> Opening[AsyncSandbox]:
        """The handle that `to_json` wrote, here or elsewhere; raises `not-found` when that sandbox is gone."""
        return _opening.Opening(lambda: _lifecycle.from_json(cls, text, options))

    def to_json(self) -> str:
        """The handle as text, without credentials."""
        return _lifecycle.to_json(self.namespace, self.name, self.uid, self.claim_name)

    async def run(
        self,
        command: Command,
        *,
        stdin: InputSource | None = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> CompletedCommand:
        """Runs a command to its end: text in the sandbox's shell, a sequence as argv.

        A non-zero exit code is a result unless `check`; running out of `command_timeout` always raises. Cancelling the
        call kills the whole process tree, also where the command had not begun; it ends when the tree is gone, or could
        not be told for five seconds.
        """
        on_stdout, on_stderr = options.pop("on_stdout", None), options.pop("on_stderr", None)
        spawning: SpawnOptions = {**options}  # type: ignore[typeddict-unknown-key]
        process = await self._start(command, spawning, extra={} if stdin is None else {"stdin": True})
        combined: list[bytes] = []
        tell = _teller(combined, on_stdout, on_stderr)
        process.on_output = tell
        try:
            stdout, stderr = await process.communicate(stdin)
            status = await process.wait()
        except BaseException:
            await self._abandon(process)
            raise
        result = _result.CompletedCommand(
            exit_code=status.exit_code,
            signal=status.signal,
            timed_out=status.timed_out,
            args=command if isinstance(command, str) else tuple(command),
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            combined_bytes=b"".join(combined),
            dropped_bytes=process.dropped_bytes,
        )
        if check or result.timed_out:
            result.check_returncode()
        return result

    async def spawn(self, command: Command, **options: Unpack[SpawnOptions]) -> AsyncProcess:
        """Starts a process; returns when it runs. Its standard input is open."""
        return await self._start(command, options, extra={"stdin": True})

    async def pty(
        self, command: Command | None = None, *, cols: int = 80, rows: int = 24, **options: Unpack[SpawnOptions]
    ) -> AsyncProcess:
        """Starts a process with a terminal; default a login shell."""
        options["env"] = {"TERM": "xterm-256color", **(options.get("env") or {})}
        terminal = {"terminal": {"cols": cols, "rows": rows}}
        return await self._start(("/bin/sh", "-l") if command is None else command, options, extra=terminal)

    async def attach(self, process_id: str, *, from_offset: int = 0) -> AsyncProcess:
        """Follows a process that was started before, here or elsewhere; from_offset leaves out what was seen."""
        stream = _process_events.EventStream(self._client, "Attach", {"id": process_id, "fromOffset": from_offset})
        return await _async_process.AsyncProcess.open(self._client, stream, request_timeout=_REQUEST_SECONDS)

    async def processes(self, *, running_only: bool = False) -> builtins.list[ProcessInfo]:
        """Processes that run or are still remembered, oldest first."""
        answer = await self._client.unary(f"{_process_events.SERVICE}/List", {"runningOnly": running_only})
        return [_async_process.process_info_of(wire) for wire in answer.get("processes", [])]

    async def fetch(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: bytes | str | None = None,
        request_timeout: Seconds | None = _REQUEST_SECONDS,
    ) -> HttpAnswer:
        """Sends an HTTP request to a port inside the sandbox; a sleeping sandbox is woken by it."""
        body = content.encode() if isinstance(content, str) else content
        target = path if path.startswith("/") else f"/{path}"

        async def send() -> HttpAnswer:
            async with self._plane.request(method, target, port=port, headers=headers, content=body) as response:
                return _http_answer.HttpAnswer(response.status_code, dict(response.headers), await response.aread())

        limit = None if request_timeout is None else _options.seconds_of(request_timeout)
        try:
            return await asyncio.wait_for(send(), limit)
        except asyncio.TimeoutError as error:
            raise SandboxError("request-timeout", f"port {port} gave no answer in {limit} s") from error

    async def url(self, port: int, *, ttl: Seconds = 3600) -> str:
        """A link to a port that a browser can open without credentials, until `ttl` has passed."""
        return await _lifecycle.make_link(
            self._connection, self._plane, self.namespace, self.name, port, _options.seconds_of(ttl)
        )

    @property
    def last_seen(self) -> SandboxInfo:
        """What the handle knew when it was made; costs nothing."""
        return sandbox_info.sandbox_info_of(self._last_seen)

    async def info(self) -> SandboxInfo:
        """What the engine says of it. Asking does not keep a sandbox awake."""
        return sandbox_info.sandbox_info_of(await self._object())

    async def ports(self) -> builtins.list[OpenPort]:
        """What listens in the sandbox, in ascending order; a sleeping sandbox is woken by it."""
        return await _daemon_status.read_ports(self._plane)

    async def metrics(self) -> dict[str, float]:
        """Figures of the daemon in the sandbox, by name; a sleeping sandbox is woken by it."""
        return await _daemon_status.read_metrics(self._plane)

    async def logs(
        self, *, follow: bool = False, tail: int | None = None, timestamps: bool = False
    ) -> AsyncGenerator[str, None]:
        """Lines that the sandbox's own process printed."""
        params = {
            "container": await self._container_name(),
            **({"follow": "true"} if follow else {}),
            **({} if tail is None else {"tailLines": str(tail)}),
            **({"timestamps": "true"} if timestamps else {}),
        }
        path = f"{_kube.PODS.path(self.namespace, self.name)}/log"
        async for line in self._kube.lines(path, params):
            yield line.decode("utf-8", "replace")

    async def wait_for(self, state: SandboxState, *, ready_timeout: Seconds = 180) -> SandboxInfo:
        """Waits until it is in a state, and tells how it is then; `not-found` where it was deleted or replaced."""

        def judge(sandbox: KubeObject | None) -> Verdict:
            if sandbox is None or (self.uid and sandbox["metadata"].get("uid") != self.uid):
                return _verdict.Failed(self._replaced())
            seen = sandbox_info.sandbox_info_of(sandbox).state
            return _verdict.Done() if seen == state else _verdict.Waiting(seen)

        wait = _wait.Wait(self._kube, _kube.SANDBOXES, self.namespace, self.name, judge)
        return sandbox_info.sandbox_info_of(await wait.within(_options.seconds_of(ready_timeout)))

    async def suspend(self, *, hold: bool = False, ready_timeout: Seconds = 120) -> None:
        """Puts it to sleep and waits for that; traffic wakes it, unless `hold`."""
        spec = {"operatingMode": "Suspended", "wakePolicy": "Never" if hold else "OnTraffic"}
        patch = self._guarded(spec)
        # A sandbox that traffic has woken is still suspended by its spec: the suspension has to count from now.
        patch.setdefault("metadata", {})["annotations"] = {"agent-sandbox.dev/suspended-at": None}
        await self._patch(patch)
        wait = _wait.Wait(self._kube, _kube.SANDBOXES, self.namespace, self.name, _verdict.judge_suspended)
        await wait.within(_options.seconds_of(ready_timeout))

    async def resume(self, *, ready_timeout: Seconds = 180) -> None:
        """Wakes it and waits until it is ready."""
        known = await self._patch(self._guarded({"operatingMode": "Running"}))
        is_local = self._connection.engine.is_local
        await _wait.await_ready(self._kube, known, ready_timeout=_options.seconds_of(ready_timeout), is_local=is_local)

    async def set_timeout(self, ttl: Seconds | None) -> None:
        """It is deleted this long from now, whatever was set before; None: never."""
        await self._set_end(
            None if ttl is None else _objects.shutdown_time(datetime.datetime.now(datetime.timezone.utc), ttl)
        )

    async def extend(self, by: Seconds) -> datetime.datetime:
        """It lives this much longer than was set; returns its end. `conflict` where no end is set."""
        end = (await self.info()).expires_at
        if end is None:
            raise SandboxError("conflict", f"sandbox {self.namespace}/{self.name} has no end to extend")
        later = _objects.shutdown_time(end, by)
        await self._set_end(later)
        return datetime.datetime.fromisoformat(later.replace("Z", "+00:00"))

    async def _set_end(self, end: str | None) -> None:
        ending = {"shutdownTime": end, "shutdownPolicy": None if end is None else "Delete"}
        if self.claim_name is not None:
            await self._kube.patch(_kube.CLAIMS, self.namespace, self.claim_name, {"spec": {"lifecycle": ending}})
        else:
            await self._patch(self._guarded(ending))

    async def delete(self, *, wait: bool = False) -> None:
        """Deletes it, with the claim it was got through. One that is gone already is fine."""
        if self.claim_name is not None:
            await self._kube.delete(_kube.CLAIMS, self.namespace, self.claim_name)
        else:
            await self._kube.delete(_kube.SANDBOXES, self.namespace, self.name, uid=self.uid or None)
        if wait:
            await _wait.Wait(self._kube, _kube.SANDBOXES, self.namespace, self.name, _verdict.judge_gone).within(120)

    async def close(self) -> None:
        """Lets go of the connections of this handle; the sandbox goes on."""
        if not self._is_closed:
            self._is_closed = True
            await self._plane.close()
            await self._connection.release()

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_owned:
                await self.delete()
        finally:
            await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name}>"

    async def _start(self, command: Command, options: SpawnOptions, *, extra: Mapping[str, Any]) -> AsyncProcess:
        if self._is_closed:
            raise SandboxError("closed", f"the handle of sandbox {self.name} was closed")
        rest: dict[str, Any] = dict(options)
        limit = rest.pop("request_timeout", _REQUEST_SECONDS)
        if rest.get("command_timeout") is not None:
            rest["command_timeout"] = _options.seconds_of(rest["command_timeout"])
        request = {
            "spec": {**_process_events.process_spec(command, **rest), **extra},
            "idempotencyKey": secrets.token_hex(8),
        }
        stream = _process_events.EventStream(self._client, "Start", request)
        return await _async_process.AsyncProcess.open(
            self._client, stream, request_timeout=None if limit is None else _options.seconds_of(limit)
        )

    async def _abandon(self, process: AsyncProcess) -> None:
        """Ends the process of a call that was given up."""
        await _telling.tell_until_heard(process.kill)
        await process.detach()

    async def _object(self) -> KubeObject:
        found = await self._kube.get(_kube.SANDBOXES, self.namespace, self.name)
        if self.uid and found["metadata"].get("uid") != self.uid:
            raise self._replaced()
        return found

    async def _patch(self, patch: object) -> KubeObject:
        try:
            return await self._kube.patch(_kube.SANDBOXES, self.namespace, self.name, patch)
        except SandboxError as error:
            # Servers call another uid a conflict, or a field that cannot change.
            if error.code == "conflict" or (error.code == "invalid-argument" and "metadata.uid" in error.message):
                raise self._replaced() from error
            raise

    def _replaced(self) -> SandboxError:
        return SandboxError("not-found", f"sandbox {self.namespace}/{self.name} was replaced by another of its name")

    async def _container_name(self) -> str:
        spec = (await self._object())["spec"]["podTemplate"]["spec"]
        return str(spec["containers"][0]["name"])

    def _guarded(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A patch that fails where the sandbox was replaced by another of its name."""
        return {"metadata": {"uid": self.uid}, "spec": dict(spec)} if self.uid else {"spec": dict(spec)}


def _teller(
    combined: list[bytes],
    on_stdout: Callable[[str], object] | None,
    on_stderr: Callable[[str], object] | None,
) -> Callable[[Output], None]:
    targets = {"stdout": on_stdout, "stderr": on_stderr}
    decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in targets}

    def tell(output: Output) -> None:
        combined.append(output.data)
        target = targets[output.stream]
        if target is not None and (text := decoders[output.stream].decode(output.data)):
            target(text)

    return tell
