import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { exitCodes } from "./exit-codes.ts";

/** Prints the modules that are loaded, at the end. */
const tracer = `
import { registerHooks } from "node:module";
const seen = [];
registerHooks({ load(url, context, next) { seen.push(url); return next(url, context); } });
process.on("exit", () => console.log(JSON.stringify(seen)));
`;

const main = fileURLToPath(new URL("main.ts", import.meta.url));

/** The modules that a command line loads, without what this test adds, and how it ended. */
function load(...words: string[]): { modules: string[]; status: number | null } {
  const args = ["--import", `data:text/javascript,${encodeURIComponent(tracer)}`, main, ...words];
  const { stdout, status } = spawnSync(process.execPath, args, { encoding: "utf8" });
  return { modules: JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "") as string[], status };
}

test("main: a version loads no verb", () => {
  const { modules, status } = load("--version");
  expect(status).toBe(exitCodes.ok);
  expect(modules.filter((url) => url.includes("/cli/"))).toEqual([expect.stringMatching(/main\.ts$/)]);
});

// An import of one of Node's modules reads all of its properties: those of `fs` and `process` load what `ls` has no use for.
const costly = /^node:(fs|fs\/promises|process|util|child_process|crypto|http|http2|https|os|tls)$/;

test("main: ls loads neither other verbs, nor their help, nor Node's costly modules whole", () => {
  const { modules, status } = load("ls", "--data-dir", "/there/is/no/engine/here");
  expect(status).toBe(exitCodes.noEngine);
  const verbs = modules.filter((url) => url.includes("/cli/src/verbs/"));
  expect(verbs).toEqual([expect.stringMatching(/verbs\/get\.ts$/)]);
  expect(modules.filter((url) => costly.test(url) || /\/(help|server|yaml|client-node)\//.test(url))).toEqual([]);
});
