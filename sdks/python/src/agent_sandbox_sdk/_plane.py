"""The way to one sandbox: requests to its ports, through the router or, where none can be reached, the API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agent_sandbox_sdk._connection import Connection
from agent_sandbox_sdk._error_codes import ErrorCode
from agent_sandbox_sdk.errors import SandboxError, code_of_status

if TYPE_CHECKING:
    import httpx

    from agent_sandbox_sdk._tunnel import Tunnel

DAEMON_PORT = 49900
"""The port on which sandboxd serves."""

# What the router says of itself in `{"detail": ...}`, where it differs from what the bare status means.
_ROUTER_CODES: dict[int, ErrorCode] = {409: "sandbox-held", 410: "sandbox-expired", 503: "sandbox-not-ready"}

# A router that has not seen a new sandbox yet says 404; one that holds too many callers says 503 with Retry-After.
# Neither has passed the request on, so that it can be sent again.
_RETRY_PAUSE_SECONDS = 0.1
_UNKNOWN_RETRIES_MAX = 5


class DataPlane:
    """Sends requests to one sandbox. Which way they go is never seen by callers."""

    def __init__(self, connection: Connection, namespace: str, name: str, uid: str | None) -> None:
        self._connection = connection
        self._namespace = namespace
        self._name = name
        self._uid = uid
        self._tunnel: Tunnel | None = None
        self._has_router_answered = False

    @property
    def router_url(self) -> str:
        """Where the router is; raises `unsupported` where the engine has none."""
        url = self._connection.engine.router_url
        if url is None:
            message = "this engine has no router to make links; give router_url or AGENT_SANDBOX_ROUTER_URL"
            raise SandboxError("unsupported", message)
        return url.rstrip("/")

    async def close(self) -> None:
        """Ends the connections that are not shared with other handles."""
        if self._tunnel is not None:
            await self._tunnel.close()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        port: int = DAEMON_PORT,
        headers: Mapping[str, str] | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
        retry_seconds: float = 60.0,
    ) -> AsyncIterator[httpx.Response]:
        """Yields the answer of the sandbox, whatever its status; raises where the sandbox was not reached."""
        import httpx

        deadline = asyncio.get_running_loop().time() + retry_seconds
        unknown = 0
        while True:
            try:
                response = await self._send_somehow(method, path, port, headers, content)
            except httpx.TransportError as error:
                raise _lost(error) from error
            try:
                refusal = await self._refusal(response)
                if refusal is None:
                    try:
                        yield response
                    except httpx.TransportError as error:
                        raise _lost(error) from error
                    return
            finally:
                await response.aclose()
            unknown += refusal.code == "not-found"
            waits = refusal.code == "sandbox-not-ready" or (
                refusal.code == "not-found" and unknown <= _UNKNOWN_RETRIES_MAX
            )
            # A stream that was read cannot be sent again.
            is_repeatable = content is None or isinstance(content, bytes)
            if not waits or not is_repeatable or asyncio.get_running_loop().time() >= deadline:
                raise refusal
            await asyncio.sleep(_RETRY_PAUSE_SECONDS)

    async def _send_somehow(
        self,
        method: str,
        path: str,
        port: int,
        headers: Mapping[str, str] | None,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx.Response:
        import httpx

        if self._tunnel is None and self._connection.engine.router_url is not None:
            try:
                response = await self._send(method, path, port, headers, content)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                # Nothing was sent. A router that answered before is only away for a moment.
                if self._has_router_answered:
                    raise
            else:
                self._has_router_answered = True
                return response
        if self._tunnel is None:
            from agent_sandbox_sdk._tunnel import Tunnel

            self._tunnel = Tunnel(self._connection, self._namespace, self._name, self._uid)
        return await self._tunnel.send(method, path, port, headers or {}, content)

    async def _send(
        self,
        method: str,
        path: str,
        port: int,
        headers: Mapping[str, str] | None,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx.Response:
        http = self._connection.http
        addressed = {
            "x-sandbox-id": self._name,
            "x-sandbox-namespace": self._namespace,
            "x-sandbox-port": str(port),
            **({} if self._uid is None else {"x-sandbox-uid": self._uid}),
            **self._connection.authorization(),
            **(headers or {}),
        }
        request = http.build_request(method, self.router_url + path, headers=addressed, content=content)
        return await http.send(request, stream=True)

    async def _refusal(self, response: httpx.Response) -> SandboxError | None:
        """The router's own refusal, told from an answer of the sandbox by its form."""
        status = response.status_code
        if self._tunnel is not None:
            return None
        if status < 400 or not response.headers.get("content-type", "").startswith("application/json"):
            return None
        try:
            body = json.loads(await response.aread())
        except ValueError:
            return None
        if not isinstance(body, dict) or set(body) != {"detail"}:
            return None
        code = _ROUTER_CODES.get(status) or code_of_status(status)
        refusal = SandboxError(code, str(body["detail"]), request_id=response.headers.get("x-request-id"))
        # Of these the router passes nothing on, and of others only where it says so.
        refusal._is_unsent = status in (404, 503) or response.headers.get("x-sandbox-unsent") == "true"
        return refusal


def _lost(error: Exception) -> SandboxError:
    import httpx

    lost = SandboxError("connection-lost", f"the connection to the sandbox broke: {error or type(error).__name__}")
    lost._is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    return lost
