from __future__ import annotations

import json

import pytest
from builders import a_handle
from http_server import Answer, HttpServer, Request

from agent_sandbox_sdk import SandboxError

OCTETS = {"content-type": "application/octet-stream"}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/tmp/a b", "%2Ftmp%2Fa%20b"),
        ("/ü/..", "%2F%C3%BC%2F.."),
        ("..", "%2E%2E"),
        (b"/\xff?", "%2F%FF%3F"),
    ],
)
async def test_a_path_travels_as_one_word(path: str | bytes, word: str) -> None:
    with HttpServer(lambda _: Answer(200, b"content", OCTETS)) as server:
        box = a_handle(server.url)
        assert await box.files.read(path) == b"content"
        await box.close()
        assert server.requests[0].path == f"/v1/fs/{word}"


async def test_reading_a_directory_says_so() -> None:
    with HttpServer(lambda _: Answer(200, b'{"entries": []}', JSON)) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.files.read("/tmp")
        await box.close()
    assert caught.value.code == "is-a-directory"


@pytest.mark.parametrize(
    ("status", "code"), [(404, "not-found"), (403, "permission-denied"), (412, "conflict"), (507, "no-space")]
)
async def test_a_refused_write_becomes_its_code(status: int, code: str) -> None:
    body = json.dumps({"code": "X", "message": "because"}).encode()
    with HttpServer(lambda _: Answer(status, body, JSON)) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError, match="because") as caught:
            await box.files.write("/x", b"y")
        await box.close()
    assert caught.value.code == code


async def test_write_sends_mode_and_streams() -> None:
    with HttpServer(lambda _: Answer(204)) as server:
        box = a_handle(server.url)
        await box.files.write("/x", "text", mode=0o600, append=True)
        await box.close()
        request = server.requests[0]
    assert (request.method, request.path) == ("PUT", "/v1/fs/%2Fx?mode=0600&append=true")
    assert request.body == b"text"


async def test_an_existing_target_is_file_exists() -> None:
    body = json.dumps({"code": "already_exists", "message": "path exists already"}).encode()
    with HttpServer(lambda _: Answer(409, body, JSON)) as server:
        box = a_handle(server.url)
        with pytest.raises(SandboxError) as caught:
            await box.files.move("/a", "/b")
        await box.close()
    assert caught.value.code == "file-exists"


async def test_list_reads_every_page() -> None:
    def answer(request: Request) -> Answer:
        token = json.loads(request.body)["pageToken"]
        page = {"files": [{"name": f"after-{token}"}], "nextPageToken": "" if token else "next"}
        return Answer(200, json.dumps(page).encode(), JSON)

    with HttpServer(answer) as server:
        box = a_handle(server.url)
        names = [info.name for info in await box.files.list("/x")]
        await box.close()
    assert names == ["after-", "after-next"]
