import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import type { Store } from "../../packages/server/src/store/store.ts";

/** A file system of its own, gone when the test is over. */
function tinyDisk(sizeKib: number): Disposable & { readonly path: string; remount(options: string): void } {
  const path = mkdtempSync(join(tmpdir(), "tiny-disk-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeKib}k`, "tmpfs", path]);
  return {
    path,
    remount: (options) => void execFileSync("mount", ["-o", `remount,${options}`, path]),
    [Symbol.dispose]: () => {
      execFileSync("umount", [path]);
      rmSync(path, { recursive: true });
    },
  };
}

const write = (store: Store, index: number): Promise<unknown> =>
  store.append({
    key: `/rows/${String(index).padStart(5, "0")}`,
    value: Buffer.alloc(2_000, index),
    expectedRevision: 0,
  });

async function fillUp(store: Store): Promise<{ written: number; failure: unknown }> {
  for (let written = 0; written < 10_000; written += 1) {
    try {
      await write(store, written);
    } catch (failure) {
      return { written, failure };
    }
  }
  throw new Error("the disk never filled up");
}

test("store: a disk that fills up: full, nothing acknowledged is lost, and it goes on when there is space", async () => {
  using disk = tinyDisk(1_024);
  const path = join(disk.path, "store.db");
  const store = openStore({ path, clock: systemClock });
  const { written, failure } = await fillUp(store);
  expect(failure).toMatchObject({ code: "full" });
  expect(store.list({ prefix: "/rows/" }).rows).toHaveLength(written);
  disk.remount("size=8192k");
  await write(store, 9_999);
  await store.close();
  const again = openStore({ path, clock: systemClock });
  const { rows } = again.list({ prefix: "/rows/" });
  expect(rows).toHaveLength(written + 1);
  expect(rows[0]?.value).toHaveLength(2_000);
  await again.close();
});

test("store: killed on a full disk: everything acknowledged is there after a restart with space", async () => {
  using disk = tinyDisk(1_024);
  const path = join(disk.path, "store.db");
  const script = join(disk.path, "fill.mjs");
  const moduleOf = (name: string): string => new URL(`../../packages/${name}`, import.meta.url).href;
  writeFileSync(
    script,
    `import { writeSync } from "node:fs";
     import { openStore } from ${JSON.stringify(moduleOf("server/src/store/sqlite-store.ts"))};
     const clock = { nowMs: Date.now, setTimer: () => () => {} };
     const store = openStore({ path: ${JSON.stringify(path)}, clock });
     for (let index = 0; ; index += 1) {
       await store.append({ key: "/rows/" + index, value: Buffer.alloc(2000, index), expectedRevision: 0 }).catch((error) => {
         writeSync(1, error.code);
         process.kill(process.pid, "SIGKILL");
       });
       writeSync(1, index + "\\n");
     }`,
  );
  let output = "";
  try {
    execFileSync(process.execPath, [script], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  } catch (error) {
    output = (error as { stdout: string }).stdout;
  }
  const lines = output.split("\n");
  expect(lines.at(-1)).toBe("full");
  disk.remount("size=8192k");
  const store = openStore({ path, clock: systemClock });
  expect(store.list({ prefix: "/rows/" }).rows).toHaveLength(lines.length - 1);
  await store.close();
});

test("store: a read-only disk: says so, and what is on it is untouched", async () => {
  using disk = tinyDisk(4_096);
  const path = join(disk.path, "store.db");
  const store = openStore({ path, clock: systemClock });
  await write(store, 1);
  await store.close();
  disk.remount("ro");
  expect(() => openStore({ path, clock: systemClock })).toThrow(expect.objectContaining({ code: "read-only" }));
  disk.remount("rw");
  const again = openStore({ path, clock: systemClock });
  expect(again.revision).toBe(1);
  await again.close();
});
