import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { programPath } from "../cluster/programs.ts";

/** What a command printed and how it ended. */
export interface Printed {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The file of an article. */
export function article(name: string): string {
  return path.join(import.meta.dirname, "fixtures", name);
}

/** The text of an article's file with words replaced, for `kubectl apply -f -`. */
export async function articleText(name: string, replaced: Readonly<Record<string, string>> = {}): Promise<string> {
  const text = await readFile(article(name), "utf8");
  return Object.entries(replaced).reduce((result, [from, to]) => result.replaceAll(from, to), text);
}

/** Longer than any wait that the tests give to kubectl itself. */
const timeoutMs = 110_000;

/** Runs kubectl against one engine, as a reader would, in a home of its own so that nothing is cached between engines. */
export function kubectlFor(kubeconfig: string, home: string) {
  return (words: string, input = ""): Promise<Printed> =>
    new Promise((resolve) => {
      const env = { PATH: process.env["PATH"], HOME: home, KUBECONFIG: kubeconfig, LC_ALL: "C" };
      const options = { encoding: "utf8" as const, timeout: timeoutMs, env };
      const child = execFile(programPath("kubectl"), words.split(" "), options, (error, stdout, stderr) => {
        const code = typeof error?.code === "number" ? error.code : error === null ? 0 : -1;
        resolve({ code, stdout, stderr });
      });
      child.stdin?.end(input);
    });
}
