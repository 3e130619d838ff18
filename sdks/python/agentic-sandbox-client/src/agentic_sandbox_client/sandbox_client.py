"""A client object that makes sandboxes."""

from __future__ import annotations

from agent_sandbox_sdk import Sandbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from typing_extensions import Unpack

    from agent_sandbox_sdk import RunResult
    from agent_sandbox_sdk.options import CallTarget, CreateOptions, RunOptions


class SandboxHandle(Sandbox):
    """A Sandbox whose `run` is also called `execute`."""

    def execute(self, command: str, **options: Unpack[RunOptions]) -> RunResult:
        """Runs a command in the sandbox's shell."""
        return self.run(command, **options)


class SandboxClient:
    """Makes and finds sandboxes on one engine; without arguments, the one that `agent_sandbox_sdk` finds by itself."""

    def __init__(self, **engine: Unpack[CallTarget]) -> None:
        self._engine = engine

    def create_sandbox(
        self, name: str | None = None, image: str | None = None, **options: Unpack[CreateOptions]
    ) -> SandboxHandle:
        """Makes a sandbox and waits until it is ready."""
        merged: CreateOptions = {**self._engine, **options}
        made = SandboxHandle.create(image, name=name, **merged)
        assert isinstance(made, SandboxHandle)
        return made

    def get_sandbox(self, name: str) -> SandboxHandle:
        """The sandbox of that name; raises `not-found`."""
        found = SandboxHandle.get(name, **self._engine)
        assert isinstance(found, SandboxHandle)
        return found

    def list_sandboxes(self) -> Generator[Sandbox, None, None]:
        """Every sandbox."""
        return SandboxHandle.list(**self._engine)

    def delete_sandbox(self, name: str) -> None:
        """Deletes the sandbox of that name."""
        with self.get_sandbox(name) as sandbox:
            sandbox.delete()

    def __enter__(self) -> SandboxClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held here; sandboxes end when they are deleted."""
