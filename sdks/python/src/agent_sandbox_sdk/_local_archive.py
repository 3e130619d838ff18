"""Packing and unpacking directories of this machine."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import IO

# Archives beyond this go to disk.
_MEMORY_BYTES_MAX = 16 * 2**20


def spool() -> IO[bytes]:
    """A temporary file that stays in memory while it is small."""
    return tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES_MAX)


def pack_local(path: Path) -> IO[bytes]:
    """A tar archive of a directory's contents, or of one file under its own name, ready to be read."""
    file = spool()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        if path.is_dir():
            for entry in sorted(path.iterdir()):
                archive.add(entry, arcname=entry.name)
        else:
            archive.add(path, arcname=path.name)
    file.seek(0)
    return file


def unpack_local(file: IO[bytes], path: Path) -> None:
    """Unpacks an archive that may come from an enemy: nothing leaves the directory, nothing special is made."""
    path.mkdir(parents=True, exist_ok=True)
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as archive:
        archive.extractall(path, filter="data")
