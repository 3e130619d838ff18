"""The names that early write-ups use, on top of agent_sandbox_sdk."""

from agentic_sandbox_client.sandbox_client import SandboxClient, SandboxHandle

__all__ = ["SandboxClient", "SandboxHandle"]
