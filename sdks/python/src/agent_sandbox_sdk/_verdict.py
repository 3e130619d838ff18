"""Whether waiting for an object is over: pure functions of its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_sandbox_sdk._error_codes import ErrorCode
from agent_sandbox_sdk._kube import KubeObject
from agent_sandbox_sdk._phase import sandbox_phase
from agent_sandbox_sdk.errors import SandboxError, code_of_reason


@dataclass(frozen=True)
class Done:
    """What was waited for is there."""


@dataclass(frozen=True)
class Waiting:
    """Not yet."""

    why: str


@dataclass(frozen=True)
class Failed:
    """No waiting mends this."""

    error: SandboxError


Verdict = Done | Waiting | Failed

_CLAIM_ENDS = frozenset(
    (
        "TemplateNotFound",
        "WarmPoolNotFound",
        "EnvVarsInjectionRejected",
        "VolumeClaimTemplatesError",
        "InvalidConfiguration",
        "InvalidMetadata",
        "BindTimeout",
        "ClaimExpired",
        "SandboxExpired",
        "PodFailed",
        "PodSucceeded",
    )
)
# Reasons that tell of the user's mistake; a first failed pull may be the network's and is left out.
# What a scheduler says while a new volume is being bound: it passes, wherever the Pod may run.
_UNBOUND_VOLUMES = "unbound immediate PersistentVolumeClaims"
_CONTAINER_ENDS = frozenset(
    (
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    )
)


def condition_of(obj: KubeObject, kind: str) -> dict[str, Any] | None:
    """The condition of a type, if the controller has set it for the object as it is now."""
    for condition in (obj.get("status") or {}).get("conditions") or []:
        if condition.get("type") == kind:
            observed = condition.get("observedGeneration")
            # A condition about an older spec says nothing about the change that was just made.
            is_stale = observed is not None and observed < obj["metadata"].get("generation", 0)
            return None if is_stale else dict(condition)
    return None


def judge_sandbox(sandbox: KubeObject | None) -> Verdict:
    """Whether a Sandbox can be talked to."""
    if sandbox is None or sandbox["metadata"].get("deletionTimestamp"):
        return Failed(SandboxError("not-found", f"sandbox {_name(sandbox)} is gone"))
    state = sandbox_phase(sandbox)
    # A condition about an older spec says nothing about the change that was just made.
    if not state.is_observed:
        return Waiting("waiting for the controller")
    if state.phase == "ready":
        return Done()
    if state.is_terminal:
        code = code_of_reason(state.reason) or "sandbox-failed"
        return Failed(SandboxError(code, f"sandbox {_name(sandbox)} is not ready: {state.message}"))
    return Waiting(state.message)


def judge_claim(claim: KubeObject | None) -> Verdict:
    """Whether a claim has its sandbox."""
    if claim is None or claim["metadata"].get("deletionTimestamp"):
        return Failed(SandboxError("not-found", f"claim {_name(claim)} is gone"))
    ready = condition_of(claim, "Ready")
    if ready is None:
        return Waiting("waiting for the controller")
    bound = ((claim.get("status") or {}).get("sandbox") or {}).get("name")
    if ready["status"] == "True" and bound:
        return Done()
    if ready["reason"] in _CLAIM_ENDS:
        pool = claim["spec"]["warmPoolRef"]["name"]
        code = code_of_reason(ready["reason"]) or "claim-failed"
        return Failed(SandboxError(code, f"claim {_name(claim)} on pool '{pool}' failed: {ready.get('message', '')}"))
    return Waiting(ready.get("message", ""))


def judge_suspended(sandbox: KubeObject | None) -> Verdict:
    """Whether a Sandbox is asleep."""
    if sandbox is None:
        return Failed(SandboxError("not-found", "the sandbox was deleted meanwhile"))
    suspended = condition_of(sandbox, "Suspended")
    if suspended is not None and suspended["status"] == "True":
        return Done()
    if suspended is not None and suspended["reason"] == "SuspensionStrategyNotAvailable":
        return Failed(SandboxError("unsupported", suspended.get("message", "")))
    if suspended is not None and suspended["reason"] == "SuspensionFailed":
        return Failed(SandboxError("suspension-failed", suspended.get("message", "")))
    return Waiting("waiting for the controller" if suspended is None else suspended.get("message", ""))


def judge_gone(obj: KubeObject | None) -> Verdict:
    """Whether an object is deleted."""
    return Done() if obj is None else Waiting("it is being deleted")


def judge_pod(pod: KubeObject | None, *, is_unschedulable_final: bool) -> Verdict:
    """Whether a Pod shows why its Sandbox will not start; a Pod alone is never done."""
    if pod is None:
        return Waiting("the pod is being made")
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in _CONTAINER_ENDS:
            return _container_failed(container, reason, waiting.get("message") or reason)
        if reason and reason != "PodInitializing":
            return Waiting(f"{container.get('image', '')}: {reason}")
    if status.get("phase") == "Failed" and status.get("reason"):
        return _failed("sandbox-failed", f"{status['reason']}: {status.get('message', '')}")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            why = f"cannot be scheduled: {condition.get('message', '')}"
            is_final = is_unschedulable_final and _UNBOUND_VOLUMES not in why
            return _failed("quota-exceeded", why) if is_final else Waiting(why)
    return Waiting(f"pod is {status.get('phase', 'being made')}")


def _container_failed(container: dict[str, Any], reason: str, message: str) -> Failed:
    if "Image" in reason:
        return _failed("invalid-argument", f"image '{container.get('image', '')}' cannot be used: {message}")
    last = (container.get("lastState") or {}).get("terminated")
    ended = "" if last is None else f"; it exited with {last.get('exitCode')} {last.get('message', '')}".rstrip()
    code: ErrorCode = "crash-loop" if reason == "CrashLoopBackOff" else "sandbox-failed"
    return _failed(code, f"container cannot start: {message}{ended}")


def _failed(code: ErrorCode, message: str) -> Failed:
    return Failed(SandboxError(code, message))


def _name(obj: KubeObject | None) -> str:
    if obj is None:
        return ""
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
