"""Which engine is meant: an explicit one, a cluster, or the one that runs on this machine."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_sandbox_sdk._kubeconfig import Credentials, in_cluster_credentials, load_kubeconfig
from agent_sandbox_sdk.errors import SandboxError

DEFAULT_DATA_DIR = "/var/lib/agent-sandbox"
RUN_DIR = Path("/run/agent-sandbox")


@dataclass(frozen=True)
class Engine:
    """A place where sandboxes run. Without a router the sandbox is reached through the API server."""

    credentials: Credentials
    router_url: str | None = None
    is_local: bool = False
    """It is the one-machine engine of this host."""

    @property
    def namespace(self) -> str:
        """The namespace that is used where none is named."""
        return self.credentials.namespace

    @classmethod
    def find(
        cls,
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        router_url: str | None = None,
    ) -> Engine:
        """Finds the engine.

        Order: the arguments; AGENT_SANDBOX_KUBECONFIG and AGENT_SANDBOX_CONTEXT; the Pod this runs in; the engine that
        runs on this machine (AGENT_SANDBOX_DATA_DIR names its data directory). The current context of a kubeconfig
        is used only where that file is named.
        """
        env = os.environ
        router_url = router_url or env.get("AGENT_SANDBOX_ROUTER_URL")
        if kubeconfig is not None or context is not None:
            return cls(load_kubeconfig(kubeconfig or _default_kubeconfig(), context), router_url)
        if data_dir is not None:
            return _local_engine(data_dir, router_url)
        if env.get("AGENT_SANDBOX_KUBECONFIG") or env.get("AGENT_SANDBOX_CONTEXT"):
            file = env.get("AGENT_SANDBOX_KUBECONFIG") or _default_kubeconfig()
            return cls(load_kubeconfig(file, env.get("AGENT_SANDBOX_CONTEXT")), router_url)
        inside = in_cluster_credentials()
        if inside is not None:
            return cls(inside, router_url)
        return _local_engine(env.get("AGENT_SANDBOX_DATA_DIR") or DEFAULT_DATA_DIR, router_url)


def _default_kubeconfig() -> str:
    """Where a context that was named without a file is looked up."""
    return os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or str(Path.home() / ".kube/config")


def record_file(data_dir: str | os.PathLike[str]) -> Path:
    """Where the engine of a data directory says how to reach it."""
    absolute = os.path.abspath(data_dir)  # noqa: PTH100 - the engine does not resolve links either
    return RUN_DIR / hashlib.sha256(absolute.encode()).hexdigest()[:6] / "engine.json"


def _local_engine(data_dir: str | os.PathLike[str], router_url: str | None) -> Engine:
    file = record_file(data_dir)
    try:
        record: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise _no_engine(data_dir) from None
    except PermissionError as error:
        advice = "run as root, or name a kubeconfig that root gave you with AGENT_SANDBOX_KUBECONFIG"
        message = f"cannot read {file}; the engine of this machine is root's: {advice}"
        raise SandboxError("permission-denied", message) from error
    except (OSError, ValueError) as error:
        raise SandboxError("engine-not-found", f"cannot read {file}: {error}") from error
    if not _is_alive(record.get("supervisor")):
        raise _no_engine(data_dir)
    # The local router speaks TLS and cleartext on one port; credentials only ever travel by TLS.
    found = str(record.get("routerUrl", "")).replace("http://", "https://", 1) or None
    return Engine(load_kubeconfig(record["kubeconfig"]), router_url or found, is_local=True)


def _is_alive(supervisor: dict[str, Any] | None) -> bool:
    """The kernel gives a pid again to another process; a pid and a start time together name one."""
    if not supervisor:
        return True
    try:
        stat = Path(f"/proc/{supervisor['pid']}/stat").read_text()
    except OSError:
        return False
    # The command name may hold spaces and parentheses: fields are counted from the last one. The 22nd is the start.
    fields = stat[stat.rindex(")") + 2 :].split(" ")
    return fields[0] != "Z" and fields[19] == str(supervisor.get("startTicks"))


def _no_engine(data_dir: str | os.PathLike[str]) -> SandboxError:
    # os.fspath: a Path would print its class.
    place = os.fspath(data_dir)
    option = "" if place == DEFAULT_DATA_DIR else f" --data-dir {place}"
    return SandboxError(
        "engine-not-found",
        f"no engine runs on {place}; start one with: agent-sandbox up --detach{option}",
    )
