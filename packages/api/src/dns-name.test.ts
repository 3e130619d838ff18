import { expect, test } from "vitest";
import {
  dns1035LabelProblems,
  dnsLabelProblems,
  dnsSubdomainProblems,
  isDnsLabel,
  labelValueProblems,
  qualifiedNameProblems,
} from "./dns-name.ts";

test.each([
  ["a", true],
  ["a-b", true],
  ["0", true],
  ["a".repeat(63), true],
  ["a".repeat(64), false],
  ["", false],
  ["-a", false],
  ["a-", false],
  ["A", false],
  ["a.b", false],
  ["a\n", false],
])("isDnsLabel: %j is %s", (value, valid) => {
  expect(isDnsLabel(value)).toBe(valid);
});

test.each([
  ["a.b", true],
  [`${"a".repeat(63)}.b`, true],
  ["a".repeat(253), true],
  ["a".repeat(254), false],
  ["a..b", false],
  [".a", false],
  ["a_b", false],
])("dnsSubdomainProblems: %j is valid: %s", (value, valid) => {
  expect(dnsSubdomainProblems(value).length === 0).toBe(valid);
});

test("dns1035LabelProblems: a digit may not come first", () => {
  expect(dns1035LabelProblems("1a")).toHaveLength(1);
  expect(dns1035LabelProblems("a1")).toEqual([]);
});

test.each([
  ["", true],
  ["A_b.c", true],
  ["-", false],
  ["a b", false],
])("labelValueProblems: %j is valid: %s", (value, valid) => {
  expect(labelValueProblems(value).length === 0).toBe(valid);
});

test.each([
  ["simple", true],
  ["example.com/MyName", true],
  ["a.b/c_d", true],
  ["/name", false],
  ["prefix/", false],
  ["a/b/c", false],
  ["UPPER.com/x", false],
  [`a/${"b".repeat(64)}`, false],
])("qualifiedNameProblems: %j is valid: %s", (value, valid) => {
  expect(qualifiedNameProblems(value).length === 0).toBe(valid);
});

test("dnsLabelProblems: the sentence is the one of Kubernetes", () => {
  expect(dnsLabelProblems("A")).toEqual([
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
  ]);
});
