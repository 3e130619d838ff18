"""One output stream of a process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

# With a reader, the sandbox is asked to wait beyond this; without one, the oldest output is let go.
_QUEUE_BYTES_MAX = 4 * 2**20


class AsyncOutputStream:
    """Bytes of standard output or standard error, read once.

    Bound: 4 MiB. A full queue holds the process back while somebody reads; a stream that nobody reads keeps its last
    bytes and never holds anything back, so that `wait` needs no readers.
    """

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._readers = 0
        self._ended = False
        self._error: BaseException | None = None
        self._changed = asyncio.Condition()

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        return self._iterate()

    async def _iterate(self) -> AsyncGenerator[bytes, None]:
        self._readers += 1
        try:
            while (chunk := await self.read_chunk()) is not None:
                yield chunk
        finally:
            self._readers -= 1

    async def read_chunk(self) -> bytes | None:
        """The next piece as it came, or None at the end."""
        self._readers += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._chunks or self._ended)
                if not self._chunks:
                    if self._error is not None:
                        raise self._error
                    return None
                chunk = self._chunks.popleft()
                self._size -= len(chunk)
                self._changed.notify_all()
                return chunk
        finally:
            self._readers -= 1

    async def read(self) -> bytes:
        """The rest of the output."""
        return b"".join([chunk async for chunk in self])

    async def lines(self) -> AsyncGenerator[str, None]:
        """The rest as lines of text without their ends; what is not valid UTF-8 is replaced."""
        rest = b""
        async for chunk in self:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    async def push(self, chunk: bytes) -> None:
        """Adds output; returns when there is room for more."""
        async with self._changed:
            self._chunks.append(chunk)
            self._size += len(chunk)
            self._changed.notify_all()
            while self._size > _QUEUE_BYTES_MAX and not self._ended:
                if self._readers:
                    await self._changed.wait()
                elif len(self._chunks) > 1:
                    self._size -= len(self._chunks.popleft())
                else:
                    return

    async def finish(self, error: BaseException | None = None) -> None:
        """No more output comes; with an error, readers get it behind what came."""
        async with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()
