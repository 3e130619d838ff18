"""A wait with a time limit that a cancellation always ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(awaitable: Awaitable[T], seconds: float | None) -> T:
    """The result; raises `asyncio.TimeoutError` where it takes longer. Who is cancelled meanwhile gets no result.

    `asyncio.wait_for` before Python 3.12 returns the result where it comes in the same round of the loop as the
    cancellation, and the cancelled task runs on: a Pod was watched without end, and `create`, which waits for that
    watch to stop, never returned.
    """
    if seconds is None:
        return await awaitable
    inner = asyncio.ensure_future(awaitable)
    try:
        finished, _ = await asyncio.wait({inner}, timeout=seconds)
    except asyncio.CancelledError:
        await _end(inner)
        raise
    if finished:
        return inner.result()
    await _end(inner)
    if inner.cancelled():
        raise asyncio.TimeoutError
    # It came to its own end while it was being cancelled.
    return inner.result()


async def _end(inner: asyncio.Future[T]) -> None:
    inner.cancel()
    await asyncio.wait({inner})
    # Asked for, so that asyncio logs no failure that no caller awaits.
    if not inner.cancelled():
        inner.exception()
