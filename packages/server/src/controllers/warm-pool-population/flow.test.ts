import { annotationKeys } from "@agent-sandbox/api";
import { seededRandom } from "@agent-sandbox/kube";
import { describe, expect, test } from "vitest";
import { aPool, aTemplate } from "../testing/builders.ts";
import { securePodSpec } from "./blueprint.ts";
import { memberFactory, memberName } from "./member.ts";
import { RefillRate } from "./refill-rate.ts";
import { ReplenishHold } from "./replenish-hold.ts";
import { slowStart } from "./slow-start.ts";

describe("RefillRate", () => {
  test("RefillRate: R54 two a second gives 2, 0, 1, 2 for five wanted", () => {
    const rate = new RefillRate(2, 0);
    expect(rate.take(5, 0).granted).toBe(2);
    expect(rate.take(3, 0)).toEqual({ granted: 0, waitMs: 500 });
    expect(rate.take(3, 500).granted).toBe(1);
    expect(rate.take(2, 1_500)).toEqual({ granted: 2 });
  });
  test("RefillRate: refunds stop at the capacity, rate 0 is no limit, huge rates never go negative", () => {
    const rate = new RefillRate(1, 0);
    rate.refund(50);
    expect(rate.take(5, 0).granted).toBe(1);
    expect(new RefillRate(0, 0).take(999, 0)).toEqual({ granted: 999 });
    expect(new RefillRate(Number.MAX_VALUE, 0).take(3, 1e15).granted).toBe(3);
  });
});

describe("ReplenishHold", () => {
  test("ReplenishHold: the first fill is free, drops arm and re-arm, a full pool clears", () => {
    const hold = new ReplenishHold(1_000);
    expect(hold.remainingMs(0, 3, 0)).toBe(0);
    hold.created(3);
    expect(hold.remainingMs(3, 3, 10)).toBe(0);
    expect(hold.remainingMs(2, 3, 100)).toBe(1_000);
    expect(hold.remainingMs(1, 3, 600)).toBe(1_000);
    expect(hold.remainingMs(1, 3, 1_200)).toBe(400);
    expect(hold.remainingMs(3, 3, 1_300)).toBe(0);
    expect(new ReplenishHold(0).remainingMs(0, 3, 0)).toBe(0);
  });
  test("ReplenishHold: a cache that lags behind own creates reads as a drop", () => {
    const hold = new ReplenishHold(1_000);
    hold.remainingMs(0, 3, 0);
    hold.created(3);
    expect(hold.remainingMs(0, 3, 10)).toBe(1_000);
  });
});

describe("slowStart", () => {
  const signal = new AbortController().signal;
  test("slowStart: R60 fourteen of fourteen", async () => {
    const calls: number[] = [];
    const result = await slowStart(14, async (index) => void calls.push(index), signal);
    expect([calls.length, result.succeeded]).toEqual([14, 14]);
  });
  test("slowStart: R60 an error finishes its batch and ends", async () => {
    let calls = 0;
    const result = await slowStart(
      14,
      async (index) => {
        calls += 1;
        if (index === 5) throw new Error("quota");
      },
      signal,
    );
    expect([calls, result.succeeded, result.errors.length]).toEqual([7, 6, 1]);
  });
  test("slowStart: R60 an abort stops before the next batch", async () => {
    const controller = new AbortController();
    let calls = 0;
    await slowStart(
      14,
      async (index) => {
        calls += 1;
        if (index === 2) controller.abort();
      },
      controller.signal,
    );
    expect(calls).toBe(3);
  });
});

describe("memberFactory", () => {
  test.each([
    [true, undefined, "true"],
    [true, "false", "false"],
    [false, undefined, undefined],
    [false, "true", "true"],
  ])("memberFactory: R61 eviction %s with template value %s gives %s", (eviction, own, expected) => {
    const annotations = own === undefined ? {} : { [annotationKeys.safeToEvict]: own };
    const template = aTemplate({ spec: { podTemplate: { metadata: { annotations }, spec: { containers: [] } } } });
    const member = memberFactory(aPool(), template, eviction)("pool-abcde");
    expect(member.spec.podTemplate.metadata?.annotations?.[annotationKeys.safeToEvict]).toBe(expected);
  });
  test("memberFactory: labels, annotation and owner", () => {
    const member = memberFactory(aPool(), aTemplate(), true)("pool-abcde");
    expect(member.metadata).toMatchObject({
      name: "pool-abcde",
      generateName: "pool-",
      labels: {
        "agents.x-k8s.io/warm-pool-sandbox": "91dd7983",
        "agents.x-k8s.io/sandbox-template-ref-hash": "9d22159f",
        "agents.x-k8s.io/launch-type": "warm",
        "agents.x-k8s.io/created-by": "controller",
      },
      annotations: { "agents.x-k8s.io/sandbox-template-ref": "tpl", "agents.x-k8s.io/pod-name": "pool-abcde" },
      ownerReferences: [{ kind: "SandboxWarmPool", uid: "uid-pool", controller: true, blockOwnerDeletion: true }],
    });
    expect(member.spec).not.toHaveProperty("operatingMode");
  });
  test("memberName: always a host name", () => {
    expect(memberName("x".repeat(80), seededRandom(1))).toMatch(/^x{57}-[a-z0-9]{5}$/);
  });
});

describe("securePodSpec", () => {
  const spec = (podSpec: object, rest = {}) =>
    securePodSpec(aTemplate({ spec: { podTemplate: { spec: { containers: [], ...podSpec } }, ...rest } }));
  test("securePodSpec: no token and public resolvers by default", () => {
    expect(spec({})).toMatchObject({
      automountServiceAccountToken: false,
      dnsPolicy: "None",
      dnsConfig: { nameservers: ["8.8.8.8", "1.1.1.1"] },
    });
  });
  test("securePodSpec: explicit choices stay", () => {
    expect(spec({ automountServiceAccountToken: true, dnsPolicy: "Default" })).toMatchObject({
      automountServiceAccountToken: true,
      dnsPolicy: "Default",
    });
    expect(spec({}, { networkPolicyManagement: "Unmanaged" })).not.toHaveProperty("dnsPolicy");
    expect(spec({}, { networkPolicy: {} })).not.toHaveProperty("dnsPolicy");
    expect(spec({ dnsConfig: { searches: ["a.b"] } }).dnsConfig).toEqual({
      nameservers: ["8.8.8.8", "1.1.1.1"],
      searches: ["a.b"],
    });
  });
});
