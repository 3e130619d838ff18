import { expect, test } from "vitest";
import { sleepOptions } from "./sleep-options.ts";

test("sleepOptions: each flag is an option of the sandbox, and none is nothing", () => {
  expect(sleepOptions({})).toEqual({});
  const flags = { wakePolicy: "Never", suspensionStrategy: "Stop", podFailurePolicy: "Recreate" } as const;
  expect(sleepOptions({ autoSuspend: "10m", hibernateAfter: "1h", ...flags })).toEqual({
    autoSuspendMs: 600_000,
    hibernateAfterMs: 3_600_000,
    wakePolicy: "Never",
    suspensionStrategy: "Stop",
    podFailurePolicy: { type: "Recreate" },
  });
});
