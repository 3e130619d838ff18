import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { identifyProcess } from "@agent-sandbox/kube/engine-record";
import { afterEach, beforeEach, expect, test } from "vitest";
import { installationsInUse } from "./engine-record.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-records-"));
});
afterEach(() => {
  rmSync(dir, { recursive: true });
});

function write(instance: string, text: string): void {
  mkdirSync(path.join(dir, instance));
  writeFileSync(path.join(dir, instance, "engine.json"), text);
}

test("engine record: the installations in use are those of every engine that lives", () => {
  const supervisor = identifyProcess(process.pid);
  write("aaaaaa", JSON.stringify({ installation: "/opt/agent-sandbox/versions/0.1.0", supervisor }));
  write("bbbbbb", JSON.stringify({ installation: "/opt/agent-sandbox/versions/0.2.0", supervisor }));
  const ended = { ...supervisor, startTicks: "1" };
  write("cccccc", JSON.stringify({ installation: "/opt/agent-sandbox/versions/0.3.0", supervisor: ended }));
  // A version before installations were recorded.
  write("dddddd", JSON.stringify({ supervisor }));
  mkdirSync(path.join(dir, "eeeeee"));
  expect(installationsInUse(dir)?.toSorted()).toEqual([
    "/opt/agent-sandbox/versions/0.1.0",
    "/opt/agent-sandbox/versions/0.2.0",
  ]);
});

test("engine record: where one cannot be read, what is in use is unknown", () => {
  write("aaaaaa", "{");
  expect(installationsInUse(dir)).toBeUndefined();
});
