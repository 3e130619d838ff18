"""Kubernetes objects from options: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from agent_sandbox_sdk._kube import KubeObject
from agent_sandbox_sdk._wire import format_time
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.options import ClaimOptions, CreateOptions, Seconds, Volume, seconds_of

CREATED_BY_LABEL = "agents.x-k8s.io/created-by"
CREATED_BY = "python-client"
_FIRST_REQUESTED_ANNOTATION = "agents.x-k8s.io/client-first-requested-at"
HOST_IMAGE = "host.agent-sandbox.local/usr"

# Waits for commands: the daemon that our node brings into every sandbox, without an entrypoint of its own.
_OWN_KEEP_ALIVE = ["/.agent-sandbox/sandboxd", "init", "--listen=off"]
# The same on a cluster, with what nearly every image has; it ends at once on SIGTERM.
_SHELL_KEEP_ALIVE = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"]


def shutdown_time(now: datetime, ttl: Seconds) -> str:
    """When something ends that lives for `ttl`; whole seconds, rounded up."""
    seconds = seconds_of(ttl)
    if not seconds > 0:
        raise SandboxError("invalid-argument", f"ttl must be above 0, not {seconds}")
    return format_time(now.replace(microsecond=0) + timedelta(seconds=math.ceil(seconds + now.microsecond / 1e6)))


def sandbox_object(
    image: str | None,
    name: str,
    options: CreateOptions,
    *,
    now: datetime,
    is_own_engine: bool,
    inherited: Mapping[str, Any] | None = None,
) -> KubeObject:
    """The Sandbox for some options; raises `invalid-argument` for what cannot become one.

    `inherited` is what a snapshot's own sandbox has said of what runs.
    """
    spec = _program_spec(image, options, is_own_engine) if inherited is None else dict(inherited)
    if options.get("from_snapshot") is not None:
        spec["restoreFrom"] = {"snapshotName": options["from_snapshot"]}
    if "ttl" in options:
        spec |= {"shutdownTime": shutdown_time(now, options["ttl"]), "shutdownPolicy": "Delete"}
    if "auto_suspend" in options:
        spec["autoSuspension"] = _auto_suspension(options)
    elif "hibernate_after" in options:
        raise SandboxError("invalid-argument", "hibernate_after needs auto_suspend, after which the sandbox freezes")
    if "suspension_strategy" in options:
        spec["suspensionStrategy"] = {"type": options["suspension_strategy"]}
    if "wake_policy" in options:
        spec["wakePolicy"] = options["wake_policy"]
    if "pod_failure_policy" in options:
        spec["podFailurePolicy"] = dict(options["pod_failure_policy"])
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {**(options.get("labels") or {}), CREATED_BY_LABEL: CREATED_BY},
    }
    if "annotations" in options:
        metadata["annotations"] = dict(options["annotations"])
    return {"metadata": metadata, "spec": {**spec, **(options.get("spec") or {})}}


def _auto_suspension(options: CreateOptions) -> dict[str, int]:
    """Both times in whole seconds, at least one."""
    times = {"inactivityTimeoutSeconds": max(1, round(seconds_of(options["auto_suspend"])))}
    if "hibernate_after" in options:
        times["hibernateAfterSeconds"] = max(1, round(seconds_of(options["hibernate_after"])))
    return times


def _program_spec(image: str | None, options: CreateOptions, is_own_engine: bool) -> dict[str, Any]:
    template = dict(options.get("pod_template") or {})
    spec: dict[str, Any] = {"podTemplate": {**template, "spec": _pod_spec(image, template, options, is_own_engine)}}
    volumes = options.get("volumes") or ()
    if volumes:
        spec["volumeClaimTemplates"] = [_claim_template(index, volume) for index, volume in enumerate(volumes)]
    return spec


def _pod_spec(
    image: str | None, template: Mapping[str, Any], options: CreateOptions, is_own_engine: bool
) -> dict[str, Any]:
    given = dict(template.get("spec") or {})
    first, *rest = given.get("containers") or [{}]
    return {
        # What runs in a sandbox is not trusted with the cluster's API.
        "automountServiceAccountToken": False,
        **given,
        **({"runtimeClassName": options["runtime"]} if "runtime" in options else {}),
        "containers": [_container(image, first, options, is_own_engine), *rest],
    }


def _container(
    image: str | None, given: Mapping[str, Any], options: CreateOptions, is_own_engine: bool
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "sandbox", **given, "image": _image(image or given.get("image"), is_own_engine)}
    command = options.get("command")
    if command is None and "command" not in given:
        made["command"] = _OWN_KEEP_ALIVE if is_own_engine else _SHELL_KEEP_ALIVE
    elif command is not None and command != "image":
        made["command"] = list(command)
    elif command == "image" and not given.get("command") and not given.get("args"):
        # A shell or an interpreter waits for input instead of ending.
        made.setdefault("stdin", True)
    variables = [{"name": key, "value": value} for key, value in (options.get("env") or {}).items()]
    if variables:
        made["env"] = [*made.get("env", []), *variables]
    wanted = (
        ("cpu", options.get("cpu")),
        ("memory", options.get("memory")),
        ("ephemeral-storage", options.get("disk")),
    )
    limits = {key: str(value) for key, value in wanted if value is not None}
    if limits:
        resources = made.get("resources") or {}
        made["resources"] = {**resources, "limits": {**(resources.get("limits") or {}), **limits}}
    if "workdir" in options:
        made["workingDir"] = options["workdir"]
    volumes = enumerate(options.get("volumes") or ())
    mounts = [{"name": f"volume-{index}", "mountPath": volume.path} for index, volume in volumes]
    if mounts:
        made["volumeMounts"] = [*made.get("volumeMounts", []), *mounts]
    return made


def _image(image: str | None, is_own_engine: bool) -> str:
    if image is not None and image != "host":
        return image
    if is_own_engine:
        return HOST_IMAGE
    why = "the image 'host' exists on the one-machine engine only; name an image"
    raise SandboxError("invalid-argument", f"image: {'none given, and ' if image is None else ''}{why}")


def _claim_template(index: int, volume: Volume) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
        **({} if volume.storage_class is None else {"storageClassName": volume.storage_class}),
    }
    return {"metadata": {"name": f"volume-{index}"}, "spec": spec}


def claim_object(pool: str, name: str, options: ClaimOptions, *, now: datetime) -> KubeObject:
    """The SandboxClaim for some options."""
    spec: dict[str, Any] = {"warmPoolRef": {"name": pool}}
    variables = [{"name": key, "value": value} for key, value in (options.get("env") or {}).items()]
    if variables:
        spec["env"] = variables
    if "ttl" in options:
        spec["lifecycle"] = {"shutdownTime": shutdown_time(now, options["ttl"]), "shutdownPolicy": "Delete"}
    if "start_policy" in options:
        spec["startPolicy"] = options["start_policy"]
    metadata = {
        "name": name,
        "labels": {**(options.get("labels") or {}), CREATED_BY_LABEL: CREATED_BY},
        "annotations": {_FIRST_REQUESTED_ANNOTATION: now.isoformat(timespec="milliseconds").replace("+00:00", "Z")},
    }
    return {"metadata": metadata, "spec": spec}
