"""K31-K36: what the 1.0 SDK needs of the daemon, by its own stubs where it has no calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from session import SANDBOXES, Session, settle


async def k31(s: Session) -> None:
    """Paths as they were sent, never a redirect."""
    await settle(s.sandbox.files.write("100% sure.txt", "x"))
    wire = await s.wire()
    for path, wanted in (
        ("/v1/files/.", 200),
        ("/v1/files/%2E", 200),
        ("/v1/files/", 200),
        ("/v1/files/%2F", 200),
        ("/v1/files/..", 403),
        ("/v1/files/%2E%2E", 403),
        ("/v1/files/..%2F..%2Fetc", 403),
        ("/v1/files/100%25%20sure.txt", 200),
        ("/v1/files/not%20there", 404),
    ):
        s.same(path, wire.call("GET", path).status, wanted)


async def k32(s: Session) -> None:
    """Files are put whole or not at all, looked at, listed and deleted."""
    wire = await s.wire()
    s.same("PUT with length", wire.call("PUT", "/v1/files/deep%2Fer%2Fone.bin", b"1" * 3000).status, 204)
    s.same("PUT chunked", wire.call("PUT", "/v1/files/deep%2Fer%2Ftwo.bin", b"2" * 3000, chunked=True).status, 204)
    s.same("HEAD", [wire.call("HEAD", f"/v1/files/{name}").status for name in ("deep", "none")], [200, 404])
    listing = wire.call("GET", "/v1/files/deep%2Fer").json()
    s.same("entries", [entry["name"] for entry in listing["entries"]], ["one.bin", "two.bin"])
    fields = {"name", "size", "type", "modified_at", "mode"}
    s.holds("fields", fields <= set(listing["entries"][0]), listing["entries"][0])
    cut = await s.wire()
    cut.connection.putrequest("PUT", "/v1/files/deep%2Fer%2Fone.bin")
    cut.connection.putheader("Content-Length", "5000")
    cut.connection.endheaders()
    cut.connection.send(b"9" * 100)
    cut.close()
    s.same("a PUT that broke off changes nothing", wire.call("GET", "/v1/files/deep%2Fer%2Fone.bin").body, b"1" * 3000)
    s.same("DELETE of a full directory", wire.call("DELETE", "/v1/files/deep").status, 409)
    s.same("DELETE of a file", wire.call("DELETE", "/v1/files/deep%2Fer%2Fone.bin").status, 204)
    s.same("DELETE of nothing", wire.call("DELETE", "/v1/files/none").status, 404)
    s.same("DELETE of all", wire.call("DELETE", "/v1/files/deep?recursive=true").status, 204)


async def k33(s: Session) -> None:
    """Execute: environment, directory, deadline, death by signal."""
    await settle(s.sandbox.files.write("dir one/file.txt", "x"))
    run = s.sandbox.commands.run
    ran = await settle(run('echo "$A:${PATH:+path}"; pwd', env={"A": "b"}, cwd="dir one"))
    first, second = ran.stdout.splitlines()
    s.same("environment over the daemon's", first, "b:path")
    s.holds("directory below the root", second.endswith("/dir one"), second)
    await s.raises("outside the root", lambda: run("true", cwd="../.."), "RuntimeError")
    try:
        await settle(run("true", cwd="../.."))
    except RuntimeError as error:
        s.holds("PERMISSION_DENIED", "PERMISSION_DENIED" in str(error), str(error))
    late = await settle(run("sleep 312 & sleep 312", command_timeout=1))
    s.same("deadline", [late.timed_out, late.exit_code], [True, 124])
    s.holds("kills the group", await s.becomes(lambda: ended(s, "sleep 312")), "still running")
    s.same("death by signal", (await settle(run("kill -9 $$"))).exit_code, 137)


async def ended(s: Session, words: str) -> bool:
    """Whether no process of the sandbox has these words."""
    script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null; true"
    text: str = (await settle(s.sandbox.commands.run(script))).stdout
    return not any(line.startswith(words) for line in text.splitlines())


async def k34(s: Session) -> None:
    """Output that a client cannot take is cut, and the cut is told."""
    big = await settle(s.sandbox.commands.run("head -c 6000000 /dev/zero | tr '\\0' x"))
    s.holds("below 4 MiB", 3_000_000 < len(big.stdout) < 2**22, len(big.stdout))
    s.holds("it is told", "truncated" in big.stderr, big.stderr)
    s.same("and is no failure", big.exit_code, 0)


async def k35(s: Session) -> None:
    """Start, WriteStdin, SendSignal and ResizeTTY, by the stubs in the wheel."""
    import grpc
    from k8s_agent_sandbox.commands._process_stubs import process_pb2, process_pb2_grpc

    await s.wire()
    connector = s.sandbox.connector
    target = getattr(getattr(connector, "strategy", None), "grpc_target", None) or connector.grpc_target
    with grpc.insecure_channel(target) as channel:
        stub: Any = process_pb2_grpc.ProcessServiceStub(channel)
        calls = Calls(s, stub, process_pb2)
        calls.input_and_end()
        calls.signal()
        calls.terminal()
        calls.refusals(grpc)


class Calls:
    """The calls of the process service that the SDK has no functions for."""

    def __init__(self, s: Session, stub: Any, messages: Any) -> None:
        self.s, self.stub, self.m = s, stub, messages

    def start(self, *command: str, pty: Any = None) -> tuple[Any, int]:
        """A stream of events and the number of the process."""
        config = self.m.ProcessConfig(command=command)
        stream = self.stub.Start(self.m.StartRequest(config=config, pty=pty), timeout=60)
        return stream, next(stream).init.process_id

    def input_and_end(self) -> None:
        """What is written comes back, and end-of-file ends it."""
        stream, number = self.start("cat")
        self.stub.WriteStdin(self.m.WriteStdinRequest(process_id=number, input=b"hello"))
        self.s.same("output", next(stream).stdout, b"hello")
        end = self.m.WriteStdinRequest(process_id=number)
        end.eof.SetInParent()
        self.stub.WriteStdin(end)
        last = next(stream)
        self.s.same("end", [last.WhichOneof("event"), last.exit.exit_code], ["exit", 0])

    def signal(self) -> None:
        """A signal ends it with 128 and its number."""
        stream, number = self.start("sleep", "300")
        self.stub.SendSignal(self.m.SendSignalRequest(process_id=number, signal=15))
        self.s.same("SIGTERM", next(stream).exit.exit_code, 143)

    def terminal(self) -> None:
        """The size of a terminal is there before the program, and can be changed."""
        pty = self.m.PTY(cols=100, rows=40)
        stream, number = self.start("sh", "-c", "stty size; read line; stty size", pty=pty)
        self.s.holds("size at start", b"40 100" in self.read_until(stream, b"40 100"), "other")
        self.stub.ResizeTTY(self.m.ResizeTTYRequest(process_id=number, cols=120, rows=50))
        self.stub.WriteStdin(self.m.WriteStdinRequest(process_id=number, input=b"\n"))
        self.s.holds("size later", b"50 120" in self.read_until(stream, b"50 120"), "other")

    def read_until(self, stream: Any, wanted: bytes) -> bytes:
        """Output until the words are in it, or its end."""
        seen = b""
        for event in stream:
            seen += event.stdout
            if wanted in seen:
                break
        return seen

    def refusals(self, grpc: Any) -> None:
        """Unknown processes, and sizes of what is no terminal."""
        stream, number = self.start("sleep", "300")
        refused: list[tuple[str, Callable[[], Any], str]] = [
            (
                "resize without terminal",
                lambda: self.stub.ResizeTTY(self.m.ResizeTTYRequest(process_id=number, cols=1, rows=1)),
                "FAILED_PRECONDITION",
            ),
            (
                "unknown process",
                lambda: self.stub.SendSignal(self.m.SendSignalRequest(process_id=99999, signal=9)),
                "NOT_FOUND",
            ),
            ("no command", lambda: self.stub.Execute(self.m.ExecuteRequest()), "INVALID_ARGUMENT"),
        ]
        for what, call, wanted in refused:
            try:
                call()
                seen = "nothing"
            except grpc.RpcError as error:
                seen = error.code().name
            self.s.same(what, seen, wanted)
        stream.cancel()


async def k36(s: Session) -> None:
    """Both ports are reached, by the way of the mode."""
    wire = await s.wire()
    s.same("REST", wire.call("GET", "/v1/health").status, 200)
    s.same("gRPC", (await settle(s.sandbox.commands.run("echo rpc"))).stdout, "rpc\n")
    status = json.loads(s.api.call("GET", f"{SANDBOXES}/{s.sandbox.sandbox_id}").body)["status"]
    wanted = {
        "sandboxd-tunnel": "127.0.0.1",
        "sandboxd-pod-ip": status["podIPs"][0],
        "sandboxd-service": status.get("serviceFQDN"),
    }
    s.same("by the mode's address", urlsplit(wire.url).hostname, wanted[s.mode])


CHECKS = {"K31": k31, "K32": k32, "K33": k33, "K34": k34, "K35": k35, "K36": k36}
