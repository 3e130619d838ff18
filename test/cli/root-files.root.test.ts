import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  closeSync,
  lchownSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeDirectories } from "../../packages/server/src/main/engine-directories.ts";
import { distributeCredentials, readCredentials } from "../../packages/server/src/main/handed-credentials.ts";
import { layoutOf } from "../../packages/server/src/main/layout.ts";
import { isOfOlderVersion } from "../../packages/server/src/main/older-version.ts";
import { removeTree } from "../../packages/server/src/main/remove-tree.ts";
import {
  assertRootPath,
  ensureRoleDirectory,
  ensureRootDirectory,
  openForAppend,
  writeRootFile,
} from "../../packages/server/src/main/root-files.ts";
import { assertSecretTarget, writeSecretOut } from "../../packages/server/src/main/secret-out.ts";
import { rootDir } from "../../scripts/checkout.ts";

const stranger = 65_534;
let work: string;
const at = (...parts: string[]): string => path.join(work, ...parts);

beforeEach(() => {
  work = mkdtempSync("/tmp/as-files-");
});

afterEach(() => rmSync(work, { recursive: true }));

function shapeOf(file: string): string {
  const { uid, gid, mode } = statSync(file);
  return `${uid}:${gid} ${(mode & 0o7777).toString(8)}`;
}

/** Makes a directory; the umask has no say in its mode. */
function make(dir: string, mode: number, uid = 0, gid = 0): string {
  mkdirSync(dir);
  chownSync(dir, uid, gid);
  chmodSync(dir, mode);
  return dir;
}

test.each([
  { what: "root's, closed to others", mode: 0o755 },
  { what: "root's, in which others may only add", mode: 0o1777 },
  { what: "root's, whose own group may write", mode: 0o775 },
])("assertRootPath: $what: is taken, and what is still missing too", ({ mode }) => {
  expect(() => assertRootPath(path.join(make(at("above"), mode), "missing", "deeper"))).not.toThrow();
});

test.each([
  { what: "another user's", mode: 0o755, uid: stranger, gid: 0, says: "belongs to user 65534" },
  { what: "open to everybody", mode: 0o777, uid: 0, gid: 0, says: "chmod go-w" },
  { what: "open to a group", mode: 0o775, uid: 0, gid: stranger, says: "chmod go-w" },
])("assertRootPath: $what: is refused above as well as at the end", ({ mode, uid, gid, says }) => {
  const dir = make(at("above"), mode, uid, gid);
  expect(() => assertRootPath(dir)).toThrow(says);
  expect(() => assertRootPath(path.join(dir, "data"))).toThrow(says);
});

test("assertRootPath: a link is followed if it is root's, and what it leads to is looked at", () => {
  const good = make(at("good"), 0o755);
  const bad = make(at("bad"), 0o755, stranger);
  symlinkSync(good, at("to-good"));
  symlinkSync(bad, at("to-bad"));
  symlinkSync("to-bad", at("twice"));
  symlinkSync(good, at("planted"));
  lchownSync(at("planted"), stranger, stranger);
  symlinkSync("circle", at("circle"));
  expect(() => assertRootPath(at("to-good", "data"))).not.toThrow();
  for (const name of ["to-bad", "twice", "planted"]) expect(() => assertRootPath(at(name))).toThrow("belongs to user");
  expect(() => assertRootPath(at("circle"))).toThrow("links");
});

test("ensureRootDirectory: makes it and closes it; a link, a file and another's are refused", () => {
  ensureRootDirectory(at("made"), 0o711);
  expect(shapeOf(at("made"))).toBe("0:0 711");
  make(at("outside"), 0o755);
  symlinkSync(at("outside"), at("link"));
  writeFileSync(at("file"), "");
  make(at("theirs"), 0o755, stranger);
  make(at("open"), 0o777);
  for (const name of ["link", "file"]) expect(() => ensureRootDirectory(at(name), 0o700)).toThrow(/ENOTDIR|ELOOP/);
  expect(() => ensureRootDirectory(at("theirs"), 0o700)).toThrow("belongs to user 65534");
  expect(() => ensureRootDirectory(at("open"), 0o700)).toThrow("may write");
  expect(shapeOf(at("outside"))).toBe("0:0 755");
});

test("ensureRoleDirectory: becomes the role's; a link and a third user's are refused", () => {
  const user = { uid: 4_001, gid: 4_002 };
  ensureRoleDirectory(at("made"), user, 0o700);
  ensureRoleDirectory(at("made"), user, 0o2710);
  expect(shapeOf(at("made"))).toBe("4001:4002 2710");
  make(at("outside"), 0o755);
  symlinkSync(at("outside"), at("link"));
  make(at("theirs"), 0o755, stranger);
  expect(() => ensureRoleDirectory(at("link"), user, 0o700)).toThrow(/ENOTDIR|ELOOP/);
  expect(() => ensureRoleDirectory(at("theirs"), user, 0o700)).toThrow("belongs to user 65534");
  expect([shapeOf(at("outside")), shapeOf(at("theirs"))]).toEqual(["0:0 755", "65534:0 755"]);
});

test("openForAppend: appends for root alone; links of both kinds and another's file are refused", () => {
  for (const _ of [1, 2]) {
    const descriptor = openForAppend(at("log"));
    writeFileSync(descriptor, "x");
    closeSync(descriptor);
  }
  expect([readFileSync(at("log"), "utf8"), shapeOf(at("log"))]).toEqual(["xx", "0:0 600"]);
  writeFileSync(at("canary"), "kept");
  symlinkSync(at("canary"), at("link"));
  linkSync(at("canary"), at("hard"));
  writeFileSync(at("theirs"), "");
  chownSync(at("theirs"), stranger, stranger);
  expect(() => openForAppend(at("link"))).toThrow("ELOOP");
  for (const name of ["hard", "theirs"]) expect(() => openForAppend(at(name))).toThrow("not a file of root's alone");
  expect(readFileSync(at("canary"), "utf8")).toBe("kept");
});

test("writeRootFile: is root's, or a group's to read; whoever holds the old one reads nothing of it", () => {
  writeRootFile(at("file"), "first");
  const old = openSync(at("file"), "r");
  writeRootFile(at("file"), "second", { gid: 4_002 });
  expect([readFileSync(at("file"), "utf8"), shapeOf(at("file"))]).toEqual(["second", "0:4002 640"]);
  expect(readFileSync(old, "utf8")).toBe("first");
  closeSync(old);
});

test("kubeconfig-out: takes the place of a file that somebody holds open, who reads nothing of it", () => {
  writeFileSync(at("config"), "", { mode: 0o644 });
  const held = openSync(at("config"), "r");
  writeSecretOut(at("config"), "secret");
  expect([readFileSync(at("config"), "utf8"), shapeOf(at("config"))]).toEqual(["secret", "0:0 600"]);
  expect(readFileSync(held, "utf8")).toBe("");
  closeSync(held);
  writeSecretOut(at("config"), "another");
  expect(readFileSync(at("config"), "utf8")).toBe("another");
});

test.each([
  { what: "another's file", says: "belongs to user 65534" },
  { what: "a link", says: "is a link" },
  { what: "a directory", says: "not a regular file" },
  { what: "a directory that everybody may write to", says: "everybody may replace it" },
  { what: "a directory that is not there", says: "cannot write a kubeconfig into" },
])("kubeconfig-out: $what: is refused before the engine starts, and nothing is written", ({ what, says }) => {
  writeFileSync(at("canary"), "kept");
  make(at("open"), 0o777);
  const target = {
    "another's file": at("theirs"),
    "a link": at("link"),
    "a directory": at("dir"),
    "a directory that everybody may write to": at("open", "config"),
    "a directory that is not there": at("none", "config"),
  }[what] as string;
  writeFileSync(at("theirs"), "kept");
  chownSync(at("theirs"), stranger, stranger);
  symlinkSync(at("canary"), at("link"));
  mkdirSync(at("dir"));
  expect(() => assertSecretTarget(target)).toThrow(says);
  expect(() => writeSecretOut(target, "secret")).toThrow(says);
  expect(["canary", "theirs"].map((name) => readFileSync(at(name), "utf8"))).toEqual(["kept", "kept"]);
});

test.each([{ flags: [] }, { flags: ["--detach"] }])(
  "up $flags: says at once that it writes no secret there",
  ({ flags }) => {
    symlinkSync(at("canary"), at("link"));
    const argv = ["up", ...flags, "--data-dir", at("data"), "--kubeconfig-out", at("link"), "--listen", "127.0.0.1:1"];
    const { status, stderr } = spawnSync(path.join(rootDir, "agent-sandbox"), argv, { encoding: "utf8" });
    expect(status).not.toBe(0);
    expect(stderr).toContain(`no kubeconfig is written over ${at("link")}, which is a link`);
  },
);

test("makeDirectories: everything is root's but one directory per role below each", () => {
  chmodSync(work, 0o711);
  const layout = { ...layoutOf(at("data")), runDir: at("run") };
  const roles = Object.fromEntries(
    Object.entries(layout.roles).map(([role, places]) => [role, { ...places, runDir: at("run", role) }]),
  ) as typeof layout.roles;
  const [control, router, node] = [4_001, 4_002, 4_003].map((id) => ({ uid: id, gid: id + 100 }));
  if (control === undefined || router === undefined || node === undefined) throw new Error("bug");
  makeDirectories({ ...layout, roles }, { control, router, node });
  const places = ["data", "data/engine", "data/logs", "data/pki", "run"];
  const own = ["control", "router", "node"].flatMap((role) => [`data/engine/${role}`, `run/${role}`]);
  expect(Object.fromEntries([...places, ...own].map((name) => [name, shapeOf(at(name))]))).toEqual({
    data: "0:0 711",
    "data/engine": "0:0 711",
    "data/logs": "0:0 700",
    "data/pki": "0:0 700",
    run: "0:0 711",
    "data/engine/control": "4001:4101 700",
    "run/control": "4001:4101 700",
    "data/engine/router": "4002:4102 700",
    "run/router": "4002:4101 2710",
    "data/engine/node": "4003:4103 700",
    "run/node": "4003:4103 700",
  });
});

const pair = { certificatePem: "certificate", privateKeyPem: "key" };
const handed = { server: "https://127.0.0.1:1", caBundlePem: "authority", client: pair, serving: pair };

test("distributeCredentials: each role finds its own, root the administrator's", () => {
  const base = layoutOf(at("data"));
  const places = (role: "control" | "router" | "node") => ({
    ...base.roles[role],
    credentialsFile: at(`${role}.json`),
  });
  const roles = { control: places("control"), router: places("router"), node: places("node") };
  const layout = { ...base, adminKubeconfig: at("admin"), roles };
  const users = { control: { uid: 1, gid: 4_101 }, router: { uid: 2, gid: 4_102 }, node: { uid: 3, gid: 4_103 } };
  const router = { ...handed, server: "https://router" };
  distributeCredentials({ adminKubeconfig: "admin", router, node: handed }, layout, users);
  expect(["admin", "router.json", "node.json"].map((name) => shapeOf(at(name)))).toEqual([
    "0:0 600",
    "0:4102 640",
    "0:4103 640",
  ]);
  expect([readCredentials(at("router.json")), readCredentials(at("node.json"))]).toEqual([router, handed]);
  const written = ["router.json", "node.json"].map((name) => statSync(at(name)).ino);
  distributeCredentials(
    { adminKubeconfig: "admin", router: { ...router, server: "https://other" }, node: handed },
    layout,
    users,
  );
  expect(["router.json", "node.json"].map((name, index) => statSync(at(name)).ino === written[index])).toEqual([
    false,
    true,
  ]);
  for (const wrong of [undefined, {}, { adminKubeconfig: "a", router, node: { ...handed, server: 7 } }])
    expect(() => distributeCredentials(wrong, layout, users)).toThrow(/credential/);
  expect(readCredentials(at("node.json"))).toEqual(handed);
});

test("older version: directories of another user are known as such and deleted without following a link", async () => {
  const layout = { ...layoutOf(at("data")), runDir: at("run") };
  expect(isOfOlderVersion(layout)).toBe(false);
  make(at("data"), 0o755);
  make(at("run"), 0o711);
  expect(isOfOlderVersion(layout)).toBe(false);
  make(at("data", "pki"), 0o700, stranger);
  expect(isOfOlderVersion(layout)).toBe(true);
  writeFileSync(at("canary"), "kept");
  symlinkSync(at("canary"), at("data", "pki", "link"));
  symlinkSync(work, at("data", "pki", "directory"));
  symlinkSync(at("data"), at("operator"));
  await removeTree(at("operator"));
  expect(readFileSync(at("canary"), "utf8")).toBe("kept");
  expect(() => statSync(at("data"))).toThrow("ENOENT");
  expect(() => statSync(at("operator"))).toThrow("ENOENT");
});
