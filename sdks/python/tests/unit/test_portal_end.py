"""What becomes of an iteration that a program leaves half-way."""

from __future__ import annotations

import os
import subprocess
import sys

_LEAVES_HALF_WAY = """
from agent_sandbox_sdk import _portal

async def numbers():
    yield 1
    yield 2

iteration = _portal.iterate(numbers())
print(next(iteration))
"""

_COLLECTED_BY_THE_LOOP = """
import gc
from agent_sandbox_sdk import _portal

ended = []

async def numbers():
    try:
        yield 1
        yield 2
    finally:
        ended.append(True)

async def collect():
    gc.collect()

def leave():
    iteration = _portal.iterate(numbers())
    next(iteration)
    # A cycle is left to the collector, which runs in whichever thread calls it.
    cycle = [iteration]
    cycle.append(cycle)

gc.disable()
leave()
_portal.call(collect())
_portal.call(collect())
print(ended)
"""


_LEFT_RUNNING = """
import asyncio
from agent_sandbox_sdk import _portal

async def follow():
    try:
        await asyncio.sleep(1000)
    finally:
        print("ended")

async def start():
    global task
    task = asyncio.create_task(follow())
    await asyncio.sleep(0)

_portal.call(start())
"""


def _output_of(program: str) -> str:
    command = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def test_an_iteration_left_half_way_does_not_keep_the_program_from_ending() -> None:
    assert _output_of(_LEAVES_HALF_WAY) == "1\n"


def test_an_iteration_collected_in_the_loops_own_thread_is_ended_without_blocking_it() -> None:
    assert _output_of(_COLLECTED_BY_THE_LOOP) == "[True]\n"


def test_what_still_runs_when_the_program_ends_is_ended_without_a_word() -> None:
    assert _output_of(_LEFT_RUNNING) == "ended\n"
