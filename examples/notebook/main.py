"""A notebook in a sandbox with a volume: it falls asleep when idle and wakes when somebody asks."""

import pathlib
import time

from agent_sandbox_sdk import Sandbox, Volume

PORT = 8888
SERVER = pathlib.Path(__file__).with_name("server.py").read_text()


def run_cell(sandbox: Sandbox, cell: str) -> str:
    return sandbox.fetch(PORT, "/cells", method="POST", content=cell).text


def wait_until(sandbox: Sandbox, state: str, limit: float) -> float:
    """Asking for its state does not keep a sandbox awake."""
    start = time.monotonic()
    while sandbox.info().state != state:
        if time.monotonic() - start > limit:
            raise TimeoutError(f"the sandbox is {sandbox.info().state}, not {state}, after {limit:g} s")
        time.sleep(0.2)
    return time.monotonic() - start


with Sandbox.create(
    command=["python3", "-c", SERVER],
    volumes=[Volume("/notebooks", "64Mi")],
    auto_suspend=3,
    pod_template={"spec": {"containers": [{"readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1}}]}},
) as sandbox:
    print("cell 1:", run_cell(sandbox, "temperatures = [19, 21, 24]"))
    print("cell 2:", run_cell(sandbox, "print('mean', sum(temperatures) / len(temperatures))"), end="")
    wait_until(sandbox, "suspended", limit=30)
    print("asleep")

    start = time.monotonic()
    print("cell 3:", run_cell(sandbox, "temperatures.append(30); print('max', max(temperatures))"), end="")
    print(f"woke and answered in {time.monotonic() - start:.1f} s")
    cells = sandbox.fetch(PORT, "/notebook").json()["cells"]
    print("saved cells:", len(cells))
