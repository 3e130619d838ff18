from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from protocol import AttachRequest, ProcessEvent, StartRequest

from agent_sandbox_sdk import SandboxError
from agent_sandbox_sdk._protobuf import ATTACH, EVENT, START, decode_message, encode_message

SPEC = {
    "command": ["/bin/sh", "-c", "echo ä"],
    "env": {"A": "1", "B": ""},
    "clearEnv": True,
    "cwd": "/tmp",
    "user": "1:2",
    "terminal": {"cols": 101, "rows": 31},
    "timeout": "1.500s",
    "stdin": True,
    "outputBufferBytes": 64 * 2**20,
    "tag": "t",
}


def test_a_start_means_to_the_generated_code_what_it_says() -> None:
    read = StartRequest.FromString(encode_message(START, {"spec": SPEC, "idempotencyKey": "k"}))
    expected = {**SPEC, "outputBufferBytes": str(64 * 2**20)}
    assert MessageToDict(read) == {"spec": expected, "idempotencyKey": "k"}


def test_an_offset_beyond_32_bits_is_kept() -> None:
    read = AttachRequest.FromString(encode_message(ATTACH, {"id": "x", "fromOffset": 6_000_000_000}))
    assert (read.id, read.from_offset) == ("x", 6_000_000_000)


def test_events_of_the_generated_code_are_read() -> None:
    started = {"id": "p", "pid": 300, "command": ["a", "b"], "startedAt": "2026-11-15T10:00:00.250Z", "replayed": True}
    exit = {"code": 137, "signal": "SIGKILL", "timedOut": True, "outputOffset": "9"}
    written: list[dict[str, Any]] = [
        {"started": started},
        {"stdout": {"data": "AP/+", "offset": "5000000000"}},
        {"dropped": {"toOffset": "7"}},
        {"exit": exit},
    ]
    read = [decode_message(EVENT, ParseDict(event, ProcessEvent()).SerializeToString()) for event in written]
    assert read == [
        {"started": {**started, "startedAt": "2026-11-15T10:00:00.250000+00:00"}},
        {"stdout": {"data": b"\x00\xff\xfe", "offset": 5_000_000_000}},
        {"dropped": {"toOffset": 7}},
        {"exit": {"code": 137, "signal": "SIGKILL", "timedOut": True}},
    ]


def test_a_message_that_is_cut_off_is_refused() -> None:
    whole = encode_message(START, {"spec": SPEC})
    with pytest.raises(SandboxError, match="not a message"):
        decode_message(START, whole[:-3])
