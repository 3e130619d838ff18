import type { Sandbox, SandboxClaim } from "@agent-sandbox/api";
import { annotationKeys, labelKeys } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { failedRequest } from "../claim-status/claim-problem.ts";
import type { TemplateLookup } from "../template-lookup.ts";
import {
  aClaim,
  aCondition,
  aMember,
  aPolicy,
  aPool,
  aSandbox,
  aTemplate,
  at,
  epochMs,
  ownedByExtension,
} from "../testing/builders.ts";
import type { ClaimAction } from "./actions.ts";
import { nothingLearnt, type PassFacts } from "./facts.ts";
import type { ClaimObserved } from "./observe.ts";
import type { Candidate } from "./pick-member.ts";
import { type ClaimPlan, planClaim } from "./plan.ts";
import { readinessOf } from "./warm-queue.ts";

interface Scene {
  readonly claim?: SandboxClaim;
  /** Sandboxes that the cache shows. */
  readonly sandboxes?: readonly Sandbox[];
  /** Those of them that the warm queue offers; default: all that belong to the pool. */
  readonly offered?: readonly string[];
  readonly pool?: ClaimObserved["pool"] | "none";
  readonly template?: TemplateLookup;
  readonly facts?: Partial<PassFacts>;
  readonly rest?: Partial<ClaimObserved>;
}

function observed({ claim = aClaim(), sandboxes = [], offered, pool, template, facts, rest }: Scene): ClaimObserved {
  const names = offered ?? sandboxes.filter(isMember).map(({ metadata }) => metadata.name);
  const candidates = names.map((name): Candidate => {
    const sandbox = sandboxes.find(({ metadata }) => metadata.name === name);
    return { key: `default/${name}`, bornMs: 0, node: "n", readiness: sandbox ? readinessOf(sandbox) : "ready" };
  });
  return {
    claim,
    pool: pool === "none" ? undefined : (pool ?? aPool()),
    known: {
      sandbox: (name) => sandboxes.find(({ metadata }) => metadata.name === name),
      template: () => template ?? { kind: "found", template: aTemplate() },
      candidates: () => candidates,
    },
    legacyPolicy: undefined,
    isColdUnresolved: false,
    firstSeenMs: epochMs,
    traceContext: "",
    config: { allowedLabelDomains: ["sandbox.users.io"], claimObservabilityAnnotations: false },
    facts: { ...nothingLearnt, ...facts },
    nowMs: epochMs,
    ...rest,
  };
}

const isMember = ({ metadata }: Sandbox): boolean => metadata.ownerReferences?.[0]?.kind === "SandboxWarmPool";
const plan = (scene: Scene): ClaimPlan => planClaim(observed(scene));
const planned = (scene: Scene): string[] => plan(scene).actions.map((action) => said(action));
const ready = (scene: Scene) => plan(scene).status?.conditions?.find(({ type }) => type === "Ready");
const said = (action: ClaimAction): string => ("name" in action ? `${action.do} ${action.name}` : action.do);
const asked = (...names: string[]): Partial<PassFacts> => ({ asked: new Set(names) });
const refused = (parts: Partial<PassFacts["refused"]>) => ({ refused: { ...nothingLearnt.refused, ...parts } });

const own = (name: string, labels: Record<string, string> = { [labelKeys.launchType]: "warm" }): Sandbox => {
  const { metadata, ...member } = aMember(name);
  return { ...member, metadata: { ...metadata, labels, ownerReferences: [ownedByExtension("SandboxClaim", "claim")] } };
};
const others = (name: string): Sandbox => {
  const { metadata, ...member } = aMember(name);
  return { ...member, metadata: { ...metadata, ownerReferences: [ownedByExtension("SandboxClaim", "other")] } };
};
const bound = (name: string): SandboxClaim => aClaim({ status: { sandbox: { name } } });
const reserving = (name: string): SandboxClaim =>
  aClaim({ metadata: { annotations: { [annotationKeys.sandboxName]: name } } });
/** The template label makes the Sandbox of a bound claim complete. */
const complete = (name: string): Sandbox =>
  own(name, { [labelKeys.launchType]: "warm", "agents.x-k8s.io/sandbox-template-ref-hash": "9d22159f" });
const serving = (name: string): Sandbox => {
  const { metadata, ...sandbox } = complete(name);
  const services = { [annotationKeys.services]: '[{"name":"web","command":["serve"]}]' };
  return { ...sandbox, metadata: { ...metadata, annotations: { ...metadata.annotations, ...services } } };
};

describe("planClaim: find or adopt, strictly in this order", () => {
  const rows: [string, Scene, string[]][] = [
    [
      "A the Sandbox that the status names is there: nothing to do",
      { claim: bound("m"), sandboxes: [complete("m")] },
      [],
    ],
    [
      "A its Sandbox declares services, which no template has: nothing to do",
      { claim: bound("m"), sandboxes: [serving("m")] },
      [],
    ],
    [
      "R03 A a bound claim leaves the spare member alone",
      { claim: bound("m"), sandboxes: [complete("m"), aMember("n")] },
      [],
    ],
    [
      "R05 A the cache shows it as the pool's: the server decides",
      { claim: bound("m"), sandboxes: [aMember("m")] },
      ["read-sandbox m"],
    ],
    ["A the cache does not show it: the server decides", { claim: bound("m") }, ["read-sandbox m"]],
    [
      "A the server says it is gone: a new one",
      { claim: bound("m"), sandboxes: [aMember("n")], facts: asked("m") },
      ["reserve", "transfer n"],
    ],
    [
      "A its launch type is missing: written once",
      { claim: bound("m"), sandboxes: [own("m", {})] },
      ["label-launch-type m"],
    ],
    [
      "A its template label is missing: written once",
      { claim: bound("m"), sandboxes: [own("m")] },
      ["sync-metadata m"],
    ],
    [
      "A before B: bound to one and reserving another, the first is its Sandbox",
      { claim: { ...reserving("n"), status: { sandbox: { name: "m" } } }, sandboxes: [complete("m"), aMember("n")] },
      [],
    ],
    [
      "B before C: a reservation is finished before a cold Sandbox is looked for",
      { claim: reserving("m"), sandboxes: [aMember("m"), complete("claim")] },
      ["transfer m"],
    ],
    ["B reserved and ours: nothing to do", { claim: reserving("m"), sandboxes: [complete("m")] }, []],
    ["B reserved and still the pool's: taken", { claim: reserving("m"), sandboxes: [aMember("m")] }, ["transfer m"]],
    [
      "R08 B reserved: no other member is tried",
      { claim: reserving("m"), sandboxes: [aMember("m"), aMember("a")] },
      ["transfer m"],
    ],
    [
      "R20 B reserved without an address: taken all the same",
      { claim: reserving("m"), sandboxes: [aMember("m", { ready: false })] },
      ["transfer m"],
    ],
    ["R11 B reserved and not in the cache: the server decides", { claim: reserving("m") }, ["read-sandbox m"]],
    ["R11 B reserved and gone: cleared", { claim: reserving("m"), facts: asked("m") }, ["clear-reservation m"]],
    [
      "R18 B another claim's by the cache: the server decides",
      { claim: reserving("m"), sandboxes: [others("m")] },
      ["read-sandbox m"],
    ],
    [
      "R18 B another claim's by the server: cleared",
      { claim: reserving("m"), sandboxes: [others("m")], facts: asked("m") },
      ["clear-reservation m"],
    ],
    [
      "R19 B a member of another pool: cleared",
      {
        claim: reserving("m"),
        sandboxes: [aMember("m")],
        offered: [],
        pool: aPool({ metadata: { uid: "new" } }),
        facts: asked("m"),
      },
      ["clear-reservation m"],
    ],
    [
      "B nobody's: the reservation stays, the search goes on",
      { claim: reserving("m"), sandboxes: [aSandbox({ name: "m" }), aMember("n")] },
      ["reserve", "transfer n"],
    ],
    ["C a cold Sandbox of its own: nothing to do", { sandboxes: [complete("claim"), aMember("n")] }, []],
    [
      "R31 C one that was asked for without an answer: the server decides",
      { sandboxes: [aMember("n")], rest: { isColdUnresolved: true } },
      ["read-sandbox claim"],
    ],
    [
      "R31 C the server does not have it: a member",
      { sandboxes: [aMember("n")], rest: { isColdUnresolved: true }, facts: asked("claim") },
      ["reserve", "transfer n"],
    ],
    [
      "D env: cold whatever the pool has",
      {
        claim: aClaim({ spec: { env: [{ name: "A", value: "1" }] } }),
        sandboxes: [aMember("n")],
        template: { kind: "found", template: aTemplate({ spec: { envVarsInjectionPolicy: "Allowed" } }) },
        facts: { isClaimCurrent: true },
      },
      ["create-sandbox"],
    ],
    ["E a member: reserved, then taken", { sandboxes: [aMember("n")] }, ["reserve", "transfer n"]],
    ["F a member without an address: a young claim waits", { sandboxes: [aMember("n", { ready: false })] }, []],
    ["G an empty pool: cold, once the claim is known to be current", {}, ["read-claim"]],
    ["G an empty pool: cold", { facts: { isClaimCurrent: true } }, ["create-sandbox"]],
  ];
  test.each(rows)("planClaim: %s", (_title, scene, expected) => {
    expect(planned(scene)).toEqual(expected);
  });
  test("planClaim: R26 a reservation by label is migrated once, and clearing takes it off", () => {
    const claim = aClaim({ metadata: { labels: { [annotationKeys.sandboxName]: "m" } } });
    expect(plan({ claim, sandboxes: [complete("m")] }).actions).toEqual([
      {
        do: "migrate-reservation",
        metadata: {
          uid: "uid-claim",
          labels: { [annotationKeys.sandboxName]: null },
          annotations: { [annotationKeys.sandboxName]: "m" },
        },
      },
    ]);
    expect(planned({ claim, sandboxes: [complete("m")], facts: { tried: new Set(["migrate-reservation"]) } })).toEqual(
      [],
    );
    expect(plan({ claim, facts: asked("m") }).actions).toMatchObject([
      { metadata: { labels: { [annotationKeys.sandboxName]: null } } },
    ]);
  });
  test("planClaim: C a foreign Sandbox of the claim's name is a problem that is tried again", () => {
    const scene = { sandboxes: [aSandbox({ name: "claim" }), aMember("n")] };
    expect(planned(scene)).toEqual([]);
    expect(ready(scene)?.message).toBe(
      'Error seen: sandbox "claim" is not controlled by claim "claim". Please use a different claim name or delete the sandbox manually',
    );
    expect(plan(scene).next.kind).toBe("retry");
  });
  test("planClaim: a claim that is being deleted is left to the garbage collector", () => {
    expect(plan({ claim: aClaim({ metadata: { deletionTimestamp: at(0) } }), sandboxes: [aMember("n")] })).toEqual({
      actions: [],
      next: { kind: "none" },
    });
  });
});

describe("planClaim: an adoption", () => {
  test("planClaim: both writes carry the versions that were judged", () => {
    const claim = aClaim({ metadata: { resourceVersion: "7" } });
    expect(
      plan({ claim, sandboxes: [aMember("n", { metadata: { ...aMember("n").metadata, resourceVersion: "5" } })] })
        .actions,
    ).toMatchObject([
      {
        do: "reserve",
        key: "default/n",
        poolUid: "uid-pool",
        metadata: { uid: "uid-claim", resourceVersion: "7", annotations: { [annotationKeys.sandboxName]: "n" } },
      },
      {
        do: "transfer",
        patch: {
          metadata: {
            uid: "uid-n",
            resourceVersion: "5",
            ownerReferences: [{ kind: "SandboxClaim", uid: "uid-claim" }],
          },
        },
      },
    ]);
  });
  test("planClaim: R42 the marks of first sight ride along with the reservation, and the trace reaches the Sandbox", () => {
    const rest = {
      traceContext: "trace",
      config: { allowedLabelDomains: [], claimObservabilityAnnotations: true },
      firstSeenMs: epochMs - 1_000,
    };
    const [reserve, transfer] = plan({ sandboxes: [aMember("n")], rest }).actions;
    expect(reserve).toMatchObject({
      metadata: {
        annotations: {
          "agents.x-k8s.io/controller-first-observed-at": "2025-12-31T23:59:59Z",
          "opentelemetry.io/trace-context": "trace",
        },
      },
    });
    expect(transfer).toMatchObject({
      patch: { metadata: { annotations: { "opentelemetry.io/trace-context": "trace" } } },
    });
    expect(planned({ rest })).toEqual(["mark-claim", "create-sandbox"]);
  });
  test("planClaim: R22, R24 a member that is gone or taken is dropped and the next one is taken", () => {
    expect(planned({ sandboxes: [aMember("b")], offered: ["a", "b"] })).toEqual([
      "drop-members",
      "reserve",
      "transfer b",
    ]);
    expect(planned({ sandboxes: [others("a"), aMember("b")], offered: ["a", "b"] })).toEqual([
      "drop-members",
      "reserve",
      "transfer b",
    ]);
  });
  test("planClaim: R23 a stale member is dropped under Recreate and taken under OnReplenish", () => {
    const stale = aMember("a", { spec: { podTemplate: { spec: { containers: [{ name: "main", image: "old" }] } } } });
    const pool = (type: "Recreate" | "OnReplenish") => aPool({ spec: { updateStrategy: { type } } });
    expect(planned({ sandboxes: [stale], pool: pool("Recreate"), facts: { isClaimCurrent: true } })).toEqual([
      "drop-members",
      "create-sandbox",
    ]);
    expect(planned({ sandboxes: [stale], pool: pool("OnReplenish") })).toEqual(["reserve", "transfer a"]);
  });
  test("planClaim: R10 a write that is refused five times is left to the next pass, with its reservation", () => {
    const scene = { claim: reserving("m"), sandboxes: [aMember("m")], facts: refused({ transfer: 5 }) };
    expect(planned(scene)).toEqual([]);
    expect(ready(scene)).toMatchObject({
      reason: "AdoptionConflict",
      message:
        'adoption write conflict: sandbox "m" (conflicting concurrent write); the next pass retries from a converged view',
    });
    expect(planned({ ...scene, facts: refused({ transfer: 4 }) })).toEqual(["transfer m"]);
    expect(ready({ sandboxes: [aMember("m")], facts: refused({ reserve: 5 }) })?.reason).toBe("AdoptionConflict");
    expect(
      ready({ claim: reserving("m"), facts: { ...asked("m"), ...refused({ "clear-reservation": 5 }) } })?.message,
    ).toBe(
      'adoption write conflict: sandbox "m" deleted and reference cleanup failed; the next pass retries from a converged view',
    );
  });
  test("planClaim: R11 a pass whose transfer came too late takes no other member", () => {
    const launched = { name: "m", launchType: "warm" } as const;
    const scene = (why: "deleted" | "lost to another owner"): Scene => ({
      sandboxes: [aMember("n")],
      facts: { launched, cleared: { name: "m", why } },
    });
    expect(planned(scene("deleted"))).toEqual([]);
    expect(ready(scene("deleted"))?.message).toContain('sandbox "m" was deleted before adoption completed');
    expect(ready(scene("lost to another owner"))?.message).toContain('sandbox "m" was lost to another owner');
    expect(plan(scene("deleted")).next.kind).toBe("retry");
  });
  test("planClaim: R18 a reservation that was void from the start does not keep the pass from another member", () => {
    expect(planned({ sandboxes: [aMember("n")], facts: { cleared: { name: "m", why: "deleted" } } })).toEqual([
      "reserve",
      "transfer n",
    ]);
  });
  test("planClaim: N6 metadata that contradicts the template is refused before anything is reserved", () => {
    const template = aTemplate({
      spec: { podTemplate: { metadata: { labels: { "sandbox.users.io/t": "a" } }, spec: { containers: [] } } },
    });
    const claim = aClaim({ spec: { additionalPodMetadata: { labels: { "sandbox.users.io/t": "b" } } } });
    const scene: Scene = { claim, sandboxes: [aMember("n")], template: { kind: "found", template } };
    expect(planned(scene)).toEqual([]);
    expect(ready(scene)?.reason).toBe("InvalidMetadata");
  });
});

describe("planClaim: what a pass reports", () => {
  const missing: TemplateLookup = { kind: "missing", name: "tpl", message: 'SandboxTemplate "tpl" not found' };
  const rows: [string, Scene, string | undefined, ClaimPlan["next"]["kind"]][] = [
    ["R39 no pool", { pool: "none" }, "WarmPoolNotFound", "none"],
    ["a pool on its way out", { pool: aPool({ metadata: { deletionTimestamp: at(0) } }) }, "WarmPoolNotFound", "none"],
    ["R39 no template", { template: missing }, "TemplateNotFound", "none"],
    [
      "bad metadata",
      { claim: aClaim({ spec: { additionalPodMetadata: { labels: { x: "y" } } } }) },
      "InvalidMetadata",
      "none",
    ],
    [
      "env without permission",
      { claim: aClaim({ spec: { env: [{ name: "A", value: "1" }] } }) },
      "EnvVarsInjectionRejected",
      "none",
    ],
    [
      "WarmOnly without a member",
      { claim: aClaim({ spec: { startPolicy: "WarmOnly" } }) },
      "WarmSandboxPending",
      "none",
    ],
    ["R21 a young claim that waits: no condition", { sandboxes: [aMember("n", { ready: false })] }, undefined, "after"],
    ["a request that failed", { facts: { failure: failedRequest(new Error("503")) } }, "ReconcilerError", "retry"],
    [
      "R31 a create that said AlreadyExists",
      { facts: { tried: new Set(["create-sandbox"]), ...asked("claim") } },
      "SandboxCreatePending",
      "retry",
    ],
    [
      "R31 the same with a binding: the status stays",
      { claim: bound("claim"), facts: { tried: new Set(["create-sandbox"]), ...asked("claim") } },
      undefined,
      "retry",
    ],
    ["bound and Ready", { claim: bound("m"), sandboxes: [complete("m")] }, "Because", "none"],
  ];
  test.each(rows)("planClaim: reports %s", (_title, scene, reason, next) => {
    const { actions, next: look } = plan(scene);
    expect(actions).toEqual([]);
    expect(ready(scene)?.reason).toBe(reason);
    expect(look.kind).toBe(next);
  });
  test("planClaim: a member that is missing brings the claim back by the warm queue", () => {
    expect(plan({ sandboxes: [aMember("n", { ready: false })] })).toEqual({
      actions: [],
      waitFor: "uid-pool",
      spare: 0,
      next: { kind: "after", afterMs: 2_000 },
    });
    expect(plan({ claim: aClaim({ spec: { startPolicy: "WarmOnly" } }) }).waitFor).toBe("uid-pool");
  });
  test("planClaim: R32 a failure after the Sandbox was found keeps the binding", () => {
    const failure = failedRequest(new Error("503"));
    const scene = {
      claim: bound("m"),
      sandboxes: [own("m")],
      facts: { failure, tried: new Set(["sync-metadata"]) },
    } satisfies Scene;
    expect(plan(scene)).toMatchObject({
      actions: [],
      status: { sandbox: { name: "m" } },
      next: { kind: "retry", problem: failure },
    });
  });
  test("planClaim: metadata that a bound Sandbox cannot get is a problem, and the binding stays", () => {
    const claim = aClaim({
      spec: { additionalPodMetadata: { labels: { "sandbox.users.io/a": "b" } } },
      status: { sandbox: { name: "m" } },
    });
    const scene: Scene = { claim, sandboxes: [complete("m")], template: missing };
    expect(plan(scene).status?.sandbox?.name).toBe("m");
    expect(ready(scene)?.message).toBe(
      'failed to get template for metadata propagation: SandboxTemplate "tpl" not found',
    );
  });
  test("planClaim: an unbound claim ends at its limit, a reserved one is finished", () => {
    const late = { spec: { bindTimeoutSeconds: 5 } };
    const rest = { nowMs: epochMs + 5_000 };
    expect(ready({ claim: aClaim(late), sandboxes: [aMember("n")], rest })?.reason).toBe("BindTimeout");
    expect(
      planned({
        claim: { ...reserving("n"), ...aClaim(late), metadata: reserving("n").metadata },
        sandboxes: [aMember("n")],
        rest,
      }),
    ).toEqual(["transfer n"]);
    expect(plan({ claim: aClaim(late), pool: "none" }).next).toEqual({ kind: "after", afterMs: 5_000 });
  });
  test("planClaim: R38 a refusal is told once in an Event", () => {
    expect(plan({ pool: "none" }).notes).toMatchObject([{ type: "Warning", reason: "WarmPoolNotFound" }]);
    const told = aClaim({ status: { conditions: [aCondition("Ready", "False", { reason: "WarmPoolNotFound" })] } });
    expect(plan({ claim: told, pool: "none" }).notes).toEqual([]);
  });
  test("planClaim: R41 a policy of an older version goes first, and once", () => {
    const rest = { legacyPolicy: aPolicy(aTemplate(), { podSelector: {} }) };
    expect(planned({ sandboxes: [aMember("n")], rest })).toEqual(["remove-legacy-policy"]);
    expect(planned({ sandboxes: [aMember("n")], rest, facts: { tried: new Set(["remove-legacy-policy"]) } })).toEqual([
      "reserve",
      "transfer n",
    ]);
  });
});

describe("planClaim: the end of a claim", () => {
  const expired = (shutdownPolicy: "Retain" | "Delete" | "DeleteForeground", isAnnounced: boolean): SandboxClaim =>
    aClaim({
      spec: { lifecycle: { shutdownTime: at(0), shutdownPolicy } },
      status: {
        sandbox: { name: "m" },
        ...(isAnnounced ? { conditions: [aCondition("Ready", "False", { reason: "ClaimExpired" })] } : {}),
      },
    });
  test("planClaim: R33 the first pass announces and deletes nothing", () => {
    for (const policy of ["Retain", "Delete", "DeleteForeground"] as const) {
      const scene = { claim: expired(policy, false), sandboxes: [complete("m")] };
      expect(planned(scene)).toEqual([]);
      expect(ready(scene)?.reason).toBe("ClaimExpired");
      expect(plan(scene)).toMatchObject({ notes: [{ reason: "ClaimExpired" }], next: { kind: "after", afterMs: 1 } });
    }
  });
  test("planClaim: R33 TTL 0 ends a claim in the pass that mirrors Finished", () => {
    const { status, ...sandbox } = complete("m");
    const finished = { ...sandbox, status: { ...status, conditions: [aCondition("Finished", "True")] } };
    const claim = { ...bound("m"), spec: { ...aClaim().spec, lifecycle: { ttlSecondsAfterFinished: 0 } } };
    const scene = { claim, sandboxes: [finished] };
    expect(ready(scene)?.reason).toBe("ClaimExpired");
    expect(plan(scene).next).toEqual({ kind: "after", afterMs: 1 });
  });
  const rows: [string, Scene, string[]][] = [
    ["Delete: the claim goes", { claim: expired("Delete", true) }, ["delete-claim"]],
    ["Delete: once", { claim: expired("Delete", true), facts: { tried: new Set(["delete-claim"]) } }, []],
    ["Retain: its Sandbox goes", { claim: expired("Retain", true), sandboxes: [complete("m")] }, ["delete-sandbox"]],
    [
      "Retain: the server is asked for one that the cache does not show",
      { claim: expired("Retain", true) },
      ["read-sandbox m"],
    ],
    [
      "R34 Retain: one that is not ours by the cache, the server is asked",
      { claim: expired("Retain", true), sandboxes: [others("m")] },
      ["read-sandbox m"],
    ],
    [
      "R34 Retain: one that is not ours is left alone",
      { claim: expired("Retain", true), sandboxes: [others("m")], facts: asked("m") },
      [],
    ],
  ];
  test.each(rows)("planClaim: after the announcement, %s", (_title, scene, expected) => {
    expect(planned(scene)).toEqual(expected);
  });
  test("planClaim: R34 the claim says that the Sandbox was not its own, and lets it go", () => {
    const scene = { claim: expired("Retain", true), sandboxes: [others("m")], facts: asked("m") };
    expect(ready(scene)).toMatchObject({
      reason: "ClaimExpired",
      message: 'Claim expired. sandbox "m" is not owned by claim "claim"; deletion skipped.',
    });
    expect(plan(scene).status?.sandbox).toBeUndefined();
  });
  test("planClaim: a deletion that failed keeps ClaimExpired and is tried again", () => {
    const failure = failedRequest(new Error("503"));
    const scene = { claim: expired("Retain", true), sandboxes: [complete("m")], facts: { failure } };
    expect(ready(scene)).toMatchObject({ reason: "ClaimExpired", message: "Claim expired. 503" });
    expect(plan(scene).next).toEqual({ kind: "retry", problem: failure });
  });
});
