"""Drives one published SDK in one connection mode and prints what happened as one JSON object on the last line.

Sync and async clients have the same surface, so every call goes through `settle`, which awaits what needs awaiting.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import k8s_agent_sandbox
from k8s_agent_sandbox import models


async def settle(value: Any) -> Any:
    """The value, awaited where it is awaitable."""
    return await value if inspect.isawaitable(value) else value


def connection(mode: str, options: dict[str, Any]) -> Any:
    """The connection configuration of a mode."""
    match mode:
        case "direct":
            return models.SandboxDirectConnectionConfig(api_url=options["apiUrl"])
        case "direct-tls":
            return models.SandboxDirectConnectionConfig(
                api_url=options["tlsUrl"],
                ca_cert=options["ca"],
                extra_headers={"Authorization": f"Bearer {options['token']}"},
            )
        case "direct-mtls":
            return models.SandboxDirectConnectionConfig(
                api_url=options["tlsUrl"],
                ca_cert=options["ca"],
                client_cert=(options["cert"], options["key"]),
            )
        case "tunnel":
            return models.SandboxLocalTunnelConnectionConfig()
        case "in-cluster":
            return models.SandboxInClusterConnectionConfig()
        case "sandboxd-tunnel":
            return models.SandboxdPodTunnelConnectionConfig()
        case "sandboxd-pod-ip":
            return models.SandboxdInClusterConnectionConfig(mode="in-cluster-pod-ip")
    raise ValueError(mode)


class AsyncSink:
    """What asynchronous downloads are written to."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()

    async def write(self, chunk: bytes) -> int:
        """Keeps a chunk."""
        return self.kept.write(chunk)


class Drive:
    """One client in one mode, and what it has seen so far."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.is_new: bool = options["version"] != "0.5.6"
        self.is_daemon: bool = options["mode"].startswith("sandboxd")
        self.results: dict[str, Any] = {}

    def client(self) -> Any:
        """A client of its own."""
        kind = "AsyncSandboxClient" if self.options["isAsync"] else "SandboxClient"
        return getattr(k8s_agent_sandbox, kind)(
            connection_config=connection(self.options["mode"], self.options)
        )

    async def step(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Runs one part and keeps its result, or the error's name."""
        started = time.monotonic()
        try:
            self.results[name] = await work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test compares its name
            self.results[name] = f"{type(error).__name__}: {error}"[:300]
        print(
            f"{name} {time.monotonic() - started:.2f} s {self.results[name]}",
            file=sys.stderr,
            flush=True,
        )

    async def all(self) -> None:
        """Everything, in one order for all modes."""
        client = self.client()
        sandbox = await settle(
            client.create_sandbox(
                self.options["pool"], labels={"team": self.options["team"]}
            )
        )
        await self.step("commands", lambda: self.commands(sandbox))
        await self.step("files", lambda: self.files(sandbox))
        await self.step("errors", lambda: self.errors(sandbox))
        await self.step("second", lambda: self.second(sandbox))
        await self.step("labels", lambda: self.labels(client, sandbox))
        await self.step("wrongPool", lambda: self.wrong_pool(client))
        await self.step("ttl", lambda: self.ttl(client))
        if self.is_new:
            await self.step("named", lambda: self.named(client))
            await self.step("environment", lambda: self.environment(client))
            await self.step("streams", lambda: self.streams(sandbox))
            await self.step("timeouts", lambda: self.timeouts(sandbox))
        if self.is_daemon:
            await self.step("daemon", lambda: self.daemon(sandbox))
        await self.step("end", lambda: self.end(client, sandbox))

    async def commands(self, sandbox: Any) -> Any:
        ran = await settle(sandbox.commands.run("echo hello"))
        failed = await settle(sandbox.commands.run("sh -c 'echo wrong >&2; exit 3'"))
        return [ran.stdout, ran.exit_code, failed.stderr, failed.exit_code]

    async def files(self, sandbox: Any) -> Any:
        content = bytes(range(256)) * 4096
        await settle(sandbox.files.write("dir one/ü.bin", content))
        await settle(sandbox.files.write("plain.txt", "text"))
        names = sorted(entry.name for entry in await settle(sandbox.files.list(".")))
        inner = [
            (entry.name, entry.size, entry.type)
            for entry in await settle(sandbox.files.list("dir one"))
        ]
        return {
            "same": await settle(sandbox.files.read("dir one/ü.bin")) == content,
            "text": (await settle(sandbox.files.read("plain.txt"))).decode(),
            "names": [name for name in names if name in ("dir one", "plain.txt")],
            "inner": inner,
            "exists": [
                await settle(sandbox.files.exists("plain.txt")),
                await settle(sandbox.files.exists("not there")),
            ],
        }

    async def errors(self, sandbox: Any) -> Any:
        seen = []
        for read in (
            lambda: sandbox.files.read("not there"),
            lambda: sandbox.files.list("not there"),
        ):
            try:
                await settle(read())
                seen.append("nothing")
            except Exception as error:  # noqa: BLE001
                seen.append(
                    f"{type(error).__name__} {getattr(error, 'status_code', None)}"
                )
        return seen

    async def second(self, sandbox: Any) -> Any:
        other = self.client()
        again = await settle(other.get_sandbox(sandbox.claim_name))
        same = again.sandbox_id == sandbox.sandbox_id
        text = (await settle(again.files.read("plain.txt"))).decode()
        await settle(again.close_connection())
        return [same, text]

    async def labels(self, client: Any, sandbox: Any) -> Any:
        team = self.options["team"]
        found = await settle(
            client.list_all_sandboxes(label_selector=f"team={team},!absent")
        )
        several = await settle(
            client.list_all_sandboxes(label_selector=f"team in ({team}, other)")
        )
        return [found == [sandbox.claim_name], several == found]

    async def wrong_pool(self, client: Any) -> Any:
        before = sorted(await settle(client.list_all_sandboxes()))
        started = time.monotonic()
        try:
            await settle(
                client.create_sandbox("no-such-pool", sandbox_ready_timeout=30)
            )
            return "created"
        except Exception as error:  # noqa: BLE001
            name = type(error).__name__
        fast = time.monotonic() - started < self.options["patience"]
        return [name, fast, sorted(await settle(client.list_all_sandboxes())) == before]

    async def ttl(self, client: Any) -> Any:
        short = await settle(
            client.create_sandbox(self.options["pool"], shutdown_after_seconds=6)
        )
        name = short.claim_name
        was = name in await settle(client.list_all_sandboxes())
        await settle(short.close_connection())
        return [was, await self.gone(client, name)]

    async def gone(self, client: Any, name: str) -> bool:
        """Whether a claim goes away within the time that the SDK's own tests allow."""
        for _ in range(120):
            if name not in await settle(client.list_all_sandboxes()):
                return True
            await asyncio.sleep(0.5)
        return False

    async def named(self, client: Any) -> Any:
        name = f"named.claim-{self.options['team']}"
        pool = self.options["pool"]
        first = await settle(client.create_sandbox(pool, claim_name=name))
        try:
            await settle(client.create_sandbox(pool, claim_name=name))
            refused = "nothing"
        except Exception as error:  # noqa: BLE001
            refused = str(getattr(error, "status", type(error).__name__))
        other = self.client()
        adopted = await settle(
            other.create_sandbox(pool, claim_name=name, adopt_existing=True)
        )
        same = adopted.sandbox_id == first.sandbox_id
        short = len(first.sandbox_id) <= 63 and "." not in first.sandbox_id
        await settle(adopted.close_connection())
        await settle(client.delete_sandbox(name))
        return [refused, same, short, await self.gone(client, name)]

    async def environment(self, client: Any) -> Any:
        box = await settle(
            client.create_sandbox(self.options["pool"], env={"GREETING": "good day"})
        )
        ran = await settle(box.commands.run("printenv GREETING"))
        await settle(box.terminate())
        return ran.stdout

    async def streams(self, sandbox: Any) -> Any:
        content = bytes(range(251)) * 20_000
        await settle(sandbox.files.write("streamed.bin", io.BytesIO(content)))
        sink = AsyncSink()
        target = sink if self.options["isAsync"] else sink.kept
        written = await settle(sandbox.files.read_to("streamed.bin", target))
        return [written == len(content), sink.kept.getvalue() == content]

    async def timeouts(self, sandbox: Any) -> Any:
        slow = await settle(sandbox.commands.run("sleep 30", command_timeout=1))
        after = await settle(sandbox.commands.run("echo alive"))
        return [slow.timed_out, slow.exit_code, after.stdout]

    async def daemon(self, sandbox: Any) -> Any:
        ran = await settle(
            sandbox.commands.run("echo $A; pwd", env={"A": "b"}, cwd="dir one")
        )
        await settle(sandbox.files.delete("plain.txt"))
        left = await settle(sandbox.files.exists("plain.txt"))
        try:
            await settle(sandbox.commands.run("true", cwd="../.."))
            refused = "nothing"
        except RuntimeError as error:
            refused = (
                "PERMISSION_DENIED" if "PERMISSION_DENIED" in str(error) else str(error)
            )
        killed = await settle(sandbox.commands.run("kill -9 $$"))
        big = await settle(
            sandbox.commands.run("head -c 6000000 /dev/zero | tr '\\0' x")
        )
        lines = ran.stdout.splitlines()
        return [
            lines[0],
            lines[1].endswith("/dir one"),
            left,
            refused,
            killed.exit_code,
            0 < len(big.stdout) < 2**22,
        ]

    async def end(self, client: Any, sandbox: Any) -> Any:
        name = sandbox.claim_name
        ready = (await settle(sandbox.status()))[0]
        await settle(sandbox.terminate())
        return [ready, await self.gone(client, name)]


def main() -> None:
    """Reads the options, drives, and prints."""
    drive = Drive(json.loads(sys.argv[1]))
    asyncio.run(drive.all())
    print(json.dumps(drive.results))


main()
