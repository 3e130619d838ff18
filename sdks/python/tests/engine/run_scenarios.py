"""Carries out test/scenarios/*.yaml with both twins of the SDK on the engine of AGENT_SANDBOX_DATA_DIR.

python run_scenarios.py [--twin sync|async] [scenario ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import yaml
from control_verbs import CONTROL_VERBS
from file_verbs import FILE_VERBS
from matching import mismatch, substitute
from process_verbs import PROCESS_VERBS
from world import Twin, World

from agent_sandbox_sdk import Engine, SandboxError

VERBS = {**CONTROL_VERBS, **PROCESS_VERBS, **FILE_VERBS}
SCENARIO_DIR = Path(__file__).parents[4] / "test/scenarios"
# Longer than the slowest scenario on a busy machine.
SCENARIO_SECONDS = 240


def load_scenarios(names: list[str]) -> list[dict[str, Any]]:
    """The scenarios of those names; all where none is named."""
    files = sorted(SCENARIO_DIR.glob("*.yaml"))
    every = [scenario for file in files for scenario in yaml.safe_load(file.read_text())]
    unknown = set(names) - {scenario["name"] for scenario in every}
    if unknown:
        raise SystemExit(f"no scenario {', '.join(sorted(unknown))}")
    return [scenario for scenario in every if not names or scenario["name"] in names]


async def take_step(world: World, written: dict[str, Any]) -> None:
    """Carries out one step; raises AssertionError where it does not do what is written."""
    step = substitute(written, {**world.kept, "run": world.run_id})
    wanted = step.get("error")
    codes = [wanted] if isinstance(wanted, str) else wanted
    try:
        result = await VERBS[step["do"]](world, step)
    except SandboxError as error:
        if codes is None or error.code not in codes:
            raise AssertionError(f"{step['do']} failed with {error.code}: {error}") from error
        failure = mismatch(step.get("failure", {}), {"limit": error.limit, "message": error.message})
        assert failure is None, f"{step['do']}: {failure}"
        return
    if codes is not None and not step.get("orSucceeds"):
        raise AssertionError(f"{step['do']} succeeded with {result}, not failed with {codes}")
    difference = mismatch(step.get("expect", {}), result)
    assert difference is None, f"{step['do']}: {difference}"


async def run_scenario(scenario: dict[str, Any], engine: Engine, twin: Twin, shared: Any) -> None:
    """Carries out one scenario."""
    world = World(engine, twin, f"r{secrets.token_hex(4)}")
    place = scenario.get("sandbox", "shared" if "data" in scenario["tags"] else "none")
    try:
        if place == "shared":
            world.boxes["box"] = shared
            world.kept["box"] = {"name": shared.name, "namespace": shared.namespace, "uid": shared.uid}
        elif place == "own":
            own: dict[str, Any] = {key: scenario[key] for key in ("throughProxy", "volumes") if key in scenario}
            await CONTROL_VERBS["create"](world, own)
        for step in scenario["steps"]:
            await take_step(world, step)
    finally:
        await world.close()


async def run_twin(scenarios: list[dict[str, Any]], engine: Engine, twin: Twin) -> int:
    """Carries out every scenario with one twin; returns how many failed."""
    keeper = World(engine, twin, "shared")
    failed = 0
    try:
        await CONTROL_VERBS["create"](keeper, {})
        for scenario in scenarios:
            started = time.monotonic()
            try:
                await asyncio.wait_for(run_scenario(scenario, engine, twin, keeper.boxes["box"]), SCENARIO_SECONDS)
                outcome = "ok"
            except Exception as error:
                failed += 1
                outcome = f"FAILED {error or type(error).__name__}"
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
            print(f"python-{twin} {scenario['name']}: {outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    finally:
        await keeper.close()
    return failed


def main() -> None:
    """Runs and counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--twin", choices=("sync", "async"), action="append")
    parser.add_argument("scenarios", nargs="*")
    options = parser.parse_args()
    if "AGENT_SANDBOX_DATA_DIR" not in os.environ:
        raise SystemExit("AGENT_SANDBOX_DATA_DIR must name the data directory of a running engine")
    scenarios, engine = load_scenarios(options.scenarios), Engine.find()
    twins: list[Twin] = options.twin or ["sync", "async"]
    failed = sum(asyncio.run(run_twin(scenarios, engine, twin)) for twin in twins)
    print(f"{len(scenarios) * len(twins) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
