"""Runs the event loop that sync handles use, in a thread of its own.

So one implementation serves both twins, and sync calls also work inside a running event loop.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Coroutine, Generator
    from concurrent.futures import Future

T = TypeVar("T")

# Closing connections takes milliseconds; a program ends no later than this.
_END_SECONDS = 2.0


class _Portal:
    def __init__(self) -> None:
        # Loaded here: importing the SDK must not cost what only its use needs.
        import asyncio

        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self.thread = threading.Thread(target=self.loop.run_forever, name="agent-sandbox", daemon=True)
        self.thread.start()
        # What still runs when the program ends is ended in order, instead of being found unfinished.
        atexit.register(self._end)

    def _end(self) -> None:
        global _portal
        if self.pid != os.getpid():
            return
        # A call that comes even later gets a loop of its own.
        _portal = None
        import asyncio

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=_END_SECONDS)

        ending = asyncio.run_coroutine_threadsafe(cancel_all(), self.loop)
        with contextlib.suppress(Exception):
            ending.result(_END_SECONDS + 1)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1)


_portal: _Portal | None = None
_lock = threading.Lock()


def _running() -> asyncio.AbstractEventLoop:
    global _portal
    with _lock:
        # A fork copies the loop and not its thread.
        if _portal is None or _portal.pid != os.getpid():
            _portal = _Portal()
        return _portal.loop


class Call(Generic[T]):
    """A coroutine that runs in the loop's thread."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        from concurrent.futures import Future

        self._done: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None
        self._loop = _running()
        self._loop.call_soon_threadsafe(self._begin, coroutine)

    def result(self) -> T:
        """Waits for its end."""
        return self._done.result()

    def give_up(self) -> None:
        """Cancels it and waits until it has cleaned up: what it started must not go on unseen."""
        from concurrent.futures import wait

        from agent_sandbox_sdk._repeating import REPEAT_SECONDS

        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        # As long as the call may take to tell the sandbox, and a moment more.
        wait([self._done], REPEAT_SECONDS + 1)

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        import asyncio

        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._done.set_result(task.result())
        else:
            self._done.set_exception(error)


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end; an interrupt of the waiting thread cancels it and waits until it has given up."""
    running = Call(coroutine)
    try:
        return running.result()
    except (KeyboardInterrupt, SystemExit):
        # It reached this thread, not the coroutine.
        running.give_up()
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
        import asyncio

        asyncio.run_coroutine_threadsafe(generator.aclose(), _portal.loop)
        return
    call(generator.aclose())


async def _next(generator: AsyncGenerator[T, None]) -> T:
    return await generator.__anext__()
