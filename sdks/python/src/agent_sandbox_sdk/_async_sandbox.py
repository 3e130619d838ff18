"""The handle of a sandbox, for code with an event loop."""

from __future__ import annotations

from agent_sandbox_sdk._deferred import (
    _async_files,
    _async_process,
    _connect,
    _container_end,
    _daemon_status,
    _http_answer,
    _kube,
    _lifecycle,
    _objects,
    _opening,
    _phase,
    _plane,
    _process_events,
    _repeating,
    _services,
    _snapshots,
    _verdict,
    _wait,
    _within,
    asyncio,
    codecs,
    contextlib,
    datetime,
    sandbox_info,
    secrets,
    snapshot_info,
)
from agent_sandbox_sdk._deferred import options as _options
from agent_sandbox_sdk._deferred import result as _result
from agent_sandbox_sdk.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, Callable, Mapping
    from types import TracebackType
    from typing import Any

    from typing_extensions import Unpack

    from agent_sandbox_sdk._async_process import AsyncProcess, InputSource, ProcessInfo
    from agent_sandbox_sdk._connection import Connection
    from agent_sandbox_sdk._container_end import ContainerEnd, EndKind
    from agent_sandbox_sdk._daemon_status import OpenPort
    from agent_sandbox_sdk._http_answer import HttpAnswer
    from agent_sandbox_sdk._kube import KubeObject, Resource
    from agent_sandbox_sdk._opening import Opening
    from agent_sandbox_sdk._process_events import Output
    from agent_sandbox_sdk._services import Services
    from agent_sandbox_sdk._verdict import Verdict
    from agent_sandbox_sdk.options import (
        CallTarget,
        ClaimOptions,
        CreateOptions,
        EngineOptions,
        ForkOptions,
        LogOptions,
        RunOptions,
        Seconds,
        SnapshotOptions,
        SpawnOptions,
    )
    from agent_sandbox_sdk.result import Command, RunResult
    from agent_sandbox_sdk.sandbox_info import SandboxInfo, SandboxState
    from agent_sandbox_sdk.snapshot_info import SnapshotInfo

# Long enough for a sandbox to wake from a cold disk, short enough to notice that it never will.
_REQUEST_SECONDS = 120.0
_END_SERVICE_SECONDS = 5.0


class AsyncSandbox:
    """One sandbox. As a context manager it is deleted at the end if this handle made it, else only let go."""

    def __init__(self, connection: Connection, sandbox: KubeObject, *, is_owned: bool = False) -> None:
        metadata = sandbox["metadata"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata["namespace"]
        self.uid: str = metadata.get("uid", "")
        claim = _lifecycle.claim_of(sandbox)
        self._claim_uid = None if claim is None else claim.uid
        self.claim_name = None if claim is None else claim.name
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
    def get(cls, name: str, **options: Unpack[CallTarget]) -> Opening[AsyncSandbox]:
        """The sandbox of that name; raises `not-found`."""
        return _opening.Opening(lambda: _lifecycle.get(cls, name, options))

    @classmethod
    def list(
        cls,
        *,
        label_selector: Mapping[str, str] | str | None = None,
        all_namespaces: bool = False,
        **options: Unpack[CallTarget],
    ) -> AsyncGenerator[AsyncSandbox, None]:
        """Every sandbox, page by page; `label_selector` is a mapping or a text. Unclaimed members of pools too."""
        return _lifecycle.list_sandboxes(cls, label_selector, all_namespaces, options)

    @classmethod
    def from_json(cls, text: str, **options: Unpack[EngineOptions]) -> Opening[AsyncSandbox]:
        """The handle that `to_json` wrote, here or elsewhere; raises `not-found` when that sandbox is gone."""
        return _opening.Opening(lambda: _lifecycle.from_json(cls, text, options))

    @classmethod
    async def list_snapshots(cls, **options: Unpack[CallTarget]) -> builtins.list[SnapshotInfo]:
        """All snapshots of a namespace."""
        return await _snapshots.list_snapshots(options)

    @classmethod
    async def delete_snapshot(cls, name: str, **options: Unpack[CallTarget]) -> None:
        """Deletes a snapshot; one that is not there is fine. Sandboxes that were started from it are not touched."""
        await _snapshots.delete_snapshot(name, options)

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
    ) -> RunResult:
        """Runs a command to its end: text in the sandbox's shell, a sequence as argv.

        A non-zero exit code is a result unless `check`; running out of `command_timeout` always raises. Cancelling the
        call kills the whole process tree, also where the command had not begun; it ends when the tree is gone, or after
        five seconds in which the sandbox could not be reached.
        """
        _options.assert_known("run", options, _options.RunOptions, "stdin", "check")
        on_stdout, on_stderr = options.pop("on_stdout", None), options.pop("on_stderr", None)
        spawning: SpawnOptions = {**options}  # type: ignore[typeddict-unknown-key]
        process = await self._start(command, spawning, extra={} if stdin is None else {"stdin": True})
        combined: list[bytes] = []
        tell = _teller(combined, on_stdout, on_stderr)
        process._on_output = tell
        try:
            stdout, stderr = await process.communicate(stdin)
            status = await process.wait()
        except BaseException:
            await self._abandon(process)
            raise
        result = _result.RunResult(
            exit_code=status.exit_code,
            signal=status.signal,
            timed_out=status.timed_out,
            reason=status.reason,
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
        _options.assert_known("spawn", options, _options.SpawnOptions)
        return await self._start(command, options, extra={"stdin": True})

    async def pty(
        self, command: Command | None = None, *, cols: int = 80, rows: int = 24, **options: Unpack[SpawnOptions]
    ) -> AsyncProcess:
        """Starts a process with a terminal; default a login shell."""
        _options.assert_known("pty", options, _options.SpawnOptions, "cols", "rows")
        options["env"] = {"TERM": "xterm-256color", **(options.get("env") or {})}
        terminal = {"terminal": {"cols": cols, "rows": rows}}
        return await self._start(_options.LOGIN_SHELL if command is None else command, options, extra=terminal)

    async def start_service(
        self,
        service: str,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        request_timeout: Seconds | None = _REQUEST_SECONDS,
    ) -> None:
        """Keeps a program running under a name: it is started again whenever it ends, and after a sleep.

        What ran under the name before is replaced; what it prints is in `logs`.
        """
        _services.check_name(service)
        options: SpawnOptions = {"env": env, "cwd": cwd, "user": user, "request_timeout": request_timeout}
        process = await self._start(command, options, extra={}, service=service)
        await process.detach()
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        wanted = {"name": service, "command": argv, "env": env and dict(env), "cwd": cwd, "user": user}
        declared = {key: value for key, value in wanted.items() if value}
        try:
            await self._change_services(_services.with_service(declared))
        except BaseException:
            # What cannot be written down would be gone after a sleep: the caller is not left with half of it.
            # A sandbox that has gone answers nothing, and the caller waits for its own error.
            with contextlib.suppress(SandboxError, asyncio.TimeoutError):
                await _within.within(self._end_service(service), _END_SERVICE_SECONDS)
            raise

    async def remove_service(self, service: str) -> None:
        """Ends a service for good. One that is not there is fine; a sleeping sandbox is woken."""
        await self._change_services(_services.without_service(service))
        await self._end_service(service)

    async def attach(self, process_id: str, *, from_offset: int = 0) -> AsyncProcess:
        """Follows a process that was started before, here or elsewhere; from_offset leaves out what was seen."""
        stream = _process_events.EventStream(
            self._client, "Attach", {"id": process_id, "fromOffset": from_offset}, self._find_end
        )
        return await _async_process.AsyncProcess._open(self._client, stream, request_timeout=_REQUEST_SECONDS)

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
            return await _within.within(send(), limit)
        except asyncio.TimeoutError as error:
            raise SandboxError("request-timeout", f"port {port} gave no answer in {limit} s") from error

    async def url(self, port: int, *, ttl: Seconds = 3600) -> str:
        """A link to a port that anything can open without credentials, until `ttl` has passed."""
        return await _lifecycle.make_link(
            self._connection, self._plane, self.namespace, self.name, port, _options.seconds_of(ttl)
        )

    @property
    def last_seen(self) -> SandboxInfo:
        """What the handle knew when it was made; costs nothing."""
        return sandbox_info.sandbox_info_of(self._last_seen)

    async def object(self) -> KubeObject:
        """The Sandbox object as it is now; `not-found` also where another one has its name."""
        found = await self._kube.get(_kube.SANDBOXES, self.namespace, self.name)
        if self.uid and found["metadata"].get("uid") != self.uid:
            raise self._replaced()
        return found

    async def info(self) -> SandboxInfo:
        """What the engine says of it. Asking does not keep a sandbox awake."""
        return sandbox_info.sandbox_info_of(await self.object())

    async def ready(self, *, ready_timeout: Seconds = 180) -> None:
        """Waits until it is ready."""
        await self._await_ready(await self.object(), ready_timeout)

    async def ports(self) -> builtins.list[OpenPort]:
        """What listens in the sandbox, in ascending order; a sleeping sandbox is woken by it."""
        return await _daemon_status.read_ports(self._plane)

    async def metrics(self) -> dict[str, float]:
        """Figures of the daemon in the sandbox, by name; a sleeping sandbox is woken by it."""
        return await _daemon_status.read_metrics(self._plane)

    async def logs(self, **options: Unpack[LogOptions]) -> AsyncGenerator[bytes, None]:
        """What the sandbox's own process and those started with `log` printed, in pieces as they come."""
        tail, since = options.get("tail_lines"), options.get("since")
        params = {
            "container": options.get("container") or await self._container_name(),
            **({"follow": "true"} if options.get("follow") else {}),
            **({} if tail is None else {"tailLines": str(tail)}),
            **({} if since is None else {"sinceSeconds": str(-int(-_options.seconds_of(since) // 1))}),
            **({"timestamps": "true"} if options.get("timestamps") else {}),
            **({"previous": "true"} if options.get("previous") else {}),
        }
        path = f"{_kube.PODS.path(self.namespace, self.name)}/log"
        async for chunk in self._kube.chunks(path, params):
            yield chunk

    async def wait_for(self, state: SandboxState, *, wait_timeout: Seconds = 180) -> SandboxInfo:
        """Waits until it is in a state, and returns what it is then; `not-found` where it was deleted or replaced."""

        def judge(sandbox: KubeObject | None) -> Verdict:
            if sandbox is None or (self.uid and sandbox["metadata"].get("uid") != self.uid):
                return _verdict.Failed(self._replaced())
            seen = sandbox_info.sandbox_info_of(sandbox).state
            return _verdict.Done() if seen == state else _verdict.Waiting(seen)

        wait = _wait.Wait(self._kube, _kube.SANDBOXES, self.namespace, self.name, judge)
        return sandbox_info.sandbox_info_of(await wait.within(_options.seconds_of(wait_timeout), "wait-timeout"))

    async def suspend(self, *, hold: bool = False, wait_timeout: Seconds = 120) -> None:
        """Puts it to sleep and waits for that; traffic wakes it, unless `hold`."""
        spec = {"operatingMode": "Suspended", "wakePolicy": "Never" if hold else "OnTraffic"}
        patch = self._guarded(spec)
        # A sandbox that traffic has woken is still suspended by its spec: the suspension has to count from now.
        patch.setdefault("metadata", {})["annotations"] = {"agent-sandbox.dev/suspended-at": None}
        await self._patch(patch)
        wait = _wait.Wait(self._kube, _kube.SANDBOXES, self.namespace, self.name, _verdict.judge_suspended)
        await wait.within(_options.seconds_of(wait_timeout), "wait-timeout")

    async def resume(self, *, cold: bool = False, ready_timeout: Seconds = 180) -> None:
        """Wakes it and waits until it is ready; `cold` gives up saved memory and starts from its files."""
        patch = self._guarded({"operatingMode": "Running"})
        saved = _phase.saved_memory(await self.object()) if cold else None
        if saved is not None:
            patch.setdefault("metadata", {})["annotations"] = {_phase.COLD_START: saved}
        await self._await_ready(await self._patch(patch), ready_timeout)

    async def snapshot(self, **options: Unpack[SnapshotOptions]) -> SnapshotInfo:
        """Saves its files and, unless `memory` is False, its processes; returns when all of it is on disk.

        It goes on afterwards as it was, awake or asleep. `create` with `from_snapshot` starts from it.
        """
        return snapshot_info.snapshot_info_of(await _snapshots.take_snapshot(self, options))

    async def fork(self, count: int = 1, **options: Unpack[ForkOptions]) -> builtins.list[AsyncSandbox | SandboxError]:
        """Makes copies of it as it is now, each with its own name and address, by one snapshot whatever their number.

        Returns when all have started or failed: the results are in order, each a sandbox or the error of that one. It
        goes on as it was. What is secret in its memory is in theirs too.
        """
        return await _snapshots.fork(self, count, options)

    async def set_timeout(self, ttl: Seconds | None) -> None:
        """It is deleted this long from now, whatever was set before; None: never."""
        await self._set_end(
            None if ttl is None else _objects.shutdown_time(datetime.datetime.now(datetime.timezone.utc), ttl)
        )

    async def extend(self, by: Seconds) -> datetime.datetime:
        """It lives this much longer than was set; returns its end. `conflict` where no end is set."""
        end = (await self.info()).shutdown_at
        if end is None:
            raise SandboxError("conflict", f"sandbox {self.namespace}/{self.name} has no end to extend")
        later = _objects.shutdown_time(end, by)
        await self._set_end(later)
        return datetime.datetime.fromisoformat(later.replace("Z", "+00:00"))

    async def _set_end(self, end: str | None) -> None:
        ending = {"shutdownTime": end, "shutdownPolicy": None if end is None else "Delete"}
        if self.claim_name is not None:
            patch = {"metadata": {"uid": self._claim_uid}, "spec": {"lifecycle": ending}}
            await self._patch(patch, _kube.CLAIMS, self.claim_name)
        else:
            await self._patch(self._guarded(ending))

    async def delete(self, *, wait: bool = False) -> None:
        """Deletes it, or the claim that holds it. One that is gone already, or was replaced, is fine."""
        if self.claim_name is not None:
            await self._kube.delete(_kube.CLAIMS, self.namespace, self.claim_name, uid=self._claim_uid)
        else:
            await self._kube.delete(_kube.SANDBOXES, self.namespace, self.name, uid=self.uid or None)
        if wait:
            await _wait.Wait(self._kube, _kube.SANDBOXES, self.namespace, self.name, _verdict.judge_gone).within(
                120, "wait-timeout"
            )

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

    async def _change_services(self, change: Callable[[Services], Services]) -> None:
        await _services.change_services(self._kube, self.namespace, self.name, self.uid, change)

    async def _end_service(self, service: str) -> None:
        await self._client.unary(f"{_process_events.SERVICE}/EndService", {"name": service})

    async def _start(
        self, command: Command, options: SpawnOptions, *, extra: Mapping[str, Any], service: str | None = None
    ) -> AsyncProcess:
        if self._is_closed:
            raise SandboxError("closed", f"the handle of sandbox {self.name} was closed")
        rest: dict[str, Any] = dict(options)
        limit = rest.pop("request_timeout", _REQUEST_SECONDS)
        if rest.get("command_timeout") is not None:
            rest["command_timeout"] = _options.seconds_of(rest["command_timeout"])
        request = {
            "spec": {**_process_events.process_spec(command, **rest), **extra},
            "idempotencyKey": secrets.token_hex(8),
            **({} if service is None else {"service": service}),
        }
        stream = _process_events.EventStream(self._client, "Start", request, self._find_end)
        return await _async_process.AsyncProcess._open(
            self._client,
            stream,
            request_timeout=None if limit is None else _options.seconds_of(limit),
            command_timeout=rest.get("command_timeout"),
        )

    async def _abandon(self, process: AsyncProcess) -> None:
        """Ends the process of a call that was given up."""
        await _repeating.repeat_until_answered(process.kill)
        await process.detach()

    async def _find_end(self, since: datetime.datetime, kind: EndKind) -> ContainerEnd | None:
        return await _container_end.find_container_end(
            self._kube, namespace=self.namespace, name=self.name, uid=self.uid, since=since, kind=kind
        )

    async def _await_ready(self, known: KubeObject, ready_timeout: Seconds) -> None:
        is_local = self._connection.engine.is_local
        await _wait.await_ready(self._kube, known, ready_timeout=_options.seconds_of(ready_timeout), is_local=is_local)

    async def _patch(
        self, patch: Mapping[str, Any], resource: Resource | None = None, name: str | None = None
    ) -> KubeObject:
        try:
            return await self._kube.patch(resource or _kube.SANDBOXES, self.namespace, name or self.name, patch)
        except SandboxError as error:
            # Servers call another uid a conflict, or a field that cannot change.
            if error.code == "conflict" or (error.code == "invalid-argument" and "metadata.uid" in error.message):
                raise self._replaced() from error
            raise

    def _replaced(self) -> SandboxError:
        return SandboxError("not-found", f"sandbox {self.namespace}/{self.name} was replaced by another of its name")

    async def _container_name(self) -> str:
        spec = (await self.object())["spec"]["podTemplate"]["spec"]
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
