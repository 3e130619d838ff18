from __future__ import annotations

from typing import Any

import pytest
from builders import a_sandbox, ready

from agent_sandbox_sdk._verdict import (
    Done,
    Failed,
    Verdict,
    Waiting,
    judge_claim,
    judge_pod,
    judge_sandbox,
    judge_suspended,
)


def outcome(verdict: Verdict) -> str:
    if isinstance(verdict, Failed):
        return verdict.error.code
    return "done" if isinstance(verdict, Done) else "waiting"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "waiting"),
        (ready(), "done"),
        (ready(generation=0), "waiting"),
        (ready("False", "DependenciesNotReady"), "waiting"),
        (ready("False", "SandboxSuspended"), "waiting"),
        (ready("False", "PodFailed"), "sandbox-failed"),
        (ready("False", "SandboxExpired"), "sandbox-expired"),
        (ready("False", "InvalidConfiguration"), "invalid-argument"),
        (ready("False", "MultiplePods"), "sandbox-failed"),
    ],
)
def test_a_sandbox_is_judged_by_its_ready_condition(status: dict[str, Any], expected: str) -> None:
    assert outcome(judge_sandbox({**a_sandbox(), "status": status})) == expected


def test_a_failed_pod_whose_replacements_are_spent_is_not_waited_for() -> None:
    sandbox = {**a_sandbox(), "status": ready("False", "PodFailed")}
    sandbox["spec"]["podFailurePolicy"] = {"type": "Recreate"}
    assert outcome(judge_sandbox(sandbox)) == "sandbox-failed"


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("True", "PodFrozen", "done"),
        ("False", "PodFreezing", "waiting"),
        ("False", "SuspensionFailed", "suspension-failed"),
        ("False", "SuspensionStrategyNotAvailable", "unsupported"),
    ],
)
def test_a_sleep_is_judged_by_the_suspended_condition(status: str, reason: str, expected: str) -> None:
    condition = {"type": "Suspended", "status": status, "reason": reason, "message": "the disk is full"}
    assert outcome(judge_suspended({**a_sandbox(), "status": {"conditions": [condition]}})) == expected


def test_a_sandbox_that_goes_away_is_not_found() -> None:
    assert outcome(judge_sandbox(None)) == "not-found"
    assert outcome(judge_sandbox(a_sandbox(deletionTimestamp="2026-01-01T00:00:00Z"))) == "not-found"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("WarmPoolNotFound", "warm-pool-not-found"),
        ("TemplateNotFound", "template-not-found"),
        ("BindTimeout", "claim-failed"),
        ("ClaimExpired", "sandbox-expired"),
        ("WarmSandboxPending", "waiting"),
    ],
)
def test_a_claim_is_judged_by_its_reason(reason: str, expected: str) -> None:
    claim = {**a_sandbox(), "spec": {"warmPoolRef": {"name": "p"}}, "status": ready("False", reason)}
    assert outcome(judge_claim(claim)) == expected


def test_a_claim_is_done_with_its_sandbox() -> None:
    claim = {**a_sandbox(), "spec": {"warmPoolRef": {"name": "p"}}, "status": ready()}
    assert outcome(judge_claim(claim)) == "waiting"
    claim["status"]["sandbox"] = {"name": "s"}
    assert outcome(judge_claim(claim)) == "done"


def container(reason: str) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"image": "i", "state": {"waiting": {"reason": reason}}}]}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (None, "waiting"),
        (container("ContainerCreating"), "waiting"),
        (container("ErrImagePull"), "waiting"),
        (container("ImagePullBackOff"), "invalid-argument"),
        (container("CrashLoopBackOff"), "crash-loop"),
    ],
)
def test_a_pod_tells_why_it_does_not_start(pod: dict[str, Any] | None, expected: str) -> None:
    assert outcome(judge_pod(pod, is_unschedulable_final=True)) == expected


def test_a_full_machine_is_final_only_where_nobody_adds_nodes() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    pod = {"status": {"conditions": [condition]}}
    assert outcome(judge_pod(pod, is_unschedulable_final=True)) == "quota-exceeded"
    assert isinstance(judge_pod(pod, is_unschedulable_final=False), Waiting)
    condition["message"] = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    assert isinstance(judge_pod(pod, is_unschedulable_final=True), Waiting)
