"""Verbs about commands and processes."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from world import World

from agent_sandbox_sdk import RunResult, _portal

Step = dict[str, Any]
_NAMES = {
    "env": "env",
    "clearEnv": "clear_env",
    "cwd": "cwd",
    "user": "user",
    "tag": "tag",
    "log": "log",
    "commandTimeoutSeconds": "command_timeout",
}
# Between two cuts the client has time to come back and read something.
_CUT_PAUSE_SECONDS = 0.6


def _box(world: World, step: Step) -> Any:
    return world.boxes[step.get("box", "box")]


def _spawn_options(step: Step) -> dict[str, Any]:
    return {python: step[yaml] for yaml, python in _NAMES.items() if yaml in step}


def _result(done: RunResult) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    return {
        "exitCode": done.exit_code,
        "signal": done.signal,
        "timedOut": done.timed_out,
        "reason": done.reason,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "combined": done.combined,
        "stdoutSize": len(done.stdout_bytes),
        "stdoutSha256": hashlib.sha256(done.stdout_bytes).hexdigest(),
        "stdoutLines": len(lines),
        "lastLine": lines[-1] if lines else "",
        "droppedBytes": done.dropped_bytes,
    }


async def run(world: World, step: Step) -> dict[str, Any]:
    """Runs a command to its end."""
    options = {**_spawn_options(step), "check": step.get("check", False)}
    if "stdin" in step:
        options["stdin"] = step["stdin"]
    if "cancelAfterSeconds" in step:
        return await _run_cancelled(world, step, options)
    running = asyncio.ensure_future(world.call(_box(world, step).run, step["command"], **options))
    for _ in range(step.get("cuts", 0)):
        await asyncio.sleep(_CUT_PAUSE_SECONDS)
        assert world.proxy is not None and not running.done(), "there was nothing left to cut"
        world.proxy.cut()
    return _result(await running)


async def _run_cancelled(world: World, step: Step, options: dict[str, Any]) -> dict[str, Any]:
    box = _box(world, step)
    if world.twin == "sync":
        # A blocking call cannot be cancelled from outside; this is what an interrupt of its thread does.
        running = _portal.Call(box._inner.run(step["command"], **options))
        await asyncio.sleep(step["cancelAfterSeconds"])
        await asyncio.to_thread(running.give_up)
        outcome = await asyncio.gather(asyncio.to_thread(running.result), return_exceptions=True)
        return {"cancelled": isinstance(outcome[0], asyncio.CancelledError)}
    task = asyncio.ensure_future(box.run(step["command"], **options))
    await asyncio.sleep(step["cancelAfterSeconds"])
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return {"cancelled": True}
    return {"cancelled": False}


async def run_many(world: World, step: Step) -> dict[str, Any]:
    """Runs a command many times at once."""
    commands = [step["command"].replace("${index}", str(index)) for index in range(step["count"])]
    done = await asyncio.gather(*(world.call(_box(world, step).run, command) for command in commands))
    return {"distinctOutputs": len({one.stdout for one in done}), "failures": sum(one.exit_code != 0 for one in done)}


def _keep(world: World, step: Step, process: Any) -> dict[str, Any]:
    name = step.get("as", "process")
    world.processes[name] = process
    world.kept[name] = {"id": process.id}
    return {"id": process.id}


async def spawn(world: World, step: Step) -> dict[str, Any]:
    """Starts a process."""
    return _keep(world, step, await world.call(_box(world, step).spawn, step["command"], **_spawn_options(step)))


async def pty(world: World, step: Step) -> dict[str, Any]:
    """Starts a process with a terminal."""
    options = {"cols": step["cols"], "rows": step["rows"], **_spawn_options(step)}
    return _keep(world, step, await world.call(_box(world, step).pty, step["command"], **options))


async def attach(world: World, step: Step) -> dict[str, Any]:
    """Follows a process."""
    options = {"from_offset": step.get("fromOffset", 0)}
    return _keep(world, step, await world.call(_box(world, step).attach, step["id"], **options))


async def read_until(world: World, step: Step) -> dict[str, Any]:
    """Reads standard output up to and including a text."""
    stdout = world.processes[step["process"]].stdout
    seen = b""
    while step["text"].encode() not in seen:
        chunk = await world.call(stdout.read_chunk)
        assert chunk is not None, f"output ended after {seen!r}"
        seen += chunk
    return {"text": seen.decode("utf-8", "replace")}


async def write(world: World, step: Step) -> dict[str, Any]:
    """Writes to standard input."""
    await world.call(world.processes[step["process"]].stdin.write, step["text"])
    return {}


async def close_input(world: World, step: Step) -> dict[str, Any]:
    """Closes standard input."""
    await world.call(world.processes[step["process"]].stdin.close)
    return {}


async def signal(world: World, step: Step) -> dict[str, Any]:
    """Sends a signal."""
    process = world.processes[step["process"]]
    await world.call(process.send_signal, step["signal"], scope=step.get("scope", "tree"))
    return {}


async def resize(world: World, step: Step) -> dict[str, Any]:
    """Changes the window."""
    await world.call(world.processes[step["process"]].resize, step["cols"], step["rows"])
    return {}


async def detach(world: World, step: Step) -> dict[str, Any]:
    """Stops following."""
    await world.call(world.processes[step["process"]].detach)
    return {}


async def wait(world: World, step: Step) -> dict[str, Any]:
    """Waits for the end."""
    process = world.processes[step["process"]]
    rest = await world.call(process.stdout.read)
    status = await world.call(process.wait)
    return {"exitCode": status.exit_code, "signal": status.signal, "rest": rest.decode("utf-8", "replace")}


async def processes(world: World, step: Step) -> dict[str, Any]:
    """Counts processes with a tag."""
    found = [info for info in await world.call(_box(world, step).processes) if info.tag == step["tag"]]
    return {"count": len(found), "running": sum(info.exit is None for info in found)}


async def cut(world: World, step: Step) -> dict[str, Any]:
    """Cuts the connections of the proxy."""
    assert world.proxy is not None, "no handle goes through the proxy"
    world.proxy.cut()
    return {}


PROCESS_VERBS = {
    "run": run,
    "run-many": run_many,
    "spawn": spawn,
    "pty": pty,
    "attach": attach,
    "read-until": read_until,
    "write": write,
    "close-input": close_input,
    "signal": signal,
    "resize": resize,
    "detach": detach,
    "wait": wait,
    "processes": processes,
    "cut": cut,
}
