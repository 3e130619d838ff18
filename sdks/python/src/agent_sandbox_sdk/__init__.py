"""Isolated, stateful Linux environments for agents."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agent_sandbox_sdk._async_files import AsyncFiles
    from agent_sandbox_sdk._async_process import AsyncProcess, ProcessInfo
    from agent_sandbox_sdk._async_sandbox import AsyncSandbox
    from agent_sandbox_sdk._daemon_status import OpenPort
    from agent_sandbox_sdk._http_answer import HttpAnswer
    from agent_sandbox_sdk.engine import Engine
    from agent_sandbox_sdk.errors import CommandError, ErrorCode, Limit, SandboxError
    from agent_sandbox_sdk.file_info import FileEvent, FileInfo, SearchMatch
    from agent_sandbox_sdk.files import Files
    from agent_sandbox_sdk.process import Process
    from agent_sandbox_sdk.result import ExitStatus, RunResult
    from agent_sandbox_sdk.sandbox import Sandbox
    from agent_sandbox_sdk.sandbox_info import SandboxInfo
    from agent_sandbox_sdk.snapshot_info import SnapshotInfo
    from agent_sandbox_sdk.volume import Volume

__all__ = [
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "CommandError",
    "Engine",
    "ErrorCode",
    "ExitStatus",
    "FileEvent",
    "FileInfo",
    "Files",
    "HttpAnswer",
    "Limit",
    "OpenPort",
    "Process",
    "ProcessInfo",
    "RunResult",
    "Sandbox",
    "SandboxError",
    "SandboxInfo",
    "SearchMatch",
    "SnapshotInfo",
    "Volume",
]

# Loaded on first use: an import must not cost what only calls need, an event loop above all.
_MODULE_OF = {
    "AsyncFiles": "_async_files",
    "AsyncProcess": "_async_process",
    "AsyncSandbox": "_async_sandbox",
    "CommandError": "errors",
    "RunResult": "result",
    "Engine": "engine",
    "ErrorCode": "_error_codes",
    "ExitStatus": "result",
    "FileEvent": "file_info",
    "FileInfo": "file_info",
    "Files": "files",
    "HttpAnswer": "_http_answer",
    "Limit": "errors",
    "OpenPort": "_daemon_status",
    "Process": "process",
    "ProcessInfo": "_async_process",
    "Sandbox": "sandbox",
    "SandboxError": "errors",
    "SandboxInfo": "sandbox_info",
    "SearchMatch": "file_info",
    "SnapshotInfo": "snapshot_info",
    "Volume": "volume",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
