"""Protobuf's binary form for the few messages that carry output, where base64 in JSON costs several times their price.

Written by hand, because the generated code and its runtime take longer to import than most scripts run. A message type
is a table from field numbers to names; values are those of the message's JSON form, except that `bytes` are bytes and
64-bit numbers are ints.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Literal, Union

from agent_sandbox_sdk.errors import SandboxError

Scalar = Literal["string", "bytes", "number", "bool", "list", "map", "duration", "timestamp"]
"""How a field travels: a `list` is a repeated string, a `map` has strings on both sides."""

MessageType = Mapping[int, tuple[str, Union[Scalar, "MessageType"]]]
Message = dict[str, Any]

_VARINT = 0
_BYTES = 2
# The lengths of the kinds that none of our fields has.
_FIXED_BYTES = {1: 8, 5: 4}

_MAP_ENTRY: MessageType = {1: ("key", "string"), 2: ("value", "string")}
_SECONDS_AND_NANOS: MessageType = {1: ("seconds", "number"), 2: ("nanos", "number")}
_EXIT: MessageType = {
    1: ("code", "number"),
    2: ("signal", "string"),
    3: ("timedOut", "bool"),
    4: ("finishedAt", "timestamp"),
}
_PROCESS: MessageType = {
    1: ("id", "string"),
    3: ("pid", "number"),
    4: ("command", "list"),
    5: ("cwd", "string"),
    6: ("user", "string"),
    7: ("tag", "string"),
    8: ("terminal", "bool"),
    9: ("startedAt", "timestamp"),
    10: ("exit", _EXIT),
    11: ("outputStart", "number"),
    12: ("outputEnd", "number"),
    13: ("replayed", "bool"),
}
_OUTPUT: MessageType = {1: ("data", "bytes"), 2: ("offset", "number")}
_SPEC: MessageType = {
    1: ("command", "list"),
    2: ("env", "map"),
    3: ("clearEnv", "bool"),
    4: ("cwd", "string"),
    5: ("user", "string"),
    6: ("terminal", {1: ("cols", "number"), 2: ("rows", "number")}),
    7: ("timeout", "duration"),
    9: ("stdin", "bool"),
    10: ("outputBufferBytes", "number"),
    11: ("tag", "string"),
    12: ("log", "bool"),
}

EVENT: MessageType = {
    1: ("started", _PROCESS),
    2: ("stdout", _OUTPUT),
    3: ("stderr", _OUTPUT),
    4: ("dropped", {1: ("fromOffset", "number"), 2: ("toOffset", "number")}),
    5: ("exit", _EXIT),
}
"""agentsandbox.v1.ProcessEvent."""

START: MessageType = {
    1: ("spec", _SPEC),
    2: ("idempotencyKey", "string"),
    5: ("firstSentMsAgo", "number"),
    6: ("service", "string"),
}
"""agentsandbox.v1.StartRequest."""

ATTACH: MessageType = {1: ("id", "string"), 2: ("fromOffset", "number")}
"""agentsandbox.v1.AttachRequest."""


def encode_message(kind: MessageType, message: Mapping[str, Any]) -> bytes:
    """Makes the binary form."""
    numbers = {name: (number, how) for number, (name, how) in kind.items()}
    return b"".join(_encode_field(*numbers[name], value) for name, value in message.items())


def _encode_field(number: int, how: Scalar | MessageType, value: Any) -> bytes:
    if not isinstance(how, str):
        return _delimited(number, encode_message(how, value))
    if how in ("number", "bool"):
        return _varint(number << 3 | _VARINT) + _varint(int(value))
    if how == "list":
        return b"".join(_delimited(number, _text(item)) for item in value)
    if how == "map":
        entries = (encode_message(_MAP_ENTRY, {"key": key, "value": item}) for key, item in value.items())
        return b"".join(_delimited(number, entry) for entry in entries)
    if how == "duration":
        nanos = round(float(str(value).removesuffix("s")) * 1e9)
        parts = {"seconds": nanos // 10**9, "nanos": nanos % 10**9}
        return _delimited(number, encode_message(_SECONDS_AND_NANOS, parts))
    return _delimited(number, value if how == "bytes" else _text(value))


def _text(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SandboxError("invalid-argument", f"{value!r} is not text that can be sent") from error


def _delimited(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_message(kind: MessageType, data: bytes) -> Message:
    """Reads the binary form; fields that are not known are passed over."""
    try:
        return _decode(kind, memoryview(data))
    except (IndexError, ValueError) as error:
        raise SandboxError("protocol-error", f"not a message: {error}") from error


def _decode(kind: MessageType, data: memoryview) -> Message:
    message: Message = {}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        name, how = kind.get(tag >> 3, ("", "bytes"))
        wire = tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            message[name] = value != 0 if how == "bool" else value
            continue
        length, at = _read_varint(data, at) if wire == _BYTES else (_FIXED_BYTES.get(wire, -1), at)
        if length < 0 or at + length > len(data):
            raise ValueError("it ends inside a field")
        if wire == _BYTES:
            message[name] = _decode_value(how, data[at : at + length], message.get(name))
        at += length
    message.pop("", None)
    return message


def _decode_value(how: Scalar | MessageType, body: memoryview, earlier: Any) -> Any:
    if not isinstance(how, str):
        return _decode(how, body)
    if how == "bytes":
        return bytes(body)
    if how == "timestamp":
        parts = _decode(_SECONDS_AND_NANOS, body)
        time = datetime.fromtimestamp(parts.get("seconds", 0), timezone.utc)
        return time.replace(microsecond=parts.get("nanos", 0) // 1000).isoformat()
    text = str(body, "utf-8", "replace")
    return [*(earlier or ()), text] if how == "list" else text


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
