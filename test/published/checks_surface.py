"""What the SDKs offer, used as their documentation says."""

from __future__ import annotations

import io
from typing import Any

from session import Session, settle


class AsyncSink:
    """What asynchronous downloads are written to."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()

    async def write(self, chunk: bytes) -> int:
        """Keeps a chunk."""
        return self.kept.write(chunk)


async def run(s: Session) -> None:
    """Output, errors and exit codes of commands."""
    ran = await settle(s.sandbox.commands.run("echo hello"))
    s.same("output and code", [ran.stdout, ran.exit_code], ["hello\n", 0])
    failed = await settle(s.sandbox.commands.run("sh -c 'echo wrong >&2; exit 3'"))
    s.same("errors and code", [failed.stderr, failed.exit_code], ["wrong\n", 3])


async def files(s: Session) -> None:
    """Files are written, read, listed and looked for."""
    content = bytes(range(256)) * 4096
    await settle(s.sandbox.files.write("dir one/ü.bin", content))
    await settle(s.sandbox.files.write("plain.txt", "text"))
    s.holds("the same bytes come back", await settle(s.sandbox.files.read("dir one/ü.bin")) == content, "others")
    s.same("the same text comes back", await settle(s.sandbox.files.read("plain.txt")), b"text")
    names = {entry.name for entry in await settle(s.sandbox.files.list("."))}
    s.holds("both are listed", {"dir one", "plain.txt"} <= names, names)
    inner = [(entry.name, entry.size, entry.type) for entry in await settle(s.sandbox.files.list("dir one"))]
    s.same("a directory's entries", inner, [("ü.bin", len(content), "file")])
    s.same("a file exists", await settle(s.sandbox.files.exists("plain.txt")), True)
    s.same("a missing file does not", await settle(s.sandbox.files.exists("not there")), False)


async def streams(s: Session) -> None:
    """Files are streamed from and into file objects."""
    content = bytes(range(251)) * 20_000
    await settle(s.sandbox.files.write("streamed.bin", io.BytesIO(content)))
    sink = AsyncSink()
    target: Any = sink if s.options["isAsync"] else sink.kept
    s.same("bytes written", await settle(s.sandbox.files.read_to("streamed.bin", target)), len(content))
    s.holds("the same bytes come back", sink.kept.getvalue() == content, "others")


async def delete(s: Session) -> None:
    """A file is deleted by the daemon; the legacy runtime cannot, and the SDK says so."""
    await settle(s.sandbox.files.write("doomed.txt", "x"))
    if s.is_daemon:
        await settle(s.sandbox.files.delete("doomed.txt"))
        s.same("gone", await settle(s.sandbox.files.exists("doomed.txt")), False)
    else:
        await s.raises("refused", lambda: s.sandbox.files.delete("doomed.txt"), "NotImplementedError")


async def attach(s: Session) -> None:
    """A second client finds the sandbox by its claim."""
    other = s.new_client()
    again = await settle(other.get_sandbox(s.sandbox.claim_name))
    s.same("the same sandbox", again.sandbox_id, s.sandbox.sandbox_id)
    s.same("its status", (await settle(again.status()))[0], "SandboxReady")
    await settle(s.sandbox.files.write("shared.txt", "left by the first"))
    s.same("its files", await settle(again.files.read("shared.txt")), b"left by the first")
    await settle(again.close_connection())


CHECKS = {"run": run, "files": files, "streams": streams, "delete": delete, "attach": attach}
