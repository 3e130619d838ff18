from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from builders import a_sandbox, an_engine, event_stream, exited, output, ready, started
from http_server import Answer, HttpServer, Request

from agent_sandbox_sdk import AsyncSandbox, SandboxError
from agentic_sandbox_client import SandboxClient

JSON = {"content-type": "application/json"}


def ok(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode(), JSON)


def failure(status: int, reason: str, message: str) -> Answer:
    return ok({"kind": "Status", "code": status, "reason": reason, "message": message}, status)


def api(request: Request) -> Answer:
    """An API server that has the sandbox of builders, ready at once."""
    ready_box = {**a_sandbox(), "status": ready()}
    if request.path.startswith("/agentsandbox.v1."):
        body = event_stream(started(), output("hello\n", 0), exited())
        return Answer(200, body, {"content-type": "application/connect+json"})
    return ok(ready_box if request.method != "POST" else a_sandbox(), 200 if request.method != "POST" else 201)


async def test_a_create_that_is_given_up_is_undone() -> None:
    has_come = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(request: Request) -> Answer:
        if request.method != "POST":
            return api(request)
        loop.call_soon_threadsafe(has_come.set)
        made = api(request)
        made.delay = lambda: is_cancelled
        return made

    is_cancelled = False
    with HttpServer(answer) as server:
        creating = asyncio.ensure_future(AsyncSandbox.create(engine=an_engine(server.url)).__aenter__())
        await has_come.wait()
        creating.cancel()
        await asyncio.sleep(0)
        is_cancelled = True
        with pytest.raises(asyncio.CancelledError):
            await creating
        last = server.requests[-1]
    assert last.method == "DELETE" and json.loads(last.body)["preconditions"] == {"uid": "uid-1"}


async def test_create_waits_and_the_end_of_the_block_deletes() -> None:
    with HttpServer(api) as server:
        async with AsyncSandbox.create(name="box", engine=an_engine(server.url), ttl=60) as box:
            assert box.uid == "uid-1"
        made = json.loads(server.requests[0].body)
        last = server.requests[-1]
    container = made["spec"]["podTemplate"]["spec"]["containers"][0]
    assert container["image"] == "host.agent-sandbox.local/usr"
    assert made["spec"]["shutdownPolicy"] == "Delete"
    assert "fieldValidation=Strict" in server.requests[0].path
    assert last.method == "DELETE"
    assert json.loads(last.body)["preconditions"] == {"uid": "uid-1"}


async def test_how_it_sleeps_wakes_and_recovers_reaches_the_object() -> None:
    policy = {"type": "Recreate", "retriesMax": 2}
    with HttpServer(api) as server:
        box = await AsyncSandbox.create(
            engine=an_engine(server.url),
            suspension_strategy="Freeze",
            wake_policy="Never",
            pod_failure_policy=policy,
            auto_suspend=60,
            hibernate_after=3600,
        )
        await box.close()
        spec = json.loads(server.requests[0].body)["spec"]
    assert (spec["suspensionStrategy"], spec["wakePolicy"]) == ({"type": "Freeze"}, "Never")
    assert spec["podFailurePolicy"] == policy
    assert spec["autoSuspension"] == {"inactivityTimeoutSeconds": 60, "hibernateAfterSeconds": 3600}


async def test_a_second_time_of_idleness_needs_the_first() -> None:
    with HttpServer(api) as server:
        with pytest.raises(SandboxError, match="needs auto_suspend"):
            await AsyncSandbox.create(engine=an_engine(server.url), hibernate_after=3600)
        assert server.requests == []


async def test_a_sandbox_that_was_only_found_is_not_deleted() -> None:
    with HttpServer(api) as server:
        async with AsyncSandbox.get("box", engine=an_engine(server.url)):
            pass
        assert [request.method for request in server.requests] == ["GET"]


async def test_create_fails_early_and_cleans_up() -> None:
    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return ok({**a_sandbox(), "status": ready("False", "InvalidConfiguration", "no way")})
        return api(request)

    with HttpServer(answer) as server:
        with pytest.raises(SandboxError, match="no way") as caught:
            await AsyncSandbox.create(engine=an_engine(server.url))
        methods = [request.method for request in server.requests]
    assert caught.value.code == "invalid-argument"
    assert methods == ["POST", "GET", "DELETE"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (failure(404, "NotFound", "x"), "not-found"),
        (failure(409, "AlreadyExists", "x"), "already-exists"),
        (failure(403, "Forbidden", "x"), "permission-denied"),
        (failure(422, "Invalid", "x"), "invalid-argument"),
        (Answer(401, b"who?"), "unauthenticated"),
    ],
)
async def test_a_status_becomes_its_code(answer: Answer, code: str) -> None:
    with HttpServer(lambda _: answer) as server, pytest.raises(SandboxError) as caught:
        await AsyncSandbox.get("box", engine=an_engine(server.url))
    assert caught.value.code == code


async def test_an_engine_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(SandboxError) as caught:
        await AsyncSandbox.get("box", engine=an_engine("http://127.0.0.1:1"))
    assert caught.value.code == "unavailable"


async def test_a_handle_of_another_incarnation_is_not_found() -> None:
    text = json.dumps({"namespace": "default", "name": "box", "uid": "another"})
    with HttpServer(api) as server, pytest.raises(SandboxError) as caught:
        await AsyncSandbox.from_json(text, engine=an_engine(server.url))
    assert caught.value.code == "not-found"


async def test_a_claim_is_changed_and_deleted_by_its_uid() -> None:
    owner = {"kind": "SandboxClaim", "name": "mine", "uid": "claim-uid", "controller": True}
    with HttpServer(lambda _: ok({**a_sandbox(ownerReferences=[owner]), "status": ready()})) as server:
        box = await AsyncSandbox.get("box", engine=an_engine(server.url))
        await box.set_timeout(60)
        await box.delete()
        await box.close()
        changed, deleted = server.requests[1:]
    assert changed.path.split("?")[0].endswith("/sandboxclaims/mine") and deleted.path.endswith("/sandboxclaims/mine")
    assert json.loads(changed.body)["metadata"] == {"uid": "claim-uid"}
    assert json.loads(deleted.body)["preconditions"] == {"uid": "claim-uid"}


async def test_logs_are_bytes_of_the_asked_part() -> None:
    def answer(request: Request) -> Answer:
        return Answer(200, b"one\n\xfftwo") if "/log?" in request.path else api(request)

    with HttpServer(answer) as server:
        async with AsyncSandbox.get("box", engine=an_engine(server.url)) as box:
            printed = b"".join([chunk async for chunk in box.logs(tail_lines=2, since=1.5)])
        asked = server.requests[-1].path
    assert printed == b"one\n\xfftwo"
    assert "container=sandbox&tailLines=2&sinceSeconds=2" in asked


async def test_list_follows_pages() -> None:
    def answer(request: Request) -> Answer:
        first = "continue=" not in request.path
        page: dict[str, Any] = {"items": [a_sandbox(name="a" if first else "b")]}
        return ok({**page, "metadata": {"continue": "more"} if first else {}})

    with HttpServer(answer) as server:
        found = [box async for box in AsyncSandbox.list(engine=an_engine(server.url), label_selector={"k": "v"})]
        for box in found:
            await box.close()
        assert "labelSelector=k%3Dv" in server.requests[0].path
    assert [box.name for box in found] == ["a", "b"]


def test_early_names_still_work() -> None:
    with HttpServer(api) as server:
        client = SandboxClient(engine=an_engine(server.url))
        sandbox = client.create_sandbox(name="box", image="python:3.12")
        assert sandbox.execute("echo hello").stdout == "hello\n"
        sandbox.delete()
        sandbox.close()
        assert server.requests[-1].method == "DELETE"
