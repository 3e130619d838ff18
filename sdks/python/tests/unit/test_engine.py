from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_sandbox_sdk import Engine, SandboxError
from agent_sandbox_sdk import engine as module


def kubeconfig(folder: Path, **contexts: str) -> Path:
    """A file with one cluster per context."""
    document: dict[str, Any] = {
        "current-context": next(iter(contexts)),
        "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}} for name in contexts],
        "clusters": [{"name": name, "cluster": {"server": server}} for name, server in contexts.items()],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "CONTEXT", "DATA_DIR", "ROUTER_URL", "NAMESPACE"):
        monkeypatch.delenv(f"AGENT_SANDBOX_{name}", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(module, "RUN_DIR", tmp_path / "run")


def write_record(data_dir: str, file: Path, pid: int | None = None) -> None:
    target = module.record_file(data_dir)
    target.parent.mkdir(parents=True)
    record: dict[str, Any] = {"kubeconfig": str(file), "routerUrl": "http://127.0.0.1:7080"}
    if pid is not None:
        record["supervisor"] = {"pid": pid, "startTicks": "1"}
    target.write_text(json.dumps(record))


def test_an_argument_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_KUBECONFIG", "/no/such/file")
    found = Engine.find(kubeconfig=kubeconfig(tmp_path, a="https://a", b="https://b"), context="b")
    assert found.credentials.server == "https://b"


def test_the_environment_wins_over_a_local_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kubeconfig(tmp_path, a="https://a", b="https://b")
    write_record("/data", file)
    monkeypatch.setenv("AGENT_SANDBOX_DATA_DIR", "/data")
    monkeypatch.setenv("AGENT_SANDBOX_KUBECONFIG", str(file))
    monkeypatch.setenv("AGENT_SANDBOX_CONTEXT", "b")
    found = Engine.find()
    assert (found.credentials.server, found.is_local) == ("https://b", False)


def test_a_local_engine_is_found_by_its_record(tmp_path: Path) -> None:
    write_record("/data", kubeconfig(tmp_path, a="https://a"))
    found = Engine.find(data_dir="/data")
    assert (found.credentials.server, found.router_url) == ("https://a", "https://127.0.0.1:7080")
    assert found.is_local


def test_the_record_of_a_dead_engine_does_not_count(tmp_path: Path) -> None:
    write_record("/data", kubeconfig(tmp_path, a="https://a"), pid=os.getpid())
    with pytest.raises(SandboxError) as caught:
        Engine.find(data_dir="/data")
    assert caught.value.code == "engine-not-found"


def test_without_an_engine_the_error_says_how_to_start_one() -> None:
    with pytest.raises(SandboxError, match="agent-sandbox up --detach --data-dir /nowhere"):
        Engine.find(data_dir="/nowhere")


def test_the_current_context_of_a_kubeconfig_is_never_used_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, a="https://a")))
    monkeypatch.setenv("AGENT_SANDBOX_DATA_DIR", "/nowhere")
    with pytest.raises(SandboxError) as caught:
        Engine.find()
    assert caught.value.code == "engine-not-found"


def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no context 'z'"):
        Engine.find(kubeconfig=kubeconfig(tmp_path, a="https://a"), context="z")
