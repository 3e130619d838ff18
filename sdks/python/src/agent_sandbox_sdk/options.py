"""Options that are shared by the two kinds of handles."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from agent_sandbox_sdk.engine import Engine
from agent_sandbox_sdk.errors import SandboxError
from agent_sandbox_sdk.volume import Volume as Volume

Seconds = float | timedelta
"""A duration: seconds, or a timedelta."""


class EngineOptions(TypedDict, total=False):
    """Which engine is meant. Nothing set: the order of `Engine.find`."""

    engine: Engine
    kubeconfig: str | os.PathLike[str]
    """A kubeconfig file. Environment: AGENT_SANDBOX_KUBECONFIG."""
    context: str
    """A context in it. Environment: AGENT_SANDBOX_CONTEXT."""
    data_dir: str | os.PathLike[str]
    """The data directory of a one-machine engine. Environment: AGENT_SANDBOX_DATA_DIR."""
    router_url: str
    """The router's address. Environment: AGENT_SANDBOX_ROUTER_URL."""


class CallTarget(EngineOptions, total=False):
    """Which engine and namespace a call is about."""

    namespace: str
    """Default: the context's. Environment: AGENT_SANDBOX_NAMESPACE."""


class CreateOptions(CallTarget, total=False):
    """Options of `Sandbox.create` besides image and name."""

    from_snapshot: str
    """A snapshot to start from. Without an image, what runs is taken from the sandbox that it was taken of."""
    env: Mapping[str, str]
    """The sandbox's environment, seen by every command."""
    cpu: str | float
    """Limit, as a Kubernetes quantity: `500m`, `2`."""
    memory: str
    """Limit, as a Kubernetes quantity: `512Mi`, `4Gi`."""
    disk: str
    """Limit of what may be written outside volumes: `1Gi`."""
    volumes: Sequence[Volume]
    command: Sequence[str] | Literal["image"]
    """The sandbox's own long-running process. Default: none, it waits for commands. `image`: what the image says."""
    workdir: str
    """Working directory of the sandbox and its commands."""
    ttl: Seconds
    """The sandbox is deleted after this long. Default: never."""
    auto_suspend: Seconds
    """Asleep after this long without activity, awake again on traffic. Default: never."""
    suspension_strategy: Literal["Stop", "Freeze", "Hibernate"]
    """What sleep does to processes. Default `Stop`."""
    hibernate_after: Seconds
    """A frozen sandbox hibernates after so long without activity; with `auto_suspend` and `Freeze`. Default: never."""
    wake_policy: Literal["OnTraffic", "Never"]
    """Whether traffic wakes it when it sleeps. Default: `OnTraffic` with `auto_suspend`, else `Never`."""
    pod_failure_policy: Mapping[str, Any]
    """Whether a Pod that failed is replaced: `type` (`Never`, `Recreate`), `retriesMax`, `backoffSeconds`."""
    runtime: str
    """Runtime class: `gvisor`, `runc` and so on. Default: the engine's."""
    labels: Mapping[str, str]
    """Labels of the Sandbox, for `Sandbox.list`."""
    annotations: Mapping[str, str]
    pod_template: Mapping[str, Any]
    """Laid under everything above: fields of the Pod that have no option here."""
    spec: Mapping[str, Any]
    """Laid over everything above: fields of the Sandbox's spec."""
    ready_timeout: Seconds
    """How long the sandbox may take to become ready; default 180 s. 0: do not wait."""


class ClaimOptions(CallTarget, total=False):
    """Options of `Sandbox.claim` besides the pool."""

    name: str
    """The claim's name; default: a random one."""
    env: Mapping[str, str]
    """Needs a template that allows it."""
    ttl: Seconds
    start_policy: Literal["WarmOrCold", "WarmOnly", "ColdOnly"]
    labels: Mapping[str, str]
    ready_timeout: Seconds


class SnapshotOptions(TypedDict, total=False):
    """What `snapshot` saves, and for how long."""

    name: str
    """Default: the sandbox's name and a random end."""
    memory: bool
    """Whether processes and memory are saved with the files. Default: where the sandbox has any."""
    ttl: Seconds
    """The snapshot is deleted after this long. Default: never."""
    wait_timeout: Seconds
    """How long it may take; default 300 s."""


class ForkOptions(TypedDict, total=False):
    """How `fork` makes copies."""

    name: str
    """The names begin with it and end with `-1`, `-2` and so on. Default: the sandbox's name and a random end."""
    memory: bool
    """Whether processes and memory are copied with the files. Default: where the sandbox has any."""
    ttl: Seconds
    """The copies are deleted after this long. Default: when the sandbox would be."""
    ready_timeout: Seconds
    """How long each may take to become ready; default 180 s. 0: do not wait."""


class LogOptions(TypedDict, total=False):
    """What `logs` reads."""

    follow: bool
    """Go on with what is printed from now on."""
    tail_lines: int | None
    """Only the last lines."""
    since: Seconds | None
    """Only what is not older; rounded up to whole seconds."""
    timestamps: bool
    previous: bool
    """Of the run before the last restart."""
    container: str | None
    """Default: the sandbox's own."""


class SpawnOptions(TypedDict, total=False):
    """How to run a process."""

    env: Mapping[str, str] | None
    """Laid over the sandbox's environment."""
    clear_env: bool
    """Start from an empty environment instead of the sandbox's."""
    cwd: str | None
    """Absolute, or relative to the sandbox's working directory, which is the default."""
    user: str | None
    """`name`, `uid`, `name:group` or `uid:gid`. Default: the sandbox's own user."""
    command_timeout: Seconds | None
    """The whole process tree is killed after this long. Default: no limit."""
    request_timeout: Seconds | None
    """How long the sandbox may take to start the command, waking up included. Default 120 s."""
    tag: str | None
    """A name for people, shown in `processes()`."""
    log: bool
    """What it prints also goes to the sandbox's log, each line behind its tag, or its program and id."""
    output_buffer_bytes: int | None
    """Bytes of output kept for replay after a lost connection. Default 1 MiB, at most 64 MiB."""


class RunOptions(SpawnOptions, total=False):
    """How to run a command to its end."""

    on_stdout: Callable[[str], object] | None
    """Called with text as it arrives; a character is never cut in two."""
    on_stderr: Callable[[str], object] | None


def seconds_of(duration: Seconds) -> float:
    """A duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


LOGIN_SHELL: Sequence[str] = (
    "/bin/sh",
    "-c",
    's=; while IFS=: read -r a b u c d e s; do [ "$u" = "$(id -u)" ] && break; s=; done 2>/dev/null </etc/passwd; case $s in "" | */sh | *nologin | *false) s=$(command -v bash || command -v sh) ;; esac; [ -x "$s" ] || s=/bin/sh; exec "$s" -l',  # noqa: E501
)
"""The shell of the sandbox's user as its image has it; the TypeScript SDK has the same text and says how it chooses."""


def assert_known(call: str, options: Mapping[str, Any], kind: type, *others: str) -> None:
    """Raises `invalid-argument` for an option that a call does not have, with the one that was meant."""
    names = [*kind.__annotations__, *others]
    unknown = next((name for name in options if name not in names), None)
    if unknown is None:
        return
    from difflib import get_close_matches

    best = get_close_matches(unknown, names, n=1)
    advice = f"'{best[0]}'" if best else f"one of {', '.join(names)}"
    raise SandboxError("invalid-argument", f"{call}: unknown option '{unknown}'; use {advice}")
