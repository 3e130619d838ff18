"""Objects and handles with defaults; a test states only what matters to it."""

from __future__ import annotations

import base64
import json
from typing import Any

from agent_sandbox_sdk import AsyncSandbox, Engine
from agent_sandbox_sdk._connect import encode_envelope
from agent_sandbox_sdk._connection import acquire_connection
from agent_sandbox_sdk._kubeconfig import Credentials


def an_engine(url: str) -> Engine:
    """An engine whose API server and router are one server."""
    return Engine(Credentials(url, token="secret"), url, is_local=True)


def a_sandbox(**metadata: Any) -> dict[str, Any]:
    """A Sandbox object."""
    return {
        "metadata": {"name": "box", "namespace": "default", "uid": "uid-1", "generation": 1, **metadata},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "sandbox", "image": "host"}]}}},
    }


def ready(
    status: str = "True", reason: str = "DependenciesReady", message: str = "", generation: int = 1
) -> dict[str, Any]:
    """The status with one Ready condition."""
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"conditions": [{**condition, "observedGeneration": generation}]}


def a_handle(url: str) -> AsyncSandbox:
    """A handle of a sandbox that is there; needs a running event loop."""
    return AsyncSandbox(acquire_connection(an_engine(url)), a_sandbox())


def event_stream(*events: dict[str, Any], end: bool = True) -> bytes:
    """A Connect stream of events."""
    framed = b"".join(encode_envelope(json.dumps(event).encode()) for event in events)
    return framed + (encode_envelope(b"{}", 2) if end else b"")


def started(process_id: str = "0123456789abcdef") -> dict[str, Any]:
    """The first event."""
    return {"started": {"id": process_id, "pid": 7}}


def output(text: str, offset: int, stream: str = "stdout") -> dict[str, Any]:
    """A piece of output."""
    return {stream: {"data": base64.b64encode(text.encode()).decode(), "offset": str(offset)}}


def exited(code: int = 0) -> dict[str, Any]:
    """The last event; protobuf's JSON leaves out what is zero."""
    return {"exit": {"code": code} if code else {}}
