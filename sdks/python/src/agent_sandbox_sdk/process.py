"""A running process."""

from __future__ import annotations

from agent_sandbox_sdk._deferred import _portal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import TracebackType

    from agent_sandbox_sdk._async_process import AsyncInputStream, AsyncProcess, InputSource, ProcessInfo, SignalScope
    from agent_sandbox_sdk._output_stream import AsyncOutputStream
    from agent_sandbox_sdk.result import ExitStatus


class InputStream:
    """Standard input of a process. A write returns when the process has taken the bytes."""

    def __init__(self, inner: AsyncInputStream) -> None:
        self._inner = inner

    def write(self, data: str | bytes) -> None:
        """Writes bytes, or text as UTF-8."""
        _portal.call(self._inner.write(data))

    def close(self) -> None:
        """Closes standard input behind what was written; on a terminal it types end-of-file."""
        _portal.call(self._inner.close())


class OutputStream:
    """Bytes of standard output or standard error, read once."""

    def __init__(self, inner: AsyncOutputStream) -> None:
        self._inner = inner

    def __iter__(self) -> Generator[bytes, None, None]:
        return _portal.iterate(self._inner.__aiter__())

    def read_chunk(self) -> bytes | None:
        """The next piece as it came, or None at the end."""
        return _portal.call(self._inner.read_chunk())

    def read(self) -> bytes:
        """The rest of the output."""
        return _portal.call(self._inner.read())

    def lines(self) -> Generator[str, None, None]:
        """The rest as lines of text without their ends."""
        return _portal.iterate(self._inner.lines())


class Process:
    """A process in a sandbox, in the manner of `subprocess.Popen`. It outlives the connection and this handle."""

    def __init__(self, inner: AsyncProcess) -> None:
        self._inner = inner
        self.stdin = InputStream(inner.stdin)
        self.stdout = OutputStream(inner.stdout)
        self.stderr = OutputStream(inner.stderr)

    @property
    def id(self) -> str:
        """16 hexadecimal digits; `sandbox.attach(id)` finds the process again, from anywhere."""
        return self._inner.id

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox."""
        return self._inner.pid

    @property
    def info(self) -> ProcessInfo:
        """How it was started."""
        return self._inner.info

    @property
    def dropped_bytes(self) -> int:
        """Bytes of output lost because the connection was away for too long."""
        return self._inner.dropped_bytes

    @property
    def exit_status(self) -> ExitStatus | None:
        """How it ended, or None while it is not known to have."""
        return self._inner.exit_status

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while the process is not known to have ended."""
        return self._inner.returncode

    def poll(self) -> int | None:
        """`returncode` under the name that `subprocess` gives it."""
        return self._inner.returncode

    def wait(self) -> ExitStatus:
        """Waits for the end of the process and of its output."""
        return _portal.call(self._inner.wait())

    def communicate(self, input: str | bytes | Iterable[bytes] | None = None) -> tuple[bytes, bytes]:
        """Feeds standard input, reads both streams to their end, and waits."""
        source: InputSource | None = input
        return _portal.call(self._inner.communicate(source))

    def send_signal(self, signal: str | int, *, scope: SignalScope = "tree") -> bool:
        """Sends a signal ("SIGTERM", "TERM" or 15); False when no process was left to get it."""
        return _portal.call(self._inner.send_signal(signal, scope=scope))

    def terminate(self) -> bool:
        """Asks the whole tree to end."""
        return _portal.call(self._inner.terminate())

    def kill(self) -> bool:
        """Ends the whole tree."""
        return _portal.call(self._inner.kill())

    def resize(self, cols: int, rows: int) -> None:
        """Tells a process with a terminal its window's size."""
        _portal.call(self._inner.resize(cols, rows))

    def detach(self) -> None:
        """Stops following; the process goes on."""
        _portal.call(self._inner.detach())

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _portal.call(self._inner.__aexit__(kind, error, trace))
