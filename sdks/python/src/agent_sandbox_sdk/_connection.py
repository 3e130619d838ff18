"""The HTTP connections to one engine, shared by all handles of one event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from agent_sandbox_sdk.engine import Engine

if TYPE_CHECKING:
    import httpx

# A peer that vanished without closing the connection is noticed after 15 s + 3 * 5 s.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        ]
        if hasattr(socket, "TCP_KEEPIDLE")
        else []
    ),
]

_CONNECT_SECONDS = 10.0


class Connection:
    """One HTTP client for the API server and the router of an engine. Closed with its last user."""

    def __init__(self, engine: Engine) -> None:
        import httpx

        self.engine = engine
        self.users = 0
        transport = httpx.AsyncHTTPTransport(
            verify=engine.credentials.ssl_context(),
            # Every stream holds a connection; a bound here would make the next call wait for a stream to end.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30),
            socket_options=_KEEPALIVE,
        )
        # trust_env=False: traffic to the engine must not take a detour through a proxy of the environment.
        self.http: httpx.AsyncClient = httpx.AsyncClient(
            transport=transport, trust_env=False, timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS)
        )

    def authorization(self) -> dict[str, str]:
        """The header that says who asks; empty where the certificate does."""
        token = self.engine.credentials.bearer()
        return {} if token is None else {"authorization": f"Bearer {token}"}

    async def release(self) -> None:
        """Gives up one use."""
        self.users -= 1
        if self.users == 0:
            _forget(self)
            await self.http.aclose()


_Connections = dict[Engine, Connection]
_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()


def acquire_connection(engine: Engine) -> Connection:
    """The connection of this event loop to the engine; `release` it."""
    of_loop = _connections.setdefault(asyncio.get_running_loop(), {})
    connection = of_loop.get(engine)
    if connection is None:
        connection = of_loop[engine] = Connection(engine)
    connection.users += 1
    return connection


def _forget(connection: Connection) -> None:
    for of_loop in _connections.values():
        if of_loop.get(connection.engine) is connection:
            del of_loop[connection.engine]
