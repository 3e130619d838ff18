// The steps a release needs for each architecture: native programs, Node, and the few programs of the distribution that a bare machine lacks;
// and the empty root that tests unpack a release in.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { cacheDir, rootDir, stateDir } from "./places.mjs";
import { findGo, nativeStep, runscStep } from "./runtime-steps.mjs";
import { contentKey, isProgram, makeDirectory, run, SetupError, which } from "./step.mjs";

/** What Debian calls the architectures. */
const debianArchitectures = { x64: "amd64", arm64: "arm64" };

/**
 * Packages with `nft` and the programs of e2fsprogs, and the libraries these need besides the C library. A machine that was installed has
 * them; a root that holds the essential packages alone does not.
 */
const toolPackages = {
  nftables: [
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libxtables12",
    "libjansson4",
    "libgmp10",
    "libedit2",
    "libbsd0",
    "libmd0",
    "libtinfo6",
  ],
  e2fsprogs: ["libext2fs2", "libcom-err2", "libss2", "libblkid1", "libuuid1"],
};

/** The steps for some architectures, and the record of what they made. `isAsking`: Debian is asked for newer packages than those in the cache. */
export function releaseSteps(architectures, { isAsking = false } = {}) {
  const parts = architectures.map((arch) => partsOf(arch, isAsking));
  return [...parts.flatMap(({ steps }) => steps), recordStep(parts)];
}

function partsOf(arch, isAsking) {
  const go = findGo();
  const [runsc, native, node] = [runscStep(go, arch), nativeStep(go, arch), nodeStep(arch)];
  const tools = toolsStep(arch, isAsking);
  const record = () => ({
    runsc: runsc.program,
    runscVersion: runsc.version,
    ...Object.fromEntries(native.programs.map((file) => [path.basename(file), file])),
    node: node.program,
    tools: tools.dir(),
  });
  return { arch, steps: [runsc, native, node, tools], record };
}

/** Node as package-lock.json pins it; npm installs the one of this machine only. */
function nodeStep(arch) {
  const name = `node-linux-${arch}`;
  const own = path.join(rootDir, "node_modules", name, "bin/node");
  if (arch === process.arch) return { title: name, program: own, isDone: () => isProgram(own), run: () => undefined };
  const lock = JSON.parse(readFileSync(path.join(rootDir, "package-lock.json"), "utf8"));
  const { version, integrity } = lock.packages[`node_modules/${name}`];
  const dir = path.join(cacheDir, "node", `${name}-${version}`);
  return {
    title: `${name} ${version}`,
    program: path.join(dir, "package/bin/node"),
    isDone: () => isProgram(path.join(dir, "package/bin/node")),
    run: () => makeDirectory(dir, (partial) => unpackNpm({ spec: `${name}@${version}`, integrity, dir: partial })),
  };
}

function unpackNpm({ spec, integrity, dir }) {
  run("npm", ["pack", "--silent", "--pack-destination", dir, spec], { needsNetwork: `the npm package ${spec}` });
  const [archive] = readdirSync(dir).map((name) => path.join(dir, name));
  const sum = `sha512-${createHash("sha512").update(readFileSync(archive)).digest("base64")}`;
  if (sum !== integrity) throw new SetupError(`${spec}: ${sum} is not what package-lock.json says: ${integrity}`);
  run("tar", ["-C", dir, "-xzf", archive]);
  rmSync(archive);
}

/**
 * The packages themselves in `debs/` and, beside it, what is in them; keyed by the names, versions and digests that Debian offers. A
 * release asks for these each time, so that it carries the mended ones; tests take what is in the cache, without the network.
 */
function toolsStep(arch, isAsking) {
  const packages = Object.entries(toolPackages).flat(2);
  const parent = path.join(cacheDir, "debian-packages", `${contentKey([], ...packages)}-${arch}`);
  let current = isAsking ? undefined : newestIn(parent);
  return {
    title: `nft and e2fsprogs for a release (${arch})`,
    dir: () => current ?? newestIn(parent) ?? parent,
    isDone: () => current !== undefined || which("apt-get") === undefined,
    run: () => {
      mkdirSync(parent, { recursive: true });
      const state = path.join(parent, "apt.partial");
      makeDirectory(state, makeAptState);
      const options = aptOptions(state, arch);
      run("apt-get", [...options, "update", "-q"], { needsNetwork: `Debian package lists for ${arch}` });
      const dir = path.join(parent, contentKey([], ...offered(options, packages)));
      if (!existsSync(dir)) makeDirectory(dir, (partial) => downloadDebian({ options, packages, dir: partial }));
      rmSync(state, { recursive: true });
      current = dir;
    },
  };
}

/** The directory of packages that was fetched last, if there is one. */
function newestIn(parent) {
  if (!existsSync(parent)) return undefined;
  const dirs = readdirSync(parent).filter((name) => !name.includes(".partial"));
  const [newest] = dirs
    .map((name) => path.join(parent, name))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  return newest;
}

/** Lists of our own: nothing about this machine's packages changes. */
function makeAptState(dir) {
  for (const name of ["lists/partial", "cache/archives/partial"]) mkdirSync(path.join(dir, name), { recursive: true });
  writeFileSync(path.join(dir, "status"), "");
}

function aptOptions(state, arch) {
  return [
    `APT::Architecture=${debianArchitectures[arch]}`,
    `APT::Architectures=${debianArchitectures[arch]}`,
    `Dir::State=${state}`,
    `Dir::State::status=${path.join(state, "status")}`,
    `Dir::Cache=${path.join(state, "cache")}`,
    "APT::Sandbox::User=root",
  ].flatMap((option) => ["-o", option]);
}

/** The file name, which has the version, and the digest of each package that a download would fetch: `'ADDRESS' FILE SIZE SHA256:HEX`. */
function offered(options, packages) {
  const lines = run("apt-get", [...options, "download", "--print-uris", ...packages], {
    needsNetwork: `Debian packages ${packages.join(" ")}`,
  });
  return offeredFiles(lines, packages);
}

/** Exported for tests. */
export function offeredFiles(lines, packages) {
  const files = [...lines.matchAll(/^'[^']*' (\S+) \d+ (SHA\d+:[0-9a-f]+)$/gm)].map(
    ([, file, sum]) => `${file} ${sum}`,
  );
  const missing = packages.filter((name) => !files.some((file) => file.startsWith(`${name}_`)));
  if (missing.length > 0) throw new SetupError(`apt-get names no file for ${missing.join(", ")}`);
  return files.sort();
}

/** Debian packages of any architecture. */
function downloadDebian({ options, packages, dir }) {
  const debs = path.join(dir, "debs");
  mkdirSync(debs);
  const needsNetwork = `Debian packages ${packages.join(" ")}`;
  run("apt-get", [...options, "download", "-q", ...packages], { cwd: debs, needsNetwork });
  for (const deb of readdirSync(debs)) run("dpkg-deb", ["-x", path.join(debs, deb), dir]);
}

/** A root with Debian's essential packages and apt alone, as a tar archive: no Node, Go, Python or npm. */
export function emptyRootStep() {
  const dir = path.join(cacheDir, "debian", contentKey([], "empty root", "mmdebstrap"));
  const archive = path.join(dir, "root.tar");
  const link = path.join(stateDir, "empty-root");
  const isLinked = () => existsSync(link) && readFileSync(link, "utf8") === archive;
  return {
    title: "empty root for tests of releases",
    isDone: () => (existsSync(archive) && isLinked()) || which("apt-get") === undefined || process.getuid?.() !== 0,
    run: () => {
      if (!existsSync(archive)) makeDirectory(dir, (partial) => makeEmptyRoot(partial));
      writeFileSync(link, archive);
    },
  };
}

function makeEmptyRoot(dir) {
  run("apt-get", ["download", "-q", "mmdebstrap"], { cwd: dir, needsNetwork: "the Debian package mmdebstrap" });
  const [deb] = readdirSync(dir);
  run("dpkg-deb", ["-x", path.join(dir, deb), path.join(dir, "mmdebstrap")]);
  const program = path.join(dir, "mmdebstrap/usr/bin/mmdebstrap");
  const suite = /^VERSION_CODENAME=(\S+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "stable";
  run("perl", [program, "--mode=root", "--variant=minbase", "--format=tar", suite, path.join(dir, "partial.tar")], {
    needsNetwork: "Debian's essential packages",
  });
  renameSync(path.join(dir, "partial.tar"), path.join(dir, "root.tar"));
}

/** Tells the release where its parts are, by architecture; those made by an earlier set-up stay named. */
function recordStep(parts) {
  const file = path.join(stateDir, "release-parts.json");
  const known = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
  // Where the packages lie is known once their step has run.
  const text = () => {
    const made = Object.fromEntries(parts.map(({ arch, record }) => [arch, record()]));
    return `${JSON.stringify({ ...known, ...made })}\n`;
  };
  return {
    title: "record of the parts of a release",
    isDone: () => existsSync(file) && readFileSync(file, "utf8") === text(),
    run: () => writeFileSync(file, text()),
  };
}
