"""One TCP connection to a Pod's port through the API server's port-forward.

It speaks the WebSocket channels that every Kubernetes version serves: the first byte of a message names a stream, and
the first message of each stream begins with the port. The protocol has no half-close.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import secrets
import ssl
import struct
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

from agent_sandbox_sdk._kube import failure_of
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError

_PROTOCOL = "v4.channel.k8s.io"
_ACCEPT_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_DATA_CHANNEL, _ERROR_CHANNEL = 0, 1
# Larger than any frame an API server sends; a length beyond it is not a length.
_FRAME_BYTES_MAX = 64 * 2**20
# What API servers take in one frame without trouble.
_SEND_BYTES_MAX = 32 * 1024
# Beyond this the server is left to wait; it feels it through TCP.
_QUEUE_BYTES_MAX = 2**20
_CONNECT_SECONDS = 10.0


def encode_frame(kind: int, payload: bytes) -> bytes:
    """A client's frame: masked, as the protocol demands of clients."""
    length = len(payload)
    if length < 126:
        head = struct.pack(">BB", 0x80 | kind, 0x80 | length)
    elif length < 2**16:
        head = struct.pack(">BBH", 0x80 | kind, 0x80 | 126, length)
    else:
        head = struct.pack(">BBQ", 0x80 | kind, 0x80 | 127, length)
    mask = secrets.token_bytes(4)
    # Numbers of any length are what Python can XOR at once.
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big")


class ForwardedConnection:
    """The connection as a stream of bytes. Bound: 1 MiB that came and was not read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._is_over = False
        self._seen: set[int] = set()
        self._changed = asyncio.Condition()
        self._pump = asyncio.create_task(self._run())

    @classmethod
    async def open(cls, url: str, context: ssl.SSLContext, headers: Mapping[str, str]) -> ForwardedConnection:
        """Opens one; `url` is that of the Pod's subresource, with its query."""
        place = urlsplit(url)
        is_secure = place.scheme == "https"
        port = place.port or (443 if is_secure else 80)
        try:
            reader, writer = await within(
                asyncio.open_connection(place.hostname, port, ssl=context if is_secure else None), _CONNECT_SECONDS
            )
        except (OSError, asyncio.TimeoutError) as error:
            raise SandboxError("unavailable", f"cannot reach the API server at {place.netloc}: {error}") from error
        try:
            await _upgrade(reader, writer, f"{place.path}?{place.query}", {"host": place.netloc, **headers})
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer)

    @property
    def is_readable(self) -> bool:
        """Whether something came, or the end; on an idle connection both mean that it is of no more use."""
        return bool(self._chunks) or self._is_over

    async def read(self, size: int) -> bytes:
        """What came, at most `size`; empty at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._chunks or self._is_over)
            if not self._chunks:
                if self._error is not None:
                    raise self._error
                return b""
            chunk = self._chunks.popleft()
            if len(chunk) > size:
                self._chunks.appendleft(chunk[size:])
                chunk = chunk[:size]
            self._size -= len(chunk)
            self._changed.notify_all()
            return chunk

    async def write(self, data: bytes) -> None:
        """Sends bytes; returns when the connection has taken them."""
        for at in range(0, len(data), _SEND_BYTES_MAX):
            piece = bytes((_DATA_CHANNEL,)) + data[at : at + _SEND_BYTES_MAX]
            self._writer.write(encode_frame(_BINARY, piece))
            await self._writer.drain()

    async def close(self) -> None:
        """Ends it."""
        self._pump.cancel()
        with contextlib.suppress(OSError):
            self._writer.write(encode_frame(_CLOSE, b"\x03\xe8"))
            self._writer.close()

    async def _run(self) -> None:
        try:
            while (message := await self._next_message()) is not None:
                await self._take(message)
        except asyncio.IncompleteReadError:
            pass
        except (OSError, SandboxError) as error:
            self._error = error
        async with self._changed:
            self._is_over = True
            self._changed.notify_all()

    async def _take(self, message: bytes) -> None:
        channel, body = message[0], message[1:]
        if channel not in self._seen:
            self._seen.add(channel)
            body = body[2:]
        if not body:
            return
        if channel == _ERROR_CHANNEL:
            raise SandboxError("unavailable", body.decode("utf-8", "replace").strip())
        if channel == _DATA_CHANNEL:
            async with self._changed:
                self._chunks.append(body)
                self._size += len(body)
                self._changed.notify_all()
                await self._changed.wait_for(lambda: self._size <= _QUEUE_BYTES_MAX)

    async def _next_message(self) -> bytes | None:
        """Joins the frames of a message, and answers what the protocol asks in between; None at the end."""
        parts: list[bytes] = []
        while True:
            first, second = await self._reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", await self._reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", await self._reader.readexactly(8))
            if length > _FRAME_BYTES_MAX:
                raise SandboxError("protocol-error", f"the API server sent a frame of {length} bytes")
            payload = await self._reader.readexactly(length)
            kind = first & 0x0F
            if kind == _CLOSE:
                return None
            if kind == _PING:
                self._writer.write(encode_frame(_PONG, payload))
            elif kind != _PONG:
                parts.append(payload)
                if first & 0x80 and (message := b"".join(parts)):
                    return message


async def _upgrade(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, headers: Mapping[str, str]
) -> None:
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    sent = {
        **headers,
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        "sec-websocket-protocol": _PROTOCOL,
    }
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise SandboxError("connection-lost", f"the API server gave no answer: {error}") from error
    status_line, *rest = head.strip().split("\r\n")
    answered = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    status = int(status_line.split(" ")[1])
    if status != 101:
        body = await reader.read(int(answered.get("content-length", 0) or 0))
        raise failure_of("port-forward", status, body, answered)
    expected = base64.b64encode(hashlib.sha1((key + _ACCEPT_SUFFIX).encode()).digest()).decode()
    if answered.get("sec-websocket-accept") != expected:
        raise SandboxError("protocol-error", "the server's WebSocket answer does not match the request")
