import { expect, test } from "vitest";
import {
  ApiError,
  alreadyExists,
  forbidden,
  ignore,
  internalError,
  invalid,
  isReasonOf,
  modified,
  notFound,
  tooManyRequests,
} from "./api-error.ts";

const pod = { resource: "pods", name: "a" };
const sandbox = { group: "agents.x-k8s.io", resource: "sandboxes", name: "a" };

test("ApiError: messages are those that Kubernetes clients know", () => {
  expect(notFound(pod).message).toBe('pods "a" not found');
  expect(notFound(sandbox).message).toBe('sandboxes.agents.x-k8s.io "a" not found');
  expect(alreadyExists(pod).message).toBe('pods "a" already exists');
  expect(modified(sandbox).message).toBe(
    'Operation cannot be fulfilled on sandboxes.agents.x-k8s.io "a": the object has been modified; please apply your changes to the latest version and try again',
  );
  expect(forbidden({ resource: "pods", name: "" }, "no").message).toBe("pods is forbidden: no");
});

test("ApiError: an invalid object lists one cause bare and several in brackets", () => {
  const cause = { reason: "FieldValueRequired", message: "Required value", field: "spec.a" };
  expect(invalid({ kind: "Pod", name: "a" }, [cause]).message).toBe('Pod "a" is invalid: spec.a: Required value');
  const error = invalid({ group: "agents.x-k8s.io", kind: "Sandbox", name: "a" }, [cause, cause]);
  expect(error.message).toBe(
    'Sandbox.agents.x-k8s.io "a" is invalid: [spec.a: Required value, spec.a: Required value]',
  );
  expect(error.status).toBe(422);
});

test("ApiError: becomes a Status and comes back from one", () => {
  const error = tooManyRequests("slow down", 7);
  const status = error.toStatus();
  expect(status).toMatchObject({ kind: "Status", status: "Failure", reason: "TooManyRequests", code: 429 });
  const again = ApiError.fromStatus(status, 500);
  expect(again).toMatchObject({ reason: "TooManyRequests", status: 429, retryAfterSeconds: 7, message: "slow down" });
});

test.each([
  [404, "NotFound"],
  [409, "Conflict"],
  [410, "Gone"],
  [418, "Unknown"],
  [500, "InternalError"],
  [504, "Timeout"],
])("ApiError: an answer of %d without a Status has reason %s", (status, reason) => {
  const error = ApiError.fromStatus({}, status);
  expect([error.reason, error.status]).toEqual([reason, status]);
});

test("ignore: swallows the named reasons and nothing else", () => {
  expect(ignore("NotFound")(notFound(pod))).toBeUndefined();
  expect(() => ignore("NotFound")(modified(pod))).toThrow("modified");
  expect(() => ignore("NotFound")(new TypeError("bug"))).toThrow("bug");
  expect(isReasonOf(internalError("x", new Error("cause")), "InternalError")).toBe(true);
});
