import { mkdtempDisposableSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { rootDir } from "../../scripts/checkout.ts";
import { type Architecture, architectures, layout, nativeProgramNames } from "../../scripts/release/layout.ts";
import { inspectProgram, nativeFiles, readParts, toolFiles } from "../../scripts/release/natives.ts";
import { must } from "./empty-root.ts";

/** This machine's on every run; `AGENT_SANDBOX_TEST_FULL=1` cross-builds for the others, which takes minutes once. */
const isFull = process.env["AGENT_SANDBOX_TEST_FULL"] === "1";
const inspected = isFull ? architectures : architectures.filter((arch) => arch === process.arch);
const machines: Readonly<Record<Architecture, string>> = { x64: "x86-64", arm64: "aarch64" };

test("release: native programs are static, for their machine, and say what they were made from", {
  timeout: isFull ? 900_000 : 20_000,
}, () => {
  if (isFull) must(process.execPath, [path.join(rootDir, "scripts/setup.mjs"), "--release"]);
  expect(inspected.length).toBeGreaterThan(0);
  for (const arch of inspected) {
    const parts = readParts(arch);
    for (const name of nativeProgramNames) {
      const found = inspectProgram(parts[name]);
      expect(found, `${name} ${arch}`).toMatchObject({ machine: machines[arch], isStatic: true });
      expect(found.go).toMatch(/^go1\.\d+/);
      expect(found.settings["GOOS"]).toBe("linux");
    }
    const { modules } = inspectProgram(parts.runsc);
    expect(modules).toContainEqual({ name: "gvisor.dev/gvisor", version: parts.runscVersion });
    expect([...nativeFiles(arch).keys()]).toContain(layout.node);
    // Every library that a carried program names is carried with it, but for those of the C library.
    const files = toolFiles(arch);
    const carried = new Set([...files.keys()].map((file) => path.basename(file)));
    expect(neededBy(files).filter((name) => !carried.has(name) && !/^(libc|libm|ld-linux.*)\.so/.test(name))).toEqual(
      [],
    );
  }
});

test("release: a program for another machine is refused, be it ours, Node or a carried tool", () => {
  const own = readParts(process.arch as Architecture);
  const other = architectures.find((arch) => arch !== process.arch) ?? "arm64";
  using dir = mkdtempDisposableSync(path.join(os.tmpdir(), "as-foreign-"));
  const foreign = path.join(dir.path, "program");
  writeFileSync(foreign, foreignHeader(own.node));
  for (const name of ["node", "runsc"])
    expect(() => nativeFiles(process.arch as Architecture, { ...own, [name]: foreign }), name).toThrow(
      `${foreign} is for ${machines[other]}, not for ${process.arch}`,
    );
  expect(() => toolFiles(other, own)).toThrow(/nft is for .*, not for/);
});

/** The first bytes of an ELF file with the other architecture's number, and without program headers. */
function foreignHeader(file: string): Buffer {
  const header = readFileSync(file).subarray(0, 64);
  header.writeUInt16LE(process.arch === "x64" ? 0xb7 : 0x3e, 18);
  header.writeUInt16LE(0, 56);
  return header;
}

/** The libraries that the files of a tree ask the loader for. */
function neededBy(files: ReturnType<typeof toolFiles>): string[] {
  const names = [...files.values()].flatMap(({ content }) => (Buffer.isBuffer(content) ? [] : [content.file]));
  const libraries = names.filter((file) => !file.endsWith("copyright"));
  return [...must("readelf", ["--dynamic", ...libraries]).matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(
    ([, name = ""]) => name,
  );
}
