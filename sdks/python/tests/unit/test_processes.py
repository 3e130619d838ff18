from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone

import pytest
from builders import a_handle, a_sandbox, event_stream, exited, output, started
from http_server import Answer, HttpServer, Request
from protocol import AttachRequest, StartRequest

from agent_sandbox_sdk import CommandError, Sandbox, SandboxError

STREAM = {"content-type": "application/connect+json"}


def said(body: bytes, *, cut: bool = False) -> Answer:
    return Answer(200, body, STREAM, cut=cut)


def to_the_daemon(server: HttpServer) -> list[Request]:
    """Without the looks at the Sandbox."""
    return [request for request in server.requests if not request.path.startswith("/apis/")]


async def test_run_collects_both_streams_in_order() -> None:
    body = event_stream(started(), output("a", 0), output("b", 1, "stderr"), output("c", 2), exited(3))
    with HttpServer(lambda _: said(body)) as server:
        box = a_handle(server.url)
        result = await box.run("x")
        await box.close()
    assert (result.stdout, result.stderr, result.combined, result.returncode) == ("ac", "b", "abc", 3)


async def test_run_names_the_sandbox_and_sends_a_shell_command() -> None:
    with HttpServer(lambda _: said(event_stream(started(), exited()))) as server:
        box = a_handle(server.url)
        await box.run("echo hi", env={"A": "1"}, cwd="/tmp", command_timeout=1.5)
        await box.close()
        request = server.requests[0]
    spec = StartRequest.FromString(request.body[5:]).spec
    assert list(spec.command) == ["/bin/sh", "-c", "echo hi"]
    assert (spec.timeout.ToMilliseconds(), spec.cwd, dict(spec.env)) == (1500, "/tmp", {"A": "1"})
    assert request.headers["x-sandbox-id"] == "box"
    assert request.headers["x-sandbox-uid"] == "uid-1"
    assert request.headers["x-sandbox-port"] == "49900"
    assert request.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("condition", "age_seconds", "limit", "said_why"),
    [
        ("Evicted", 0, "Evicted", "the process ended with its sandbox: too much (Evicted)"),
        ("ContainerEnded", 0, None, "the process ended with its sandbox: too much"),
        (
            "PidLimitReached",
            0,
            "PidLimitReached",
            "the process ended with its sandbox: too much (PidLimitReached)",
        ),
        # A condition from before the command says nothing about its end, and a full disk ends no sandbox.
        ("OOMKilled", 60, None, "the process ended with its sandbox, which was stopped or restarted"),
        ("DiskFull", 0, None, "the process ended with its sandbox, which was stopped or restarted"),
    ],
)
async def test_the_limit_that_ended_the_sandbox_is_named(
    condition: str, age_seconds: int, limit: str | None, said_why: str
) -> None:
    reached = {
        "type": condition,
        "status": "True",
        "message": "too much",
        "lastTransitionTime": (datetime.now(timezone.utc) - timedelta(seconds=age_seconds)).isoformat(),
    }

    def answer(request: Request) -> Answer:
        if request.path.startswith("/apis/"):
            return Answer(200, json.dumps({**a_sandbox(), "status": {"conditions": [reached]}}).encode())
        if request.path.endswith("/Start"):
            return said(event_stream(started(), end=False), cut=True)
        return Answer(404, b'{"code": "not_found", "message": "no such process"}', {"content-type": "application/json"})

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.run("x")
        await box.close()
    assert (caught.value.code, caught.value.limit, caught.value.message) == ("process-ended", limit, said_why)


def killed_for_memory() -> bytes:
    reached = {
        "type": "OOMKilled",
        "status": "True",
        "message": "too much",
        "lastTransitionTime": datetime.now(timezone.utc).isoformat(),
    }
    return json.dumps({**a_sandbox(), "status": {"conditions": [reached]}}).encode()


async def test_a_process_that_was_killed_for_memory_with_its_sandbox_has_an_exit_and_the_reason() -> None:
    def answer(request: Request) -> Answer:
        if request.path.startswith("/apis/"):
            return Answer(200, killed_for_memory())
        return said(event_stream(started(), output("a", 0), end=False), cut=True)

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        result = await box.run("x")
        with pytest.raises(CommandError, match=r"was ended by SIGKILL \(OOMKilled: too much\)"):
            await box.run("x", check=True)
        await box.close()
        attached = [request for request in server.requests if request.path.endswith("/Attach")]
    assert (result.exit_code, result.signal, result.reason) == (137, "SIGKILL", "OOMKilled: too much")
    assert (result.stdout, attached) == ("a", [])


async def test_a_start_that_a_younger_daemon_refuses_is_not_run_again() -> None:
    aborted = b'{"code": "aborted", "message": "it may have run"}'

    def answer(request: Request) -> Answer:
        if request.path.startswith("/apis/"):
            return Answer(200, json.dumps(a_sandbox()).encode())
        sent.append(StartRequest.FromString(request.body[5:]).first_sent_ms_ago)
        if len(sent) == 1:
            return said(b"", cut=True)
        return Answer(409, aborted, {"content-type": "application/json"})

    sent: list[int] = []
    with HttpServer(answer) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.run("x")
        await box.close()
    assert (caught.value.code, sent[0], len(sent)) == ("process-ended", 0, 2)
    assert 40 <= sent[1] < 5000


async def test_the_commands_time_ends_also_where_its_sandbox_says_nothing() -> None:
    waited = threading.Event()
    body = event_stream(started(), end=False)
    with HttpServer(lambda _: Answer(200, body, STREAM, cut=True, delay_end=lambda: waited.is_set())) as server:
        box = a_handle(server.url)
        begun = asyncio.get_running_loop().time()
        with pytest.raises(CommandError) as caught:
            await box.run("x", command_timeout=0.05)
        took = asyncio.get_running_loop().time() - begun
        waited.set()
        await box.close()
    assert (caught.value.code, caught.value.result.exit_code) == ("command-timeout", 137)
    assert took < 10


async def test_a_lost_stream_is_attached_behind_the_last_byte() -> None:
    def answer(request: Request) -> Answer:
        if request.path.endswith("/Start"):
            return said(event_stream(started(), output("one", 0), end=False), cut=True)
        return said(event_stream(started(), output("two", 3), exited()))

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        result = await box.run("x")
        await box.close()
        asked = AttachRequest.FromString(to_the_daemon(server)[1].body[5:])
    assert result.stdout == "onetwo"
    assert (asked.id, asked.from_offset) == ("0123456789abcdef", 3)


async def test_a_start_without_an_answer_is_repeated_under_its_key() -> None:
    def answer(_: Request) -> Answer:
        if len(server.requests) == 1:
            return said(b"", cut=True)
        return said(event_stream(started(), output("once", 0), exited()))

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        result = await box.run("x")
        await box.close()
        starts = to_the_daemon(server)
        keys = {StartRequest.FromString(request.body[5:]).idempotency_key for request in starts}
    assert result.stdout == "once"
    assert len(starts) == 2 and len(keys) == 1


async def test_output_that_was_told_is_not_told_again() -> None:
    def answer(_: Request) -> Answer:
        if len(server.requests) == 1:
            return said(event_stream(started(), output("abc", 0), end=False), cut=True)
        return said(event_stream(started(), output("abcdef", 0), exited()))

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        result = await box.run("x")
        await box.close()
    assert result.stdout == "abcdef"


async def test_an_error_of_the_daemon_is_not_tried_again() -> None:
    body = json.dumps({"code": "not_found", "message": "no such command"}).encode()
    with HttpServer(lambda _: Answer(404, body, {"content-type": "application/json"})) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.run("x")
        await box.close()
        count = len(server.requests)
    assert (caught.value.code, caught.value.message, count) == ("not-found", "no such command", 1)


async def test_check_raises_with_the_result() -> None:
    body = event_stream(started(), output("why\n", 0, "stderr"), exited(2))
    with HttpServer(lambda _: said(body)) as server:
        box = a_handle(server.url)
        with pytest.raises(CommandError, match="exited with 2: why") as caught:
            await box.run("x", check=True)
        await box.close()
    assert (caught.value.code, caught.value.result.exit_code) == ("command-failed", 2)


async def test_running_out_of_time_raises_without_check() -> None:
    body = event_stream(started(), {"exit": {"code": 137, "signal": "SIGKILL", "timedOut": True}})
    with HttpServer(lambda _: said(body)) as server:
        box = a_handle(server.url)
        with pytest.raises(CommandError) as caught:
            await box.run("x", command_timeout=1)
        await box.close()
    assert caught.value.code == "command-timeout"


async def test_a_cancelled_run_kills_the_tree() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(request: Request) -> Answer:
        if request.path.endswith("/Signal"):
            loop.call_soon_threadsafe(release.set)
            return Answer(200, b'{"signalled": 1}', {"content-type": "application/json"})
        return said(event_stream(started(), end=False), cut=True)

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        running = asyncio.create_task(box.run("x"))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(release.wait(), 5)
        await box.close()
        told = next(request for request in server.requests if request.path.endswith("/Signal"))
    assert json.loads(told.body) == {
        "id": "0123456789abcdef",
        "signal": "SIGKILL",
        "scope": "SIGNAL_SCOPE_TREE",
    }


class Unanswered:
    """A server that takes starts and never says so, until they are taken back; the first such call is lost."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.cancels: list[str] = []
        self.key = ""

    def __call__(self, request: Request) -> Answer:
        if request.path.endswith("/Start"):
            self.key = StartRequest.FromString(request.body[5:]).idempotency_key
            self.asked.set()
            return Answer(200, b"", STREAM, cut=True, delay=lambda: len(self.cancels) > 1)
        self.cancels.append(json.loads(request.body)["idempotencyKey"])
        return Answer(200, b"{}", {"content-type": "application/json"}, cut=len(self.cancels) == 1)


async def test_a_run_cancelled_before_its_start_is_known_takes_the_start_back() -> None:
    answer = Unanswered()
    with HttpServer(answer) as server:
        box = a_handle(server.url)
        running = asyncio.create_task(box.run("x"))
        await asyncio.to_thread(answer.asked.wait, 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await box.close()
    assert answer.cancels == [answer.key] * 2 and answer.key


async def test_a_start_that_takes_too_long_is_taken_back() -> None:
    answer = Unanswered()
    with HttpServer(answer) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.run("x", request_timeout=0.05)
        await box.close()
    assert caught.value.code == "request-timeout" and len(answer.cancels) == 2


def test_a_sync_run_that_is_interrupted_takes_the_start_back() -> None:
    answer = Unanswered()
    with HttpServer(answer) as server:
        program = _INTERRUPTED.format(url=server.url)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True)
        answer.asked.wait(30)
        child.send_signal(signal.SIGINT)
        printed, _ = child.communicate(timeout=30)
    assert (printed, answer.cancels) == ("interrupted\n", [answer.key] * 2)


_INTERRUPTED = """
from builders import a_handle
from agent_sandbox_sdk import Sandbox, _portal

async def make():
    return Sandbox(a_handle({url!r}))

try:
    _portal.call(make()).run("x")
except KeyboardInterrupt:
    print("interrupted")
"""


async def test_sync_calls_work_inside_a_running_loop() -> None:
    body = event_stream(started(), output("hi", 0), exited())
    with HttpServer(lambda _: said(body)) as server:
        from agent_sandbox_sdk import _portal

        async def make() -> Sandbox:
            return Sandbox(a_handle(server.url))

        box = _portal.call(make())
        assert box.run("x").stdout == "hi"
        box.close()
