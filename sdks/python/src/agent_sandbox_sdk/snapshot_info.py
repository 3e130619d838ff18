"""What the engine says of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent_sandbox_sdk._kube import KubeObject
from agent_sandbox_sdk._wire import parse_time

SnapshotStateName = Literal["pending", "saving", "ready", "failed"]


@dataclass(frozen=True)
class SnapshotInfo:
    """A SandboxSnapshot, as the API describes it."""

    name: str
    namespace: str
    uid: str
    sandbox: str
    """Name of the sandbox that it was taken of."""
    state: SnapshotStateName
    """How far it has come; `ready` and `failed` are final."""
    reason: str
    """Why it is in that state, in one word, as its Ready condition says."""
    message: str
    created_at: datetime | None
    taken_at: datetime | None
    """The instant that the state is from; None before it is ready."""
    size_bytes: int | None
    """Size of everything that was saved."""
    memory_size_bytes: int | None
    """Size of the saved memory; None where only files were saved."""
    standstill_ms: int | None
    """How long the sandbox stood still while it was saved, in milliseconds."""
    parent: str | None
    """The snapshot that the sandbox itself was started from."""
    node: str | None


def snapshot_info_of(snapshot: KubeObject) -> SnapshotInfo:
    """Reads a SandboxSnapshot."""
    metadata, status, ready = snapshot["metadata"], snapshot.get("status") or {}, ready_of(snapshot)
    return SnapshotInfo(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        sandbox=snapshot["spec"]["sandboxName"],
        state=snapshot_state(snapshot),
        reason=ready.get("reason", ""),
        message=ready.get("message", ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        taken_at=parse_time(status.get("takenAt")),
        size_bytes=status.get("sizeBytes"),
        memory_size_bytes=status.get("memorySizeBytes"),
        standstill_ms=status.get("standstillMs"),
        parent=(status.get("parent") or {}).get("name"),
        node=status.get("nodeName"),
    )


def snapshot_state(snapshot: KubeObject) -> SnapshotStateName:
    """How far a snapshot has come, by its object alone."""
    ready = ready_of(snapshot)
    if ready.get("status") == "True":
        return "ready"
    if ready.get("reason") == "SnapshotFailed":
        return "failed"
    return "saving" if (snapshot.get("status") or {}).get("nodeName") else "pending"


def ready_of(snapshot: KubeObject) -> dict[str, Any]:
    """The Ready condition; empty before there is one."""
    conditions = (snapshot.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == "Ready"), {})
