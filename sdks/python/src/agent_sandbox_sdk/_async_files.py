"""Files of a sandbox, for code with an event loop."""

from __future__ import annotations

import asyncio
import base64
import builtins
import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, urlencode

from agent_sandbox_sdk._connect import ConnectClient, Message
from agent_sandbox_sdk._error_codes import ErrorCode
from agent_sandbox_sdk._plane import DataPlane
from agent_sandbox_sdk.errors import SandboxError, code_of_status
from agent_sandbox_sdk.file_info import FileEvent, FileInfo, SearchMatch, file_event_of, file_info_of, path_of

if TYPE_CHECKING:
    import httpx

SandboxPath = str | bytes | os.PathLike[str]
"""A path in the sandbox: absolute, or relative to its working directory.

What is not UTF-8 is named by bytes, or in text by lone surrogates, as `os.fsdecode` makes them and listings give them.
"""

FileContent = str | bytes | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""What a file can be written from; text is written as UTF-8."""

_SERVICE = "agentsandbox.v1.FileService"
_CHUNK_BYTES = 256 * 1024

# What the codes of plain requests mean when they are about files.
_FILE_CODES: dict[ErrorCode, ErrorCode] = {"already-exists": "file-exists", "quota-exceeded": "no-space"}


class AsyncFiles:
    """Reads, writes and arranges files."""

    def __init__(self, plane: DataPlane, client: ConnectClient) -> None:
        self._plane = plane
        self._client = client

    async def read(self, path: SandboxPath) -> bytes:
        """A file's contents."""
        return b"".join([chunk async for chunk in self.read_stream(path)])

    async def read_text(self, path: SandboxPath, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file's contents as text."""
        return (await self.read(path)).decode(encoding, errors)

    async def read_stream(
        self, path: SandboxPath, *, start: int = 0, end: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """A file's contents as they come; `start` and `end` (exclusive) choose a part."""
        headers = {} if start == 0 and end is None else {"range": f"bytes={start}-{'' if end is None else end - 1}"}
        async with self._plane.request("GET", _fs_path(path), headers=headers) as response:
            await _check(response, f"read {_shown(path)}")
            # A directory is answered with a listing; a file never has this type.
            if response.headers.get("content-type", "").startswith("application/json"):
                raise SandboxError("is-a-directory", f"{_shown(path)} is a directory")
            async for chunk in response.aiter_bytes():
                yield chunk

    async def write(
        self,
        path: SandboxPath,
        content: FileContent,
        *,
        mode: int | None = None,
        append: bool = False,
        sync: bool = False,
        if_match: str | None = None,
    ) -> None:
        """Writes a file in one step: readers see the old contents or the new. Missing directories are made."""
        query = {
            **({} if mode is None else {"mode": f"0{mode & 0o777:03o}"}),
            **({"append": "true"} if append else {}),
            **({"sync": "true"} if sync else {}),
        }
        headers = {"content-type": "application/octet-stream", **({} if if_match is None else {"if-match": if_match})}
        target = _fs_path(path, query)
        try:
            async with self._plane.request("PUT", target, headers=headers, content=_body(content)) as response:
                await _check(response, f"write {_shown(path)}")
        except SandboxError as error:
            # The daemon's answer does not say which argument was wrong.
            if error.code == "invalid-argument" and await self._is_directory(path):
                raise SandboxError("is-a-directory", f"{_shown(path)} is a directory") from error
            raise

    async def stat(self, path: SandboxPath, *, follow_symlinks: bool = True) -> FileInfo:
        """Describes what a path names; without following, a link itself."""
        return await self._file("Stat", {**_wire(path), "noFollow": not follow_symlinks})

    async def exists(self, path: SandboxPath) -> bool:
        """Whether something is at that path."""
        try:
            await self.stat(path)
        except SandboxError as error:
            if error.code == "not-found":
                return False
            raise
        return True

    async def list(self, path: SandboxPath = ".", *, depth: int = 1) -> builtins.list[FileInfo]:
        """Entries of a directory, by name; a depth above 1 descends."""
        return [entry async for entry in self._iterate(path, depth=depth)]

    async def _iterate(self, path: SandboxPath = ".", *, depth: int = 1) -> AsyncGenerator[FileInfo, None]:
        """Like `list`, page by page."""
        token = ""
        while True:
            page = await self._call("List", {**_wire(path), "depth": depth, "pageToken": token})
            for wire in page.get("files", []):
                yield file_info_of(wire)
            token = page.get("nextPageToken", "")
            if not token:
                return

    async def mkdir(self, path: SandboxPath, *, mode: int = 0o755, parents: bool = True) -> FileInfo:
        """Makes a directory; with `parents` also those above it, and one that is there already is fine."""
        return await self._file("MakeDir", {**_wire(path), "mode": mode, "parents": parents})

    async def move(self, source: SandboxPath, target: SandboxPath, *, overwrite: bool = False) -> FileInfo:
        """Moves; `file-exists` where something is at the target, unless `overwrite`."""
        return await self._file("Move", {**_wire(source, "from"), **_wire(target, "to"), "overwrite": overwrite})

    async def copy(
        self, source: SandboxPath, target: SandboxPath, *, overwrite: bool = False, recursive: bool = False
    ) -> FileInfo:
        """Copies a file, or with `recursive` a directory."""
        message = {**_wire(source, "from"), **_wire(target, "to"), "overwrite": overwrite, "recursive": recursive}
        return await self._file("Copy", message)

    async def delete(self, path: SandboxPath, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Deletes; a link is deleted, not followed."""
        await self._call("Remove", {**_wire(path), "recursive": recursive, "missingOk": missing_ok})

    async def set_attributes(
        self, path: SandboxPath, *, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> FileInfo:
        """Changes mode and owner."""
        wanted = {"mode": mode, "uid": uid, "gid": gid}
        changes = {key: value for key, value in wanted.items() if value is not None}
        return await self._file("SetAttributes", {**_wire(path), **changes})

    async def glob(self, pattern: str, path: SandboxPath = "") -> builtins.list[FileInfo]:
        """Paths that match `*`, `?`, `[a-z]`, `{a,b}` and `**`, below `path`."""
        answer = await self._call("Glob", {"pattern": pattern, **_wire(path)})
        return [file_info_of(wire) for wire in answer.get("files", [])]

    async def search(
        self, pattern: str, path: SandboxPath = ".", *, literal: bool = False, ignore_case: bool = False
    ) -> builtins.list[SearchMatch]:
        """Lines that match a regular expression (RE2), in text files below a directory."""
        message = {"pattern": pattern, **_wire(path), "literal": literal, "ignoreCase": ignore_case}
        found = []
        with _as_file_error():
            async for event in self._client.stream(f"{_SERVICE}/Search", message):
                if "match" in event:
                    wire = event["match"]
                    position = (int(wire.get("line", 0)), int(wire.get("column", 0)))
                    found.append(SearchMatch(path_of(wire), *position, wire.get("text", "")))
        return found

    async def checksum(self, path: SandboxPath, algorithm: str = "sha256") -> str:
        """A file's digest, in lower-case hexadecimal, computed in the sandbox."""
        answer = await self._call("Checksum", {**_wire(path), "algorithm": algorithm})
        return str(answer.get("digest", ""))

    async def watch(self, path: SandboxPath, *, recursive: bool = False) -> AsyncGenerator[FileEvent, None]:
        """Changes below a directory. Returns when the watch is in place: all changes after that are reported."""
        events = self._client.stream(f"{_SERVICE}/Watch", {**_wire(path), "recursive": recursive})
        with _as_file_error():
            await anext(events)
        return _file_events(events)

    async def upload(self, local: str | os.PathLike[str], remote: SandboxPath) -> None:
        """Copies a directory's contents, or one file under its own name, of this machine into a directory there."""
        # tarfile is slow to load, and few programs move directories.
        from agent_sandbox_sdk._local_archive import pack_local

        archive = await asyncio.to_thread(pack_local, Path(local))
        with archive:
            await self.write_archive(remote, archive)

    async def download(self, remote: SandboxPath, local: str | os.PathLike[str]) -> None:
        """Copies a directory's contents, or one file under its own name, into a directory of this machine."""
        from agent_sandbox_sdk._local_archive import spool, unpack_local

        with spool() as file:
            async for chunk in self.read_archive(remote):
                file.write(chunk)
            await asyncio.to_thread(unpack_local, file, Path(local))

    async def read_archive(self, path: SandboxPath) -> AsyncGenerator[bytes, None]:
        """A tar archive of a directory's contents, or of one file under its own name."""
        async with self._plane.request("GET", _fs_path(path, {"format": "tar"})) as response:
            await _check(response, f"archive {_shown(path)}")
            async for chunk in response.aiter_bytes():
                yield chunk

    async def write_archive(self, path: SandboxPath, archive: FileContent) -> None:
        """Unpacks a tar archive, plain or gzip, into a directory, which is made where it is missing."""
        target, headers = _fs_path(path, {"extract": "tar"}), {"content-type": "application/x-tar"}
        async with self._plane.request("PUT", target, headers=headers, content=_body(archive)) as response:
            await _check(response, f"unpack into {_shown(path)}")

    async def _is_directory(self, path: SandboxPath) -> bool:
        try:
            return (await self.stat(path)).type == "directory"
        except SandboxError:
            return False

    async def _file(self, method: str, message: Message) -> FileInfo:
        return file_info_of((await self._call(method, message)).get("file", {}))

    async def _call(self, method: str, message: Message) -> Message:
        with _as_file_error():
            return await self._client.unary(f"{_SERVICE}/{method}", message)


async def _file_events(events: AsyncIterator[Message]) -> AsyncGenerator[FileEvent, None]:
    async for wire in events:
        yield file_event_of(wire)


@contextlib.contextmanager
def _as_file_error() -> Generator[None, None, None]:
    try:
        yield
    except SandboxError as error:
        code = _FILE_CODES.get(error.code)
        if code is None:
            raise
        raise SandboxError(code, error.message, request_id=error.request_id) from error


async def _check(response: httpx.Response, what: str) -> None:
    """Raises what a refused request tells of: sandboxd's `{code, message}`, or the bare status."""
    if response.is_success:
        return
    text = (await response.aread()).decode("utf-8", "replace")
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the sandbox answered {response.status_code}"
    request_id = response.headers.get("x-request-id")
    raise SandboxError(code_of_status(response.status_code), f"{what}: {message}", request_id=request_id)


def _raw(path: SandboxPath) -> bytes:
    # Not os.fsencode: the sandbox is Linux with UTF-8 names, whatever this machine is.
    plain = os.fspath(path)
    return plain if isinstance(plain, bytes) else plain.encode("utf-8", "surrogateescape")


def _wire(path: SandboxPath, field: str = "path") -> dict[str, str]:
    """The field of a message that names a path: text, or the bytes where they are not UTF-8."""
    raw = _raw(path)
    try:
        return {field: raw.decode()}
    except UnicodeDecodeError:
        return {f"raw{field.capitalize()}": base64.b64encode(raw).decode()}


def _shown(path: SandboxPath) -> str:
    return _raw(path).decode("utf-8", "backslashreplace")


def _fs_path(path: SandboxPath, query: dict[str, str] | None = None) -> str:
    """The path below /v1/fs: one percent-encoded word, so that no dot or slash is ever read as part of the URL."""
    word = quote(_raw(path), safe="")
    if word in (".", ".."):
        word = word.replace(".", "%2E")
    return f"/v1/fs/{word}" + (f"?{urlencode(query)}" if query else "")


def _body(content: FileContent) -> bytes | AsyncIterator[bytes]:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    if isinstance(content, AsyncIterable):
        return content.__aiter__()
    return _chunks(content)


async def _chunks(content: IO[bytes] | Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    read = getattr(content, "read", None)
    if read is None:
        for chunk in content:
            yield chunk
        return
    # A file may be slow; reading it must not hold the event loop.
    while data := await asyncio.to_thread(read, _CHUNK_BYTES):
        yield data
