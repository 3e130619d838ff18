"""Services and links: pure functions."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from agent_sandbox_sdk._lifecycle import _link_base
from agent_sandbox_sdk._objects import sandbox_object
from agent_sandbox_sdk._services import (
    ANNOTATION,
    check_name,
    format_services,
    services_of,
    with_service,
    without_service,
)
from agent_sandbox_sdk.errors import SandboxError

WEB = {"name": "web", "command": ["serve"]}


def test_services_are_read_replaced_and_taken_out() -> None:
    assert services_of({ANNOTATION: json.dumps([WEB])}) == [WEB]
    other = {"name": "other", "command": ["a"]}
    newer = {"name": "web", "command": ["serve", "again"]}
    assert with_service(newer)([WEB, other]) == [other, newer]
    assert without_service("web")([WEB, other]) == [other]


@pytest.mark.parametrize("text", ["", "{", '{"name":"web"}', "[1]"])
def test_an_annotation_that_cannot_be_read_declares_none(text: str) -> None:
    assert services_of({ANNOTATION: text}) == []
    assert services_of(None) == []


@pytest.mark.parametrize("longest", ["x" * 8161, "é" * 4080 + "x", "<" * 8161, "\u2028" * 2720 + "x"])
def test_the_bound_of_services_is_8192_bytes_of_utf8(longest: str) -> None:
    services = [{"name": "web", "command": [longest]}]
    text = format_services(services)
    assert text is not None
    assert len(text.encode()) == 8192
    assert services_of({ANNOTATION: text}) == services
    with pytest.raises(ValueError, match="16 services of 8 KiB"):
        format_services([{"name": "web", "command": [longest + "x"]}])


def test_a_lone_surrogate_in_a_service_is_escaped() -> None:
    services = [{"name": "web", "command": ["\ud800"]}]
    text = format_services(services)
    assert text == '[{"name":"web","command":["\\ud800"]}]'
    assert services_of({ANNOTATION: text}) == services
    assert format_services([]) is None


@pytest.mark.parametrize("name", ["", "Web", "-a", "a-", "a_b", "x" * 64])
def test_what_is_no_name_of_a_service_is_refused(name: str) -> None:
    with pytest.raises(SandboxError, match="no name of a service"):
        check_name(name)


@pytest.mark.parametrize(
    ("router", "is_local", "base"),
    [
        ("https://127.0.0.1:7080", True, "http://127.0.0.1:7080"),
        ("https://[::1]:7080", True, "http://[::1]:7080"),
        ("https://router.example", True, "https://router.example"),
        ("https://127.0.0.1:7080", False, "https://127.0.0.1:7080"),
    ],
)
def test_a_link_of_this_machines_engine_is_cleartext(router: str, base: str, *, is_local: bool) -> None:
    assert _link_base(router, is_local=is_local) == base


@pytest.mark.parametrize(
    ("given", "stdin"),
    [({}, True), ({"args": ["-v"]}, None), ({"command": ["sh"]}, None), ({"stdin": False}, False)],
)
def test_the_images_own_program_waits_for_input(given: dict[str, object], stdin: bool | None) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", **given}]}}
    made = sandbox_object(
        None,
        "box",
        {"command": "image", "pod_template": template},
        now=datetime(2026, 1, 1, tzinfo=timezone.utc),
        is_own_engine=True,
    )
    assert made["spec"]["podTemplate"]["spec"]["containers"][0].get("stdin") is stdin
