from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from agent_sandbox_sdk import SandboxError
from agent_sandbox_sdk._connect import decode_envelopes, encode_envelope


async def pieces(data: bytes, size: int) -> AsyncGenerator[bytes, None]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", [1, 4, 7, 1000])
async def test_messages_survive_any_cut(size: int) -> None:
    data = encode_envelope(b"") + encode_envelope(b"hello") + encode_envelope(b"end", 2)
    assert [one async for one in decode_envelopes(pieces(data, size))] == [(0, b""), (0, b"hello"), (2, b"end")]


async def test_an_end_inside_a_message_is_a_lost_connection() -> None:
    with pytest.raises(SandboxError) as caught:
        _ = [one async for one in decode_envelopes(pieces(encode_envelope(b"hello")[:-1], 3))]
    assert caught.value.code == "connection-lost"


async def test_a_length_beyond_reason_is_no_stream() -> None:
    with pytest.raises(SandboxError) as caught:
        _ = [one async for one in decode_envelopes(pieces(b"<html>something else</html>", 9))]
    assert caught.value.code == "protocol-error"
