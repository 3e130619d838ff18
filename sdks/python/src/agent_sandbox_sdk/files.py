"""Files of a sandbox."""

from __future__ import annotations

from agent_sandbox_sdk._deferred import _portal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import builtins
    import os
    from collections.abc import Generator, Iterable
    from typing import IO

    from agent_sandbox_sdk._async_files import AsyncFiles, SandboxPath
    from agent_sandbox_sdk.file_info import FileEvent, FileInfo, SearchMatch

    Content = str | bytes | IO[bytes] | Iterable[bytes]
    """What a file can be written from; text is written as UTF-8."""


class Files:
    """Reads, writes and arranges files."""

    def __init__(self, inner: AsyncFiles) -> None:
        self._inner = inner

    def read(self, path: SandboxPath) -> bytes:
        """A file's contents."""
        return _portal.call(self._inner.read(path))

    def read_text(self, path: SandboxPath, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file's contents as text."""
        return _portal.call(self._inner.read_text(path, encoding, errors))

    def read_stream(self, path: SandboxPath, *, start: int = 0, end: int | None = None) -> Generator[bytes, None, None]:
        """A file's contents as they come; `start` and `end` (exclusive) choose a part."""
        return _portal.iterate(self._inner.read_stream(path, start=start, end=end))

    def write(
        self,
        path: SandboxPath,
        content: Content,
        *,
        mode: int | None = None,
        append: bool = False,
        sync: bool = False,
        if_match: str | None = None,
    ) -> None:
        """Writes a file in one step: readers see the old contents or the new. Missing directories are made."""
        _portal.call(self._inner.write(path, content, mode=mode, append=append, sync=sync, if_match=if_match))

    def stat(self, path: SandboxPath, *, follow_symlinks: bool = True) -> FileInfo:
        """Describes what a path names; without following, a link itself."""
        return _portal.call(self._inner.stat(path, follow_symlinks=follow_symlinks))

    def exists(self, path: SandboxPath) -> bool:
        """Whether something is at that path."""
        return _portal.call(self._inner.exists(path))

    def list(self, path: SandboxPath = ".", *, depth: int = 1) -> builtins.list[FileInfo]:
        """Entries of a directory, by name; a depth above 1 descends."""
        return _portal.call(self._inner.list(path, depth=depth))

    def mkdir(self, path: SandboxPath, *, mode: int = 0o755, parents: bool = True) -> FileInfo:
        """Makes a directory; with `parents` also those above it, and one that is there already is fine."""
        return _portal.call(self._inner.mkdir(path, mode=mode, parents=parents))

    def move(self, source: SandboxPath, target: SandboxPath, *, overwrite: bool = False) -> FileInfo:
        """Moves; `file-exists` where something is at the target, unless `overwrite`."""
        return _portal.call(self._inner.move(source, target, overwrite=overwrite))

    def copy(
        self, source: SandboxPath, target: SandboxPath, *, overwrite: bool = False, recursive: bool = False
    ) -> FileInfo:
        """Copies a file, or with `recursive` a directory."""
        return _portal.call(self._inner.copy(source, target, overwrite=overwrite, recursive=recursive))

    def delete(self, path: SandboxPath, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Deletes; a link is deleted, not followed."""
        _portal.call(self._inner.delete(path, recursive=recursive, missing_ok=missing_ok))

    def set_attributes(
        self, path: SandboxPath, *, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> FileInfo:
        """Changes mode and owner."""
        return _portal.call(self._inner.set_attributes(path, mode=mode, uid=uid, gid=gid))

    def glob(self, pattern: str, path: SandboxPath = "") -> builtins.list[FileInfo]:
        """Paths that match `*`, `?`, `[a-z]`, `{a,b}` and `**`, below `path`."""
        return _portal.call(self._inner.glob(pattern, path))

    def search(
        self, pattern: str, path: SandboxPath = ".", *, literal: bool = False, ignore_case: bool = False
    ) -> builtins.list[SearchMatch]:
        """Lines that match a regular expression (RE2), in text files below a directory."""
        return _portal.call(self._inner.search(pattern, path, literal=literal, ignore_case=ignore_case))

    def checksum(self, path: SandboxPath, algorithm: str = "sha256") -> str:
        """A file's digest, in lower-case hexadecimal, computed in the sandbox."""
        return _portal.call(self._inner.checksum(path, algorithm))

    def watch(self, path: SandboxPath, *, recursive: bool = False) -> Generator[FileEvent, None, None]:
        """Changes below a directory. Returns when the watch is in place: all changes after that are reported."""
        return _portal.iterate(_portal.call(self._inner.watch(path, recursive=recursive)))

    def read_archive(self, path: SandboxPath) -> Generator[bytes, None, None]:
        """A tar archive of a directory's contents, or of one file under its own name."""
        return _portal.iterate(self._inner.read_archive(path))

    def write_archive(self, path: SandboxPath, archive: Content) -> None:
        """Unpacks a tar archive, plain or gzip, into a directory, which is made where it is missing."""
        _portal.call(self._inner.write_archive(path, archive))

    def upload(self, local: str | os.PathLike[str], remote: SandboxPath) -> None:
        """Copies a directory's contents, or one file under its own name, of this machine into a directory there."""
        _portal.call(self._inner.upload(local, remote))

    def download(self, remote: SandboxPath, local: str | os.PathLike[str]) -> None:
        """Copies a directory's contents, or one file under its own name, into a directory of this machine."""
        _portal.call(self._inner.download(remote, local))
