"""The handle of a sandbox."""

from __future__ import annotations

from agent_sandbox_sdk._deferred import _portal
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.files import Files
from agent_sandbox_sdk.process import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    import builtins
    from collections.abc import Generator, Iterable, Mapping
    from datetime import datetime
    from types import TracebackType
    from typing import Any

    from typing_extensions import Unpack

    from agent_sandbox_sdk._async_process import ProcessInfo
    from agent_sandbox_sdk._async_sandbox import AsyncSandbox
    from agent_sandbox_sdk._daemon_status import OpenPort
    from agent_sandbox_sdk._http_answer import HttpAnswer
    from agent_sandbox_sdk._opening import Opening
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


def _twin() -> type[AsyncSandbox]:
    # Loaded by the first call: an import must not cost what only calls need, an event loop above all.
    from agent_sandbox_sdk._async_sandbox import AsyncSandbox

    return AsyncSandbox


async def _awaited(opening: Opening[AsyncSandbox]) -> AsyncSandbox:
    return await opening


class Sandbox:
    """One sandbox. As a context manager it is deleted at the end if this handle made it, else only let go.

    Every method blocks; all of them also work inside a running event loop, where AsyncSandbox is the better choice.
    """

    def __init__(self, inner: AsyncSandbox) -> None:
        self._inner = inner
        self.files = Files(inner.files)

    @classmethod
    def create(cls, image: str | None = None, *, name: str | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """Makes a sandbox and waits until it is ready. Default image: `host`, this machine's own programs."""
        return cls(_portal.call(_awaited(_twin().create(image, name=name, **options))))

    @classmethod
    def claim(cls, pool: str, **options: Unpack[ClaimOptions]) -> Sandbox:
        """Takes a sandbox from a warm pool."""
        return cls(_portal.call(_awaited(_twin().claim(pool, **options))))

    @classmethod
    def open(cls, name: str, image: str | None = None, **options: Unpack[CreateOptions]) -> Sandbox:
        """The sandbox of that name; made where it is missing. Calling it again changes nothing."""
        return cls(_portal.call(_awaited(_twin().open(name, image, **options))))

    @classmethod
    def get(cls, name: str, **options: Unpack[CallTarget]) -> Sandbox:
        """The sandbox of that name; raises `not-found`."""
        return cls(_portal.call(_awaited(_twin().get(name, **options))))

    @classmethod
    def list(
        cls,
        *,
        label_selector: Mapping[str, str] | str | None = None,
        all_namespaces: bool = False,
        **options: Unpack[CallTarget],
    ) -> Generator[Sandbox, None, None]:
        """Every sandbox, page by page; `label_selector` is a mapping or a text. Unclaimed members of pools too."""
        found = _twin().list(label_selector=label_selector, all_namespaces=all_namespaces, **options)
        return (cls(inner) for inner in _portal.iterate(found))

    @classmethod
    def from_json(cls, text: str, **options: Unpack[EngineOptions]) -> Sandbox:
        """The handle that `to_json` wrote, here or elsewhere; raises `not-found` when that sandbox is gone."""
        return cls(_portal.call(_awaited(_twin().from_json(text, **options))))

    @classmethod
    def list_snapshots(cls, **options: Unpack[CallTarget]) -> builtins.list[SnapshotInfo]:
        """All snapshots of a namespace."""
        return _portal.call(_twin().list_snapshots(**options))

    @classmethod
    def delete_snapshot(cls, name: str, **options: Unpack[CallTarget]) -> None:
        """Deletes a snapshot; one that is not there is fine. Sandboxes that were started from it are not touched."""
        _portal.call(_twin().delete_snapshot(name, **options))

    @property
    def name(self) -> str:
        """The name of the Sandbox object."""
        return self._inner.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self._inner.namespace

    @property
    def uid(self) -> str:
        """Tells it from another of its name."""
        return self._inner.uid

    @property
    def claim_name(self) -> str | None:
        """The claim that holds it; None where there is none."""
        return self._inner.claim_name

    def to_json(self) -> str:
        """The handle as text, without credentials."""
        return self._inner.to_json()

    def run(
        self,
        command: Command,
        *,
        stdin: str | bytes | Iterable[bytes] | None = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Runs a command to its end: text in the sandbox's shell, a sequence as argv.

        A non-zero exit code is a result unless `check`; running out of `command_timeout` always raises. An interrupt
        kills the whole process tree. The callbacks run in another thread.
        """
        return _portal.call(self._inner.run(command, stdin=stdin, check=check, **options))

    def spawn(self, command: Command, **options: Unpack[SpawnOptions]) -> Process:
        """Starts a process; returns when it runs. Its standard input is open."""
        return Process(_portal.call(self._inner.spawn(command, **options)))

    def pty(
        self, command: Command | None = None, *, cols: int = 80, rows: int = 24, **options: Unpack[SpawnOptions]
    ) -> Process:
        """Starts a process with a terminal; default a login shell."""
        return Process(_portal.call(self._inner.pty(command, cols=cols, rows=rows, **options)))

    def start_service(
        self,
        service: str,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        request_timeout: Seconds | None = 120,
    ) -> None:
        """Keeps a program running under a name: it is started again whenever it ends, and after a sleep.

        What ran under the name before is replaced; what it prints is in `logs`.
        """
        started = self._inner.start_service(
            service, command, env=env, cwd=cwd, user=user, request_timeout=request_timeout
        )
        _portal.call(started)

    def remove_service(self, service: str) -> None:
        """Ends a service for good. One that is not there is fine; a sleeping sandbox is woken."""
        _portal.call(self._inner.remove_service(service))

    def attach(self, process_id: str, *, from_offset: int = 0) -> Process:
        """Follows a process that was started before, here or elsewhere; from_offset leaves out what was seen."""
        return Process(_portal.call(self._inner.attach(process_id, from_offset=from_offset)))

    def processes(self, *, running_only: bool = False) -> builtins.list[ProcessInfo]:
        """Processes that run or are still remembered, oldest first."""
        return _portal.call(self._inner.processes(running_only=running_only))

    def fetch(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: bytes | str | None = None,
        request_timeout: Seconds | None = 120,
    ) -> HttpAnswer:
        """Sends an HTTP request to a port inside the sandbox; a sleeping sandbox is woken by it."""
        sent = self._inner.fetch(
            port, path, method=method, headers=headers, content=content, request_timeout=request_timeout
        )
        return _portal.call(sent)

    def url(self, port: int, *, ttl: Seconds = 3600) -> str:
        """A link to a port that anything can open without credentials, until `ttl` has passed."""
        return _portal.call(self._inner.url(port, ttl=ttl))

    @property
    def last_seen(self) -> SandboxInfo:
        """What the handle knew when it was made; costs nothing."""
        return self._inner.last_seen

    def object(self) -> dict[str, Any]:
        """The Sandbox object as it is now; `not-found` also where another one has its name."""
        return _portal.call(self._inner.object())

    def info(self) -> SandboxInfo:
        """What the engine says of it. Asking does not keep a sandbox awake."""
        return _portal.call(self._inner.info())

    def ports(self) -> builtins.list[OpenPort]:
        """What listens in the sandbox, in ascending order; a sleeping sandbox is woken by it."""
        return _portal.call(self._inner.ports())

    def metrics(self) -> dict[str, float]:
        """Figures of the daemon in the sandbox, by name; a sleeping sandbox is woken by it."""
        return _portal.call(self._inner.metrics())

    def logs(self, **options: Unpack[LogOptions]) -> Generator[bytes, None, None]:
        """What the sandbox's own process and those started with `log` printed, in pieces as they come."""
        return _portal.iterate(self._inner.logs(**options))

    def ready(self, *, ready_timeout: Seconds = 180) -> None:
        """Waits until it is ready."""
        _portal.call(self._inner.ready(ready_timeout=ready_timeout))

    def wait_for(self, state: SandboxState, *, wait_timeout: Seconds = 180) -> SandboxInfo:
        """Waits until it is in a state, and returns what it is then; `not-found` where it was deleted or replaced."""
        return _portal.call(self._inner.wait_for(state, wait_timeout=wait_timeout))

    def suspend(self, *, hold: bool = False, wait_timeout: Seconds = 120) -> None:
        """Puts it to sleep and waits for that; traffic wakes it, unless `hold`."""
        _portal.call(self._inner.suspend(hold=hold, wait_timeout=wait_timeout))

    def resume(self, *, cold: bool = False, ready_timeout: Seconds = 180) -> None:
        """Wakes it and waits until it is ready; `cold` gives up saved memory and starts from its files."""
        _portal.call(self._inner.resume(cold=cold, ready_timeout=ready_timeout))

    def snapshot(self, **options: Unpack[SnapshotOptions]) -> SnapshotInfo:
        """Saves its files and, unless `memory` is False, its processes; returns when all of it is on disk.

        It goes on afterwards as it was, awake or asleep. `create` with `from_snapshot` starts from it.
        """
        return _portal.call(self._inner.snapshot(**options))

    def fork(self, count: int = 1, **options: Unpack[ForkOptions]) -> builtins.list[Sandbox | SandboxError]:
        """Makes copies of it as it is now, each with its own name and address, by one snapshot whatever their number.

        Returns when all have started or failed: the results are in order, each a sandbox or the error of that one. It
        goes on as it was. What is secret in its memory is in theirs too.
        """
        results = _portal.call(self._inner.fork(count, **options))
        return [result if isinstance(result, SandboxError) else type(self)(result) for result in results]

    def set_timeout(self, ttl: Seconds | None) -> None:
        """It is deleted this long from now, whatever was set before; None: never."""
        _portal.call(self._inner.set_timeout(ttl))

    def extend(self, by: Seconds) -> datetime:
        """It lives this much longer than was set; returns its end. `conflict` where no end is set."""
        return _portal.call(self._inner.extend(by))

    def delete(self, *, wait: bool = False) -> None:
        """Deletes it, or the claim that holds it. One that is gone already, or was replaced, is fine."""
        _portal.call(self._inner.delete(wait=wait))

    def close(self) -> None:
        """Lets go of the connections of this handle; the sandbox goes on."""
        _portal.call(self._inner.close())

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _portal.call(self._inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name}>"
