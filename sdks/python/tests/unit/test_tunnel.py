from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from builders import a_sandbox, ready
from forwarding_server import ForwardingServer
from http_server import Answer, HttpServer, Request

from agent_sandbox_sdk import AsyncSandbox, Engine, SandboxError
from agent_sandbox_sdk._connection import acquire_connection
from agent_sandbox_sdk._kubeconfig import Credentials

CONTENT = b"0123456789" * 50_000
NOBODY = "http://127.0.0.1:1"


class Echo:
    """What is written is read again."""

    def __init__(self) -> None:
        self.kept = b""

    def __call__(self, request: Request) -> Answer:
        if request.method == "PUT":
            self.kept = request.body
        return Answer(200, self.kept, {"content-type": "application/octet-stream"})


def box_behind(api: str, router: str | None) -> AsyncSandbox:
    return AsyncSandbox(acquire_connection(Engine(Credentials(api, token="secret"), router)), a_sandbox())


@pytest.mark.parametrize("router", [None, NOBODY])
async def test_a_sandbox_without_a_router_is_reached_through_the_api_server(router: str | None) -> None:
    with HttpServer(Echo()) as pod:
        async with ForwardingServer(pod.url) as api:
            box = box_behind(api.url, router)
            await box.files.write("/f", CONTENT)
            assert await box.files.read("/f") == CONTENT
            await box.close()
    assert all("/pods/box-pod/portforward?ports=49900" in path for path in api.forwards) and api.forwards


async def test_a_body_that_can_be_sent_once_is_not_spent_on_a_router_that_is_not_there() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"once"

    with HttpServer(Echo()) as pod:
        async with ForwardingServer(pod.url) as api:
            box = box_behind(api.url, NOBODY)
            async with box._plane.request("PUT", "/f", content=pieces()) as response:
                assert response.status_code == 200
            await box.close()


async def test_a_held_sandbox_is_not_woken_through_the_api_server() -> None:
    asleep = ready("False", "SandboxSuspended")
    async with ForwardingServer(NOBODY, status=asleep, spec={"wakePolicy": "Never"}) as api:
        box = box_behind(api.url, None)
        with pytest.raises(SandboxError) as caught:
            await box.files.read("/f")
        await box.close()
    assert (caught.value.code, api.forwards) == ("sandbox-held", [])


async def test_a_router_that_has_answered_is_not_left() -> None:
    with HttpServer(lambda _: Answer(200, b"x", {"connection": "close"})) as router:
        async with ForwardingServer(router.url) as api:
            box = box_behind(api.url, router.url)
            await box.files.read("/f")
            router.close()
            with pytest.raises(SandboxError) as caught:
                await box.files.read("/f")
            await box.close()
    assert (caught.value.code, api.forwards) == ("connection-lost", [])
