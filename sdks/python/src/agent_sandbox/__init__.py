"""Isolated, stateful Linux environments for agents."""

from agent_sandbox._async_files import AsyncFiles
from agent_sandbox._async_process import AsyncProcess, ProcessInfo
from agent_sandbox._async_sandbox import AsyncSandbox
from agent_sandbox._http_answer import HttpAnswer
from agent_sandbox._process_events import Output
from agent_sandbox.engine import Engine
from agent_sandbox.errors import CommandError, ErrorCode, SandboxError
from agent_sandbox.file_info import FileEvent, FileInfo, SearchMatch
from agent_sandbox.files import Files
from agent_sandbox.options import Volume
from agent_sandbox.process import Process
from agent_sandbox.result import CompletedCommand, ExitStatus
from agent_sandbox.sandbox import Sandbox
from agent_sandbox.sandbox_info import SandboxInfo

__all__ = [
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "CommandError",
    "CompletedCommand",
    "Engine",
    "ErrorCode",
    "ExitStatus",
    "FileEvent",
    "FileInfo",
    "Files",
    "HttpAnswer",
    "Output",
    "Process",
    "ProcessInfo",
    "Sandbox",
    "SandboxError",
    "SandboxInfo",
    "SearchMatch",
    "Volume",
]
