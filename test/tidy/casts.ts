import { isTestCode } from "./imports.ts";

/** Casts through `unknown`, which the compiler cannot check, by file; each has its reason in a comment right above it. */
const known: Readonly<Record<string, number>> = {
  "packages/api/src/conversion-claim.ts": 2,
  "packages/api/src/meta.ts": 2,
  "packages/server/src/router/proxy/http2-face.ts": 2,
  "packages/server/src/router/request-series.ts": 1,
  "packages/server/src/store/log-writer.ts": 1,
};

/** The same in tests, where a part of a whole stands for the whole; no reason is asked for. */
const knownInTests: Readonly<Record<string, number>> = {
  "examples/dev-environment/browser.ts": 1,
  "packages/cli/src/verify/probe.test.ts": 1,
  "packages/kube/src/testing/part-of.ts": 1,
  "packages/sdk/src/control/create-whole.test.ts": 3,
  "test/conformance/suite.ts": 1,
  "test/router/draining.test.ts": 1,
  "test/simulation/mutations.ts": 1,
};

/** What is wrong with one file's casts through `unknown`: more than the table has, fewer, or one without a reason. */
export function findCasts(file: string, text: string): string[] {
  const lines = text.split("\n");
  const casts = lines.flatMap((line, index) => (/\bas\sunknown\sas\b/.test(line) ? [index] : []));
  const allowed = known[file] ?? knownInTests[file] ?? 0;
  const count =
    casts.length === allowed ? [] : [`${file} has ${casts.length} casts through unknown, the table ${allowed}`];
  if (isTestCode(file) || !file.startsWith("packages/")) return count;
  const bare = casts.filter((index) => !/^\s*(: )?\/\//.test(lines[index - 1] ?? ""));
  return [...count, ...bare.map((index) => `${file}:${index + 1} casts through unknown without a reason above it`)];
}
