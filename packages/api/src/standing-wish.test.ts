import { expect, test } from "vitest";
import type { Pod, Sandbox } from "./index.ts";
import { annotationKeys } from "./labels.ts";
import { isCalledOff, standingWishOf } from "./standing-wish.ts";

const idMs = Date.parse("2026-03-01T10:00:00Z");
const pod = { metadata: { name: "p", uid: "u1" } } as Pod;

interface Wish {
  readonly rung?: "Freeze" | "Hibernate";
  readonly activeMs?: number;
  readonly wakePolicy?: "OnTraffic" | "Never";
}

function sandbox({ rung = "Freeze", activeMs, wakePolicy = "OnTraffic" }: Wish): Sandbox {
  const at = activeMs === undefined ? {} : { [annotationKeys.lastActivityAt]: new Date(activeMs).toISOString() };
  return {
    metadata: { name: "s", annotations: at },
    spec: { wakePolicy },
    status: { podUID: "u1", sleep: { id: String(idMs), rung } },
  } as Sandbox;
}

test.each<[string, Wish, boolean]>([
  ["no traffic at all", {}, false],
  ["traffic before the wish", { activeMs: idMs - 1 }, false],
  ["traffic in the moment of the wish, which was made with it in sight", { activeMs: idMs }, false],
  ["traffic after it", { activeMs: idMs + 1 }, true],
  ["traffic after it, which wakes nothing", { activeMs: idMs + 1, wakePolicy: "Never" }, false],
  ["memory may have been saved: that is the controller's", { activeMs: idMs + 1, rung: "Hibernate" }, false],
])("isCalledOff: %s", (_title, wish, calledOff) => {
  expect(isCalledOff(sandbox(wish))).toBe(calledOff);
  expect(standingWishOf(sandbox(wish), pod, false)?.id).toBe(calledOff ? undefined : String(idMs));
});

test("isCalledOff: a Sandbox that was asked for nothing has nothing to call off", () => {
  const { status: _status, ...awake } = sandbox({ activeMs: idMs + 1 });
  expect(isCalledOff(awake)).toBe(false);
});
