import { describe, expect, test } from "vitest";
import { mergeVolumeClaims } from "./claim-volumes.ts";

describe("mergeVolumeClaims", () => {
  const claim = (name: string, size = "1Gi") => ({
    metadata: { name },
    spec: { resources: { requests: { storage: size } } },
  });
  const rows: [string, string[], string[], Parameters<typeof mergeVolumeClaims>[2], string][] = [
    ["disallowed", [], ["a"], undefined, "volume claim templates are disallowed by the template"],
    ["shared name under Allowed", ["a"], ["a"], "Allowed", 'cannot override template volume "a"'],
    ["empty name", [], [""], "Allowed", "name at index 0 is empty"],
    ["duplicate", [], ["a", "a"], "Overrides", 'duplicate name "a"'],
    ["duplicate in the template", ["a", "a"], [], undefined, 'duplicate name "a"'],
  ];
  test.each(rows)("mergeVolumeClaims: %s is refused", (_title, template, own, policy, detail) => {
    const merged = mergeVolumeClaims(
      template.map((name) => claim(name)),
      own.map((name) => claim(name)),
      policy,
    );
    const message: unknown = expect.stringContaining(detail);
    expect(merged).toMatchObject({ reason: "VolumeClaimTemplatesError", message, retry: false });
  });
  test("mergeVolumeClaims: Overrides keeps the template's order and appends", () => {
    const merged = mergeVolumeClaims([claim("a"), claim("b")], [claim("c"), claim("a", "9Gi")], "Overrides");
    expect(merged).toEqual([claim("a", "9Gi"), claim("b"), claim("c")]);
  });
});
