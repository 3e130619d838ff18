"""Waiting for objects, by watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from agent_sandbox_sdk._error_codes import ErrorCode
from agent_sandbox_sdk._kube import PODS, SANDBOXES, KubeClient, KubeObject, Resource
from agent_sandbox_sdk._verdict import Done, Failed, Verdict, judge_pod, judge_sandbox
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError

Judge = Callable[[KubeObject | None], Verdict]

# A sandbox that is not up by then waits for something that only its Pod can tell. Most are up before.
_POD_WATCH_AFTER_SECONDS = 0.25
POD_NAME_ANNOTATION = "agents.x-k8s.io/pod-name"
"""Names the Pod of a Sandbox where it is not the Sandbox's own name."""


class Wait:
    """One wait for one object, with what it saw last."""

    def __init__(self, kube: KubeClient, resource: Resource, namespace: str, name: str, judge: Judge) -> None:
        self._kube = kube
        self._resource = resource
        self._key = (namespace, name)
        self._judge = judge
        self.last = "waiting for the controller"

    async def run(self) -> KubeObject:
        """The state that ended the wait; raises what the judge found."""
        async with aclosing(self._kube.follow(self._resource, *self._key)) as states:
            async for state in states:
                verdict = self._judge(state)
                if isinstance(verdict, Done):
                    return state or {}
                if isinstance(verdict, Failed):
                    raise verdict.error
                self.last = verdict.why
        raise AssertionError("follow never ends")

    async def within(self, seconds: float | None, code: ErrorCode = "ready-timeout") -> KubeObject:
        """Like `run`; raises an error of that code when it takes longer."""
        try:
            return await within(self.run(), seconds)
        except asyncio.TimeoutError as error:
            raise self.timeout(seconds, code) from error

    def timeout(self, seconds: float | None, code: ErrorCode = "ready-timeout") -> SandboxError:
        """The error of a wait that took too long."""
        what = f"{self._resource.kind.lower()} {'/'.join(self._key)}"
        return SandboxError(code, f"{what} was not there within {seconds} s; last seen: {self.last}")


async def await_ready(
    kube: KubeClient, known: KubeObject, *, ready_timeout: float | None, is_local: bool
) -> KubeObject:
    """Waits until a Sandbox is ready; a Pod that shows why it never will ends the wait early."""
    metadata = known["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    wait = Wait(kube, SANDBOXES, namespace, name, judge_sandbox)
    pod_name = (metadata.get("annotations") or {}).get(POD_NAME_ANNOTATION, name)
    ready = asyncio.create_task(wait.within(ready_timeout))
    pod = asyncio.create_task(_watch_pod(kube, namespace, pod_name, is_local))
    try:
        await asyncio.wait({ready, pod}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done() and pod.result() is not None:
            reason = pod.result()
            assert reason is not None
            raise SandboxError(reason.code, f"sandbox {namespace}/{name}: {reason.message}") from reason
        return await ready
    finally:
        for task in (ready, pod):
            task.cancel()
            with suppress(asyncio.CancelledError, SandboxError):
                await task


async def _watch_pod(kube: KubeClient, namespace: str, name: str, is_local: bool) -> SandboxError | None:
    """What the Pod tells; None where it cannot be watched."""
    await asyncio.sleep(_POD_WATCH_AFTER_SECONDS)
    judge = Wait(kube, PODS, namespace, name, lambda pod: judge_pod(pod, is_unschedulable_final=is_local))
    try:
        await judge.run()
    except SandboxError as error:
        return None if error.code in ("permission-denied", "unauthenticated") else error
    return None
