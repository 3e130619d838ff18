"""Reaching a sandbox without a router: every connection goes to its Pod through the API server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlencode

import httpcore
import httpx

from agent_sandbox_sdk._connection import Connection
from agent_sandbox_sdk._forward import ForwardedConnection
from agent_sandbox_sdk._kube import PODS, SANDBOXES, KubeClient
from agent_sandbox_sdk._phase import sandbox_phase
from agent_sandbox_sdk._wait import POD_NAME_ANNOTATION, await_ready
from agent_sandbox_sdk.errors import SandboxError

_READY_SECONDS = 180.0


class Tunnel:
    """Requests to the ports of one sandbox."""

    def __init__(self, connection: Connection, namespace: str, name: str, uid: str | None) -> None:
        transport = httpx.AsyncHTTPTransport(trust_env=False)
        # The transport has no option for where its connections come from; its pool has.
        transport._pool = httpcore.AsyncConnectionPool(
            max_connections=None,
            # Every request finds the Pod anew: a tunnel to one that is gone may never say so.
            max_keepalive_connections=0,
            network_backend=_Backend(connection, namespace, name, uid),
        )
        self._http = httpx.AsyncClient(transport=transport, trust_env=False, timeout=httpx.Timeout(None))

    async def send(
        self,
        method: str,
        path: str,
        port: int,
        headers: Mapping[str, str],
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx.Response:
        """Sends one request; the body of its answer is still to be read."""
        # The address only keeps connections to different ports apart.
        request = self._http.build_request(method, f"http://localhost:{port}{path}", headers=headers, content=content)
        return await self._http.send(request, stream=True)

    async def close(self) -> None:
        """Ends its connections."""
        await self._http.aclose()


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, connection: Connection, namespace: str, name: str, uid: str | None) -> None:
        self._connection = connection
        self._kube = KubeClient(connection)
        self._namespace = namespace
        self._name = name
        self._uid = uid
        self._ssl: ssl.SSLContext | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        pod = await self._find_pod()
        engine = self._connection.engine
        if self._ssl is None:
            self._ssl = engine.credentials.ssl_context()
        # Older kubelets read `port`; the documented parameter is `ports`.
        query = urlencode({"ports": port, "port": port})
        url = f"{engine.credentials.server}{PODS.path(self._namespace, pod)}/portforward?{query}"
        return _Stream(await ForwardedConnection.open(url, self._ssl, self._connection.authorization()))

    async def _find_pod(self) -> str:
        """The sandbox's Pod. One that sleeps is woken, as the router does for the traffic it sees."""
        found = await self._kube.get(SANDBOXES, self._namespace, self._name)
        where = f"sandbox {self._namespace}/{self._name}"
        if self._uid is not None and found["metadata"].get("uid") != self._uid:
            raise SandboxError("not-found", f"{where} was replaced by another of its name")
        state = sandbox_phase(found)
        if state.is_held:
            raise SandboxError("sandbox-held", f"{where} is suspended and traffic does not wake it")
        if state.phase != "ready":
            if state.wakes_on_traffic:
                now = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
                active = {"annotations": {"agent-sandbox.dev/last-activity-at": now}}
                found = await self._kube.patch(SANDBOXES, self._namespace, self._name, {"metadata": active})
            is_local = self._connection.engine.is_local
            found = await await_ready(self._kube, found, ready_timeout=_READY_SECONDS, is_local=is_local)
        return str((found["metadata"].get("annotations") or {}).get(POD_NAME_ANNOTATION, self._name))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: ForwardedConnection) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return await self._inner.read(max_bytes)
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            await self._inner.write(buffer)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.is_readable if info == "is_readable" else None
