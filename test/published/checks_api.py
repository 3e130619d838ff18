"""K1-K5 and K11-K19: what the SDKs need of the Kubernetes API."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import Any

from session import CLAIMS, SANDBOXES, Session, ready, settle
from wire import Watch

MERGE = {"Content-Type": "application/merge-patch+json"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def removed(s: Session, *names: str) -> None:
    """Takes claims away again."""
    for name in names:
        s.api.call("DELETE", f"{CLAIMS}/{name}")


async def k1(s: Session) -> None:
    """Bodies without a Content-Type are JSON, and a GET may have one."""
    bare, typed = s.name("bare"), s.name("typed")
    made = s.api.call("POST", CLAIMS, s.claim(bare, "no-such-pool"))
    s.same("POST without Content-Type", made.status, 201)
    s.same("its body was read", made.json()["spec"]["warmPoolRef"], {"name": "no-such-pool"})
    json_type = {"Content-Type": "application/json"}
    s.same("POST as JSON", s.api.call("POST", CLAIMS, s.claim(typed, "no-such-pool"), headers=json_type).status, 201)
    s.same("GET with Content-Type", s.api.call("GET", f"{CLAIMS}/{bare}", headers=json_type).status, 200)
    wrong = {"preconditions": {"uid": "not-it"}}
    s.same("DELETE body without Content-Type is read", s.api.call("DELETE", f"{CLAIMS}/{bare}", wrong).status, 409)
    right = {"preconditions": {"uid": made.json()["metadata"]["uid"]}}
    s.same("DELETE without Content-Type", s.api.call("DELETE", f"{CLAIMS}/{bare}", right).status, 200)
    s.same("DELETE as JSON", s.api.call("DELETE", f"{CLAIMS}/{typed}", {}, headers=json_type).status, 200)


async def k2(s: Session) -> None:
    """All spellings of `watch` are watches, and `timeoutSeconds` ends them cleanly."""
    selector = f"fieldSelector=metadata.name%3Dnobody-{s.team}"
    path = f"{CLAIMS}?{selector}&timeoutSeconds=1&watch="
    watches = {word: Watch(s.api, path + word) for word in ("true", "True", "1")}
    for word, watch in watches.items():
        s.same(f"watch={word} ends", [watch.finish(), watch.status, watch.events], ["cleanly", 200, []])
        s.holds(f"watch={word} ends in time", 0.9 <= watch.seconds <= 1 + s.options["patience"], watch.seconds)


async def k3(s: Session) -> None:
    """A created object has everything the SDKs read, and keeps what they wrote."""
    made = s.api.call("GET", f"{CLAIMS}/{s.sandbox.claim_name}").json()["metadata"]
    s.same("types", [type(made[key]).__name__ for key in ("uid", "resourceVersion")], ["str", "str"])
    s.same("labels", made["labels"], {"team": s.team, "agents.x-k8s.io/created-by": "python-client"})
    s.holds("annotations", "agents.x-k8s.io/client-first-requested-at" in made["annotations"], made["annotations"])
    name = s.name("fresh")
    wish = s.claim(name, "no-such-pool")
    wish["metadata"] |= {"labels": {"a.example/b": "c"}, "annotations": {"d.example/e": "f g"}}
    answer = s.api.call("POST", CLAIMS, wish)
    fresh = answer.json()["metadata"]
    s.same("created", [answer.status, fresh["generation"]], [201, 1])
    s.holds("born", fresh["creationTimestamp"].endswith("Z"), fresh["creationTimestamp"])
    s.same("kept", [fresh["labels"], fresh["annotations"]], [{"a.example/b": "c"}, {"d.example/e": "f g"}])
    removed(s, name)


async def k4(s: Session) -> None:
    """A watch begins where it is told to, loses nothing, and says when it cannot."""
    name = s.name("watched")
    made = s.made_claim(name, "no-such-pool")
    watch = s.watch(name, made["metadata"]["resourceVersion"])
    versions = []
    for turn in range(3):
        body = {"metadata": {"annotations": {"turn": str(turn)}}}
        versions.append(
            s.api.call("PATCH", f"{CLAIMS}/{name}", body, headers=MERGE).json()["metadata"]["resourceVersion"]
        )
    removed(s, name)
    s.holds("ends with DELETED", watch.until(lambda event: event["type"] == "DELETED") is not None, watch.events)
    watch.close()
    kinds = [event["type"] for event in watch.events]
    s.same("from the create version: changes alone", set(kinds[:-1]), {"MODIFIED"})
    seen = [event["object"]["metadata"]["resourceVersion"] for event in watch.events]
    s.same("every change is there", [version for version in versions if version not in seen], [])
    s.same("in order", seen, sorted(seen, key=int))
    zero = s.watch(s.sandbox.claim_name, "0")
    first = zero.until(lambda _event: True)
    zero.close()
    s.same("from 0: first ADDED", first and first["type"], "ADDED")
    silent = Watch(s.api, f"{CLAIMS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dunknown-{s.team}")
    s.same("an unknown name: open and silent", [silent.finish(), silent.status, silent.events], ["cleanly", 200, []])
    stale = s.watch(s.sandbox.claim_name, s.options["staleVersion"])
    event = stale.until(lambda _event: True) or {}
    stale.close()
    s.same(
        "a version that is gone: 410", [event.get("type") in ("REFUSED", "ERROR"), event["object"]["code"]], [True, 410]
    )
    resolved = s.client.k8s_helper.resolve_sandbox_name(
        s.sandbox.claim_name, "default", 30, resource_version=s.options["staleVersion"]
    )
    s.same("the SDK begins again", await settle(resolved), s.sandbox.sandbox_id)


async def k5(s: Session) -> None:
    """One event shows name and readiness together; nothing is ever null."""
    name = s.name("bound")
    watch = s.watch(name, s.made_claim(name)["metadata"]["resourceVersion"])
    s.holds("Ready", watch.until(lambda event: ready(event).get("status") == "True") is not None, watch.events)
    watch.close()
    statuses = [event["object"].get("status", {}) for event in watch.events]
    last = next(event for event in reversed(watch.events) if ready(event).get("status") == "True")
    s.holds("the Ready event names the sandbox", bool(last["object"]["status"]["sandbox"]["name"]), last)
    s.same("as MODIFIED", last["type"], "MODIFIED")
    nulls = [status for status in statuses if None in (status.get("conditions", 0), status.get("sandbox", 0))]
    s.same("never null", nulls, [])
    removed(s, name)


def wished(s: Session, pool: str, **spec: Any) -> tuple[str, Watch]:
    """A claim and what happens to it."""
    name = s.name("reason")
    return name, s.watch(name, s.made_claim(name, pool, **spec)["metadata"]["resourceVersion"])


def reason_of(s: Session, name: str, watch: Watch, wanted: str) -> str:
    """What a claim's Ready condition says in the end; the claim is removed."""
    watch.until(lambda event: ready(event).get("reason") == wanted)
    seen = ready(watch.events[-1]) if watch.events else {}
    watch.close()
    removed(s, name)
    return f"{seen.get('status')} {seen.get('reason')}"


async def k11(s: Session) -> None:
    """Reasons are spelled exactly, and the SDK knows them."""
    volume = {
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    env = [{"name": "A", "value": "b"}]
    past = {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Retain"}
    table: list[tuple[str, str, dict[str, Any]]] = [
        ("WarmPoolNotFound", "no-such-pool", {}),
        ("TemplateNotFound", "no-template", {}),
        ("InvalidMetadata", s.pool, {"additionalPodMetadata": {"labels": {"unprefixed": "x"}}}),
        ("EnvVarsInjectionRejected", "strict", {"env": env}),
        ("VolumeClaimTemplatesError", "strict", {"volumeClaimTemplates": [volume]}),
        ("ClaimExpired", s.pool, {"lifecycle": past}),
        ("InvalidConfiguration", s.pool, {"startPolicy": "WarmOnly", "env": env}),
        ("PodFailed", "failing", {}),
        ("PodSucceeded", "succeeding", {}),
    ]
    begun = [(reason, wished(s, pool, **spec)) for reason, pool, spec in table]
    for reason, (name, watch) in begun:
        s.same(reason, reason_of(s, name, watch, reason), f"False {reason}")
    s.same("SandboxExpired", await expired_sandbox(s), "False SandboxExpired")
    create = s.client.create_sandbox
    await s.raises("no template", lambda: create("no-template"), "SandboxTemplateNotFoundError")
    await s.raises("a final reason", lambda: create(s.pool, pod_labels={"unprefixed": "x"}), "SandboxClaimFailedError")


async def expired_sandbox(s: Session) -> str:
    """What a claim says when its sandbox expired by itself."""
    name, watch = wished(s, s.pool)
    event = watch.until(lambda event: ready(event).get("status") == "True") or {}
    sandbox = event["object"]["status"]["sandbox"]["name"]
    body = {"spec": {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Retain"}}
    s.api.call("PATCH", f"{SANDBOXES}/{sandbox}", body, headers=MERGE)
    return reason_of(s, name, watch, "SandboxExpired")


async def k12(s: Session) -> None:
    """A wrong pool is told within about a second, and the SDK cleans up."""
    # Claims of other checks come and go meanwhile, so this one is found by its label.
    mark = {"wrong-pool": s.team}
    began = time.monotonic()
    work = lambda: s.client.create_sandbox("no-such-pool", sandbox_ready_timeout=30, labels=mark)  # noqa: E731
    await s.raises("the SDK says so", work, "SandboxWarmPoolNotFoundError")
    # The contract says about a second; the slack is for the interpreter on a busy machine.
    s.holds("at once", time.monotonic() - began < s.options["patience"], time.monotonic() - began)
    left = await settle(s.client.list_all_sandboxes(label_selector=f"wrong-pool={s.team}"))
    s.same("nothing is left", left, [])


async def k13(s: Session) -> None:
    """Selectors of every form the SDKs write."""
    own = [s.sandbox.claim_name]
    for selector in (
        f"team={s.team}",
        f"team={s.team},agents.x-k8s.io/created-by=python-client",
        f"team in ({s.team}, other)",
        f"team={s.team},!absent",
    ):
        s.same(selector, await settle(s.client.list_all_sandboxes(label_selector=selector)), own)
    s.same("another value", await settle(s.client.list_all_sandboxes(label_selector="team=nobody")), [])
    found = s.api.call("GET", f"{CLAIMS}?fieldSelector=metadata.name%3D{own[0]}").json()["items"]
    s.same("fieldSelector", [item["metadata"]["name"] for item in found], own)


async def k14(s: Session) -> None:
    """Deletion and the end of the time to live take claim and Sandbox away."""
    for how, box in (("TTL", s.short), ("terminate", s.sandbox)):
        claim, sandbox = box.claim_name, box.sandbox_id
        if how == "terminate":
            s.holds("listed while it lives", claim in await settle(s.client.list_all_sandboxes()), claim)
            await settle(box.terminate())
        paths = (f"{CLAIMS}/{claim}", f"{SANDBOXES}/{sandbox}")
        gone = await s.becomes(lambda paths=paths: all(s.api.call("GET", path).status == 404 for path in paths))  # type: ignore[misc]
        s.holds(f"{how}: claim and Sandbox are gone", gone, [s.api.call("GET", path).status for path in paths])
        s.holds(f"{how}: not listed", claim not in await settle(s.client.list_all_sandboxes()), claim)


async def k15(s: Session) -> None:
    """Merge patches, `null` included, on claims and Sandboxes; a claim's pod metadata reaches its Sandbox."""
    for path in (f"{CLAIMS}/{s.sandbox.claim_name}", f"{SANDBOXES}/{s.sandbox.sandbox_id}"):
        for value in ("set", None):
            body = {"metadata": {"annotations": {"note.example/k15": value}}}
            answer = s.api.call("PATCH", path, body, headers=MERGE)
            s.same("patched", answer.status, 200)
            annotations = s.api.call("GET", path).json()["metadata"].get("annotations", {})
            s.same("merged", annotations.get("note.example/k15"), value)
    key = "podsnapshot.gke.io/ps-name"
    sandbox_path = f"{SANDBOXES}/{s.sandbox.sandbox_id}"
    for value in ("snapshot-1", None):
        patch = {"spec": {"additionalPodMetadata": {"annotations": {key: value}}}}
        await patched_claim(s, patch)

        def seen() -> str | None:
            """What has arrived there."""
            return pod_annotations(s, sandbox_path).get(key)

        s.holds(f"propagated: {value}", await s.becomes(lambda value=value: seen() == value, 30), seen())  # type: ignore[misc]


async def patched_claim(s: Session, body: dict[str, Any]) -> None:
    """Patches as the SDK does where it can."""
    patch = getattr(s.client.k8s_helper, "patch_sandbox_claim", None)
    if patch is None:
        s.api.call("PATCH", f"{CLAIMS}/{s.sandbox.claim_name}", body, headers=MERGE)
    else:
        await settle(patch(s.sandbox.claim_name, "default", body))


def pod_annotations(s: Session, path: str) -> dict[str, str]:
    """The annotations that a Sandbox gives its Pod."""
    template = s.api.call("GET", path).json()["spec"]["podTemplate"]
    return template.get("metadata", {}).get("annotations", {})  # type: ignore[no-any-return]


async def k16(s: Session) -> None:
    """What the SDKs read from a Sandbox."""
    found = s.api.call("GET", f"{SANDBOXES}/{s.sandbox.sandbox_id}").json()
    status = found["status"]
    s.holds("podIPs", [type(ip) for ip in status["podIPs"]] == [str], status["podIPs"])
    pod = await settle(s.sandbox.get_pod_name())
    path = f"/api/v1/namespaces/default/pods/{pod}"
    s.same("the Pod's name is right", s.api.call("GET", path).json()["status"]["podIP"], status["podIPs"][0])
    annotation = found["metadata"].get("annotations", {}).get("agents.x-k8s.io/pod-name", pod)
    s.same("as annotated", annotation, pod)
    key, _, value = status["selector"].partition("=")
    s.same("selector", [key, value.isalnum()], ["agents.x-k8s.io/sandbox-name-hash", True])
    hashed = getattr(s.sandbox, "get_sandbox_name_hash", None)
    if hashed is not None:
        s.same("name hash", await settle(hashed()), value)
    has_service = found["spec"].get("service") is True
    wanted = f"{s.sandbox.sandbox_id}.default.svc.cluster.local" if has_service else ""
    s.same("serviceFQDN where there is a Service", status.get("serviceFQDN", "") if has_service else "", wanted)


async def k17(s: Session) -> None:
    """A watch that was idle for the whole run is still open."""
    s.same("open and silent", [s.idle.ended, s.idle.status, s.idle.events], ["", 200, []])
    s.idle.close()


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """kubectl, as the SDK calls it."""
    return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=60, check=False)


async def k18(s: Session) -> None:
    """What kubectl asks before it forwards a port; that it does is shown by the mode itself."""
    for path in ("/api", "/apis", "/api/v1"):
        s.same(f"discovery {path}", s.api.call("GET", path).status, 200)
    service = "/api/v1/namespaces/agent-sandbox-system/services/sandbox-router-svc"
    for path in (service, "/api/v1/namespaces/agent-sandbox-system"):
        s.same(f"Table of {path}", s.api.call("GET", path, headers={"Accept": TABLE}).json()["kind"], "Table")
    s.same("preflight", kubectl("get", "svc/sandbox-router-svc", "-n", "agent-sandbox-system").returncode, 0)
    missing = kubectl("get", "svc/sandbox-router-svc", "-n", "kube-public")
    s.holds(
        "not found is said",
        missing.returncode != 0 and 'services "sandbox-router-svc" not found' in missing.stderr,
        missing,
    )
    s.same("the tunnel carries", await s.run("echo through"), "through\n")


async def k19(s: Session) -> None:
    """Reading a Sandbox is cheap."""
    times = []
    for _ in range(40):
        began = time.monotonic()
        s.api.call("GET", f"{SANDBOXES}/{s.sandbox.sandbox_id}")
        times.append(time.monotonic() - began)
    # Some milliseconds on a quiet machine.
    s.holds("in milliseconds", statistics.median(times) < 0.1, statistics.median(times))


CHECKS = {
    "K1": k1,
    "K2": k2,
    "K3": k3,
    "K4": k4,
    "K5": k5,
    "K11": k11,
    "K12": k12,
    "K13": k13,
    "K14": k14,
    "K15": k15,
    "K16": k16,
    "K17": k17,
    "K18": k18,
    "K19": k19,
}
