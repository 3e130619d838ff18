from __future__ import annotations

import json

import pytest
from builders import a_handle
from http_server import Answer, HttpServer

from agent_sandbox_sdk import OpenPort, SandboxError


async def test_ports_are_asked_of_the_daemon() -> None:
    body = json.dumps({"ports": [{"port": 8123, "addresses": ["0.0.0.0", "::"]}]}).encode()
    with HttpServer(lambda _: Answer(200, body)) as server:
        box = a_handle(server.url)
        assert await box.ports() == [OpenPort(8123, ("0.0.0.0", "::"))]
        await box.close()
        assert (server.requests[0].path, server.requests[0].headers["x-sandbox-port"]) == ("/v1/ports", "49900")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(404, b'{"code":"NOT_FOUND","message":"no such endpoint"}'), "unsupported"),
        (Answer(501, b""), "unsupported"),
        (Answer(500, b"broken"), "internal"),
        (Answer(200, b"<html>"), "protocol-error"),
        (Answer(200, b'{"ports":[{"port":1}]}'), "protocol-error"),
    ],
)
async def test_what_is_no_list_of_ports_is_an_error(answer: Answer, code: str) -> None:
    with HttpServer(lambda _: answer) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.ports()
        await box.close()
    assert caught.value.code == code


async def test_a_refusal_is_no_figure() -> None:
    with HttpServer(lambda _: Answer(503, b"sandboxd is shutting down")) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError, match="shutting down"):
            await box.metrics()
        await box.close()
