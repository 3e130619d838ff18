"""The table of phases that all languages run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agent_sandbox_sdk._phase import sandbox_phase
from agent_sandbox_sdk._verdict import Failed, judge_sandbox

_GOLDEN = Path(__file__).parents[4] / "spec" / "sandbox-phase.golden.json"
_CASES: list[dict[str, Any]] = json.loads(_GOLDEN.read_text())["cases"]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


@pytest.mark.parametrize("case", _CASES, ids=[case["name"] for case in _CASES])
def test_phase_is_that_of_the_table(case: dict[str, Any]) -> None:
    found = {_camel(name): value for name, value in asdict(sandbox_phase(case["sandbox"])).items()}
    assert found == case["expect"]


@pytest.mark.parametrize("case", _CASES, ids=[case["name"] for case in _CASES])
def test_what_has_ended_is_not_waited_for(case: dict[str, Any]) -> None:
    assert isinstance(judge_sandbox(case["sandbox"]), Failed) == case["expect"]["isTerminal"]
