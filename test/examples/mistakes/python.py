"""The mistakes of mistakes.ts, made with the Python SDK: `python python.py <mistake>` ends with its error, uncaught."""

import sys

from agent_sandbox_sdk import Sandbox


def out_of_memory() -> None:
    with Sandbox.create(memory="96Mi") as box:
        box.run("tail /dev/zero", check=True)


MISTAKES = {
    "wrong-pool": lambda: Sandbox.claim("gpu-pool"),
    "bad-image": lambda: Sandbox.create("127.0.0.1:5999/no-such-image:1"),
    "missing-command": lambda: Sandbox.get("dev").run(["pythn", "main.py"]),
    "missing-directory": lambda: Sandbox.get("dev").run("ls", cwd="/srv/app"),
    "not-executable": lambda: Sandbox.get("dev").run(["/etc/hostname"]),
    "failing-command": lambda: Sandbox.get("dev").run("cat /no/such/file", check=True),
    "timeout": lambda: Sandbox.get("dev").run("sleep 60", command_timeout=1),
    "out-of-memory": out_of_memory,
    "no-such-sandbox": lambda: Sandbox.get("dve"),
    "no-engine": lambda: Sandbox.create(),
    "no-permission": lambda: Sandbox.create(),
    "disk-full": lambda: Sandbox.get("dev").files.write("/small/big", bytes(64 * 2**20)),
    "held": lambda: Sandbox.get("held").run("true"),
}

MISTAKES[sys.argv[1]]()
