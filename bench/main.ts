// Runs benchmark programs one after the other: `npm run bench -- store router`; without names it lists them.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";

const here = import.meta.dirname;
const programs = readdirSync(here)
  .filter((file) => file.endsWith(".ts") && file !== "main.ts")
  .map((file) => path.basename(file, ".ts"));
const wanted = process.argv.slice(2).filter((word) => !word.startsWith("-"));
const flags = process.argv.slice(2).filter((word) => word.startsWith("-"));
const unknown = wanted.filter((name) => !programs.includes(name));

if (wanted.length === 0 || unknown.length > 0) {
  for (const name of unknown) process.stderr.write(`no benchmark '${name}'\n`);
  process.stderr.write(`benchmarks: ${programs.join(" ")}\n`);
  process.exitCode = unknown.length > 0 ? 1 : 0;
}
for (const name of unknown.length > 0 ? [] : wanted) {
  const child = spawnSync(process.execPath, [path.join(here, `${name}.ts`), ...flags], { stdio: "inherit" });
  if (child.status !== 0) process.exitCode = 1;
}
