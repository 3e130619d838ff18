import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";

/** Prints the modules that are loaded besides Node's own, at the end. */
const tracer = `
import { registerHooks } from "node:module";
const seen = [];
registerHooks({ load(url, context, next) { seen.push(url); return next(url, context); } });
process.on("exit", () => console.log(JSON.stringify(seen)));
`;

function modulesOf(program: string): string[] {
  const args = ["--import", `data:text/javascript,${encodeURIComponent(tracer)}`, "--input-type=module", "-e", program];
  const printed = execFileSync(process.execPath, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(printed) as string[];
}

const index = JSON.stringify(new URL("index.ts", import.meta.url).href);
const heavy =
  /\/(kube|process\/processes|control\/create-sandbox|tunnel)\/?|node:(crypto|fs|http|https|net|tls)|proto\//;

test("index: an import loads neither what finds an engine nor what runs processes", () => {
  expect(modulesOf(`import ${index};`).filter((url) => heavy.test(url))).toEqual([]);
});

test("index: a connection to an engine does load what the import leaves out", () => {
  const connecting = `const { findEngine } = await import(${index}); await findEngine({ dataDir: "/none" }).catch(() => undefined);`;
  expect(modulesOf(connecting).filter((url) => heavy.test(url))).not.toEqual([]);
});
