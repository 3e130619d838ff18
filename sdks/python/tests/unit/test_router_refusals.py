from __future__ import annotations

import json

import pytest
from builders import a_handle, event_stream, exited, started
from http_server import Answer, HttpServer, Request

from agent_sandbox_sdk import SandboxError

JSON = {"content-type": "application/json", "x-request-id": "r-1"}


def refusal(status: int) -> Answer:
    return Answer(status, json.dumps({"detail": f"said {status}"}).encode(), JSON)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "invalid-argument"),
        (401, "unauthenticated"),
        (403, "permission-denied"),
        (404, "not-found"),
        (409, "sandbox-held"),
        (410, "sandbox-expired"),
        (429, "quota-exceeded"),
        (502, "unavailable"),
        (504, "request-timeout"),
    ],
)
async def test_a_refusal_becomes_its_code(status: int, code: str) -> None:
    with HttpServer(lambda _: refusal(status)) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError, match=f"said {status}") as caught:
            await box.run("x")
        await box.close()
    assert (caught.value.code, caught.value.request_id) == (code, "r-1")


@pytest.mark.parametrize("status", [404, 503])
async def test_a_refusal_that_time_mends_is_tried_again(status: int) -> None:
    def answer(_: Request) -> Answer:
        if len(server.requests) == 1:
            return refusal(status)
        return Answer(200, event_stream(started(), exited()), {"content-type": "application/connect+json"})

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        assert (await box.run("x")).exit_code == 0
        await box.close()


async def test_an_answer_of_the_users_program_passes_untouched() -> None:
    with HttpServer(lambda _: Answer(500, b"mine", {"content-type": "text/plain"})) as server:
        box = a_handle(server.url)
        answer = await box.fetch(8080, "/a%2Fb")
        await box.close()
        request = server.requests[0]
    assert (answer.status, answer.text) == (500, "mine")
    assert (request.path, request.headers["x-sandbox-port"]) == ("/a%2Fb", "8080")
