import { expect, test } from "vitest";
import { advisoriesFor, knownBad, readAdvisories } from "./advisories.ts";
import { findPrograms } from "./programs.ts";

const list = readAdvisories();

function idsFor(component: string, version: string): string[] {
  return advisoriesFor(list, { component, version }).map(({ id }) => id);
}

test.each([
  ["1.1.11", ["CVE-2024-21626", "CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"]],
  ["1.1.12", ["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"]],
  ["1.2.7", ["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"]],
  ["1.2.8", []],
  ["1.3.2", ["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"]],
  ["1.3.3", []],
  ["1.4.0-rc.2", ["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"]],
  ["1.4.0-rc.3", []],
  ["1.4.0", []],
  ["2.0.0", []],
])("advisoriesFor: runc %s", (version, expected) => {
  expect(idsFor("runc", version)).toEqual(expected);
});

test("advisoriesFor: an advisory begins where it was introduced", () => {
  expect(idsFor("runc", "1.0.0-rc92")).not.toContain("CVE-2024-21626");
  expect(idsFor("runc", "1.0.0-rc93")).toContain("CVE-2024-21626");
  expect(idsFor("runc", "1.0.0-rc6")).toContain("CVE-2019-5736");
});

test.each([
  ["release-20260904.0", ["CVE-2026-96812"]],
  ["release-20260905.0", []],
  ["v0.0.0-20260824101112-0123456789ab", ["CVE-2026-96812"]],
  ["v0.0.0-20260905035102-160fafc42237", []],
])("advisoriesFor: runsc %s", (version, expected) => {
  expect(idsFor("runsc", version)).toEqual(expected);
});

test("advisoriesFor: a version that cannot be read has every advisory of its component", () => {
  for (const component of ["runsc", "runc"])
    expect(idsFor(component, "VERSION_MISSING")).toEqual(
      list.filter((advisory) => advisory.component === component).map(({ id }) => id),
    );
});

test("advisories: each is whole, and named once", () => {
  for (const { id, component, introduced, fixed, summary, source } of list) {
    expect(id).toMatch(/^CVE-\d{4}-\d+$/);
    expect(["runsc", "runc", "containerd"]).toContain(component);
    expect(fixed.length).toBeGreaterThan(0);
    for (const text of [summary, source]) expect(text).not.toBe("");
    // A fix that the check cannot read would make the advisory one about no version.
    expect(idsFor(component, introduced ?? (component === "runsc" ? "release-20170101.0" : "0.0.1"))).toContain(id);
    for (const version of fixed) expect(idsFor(component, version)).not.toContain(id);
  }
  expect(new Set(list.map(({ id }) => id)).size).toBe(list.length);
});

test("advisories: the pinned runsc has none, and the versions that are known to be bad have some", () => {
  expect(idsFor("runsc", findPrograms().runscVersion)).toEqual([]);
  for (const [component, version] of Object.entries(knownBad)) expect(idsFor(component, version)).not.toEqual([]);
});
