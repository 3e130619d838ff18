"""What an import of the SDK loads, and what it offers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import agent_sandbox_sdk
import agentic_sandbox_client
from agent_sandbox_sdk import errors

_SOURCES = [Path(file).parents[1] for file in (agent_sandbox_sdk.__file__, agentic_sandbox_client.__file__)]
# What takes longest to load, of the standard library and of what the SDK depends on.
_HEAVY = {"asyncio", "dataclasses", "httpx", "httpcore", "inspect", "json", "pathlib", "re", "ssl", "typing", "yaml"}


def _loaded_by(statement: str) -> set[str]:
    # -S: what other packages put into every start is not ours to count.
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _SOURCES))}
    done = subprocess.run([sys.executable, "-S", "-c", program], env=env, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("names", ["Sandbox", "AsyncSandbox", "Sandbox, AsyncSandbox, CommandError, SandboxError"])
def test_handles_and_errors_are_imported_without_what_only_calls_need(names: str) -> None:
    assert _loaded_by(f"from agent_sandbox_sdk import {names}") & _HEAVY == set()


def test_the_client_of_early_write_ups_is_imported_as_lightly() -> None:
    assert _loaded_by("from agentic_sandbox_client import SandboxClient") & _HEAVY == set()


def test_the_check_of_imports_sees_what_is_loaded() -> None:
    assert {"asyncio", "typing"} <= _loaded_by("import agent_sandbox_sdk._async_process")


def test_every_public_name_is_there() -> None:
    assert dir(agent_sandbox_sdk) == sorted(agent_sandbox_sdk.__all__)
    for name in agent_sandbox_sdk.__all__:
        assert getattr(agent_sandbox_sdk, name) is not None
    assert errors.ErrorCode is agent_sandbox_sdk.ErrorCode


def test_an_unknown_name_is_an_attribute_error() -> None:
    for module in (agent_sandbox_sdk, errors):
        with pytest.raises(AttributeError, match="Missing"):
            _ = module.Missing
