import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { readSetup, rootDir } from "../checkout.ts";
import { type Architecture, layout, nativeProgramNames, type ReleaseFile, type ReleaseTree } from "./layout.ts";

/** Where set-up put the parts of a release for one architecture; see scripts/setup/release-steps.mjs. */
interface Parts extends Readonly<Record<(typeof nativeProgramNames)[number], string>> {
  readonly runscVersion: string;
  readonly node: string;
  /** Debian packages with programs that a bare machine lacks, unpacked. */
  readonly tools: string;
}

/** Reads them. */
export function readParts(arch: Architecture): Parts {
  const file = path.join(rootDir, "node_modules/.agent-sandbox/release-parts.json");
  const all = existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Partial<Record<Architecture, Parts>>) : {};
  const parts = all[arch];
  if (parts === undefined) throw new Error(`nothing is built for ${arch}; run node scripts/setup.mjs --release first`);
  return parts;
}

/** The native programs and Node. */
export function nativeFiles(arch: Architecture, parts = readParts(arch)): ReleaseTree {
  const files = new Map<string, ReleaseFile>();
  assertMachine(arch, parts.node);
  files.set(layout.node, { mode: 0o755, content: { file: parts.node } });
  for (const name of nativeProgramNames) {
    assertStatic(arch, parts[name]);
    files.set(`${layout.programs}/${name}`, { mode: 0o755, content: { file: parts[name] } });
  }
  return files;
}

/** A program of another architecture is not run here, so it is looked at. */
function assertMachine(arch: Architecture, file: string): void {
  const { machine } = readElf(file);
  if (machine !== machineNames[arch]) throw new Error(`${file} is for ${machine}, not for ${arch}`);
}

/** Our own programs, besides, need no library. */
function assertStatic(arch: Architecture, file: string): void {
  assertMachine(arch, file);
  const { isStatic, settings } = inspectProgram(file);
  if (!isStatic || settings["GOOS"] !== "linux" || settings["CGO_ENABLED"] !== "0")
    throw new Error(`${file} is not a static program for Linux: ${JSON.stringify(settings)}`);
}

/** Programs that `sandbox-host` starts where the machine has them not; `mkfs.ext4` and its like are one program by several names. */
const toolNames = ["nft", "mkfs.ext4", "e2fsck", "resize2fs"];

/** The programs of the distribution and their libraries, which Debian's packages hold; not for a Debian package, which depends on them. */
export function toolFiles(arch: Architecture, { tools }: Pick<Parts, "tools"> = readParts(arch)): ReleaseTree {
  const files = new Map<string, ReleaseFile>();
  for (const name of toolNames) {
    const file = ["usr/sbin", "sbin"].map((dir) => path.join(tools, dir, name)).find((one) => existsSync(one));
    if (file === undefined) throw new Error(`${tools} has no ${name}`);
    assertMachine(arch, file);
    files.set(`${layout.tools}/${name}`, { mode: 0o755, content: { file } });
  }
  for (const dir of ["usr/lib", "lib"].flatMap((name) => libraryDirs(path.join(tools, name))))
    for (const name of readdirSync(dir).filter(isLibrary)) {
      const file = path.join(dir, name);
      assertMachine(arch, file);
      files.set(`${layout.tools}/lib/${name}`, { mode: 0o644, content: { file } });
    }
  for (const deb of readdirSync(path.join(tools, "debs"))) {
    const [name = ""] = deb.split("_");
    const file = path.join(tools, "usr/share/doc", name, "copyright");
    if (existsSync(file)) files.set(`${layout.doc}/${name}.copyright`, { mode: 0o644, content: { file } });
  }
  return files;
}

function libraryDirs(dir: string): string[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir)
    .filter((name) => name.endsWith("-linux-gnu"))
    .map((name) => path.join(dir, name));
}

/** Programs name libraries as `libmnl.so.0`; the file with the whole version is what that name leads to, and is not needed twice. */
function isLibrary(name: string): boolean {
  return /^lib[a-z0-9_]+\.so\.\d+$/.test(name);
}

/** What an ELF file and Go's own record in it say. */
export interface Inspected {
  readonly machine: string;
  readonly isStatic: boolean;
  readonly go: string;
  /** The main module, and the modules in it with their versions. */
  readonly main: string;
  readonly modules: readonly { readonly name: string; readonly version: string }[];
  readonly settings: Readonly<Record<string, string>>;
}

// Numbers of the ELF specification, and what the architectures are called there.
const machines: Readonly<Record<number, string>> = { 0x3e: "x86-64", 0xb7: "aarch64" };
const machineNames: Readonly<Record<Architecture, string>> = { x64: "x86-64", arm64: "aarch64" };
const programHeaderInterpreter = 3;

/** Reads a native program without running it. */
export function inspectProgram(file: string): Inspected {
  const child = spawnSync(readSetup().go, ["version", "-m", file], { encoding: "utf8" });
  if (child.status !== 0) throw new Error(`go version -m ${file}: ${child.stderr}`);
  const [first = "", ...lines] = child.stdout.split("\n");
  const words = lines.map((line) => line.trim().split("\t"));
  const rows = (kind: string): string[][] => words.filter(([word]) => word === kind).map(([, ...rest]) => rest);
  return {
    ...readElf(file),
    go: /go\d\S*/.exec(first.slice(first.lastIndexOf(":")))?.[0] ?? "",
    main: rows("path")[0]?.[0] ?? "",
    modules: rows("dep").map(([name = "", version = ""]) => ({ name, version })),
    settings: Object.fromEntries(rows("build").map(([text = ""]) => text.split("=", 2) as [string, string])),
  };
}

function readElf(file: string): Pick<Inspected, "machine" | "isStatic"> {
  const bytes = readFileSync(file);
  if (bytes.toString("latin1", 0, 4) !== "\u007fELF") throw new Error(`${file} is no ELF file`);
  const [offset, size, count] = [Number(bytes.readBigUInt64LE(32)), bytes.readUInt16LE(54), bytes.readUInt16LE(56)];
  const kinds = Array.from({ length: count }, (_, index) => bytes.readUInt32LE(offset + index * size));
  const machine = machines[bytes.readUInt16LE(18)] ?? "unknown";
  return { machine, isStatic: !kinds.includes(programHeaderInterpreter) };
}

/** The sha256 of a file, in hex. */
export function sha256Of(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}
