import { describe, expect, test } from "vitest";
import { withEnvironment } from "./environment.ts";

describe("withEnvironment", () => {
  const spec = {
    containers: [
      { name: "main", env: [{ name: "A", value: "1" }] },
      { name: "side", envFrom: [{}] },
    ],
    initContainers: [{ name: "init" }],
  };
  const rejected = "environment variable injection rejected: ";
  const rows: [string, Parameters<typeof withEnvironment>[2], Parameters<typeof withEnvironment>[1], string][] = [
    [
      "disallowed",
      "Disallowed",
      [{ name: "B", value: "2" }],
      "environment variable injection is not allowed by the template policy",
    ],
    [
      "unset policy",
      undefined,
      [{ name: "B", value: "2" }],
      "environment variable injection is not allowed by the template policy",
    ],
    [
      "unknown container",
      "Overrides",
      [{ name: "B", value: "2", containerName: "x" }],
      'target container "x" not found in template for environment variable "B"',
    ],
    [
      "envFrom under Allowed",
      "Allowed",
      [{ name: "B", value: "2", containerName: "side" }],
      'container "side" uses EnvFrom sources; Allowed policy cannot safely prevent overriding EnvFrom-provided variables',
    ],
    [
      "override under Allowed",
      "Allowed",
      [{ name: "A", value: "2" }],
      'environment variable override is not allowed by the template policy for variable "A"',
    ],
    [
      "a duplicate under Allowed",
      "Allowed",
      [
        { name: "B", value: "1" },
        { name: "B", value: "2" },
      ],
      'environment variable override is not allowed by the template policy for variable "B"',
    ],
  ];
  test.each(rows)("withEnvironment: %s is refused", (_title, policy, env, detail) => {
    expect(withEnvironment(spec, env, policy)).toMatchObject({
      reason: "EnvVarsInjectionRejected",
      message: rejected + detail,
      retry: false,
    });
  });
  test("withEnvironment: new names are appended, Overrides replaces in place, init containers are reachable", () => {
    const env = [
      { name: "B", value: "2" },
      { name: "A", value: "9" },
      { name: "C", value: "3", containerName: "init" },
    ];
    expect(withEnvironment(spec, env, "Overrides")).toMatchObject({
      containers: [
        {
          env: [
            { name: "A", value: "9" },
            { name: "B", value: "2" },
          ],
        },
        { name: "side" },
      ],
      initContainers: [{ env: [{ name: "C", value: "3" }] }],
    });
    expect(spec.containers[0]?.env).toEqual([{ name: "A", value: "1" }]);
  });
});
