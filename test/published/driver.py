"""Checks one published SDK in one connection mode; the last line of its output is one JSON object, item -> findings.

    python driver.py '{"version": "1.0.8", "mode": "tunnel", "items": ["run", "K1", ...], ...}'

Every item of the checklist has one check, named in the tables of the modules `checks_*`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import checks_api
import checks_daemon
import checks_naming
import checks_router
import checks_runtime
import checks_surface
from session import Session

CHECKS: dict[str, Callable[[Session], Awaitable[None]]] = {
    **checks_surface.CHECKS,
    **checks_api.CHECKS,
    **checks_naming.CHECKS,
    **checks_router.CHECKS,
    **checks_runtime.CHECKS,
    **checks_daemon.CHECKS,
}

# These look at what has happened meanwhile, or end the sandbox.
LAST = ("K17", "K14")


async def check(session: Session, item: str) -> dict[str, Any]:
    """One item: how many assertions it made and which failed."""
    session.asserted, session.failures = 0, []
    began = time.monotonic()
    try:
        await CHECKS[item](session)
    except Exception:
        session.failures.append(traceback.format_exc()[-1500:])
        if "No route to host" in session.failures[-1]:
            session.failures.append(network())
    print(f"{item} {time.monotonic() - began:.2f} s {session.failures or 'ok'}", file=sys.stderr, flush=True)
    return {"asserted": session.asserted, "failures": session.failures}


def network() -> str:
    """What the engine's namespace knows of its sandboxes: where their addresses lead, and who has answered there."""
    asked = "ip route; ip neigh; ip -br link"
    return subprocess.run(["sh", "-c", asked], capture_output=True, text=True, check=False).stdout


async def drive(options: dict[str, Any]) -> dict[str, Any]:
    """Every item that was asked for."""
    session = Session(options)
    await session.open()
    items = sorted(options["items"], key=lambda item: LAST.index(item) if item in LAST else -1)
    return {item: await check(session, item) for item in items}


if __name__ == "__main__":
    report = asyncio.run(drive(json.loads(sys.argv[1])))
    print(json.dumps(report))
