import { expect, test } from "vitest";
import { manifestText, ownerOf, parseManifest } from "./manifest.ts";

test("manifest: one of a later format is refused before its shape is looked at", () => {
  expect(() => parseManifest('{"format":2,"new":true}')).toThrow(/has format 2, and this version .* reads up to 1/);
  const facts = { engineVersion: "1", nodeName: "one", createdAt: "now", includes: [], parts: [] };
  expect(parseManifest(manifestText(facts))).toEqual({ format: 1, ...facts });
});

test.each([
  "../etc/passwd",
  "/etc/passwd",
  "engine/control/pki/../../../x",
  "engine/control/pki/.ssh",
  "engine/control/db/store.sqlite-wal",
  "host/volumes/../x.img",
  "host/volumes/a/b.img",
  "host/volumes/a.img.snapshot",
  "host/layers/x.img",
  "bin/sandboxd",
  "",
])("manifest: nothing is restored to %j", (name) => {
  expect(ownerOf(name)).toBeUndefined();
});

test("manifest: each part has an owner", () => {
  expect(
    [
      "node.json",
      "host/volumes/pvc-1.img",
      "host/archive/keys.json",
      "engine/control/pki/ca-1.key",
      "engine/router/links.key",
    ].map(ownerOf),
  ).toEqual(["root", "root", "root", "control", "router"]);
});
