import { expect, test } from "vitest";
import { ProgramTimeout, run } from "./run-program.ts";

test("preflight: a program that does not end is given up with a sentence", async () => {
  const startMs = performance.now();
  const failure: unknown = await run("sleep", ["30"], { afterMs: 100 }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(ProgramTimeout);
  expect((failure as Error).message).toBe("sleep did not end within 0.1 s");
  expect(performance.now() - startMs).toBeLessThan(10_000);
});

test("preflight: a program's words are there when it ends well and when it fails", async () => {
  expect(await run("sh", ["-c", 'echo "$SAID"'], { env: { SAID: "hi" } })).toBe("hi\n");
  await expect(run("sh", ["-c", "echo no >&2; exit 3"])).rejects.toMatchObject({ code: 3, stderr: "no\n" });
  await expect(run("/nonexistent/program", [])).rejects.toMatchObject({ code: "ENOENT" });
});
