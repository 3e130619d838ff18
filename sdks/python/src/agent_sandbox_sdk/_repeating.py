"""Calls that go on after their caller has given up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError

REPEAT_SECONDS = 5.0
"""A router starts again within some two seconds; a caller that gave up waits no longer than this."""

_PAUSE_FIRST_SECONDS = 0.05


async def repeat_until_answered(call: Callable[[], Awaitable[object]]) -> None:
    """Repeats a call that is safe to repeat until the sandbox has answered it, for five seconds at most.

    Shielded, because the caller may be cancelled again. Raises no failure: the call that was given up raises its own,
    and an unreachable sandbox is the connection's failure.
    """

    async def repeat() -> None:
        pause = _PAUSE_FIRST_SECONDS
        while True:
            try:
                await call()
                return
            except SandboxError as error:
                if error.code not in ("connection-lost", "unavailable"):
                    return
            await asyncio.sleep(pause)
            pause *= 2

    async def limited() -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await within(repeat(), REPEAT_SECONDS)

    await asyncio.shield(asyncio.ensure_future(limited()))
