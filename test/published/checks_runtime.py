"""K26-K30: what the SDKs need of the legacy HTTP runtime."""

from __future__ import annotations

import asyncio
import time

from session import Session, settle


async def running(s: Session, words: str) -> int:
    """How many processes of the sandbox have these words in their command line."""
    text = await s.run("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null; true")
    return sum(line.startswith(words) for line in text.splitlines())


async def k26(s: Session) -> None:
    """A time limit kills the whole group and is told as a result."""
    wire = await s.wire()
    plain = wire.call("POST", "/execute", {"command": "echo hello"}).json()
    s.same("without it", [plain["stdout"], plain["stderr"], plain["exit_code"]], ["hello\n", "", 0])
    began = time.monotonic()
    command = {"command": "sh -c 'sleep 311 & sleep 311'", "timeout_seconds": 1}
    answer = wire.call("POST", "/execute", command)
    s.same("with it", [answer.status, answer.json()["timed_out"], answer.json()["exit_code"]], [200, True, 124])
    s.holds("inside 10 s of the limit", time.monotonic() - began < 11, time.monotonic() - began)
    s.holds("the group is gone", await s.becomes(lambda: nothing(s, "sleep 311")), "still running")
    if s.is_new:
        slow = await settle(s.sandbox.commands.run("sleep 30", command_timeout=1))
        s.same("in the SDK", [slow.timed_out, slow.exit_code], [True, 124])


async def nothing(s: Session, words: str) -> bool:
    """Whether no process has these words."""
    return await running(s, words) == 0


async def k27(s: Session) -> None:
    """Every spelling of a listing, and a health page that is none."""
    await settle(s.sandbox.files.write("sub dir/inner.txt", "x"))
    wire = await s.wire()
    for path in ("/list", "/list/", "/list/%2E", "/list/%2F"):
        answer = wire.call("GET", path)
        names = [entry["name"] for entry in answer.json() or []]
        s.holds(path, answer.status == 200 and "sub dir" in names, [answer.status, names])
    inner = wire.call("GET", "/list/sub%20dir").json()
    s.same("/list/sub%20dir", [entry["name"] for entry in inner], ["inner.txt"])
    health = wire.call("GET", "/")
    s.holds("GET / is no list", health.status == 200 and not isinstance(health.json(), list), health.body)


async def k28(s: Session) -> None:
    """Multipart names with directories, blanks and raw UTF-8, also chunked; entries with all fields."""
    wire = await s.wire()
    for name, chunked in (("up one/ä b.txt", False), ("up two/ö.txt", True)):
        body = (
            f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
            + b"content" * 500
            + b"\r\n--edge--\r\n"
        )
        headers = {"Content-Type": "multipart/form-data; boundary=edge"}
        s.same(f"upload of {name}", wire.call("POST", "/upload", body, headers=headers, chunked=chunked).status, 200)
        s.same(f"content of {name}", await settle(s.sandbox.files.read(name)), b"content" * 500)
    (entry,) = wire.call("GET", "/list/up%20one").json()
    s.same("fields", sorted(entry), ["mod_time", "name", "size", "type"])
    seen = [entry["name"], entry["size"], entry["type"], type(entry["mod_time"]).__name__]
    s.same("entry", seen, ["ä b.txt", 3500, "file", "float"])


async def k29(s: Session) -> None:
    """Missing is 404, escaping is 403, and the connection lives on."""
    wire = await s.wire()
    wire.call("GET", "/")
    before = wire.connection.sock
    for path, wanted in (
        ("/download/not%20there", 404),
        ("/list/not%20there", 404),
        ("/download/..%2F..%2Fetc%2Fpasswd", 403),
        ("/list/..%2F..", 403),
    ):
        s.same(path, wire.call("GET", path).status, wanted)
    s.holds("one connection", before is not None and wire.connection.sock is before, "another")
    await s.raises("in the SDK: read", lambda: s.sandbox.files.read("not there"), "SandboxRequestError 404")
    await s.raises("in the SDK: list", lambda: s.sandbox.files.list("not there"), "SandboxRequestError 404")


async def k30(s: Session) -> None:
    """Commands of one sandbox run side by side, and a client that goes away does not make one run again."""
    waiting = await s.wire()
    # The first ends only when the second has run.
    loop = {"command": "sh -c 'while [ ! -e met.txt ]; do sleep 0.05; done; echo met'", "timeout_seconds": 60}
    first = asyncio.to_thread(waiting.call, "POST", "/execute", loop)
    task = asyncio.ensure_future(first)
    await asyncio.sleep(0)
    (await s.wire()).call("POST", "/execute", {"command": "touch met.txt"})
    s.same("side by side", (await task).json()["stdout"], "met\n")
    leaving = await s.wire()
    leaving.send("POST", "/execute", {"command": "sh -c 'echo x >> left.txt; sleep 0.5'"})
    began = await s.becomes(lambda: exists(s, "left.txt"))
    leaving.close()
    s.holds("it began", began, began)
    # A client that retries does so at once.
    await asyncio.sleep(1)
    s.same("it ran once", await s.run("cat left.txt"), "x\n")


async def exists(s: Session, path: str) -> bool:
    """Whether a file is there."""
    return bool(await settle(s.sandbox.files.exists(path)))


CHECKS = {"K26": k26, "K27": k27, "K28": k28, "K29": k29, "K30": k30}
