import { expect, test } from "vitest";
import { columnsOf } from "./columns.ts";

const titles = (kind: string, isWide = false) =>
  columnsOf(kind)
    .filter((column) => isWide || column.isWide !== true)
    .map(({ title }) => title);
const cells = (kind: string, object: object) =>
  Object.fromEntries(
    columnsOf(kind).map(({ title, cell }) => [
      title,
      cell({ apiVersion: "", kind, metadata: { name: "x" }, ...object }, 0),
    ]),
  );

test("columnsOf: a kind shows its CRD's printer columns beside what only the command knows", () => {
  expect(titles("SandboxClaim")).toEqual(["NAME", "POOL", "READY", "SANDBOX", "REASON", "AGE"]);
  expect(titles("SandboxSnapshot")).toEqual(["NAME", "SANDBOX", "READY", "REASON", "BYTES", "AGE"]);
  expect(titles("ConfigMap")).toEqual(["NAME", "AGE"]);
});

test("columnsOf: what an addition says in another way is not said twice", () => {
  expect(titles("Sandbox")).toEqual(["NAME", "STATE", "IMAGE", "ENDS IN", "AGE"]);
  expect(titles("Sandbox", true)).toEqual([
    "NAME",
    "STATE",
    "IMAGE",
    "ENDS IN",
    "ADDRESS",
    "NODE",
    "RESIDENT",
    "SHARED",
    "SAVED",
    "ASLEEP",
    "MESSAGE",
    "AGE",
  ]);
  expect(titles("SandboxWarmPool")).toEqual(["NAME", "TEMPLATE", "READY", "AGE"]);
});

test("columnsOf: values are found by condition type, and an absent one is a dash", () => {
  const ready = { type: "Ready", status: "False", reason: "WarmPoolNotFound", message: "", lastTransitionTime: "" };
  const spec = { warmPoolRef: { name: "p" } };
  expect(cells("SandboxClaim", { spec, status: { conditions: [{ ...ready, type: "Other" }, ready] } })).toMatchObject({
    POOL: "p",
    READY: "False",
    REASON: "WarmPoolNotFound",
    SANDBOX: "-",
  });
  expect(cells("SandboxClaim", { spec })).toMatchObject({ READY: "-" });
  const pool = { spec: { replicas: 3, sandboxTemplateRef: { name: "t" } } };
  expect(cells("SandboxWarmPool", pool)).toMatchObject({ TEMPLATE: "t", READY: "0/3" });
});
