"""Runs the event loop that sync handles use, in a thread of its own.

So one implementation serves both twins, and sync calls also work inside a running event loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class _Portal:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self.thread = threading.Thread(target=self.loop.run_forever, name="agent-sandbox", daemon=True)
        self.thread.start()


_portal: _Portal | None = None
_lock = threading.Lock()


def _running() -> asyncio.AbstractEventLoop:
    global _portal
    with _lock:
        # A fork copies the loop and not its thread.
        if _portal is None or _portal.pid != os.getpid():
            _portal = _Portal()
        return _portal.loop


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end; an interrupt of the waiting thread cancels it and waits until it has given up."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _running())
    try:
        return future.result()
    except BaseException:
        # An interrupt reached this thread, not the coroutine: what it started must not go on unseen.
        future.cancel()
        raise


def iterate(generator: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Reads an async generator from sync code; ending the iteration early ends it too."""
    try:
        while True:
            try:
                yield call(_next(generator))
            except StopAsyncIteration:
                return
    finally:
        _end(generator)


def _end(generator: AsyncGenerator[Any, None]) -> None:
    # At the end of the program the loop's thread has stopped already: waiting for it would never end.
    if sys.is_finalizing():
        return
    # The collector may find an iteration that was left half-way while it runs in the loop's own thread.
    if _portal is not None and _portal.thread is threading.current_thread():
        asyncio.run_coroutine_threadsafe(generator.aclose(), _portal.loop)
        return
    call(generator.aclose())


async def _next(generator: AsyncGenerator[T, None]) -> T:
    return await generator.__anext__()
