"""What the daemon in a sandbox says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agent_sandbox_sdk._plane import DataPlane
from agent_sandbox_sdk.errors import SandboxError, code_of_status


@dataclass(frozen=True)
class OpenPort:
    """A TCP port that something in the sandbox listens on."""

    port: int
    addresses: tuple[str, ...]
    """Where it listens: `0.0.0.0` and `::` are all addresses, `127.0.0.1` and `::1` the sandbox's own."""


async def read_ports(plane: DataPlane) -> list[OpenPort]:
    """What listens in the sandbox, in ascending order."""
    text = await _read_status(plane, "ports")
    try:
        return [OpenPort(int(one["port"]), tuple(one["addresses"])) for one in json.loads(text)["ports"]]
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxError("protocol-error", "ports: the answer is not what was asked for") from error


async def read_metrics(plane: DataPlane) -> dict[str, float]:
    """The daemon's figures."""
    text = await _read_status(plane, "metrics")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    pairs = (line.rpartition(" ") for line in lines)
    return {name: float(value) for name, _, value in pairs}


async def _read_status(plane: DataPlane, page: str) -> str:
    async with plane.request("GET", f"/v1/{page}") as response:
        text = (await response.aread()).decode("utf-8", "replace")
        status, request_id = response.status_code, response.headers.get("x-request-id")
    if status == 200:
        return text
    # No daemon of ours, or one that is older than this page.
    code = "unsupported" if status in (404, 501) else code_of_status(status)
    raise SandboxError(code, f"{page}: the sandbox answered {status}: {text.strip()[:500]}", request_id=request_id)
