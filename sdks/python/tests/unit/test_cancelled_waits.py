from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders import a_sandbox, ready

from agent_sandbox_sdk import SandboxError
from agent_sandbox_sdk._connection import Connection
from agent_sandbox_sdk._kube import KubeClient
from agent_sandbox_sdk._wait import await_ready
from agent_sandbox_sdk._within import within


async def test_a_result_in_the_round_of_the_cancellation_does_not_undo_it() -> None:
    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(result, 60))
    await asyncio.sleep(0)
    result.set_result("came just then")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_wait_that_is_cancelled_ends_what_it_waited_for() -> None:
    inner = asyncio.create_task(asyncio.sleep(60))
    waiting = asyncio.create_task(within(inner, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert inner.cancelled()


async def test_a_wait_that_takes_too_long_is_ended_and_says_so() -> None:
    inner = asyncio.create_task(asyncio.sleep(60))
    with pytest.raises(asyncio.TimeoutError):
        await within(inner, 0.01)
    assert inner.cancelled()


async def test_results_and_errors_pass_through() -> None:
    async def fail() -> None:
        raise SandboxError("not-found", "no such thing")

    assert await within(asyncio.sleep(0, "done"), 60) == "done"
    assert await within(asyncio.sleep(0, "done"), None) == "done"
    with pytest.raises(SandboxError):
        await within(fail(), 60)
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(cancelled, 60)


class Api:
    """Answers the look at the Pod some rounds after the Sandbox is ready; then nothing more comes."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.engine = SimpleNamespace(credentials=SimpleNamespace(server="https://api"))
        self.http = self
        self._pod_looked_at = asyncio.Event()
        self._ready = asyncio.Event()

    def authorization(self) -> dict[str, str]:
        return {}

    async def request(self, _method: str, url: str, **_options: Any) -> Any:
        if "/pods" in url:
            self._pod_looked_at.set()
            await self._ready.wait()
            for _ in range(self._rounds):
                await asyncio.sleep(0)
            return _answer({"metadata": {"name": "box", "resourceVersion": "7"}, "status": {}})
        return _answer(a_sandbox())

    @asynccontextmanager
    async def stream(self, _method: str, url: str, **_options: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(status_code=200, aiter_bytes=lambda: self._events("/pods" in url))

    async def _events(self, is_of_pod: bool) -> AsyncIterator[bytes]:
        if not is_of_pod:
            await self._pod_looked_at.wait()
            self._ready.set()
            yield json.dumps({"type": "MODIFIED", "object": {**a_sandbox(), "status": ready()}}).encode() + b"\n"
        await asyncio.Event().wait()


def _answer(body: object) -> Any:
    return SimpleNamespace(status_code=200, content=json.dumps(body).encode(), headers={})


# Some rounds of the loop lie between the answer about the Pod and the end of the wait: one of these meets each.
@pytest.mark.parametrize("rounds", range(8))
async def test_a_sandbox_that_is_ready_while_its_pod_is_looked_at_is_waited_for_no_longer(rounds: int) -> None:
    kube = KubeClient(cast(Connection, Api(rounds)))
    waiting = asyncio.create_task(await_ready(kube, a_sandbox(), ready_timeout=30, is_local=True))
    done, _ = await asyncio.wait({waiting}, timeout=5)
    assert done, "the wait for the watch of the Pod does not end"
    assert waiting.result()["status"] == ready()
