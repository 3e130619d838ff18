import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const rootDir = path.resolve(import.meta.dirname, "../..");
const read = (file: string): string => readFileSync(path.join(rootDir, file), "utf8");
const product = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "packages"], {
  cwd: rootDir,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => file.endsWith(".ts") && !/\.test\.ts$|\/testing\//.test(file));
const below = (folder: string): string[] => product.filter((file) => file.startsWith(`${folder}/`));
const importsOf = (file: string): string[] =>
  [...read(file).matchAll(/(?:from |import\(?)\s*"([^"]+)"/g)].map(([, specifier = ""]) => specifier);

/** Files whose text matches, each with the first match. */
function matches(files: readonly string[], pattern: RegExp): string[] {
  return files.flatMap((file) => {
    const found = pattern.exec(read(file).replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, ""));
    return found === null ? [] : [`${file}: ${found[0]}`];
  });
}

test("invariant pure-core: packages/api imports nothing but itself and does no IO", () => {
  const files = below("packages/api/src");
  expect(files.length).toBeGreaterThan(20);
  const foreign = files.flatMap((file) => importsOf(file).filter((specifier) => !specifier.startsWith("./")));
  expect(foreign).toEqual([]);
  expect(matches(files, /\b(?:process\.|fetch\(|setTimeout\(|setInterval\(|Date\.now\(|Math\.random\()/)).toEqual([]);
  const { dependencies } = JSON.parse(read("packages/api/package.json")) as { dependencies?: object };
  expect(dependencies ?? {}).toEqual({});
});

test("invariant plan-is-pure: no plan reads a clock, the network or a disk, and none waits", () => {
  const plans = product.filter((file) => /\/plan(?:-[\w-]+)?\.ts$/.test(file));
  expect(plans.length).toBeGreaterThan(10);
  expect(plans.flatMap((file) => importsOf(file).filter((one) => /^node:(?!util$)/.test(one)))).toEqual([]);
  const effects = /\b(?:async|await|Date\.now|new Date\(\)|Math\.random|randomUUID|fetch|setTimeout|process\.)\b/;
  expect(matches(plans, effects)).toEqual([]);
});

test("invariant controllers-know-no-store: controllers and stand-ins reach state through the client alone", () => {
  const files = [...below("packages/server/src/controllers"), ...below("packages/server/src/standins")];
  const reaching = files.flatMap((file) =>
    importsOf(file)
      .filter((specifier) => /sqlite|\/store\/|\/apiserver\//.test(specifier))
      .map((specifier) => `${file} imports ${specifier}`),
  );
  expect(reaching).toEqual([]);
});

test("invariant sql-in-one-place: only the store speaks SQL", () => {
  const others = product.filter((file) => !file.startsWith("packages/server/src/store/"));
  // An engine holds its data directory by the lock of an empty database.
  const allowed = 'packages/server/src/main/engine-lock.ts: "node:sqlite"';
  const found = matches(others, /"node:sqlite"|\b(?:SELECT|INSERT INTO|DELETE FROM) \w+/);
  expect(found.filter((one) => one !== allowed)).toEqual([]);
});

test("invariant one-reader-of-flags: only main and the command read the environment and the command line", () => {
  const others = product.filter((file) => !/^packages\/(?:server\/src\/main|cli\/src)\//.test(file));
  // The profile of a process names its command line, as Go's pprof does.
  const allowed = "packages/server/src/controllers/process/profiles.ts: process.argv";
  expect(matches(others, /(?<![.\w"])process\.(?:env|argv)\b/).filter((found) => found !== allowed)).toEqual([]);
});

test("invariant one-place-of-files: only the installation's module finds files by where it lies itself", () => {
  const own = "packages/server/src/installation/installation.ts";
  // The SDK is compiled by itself too, and loads one neighbour by its name.
  const allowed = "packages/sdk/src/files/sandbox-files.ts: import.meta";
  const others = product.filter((file) => file !== own);
  expect(matches(others, /import\.meta\b/).filter((found) => found !== allowed)).toEqual([]);
  expect(matches([own], /import\.meta\.dirname/)).toHaveLength(1);
});

test("invariant daemon-has-no-credential: what runs inside a sandbox knows no way to the API", () => {
  const native = execFileSync("git", ["ls-files", "native"], { cwd: rootDir, encoding: "utf8" }).split("\n");
  const inside = native.filter((file) => /^native\/(?:cmd\/sandboxd|internal)\/.*\.go$/.test(file));
  expect(inside.length).toBeGreaterThan(50);
  expect(matches(inside, /serviceaccount|kubeconfig|k8s\.io\/client-go/i)).toEqual([]);
});

test("invariant leaves-import-nothing: telemetry and durable import no neighbour but packages/api", () => {
  const files = [...below("packages/server/src/telemetry"), ...below("packages/server/src/durable")];
  const foreign = files.flatMap((file) =>
    importsOf(file).filter((one) => one.startsWith("../") || /^@agent-sandbox\/(?!api\b)/.test(one)),
  );
  expect(foreign).toEqual([]);
});
