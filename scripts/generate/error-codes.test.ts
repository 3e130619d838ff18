import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { printGoCodes, printPythonCodes, printTypeScriptCodes, readErrorCodes } from "./error-codes.ts";

const specFile = join(import.meta.dirname, "../../spec/errors.yaml");
const codes = readErrorCodes(specFile);

test("errorCodes: every status that a server may send belongs to a code", () => {
  const statuses = new Set(codes.flatMap((one) => one.http ?? []));
  for (const status of [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 502, 503, 504])
    expect(statuses).toContain(status);
  const grpc = codes.flatMap((one) => one.grpc ?? []);
  expect(grpc).toHaveLength(15); // all but OK and CANCELLED, which are no errors
});

test("errorCodes: every language gets every code", () => {
  for (const text of [printTypeScriptCodes(codes), printGoCodes(codes), printPythonCodes(codes)]) {
    for (const one of codes) expect(text).toContain(`"${one.code}"`);
  }
});

test("readErrorCodes: two codes cannot claim one status", () => {
  const directory = mkdtempSync(join(tmpdir(), "error-codes-"));
  try {
    const file = join(directory, "errors.yaml");
    writeFileSync(file, "codes:\n  - {code: a, http: [400]}\n  - {code: b, http: [400]}\n");
    expect(() => readErrorCodes(file)).toThrow("400 is claimed twice");
  } finally {
    rmSync(directory, { recursive: true });
  }
});
