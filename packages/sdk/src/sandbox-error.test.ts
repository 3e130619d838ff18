import { notFound } from "@agent-sandbox/api/api-error";
import { expect, test } from "vitest";
import { apiCall } from "./api-failure.ts";
import { codeOfConnect, codeOfStatus, isSandboxError, SandboxError } from "./sandbox-error.ts";

test("codeOfConnect: words of both protocols mean the same", () => {
  expect([
    codeOfConnect("not_found"),
    codeOfConnect("NOT_FOUND"),
    codeOfConnect("unavailable"),
    codeOfConnect(undefined),
  ]).toEqual(["not-found", "not-found", "unavailable", "internal"]);
});

test("codeOfStatus: unknown statuses are ours from 500 on, else a protocol error", () => {
  expect([codeOfStatus(410), codeOfStatus(599), codeOfStatus(418)]).toEqual([
    "sandbox-expired",
    "internal",
    "protocol-error",
  ]);
});

test("SandboxError: carries cause, request id and advice", () => {
  const cause = new Error("why");
  const error = new SandboxError("engine-not-found", "none", { cause, requestId: "r1" });
  expect(error).toMatchObject({ cause, requestId: "r1", isRetryable: false });
  expect(error.hint).toContain("agent-sandbox up");
  expect(isSandboxError(error, "engine-not-found")).toBe(true);
});

test("apiCall: an error of the API becomes one of ours and keeps its cause", async () => {
  const cause = notFound({ resource: "sandboxes", name: "a" });
  const calling = apiCall("get sandbox", () => Promise.reject(cause));
  await expect(calling).rejects.toMatchObject({ code: "not-found", cause });
});

test("apiCall: a cancellation stays what it is", async () => {
  const reason = new Error("cancelled");
  await expect(apiCall("x", () => Promise.reject(reason))).rejects.toBe(reason);
});
