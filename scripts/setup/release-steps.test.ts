import path from "node:path";
import { expect, test } from "vitest";

// Plain JavaScript, which has no types.
const { offeredFiles } = (await import(path.join(import.meta.dirname, "release-steps.mjs"))) as {
  offeredFiles: (lines: string, packages: readonly string[]) => string[];
};

const offer = (version: string, sum = "ab"): string =>
  [
    `'file:/pool/libmnl0_1.0.4-3_amd64.deb' libmnl0_1.0.4-3_amd64.deb 12116 SHA256:cd`,
    `'file:/pool/nftables_${version}_amd64.deb' nftables_${version}_amd64.deb 70032 SHA256:${sum}`,
    "",
  ].join("\n");
const packages = ["nftables", "libmnl0"];

test("release packages: the key of the cache changes with a version or a digest", () => {
  const files = offeredFiles(offer("1.0.6-2"), packages);
  expect(files).toEqual(["libmnl0_1.0.4-3_amd64.deb SHA256:cd", "nftables_1.0.6-2_amd64.deb SHA256:ab"]);
  expect(offeredFiles(offer("1.0.6-3"), packages)).not.toEqual(files);
  expect(offeredFiles(offer("1.0.6-2", "ac"), packages)).not.toEqual(files);
});

test("release packages: one that Debian does not offer is named", () => {
  expect(() => offeredFiles(offer("1.0.6-2"), [...packages, "e2fsprogs"])).toThrow(
    "apt-get names no file for e2fsprogs",
  );
});
