"""K6-K10: claims with names of their own, adoption, deletion with preconditions, environments. 1.0 only."""

from __future__ import annotations

from session import CLAIMS, Session, settle

MERGE = {"Content-Type": "application/merge-patch+json"}


async def k6(s: Session) -> None:
    """A second claim of one name is a conflict and changes nothing."""
    name = s.name("twice")
    first = s.made_claim(name, "no-such-pool")
    again = s.api.call("POST", CLAIMS, s.claim(name, s.pool))
    s.same("status", again.status, 409)
    body = again.json()
    s.same("body", [body["kind"], body["reason"], body["code"]], ["Status", "AlreadyExists", 409])
    kept = s.api.call("GET", f"{CLAIMS}/{name}").json()
    s.same("untouched", [kept["metadata"]["uid"], kept["spec"]], [first["metadata"]["uid"], first["spec"]])
    refusal = "ApiException 409" if s.options["isAsync"] else "ConflictException 409"
    await s.raises("the SDK says so", lambda: s.client.create_sandbox(s.pool, claim_name=name), refusal)
    s.api.call("DELETE", f"{CLAIMS}/{name}")


async def k7(s: Session) -> None:
    """A delete with a uid deletes that object and no other."""
    name = s.name("guarded")
    uid = s.made_claim(name, "no-such-pool")["metadata"]["uid"]
    other = {"preconditions": {"uid": "11111111-2222-4333-8444-555555555555"}}
    s.same("another uid", s.api.call("DELETE", f"{CLAIMS}/{name}", other).status, 409)
    s.same("still there", s.api.call("GET", f"{CLAIMS}/{name}").json()["metadata"]["uid"], uid)
    s.same("the right uid", s.api.call("DELETE", f"{CLAIMS}/{name}", {"preconditions": {"uid": uid}}).status, 200)
    s.holds("gone", await s.becomes(lambda: s.api.call("GET", f"{CLAIMS}/{name}").status == 404), name)


async def k8(s: Session) -> None:
    """A claim's name may be as long as names get; its sandbox's is a DNS label."""
    stem = f"{s.team}.{'a' * 60}.{'b' * 60}.{'c' * 60}."
    name = stem + "d" * (253 - len(stem))
    box = await settle(s.client.create_sandbox(s.pool, claim_name=name))
    short = len(box.sandbox_id) <= 63 and "." not in box.sandbox_id
    s.holds("a label", short, box.sandbox_id)
    s.same("it works", await s.run("echo long", box), "long\n")
    other = s.new_client()
    adopted = await settle(other.create_sandbox(s.pool, claim_name=name, adopt_existing=True))
    s.same("adopted by its name", adopted.sandbox_id, box.sandbox_id)
    await settle(adopted.close_connection())
    await settle(s.client.delete_sandbox(name))
    s.holds("deleted", await s.becomes(lambda: s.api.call("GET", f"{CLAIMS}/{name}").status == 404), name)


async def k9(s: Session) -> None:
    """A claim that is terminating says so and is nobody's to adopt."""
    name = s.name("ending")
    wish = s.claim(name)
    wish["metadata"]["finalizers"] = ["hold.example/k9"]
    s.api.call("POST", CLAIMS, wish)
    s.api.call("DELETE", f"{CLAIMS}/{name}")
    found = s.api.call("GET", f"{CLAIMS}/{name}").json()
    s.holds("deletionTimestamp is shown", bool(found["metadata"].get("deletionTimestamp")), found["metadata"])
    adopt = lambda: s.client.create_sandbox(s.pool, claim_name=name, adopt_existing=True)  # noqa: E731
    await s.raises("the SDK does not adopt it", adopt, "ValueError")
    s.api.call("PATCH", f"{CLAIMS}/{name}", {"metadata": {"finalizers": None}}, headers=MERGE)
    s.holds("gone", await s.becomes(lambda: s.api.call("GET", f"{CLAIMS}/{name}").status == 404), name)


async def k10(s: Session) -> None:
    """An environment needs a fresh sandbox and reaches its commands; a template may refuse it."""
    box = await settle(s.client.create_sandbox(s.pool, env={"GREETING": "good day"}))
    ran = await settle(box.commands.run("printenv GREETING"))
    s.same("seen by commands", ran.stdout, "good day\n")
    s.same("a fresh sandbox", box.sandbox_id, box.claim_name)
    await settle(box.terminate())
    await s.raises(
        "refused", lambda: s.client.create_sandbox("strict", env={"GREETING": "good day"}), "SandboxClaimFailedError"
    )


CHECKS = {"K6": k6, "K7": k7, "K8": k8, "K9": k9, "K10": k10}
