// Types, lint, format and generated files for every language; runs all of them, then fails if one did.
import { spawnSync } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import path from "node:path";
import { goEnvironment, goModules, readDevDir, readSetup, rootDir, secondsSince, succeeds } from "./checkout.ts";

interface Check {
  readonly name: string;
  readonly passes: () => boolean;
}

function goChecks(): Check[] {
  const { go } = readSetup();
  const staticcheck = path.join(readDevDir("gotools"), "staticcheck");
  const env = goEnvironment({ PATH: `${path.dirname(go)}:${process.env["PATH"] ?? ""}` });
  return goModules()
    .filter(hasGoFiles)
    .flatMap((module) => {
      const cwd = path.join(rootDir, module);
      return [
        { name: `${module}: go vet`, passes: () => succeeds(go, ["vet", "./..."], { cwd, env }) },
        { name: `${module}: gofmt`, passes: () => isFormatted(path.join(path.dirname(go), "gofmt"), cwd) },
        { name: `${module}: staticcheck`, passes: () => succeeds(staticcheck, ["./..."], { cwd, env }) },
      ];
    });
}

/** A module may exist for its pinned programs alone. */
function hasGoFiles(module: string): boolean {
  return globSync("**/*.go", { cwd: path.join(rootDir, module) }).length > 0;
}

function isFormatted(gofmt: string, cwd: string): boolean {
  const child = spawnSync(gofmt, ["-l", "."], { cwd, encoding: "utf8" });
  process.stdout.write(child.stdout);
  return child.status === 0 && child.stdout === "";
}

function pythonChecks(): Check[] {
  const cwd = path.join(rootDir, "sdks/python");
  if (!existsSync(path.join(cwd, "pyproject.toml"))) return [];
  const bin = path.join(readDevDir("python"), "bin");
  // What has no configuration of its own is judged by the SDK's.
  const folders = [".", "../../test", "../../examples"];
  return [
    { name: "python: ruff", passes: () => succeeds(path.join(bin, "ruff"), ["check", ...folders], { cwd }) },
    {
      name: "python: format",
      passes: () => succeeds(path.join(bin, "ruff"), ["format", "--check", ...folders], { cwd }),
    },
    { name: "python: mypy", passes: () => succeeds(path.join(bin, "mypy"), [], { cwd }) },
  ];
}

const checks: Check[] = [
  { name: "types", passes: () => succeeds("tsc", ["-p", "tsconfig.json"]) },
  { name: "lint", passes: () => succeeds("oxlint", ["--type-aware", "--deny-warnings"]) },
  { name: "format", passes: () => succeeds("biome", ["check", "."]) },
  {
    name: "tidy",
    passes: () => succeeds("vitest", ["run", "--project", "unit", "--reporter=dot", "test/tidy.test.ts"]),
  },
  { name: "generated files", passes: () => succeeds(process.execPath, ["scripts/generate/main.ts", "--check"]) },
  ...goChecks(),
  ...pythonChecks(),
];

const failed = checks.filter(({ name, passes }) => {
  const startMs = Date.now();
  const passed = passes();
  process.stdout.write(`check ${name}: ${passed ? "ok" : "FAILED"} (${secondsSince(startMs)})\n`);
  return !passed;
});
if (failed.length > 0) process.stdout.write(`failed: ${failed.map(({ name }) => name).join(", ")}\n`);
process.exitCode = failed.length === 0 ? 0 : 1;
