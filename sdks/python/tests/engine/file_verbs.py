"""Verbs about files and ports."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from world import World

Step = dict[str, Any]


def _files(world: World, step: Step) -> Any:
    return world.boxes[step.get("box", "box")].files


def _path(step: Step) -> str | bytes:
    return base64.b64decode(step["pathBase64"]) if "pathBase64" in step else str(step["path"])


async def write_file(world: World, step: Step) -> dict[str, Any]:
    """Writes a file."""
    content: Any = step.get("text", "")
    if "base64" in step:
        content = base64.b64decode(step["base64"])
    elif "sizeBytes" in step:
        content = bytes(step["sizeBytes"])
    options = {key: step[key] for key in ("mode", "append") if key in step}
    await world.call(_files(world, step).write, _path(step), content, **options)
    return {}


async def read_file(world: World, step: Step) -> dict[str, Any]:
    """Reads a file."""
    content = await world.call(_files(world, step).read, _path(step))
    return {
        "text": content.decode("utf-8", "replace"),
        "base64": base64.b64encode(content).decode(),
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


async def stat(world: World, step: Step) -> dict[str, Any]:
    """Describes a path."""
    info = await world.call(_files(world, step).stat, step["path"])
    return {"type": info.type, "mode": info.mode, "size": info.size_bytes}


async def exists(world: World, step: Step) -> dict[str, Any]:
    """Whether a path names something."""
    return {"exists": await world.call(_files(world, step).exists, step["path"])}


async def list_files(world: World, step: Step) -> dict[str, Any]:
    """Names in a directory."""
    found = await world.call(_files(world, step).list, step["path"], depth=step.get("depth", 1))
    shown = (info.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for info in found)
    return {"names": sorted(shown)}


async def remove_listed(world: World, step: Step) -> dict[str, Any]:
    """Describes and removes what a listing names, by the path that it gives."""
    files = _files(world, step)
    for info in await world.call(files.list, step["path"]):
        await world.call(files.stat, info.path)
        await world.call(files.delete, info.path)
    return {}


async def glob(world: World, step: Step) -> dict[str, Any]:
    """Names that match."""
    found = await world.call(_files(world, step).glob, step["pattern"], step["path"])
    return {"names": sorted(info.name for info in found)}


async def checksum(world: World, step: Step) -> dict[str, Any]:
    """A digest computed inside."""
    return {"digest": await world.call(_files(world, step).checksum, step["path"])}


async def mkdir(world: World, step: Step) -> dict[str, Any]:
    """Makes a directory."""
    await world.call(_files(world, step).mkdir, step["path"], parents=step.get("parents", True))
    return {}


async def move(world: World, step: Step) -> dict[str, Any]:
    """Moves."""
    await world.call(_files(world, step).move, step["path"], step["to"], overwrite=step.get("overwrite", False))
    return {}


async def copy(world: World, step: Step) -> dict[str, Any]:
    """Copies."""
    await world.call(_files(world, step).copy, step["path"], step["to"])
    return {}


async def remove(world: World, step: Step) -> dict[str, Any]:
    """Removes."""
    options = {"recursive": step.get("recursive", False), "missing_ok": step.get("missingOk", False)}
    await world.call(_files(world, step).delete, step["path"], **options)
    return {}


async def watch_file(world: World, step: Step) -> dict[str, Any]:
    """Watches a directory, writes a file in it, and looks for it among the events."""
    files, path = _files(world, step), str(step["path"])
    events = await world.call(files.watch, str(Path(path).parent))
    await world.call(files.write, path, "watched")

    async def look() -> bool:
        while True:
            event = await (asyncio.to_thread(next, events) if world.twin == "sync" else anext(events))
            if event.path == path:
                return True

    seen = await asyncio.wait_for(look(), 10)
    await world.call(events.close if world.twin == "sync" else events.aclose)
    return {"seen": seen}


async def round_trip(world: World, step: Step) -> dict[str, Any]:
    """Uploads a tree and downloads it again."""
    files = _files(world, step)
    with tempfile.TemporaryDirectory() as scratch:
        there, back = Path(scratch, "there"), Path(scratch, "back")
        _write_tree(there, step["files"])
        await world.call(files.upload, there, step["path"])
        await world.call(files.download, step["path"], back)
        return {"files": _read_tree(back)}


def _write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _read_tree(root: Path) -> dict[str, str]:
    return {str(file.relative_to(root)): file.read_text() for file in root.rglob("*") if file.is_file()}


async def fetch(world: World, step: Step) -> dict[str, Any]:
    """Asks a port."""
    box = world.boxes[step.get("box", "box")]
    options = {key: step[key] for key in ("method",) if key in step}
    answer = await world.call(box.fetch, step["port"], step["path"], content=step.get("body"), **options)
    return {"status": answer.status, "text": answer.text}


FILE_VERBS = {
    "write-file": write_file,
    "read-file": read_file,
    "stat": stat,
    "exists": exists,
    "list-files": list_files,
    "remove-listed": remove_listed,
    "glob": glob,
    "checksum": checksum,
    "mkdir": mkdir,
    "move": move,
    "copy": copy,
    "remove": remove,
    "watch-file": watch_file,
    "round-trip": round_trip,
    "fetch": fetch,
}
