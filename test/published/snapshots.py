"""Every call of the published snapshot extension, in one life of one sandbox; prints nothing but errors.

python snapshots.py '{"apiUrl": "http://...", "pool": "counted", "returns": 1}'
"""

from __future__ import annotations

import json
import logging
import shlex
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

from k8s_agent_sandbox.gke_extensions.snapshots.podsnapshot_client import PodSnapshotSandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig


def same(what: str, seen: Any, wanted: Any) -> None:
    """What was seen is what is wanted."""
    if seen != wanted:
        raise AssertionError(f"{what}: {seen!r} instead of {wanted!r}")


def good(what: str, answer: Any) -> Any:
    """A call that succeeded."""
    same(f"{what}: {answer.error_reason}", (answer.success, answer.error_code), (True, 0))
    return answer


def bad(what: str, answer: Any, *, because: str) -> None:
    """A call that failed for this reason."""
    same(what, (answer.success, answer.error_code), (False, 1))
    if because not in answer.error_reason:
        raise AssertionError(f"{what}: {answer.error_reason!r} does not say {because!r}")


def refused(what: str, work: Any) -> None:
    """A call that raises ValueError."""
    try:
        work()
    except ValueError:
        return
    raise AssertionError(f"{what} was not refused")


def printed(sandbox: Any, command: str) -> str:
    """What a shell inside prints for a command."""
    return str(sandbox.commands.run(f"sh -c {shlex.quote(command)}").stdout).strip()


def sleeps_and_wakes(sandbox: Any, drawn: str) -> tuple[str, str]:
    """Suspends with a snapshot and resumes from it; gives the names of an earlier snapshot and of that one."""
    first = good("create", sandbox.snapshots.create("First_Snap"))
    same("name", first.trigger_name.startswith("first-snap-"), True)
    listed = good("list", sandbox.snapshots.list()).snapshots
    same("listed", [(one.snapshot_uid, one.status) for one in listed], [(first.snapshot_uid, "Ready")])
    same("source", listed[0].source_pod, sandbox.get_pod_name())
    same("later", printed(sandbox, "echo later > /later; cat /later"), "later")
    same("awake", sandbox.is_suspended(), False)
    good("resume of one that runs", sandbox.resume())
    bad("restore of one that runs", sandbox.restore(first.snapshot_uid), because="currently running")

    latest = good("suspend", sandbox.suspend()).snapshot_response.snapshot_uid
    same("suspended", sandbox.is_suspended(), True)
    same("suspend again", good("suspend again", sandbox.suspend()).snapshot_response, None)
    resumed = good("resume", sandbox.resume())
    same("resumed from", (resumed.restored_from_snapshot, resumed.snapshot_uid), (True, latest))
    same("memory after resume", printed(sandbox, "cat /drawn; echo; cat /later"), f"{drawn}\nlater")
    return str(first.snapshot_uid), str(latest)


def goes_back(sandbox: Any, drawn: str, first: str, times: int) -> None:
    """Suspends without a snapshot and goes back to a chosen one, some times."""
    for _ in range(times):
        same("lost", printed(sandbox, "echo lost > /lost; cat /lost"), "lost")
        good("suspend without a snapshot", sandbox.suspend(snapshot_before_suspend=False))
        bad("restore of none", sandbox.restore("no-such-snapshot"), because="does not exist")
        restored = good("restore", sandbox.restore(first))
        same("restored from", (restored.restored_from_snapshot, restored.snapshot_uid), (True, first))
        same(
            "memory after restore",
            printed(sandbox, "cat /drawn; echo; ls /later /lost 2>/dev/null | wc -l"),
            f"{drawn}\n0",
        )


def deletes(sandbox: Any, first: str, latest: str) -> None:
    """Lists by every filter, and deletes by every call."""
    now = datetime.now(timezone.utc)
    names = lambda **wish: sorted(one.snapshot_uid for one in good("list", sandbox.snapshots.list(wish)).snapshots)  # noqa: E731
    same("all", names(ready_only=False), sorted([first, latest]))
    same("before", names(created_before=now + timedelta(hours=1)), sorted([first, latest]))
    same("after", names(created_after=(now + timedelta(hours=1)).isoformat()), [])
    bad("unknown filter", sandbox.snapshots.list({"newest": True}), because="Invalid filter")

    same("deleted", good("delete", sandbox.snapshots.delete(first)).deleted_snapshots, [first])
    same("gone", names(), [latest])
    same("deleted again", good("delete again", sandbox.snapshots.delete(first)).deleted_snapshots, [])
    refused("an unknown way", lambda: sandbox.snapshots.delete_all(delete_by="size"))
    refused("no time", lambda: sandbox.snapshots.delete_all(delete_by="created_after"))
    later = now + timedelta(hours=1)
    by = sandbox.snapshots.delete_all(delete_by="created_after", timestamp=later)
    same("deleted after", good("delete_all", by).deleted_snapshots, [])
    same("deleted all", good("delete_all", sandbox.snapshots.delete_all()).deleted_snapshots, [latest])
    same("none", names(ready_only=False), [])


def main(options: dict[str, Any]) -> None:
    """The whole life."""
    client = PodSnapshotSandboxClient(connection_config=SandboxDirectConnectionConfig(api_url=options["apiUrl"]))
    sandbox = client.create_sandbox(options["pool"])
    drawn = printed(sandbox, "cat /drawn")
    first, latest = sleeps_and_wakes(sandbox, drawn)
    goes_back(sandbox, drawn, first, options["returns"])
    deletes(sandbox, first, latest)

    good("suspend at the end", sandbox.suspend(snapshot_before_suspend=False))
    bad("create of one that sleeps", sandbox.snapshots.create("asleep"), because="there is no Pod")
    resumed = good("resume without snapshots", sandbox.resume())
    same("resumed from files", (resumed.restored_from_snapshot, resumed.snapshot_uid), (False, None))
    same("its own files", printed(sandbox, "ls /drawn"), "/drawn")
    sandbox.terminate()
    same("engine", sandbox.snapshots, None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(json.loads(sys.argv[1]))
