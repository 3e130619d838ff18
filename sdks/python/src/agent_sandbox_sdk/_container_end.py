"""How the containers of a sandbox ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent_sandbox_sdk._kube import SANDBOXES, KubeClient
from agent_sandbox_sdk._wire import parse_time
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError

if TYPE_CHECKING:
    from agent_sandbox_sdk.errors import Limit

EndKind = Literal["lost", "gone"]
"""`lost`: the connection broke, perhaps for another reason. `gone`: the container that had the process has ended."""

# Conditions of a sandbox that was ended by one of its limits, and that of any end.
_LIMITS: tuple[Limit, ...] = ("OOMKilled", "PidLimitReached", "Evicted")
_ENDED = "ContainerEnded"
# The node reports an end within a second, then the controller writes it into the Sandbox: five looks span 1.2 s.
_LOOKS_MAX = 5
_PAUSE_SECONDS = 0.3
# An API server that does not answer within this explains nothing.
_LOOK_SECONDS = 2.0
# Times on the wire are whole seconds of another machine's clock. Where the container is known to have ended, clocks may
# differ; where it is not, an end before the process must not be taken for its own.
_CLOCK_SLACK: dict[EndKind, timedelta] = {"gone": timedelta(seconds=5), "lost": timedelta(seconds=1)}


class ContainerEnd(NamedTuple):
    """An end of a sandbox's containers: the limit that caused it, if one did, and what the condition says."""

    limit: Limit | None
    message: str


async def find_container_end(
    kube: KubeClient, *, namespace: str, name: str, uid: str, since: datetime, kind: EndKind
) -> ContainerEnd | None:
    """The end of the containers since a moment; None where there was none, or the API cannot be asked."""
    for look in range(_LOOKS_MAX if kind == "gone" else 1):
        if look > 0:
            await asyncio.sleep(_PAUSE_SECONDS)
        try:
            sandbox = await within(kube.get(SANDBOXES, namespace, name), _LOOK_SECONDS)
        except (SandboxError, asyncio.TimeoutError):
            # The explanation of one failure is looked for: a second failure explains nothing.
            return None
        if sandbox["metadata"].get("uid") != uid:
            return None
        end = _end_since((sandbox.get("status") or {}).get("conditions") or [], since, kind)
        if end is not None:
            return end
    return None


def _end_since(conditions: Sequence[Mapping[str, Any]], since: datetime, kind: EndKind) -> ContainerEnd | None:
    """A limit says more than the bare end, which is written together with it."""
    recent: dict[str, str] = {}
    for condition in conditions:
        changed = parse_time(condition.get("lastTransitionTime"))
        if condition.get("status") == "True" and changed is not None and changed + _CLOCK_SLACK[kind] >= since:
            recent[condition.get("type", "")] = condition.get("message", "")
    for limit in _LIMITS:
        if limit in recent:
            return ContainerEnd(limit, recent[limit])
    return ContainerEnd(None, recent[_ENDED]) if _ENDED in recent else None
