"""Snapshots of sandboxes, and sandboxes that start from one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from agent_sandbox_sdk._connection import Connection, acquire_connection
from agent_sandbox_sdk._error_codes import ErrorCode
from agent_sandbox_sdk._kube import SANDBOXES, SNAPSHOTS, KubeClient, KubeObject
from agent_sandbox_sdk._lifecycle import engine_of, namespace_of
from agent_sandbox_sdk._objects import CREATED_BY, CREATED_BY_LABEL, shutdown_time
from agent_sandbox_sdk._verdict import Done, Failed, Verdict, Waiting
from agent_sandbox_sdk._wait import Wait, await_ready
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.options import CallTarget, ForkOptions, SnapshotOptions, assert_known, seconds_of
from agent_sandbox_sdk.snapshot_info import SnapshotInfo, ready_of, snapshot_info_of, snapshot_state

if TYPE_CHECKING:
    from agent_sandbox_sdk._async_sandbox import AsyncSandbox

# Tens of gigabytes of files are copied in five minutes where the file system cannot share them.
_SNAPSHOT_SECONDS = 300.0
_READY_SECONDS = 180.0
# A program that dies leaves the snapshot of a fork for this long: more than children take to start.
_FORK_SNAPSHOT_SECONDS = 3600
# More than that in one call is a mistake: each is a sandbox with memory of its own.
_FORKS_MAX = 1000

_TEMPLATE_REF_HASH_LABEL = "agents.x-k8s.io/sandbox-template-ref-hash"
_RESERVED_LABELS = ("agents.x-k8s.io/", "extensions.agents.x-k8s.io/")
_KEPT_ANNOTATIONS = ("agent-sandbox.dev/services", "agent-sandbox.dev/container-defaults")

# Reasons that no waiting mends for a sandbox that was there a moment ago.
_ENDS: dict[str, ErrorCode] = {
    "SnapshotFailed": "snapshot-failed",
    "SandboxNotFound": "not-found",
    "SnapshotsNotAvailable": "unsupported",
}


def judge_snapshot(snapshot: KubeObject | None) -> Verdict:
    """Whether a snapshot is there."""
    if snapshot is None:
        return Failed(SandboxError("not-found", "the snapshot was deleted meanwhile"))
    if snapshot_state(snapshot) == "ready":
        return Done()
    ready, metadata = ready_of(snapshot), snapshot["metadata"]
    code = _ENDS.get(ready.get("reason", ""))
    if code is None:
        return Waiting(ready.get("message") or "waiting for the controller")
    message = f"snapshot {metadata.get('namespace', '')}/{metadata['name']}: {ready.get('message', '')}"
    return Failed(SandboxError(code, message))


async def take_snapshot(box: AsyncSandbox, options: SnapshotOptions) -> KubeObject:
    """Takes a snapshot; one that fails, or that nobody waits for any more, is deleted again."""
    assert_known("snapshot", options, SnapshotOptions)
    spec: dict[str, Any] = {"sandboxName": box.name}
    if options.get("memory") is not None:
        spec["memory"] = options["memory"]
    if options.get("ttl") is not None:
        seconds = seconds_of(options["ttl"])
        if not seconds > 0:
            raise SandboxError("invalid-argument", f"ttl must be above 0, not {seconds}")
        spec["ttlSecondsAfterCreation"] = math.ceil(seconds)
    name = options.get("name") or f"{box.name[:50]}-{secrets.token_hex(4)}"
    made = {"metadata": {"name": name, "labels": {CREATED_BY_LABEL: CREATED_BY}}, "spec": spec}
    kube = box._kube
    created = await kube.create(SNAPSHOTS, box.namespace, made)
    try:
        limit = seconds_of(options.get("wait_timeout", _SNAPSHOT_SECONDS))
        ready = await Wait(kube, SNAPSHOTS, box.namespace, name, judge_snapshot).within(limit, "wait-timeout")
        uid = (ready.get("status") or {}).get("sandboxUID")
        if uid and box.uid and uid != box.uid:
            raise box._replaced()
        return ready
    except BaseException:
        await drop(kube, SNAPSHOTS, created)
        raise


async def drop(kube: KubeClient, resource: Any, made: KubeObject) -> None:
    """Deletes what a call made; the error that is on its way says more than that the clean-up failed too."""
    metadata = made["metadata"]
    with contextlib.suppress(SandboxError):
        await kube.delete(resource, metadata["namespace"], metadata["name"], uid=metadata.get("uid"))


async def fork(box: AsyncSandbox, count: int, options: ForkOptions) -> list[AsyncSandbox | SandboxError]:
    """Copies a sandbox: one snapshot, and as many Sandboxes that start from it."""
    assert_known("fork", options, ForkOptions)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _FORKS_MAX:
        raise SandboxError("invalid-argument", f"fork: the number must be from 1 to {_FORKS_MAX}, not {count}")
    saved: SnapshotOptions = {"name": f"fork-{secrets.token_hex(4)}", "ttl": _FORK_SNAPSHOT_SECONDS}
    if options.get("memory") is not None:
        saved["memory"] = options["memory"]
    children = fork_objects(await box.object(), saved["name"], count, options)
    snapshot = await take_snapshot(box, saved)
    limit = seconds_of(options.get("ready_timeout", _READY_SECONDS))
    tasks = [asyncio.ensure_future(_start(box, child, limit)) for child in children]
    try:
        # Not gather: it hands a cancellation down, and a task that undoes its work must not be cancelled twice.
        await asyncio.wait(tasks)
        results = [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(ended, BaseException):
                await ended.delete()
        await drop(box._kube, SNAPSHOTS, snapshot)
        raise
    # Children that nobody waited for still need it: it goes when its time is up.
    if limit > 0:
        await drop(box._kube, SNAPSHOTS, snapshot)
    return results


async def _start(box: AsyncSandbox, child: KubeObject, limit: float) -> AsyncSandbox | SandboxError:
    try:
        made = await box._kube.create(SANDBOXES, box.namespace, child)
    except SandboxError as error:
        return error
    connection: Connection = acquire_connection(box._connection.engine)
    try:
        if limit > 0:
            await await_ready(box._kube, made, ready_timeout=limit, is_local=connection.engine.is_local)
    except BaseException as error:
        await drop(box._kube, SANDBOXES, made)
        await connection.release()
        if isinstance(error, SandboxError):
            return error
        raise
    return type(box)(connection, made, is_owned=True)


def fork_objects(source: KubeObject, snapshot: str, count: int, options: ForkOptions) -> list[KubeObject]:
    """The children: the source's spec and its user's labels, and nothing that the engine gave to the source."""
    metadata = source["metadata"]
    spec = {key: value for key, value in source["spec"].items() if key != "operatingMode"}
    spec["restoreFrom"] = {"snapshotName": snapshot}
    if options.get("ttl") is not None:
        now = datetime.now(timezone.utc)
        spec |= {"shutdownTime": shutdown_time(now, options["ttl"]), "shutdownPolicy": "Delete"}
    # The template that it was made from has a network policy, which is for its forks too.
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if not key.startswith(_RESERVED_LABELS) or key == _TEMPLATE_REF_HASH_LABEL
    }
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key in _KEPT_ANNOTATIONS}
    prefix = options.get("name") or f"{metadata['name'][:40]}-{secrets.token_hex(4)}"
    return [
        {
            "metadata": {
                "name": f"{prefix}-{index + 1}",
                "labels": {**labels, CREATED_BY_LABEL: CREATED_BY},
                "annotations": annotations,
            },
            "spec": spec,
        }
        for index in range(count)
    ]


async def list_snapshots(options: CallTarget) -> list[SnapshotInfo]:
    """All snapshots of a namespace."""
    engine = engine_of(cast(Mapping[str, Any], options))
    connection = acquire_connection(engine)
    try:
        namespace = namespace_of(engine, cast(Mapping[str, Any], options))
        return [snapshot_info_of(item) async for item in KubeClient(connection).list(SNAPSHOTS, namespace, {})]
    finally:
        await connection.release()


async def delete_snapshot(name: str, options: CallTarget) -> None:
    """Deletes the snapshot of a name; one that is not there is fine."""
    engine = engine_of(cast(Mapping[str, Any], options))
    connection = acquire_connection(engine)
    try:
        await KubeClient(connection).delete(SNAPSHOTS, namespace_of(engine, cast(Mapping[str, Any], options)), name)
    finally:
        await connection.release()
