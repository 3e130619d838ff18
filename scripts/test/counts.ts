/** What a runner counted. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** The count of a part without tests. */
export const noTests: Counts = { passed: 0, failed: 0, skipped: 0 };

/** The sum of two counts. */
export function addCounts(a: Counts, b: Counts): Counts {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped };
}

interface VitestReport {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
}

/** Reads vitest's JSON report; a runner that failed without a failed test (an unhandled error, a broken file) counts as one. */
export function parseVitestReport(text: string, runnerPassed: boolean): Counts {
  const report = JSON.parse(text) as VitestReport;
  const failed = runnerPassed ? report.numFailedTests : Math.max(1, report.numFailedTests);
  return { passed: report.numPassedTests, failed, skipped: report.numPendingTests + report.numTodoTests };
}

/** Counts the events of `go test -json`; a package that fails without a failed test (it does not build) counts as one. */
export function countGoEvents(lines: Iterable<string>): Counts {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  const failedPackages = new Set<string>();
  const packagesWithFailedTest = new Set<string>();
  for (const line of lines) {
    if (!line.startsWith("{")) continue;
    const event = JSON.parse(line) as { Action: string; Package?: string; Test?: string };
    if (event.Test === undefined) {
      if (event.Action === "fail") failedPackages.add(event.Package ?? "");
    } else if (event.Action === "pass") counts.passed += 1;
    else if (event.Action === "skip") counts.skipped += 1;
    else if (event.Action === "fail") {
      counts.failed += 1;
      packagesWithFailedTest.add(event.Package ?? "");
    }
  }
  counts.failed += [...failedPackages].filter((name) => !packagesWithFailedTest.has(name)).length;
  return counts;
}

/** Reads pytest's closing line, such as `3 failed, 97 passed, 1 skipped in 4.20s`. */
export function parsePytestSummary(line: string): Counts {
  const count = (word: string): number => Number(new RegExp(`(\\d+) ${word}`).exec(line)?.[1] ?? 0);
  return { passed: count("passed"), failed: count("failed") + count("error"), skipped: count("skipped") };
}
