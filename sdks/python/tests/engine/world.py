"""What the steps of one scenario share."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from cutting_proxy import CuttingProxy

from agent_sandbox_sdk import AsyncSandbox, Engine, Sandbox

Twin = Literal["sync", "async"]


@dataclass
class World:
    """Handles, processes and results by name; `call` hides which twin is tested."""

    engine: Engine
    twin: Twin
    run_id: str
    boxes: dict[str, Any] = field(default_factory=dict)
    processes: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    made: list[Any] = field(default_factory=list)
    proxy: CuttingProxy | None = None

    @property
    def handles(self) -> Any:
        """The class under test."""
        return Sandbox if self.twin == "sync" else AsyncSandbox

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Calls a method of either twin; a sync one in a thread, so that steps can run side by side."""
        if self.twin == "sync":
            return await asyncio.to_thread(function, *args, **options)
        answer = function(*args, **options)
        return await answer if isinstance(answer, Awaitable) else answer

    async def collect(self, function: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        """Everything that a method yields."""
        if self.twin == "sync":
            return await asyncio.to_thread(lambda: list(function(*args, **options)))
        answer = function(*args, **options)
        if inspect.isawaitable(answer):
            return list(await answer)
        return [item async for item in answer]

    async def proxied_engine(self) -> Engine:
        """The engine behind a proxy that can be cut."""
        if self.proxy is None:
            target = urlsplit(self.engine.router_url or "")
            self.proxy = CuttingProxy(str(target.hostname), int(target.port or 443))
        port = await self.proxy.start()
        return replace(self.engine, router_url=f"https://127.0.0.1:{port}")

    async def close(self) -> None:
        """Deletes what the scenario made."""
        for box in self.made:
            await self.call(box.delete)
            await self.call(box.close)
        if self.proxy is not None:
            await self.proxy.close()
