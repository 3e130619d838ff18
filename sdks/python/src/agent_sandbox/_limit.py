"""Which limit ended a sandbox."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from agent_sandbox._kube import SANDBOXES, KubeClient
from agent_sandbox._wire import parse_time
from agent_sandbox.errors import SandboxError

if TYPE_CHECKING:
    from agent_sandbox.errors import Limit

# Conditions of a sandbox that was ended by one of its limits.
_LIMITS: tuple[Limit, ...] = ("OOMKilled", "PidLimitReached", "Evicted")
# The node reports an end within a second, then the controller writes it into the Sandbox: five looks span 1.2 s.
_LOOKS_MAX = 5
_PAUSE_SECONDS = 0.3
# Times on the wire are whole seconds of another machine's clock.
_CLOCK_SLACK = timedelta(seconds=5)


class LimitReached(NamedTuple):
    """A limit that ended a sandbox, and what its condition says."""

    limit: Limit
    message: str


async def limit_reached(
    kube: KubeClient, *, namespace: str, name: str, uid: str, since: datetime
) -> LimitReached | None:
    """The limit that ended a sandbox since a moment; None where none did, or the API cannot be asked."""
    for look in range(_LOOKS_MAX):
        if look > 0:
            await asyncio.sleep(_PAUSE_SECONDS)
        try:
            sandbox = await kube.get(SANDBOXES, namespace, name)
        except SandboxError:
            # The explanation of one failure is looked for: a second failure explains nothing.
            return None
        if sandbox["metadata"].get("uid") != uid:
            return None
        for condition in (sandbox.get("status") or {}).get("conditions") or []:
            limit = next((one for one in _LIMITS if one == condition.get("type")), None)
            changed = parse_time(condition.get("lastTransitionTime"))
            is_recent = changed is not None and changed + _CLOCK_SLACK >= since
            if limit is not None and condition.get("status") == "True" and is_recent:
                return LimitReached(limit, condition.get("message", ""))
    return None
