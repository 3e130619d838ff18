from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from builders import an_engine, ready
from http_server import Answer, HttpServer, Request

from agent_sandbox_sdk import AsyncSandbox, Sandbox, SandboxError
from agent_sandbox_sdk._connection import acquire_connection

JSON = {"content-type": "application/json"}
TEMPLATE_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
GOOD = {"sandboxsnapshots": "SnapshotReady", "sandboxes": "DependenciesReady"}


def good(plural: str, _name: str) -> str:
    return GOOD[plural]


class FakeApi:
    """Keeps what is made, says of it what a test wants, and forgets what is deleted."""

    def __init__(self, verdict: Callable[[str, str], str] = good) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.snapshots_made: list[str] = []
        self._verdict = verdict
        self._lock = threading.Lock()
        spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "python:3"}]}}}
        metadata = {
            "name": "box",
            "labels": {"team": "a", TEMPLATE_HASH: "h", "agents.x-k8s.io/claim-uid": "u"},
            "annotations": {"agent-sandbox.dev/services": "[]", "agent-sandbox.dev/last-activity-at": "t"},
        }
        self.keep("sandboxes", {"metadata": metadata, "spec": {**spec, "operatingMode": "Suspended", "service": True}})

    def keep(self, plural: str, sent: dict[str, Any]) -> dict[str, Any]:
        name = sent["metadata"]["name"]
        sent["metadata"] |= {"namespace": "default", "uid": f"uid-{name}", "generation": 1}
        if plural == "sandboxsnapshots":
            self.snapshots_made.append(name)
        reason = self._verdict(plural, name)
        said = ready("True" if reason in GOOD.values() else "False", reason, "words")
        saved = {"sandboxUID": "uid-box", "nodeName": "one", "sizeBytes": 7, "standstillMs": 3}
        sent["status"] = {**said, **saved} if plural == "sandboxsnapshots" else said
        self.objects[f"{plural}/{name}"] = sent
        return sent

    def names(self, plural: str) -> list[str]:
        return sorted(key.split("/")[1] for key in self.objects if key.startswith(f"{plural}/"))

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            status, body = self._answer(request)
        return Answer(status, json.dumps(body).encode(), JSON)

    def _answer(self, request: Request) -> tuple[int, object]:
        _, _, _, _, _, plural, *rest = urlsplit(request.path).path.strip("/").split("/")
        if not rest and request.method == "POST":
            return 201, self.keep(plural, json.loads(request.body))
        if not rest:
            return 200, {"items": [self.objects[f"{plural}/{name}"] for name in self.names(plural)], "metadata": {}}
        found = self.objects.get(f"{plural}/{rest[0]}")
        if found is None:
            return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"{rest[0]} not found"}
        if request.method == "DELETE":
            del self.objects[f"{plural}/{rest[0]}"]
        return 200, found


def handle(api: FakeApi, url: str) -> AsyncSandbox:
    return AsyncSandbox(acquire_connection(an_engine(url)), api.objects["sandboxes/box"])


async def test_a_snapshot_says_what_was_saved() -> None:
    api = FakeApi()
    with HttpServer(api) as server:
        box = handle(api, server.url)
        taken = await box.snapshot(name="before", memory=False, ttl=90.5)
        assert (taken.state, taken.sandbox, taken.size_bytes, taken.standstill_ms) == ("ready", "box", 7, 3)
        spec = api.objects["sandboxsnapshots/before"]["spec"]
        assert spec == {"sandboxName": "box", "memory": False, "ttlSecondsAfterCreation": 91}
        engine = an_engine(server.url)
        assert [info.name for info in await AsyncSandbox.list_snapshots(engine=engine)] == ["before"]
        await AsyncSandbox.delete_snapshot("before", engine=engine)
        await AsyncSandbox.delete_snapshot("before", engine=engine)
        assert await AsyncSandbox.list_snapshots(engine=engine) == []
        await box.close()


@pytest.mark.parametrize(
    ("reason", "code"),
    [("SnapshotFailed", "snapshot-failed"), ("SandboxNotFound", "not-found"), ("SnapshotsNotAvailable", "unsupported")],
)
async def test_a_snapshot_that_fails_leaves_nothing(reason: str, code: str) -> None:
    api = FakeApi(lambda _plural, _name: reason)
    with HttpServer(api) as server:
        box = handle(api, server.url)
        with pytest.raises(SandboxError, match="words") as caught:
            await box.snapshot()
        await box.close()
    assert caught.value.code == code
    assert api.names("sandboxsnapshots") == []


async def test_a_snapshot_of_another_sandbox_of_the_name_is_not_taken_for_it() -> None:
    api = FakeApi()
    with HttpServer(api) as server:
        box = handle(api, server.url)
        box.uid = "another"
        with pytest.raises(SandboxError) as caught:
            await box.snapshot()
        await box.close()
    assert caught.value.code == "not-found"
    assert api.names("sandboxsnapshots") == []


def test_forks_come_in_order_from_one_snapshot() -> None:
    api = FakeApi()
    with HttpServer(api) as server:
        box = Sandbox.get("box", engine=an_engine(server.url))
        forks = box.fork(3, name="copy")
        assert [fork.name for fork in forks if isinstance(fork, Sandbox)] == ["copy-1", "copy-2", "copy-3"]
        for one in [box, *forks]:
            assert isinstance(one, Sandbox)
            one.close()
    [snapshot] = api.snapshots_made
    assert api.names("sandboxsnapshots") == []
    child = api.objects["sandboxes/copy-2"]
    assert "operatingMode" not in child["spec"]
    assert (child["spec"]["service"], child["spec"]["restoreFrom"]) == (True, {"snapshotName": snapshot})
    assert child["metadata"]["labels"] == {
        "team": "a",
        TEMPLATE_HASH: "h",
        "agents.x-k8s.io/created-by": "python-client",
    }
    assert child["metadata"]["annotations"] == {"agent-sandbox.dev/services": "[]"}


async def test_a_fork_that_fails_is_an_error_in_its_place() -> None:
    api = FakeApi(lambda plural, name: "RestoreFailed" if name == "copy-2" else good(plural, name))
    with HttpServer(api) as server:
        box = handle(api, server.url)
        forks = await box.fork(3, name="copy")
        assert [isinstance(fork, SandboxError) for fork in forks] == [False, True, False]
        for fork in forks:
            if not isinstance(fork, SandboxError):
                await fork.close()
        await box.close()
    assert api.names("sandboxes") == ["box", "copy-1", "copy-3"]
    assert api.names("sandboxsnapshots") == []


async def test_a_fork_that_is_given_up_leaves_nothing() -> None:
    waiting: asyncio.Event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(plural: str, name: str) -> str:
        if name != "copy-2":
            return good(plural, name)
        loop.call_soon_threadsafe(waiting.set)
        return "DependenciesNotReady"

    api = FakeApi(slow)
    with HttpServer(api) as server:
        box = handle(api, server.url)
        forking = asyncio.ensure_future(box.fork(2, name="copy"))
        await waiting.wait()
        forking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forking
        await box.close()
    assert api.names("sandboxes") == ["box"]
    assert api.names("sandboxsnapshots") == []


@pytest.mark.parametrize("count", [0, -1, 1001, True])
async def test_forks_are_counted(count: int) -> None:
    api = FakeApi()
    with HttpServer(api) as server:
        box = handle(api, server.url)
        with pytest.raises(SandboxError, match="must be from 1 to 1000"):
            await box.fork(count)
        await box.close()
    assert api.snapshots_made == []


async def test_a_sandbox_from_a_snapshot_takes_over_what_ran() -> None:
    api = FakeApi()
    with HttpServer(api) as server:
        engine, box = an_engine(server.url), handle(api, server.url)
        await box.snapshot(name="before")
        made = await AsyncSandbox.create(name="again", from_snapshot="before", engine=engine)
        await made.close()
        spec = api.objects["sandboxes/again"]["spec"]
        assert (spec["service"], spec["restoreFrom"]) == (True, {"snapshotName": "before"})
        assert "operatingMode" not in spec
        with pytest.raises(SandboxError, match="'cpu' is taken from the sandbox"):
            await AsyncSandbox.create(cpu=2, from_snapshot="before", engine=engine)
        del api.objects["sandboxes/box"]
        with pytest.raises(SandboxError, match="'box' of snapshot 'before' is gone"):
            await AsyncSandbox.create(from_snapshot="before", engine=engine)
        anew = await AsyncSandbox.create("python:3", name="anew", cpu=2, from_snapshot="before", engine=engine)
        await anew.close()
        await box.close()
    assert api.objects["sandboxes/anew"]["spec"]["restoreFrom"] == {"snapshotName": "before"}
