import { isSandboxError, type Sandbox } from "@agent-sandbox/sdk";
import type { Tool } from "./solve.ts";

/** Longer than any test suite of a task this small; a command that hangs is killed with everything it started. */
const commandTimeoutMs = 20_000;
/** Enough for a traceback; models pay by the word. */
const resultCharsMax = 4_000;

/** The tools of a coding agent, all of them inside the sandbox. */
export function sandboxTools(sandbox: Sandbox): Record<string, Tool> {
  return {
    write_file: ({ subject, content = "" }) =>
      inWords(async () => {
        await sandbox.files.write(subject, content);
        return `wrote ${content.length} characters`;
      }),
    read_file: ({ subject }) => inWords(() => sandbox.files.readText(subject)),
    run: ({ subject }) =>
      inWords(async () => {
        const { exitCode, combined } = await sandbox.run(subject, { commandTimeoutMs });
        return `${combined.slice(-resultCharsMax)}\nexit code ${exitCode}`;
      }),
  };
}

/** What went wrong is a result like any other: the model can do something about it. */
async function inWords(work: () => Promise<string>): Promise<string> {
  try {
    return await work();
  } catch (error) {
    if (isSandboxError(error)) return `${error.code}: ${error.message}`;
    throw error;
  }
}
