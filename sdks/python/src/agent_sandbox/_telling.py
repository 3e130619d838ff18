"""What a caller who has given up still has to tell the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from agent_sandbox.errors import SandboxError

TELL_SECONDS = 5.0
"""Longer than a router takes to start again, short enough for somebody who has given up to wait for it."""

_PAUSE_FIRST_SECONDS = 0.05


async def tell_until_heard(tell: Callable[[], Awaitable[object]]) -> None:
    """Repeats what may be said twice until the sandbox has heard it, for five seconds at most.

    Shielded, because the caller may be cancelled again. Never raises a failure: whoever gave up a call gets that call's
    own reason, and that the sandbox could not be told is the connection's failure.
    """

    async def repeat() -> None:
        pause = _PAUSE_FIRST_SECONDS
        while True:
            try:
                await tell()
                return
            except SandboxError as error:
                if error.code != "connection-lost":
                    return
            await asyncio.sleep(pause)
            pause *= 2

    async def limited() -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(repeat(), TELL_SECONDS)

    await asyncio.shield(asyncio.ensure_future(limited()))
