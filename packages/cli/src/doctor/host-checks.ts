import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { readEngineRecord } from "@agent-sandbox/sdk/engine/engine-record";
import type { StartQuestion } from "@agent-sandbox/server/main/preflight/look";
import { startChecks } from "@agent-sandbox/server/main/preflight/preflight";
import { findPrograms } from "@agent-sandbox/server/main/programs";
import { describeAdvisories } from "@agent-sandbox/server/main/runtime-versions";
import { startQuestionOf } from "@agent-sandbox/server/main/up";
import { implicitFlags, upOptions } from "../up-flags.ts";
import type { Check, Question } from "./check.ts";

const run = promisify(execFile);

/** Modules whose absence breaks a check, loaded where `--fix` asks for it. */
const modules: Readonly<Record<string, readonly string[]>> = {
  "file systems": ["overlay", "loop"],
  "packet filter": ["nf_tables", "veth"],
};

/** What a start looks at itself; of an engine that runs, its addresses and its data directory are taken, by itself. */
const starting: readonly Check[] = startChecks.map(({ title, look }) => {
  const names = modules[title];
  return {
    title,
    look: async (question) => look(await startQuestion(question)),
    ...(names !== undefined && { mend: () => loadModules(names) }),
  };
});

const ofAStart: ReadonlySet<string> = new Set(["other engines", "addresses"]);

/** What the machine must bring. */
export async function hostChecks({ dataDir }: Question): Promise<readonly Check[]> {
  const isRunning = (await readEngineRecord(dataDir).catch(() => undefined)) !== undefined;
  return [...starting.filter(({ title }) => !isRunning || !ofAStart.has(title)), ...runtimes];
}

async function startQuestion({ dataDir, context }: Question): Promise<StartQuestion> {
  return { ...startQuestionOf(await upOptions(dataDir, implicitFlags(dataDir))), nowMs: context.nowMs() };
}

async function loadModules(names: readonly string[]): Promise<void> {
  for (const name of names) await run("modprobe", [name]);
}

const runtimes: readonly Check[] = [
  {
    title: "gVisor (runsc)",
    look: async () => {
      const { runsc, runscVersion: pinned } = findPrograms();
      const current = await moduleVersion(runsc);
      if (current !== pinned)
        return {
          verdict: "broken",
          code: "failed",
          detail: `runsc ${current}, and ${pinned} is pinned (${runsc})`,
          advice: "remove that file, and start ./agent-sandbox again, which builds it anew",
        };
      // The program's own answer also shows that it can be executed here.
      await run(runsc, ["--version"]);
      const detail = `runsc ${current}, as pinned`;
      const { found, text } = describeAdvisories({ component: "runsc", version: current });
      if (found.length === 0) return { verdict: "ok", detail: `${detail}; no known advisory` };
      return {
        verdict: "broken",
        code: "failed",
        detail: `${detail}; it has ${text}`,
        advice: "Update agent-sandbox: it brings its runtime.",
      };
    },
  },
  {
    title: "runc, the trusted tier",
    look: async () => {
      const { runc } = findPrograms();
      if (runc === undefined)
        return {
          verdict: "warning",
          detail: "not installed; only gVisor sandboxes can be had",
          advice: "It is optional: install the package runc.",
        };
      const { stdout } = await run(runc, ["--version"]);
      const detail = stdout.split("\n")[0] ?? "";
      const version = /version (\S+)/.exec(detail)?.[1] ?? detail;
      const { found, text } = describeAdvisories({ component: "runc", version });
      if (found.length === 0) return { verdict: "ok", detail: `${detail}, no known advisory` };
      const advice = "Update the package runc, unless your distribution mended it under the same number.";
      return { verdict: "warning", detail: `${detail} has ${text}`, advice };
    },
  },
];

/** The version of gVisor that a program was built from: Go writes the modules of a program into it, and `runsc --version` knows none. */
async function moduleVersion(program: string): Promise<string> {
  const text = (await readFile(program)).toString("latin1");
  return /\tgvisor\.dev\/gvisor\t(v[\w.+-]+)/.exec(text)?.[1] ?? "of an unknown version";
}
