import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { lookAtFileSystems } from "./machine.ts";

let dir = "";
beforeEach(() => {
  dir = mkdtempSync(path.join(os.tmpdir(), "as-kernel-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

/** A kernel with these file systems loaded; its modules lie in a directory only where some list of them is given. */
function kernel(fileSystems: string, lists: Readonly<Record<string, string>> = {}, { hasLoopControl = true } = {}) {
  const places = {
    fileSystems: path.join(dir, "filesystems"),
    loopControl: path.join(dir, "loop-control"),
    modulesDir: path.join(dir, "modules"),
  };
  writeFileSync(places.fileSystems, fileSystems);
  if (hasLoopControl) writeFileSync(places.loopControl, "");
  for (const [name, text] of Object.entries(lists)) {
    mkdirSync(places.modulesDir, { recursive: true });
    writeFileSync(path.join(places.modulesDir, name), text);
  }
  return places;
}

const loaded = "nodev\tsysfs\n\text4\nnodev\toverlay\n";
const notLoaded = "nodev\tsysfs\n\text4\n";
const builtin = "kernel/fs/ext4/ext4.ko\n";
const others = "kernel/fs/overlayfs/notoverlay.ko.xz:\nkernel/fs/x.ko: kernel/fs/overlay.kox\n";

test.each([
  ["loaded", kernelOf(loaded), "ok"],
  [
    "a compressed module",
    kernelOf(notLoaded, { "modules.dep": `${others}kernel/fs/overlayfs/overlay.ko.zst:\n` }),
    "ok",
  ],
  ["built in", kernelOf(notLoaded, { "modules.builtin": `${builtin}kernel/fs/overlayfs/overlay.ko\n` }), "ok"],
  ["no list of modules", kernelOf(notLoaded), "warning"],
  ["in no list", kernelOf(notLoaded, { "modules.dep": others, "modules.builtin": builtin }), "broken"],
] as const)("preflight: overlayfs, %s", (_title, make, verdict) => {
  const look = lookAtFileSystems(make());
  expect(look.verdict).toBe(verdict);
  if (verdict !== "ok") expect(look.advice).toBe("load it with: modprobe overlay");
});

const noLoop = { hasLoopControl: false };
test.each([
  [
    "a module to be loaded",
    kernelOf(loaded, { "modules.dep": "kernel/drivers/block/loop.ko.xz:\n" }, noLoop),
    "warning",
  ],
  ["in no list", kernelOf(loaded, { "modules.dep": "kernel/drivers/block/floop.ko:\n" }, noLoop), "broken"],
  ["no list of modules", kernelOf(loaded, {}, noLoop), "broken"],
  // What is broken is shown before what is a warning.
  ["nor anything about overlayfs", kernelOf(notLoaded, {}, noLoop), "broken"],
] as const)("preflight: no loop devices, %s", (_title, make, verdict) => {
  const look = lookAtFileSystems(make());
  expect(look).toMatchObject({ verdict, detail: expect.stringMatching(/^there is no .*loop-control/) });
  expect(look.advice).toMatch(/^load them with: modprobe loop/);
});

/** The directory is made before each test. */
function kernelOf(...args: Parameters<typeof kernel>): () => ReturnType<typeof kernel> {
  return () => kernel(...args);
}
