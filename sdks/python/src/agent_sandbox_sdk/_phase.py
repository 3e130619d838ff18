"""Where a Sandbox is in its life, by its object alone; spec/sandbox-phase.golden.json is the table of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent_sandbox_sdk._kube import KubeObject
from agent_sandbox_sdk._wire import parse_time

PhaseName = Literal[
    "starting",
    "ready",
    "suspending",
    "suspended",
    "frozen",
    "hibernated",
    "archived",
    "restoring",
    "restore-failed",
    "crash-loop",
    "finished",
    "failed",
    "expired",
    "deleting",
]

_SLEEPING = frozenset(("suspending", "suspended", "frozen", "hibernated", "archived"))
_TERMINAL = frozenset(("restore-failed", "crash-loop", "finished", "failed", "expired", "deleting"))
# Reasons of the Ready condition that no waiting mends.
# A Pod that is replaced after a failure is never reported as failed.
_ENDS: dict[str, PhaseName] = {
    "SandboxExpired": "expired",
    "PodSucceeded": "finished",
    "PodFailed": "failed",
    "InvalidConfiguration": "failed",
    "InvalidMetadata": "failed",
    "MultiplePods": "failed",
    "RestoreFailed": "restore-failed",
}
# On a Sandbox: the id of the sleep, or the uid of the snapshot, whose memory is given up.
COLD_START = "agent-sandbox.dev/cold-start"
# How it sleeps, by the reason of the Suspended condition.
_SLEEPS: dict[str, PhaseName] = {
    "PodTerminating": "suspending",
    "PodFreezing": "suspending",
    "PodHibernating": "suspending",
    # Its processes run on, and its node tries again.
    "SuspensionFailed": "suspending",
    "PodFrozen": "frozen",
    "PodHibernated": "hibernated",
    "SandboxArchived": "archived",
}


@dataclass(frozen=True)
class SandboxPhase:
    """A phase and what follows from it."""

    phase: PhaseName
    reason: str
    message: str
    is_terminal: bool
    """Nothing makes it ready but a change of its spec or, in a crash loop, of what its program misses."""
    wakes_on_traffic: bool
    """It sleeps, or is about to, and traffic wakes it."""
    is_held: bool
    """It sleeps, and its owner does not let traffic wake it."""
    is_observed: bool
    """Its controller has seen the spec as it is."""


def sandbox_phase(sandbox: KubeObject) -> SandboxPhase:
    """The phase of a Sandbox; no clock is asked, so that programs whose clocks differ agree."""
    ready = _condition(sandbox, "Ready")
    is_observed = ready is not None and not _is_outdated(ready, sandbox)
    phase = _phase_name(sandbox, ready, is_observed=is_observed)
    is_asleep = phase in _SLEEPING
    told = (_crash_loop(sandbox) if phase == "crash-loop" else ready) or {}
    return SandboxPhase(
        phase=phase,
        reason=told.get("reason", ""),
        message=told.get("message", ""),
        is_terminal=phase in _TERMINAL,
        wakes_on_traffic=is_asleep and _wakes(sandbox),
        is_held=is_asleep and not _wakes(sandbox),
        is_observed=is_observed,
    )


def _phase_name(sandbox: KubeObject, ready: dict[str, Any] | None, *, is_observed: bool) -> PhaseName:
    if sandbox["metadata"].get("deletionTimestamp"):
        return "deleting"
    wakes = _wakes(sandbox)
    reason = (ready or {}).get("reason", "")
    if ready is not None and ready.get("status") == "True":
        # One that traffic does not wake serves until its Pod goes.
        return "suspending" if wakes and _is_being_suspended(sandbox, ready) else "ready"
    if is_observed and reason in _ENDS and not (reason == "RestoreFailed" and _is_memory_given_up(sandbox)):
        return _ENDS[reason]
    # A suspension that its user has ended since is over; one that traffic ends is not before the controller says so.
    is_said_asleep = reason == "SandboxSuspended" and (is_observed or wakes)
    if _spec(sandbox).get("operatingMode") == "Suspended" or is_said_asleep:
        return _SLEEPS.get((_condition(sandbox, "Suspended") or {}).get("reason", ""), "suspended")
    if reason == "SandboxRestoring":
        return "restoring"
    return "crash-loop" if is_observed and _crash_loop(sandbox) is not None else "starting"


def _is_memory_given_up(sandbox: KubeObject) -> bool:
    """Its user lets it start without the memory that was saved; what its controller says of that memory is over."""
    saved = saved_memory(sandbox)
    given_up = (sandbox["metadata"].get("annotations") or {}).get(COLD_START)
    return saved is not None and given_up == saved


def saved_memory(sandbox: KubeObject) -> str | None:
    """Names the memory that it has to wake from: its sleep, or the snapshot that it has not started from yet."""
    status = sandbox.get("status") or {}
    found = (status.get("sleep") or {}).get("id")
    source = status.get("restoredFrom") or {}
    if found is None and source.get("startedAt") is None:
        found = source.get("uid")
    return found if isinstance(found, str) else None


def _crash_loop(sandbox: KubeObject) -> dict[str, Any] | None:
    """The condition that a container ends again and again, where it is so and is about the spec as it is."""
    found = _condition(sandbox, "CrashLoop")
    is_so = found is not None and found.get("status") == "True" and not _is_outdated(found, sandbox)
    return found if is_so else None


def _is_being_suspended(sandbox: KubeObject, ready: dict[str, Any]) -> bool:
    """A user's suspension that no activity since has called off."""
    if _spec(sandbox).get("operatingMode") != "Suspended":
        return False
    # A Ready that is older than the suspension speaks of the Pod that it takes away.
    if _is_outdated(ready, sandbox):
        return True
    suspended = _time(sandbox, "agent-sandbox.dev/suspended-at")
    active = _time(sandbox, "agent-sandbox.dev/last-activity-at")
    return suspended is None or active is None or active <= suspended


def _wakes(sandbox: KubeObject) -> bool:
    """Unset, traffic wakes what falls asleep by itself."""
    spec = _spec(sandbox)
    default = "OnTraffic" if spec.get("autoSuspension") is not None else "Never"
    return bool(spec.get("wakePolicy", default) == "OnTraffic")


def _is_outdated(condition: dict[str, Any], sandbox: KubeObject) -> bool:
    observed = condition.get("observedGeneration")
    return observed is not None and observed < sandbox["metadata"].get("generation", 0)


def _condition(sandbox: KubeObject, kind: str) -> dict[str, Any] | None:
    conditions = (sandbox.get("status") or {}).get("conditions") or []
    return next((dict(condition) for condition in conditions if condition.get("type") == kind), None)


def _spec(sandbox: KubeObject) -> dict[str, Any]:
    return dict(sandbox.get("spec") or {})


def _time(sandbox: KubeObject, annotation: str) -> datetime | None:
    try:
        return parse_time((sandbox["metadata"].get("annotations") or {}).get(annotation))
    except ValueError:
        return None
