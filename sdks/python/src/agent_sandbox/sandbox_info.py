"""What the engine says of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from agent_sandbox._kube import KubeObject
from agent_sandbox._verdict import condition_of
from agent_sandbox._wire import parse_time

SandboxState = Literal["ready", "starting", "suspended", "finished", "failed", "expired", "deleting"]

_STATES: dict[str, SandboxState] = {
    "SandboxSuspended": "suspended",
    "SandboxExpired": "expired",
    "PodFailed": "failed",
    "PodSucceeded": "finished",
    "InvalidConfiguration": "failed",
    "MultiplePods": "failed",
}


@dataclass(frozen=True)
class SandboxInfo:
    """A Sandbox, as the API describes it."""

    name: str
    namespace: str
    uid: str
    state: SandboxState
    reason: str
    """Why it is in that state, in one word, as its Ready condition says."""
    message: str
    image: str
    created_at: datetime | None
    expires_at: datetime | None
    addresses: tuple[str, ...]
    node: str | None
    labels: dict[str, str]
    object: dict[str, Any] = field(repr=False, compare=False)
    """The whole object."""


def sandbox_info_of(sandbox: KubeObject) -> SandboxInfo:
    """Reads a Sandbox."""
    metadata, spec, status = sandbox["metadata"], sandbox.get("spec") or {}, sandbox.get("status") or {}
    ready = condition_of(sandbox, "Ready") or {}
    containers = ((spec.get("podTemplate") or {}).get("spec") or {}).get("containers") or [{}]
    return SandboxInfo(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        state=_state_of(sandbox, ready),
        reason=ready.get("reason", ""),
        message=ready.get("message", ""),
        image=containers[0].get("image", ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        expires_at=parse_time(spec.get("shutdownTime")),
        addresses=tuple(status.get("podIPs") or ()),
        node=status.get("nodeName"),
        labels=dict(metadata.get("labels") or {}),
        object=sandbox,
    )


def _state_of(sandbox: KubeObject, ready: dict[str, Any]) -> SandboxState:
    if sandbox["metadata"].get("deletionTimestamp"):
        return "deleting"
    if ready.get("status") == "True":
        return "ready"
    return _STATES.get(ready.get("reason", ""), "starting")
