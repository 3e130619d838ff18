"""What the sandbox says of files."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from agent_sandbox_sdk._wire import parse_time

FileType = Literal["file", "directory", "symlink", "other"]
FileEventType = Literal["create", "write", "remove", "rename", "attributes", "overflow"]

_TYPES: dict[str, FileType] = {
    "FILE_TYPE_FILE": "file",
    "FILE_TYPE_DIRECTORY": "directory",
    "FILE_TYPE_SYMLINK": "symlink",
}


@dataclass(frozen=True)
class FileInfo:
    """A file, a directory or a link."""

    name: str
    path: str
    """Absolute path inside the sandbox; what is not UTF-8 is in lone surrogates, as `os.fsdecode` makes them."""
    type: FileType
    size_bytes: int
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    modified_at: datetime | None
    link_target: str | None
    etag: str
    """Changes whenever the contents may have; for `if_match`."""


@dataclass(frozen=True)
class FileEvent:
    """A change below a watched directory."""

    type: FileEventType
    """`overflow`: events were lost because the reader was slow; look again."""
    path: str
    old_path: str | None
    """The former path of a rename."""
    is_directory: bool


@dataclass(frozen=True)
class SearchMatch:
    """A line that matched."""

    path: str
    line: int
    column: int
    text: str


def path_of(wire: Mapping[str, Any], field: str = "path") -> str:
    """The path in a message; bytes that are not UTF-8 become lone surrogates, which every call takes back."""
    raw = wire.get(f"raw{field[0].upper()}{field[1:]}")
    return str(wire.get(field, "")) if not raw else b64decode(raw).decode("utf-8", "surrogateescape")


def file_info_of(wire: Mapping[str, Any]) -> FileInfo:
    """Reads the message agentsandbox.v1.FileInfo."""
    path = path_of(wire)
    return FileInfo(
        name=path.rsplit("/", 1)[-1] if wire.get("rawPath") else wire.get("name", ""),
        path=path,
        type=_TYPES.get(wire.get("type", ""), "other"),
        size_bytes=int(wire.get("sizeBytes", 0)),
        mode=int(wire.get("mode", 0)),
        uid=int(wire.get("uid", 0)),
        gid=int(wire.get("gid", 0)),
        modified_at=parse_time(wire.get("modifiedAt")),
        link_target=wire.get("linkTarget") or None,
        etag=wire.get("etag", ""),
    )


def file_event_of(wire: Mapping[str, Any]) -> FileEvent:
    """Reads the message agentsandbox.v1.WatchEvent."""
    word = str(wire.get("type", "")).removeprefix("WATCH_EVENT_TYPE_").lower()
    return FileEvent(
        type=cast(FileEventType, word),
        path=path_of(wire),
        old_path=path_of(wire, "oldPath") or None,
        is_directory=bool(wire.get("directory", False)),
    )
