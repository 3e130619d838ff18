import { annotationKeys } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aClaim, aMember, aPool, at, ownedByExtension } from "../testing/builders.ts";
import { judge, planClearReservation, reservationOf } from "./judgement.ts";

describe("judge", () => {
  const owner = (...refs: ReturnType<typeof ownedByExtension>[]) =>
    aMember("m", { metadata: { ownerReferences: refs } });
  const rows: [string, ReturnType<typeof aMember>, string][] = [
    ["its own", owner(ownedByExtension("SandboxClaim", "claim")), "ours"],
    ["R18 another claim's", owner(ownedByExtension("SandboxClaim", "other")), "lost-to-claim"],
    ["a namesake's of an earlier life", owner(ownedByExtension("SandboxClaim", "claim", "old")), "lost-to-claim"],
    ["a member of the pool", aMember("m"), "takeable"],
    ["R19 a member of another pool", owner(ownedByExtension("SandboxWarmPool", "other")), "not-takeable"],
    [
      "N8 a member of an earlier pool of that name",
      owner(ownedByExtension("SandboxWarmPool", "pool", "old")),
      "not-takeable",
    ],
    [
      "a member on its way out",
      aMember("m", { metadata: { ...aMember("m").metadata, deletionTimestamp: at(0) } }),
      "not-takeable",
    ],
    ["an unowned one with forged labels", owner(), "foreign"],
    [
      "one of another namespace",
      aMember("m", { metadata: { ...aMember("m").metadata, namespace: "elsewhere" } }),
      "foreign",
    ],
  ];
  test.each(rows)("judge: %s", (_title, sandbox, expected) => {
    expect(judge(sandbox, aClaim(), aPool())).toBe(expected);
  });
  test("judge: R27 a reference of the older version counts, another group does not", () => {
    const labelled = (apiVersion: string) => ({
      ...aMember("m"),
      metadata: {
        ...aMember("m").metadata,
        ownerReferences: [{ ...ownedByExtension("SandboxWarmPool", "pool"), apiVersion }],
      },
    });
    expect(judge(labelled("extensions.agents.x-k8s.io/v1alpha1"), aClaim(), aPool())).toBe("takeable");
    expect(judge(labelled("other.io/v1"), aClaim(), aPool())).toBe("foreign");
  });
  test("reservationOf: R26 the annotation, else the legacy label; clearing takes exactly one name", () => {
    const labelled = aClaim({ metadata: { labels: { [annotationKeys.sandboxName]: "a" } } });
    expect(reservationOf(labelled)).toBe("a");
    expect(planClearReservation(labelled, "a")).toEqual({ labels: { [annotationKeys.sandboxName]: null } });
    expect(planClearReservation(labelled, "b")).toBeUndefined();
  });
});
