import type { ErrorCode } from "../errors/error-codes.gen.ts";
import { codeOfConnect, codeOfStatus, isSandboxError, SandboxError } from "../errors/sandbox-error.ts";
import type { PlaneResponse } from "../plane/data-plane.ts";
import { readText } from "../plane/data-plane.ts";

/** The error that a refused file request tells of: sandboxd's `{code, message}`, or the bare status. */
export async function fileFailure(what: string, response: PlaneResponse): Promise<SandboxError> {
  const text = await readText(response.body).catch(() => "");
  const requestId = response.headers["x-request-id"];
  const { code, message } = tryParse(text);
  // The status is finer than the word: 412 and 507 have words that say less.
  const known = codeOfStatus(response.status);
  const chosen = known === "internal" && code !== undefined ? codeOfConnect(code) : known;
  return new SandboxError(chosen, `${what}: ${message ?? `the sandbox answered ${response.status}`}`, { requestId });
}

function tryParse(text: string): { readonly code?: string; readonly message?: string } {
  try {
    const parsed = JSON.parse(text) as { code?: unknown; message?: unknown };
    return {
      ...(typeof parsed.code === "string" && { code: parsed.code }),
      ...(typeof parsed.message === "string" && { message: parsed.message }),
    };
  } catch {
    return {};
  }
}

/** What the codes of plain calls mean when they are about files. */
const fileCodes: Readonly<Partial<Record<ErrorCode, ErrorCode>>> = {
  "already-exists": "file-exists",
  "quota-exceeded": "no-space",
};

/** Throws the error of a call about files, with the code that says so. */
export function throwAsFileError(error: unknown): never {
  const code = isSandboxError(error) ? fileCodes[error.code] : undefined;
  if (!isSandboxError(error) || code === undefined) throw error;
  throw new SandboxError(code, error.message, { cause: error, requestId: error.requestId });
}
