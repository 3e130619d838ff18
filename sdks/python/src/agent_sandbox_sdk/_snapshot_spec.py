"""What a sandbox from a snapshot takes over of the one that it was taken of."""

from __future__ import annotations

from typing import Any

from agent_sandbox_sdk._kube import SANDBOXES, SNAPSHOTS, KubeClient
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.options import CreateOptions

_POD_OPTIONS = ("env", "cpu", "memory", "disk", "volumes", "command", "workdir", "runtime", "pod_template")
_INHERITED = (
    "podTemplate",
    "volumeClaimTemplates",
    "service",
    "suspensionStrategy",
    "autoSuspension",
    "wakePolicy",
    "podFailurePolicy",
)


async def inherited_spec(
    kube: KubeClient, namespace: str, image: str | None, options: CreateOptions
) -> dict[str, Any] | None:
    """None where the caller says what runs; raises `invalid-argument` for half of it, or where that sandbox is gone."""
    name = options.get("from_snapshot")
    if name is None or image is not None or "podTemplate" in (options.get("spec") or {}):
        return None
    said = next((option for option in _POD_OPTIONS if option in options), None)
    if said is not None:
        why = f"'{said}' is taken from the sandbox of the snapshot; give 'image' too, to say everything anew"
        raise SandboxError("invalid-argument", f"create: {why}")
    snapshot = await kube.get(SNAPSHOTS, namespace, name)
    source_name = snapshot["spec"]["sandboxName"]
    uid = (snapshot.get("status") or {}).get("sandboxUID")
    try:
        source = await kube.get(SANDBOXES, namespace, source_name)
    except SandboxError as error:
        if error.code != "not-found":
            raise
        raise _gone(source_name, name) from error
    if uid and source["metadata"].get("uid") != uid:
        raise _gone(source_name, name)
    return {key: value for key, value in source["spec"].items() if key in _INHERITED}


def _gone(source: str, snapshot: str) -> SandboxError:
    how = "say what it was made of with 'image' and the options beside it"
    return SandboxError("invalid-argument", f"create: sandbox '{source}' of snapshot '{snapshot}' is gone; {how}")
