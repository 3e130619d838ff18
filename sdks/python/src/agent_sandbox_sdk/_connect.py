"""The Connect protocol as sandboxd serves it: with JSON bodies, but for streams of output."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from agent_sandbox_sdk._plane import DataPlane
from agent_sandbox_sdk._protobuf import MessageType, decode_message, encode_message
from agent_sandbox_sdk._within import within
from agent_sandbox_sdk.errors import SandboxError, code_of_connect, code_of_status

Message = dict[str, Any]

_HEADER = struct.Struct(">BI")
_COMPRESSED_FLAG = 1
_END_FLAG = 2
# Larger than any message sandboxd sends; a length beyond it is not a length.
_MESSAGE_BYTES_MAX = 64 * 2**20
_JSON_STREAM = "application/connect+json"
_BINARY_STREAM = "application/connect+proto"


def encode_envelope(body: bytes, flags: int = 0) -> bytes:
    """Frames one message of a stream."""
    return _HEADER.pack(flags, len(body)) + body


async def decode_envelopes(chunks: AsyncIterator[bytes]) -> AsyncGenerator[tuple[int, bytes], None]:
    """Cuts bytes into messages; raises `connection-lost` where they end inside one."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        at = 0
        while len(rest) - at >= _HEADER.size:
            flags, length = _HEADER.unpack_from(rest, at)
            if length > _MESSAGE_BYTES_MAX or flags & _COMPRESSED_FLAG:
                raise SandboxError("protocol-error", f"not a Connect stream: flags {flags}, length {length}")
            end = at + _HEADER.size + length
            if len(rest) < end:
                break
            with memoryview(rest) as view:
                body = bytes(view[at + _HEADER.size : end])
            yield flags, body
            at = end
        del rest[:at]
    if rest:
        raise SandboxError("connection-lost", f"the stream ended inside a message, {len(rest)} bytes into it")


class ConnectClient:
    """Calls sandboxd. `method` is `package.Service/Method`; 64-bit numbers travel as strings, bytes as base64."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def unary(self, method: str, message: Message, *, request_timeout: float | None = 120.0) -> Message:
        """One message each way."""
        try:
            return await within(self._unary(method, message), request_timeout)
        except asyncio.TimeoutError as error:
            text = f"{_name(method)} got no answer in {request_timeout} s"
            raise SandboxError("request-timeout", text) from error

    async def _unary(self, method: str, message: Message) -> Message:
        headers = {"content-type": "application/json", "connect-protocol-version": "1"}
        content = json.dumps(message).encode()
        async with self._plane.request("POST", f"/{method}", headers=headers, content=content) as response:
            body = await response.aread()
            if response.status_code != 200:
                raise _refusal(method, response.status_code, body, response.headers.get("x-request-id"))
            return _parse(method, body)

    async def stream(
        self, method: str, message: Message, *, types: tuple[MessageType, MessageType] | None = None
    ) -> AsyncGenerator[Message, None]:
        """One message out, many back. Ends normally only when the server said so.

        With the types of request and answer it travels in binary, without them in JSON.
        """
        kind = _JSON_STREAM if types is None else _BINARY_STREAM
        headers = {"content-type": kind, "connect-protocol-version": "1"}
        body = json.dumps(message).encode() if types is None else encode_message(types[0], message)
        content = encode_envelope(body)
        async with self._plane.request("POST", f"/{method}", headers=headers, content=content) as response:
            if response.status_code != 200:
                body = await response.aread()
                raise _refusal(method, response.status_code, body, response.headers.get("x-request-id"))
            is_binary = types is not None and response.headers.get("content-type") == _BINARY_STREAM
            async with aclosing(decode_envelopes(response.aiter_bytes())) as envelopes:
                async for flags, body in envelopes:
                    if flags & _END_FLAG == 0:
                        yield decode_message(types[1], body) if types and is_binary else _parse(method, body)
                        continue
                    # The end is JSON in either form.
                    end = _parse(method, body)
                    if end.get("error") is not None:
                        raise _failure(method, end["error"])
                    return
        raise SandboxError("connection-lost", f"{_name(method)}: the stream broke off")


def _name(method: str) -> str:
    return method.rsplit("/", 1)[-1]


def _parse(method: str, body: bytes) -> Message:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise SandboxError("protocol-error", f"{_name(method)}: the answer is not JSON") from error
    if not isinstance(parsed, dict):
        raise SandboxError("protocol-error", f"{_name(method)}: the answer is not an object")
    return parsed


def _refusal(method: str, status: int, body: bytes, request_id: str | None) -> SandboxError:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and isinstance(parsed.get("code"), str):
        return _failure(method, parsed, request_id)
    text = body.decode("utf-8", "replace").strip()[:500]
    # No daemon of ours, or one that is older than this call.
    code = "unsupported" if status == 404 else code_of_status(status)
    return SandboxError(code, f"{_name(method)}: the sandbox answered {status}: {text}", request_id=request_id)


def _failure(method: str, error: Message, request_id: str | None = None) -> SandboxError:
    word = str(error.get("code", "unknown"))
    # The daemon aborts a start whose caller went away; the reader of this error sees a broken connection.
    code = "connection-lost" if word == "canceled" else code_of_connect(word)
    return SandboxError(code, str(error.get("message") or f"{_name(method)} failed: {word}"), request_id=request_id)
