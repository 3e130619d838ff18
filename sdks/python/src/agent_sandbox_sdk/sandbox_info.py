"""What the engine says of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent_sandbox_sdk._kube import KubeObject
from agent_sandbox_sdk._phase import PhaseName, sandbox_phase
from agent_sandbox_sdk._verdict import condition_of
from agent_sandbox_sdk._wire import parse_time

SandboxState = Literal["ready", "starting", "suspended", "crash-loop", "finished", "failed", "expired", "deleting"]

_STATES: dict[PhaseName, SandboxState] = {
    "starting": "starting",
    "restoring": "starting",
    "ready": "ready",
    "suspending": "suspended",
    "suspended": "suspended",
    "frozen": "suspended",
    "hibernated": "suspended",
    "archived": "suspended",
    "restore-failed": "failed",
    "failed": "failed",
    "crash-loop": "crash-loop",
    "finished": "finished",
    "expired": "expired",
    "deleting": "deleting",
}


@dataclass(frozen=True)
class SandboxInfo:
    """A Sandbox, as the API describes it."""

    name: str
    namespace: str
    uid: str
    state: SandboxState
    reason: str
    """Why it is in that state, in one word, as its Ready or CrashLoop condition says."""
    message: str
    image: str
    created_at: datetime | None
    shutdown_at: datetime | None
    """When it is deleted; None where it never is."""
    addresses: tuple[str, ...]
    node: str | None
    labels: dict[str, str]
    annotations: dict[str, str]
    conditions: tuple[dict[str, Any], ...]


def sandbox_info_of(sandbox: KubeObject) -> SandboxInfo:
    """Reads a Sandbox."""
    metadata, spec, status = sandbox["metadata"], sandbox.get("spec") or {}, sandbox.get("status") or {}
    state = _state_of(sandbox)
    told = condition_of(sandbox, "CrashLoop" if state == "crash-loop" else "Ready") or {}
    containers = ((spec.get("podTemplate") or {}).get("spec") or {}).get("containers") or [{}]
    return SandboxInfo(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        state=state,
        reason=told.get("reason", ""),
        message=told.get("message", ""),
        image=containers[0].get("image", ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        shutdown_at=parse_time(spec.get("shutdownTime")),
        addresses=tuple(status.get("podIPs") or ()),
        node=status.get("nodeName"),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        conditions=tuple(status.get("conditions") or ()),
    )


def _state_of(sandbox: KubeObject) -> SandboxState:
    found = sandbox_phase(sandbox)
    # A condition about an older spec says nothing about the change that was just made.
    return _STATES[found.phase] if found.is_observed or found.phase == "deleting" else "starting"
