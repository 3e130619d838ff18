"""Verbs about sandboxes themselves."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from world import World

from agent_sandbox_sdk import Engine, SandboxError, Volume
from agent_sandbox_sdk._connection import acquire_connection
from agent_sandbox_sdk._kube import POOLS, TEMPLATES, KubeClient, Resource

Step = dict[str, Any]
_RESOURCES: dict[str, Resource] = {"sandboxtemplates": TEMPLATES, "sandboxwarmpools": POOLS}


async def _engine_for(world: World, step: Step) -> Engine:
    return await world.proxied_engine() if step.get("throughProxy") else world.engine


def _options(step: Step) -> dict[str, Any]:
    names = {
        "env": "env",
        "labels": "labels",
        "workdir": "workdir",
        "entrypoint": "command",
        "ttlSeconds": "ttl",
        "readyTimeoutSeconds": "ready_timeout",
        "cpu": "cpu",
        "memory": "memory",
        "fromSnapshot": "from_snapshot",
    }
    options = {python: step[yaml] for yaml, python in names.items() if yaml in step}
    if "restartPolicy" in step:
        options["pod_template"] = {"spec": {"restartPolicy": step["restartPolicy"]}}
    if "volumes" in step:
        options["volumes"] = [Volume(volume["path"], volume["size"]) for volume in step["volumes"]]
    return options


def _keep(world: World, step: Step, box: Any, *, is_made: bool) -> dict[str, Any]:
    name = step.get("as", "box")
    world.boxes[name] = box
    if is_made:
        world.made.append(box)
    world.kept[name] = {"name": box.name, "namespace": box.namespace, "uid": box.uid}
    return dict(world.kept[name])


async def create(world: World, step: Step) -> dict[str, Any]:
    """Makes a sandbox."""
    options = {"name": step.get("name"), "engine": await _engine_for(world, step), **_options(step)}
    box = await world.call(world.handles.create, step.get("image"), **options)
    return _keep(world, step, box, is_made=True)


async def open_box(world: World, step: Step) -> dict[str, Any]:
    """Gets or makes a sandbox."""
    box = await world.call(world.handles.open, step["name"], engine=world.engine, **_options(step))
    return _keep(world, step, box, is_made=True)


async def get(world: World, step: Step) -> dict[str, Any]:
    """Finds a sandbox."""
    box = await world.call(world.handles.get, step["name"], engine=world.engine)
    return _keep(world, step, box, is_made=False)


async def claim(world: World, step: Step) -> dict[str, Any]:
    """Takes a sandbox from a pool."""
    named = {"name": step["name"]} if "name" in step else {}
    box = await world.call(world.handles.claim, step["pool"], engine=world.engine, **named, **_options(step))
    return _keep(world, step, box, is_made=True)


async def handle(world: World, step: Step) -> dict[str, Any]:
    """Makes a handle from another one's JSON."""
    text = world.boxes[step.get("box", "box")].to_json()
    box = await world.call(world.handles.from_json, text, engine=world.engine)
    return _keep(world, step, box, is_made=False)


async def list_boxes(world: World, step: Step) -> dict[str, Any]:
    """Names of sandboxes."""
    found = await world.collect(world.handles.list, label_selector=step["labels"], engine=world.engine)
    for box in found:
        await world.call(box.close)
    return {"names": [box.name for box in found]}


async def info(world: World, step: Step) -> dict[str, Any]:
    """What the engine says."""
    found = await world.call(world.boxes[step.get("box", "box")].info)
    return {
        "state": found.state,
        "reason": found.reason,
        "image": found.image,
        "expires": found.shutdown_at is not None,
    }


async def delete(world: World, step: Step) -> dict[str, Any]:
    """Deletes a sandbox."""
    await world.call(world.boxes[step.get("box", "box")].delete, wait=step.get("wait", False))
    return {}


async def suspend(world: World, step: Step) -> dict[str, Any]:
    """Puts it to sleep."""
    await world.call(world.boxes[step.get("box", "box")].suspend, hold=step.get("hold", False))
    return {}


async def fork(world: World, step: Step) -> dict[str, Any]:
    """Copies it, and keeps the copies under the step's name and their numbers."""
    source = world.boxes[step.get("box", "box")]
    names = []
    for index, result in enumerate(await world.call(source.fork, step["count"], name=step["name"])):
        if isinstance(result, SandboxError):
            raise result
        names.append(result.name)
        _keep(world, {"as": f"{step['as']}{index + 1}"}, result, is_made=True)
    return {"names": names}


async def snapshot(world: World, step: Step) -> dict[str, Any]:
    """Saves it."""
    take = world.boxes[step.get("box", "box")].snapshot
    info = await world.call(take, name=step["name"], memory=step.get("withMemory", True))
    return {"state": info.state, "hasMemory": info.memory_size_bytes is not None}


async def delete_snapshot(world: World, step: Step) -> dict[str, Any]:
    """Deletes what was saved."""
    await world.call(world.handles.delete_snapshot, step["name"], engine=world.engine)
    return {}


async def resume(world: World, step: Step) -> dict[str, Any]:
    """Wakes it."""
    await world.call(world.boxes[step.get("box", "box")].resume)
    return {}


async def set_timeout(world: World, step: Step) -> dict[str, Any]:
    """Sets its end."""
    await world.call(world.boxes[step.get("box", "box")].set_timeout, step["ttlSeconds"])
    return {}


async def extend(world: World, step: Step) -> dict[str, Any]:
    """Moves its end."""
    box = world.boxes[step.get("box", "box")]
    before = await world.call(box.info)
    end = await world.call(box.extend, step["bySeconds"])
    return {"laterSeconds": (end - before.shutdown_at).total_seconds()}


async def logs(world: World, step: Step) -> dict[str, Any]:
    """What the entrypoint printed, up to the text."""
    box = world.boxes[step.get("box", "box")]

    def read() -> bytes:
        printed = b""
        for chunk in box.logs(follow=True):
            printed += chunk
            if step["untilText"].encode() in printed:
                break
        return printed

    if world.twin == "sync":
        return {"text": (await world.call(read)).decode()}
    printed = b""
    async for chunk in box.logs(follow=True):
        printed += chunk
        if step["untilText"].encode() in printed:
            break
    return {"text": printed.decode()}


async def await_state(world: World, step: Step) -> dict[str, Any]:
    """Waits for a state."""
    found = await world.call(world.boxes[step.get("box", "box")].wait_for, step["state"])
    return {"state": found.state, "reason": found.reason}


async def metrics(world: World, step: Step) -> dict[str, Any]:
    """Names of figures."""
    return {"names": list(await world.call(world.boxes[step.get("box", "box")].metrics))}


async def ports(world: World, step: Step) -> dict[str, Any]:
    """What listens."""
    listed = await world.call(world.boxes[step.get("box", "box")].ports)
    addresses = [address for one in listed for address in one.addresses]
    return {"ports": [one.port for one in listed], "addresses": addresses}


async def start_service(world: World, step: Step) -> dict[str, Any]:
    """Keeps a program running."""
    await world.call(world.boxes[step.get("box", "box")].start_service, step["name"], step["command"])
    return {}


async def remove_service(world: World, step: Step) -> dict[str, Any]:
    """Ends it for good."""
    await world.call(world.boxes[step.get("box", "box")].remove_service, step["name"])
    return {}


async def open_link(world: World, step: Step) -> dict[str, Any]:
    """Opens a link with the library's own client, which knows nothing of the engine."""
    link = await world.call(world.boxes[step.get("box", "box")].url, step["port"])

    def read() -> dict[str, Any]:
        try:
            with urlopen(link, timeout=30) as answer:
                return {"status": answer.status, "text": answer.read().decode()}
        except HTTPError as error:
            return {"status": error.code, "text": error.read().decode()}

    return await asyncio.to_thread(read)


async def apply(world: World, step: Step) -> dict[str, Any]:
    """Makes an object."""
    connection = acquire_connection(world.engine)
    try:
        await KubeClient(connection).create(_RESOURCES[step["resource"]], world.engine.namespace, step["object"])
    finally:
        await connection.release()
    return {}


async def remove_object(world: World, step: Step) -> dict[str, Any]:
    """Deletes an object."""
    connection = acquire_connection(world.engine)
    try:
        await KubeClient(connection).delete(_RESOURCES[step["resource"]], world.engine.namespace, step["name"])
    finally:
        await connection.release()
    return {}


CONTROL_VERBS = {
    "create": create,
    "open": open_box,
    "get": get,
    "claim": claim,
    "handle": handle,
    "list": list_boxes,
    "info": info,
    "delete": delete,
    "suspend": suspend,
    "resume": resume,
    "fork": fork,
    "snapshot": snapshot,
    "delete-snapshot": delete_snapshot,
    "set-timeout": set_timeout,
    "extend": extend,
    "logs": logs,
    "await-state": await_state,
    "metrics": metrics,
    "ports": ports,
    "start-service": start_service,
    "remove-service": remove_service,
    "open-link": open_link,
    "apply": apply,
    "remove-object": remove_object,
}
