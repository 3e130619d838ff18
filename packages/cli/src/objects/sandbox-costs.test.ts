import type { Sandbox, SandboxStatus } from "@agent-sandbox/api/kinds.gen";
import { expect, test } from "vitest";
import { columnsOf } from "./columns.ts";
import { costLines, sumCosts } from "./sandbox-costs.ts";

const mib = 1024 * 1024;
const lastTransitionTime = "2026-01-01T00:00:00Z";

function sandbox(isReady: boolean, suspended: string | undefined, rest: SandboxStatus): Sandbox {
  const ready = {
    type: "Ready",
    status: isReady ? "True" : "False",
    reason: isReady ? "" : "SandboxSuspended",
  } as const;
  const asleep = { type: "Suspended", status: "True", reason: suspended ?? "" } as const;
  const conditions = [ready, ...(suspended === undefined ? [] : [asleep])];
  return {
    apiVersion: "agents.x-k8s.io/v1beta1",
    kind: "Sandbox",
    metadata: { name: "s" },
    spec: { podTemplate: { spec: { containers: [] } } },
    status: { conditions: conditions.map((one) => ({ ...one, message: "", lastTransitionTime })), ...rest },
  };
}

const ready = sandbox(true, undefined, { memory: { residentBytes: 60 * mib, sharedBytes: 2 * mib } });
const frozen = sandbox(false, "PodFrozen", {
  sleep: { id: "1", rung: "Freeze" },
  memory: { residentBytes: 10 * mib, sharedBytes: 2 * mib, beforeSleepBytes: 50 * mib },
});
const hibernated = sandbox(false, "PodHibernated", {
  sleep: { id: "1", rung: "Hibernate", savedAt: lastTransitionTime, savedBytes: 25 * mib },
  memory: { residentBytes: 0, beforeSleepBytes: 55 * mib },
});
const stopped = sandbox(false, "PodTerminated", { memory: { residentBytes: 0, beforeSleepBytes: 5 * mib } });

test("sumCosts: adds up what each state costs and what sleep has freed", () => {
  const sum = sumCosts([ready, frozen, hibernated, stopped, hibernated]);
  expect(sum).toEqual({
    states: { ready: 1, frozen: 1, hibernated: 2, suspended: 1 },
    residentBytes: 70 * mib,
    sharedBytes: 4 * mib,
    savedBytes: 50 * mib,
    freedBytes: 155 * mib,
  });
  expect(costLines(sum)).toEqual([
    "sandboxes   1 frozen, 1 ready, 1 suspended, 2 hibernated",
    "memory      70.0 MiB resident, 4.0 MiB shared, 50.0 MiB saved on disk, 155 MiB freed by sleep",
  ]);
});

test("costLines: without sandboxes there is nothing", () => {
  expect(costLines(sumCosts([]))).toEqual([
    "sandboxes   none",
    "memory      0 B resident, 0 B shared, 0 B saved on disk, 0 B freed by sleep",
  ]);
});

test("columnsOf: each rung is a state of its own, with its cost", () => {
  const nowMs = Date.parse(lastTransitionTime) + 90_000;
  const cells = (object: Sandbox) =>
    ["STATE", "RESIDENT", "SHARED", "SAVED", "ASLEEP"].map((title) =>
      columnsOf("Sandbox")
        .find((column) => column.title === title)
        ?.cell(object, nowMs),
    );
  expect(cells(ready)).toEqual(["ready", "60.0 MiB", "2.0 MiB", "-", "-"]);
  expect(cells(frozen)).toEqual(["frozen", "10.0 MiB", "2.0 MiB", "-", "90s"]);
  expect(cells(hibernated)).toEqual(["hibernated", "0 B", "-", "25.0 MiB", "90s"]);
  expect(cells(stopped)).toEqual(["suspended", "0 B", "-", "-", "90s"]);
});
