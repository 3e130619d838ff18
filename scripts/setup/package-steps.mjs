// The steps that tests of the released packages need: a registry of npm with the runtimes that the SDK is tried out on, and what the Python
// and the Go SDK require, for an index and a module proxy of the tests' own.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { cacheDir, rootDir, stateDir } from "./places.mjs";
import { npmFlags } from "./runtime-steps.mjs";
import { contentKey, makeDirectory, run } from "./step.mjs";

const toolsDir = path.join(rootDir, "scripts/tools");

/** The steps in order. */
export function packageSteps() {
  return [npmToolsStep(), wheelsStep(), goModulesStep()];
}

/** Apart from the checkout's own packages: none of them is part of the product, and a registry brings five hundred. */
function npmToolsStep() {
  const files = ["package.json", "package-lock.json"].map((name) => path.join(toolsDir, "packages", name));
  return cachedDirectory({
    title: "registry and runtimes for tests of packages",
    state: "package-tools",
    dir: path.join(cacheDir, "package-tools", contentKey(files, process.arch)),
    fill: (dir) => {
      for (const file of files) copyFileSync(file, path.join(dir, path.basename(file)));
      run("npm", ["ci", ...npmFlags], { cwd: dir, needsNetwork: "npm packages" });
    },
  });
}

/** What the SDK requires, for the interpreter that tests run it with; versions are those of the checks' environment. */
function wheelsStep() {
  const pins = path.join(toolsDir, "requirements.txt");
  const project = path.join(rootDir, "sdks/python/pyproject.toml");
  const required = /^dependencies = \[(.*)\]$/m.exec(readFileSync(project, "utf8"))?.[1] ?? "";
  const wanted = [...required.matchAll(/"([^"]+)"/g)].map(([, requirement]) => requirement);
  const dir = path.join(cacheDir, "wheels", contentKey([pins], ...wanted));
  return cachedDirectory({
    title: "wheels for tests of packages",
    state: "wheels",
    dir,
    fill: (partial) => {
      const python = path.join(readFileSync(path.join(stateDir, "python"), "utf8"), "bin/python");
      const flags = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"];
      run(python, ["-m", "pip", "download", ...flags, "--dest", partial, "--constraint", pins, ...wanted], {
        needsNetwork: "Python packages",
      });
    },
  });
}

/**
 * What the SDK requires, as a directory that GOPROXY can name. Not the machine's own cache of modules: a build inside the checkout leaves out
 * the `go.mod` files of modules that it needs no package of, and `go get` in a module that requires the SDK reads those too.
 */
function goModulesStep() {
  const moduleDir = path.join(rootDir, "sdks/go");
  return cachedDirectory({
    title: "Go modules for tests of packages",
    state: "gomodules",
    dir: path.join(cacheDir, "gomodules", contentKey(["go.mod", "go.sum"].map((name) => path.join(moduleDir, name)))),
    fill: (partial) => {
      const { go } = JSON.parse(readFileSync(path.join(stateDir, "setup.json"), "utf8"));
      const [cache, proxy] = run(go, ["env", "GOMODCACHE", "GOPROXY"]).trim().split("\n");
      const env = {
        GOTOOLCHAIN: "local",
        GOMODCACHE: partial,
        GOPROXY: `file://${cache}/cache/download,${proxy}`,
        // Directories that their owner may not write into could not be removed where a set-up was killed.
        GOFLAGS: "-modcacherw",
      };
      run(go, ["mod", "download"], { cwd: moduleDir, env, needsNetwork: "Go modules" });
    },
  });
}

function cachedDirectory({ title, state, dir, fill }) {
  const link = path.join(stateDir, state);
  return {
    title,
    isDone: () => existsSync(dir) && existsSync(link) && readFileSync(link, "utf8") === dir,
    run: () => {
      if (!existsSync(dir)) makeDirectory(dir, fill);
      mkdirSync(stateDir, { recursive: true });
      writeFileSync(link, dir);
    },
  };
}
