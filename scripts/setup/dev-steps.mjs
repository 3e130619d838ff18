// The steps the checks and tests need besides: a C compiler for the race detector, staticcheck, the Python environment,
// and the servers that tests talk to.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { packageSteps } from "./package-steps.mjs";
import { cacheDir, rootDir, stateDir } from "./places.mjs";
import { emptyRootStep, releaseSteps } from "./release-steps.mjs";
import { installDebian } from "./runtime-steps.mjs";
import { contentKey, isProgram, makeDirectory, run, which } from "./step.mjs";

const toolsDir = path.join(rootDir, "scripts/tools");

/** The steps in order. */
export function devSteps() {
  return [
    compilerStep(),
    pythonStep(),
    staticcheckStep(),
    serversStep(),
    postgresStep(),
    xfsStep(),
    ...releaseSteps([process.arch]),
    emptyRootStep(),
    ...packageSteps(),
  ];
}

/** Debian packages whose programs tests start themselves; unpacked, never installed, so that nothing is started or changed. */
const serverPackages = ["docker-registry", "nginx", "nginx-common", "runc", "wrk", "libluajit-5.1-2", "busybox-static"];

/** Shells that completion is tried out in, and what shows the manual. */
const shellPackages = ["zsh", "zsh-common", "fish", "fish-common", "libpcre2-32-0", "groff-base"];

function compilerStep() {
  return {
    title: "C compiler",
    isDone: () => which("gcc") !== undefined || process.getuid?.() !== 0,
    run: () => installDebian(["gcc", "libc6-dev"]),
  };
}

/** The Python environment with the linters and the test runner, keyed by the list of pins. */
function pythonStep() {
  const requirements = path.join(toolsDir, "requirements.txt");
  const dir = path.join(cacheDir, "python", contentKey([requirements]));
  const complete = path.join(dir, "complete");
  const link = path.join(stateDir, "python");
  return {
    title: "Python environment",
    isDone: () => existsSync(complete) && existsSync(link) && readFileSync(link, "utf8") === dir,
    run: () => {
      if (!existsSync(complete)) makeVenv(dir, requirements);
      writeFileSync(complete, "");
      writeState(link, dir);
    },
  };
}

// A virtual environment holds absolute paths, so it cannot be made elsewhere and renamed; a file written last is the marker.
function makeVenv(dir, requirements) {
  run("python3", ["-m", "venv", "--clear", dir]);
  run(path.join(dir, "bin/pip"), ["install", "--quiet", "--no-deps", "-r", requirements], {
    needsNetwork: "Python packages",
  });
}

function staticcheckStep() {
  const dir = path.join(
    cacheDir,
    "gotools",
    contentKey([path.join(toolsDir, "go.mod"), path.join(toolsDir, "go.sum")]),
  );
  const program = path.join(dir, "staticcheck");
  const link = path.join(stateDir, "gotools");
  return {
    title: "Go tools",
    isDone: () => isProgram(program) && existsSync(link) && readFileSync(link, "utf8") === dir,
    run: () => {
      if (!isProgram(program)) {
        const { go } = JSON.parse(readFileSync(path.join(stateDir, "setup.json"), "utf8"));
        makeDirectory(dir, (partial) =>
          run(go, ["build", "-o", `${partial}/`, "honnef.co/go/tools/cmd/staticcheck"], {
            cwd: toolsDir,
            needsNetwork: "Go modules",
          }),
        );
      }
      writeState(link, dir);
    },
  };
}

function serversStep() {
  const packages = [...serverPackages, ...shellPackages];
  const dir = path.join(cacheDir, "debian", contentKey([], ...packages));
  const link = path.join(stateDir, "servers");
  return {
    title: "test servers",
    isDone: () =>
      (existsSync(dir) && existsSync(link) && readFileSync(link, "utf8") === dir) || which("apt-get") === undefined,
    run: () => {
      if (!existsSync(dir)) unpackDebian(dir, () => packages);
      writeState(link, dir);
    },
  };
}

/** PostgreSQL, with what it needs that this machine has not: sandboxes of tests run it from there. */
function postgresStep() {
  const dir = path.join(cacheDir, "debian", contentKey([], "postgresql", process.arch));
  const link = path.join(stateDir, "postgres");
  return {
    title: "PostgreSQL for tests",
    isDone: () =>
      (existsSync(dir) && existsSync(link) && readFileSync(link, "utf8") === dir) || which("apt-get") === undefined,
    run: () => {
      if (!existsSync(dir)) unpackDebian(dir, () => postgresPackages());
      writeState(link, dir);
    },
  };
}

/** What makes a file system with shared blocks, and the libraries that would be installed with it. */
function xfsStep() {
  const dir = path.join(cacheDir, "debian", contentKey([], "xfsprogs", process.arch));
  const link = path.join(stateDir, "xfs");
  return {
    title: "XFS for tests",
    isDone: () =>
      (existsSync(dir) && existsSync(link) && readFileSync(link, "utf8") === dir) || which("apt-get") === undefined,
    run: () => {
      if (!existsSync(dir)) unpackDebian(dir, () => ["xfsprogs", ...librariesOf("xfsprogs")]);
      writeState(link, dir);
    },
  };
}

/** The libraries that this machine lacks for a package. */
function librariesOf(name) {
  const planned = run("apt-get", ["install", "--simulate", "--no-install-recommends", name]);
  return [...planned.matchAll(/^Inst (lib\S+)/gm)].map(([, library]) => library);
}

/** The server that this release of Debian calls its own, its client, and the libraries that would be installed with them. */
function postgresPackages() {
  const depended = run("apt-cache", ["depends", "--important", "postgresql"]);
  const server = /Depends: (postgresql-\d+)/.exec(depended)?.[1];
  if (server === undefined) throw new Error("apt-cache names no server that postgresql depends on");
  const client = server.replace("postgresql-", "postgresql-client-");
  return [...new Set([server, client, ...librariesOf(server)])];
}

function unpackDebian(dir, named) {
  if (process.getuid?.() === 0) run("apt-get", ["update", "-q"], { needsNetwork: "Debian package lists" });
  const packages = named();
  makeDirectory(dir, (partial) => {
    const debs = path.join(partial, "debs");
    mkdirSync(debs);
    run("apt-get", ["download", "-q", ...packages], {
      cwd: debs,
      needsNetwork: `Debian packages ${packages.join(" ")}`,
    });
    for (const deb of readdirSync(debs)) run("dpkg-deb", ["-x", path.join(debs, deb), partial]);
  });
}

function writeState(file, text) {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}
