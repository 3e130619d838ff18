"""An API server that knows one sandbox and forwards connections to its Pod."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
from typing import Any
from urllib.parse import urlsplit

from builders import a_sandbox, ready

from agent_sandbox_sdk._forward import _ACCEPT_SUFFIX


class ForwardingServer:
    """Forwards to the server at `target`; every message goes out in two frames with a ping between them."""

    def __init__(
        self, target: str, *, status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None
    ) -> None:
        self._target = urlsplit(target)
        self._sandbox = a_sandbox(annotations={"agents.x-k8s.io/pod-name": "box-pod"})
        self._sandbox["status"] = ready() if status is None else status
        self._sandbox["spec"].update(spec or {})
        self.forwards: list[str] = []
        self.url = ""

    async def __aenter__(self) -> ForwardingServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            if "/portforward?" in path:
                self.forwards.append(path)
                await self._forward(head, reader, writer)
                return
            body = json.dumps(self._sandbox).encode()
            answer = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(answer.encode() + b"connection: close\r\n\r\n" + body)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _forward(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert "\r\nauthorization: Bearer secret\r\n" in head
        key = next(line.split(": ")[1] for line in head.split("\r\n") if line.startswith("sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1((key + _ACCEPT_SUFFIX).encode()).digest()).decode()
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        port = struct.pack("<H", 49900)
        writer.write(_frame(0x82, b"\0" + port) + _frame(0x82, b"\1" + port))
        pod_reader, pod_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        outward = asyncio.create_task(_to_client(pod_reader, writer))
        try:
            await _to_pod(reader, pod_writer)
        finally:
            pod_writer.close()
            outward.cancel()


def _frame(first: int, payload: bytes) -> bytes:
    if len(payload) < 126:
        return struct.pack(">BB", first, len(payload)) + payload
    if len(payload) < 2**16:
        return struct.pack(">BBH", first, 126, len(payload)) + payload
    return struct.pack(">BBQ", first, 127, len(payload)) + payload


async def _to_client(pod: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
    while chunk := await pod.read(100_000):
        client.write(_frame(0x02, b"\0") + _frame(0x89, b"are you there") + _frame(0x80, chunk))
        await client.drain()
    # Closing it whole would take back what the client has not read yet.
    client.write_eof()


async def _to_pod(client: asyncio.StreamReader, pod: asyncio.StreamWriter) -> None:
    while True:
        first, second = await client.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", await client.readexactly(2))
        mask = await client.readexactly(4)
        masked = await client.readexactly(length)
        if first & 0x0F == 2:
            pod.write(bytes(byte ^ mask[at & 3] for at, byte in enumerate(masked))[1:])
