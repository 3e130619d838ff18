import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { InstallPlace, installPlaceOf, pointLink } from "./install-place.ts";

let prefix: string;
beforeEach(() => {
  prefix = path.join(realpathSync(mkdtempSync(path.join(os.tmpdir(), "as-place-"))), "agent-sandbox");
});
afterEach(() => {
  rmSync(path.dirname(prefix), { recursive: true });
});

/** An unpacked release, as far as its place is concerned. */
function unpack(dir: string): string {
  mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(dir, "release.json"), "{}");
  return dir;
}

test("install place: the way back is the version that runs, though a killed upgrade moved the link", () => {
  const place = new InstallPlace(prefix);
  const running = unpack(place.dirOf("0.1.0"));
  unpack(place.dirOf("0.2.0"));
  pointLink(place.link, place.dirOf("0.2.0"));
  expect(place.wayBack("0.2.0", running)).toBe(running);
  expect(place.wayBack("0.2.0", "/elsewhere/agent-sandbox-0.1.0-linux-x64")).toBeUndefined();
  pointLink(place.link, running);
  expect(place.wayBack("0.2.0", undefined)).toBe(running);
});

test("install place: only the versions that are not named are removed", () => {
  const place = new InstallPlace(prefix);
  for (const version of ["0.1.0", "0.2.0", "0.3.0"]) unpack(place.dirOf(version));
  place.keepOnly([place.dirOf("0.3.0"), place.dirOf("0.1.0"), "/elsewhere"]);
  expect(readdirSync(path.join(prefix, "versions")).toSorted()).toEqual(["0.1.0", "0.3.0"]);
});

test("install place: it is the prefix of a release in versions, a directory beside any other, and never inside a release", () => {
  const placed = unpack(path.join(prefix, "versions/0.1.0"));
  expect(installPlaceOf(placed, undefined).prefix).toBe(prefix);
  const elsewhere = unpack(path.join(path.dirname(prefix), "agent-sandbox-0.1.0-linux-x64"));
  expect(installPlaceOf(elsewhere, undefined).prefix).toBe(prefix);
  unpack(prefix);
  expect(() => installPlaceOf(prefix, undefined)).toThrow(`move it to ${prefix}/versions/<version>`);
  expect(installPlaceOf(prefix, "/srv/releases").prefix).toBe("/srv/releases");
});
