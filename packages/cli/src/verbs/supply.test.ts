import { expect, test } from "vitest";
import { templateObject } from "./supply.ts";

const context = { name: "t", namespace: "default", nowMs: 0, isOwnEngine: true };

test("templateObject: has the image and the sleep that were asked for, and nothing of one sandbox alone", () => {
  const { spec } = templateObject({ image: "python", autoSuspendMs: 600_000, ttlMs: 1000 }, context);
  expect(spec.podTemplate.spec.containers[0]?.image).toBe("python");
  expect(spec.autoSuspension).toEqual({ inactivityTimeoutSeconds: 600 });
  expect(Object.keys(spec).sort()).toEqual(["autoSuspension", "podTemplate"]);
  expect(Object.keys(templateObject({}, context).spec)).toEqual(["podTemplate"]);
});
