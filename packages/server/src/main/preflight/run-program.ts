import { execFile } from "node:child_process";
import path from "node:path";

/** The programs of a check take milliseconds. */
const timeoutMs = 10_000;

/** What `run` rejects with for a program that ended badly or could not be started. */
export type FailedProgram = NodeJS.ErrnoException & { readonly stderr?: string };

/** What `run` rejects with for a program that did not end in time. */
export class ProgramTimeout extends Error {
  constructor(file: string, afterMs: number) {
    super(`${path.basename(file)} did not end within ${afterMs / 1000} s`);
  }
}

/** Runs a program and resolves with what it wrote. One that waits in the kernel does not even end when it is killed: it is not waited for. */
export function run(
  file: string,
  args: readonly string[],
  {
    env = {},
    afterMs = timeoutMs,
  }: { readonly env?: Readonly<Record<string, string>>; readonly afterMs?: number } = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = execFile(file, args, { env: { ...process.env, ...env } }, (error, stdout, stderr) => {
      clearTimeout(timer);
      if (error === null) resolve(stdout);
      else reject(Object.assign(error, { stderr }));
    });
    const timer = setTimeout(() => {
      reject(new ProgramTimeout(file, afterMs));
      child.kill("SIGKILL");
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
    }, afterMs);
  });
}
