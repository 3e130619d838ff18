"""Services that a Sandbox declares: its annotation, where they outlive the Pod."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from agent_sandbox_sdk import _kube
from agent_sandbox_sdk.errors import SandboxError

ANNOTATION = "agent-sandbox.dev/services"
_SERVICES_MAX = 16
_BYTES_MAX = 8192
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# Others may change the object between a look and a write: as often as this is looked again.
_ATTEMPTS_MAX = 8

Services = list[dict[str, Any]]


def check_name(name: str) -> None:
    """Raises `invalid-argument` for what is no name of a service."""
    if not _NAME.fullmatch(name):
        rule = "1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
        raise SandboxError("invalid-argument", f"'{name}' is no name of a service: {rule}")


def services_of(annotations: Mapping[str, str] | None) -> Services:
    """The services that an annotation declares; none where it is absent or cannot be read."""
    try:
        found = json.loads((annotations or {}).get(ANNOTATION) or "[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict) and "name" in one] if isinstance(found, list) else []


def with_service(service: Mapping[str, Any]) -> Callable[[Services], Services]:
    """Adds a service in place of one of the same name."""
    return lambda known: [*(one for one in known if one["name"] != service["name"]), dict(service)]


def without_service(name: str) -> Callable[[Services], Services]:
    """Takes a service out."""
    return lambda known: [one for one in known if one["name"] != name]


def format_services(services: Services) -> str | None:
    """The annotation's text, with no more escapes than JSON demands; `None` for no services."""
    if not services:
        return None
    text = json.dumps(services, separators=(",", ":"), ensure_ascii=False)
    # UTF-8 has no lone surrogates.
    text = _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    if len(services) > _SERVICES_MAX or len(text.encode()) > _BYTES_MAX:
        raise ValueError(f"{_SERVICES_MAX} services of 8 KiB in all; remove one first")
    return text


async def change_services(
    kube: _kube.KubeClient, namespace: str, name: str, uid: str, change: Callable[[Services], Services]
) -> None:
    """Writes the services of a Sandbox anew; another Sandbox of its name is left alone."""
    for attempt in range(_ATTEMPTS_MAX):
        metadata = (await kube.get(_kube.SANDBOXES, namespace, name))["metadata"]
        if uid and metadata.get("uid") != uid:
            raise SandboxError("not-found", f"sandbox {namespace}/{name} was replaced by another of its name")
        wanted = change(services_of(metadata.get("annotations")))
        try:
            text = format_services(wanted)
        except ValueError as limit:
            raise SandboxError("invalid-argument", f"sandbox {namespace}/{name} can have {limit}") from None
        if (metadata.get("annotations") or {}).get(ANNOTATION) == text:
            return
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {ANNOTATION: text}}}
        try:
            await kube.patch(_kube.SANDBOXES, namespace, name, patch)
            return
        except SandboxError as error:
            if error.code != "conflict" or attempt == _ATTEMPTS_MAX - 1:
                raise
